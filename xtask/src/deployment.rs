//! `cargo xtask prove deployment`: manifests as published schemas read them, and units as systemd
//! does.
//!
//! That the command accepts their arguments is a test of `delayline-cli`.

use anyhow::{Context as _, Result, ensure};
use xshell::{Shell, cmd};

use crate::{packages, workspace};

/// Checks everything in `packaging` that an operator installs.
pub(crate) fn run(shell: &Shell, args: &[String]) -> Result<()> {
    ensure!(args.is_empty(), "`deployment` takes no arguments");
    let place = workspace::target_directory(shell)?.join("deployment");
    shell.remove_path(place.join("units"))?;
    shell.create_dir(place.join("units"))?;

    let units = cmd!(shell, "git ls-files packaging/*.service").quiet().read()?;
    let mut verified = Vec::new();
    for unit in units.lines() {
        let name = unit.rsplit('/').next().unwrap_or(unit).replace("@.", "@orders.");
        let file = place.join("units").join(name);
        // The command is not installed here.
        let text = shell.read_file(unit)?;
        ensure!(text.contains(COMMAND), "{unit} does not run {COMMAND}");
        // It turns each `-` of an instance name into `/`: orders-eu would work on orders/eu.
        ensure!(!text.contains("%I"), "{unit} unescapes the name of a queue: use %i");
        shell.write_file(&file, text.replace(COMMAND, "/bin/true"))?;
        verified.push(file);
    }
    let verify = cmd!(shell, "systemd-analyze verify {verified...}").ignore_status();
    let found = verify.output().context(SYSTEMD)?;
    let (status, warnings) = (found.status, String::from_utf8_lossy(&found.stderr));
    let is_well = status.success() && warnings.is_empty();
    ensure!(is_well, "units that systemd would not run so ({status}):\n{warnings}");

    let python = packages::python(shell, &place, PACKAGES)?;
    // An invalid workflow runs no check at all.
    let files = cmd!(shell, "git ls-files .github/workflows/*.yml compose.yaml examples/compose");
    let files = files.quiet().read()?;
    let files = files.lines().filter(|file| file.ends_with("yml") || file.ends_with("yaml"));
    cmd!(shell, "{python} -c {READ} {files...}").run().context("a file is not YAML")?;
    for folder in FOLDERS {
        let rendered = cmd!(shell, "kubectl kustomize {folder}").read().context(KUBECTL)?;
        cmd!(shell, "{python} packaging/kubernetes/check.py").stdin(rendered).run()?;
    }
    Ok(())
}

const COMMAND: &str = "/usr/local/bin/delayline";
const FOLDERS: [&str; 2] = ["packaging/kubernetes/base", "packaging/kubernetes/keda"];
/// Schemas of Kubernetes and KEDA.
const PACKAGES: &[&str] = &["kubernetes-validate", "cloudcoil-models-keda"];
const READ: &str = "import sys, yaml\nfor file in sys.argv[1:]: yaml.safe_load(open(file))";
const SYSTEMD: &str = "systemd-analyze is needed: on Debian, systemd";
const KUBECTL: &str = "kubectl is needed, but no cluster";
