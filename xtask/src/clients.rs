//! `cargo xtask prove clients`.

use anyhow::{Context, Result};
use delayline_test_server::{Cluster, Server};
use xshell::{Shell, cmd};

use crate::{packages, redis_server, workspace};

/// Runs the tests of the clients in other languages against `delayline serve`: in memory, in a
/// directory, on a private server and on a cluster. Gets the packages of the programs in
/// crates/delayline/docs/guides/aws-sdk.md from PyPI and npm, below the target directory.
pub(crate) fn run(shell: &Shell) -> Result<()> {
    redis_server::ensure(shell)?;
    let target = workspace::target_directory(shell)?;
    let place = target.join("clients");
    shell.create_dir(&place)?;
    let python = packages::python(shell, &place, &["boto3", "celery[sqs]"])?;
    packages::node(shell, &place, &["@aws-sdk/client-sqs", "sqs-consumer"])?;
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
