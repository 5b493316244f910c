//! What a driver costs a build: time, crates, and bytes of the program.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use indicatif::ProgressBar;

use super::sheet::Sheet;

/// Separated by commas.
const FEATURES: [&str; 4] = ["redis", "redis,tls", "fred", "fred,tls"];

pub(super) fn measure(progress: &ProgressBar) -> Result<Sheet> {
    let mut rows = Vec::new();
    for features in FEATURES {
        progress.set_message(format!("a build with {features}"));
        rows.push(built_with(features)?);
    }
    Ok(Sheet {
        title: "Builds",
        note: "A program that opens a queue, sends a message and runs a worker, with `json` and \
               only these features of `delayline`; a clean, stripped release build with its crates already \
               downloaded.",
        columns: ["features", "crates", "build", "program"].map(str::to_owned).to_vec(),
        rows,
    })
}

fn built_with(features: &str) -> Result<Vec<String>> {
    let home = tempfile::tempdir()?;
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().context("the workspace")?;
    let library = root.join("crates/delayline");
    fs::create_dir(home.path().join("src"))?;
    fs::write(home.path().join("src/main.rs"), PROGRAM)?;
    let manifest = MANIFEST
        .replace("FEATURES", &features.replace(',', "\", \""))
        .replace("LIBRARY", &library.display().to_string());
    fs::write(home.path().join("Cargo.toml"), manifest)?;
    fs::copy(root.join("Cargo.lock"), home.path().join("Cargo.lock"))?;
    cargo(home.path(), &["fetch"])?;
    let tree =
        cargo(home.path(), &["tree", "--edges", "normal", "--prefix", "none", "--format", "{p}"])?;
    let crates: BTreeSet<_> = tree.lines().map(|line| line.trim_end_matches(" (*)")).collect();
    let start = Instant::now();
    cargo(home.path(), &["build", "--release", "--offline"])?;
    let seconds = start.elapsed().as_secs_f64();
    let program = fs::metadata(home.path().join("target/release/program"))?.len();
    Ok(vec![
        format!("`{features}`"),
        // The program itself is one of them.
        (crates.len() - 1).to_string(),
        format!("{seconds:.0} s"),
        format!("{:.1} MB", f64::from(u32::try_from(program)?) / 1e6),
    ])
}

fn cargo(directory: &Path, args: &[&str]) -> Result<String> {
    let output = Command::new(env!("CARGO"))
        .args(args)
        .current_dir(directory)
        .env("CARGO_TARGET_DIR", directory.join("target"))
        .output()?;
    let errors = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "cargo {}: {errors}", args.join(" "));
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

const MANIFEST: &str = r#"
[package]
name = "program"
version = "0.0.0"
edition = "2024"

[workspace]

[dependencies]
delayline = { path = "LIBRARY", default-features = false, features = ["json", "FEATURES"] }
tokio = { version = "1", features = ["macros", "rt-multi-thread"] }

[profile.release]
strip = true
"#;

const PROGRAM: &str = r#"
use delayline::{Connect, Job, Queue, Worker};

#[tokio::main]
async fn main() -> Result<(), delayline::Error> {
    let url = std::env::args().nth(1).unwrap_or_default();
    let queue: Queue<String> = delayline::connect(&url).await?.queue("program").await?;
    queue.send(&"hello".to_owned()).await?;
    let worker = Worker::builder(queue).until_empty(true).build()?;
    worker.run(|job: Job<String>| async move { println!("{}", job.payload()); Ok::<(), &str>(()) }).await;
    Ok(())
}
"#;
