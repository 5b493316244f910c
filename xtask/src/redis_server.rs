//! Gets a redis-server for the tests.

use std::env;
use std::path::PathBuf;

use anyhow::{Context, Result, bail};
use delayline_test_server::{StartError, find_server_binary};
use xshell::{Shell, cmd};

/// The server program: that of the shell's environment, else the installed one, else Debian's,
/// installed now.
///
/// Without one the tests fail; they never skip.
pub(crate) fn ensure(shell: &Shell) -> Result<PathBuf> {
    // What a shell has been given is not in the environment of this process.
    let named = shell.var_os("REDIS_SERVER_BIN").map(PathBuf::from);
    if let Some(named) = named.filter(|named| named.is_file()) {
        return Ok(named);
    }
    let missing = match find_server_binary() {
        Err(error @ StartError::NotFound) => error,
        result => return Ok(result?),
    };
    install(shell, "redis-server").context(missing)?;
    Ok(find_server_binary()?)
}

/// What to put in front of a command that installs something; `None` if that is not possible here
/// without a question.
fn privilege(shell: &Shell) -> Option<&'static [&'static str]> {
    if !on_path("apt-get") {
        return None;
    }
    let user = cmd!(shell, "id -u").quiet().read().ok()?;
    if user == "0" {
        return Some(&[]);
    }
    let silent = cmd!(shell, "sudo -n true").quiet().ignore_stdout().ignore_stderr().run();
    silent.is_ok().then_some(&["sudo", "-n"])
}

/// Installs a package of Debian, if that is possible here without a question.
pub(crate) fn install(shell: &Shell, package: &str) -> Result<()> {
    let Some(prefix) = privilege(shell) else {
        bail!("{package} is not installed, and apt-get may not install it here");
    };
    println!("xtask: no {package} on this machine, installing Debian's package");
    // These keep the package from starting its service, which we neither use nor touch: `RUNLEVEL`
    // without systemd, `SYSTEMD_OFFLINE` with it.
    let environment = ["env", "DEBIAN_FRONTEND=noninteractive", "RUNLEVEL=1", "SYSTEMD_OFFLINE=1"];
    let command: Vec<&str> = prefix.iter().chain(&environment).copied().collect();
    let Some((program, args)) = command.split_first() else { return Ok(()) };
    // Old package lists may be good enough.
    let updated = cmd!(shell, "{program} {args...} apt-get -q update").run();
    cmd!(shell, "{program} {args...} apt-get -q install -y --no-install-recommends {package}")
        .run()
        .with_context(|| match updated {
            Ok(()) => format!("apt-get could not install {package}"),
            Err(error) => format!("neither the package lists nor {package}: {error}"),
        })?;
    // Nor is it to start with the machine. Without systemd, or without a service, this fails.
    let disable = cmd!(shell, "{program} {args...} systemctl disable --quiet {package}");
    let _ = disable.quiet().ignore_stdout().ignore_stderr().run();
    Ok(())
}

/// Whether a program of this name can be run.
pub(crate) fn on_path(program: &str) -> bool {
    let path = env::var_os("PATH").unwrap_or_default();
    env::split_paths(&path).any(|folder| folder.join(program).is_file())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_that_the_shell_names_is_not_replaced_by_an_installed_one() {
        let shell = Shell::new().unwrap();
        let named = env::current_exe().unwrap();
        let _server = shell.push_env("REDIS_SERVER_BIN", &named);
        assert_eq!(ensure(&shell).unwrap(), named);
    }
}
