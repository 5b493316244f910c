//! A lower bound for the cost of enqueue, claim and ack with the structures of a queue: the same
//! changes, without checks, fences or dead letters. The result is not usable as a queue.

mod bare_scripts;
mod plain_commands;

use anyhow::Result;
use delayline_benches::PAYLOAD_BYTES;
use delayline_test_server::Server;
use redis::Connection;

pub(crate) use bare_scripts::BareScripts;
pub(crate) use plain_commands::PlainCommands;

/// A client that changes the structures of a queue.
pub(crate) trait Floor: Sized {
    /// The messages that a claim has moved.
    type Claimed;

    fn connect(server: &Server) -> Result<Self>;
    fn enqueue(&mut self, batch: usize) -> Result<()>;
    fn claim(&mut self, batch: usize) -> Result<Self::Claimed>;
    fn ack(&mut self, claimed: &Self::Claimed) -> Result<()>;
}

/// Lengths of stored values as in docs/wire.md, for a message without headers that is leased for
/// the first time.
const RECORD_BYTES: usize = 23 + PAYLOAD_BYTES;
const DETAILS_BYTES: usize = 60;
const FINISHED_BYTES: usize = 33;
const CONTROL_BYTES: usize = 92;

const CONTROL: &str = "delayline:{bench}:control";
const INDEX: &str = "delayline:{bench}:index";
const RECORDS: &str = "delayline:{bench}:records";
const DETAILS: &str = "delayline:{bench}:details";
const FINISHED: &str = "delayline:{bench}:finished_new";
const JOURNAL: &str = "delayline:{bench}:journal_new";

/// Removes the finished ids once there are as many as a queue remembers. Returns their number with
/// `added` more.
fn forget_finished(connection: &mut Connection, count: usize, added: usize) -> Result<usize> {
    const MAX_FINISHED: usize = 100_000;

    if count < MAX_FINISHED {
        return Ok(count + added);
    }
    redis::cmd("UNLINK").arg(FINISHED).exec(connection)?;
    Ok(added)
}

fn id(number: u64) -> String {
    format!("message-{number:012}")
}
