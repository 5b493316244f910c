//! A private PostgreSQL.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use tempfile::TempDir;

/// A separate server, with its data in a directory that is removed with it.
pub(crate) struct Postgres {
    programs: PathBuf,
    home: TempDir,
}

impl Postgres {
    /// Starts one, from `$POSTGRES_BIN`, the `PATH` or Debian's packages.
    pub(crate) fn start() -> Self {
        let home = tempfile::Builder::new().prefix("outbox").tempdir().unwrap();
        if is_root() {
            // PostgreSQL refuses to run as root; Debian's package has a user for it.
            succeeds(Command::new("chown").arg("postgres").arg(home.path()));
        }
        let it = Self { programs: programs(), home };
        let data = it.data();
        let options = ["--username=outbox", "--auth=trust", "--encoding=UTF8", "--no-locale"];
        succeeds(it.command("initdb").args(options).arg("--no-sync").arg("-D").arg(&data));
        let place = it.home.path().display();
        let settings = format!("-c listen_addresses= -c unix_socket_directories={place}");
        let log = it.home.path().join("log");
        let start = ["start", "-w", "-s", "-o", &settings];
        succeeds(it.command("pg_ctl").args(start).arg("-D").arg(&data).arg("-l").arg(log));
        it
    }

    /// The URL of its database.
    pub(crate) fn url(&self) -> String {
        let place = self.home.path().display().to_string().replace('/', "%2F");
        format!("postgres://outbox@{place}/postgres")
    }

    fn data(&self) -> PathBuf {
        self.home.path().join("data")
    }

    fn command(&self, name: &str) -> Command {
        let program = self.programs.join(name);
        let mut command = if is_root() {
            let mut command = Command::new("setpriv");
            command.args(["--reuid=postgres", "--regid=postgres", "--init-groups"]).arg(program);
            command
        } else {
            Command::new(program)
        };
        command.current_dir(self.home.path());
        command
    }
}

impl Drop for Postgres {
    fn drop(&mut self) {
        let data = self.data();
        succeeds(self.command("pg_ctl").args(["stop", "-s", "-m", "immediate", "-D"]).arg(data));
    }
}

fn programs() -> PathBuf {
    let has_all = |place: &Path| place.join("initdb").is_file() && place.join("pg_ctl").is_file();
    let own = env::var_os("POSTGRES_BIN").map(PathBuf::from);
    let path = env::var_os("PATH").unwrap_or_default();
    let debian = fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    let mut debian: Vec<_> = debian.map(|version| version.path().join("bin")).collect();
    debian.sort();
    let all = own.into_iter().chain(env::split_paths(&path)).chain(debian.into_iter().rev());
    let found = all.into_iter().find(|place| has_all(place));
    found.expect("no initdb and pg_ctl: install PostgreSQL, or say where in POSTGRES_BIN")
}

fn is_root() -> bool {
    let id = Command::new("id").arg("-u").output().unwrap();
    id.stdout.trim_ascii() == b"0"
}

fn succeeds(command: &mut Command) {
    // Not `output`: the server would keep its pipes open.
    let status = command.stdout(std::process::Stdio::null()).status().unwrap();
    assert!(status.success(), "{command:?}: {status}");
}
