//! A private PostgreSQL server, with the settings that `initdb` gives it.

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use rustix::param::clock_ticks_per_second;
use rustix::process::geteuid;

use crate::measure::Store;

/// Where Debian has the programs of each version.
const VERSIONS: &str = "/usr/lib/postgresql";

/// Prints the server's directory, and ends the server when its input ends: so also if the process
/// that started it dies.
const SCRIPT: &str = r#"
set -e
directory=$(mktemp -d)
trap 'rm -rf "$directory"' EXIT
"$1/initdb" --auth trust --username bench --pgdata "$directory/data" >"$directory/log"
"$1/pg_ctl" start --wait --silent --pgdata "$directory/data" --log "$directory/log" \
    --options "-c listen_addresses='' -c unix_socket_directories='$directory'" ||
    { cat "$directory/log" >&2; exit 1; }
echo "$directory"
read -r _ || true
"$1/pg_ctl" stop --wait --silent --mode immediate --pgdata "$directory/data"
"#;

/// Dropping it ends the server and removes its directory.
pub(crate) struct Postgres {
    shell: Child,
    directory: String,
    /// The parent of all of the server's processes.
    pid: u32,
}

impl Store for Postgres {
    fn start() -> Result<Self> {
        let mut command = Command::new("sh");
        if geteuid().is_root() {
            // PostgreSQL refuses to run as root.
            command = Command::new("setpriv");
            command.args(["--reuid=postgres", "--regid=postgres", "--init-groups", "sh"]);
        }
        let mut shell = command
            .args(["-c", SCRIPT, "postgres"])
            .arg(programs()?)
            // The user of the server need not be able to read this one.
            .current_dir("/")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            // Ctrl-C goes to a whole process group: the shell has to outlive it.
            .process_group(0)
            .spawn()
            .context("starting PostgreSQL")?;
        let output = shell.stdout.take().context("the shell has an output")?;
        let mut directory = String::new();
        BufReader::new(output).read_line(&mut directory)?;
        let directory = directory.trim_end().to_owned();
        // Owned from here on, so that the server ends after an error.
        let mut postgres = Self { shell, directory, pid: 0 };
        if postgres.directory.is_empty() {
            let mut reason = String::new();
            let errors = postgres.shell.stderr.as_mut().context("the shell has errors")?;
            errors.read_to_string(&mut reason)?;
            bail!("starting PostgreSQL: {}", reason.trim());
        }
        let first = fs::read_to_string(format!("{}/data/postmaster.pid", postgres.directory))?;
        postgres.pid = first.lines().next().context("postmaster.pid is empty")?.parse()?;
        Ok(postgres)
    }

    /// That of all of its processes.
    fn cpu_time(&self) -> Result<Duration> {
        let mut ticks = 0;
        for entry in fs::read_dir("/proc")? {
            // One that has just ended is counted with its parent.
            let stat = fs::read_to_string(entry?.path().join("stat"));
            ticks += stat.ok().and_then(|stat| ticks_of(self.pid, &stat)).unwrap_or_default();
        }
        Ok(Duration::from_secs_f64(ticks as f64 / clock_ticks_per_second() as f64))
    }
}

impl Postgres {
    /// Where its socket is.
    pub(crate) fn directory(&self) -> &str {
        &self.directory
    }
}

impl Drop for Postgres {
    fn drop(&mut self) {
        drop(self.shell.stdin.take());
        // Fails only if the shell has already been waited for.
        let _ = self.shell.wait();
    }
}

/// The version that is measured, in PostgreSQL's words.
pub(crate) fn version() -> Result<String> {
    let output = Command::new(programs()?.join("postgres")).arg("--version").output()?;
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

/// The directory of the newest version's programs.
fn programs() -> Result<PathBuf> {
    let number = |path: &PathBuf| path.file_name()?.to_str()?.parse::<u32>().ok();
    let versions = fs::read_dir(VERSIONS).into_iter().flatten().flatten();
    let newest = versions.map(|entry| entry.path()).max_by_key(number);
    let newest = newest.with_context(|| format!("PostgreSQL is not in {VERSIONS}"))?;
    Ok(newest.join("bin"))
}

/// The processor time in a line of `/proc/*/stat`, if it is that of the process `pid`, with its
/// ended children, or that of one of its children.
fn ticks_of(pid: u32, stat: &str) -> Option<u64> {
    // A name may contain spaces and parentheses.
    let (own, rest) = (stat.split_once(' ')?.0, stat.rsplit_once(") ")?.1);
    let fields: Vec<_> = rest.split(' ').collect();
    let (parent, times) = (fields.get(1)?, fields.get(11..15)?);
    let counted = match (own.parse() == Ok(pid), parent.parse() == Ok(pid)) {
        (true, _) => 4,
        (_, true) => 2,
        _ => return None,
    };
    times.iter().take(counted).map(|ticks| ticks.parse::<u64>().ok()).sum()
}

#[cfg(test)]
mod tests {
    use super::ticks_of;

    #[test]
    fn processor_time_is_that_of_the_server_and_its_children() {
        let stat = |pid, parent| {
            format!("{pid} (a) (b) S {parent} 1 1 0 -1 4194560 1 2 3 4 100 20 3 4 20 0 1 0 9 8 7")
        };
        let ticks = [stat(7, 1), stat(8, 7), stat(9, 8)].map(|stat| ticks_of(7, &stat));
        assert_eq!(ticks, [Some(127), Some(120), None]);
    }
}
