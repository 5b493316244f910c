//! `cargo xtask release archive`: the command with all that belongs to it.

use anyhow::{Context, Result, bail};
use xshell::{Shell, cmd};

use crate::workspace;

/// Builds the command for a target that this machine can run, and packs it with its man pages,
/// completions, systemd units and licences. Prints the path of the archive.
pub(crate) fn run(shell: &Shell, args: &[String]) -> Result<()> {
    let target = match args {
        [] => host(shell)?,
        [flag, target] if flag == "--target" => target.clone(),
        _ => bail!("`archive` takes no arguments but `--target TRIPLE`"),
    };
    let packages = workspace::packages(shell)?;
    let package = packages.iter().find(|package| package.name == "delayline-cli");
    let version = &package.context("the workspace has no crate `delayline-cli`")?.version;
    cmd!(shell, "cargo build --release --locked --package delayline-cli --target {target}")
        .run()?;
    let builds = workspace::target_directory(shell)?;
    let command = builds.join(&target).join("release/delayline");

    let (name, archives) = (format!("delayline-{version}-{target}"), builds.join("archive"));
    let folder = archives.join(&name);
    shell.remove_path(&folder)?;
    for inner in ["completions", "man"] {
        shell.create_dir(folder.join(inner))?;
    }
    shell.copy_file(&command, folder.join("delayline"))?;
    for file in FILES {
        shell.copy_file(file, &folder)?;
    }
    for (of, file) in COMPLETIONS {
        let script = cmd!(shell, "{command} completions {of}").quiet().read()?;
        shell.write_file(folder.join("completions").join(file), script)?;
    }
    let pages = folder.join("man");
    cmd!(shell, "{command} man {pages}").quiet().run()?;
    let archive = archives.join(format!("{name}.tar.gz"));
    cmd!(shell, "tar --create --gzip --file {archive} --directory {archives} {name}").run()?;
    println!("{}", archive.display());
    Ok(())
}

/// The target of this machine's compiler.
fn host(shell: &Shell) -> Result<String> {
    let version = cmd!(shell, "rustc --version --verbose").quiet().read()?;
    let host = version.lines().find_map(|line| line.strip_prefix("host: "));
    host.map(str::to_owned).context("rustc does not name its host")
}

const FILES: [&str; 7] = [
    "crates/delayline-cli/README.md",
    "CHANGELOG.md",
    "LICENSE-APACHE",
    "LICENSE-MIT",
    "packaging/delayline-scheduler.service",
    "packaging/delayline-serve.service",
    "packaging/delayline-work@.service",
];

/// Shells, and the names under which they find their scripts.
const COMPLETIONS: [(&str, &str); 3] =
    [("bash", "delayline.bash"), ("zsh", "_delayline"), ("fish", "delayline.fish")];
