//! `cargo xtask prove clients`.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail};
use delayline_test_server::{Cluster, Server};
use xshell::{Shell, cmd};

use crate::{packages, redis_server, workspace};

/// Runs the tests of the clients in other languages against `delayline serve`: in memory, in a
/// directory, on a private server and on a cluster. Gets the packages of the programs in
/// crates/delayline/docs/guides/aws-sdk.md from PyPI and npm, below the target directory. With
/// `--rust`, also runs the program in Rust, whose SDK has 200 crates.
pub(crate) fn run(shell: &Shell, args: &[String]) -> Result<()> {
    let with_rust = match args {
        [] => false,
        [arg] if arg == "--rust" => true,
        _ => bail!("`clients` takes --rust only"),
    };
    let server = redis_server::ensure(shell)?;
    let _server = shell.push_env("REDIS_SERVER_BIN", &server);
    let target = workspace::target_directory(shell)?;
    let place = target.join("clients");
    shell.create_dir(&place)?;
    let python = packages::python(shell, &place, &["boto3", "celery[sqs]"])?;
    packages::node(shell, &place, &["@aws-sdk/client-sqs", "sqs-consumer"])?;
    let rust = if with_rust { Some(program_in_rust(shell, &place)?) } else { None };
    let _rust = rust.map(|program| shell.push_env("DELAYLINE_RUST_PROGRAM", program));
    cmd!(shell, "cargo build --package delayline-cli").run()?;
    let delayline = target.join("debug/delayline");
    let server = Server::builder().tcp().try_start()?;
    let cluster = Cluster::start();
    let urls = format!("{} {}", server.url(), cluster.url());
    let clients = [("clients/python/tests", "the client in Python"), ("clients/sqs/tests", "SQS")];
    for (tests, name) in clients {
        let tests = cmd!(shell, "{python} -B -m unittest discover -s {tests}")
            .env("DELAYLINE_BIN", &delayline)
            .env("DELAYLINE_PROGRAMS", &place)
            .env("DELAYLINE_TEST_URLS", &urls);
        tests.run().context(name)?;
    }
    println!("The client in Python and the SQS endpoint keep their promises.");
    Ok(())
}

/// Builds the program of the guide as a separate package, so that no workspace needs the SDK.
fn program_in_rust(shell: &Shell, place: &Path) -> Result<PathBuf> {
    let guide = shell.read_file("crates/delayline/docs/guides/aws-sdk.md")?;
    let program = guide.split_once("```rust,ignore\n").and_then(|(_, it)| it.split_once("```\n"));
    let (program, _) = program.context("the guide has no program in Rust")?;
    let place = place.join("rust");
    shell.write_file(place.join("src/main.rs"), program)?;
    let manifest = place.join("Cargo.toml");
    shell.write_file(&manifest, MANIFEST)?;
    let target = place.join("target");
    cmd!(shell, "cargo build --manifest-path {manifest} --target-dir {target}").run()?;
    Ok(target.join("debug/orders"))
}

const MANIFEST: &str = r#"[package]
name = "orders"
version = "0.0.0"
edition = "2024"

[dependencies]
aws-config = { version = "1", features = ["behavior-version-latest"] }
aws-sdk-sqs = "1"
tokio = { version = "1", features = ["macros", "rt-multi-thread"] }

[workspace]
"#;
