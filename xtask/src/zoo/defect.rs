//! What a patch in `zoo/` says.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};

use super::suite::Suite;

/// A defect: a patch whose first line describes it. A later line before the patch itself may say
/// `Caught by: TEST in SUITE`, where the suite is a cargo command without `cargo`.
pub(super) struct Defect {
    pub(super) name: String,
    pub(super) what: String,
    pub(super) patch: PathBuf,
    /// The one test that must fail. Without it, any will do.
    pub(super) caught_by: Option<String>,
    /// The suite that has the test.
    suite: Option<Suite>,
    /// The files that it changes.
    touches: Vec<String>,
}

/// All defects, by name.
pub(super) fn defects(root: &Path) -> Result<Vec<Defect>> {
    let mut defects = Vec::new();
    for entry in fs::read_dir(root.join("zoo"))? {
        let patch = entry?.path();
        let Some(name) = patch.file_name().and_then(|name| name.to_str()) else { continue };
        let Some(name) = name.strip_suffix(".patch") else { continue };
        let text = fs::read_to_string(&patch)?;
        let defect = Defect::read(name, &text, &patch);
        defects.push(defect.with_context(|| format!("zoo/{name}.patch"))?);
    }
    defects.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(defects)
}

impl Defect {
    fn read(name: &str, text: &str, patch: &Path) -> Result<Self> {
        let what = text.lines().next().unwrap_or_default().to_owned();
        let (mut caught_by, mut suite) = (None, None);
        if let Some(line) = text.lines().find_map(|line| line.strip_prefix("Caught by: ")) {
            let (test, command) =
                line.split_once(" in ").context("expected `Caught by: TEST in SUITE`")?;
            caught_by = Some(test.to_owned());
            suite = Some(Suite::new(command));
        }
        let touches = text.lines().filter_map(|line| line.strip_prefix("+++ b/"));
        let touches = touches.map(str::to_owned).collect();
        let (name, patch) = (name.to_owned(), patch.to_owned());
        Ok(Self { name, what, patch, caught_by, suite, touches })
    }

    /// The suites that are to catch it, the likeliest first.
    pub(super) fn suites(&self) -> Vec<Suite> {
        if let Some(suite) = &self.suite {
            return vec![suite.clone()];
        }
        let touches = |path: &str| self.touches.iter().any(|file| file.starts_with(path));
        let suites = SUITES.iter().find(|(path, _)| touches(path)).map_or(&[][..], |it| it.1);
        suites.iter().map(|command| Suite::new(command)).collect()
    }
}

/// By the beginning of a path that a defect touches.
const SUITES: [(&str, &[&str]); 8] = [
    (
        "crates/delayline-redis-protocol/lua",
        &[
            "test -p delayline-redis --test conformance --test integration",
            "test -p delayline-redis-protocol --test scripts",
            "test -p delayline --test integration",
        ],
    ),
    (
        "crates/delayline-core/src/worker",
        &["test -p delayline-core", "run --release -p delayline-sim"],
    ),
    (
        "crates/delayline-core",
        &["test -p delayline-core -p delayline-memory", "run --release -p delayline-sim"],
    ),
    ("crates/delayline-file", &["test -p delayline-file"]),
    ("crates/delayline-memory", &["test -p delayline-memory", "test -p delayline --lib --tests"]),
    (
        "crates/delayline-redis-protocol/src",
        &["test -p delayline-redis-protocol --lib", "test -p delayline-redis --test integration"],
    ),
    ("crates/delayline-cli", &["test -p delayline-cli --lib --test integration"]),
    ("crates/delayline", &["test -p delayline --lib --tests"]),
];

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::{Defect, Suite};

    #[test]
    fn a_patch_says_what_it_is_and_may_name_its_test() {
        let text = "A gap\nCaught by: sees_it in test -p a --lib\n\n--- a/x\n+++ b/crates/a/x\n";
        let defect = Defect::read("gap", text, Path::new("zoo/gap.patch")).unwrap();
        assert_eq!(defect.what, "A gap");
        assert_eq!(defect.caught_by.as_deref(), Some("sees_it"));
        assert_eq!(defect.suites(), [Suite::new("test -p a --lib")]);
        assert!(Defect::read("gap", "A gap\nCaught by: chance\n", Path::new("x")).is_err());
    }

    #[test]
    fn without_a_named_test_the_path_chooses_the_suites() {
        let text = "A gap\n\n+++ b/crates/delayline-core/src/worker/bell.rs\n";
        let defect = Defect::read("gap", text, Path::new("zoo/gap.patch")).unwrap();
        assert_eq!(defect.suites()[0], Suite::new("test -p delayline-core"));
        assert_eq!(defect.caught_by, None);
    }
}
