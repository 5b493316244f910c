//! The same changes of the same structures as plain commands with many arguments, without scripts:
//! without a check, a fence, or atomicity. Nobody could use it; no script can be cheaper.

use anyhow::Result;
use delayline_benches::PAYLOAD_BYTES;
use delayline_test_server::Server;
use redis::{Commands, Connection};

/// Lengths as in docs/wire.md, of a message without headers that is leased for the first time.
const RECORD_BYTES: usize = 23 + PAYLOAD_BYTES;
const DETAILS_BYTES: usize = 60;
const FINISHED_BYTES: usize = 33;
const CONTROL_BYTES: usize = 75;

/// What a claim has moved.
pub(crate) struct Claimed {
    ids: Vec<Vec<u8>>,
    members: Vec<Vec<u8>>,
}

pub(crate) struct Floor {
    connection: Connection,
    sequence: u64,
}

impl Floor {
    pub(crate) fn connect(server: &Server) -> Result<Self> {
        Ok(Self { connection: server.admin()?, sequence: 0 })
    }

    /// As one request, like each of these.
    pub(crate) fn enqueue(&mut self, batch: usize) -> Result<()> {
        let (mut records, mut due) = (redis::cmd("HSET"), redis::cmd("ZADD"));
        records.arg(RECORDS);
        due.arg(DUE);
        for _ in 0..batch {
            self.sequence += 1;
            let id = format!("message-{:012}", self.sequence);
            let member = [&self.sequence.to_be_bytes()[..], id.as_bytes()].concat();
            records.arg(&id).arg([b'r'; RECORD_BYTES].as_slice());
            due.arg(LEVEL + self.sequence).arg(member);
        }
        let mut request = redis::pipe();
        request.add_command(records).ignore().add_command(due).ignore();
        request.set(CONTROL, [0; CONTROL_BYTES].as_slice()).ignore();
        Ok(request.query(&mut self.connection)?)
    }

    pub(crate) fn claim(&mut self, batch: usize) -> Result<Claimed> {
        let members: Vec<(Vec<u8>, f64)> = self.connection.zrangebyscore_limit_withscores(
            DUE,
            "-inf",
            "+inf",
            0,
            isize::try_from(batch)?,
        )?;
        let members: Vec<_> = members.into_iter().map(|(member, _)| member).collect();
        let ids: Vec<_> = members.iter().map(|member| member[8..].to_vec()).collect();
        let (mut details, mut leased) = (redis::cmd("HSET"), redis::cmd("ZADD"));
        details.arg(DETAILS);
        leased.arg(LEASED);
        for (id, member) in ids.iter().zip(&members) {
            details.arg(id).arg([b'd'; DETAILS_BYTES].as_slice());
            leased.arg(1_800_000_000_000_u64).arg(member);
        }
        let mut request = redis::pipe();
        request.cmd("HMGET").arg(RECORDS).arg(&ids).ignore();
        request.cmd("HMGET").arg(DETAILS).arg(&ids).ignore();
        request.add_command(details).ignore().add_command(leased).ignore();
        request.zrem(DUE, &members).ignore();
        request.hset(JOURNAL, "worker", ids.concat()).ignore();
        request.set(CONTROL, [0; CONTROL_BYTES].as_slice()).ignore();
        request.query::<()>(&mut self.connection)?;
        Ok(Claimed { ids, members })
    }

    pub(crate) fn ack(&mut self, Claimed { ids, members }: &Claimed) -> Result<()> {
        let mut finished = redis::cmd("HSET");
        finished.arg(FINISHED);
        for id in ids {
            finished.arg(id).arg([b'f'; FINISHED_BYTES].as_slice());
        }
        let mut request = redis::pipe();
        request.cmd("HMGET").arg(DETAILS).arg(ids).ignore();
        request.add_command(finished).ignore();
        request.zrem(LEASED, members).ignore();
        request.hdel(RECORDS, ids).ignore().hdel(DETAILS, ids).ignore();
        request.set(CONTROL, [0; CONTROL_BYTES].as_slice()).ignore();
        // Our memory of finished ids is bounded as well.
        if self.sequence % 100_000 < u64::try_from(ids.len())? {
            request.cmd("UNLINK").arg(FINISHED).ignore();
        }
        Ok(request.query(&mut self.connection)?)
    }
}

const CONTROL: &str = "delayline:{bench}:control";
const DUE: &str = "delayline:{bench}:due";
const LEASED: &str = "delayline:{bench}:leased";
const RECORDS: &str = "delayline:{bench}:records";
const DETAILS: &str = "delayline:{bench}:details";
const FINISHED: &str = "delayline:{bench}:finished_new";
const JOURNAL: &str = "delayline:{bench}:journal_new";
/// The score of a message of normal priority begins here.
const LEVEL: u64 = 2 << 48;
