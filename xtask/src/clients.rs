//! `cargo xtask prove clients`.

use anyhow::{Context, Result};
use delayline_test_server::{Cluster, Server};
use xshell::{Shell, cmd};

use crate::{redis_server, workspace};

/// Runs the tests of the clients in other languages against `delayline serve`: in memory, in a
/// directory, on a private server and on a cluster.
pub(crate) fn run(shell: &Shell) -> Result<()> {
    redis_server::ensure(shell)?;
    cmd!(shell, "cargo build --package delayline-cli").run()?;
    let delayline = workspace::target_directory(shell)?.join("debug/delayline");
    let server = Server::builder().tcp().try_start()?;
    let cluster = Cluster::start();
    let urls = format!("{} {}", server.url(), cluster.url());
    let clients =
        [("clients/python/tests", "the client in Python"), ("clients/sqs/tests", "boto3")];
    for (tests, name) in clients {
        let tests = cmd!(shell, "python3 -B -m unittest discover -s {tests}")
            .env("DELAYLINE_BIN", &delayline)
            .env("DELAYLINE_TEST_URLS", &urls);
        tests.run().context(name)?;
    }
    println!("The client in Python and the SQS endpoint keep their promises.");
    Ok(())
}
