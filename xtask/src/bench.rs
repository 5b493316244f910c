//! `cargo xtask bench`.

use std::path::PathBuf;

use anyhow::Result;
use xshell::{Shell, cmd};

use crate::{packages, redis_server, workspace};

/// Measures whole systems on private servers.
pub(crate) fn run(shell: &Shell, args: &[String]) -> Result<()> {
    let server = redis_server::ensure(shell)?;
    let _server = shell.push_env("REDIS_SERVER_BIN", &server);
    let moto = if args.iter().any(|it| it == "sqs") { moto(shell)? } else { None };
    let _moto = moto.map(|moto| shell.push_env("MOTO_SERVER", moto));
    let bench = ["--release", "--locked", "--quiet", "-p", "delayline-benches"];
    cmd!(shell, "cargo run {bench...} --bin delayline-bench -- {args...}").run()?;
    Ok(())
}

/// moto's server, to compare with; `None` if PyPI does not have it now.
fn moto(shell: &Shell) -> Result<Option<PathBuf>> {
    let place = workspace::target_directory(shell)?.join("moto");
    shell.create_dir(&place)?;
    Ok(match packages::python(shell, &place, &["moto[server]"]) {
        Ok(python) => Some(python.with_file_name("moto_server")),
        Err(error) => {
            println!("xtask: moto's server is left out: {error:#}");
            None
        }
    })
}
