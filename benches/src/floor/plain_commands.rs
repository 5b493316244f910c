//! The floor as plain commands with many arguments, without scripts: not even atomic.

use anyhow::Result;
use delayline_test_server::Server;
use redis::{Commands, Connection};

use super::{
    CONTROL, CONTROL_BYTES, DETAILS, DETAILS_BYTES, FINISHED, FINISHED_BYTES, Floor, INDEX,
    JOURNAL, RECORD_BYTES, RECORDS, forget_finished, id,
};

/// The scores of waiting messages of normal priority begin here, and those of leased ones.
const NORMAL: u64 = 2 << 48;
const LEASED: u64 = 4 << 48;

pub(crate) struct Claimed {
    ids: Vec<Vec<u8>>,
    members: Vec<Vec<u8>>,
}

/// Each operation is one request, but a claim is two.
pub(crate) struct PlainCommands {
    connection: Connection,
    sequence: u64,
    finished: usize,
}

impl Floor for PlainCommands {
    type Claimed = Claimed;

    fn connect(server: &Server) -> Result<Self> {
        Ok(Self { connection: server.admin()?, sequence: 0, finished: 0 })
    }

    fn enqueue(&mut self, batch: usize) -> Result<()> {
        let (mut records, mut places) = (redis::cmd("HSET"), redis::cmd("ZADD"));
        records.arg(RECORDS);
        places.arg(INDEX);
        for _ in 0..batch {
            self.sequence += 1;
            let id = id(self.sequence);
            let member = [&self.sequence.to_be_bytes()[..], id.as_bytes()].concat();
            records.arg(&id).arg([b'r'; RECORD_BYTES].as_slice());
            places.arg(NORMAL + self.sequence).arg(member);
        }
        let mut request = redis::pipe();
        request.add_command(records).ignore().add_command(places).ignore();
        request.set(CONTROL, [0; CONTROL_BYTES].as_slice()).ignore();
        Ok(request.query(&mut self.connection)?)
    }

    fn claim(&mut self, batch: usize) -> Result<Claimed> {
        let members: Vec<(Vec<u8>, f64)> = self.connection.zrangebyscore_limit_withscores(
            INDEX,
            NORMAL,
            LEASED - 1,
            0,
            isize::try_from(batch)?,
        )?;
        let members: Vec<_> = members.into_iter().map(|(member, _)| member).collect();
        let ids: Vec<_> = members.iter().map(|member| member[8..].to_vec()).collect();
        let (mut details, mut places) = (redis::cmd("HSET"), redis::cmd("ZADD"));
        details.arg(DETAILS);
        places.arg(INDEX);
        for (id, member) in ids.iter().zip(&members) {
            details.arg(id).arg([b'd'; DETAILS_BYTES].as_slice());
            places.arg(LEASED + 1_800_000_000_000).arg(member);
        }
        let mut request = redis::pipe();
        request.cmd("HMGET").arg(RECORDS).arg(&ids).ignore();
        request.cmd("HMGET").arg(DETAILS).arg(&ids).ignore();
        request.add_command(details).ignore().add_command(places).ignore();
        request.hset(JOURNAL, "worker", ids.concat()).ignore();
        request.set(CONTROL, [0; CONTROL_BYTES].as_slice()).ignore();
        request.query::<()>(&mut self.connection)?;
        Ok(Claimed { ids, members })
    }

    fn ack(&mut self, Claimed { ids, members }: &Claimed) -> Result<()> {
        self.finished = forget_finished(&mut self.connection, self.finished, ids.len())?;
        let mut finished = redis::cmd("HSET");
        finished.arg(FINISHED);
        for id in ids {
            finished.arg(id).arg([b'f'; FINISHED_BYTES].as_slice());
        }
        let mut request = redis::pipe();
        request.cmd("HMGET").arg(DETAILS).arg(ids).ignore();
        request.add_command(finished).ignore();
        request.zrem(INDEX, members).ignore();
        request.hdel(RECORDS, ids).ignore().hdel(DETAILS, ids).ignore();
        request.set(CONTROL, [0; CONTROL_BYTES].as_slice()).ignore();
        Ok(request.query(&mut self.connection)?)
    }
}
