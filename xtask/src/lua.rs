//! `cargo xtask lua`.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result, bail};
use xshell::{Shell, cmd};

use crate::workspace;

/// Prints a script as servers receive it (`NAME`), or the names of all scripts (no argument). With
/// `[NAME] --diff REV` it prints the changes since another revision.
pub(crate) fn run(shell: &Shell, args: &[String]) -> Result<()> {
    let root = workspace::root();
    match args.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        [] => print!("{}", script(shell, &root, None)?),
        ["--diff", revision] => diff(shell, &root, None, revision)?,
        [name] => print!("{}", script(shell, &root, Some(name))?),
        [name, "--diff", revision] => diff(shell, &root, Some(name), revision)?,
        _ => bail!("usage: cargo xtask lua [NAME] [--diff REV]"),
    }
    Ok(())
}

/// The script of the sources below `root`; without a name, the names of all.
fn script(shell: &Shell, root: &Path, name: Option<&str>) -> Result<String> {
    let manifest = root.join("crates/delayline-redis-protocol/Cargo.toml");
    // Cargo takes two checkouts in one target directory for the same packages.
    let here = workspace::root();
    let target = here.join(if root == here { "target" } else { "target/lua" });
    let run = cmd!(shell, "cargo run --quiet --manifest-path {manifest} --target-dir {target}");
    let mut text = run.args(["--example", "script", "--"]).args(name).quiet().read()?;
    text.push('\n');
    Ok(text)
}

fn diff(shell: &Shell, root: &Path, name: Option<&str>, revision: &str) -> Result<()> {
    let folder = shell.create_temp_dir()?;
    let old_root = folder.path().join("checkout");
    cmd!(shell, "git worktree add --quiet --detach {old_root} {revision}").run()?;
    let result = diff_with(shell, root, &old_root, name, folder.path());
    cmd!(shell, "git worktree remove --force {old_root}").run()?;
    result
}

fn diff_with(
    shell: &Shell,
    root: &Path,
    old_root: &Path,
    name: Option<&str>,
    folder: &Path,
) -> Result<()> {
    let names_of = |root| -> Result<BTreeSet<String>> {
        Ok(script(shell, root, None)?.lines().map(str::to_owned).collect())
    };
    let roots = [("old", old_root), ("new", root)];
    for (side, root) in roots {
        fs::create_dir(folder.join(side))?;
        for each in names_of(root).with_context(|| format!("the scripts of {}", root.display()))? {
            if name.is_none_or(|name| name == each) {
                let text = script(shell, root, Some(&each))?;
                fs::write(folder.join(side).join(each).with_extension("lua"), text)?;
            }
        }
    }
    let _folder = shell.push_dir(folder);
    // Its exit status is 1 if they differ.
    cmd!(shell, "git --no-pager diff --no-index old new").ignore_status().quiet().run()?;
    Ok(())
}
