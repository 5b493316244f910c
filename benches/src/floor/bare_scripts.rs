//! The floor as three scripts, so that it is atomic, goes by the server's clock and numbers the
//! messages on the server: what the language and its calls cost, whatever a queue does with them.

use anyhow::{Result, ensure};
use delayline_test_server::Server;
use redis::Connection;

use super::{
    CONTROL, CONTROL_BYTES, DETAILS, DETAILS_BYTES, FINISHED, FINISHED_BYTES, Floor, INDEX,
    JOURNAL, RECORD_BYTES, RECORDS, forget_finished, id,
};

/// KEYS: control, index, records. ARGV: the ids, then what stands behind 14 bytes of each record.
const ENQUEUE: &str = "\
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local control = redis.call('GET', KEYS[1])
local sequence = control and struct.unpack('>I8', control) or 0
local count, places, records = #ARGV / 2, {}, {}
local score, enqueued_at = string.format('%d', 562949953421312 + now), struct.pack('>I6', now)
for i = 1, count do
  local id, number = ARGV[i], struct.pack('>I8', sequence + i)
  places[2 * i - 1], places[2 * i] = score, number .. id
  records[2 * i - 1], records[2 * i] = id, number .. enqueued_at .. ARGV[count + i]
end
redis.call('ZADD', KEYS[2], unpack(places))
redis.call('HSET', KEYS[3], unpack(records))
redis.call('SET', KEYS[1], struct.pack('>I8', sequence + count) .. string.rep('c', 84))
return count
";

/// KEYS: control, index, records, details, journal. ARGV: how many.
const CLAIM: &str = "\
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local control = redis.call('GET', KEYS[1])
local found = redis.call('ZRANGEBYSCORE', KEYS[2], '-inf', string.format('%d', 562949953421312 + now),
  'WITHSCORES', 'LIMIT', '0', ARGV[1])
local ids, members = {}, {}
for i = 1, #found / 2 do
  members[i], ids[i] = found[2 * i - 1], string.sub(found[2 * i - 1], 9)
end
local records = redis.call('HMGET', KEYS[3], unpack(ids))
redis.call('HMGET', KEYS[4], unpack(ids))
local results, places, details = {}, {}, {}
local deadline, lease = string.format('%d', 1125899906842624 + now + 30000), string.rep('l', 26)
for i, id in ipairs(ids) do
  places[2 * i - 1], places[2 * i] = deadline, members[i]
  details[2 * i - 1], details[2 * i] = id, lease .. string.sub(records[i], 1, 34)
  results[3 * i - 2], results[3 * i - 1], results[3 * i] = id, records[i], now
end
redis.call('HSET', KEYS[4], unpack(details))
redis.call('ZADD', KEYS[2], unpack(places))
redis.call('HSET', KEYS[5], 'worker', table.concat(ids))
redis.call('SET', KEYS[1], control)
return results
";

/// KEYS: control, index, records, details, finished. ARGV: the ids.
const ACK: &str = "\
local control = redis.call('GET', KEYS[1])
local stored = redis.call('HMGET', KEYS[4], unpack(ARGV))
local results, finished, members = {}, {}, {}
for i, id in ipairs(ARGV) do
  local details = stored[i]
  members[i] = string.sub(details, 27, 34) .. id
  finished[2 * i - 1], finished[2 * i] = id, string.sub(details, 1, 33)
  results[i] = 5
end
redis.call('HSET', KEYS[5], unpack(finished))
redis.call('ZREM', KEYS[2], unpack(members))
redis.call('HDEL', KEYS[3], unpack(ARGV))
redis.call('HDEL', KEYS[4], unpack(ARGV))
redis.call('SET', KEYS[1], control)
return results
";

pub(crate) struct BareScripts {
    connection: Connection,
    sequence: u64,
    finished: usize,
    enqueue: String,
    claim: String,
    ack: String,
}

impl Floor for BareScripts {
    type Claimed = Vec<Vec<u8>>;

    fn connect(server: &Server) -> Result<Self> {
        let mut connection = server.admin()?;
        let mut load =
            |script: &str| redis::cmd("SCRIPT").arg("LOAD").arg(script).query(&mut connection);
        let (enqueue, claim, ack) = (load(ENQUEUE)?, load(CLAIM)?, load(ACK)?);
        Ok(Self { connection, sequence: 0, finished: 0, enqueue, claim, ack })
    }

    fn enqueue(&mut self, batch: usize) -> Result<()> {
        let mut call = call(&self.enqueue, &[CONTROL, INDEX, RECORDS]);
        for _ in 0..batch {
            self.sequence += 1;
            call.arg(id(self.sequence));
        }
        for _ in 0..batch {
            call.arg([b'r'; RECORD_BYTES - 14].as_slice());
        }
        let created: usize = call.query(&mut self.connection)?;
        ensure!(created == batch, "{created} messages were enqueued");
        Ok(())
    }

    fn claim(&mut self, batch: usize) -> Result<Vec<Vec<u8>>> {
        let mut call = call(&self.claim, &[CONTROL, INDEX, RECORDS, DETAILS, JOURNAL]);
        let claimed: Vec<(Vec<u8>, Vec<u8>, u64)> = call.arg(batch).query(&mut self.connection)?;
        ensure!(claimed.len() == batch, "{} messages were claimed", claimed.len());
        Ok(claimed.into_iter().map(|(id, _, _)| id).collect())
    }

    fn ack(&mut self, ids: &Vec<Vec<u8>>) -> Result<()> {
        self.finished = forget_finished(&mut self.connection, self.finished, ids.len())?;
        let mut call = call(&self.ack, &[CONTROL, INDEX, RECORDS, DETAILS, FINISHED]);
        let acked: Vec<u8> = call.arg(ids).query(&mut self.connection)?;
        ensure!(acked.len() == ids.len(), "{} messages were acked", acked.len());
        Ok(())
    }
}

fn call(sha1: &str, keys: &[&str]) -> redis::Cmd {
    let mut call = redis::cmd("EVALSHA");
    call.arg(sha1).arg(keys.len()).arg(keys);
    call
}

/// As long as ours.
const _: () = assert!(CONTROL_BYTES == 8 + 84 && DETAILS_BYTES == 26 + 34 && FINISHED_BYTES == 33);
