//! `cargo xtask prove lua-mutants`.

use anyhow::{Context, Result, bail};
use xshell::{Shell, cmd};

use crate::redis_server;

/// Changes the scripts in small ways, and shows which test catches each change.
pub(crate) fn run(shell: &Shell, args: &[String]) -> Result<()> {
    let server = redis_server::ensure(shell)?;
    let _server = shell.push_env("REDIS_SERVER_BIN", &server);
    let (mut sample, mut seed, mut script, mut again) = ("300", "1", None, None);
    let (mut trials, mut list) = (None, None);
    let mut args = args.iter().map(String::as_str);
    while let Some(arg) = args.next() {
        if arg == "--list" {
            list = Some(shell.push_env("DELAYLINE_MUTANTS_LIST", "1"));
            continue;
        }
        let value = args.next().with_context(|| format!("{arg} needs a value"))?;
        match arg {
            "--sample" => sample = value,
            "--seed" => seed = value,
            "--script" => script = Some(value),
            "--trials" => trials = Some(value),
            "--again" => again = Some(std::path::absolute(value)?),
            unknown => {
                bail!("`lua-mutants` does not take {unknown}; see `cargo xtask help`")
            }
        }
    }
    let _sample = shell.push_env("DELAYLINE_MUTANTS", sample);
    let _seed = shell.push_env("DELAYLINE_SEED", seed);
    let _script = script.map(|script| shell.push_env("DELAYLINE_MUTANTS_OF", script));
    let _again = again.map(|output| shell.push_env("DELAYLINE_MUTANTS_AGAIN", output));
    let _trials = trials.map(|trials| shell.push_env("DELAYLINE_TRIALS", trials));
    let _list = list;
    let test = ["-p", "delayline-redis-protocol", "--test", "lua_mutants", "--release", "--locked"];
    cmd!(shell, "cargo test --quiet {test...} -- --nocapture mutants_of_the_scripts").run()?;
    Ok(())
}
