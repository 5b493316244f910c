//! The commands that scripts call and that drivers wait with.

/// Each command, with its minimum number of arguments.
///
/// Since Redis 8.6.2, `redis.acl_check_cmd` raises an error when it is asked about a command with
/// too few or too many arguments.
const COMMANDS: [(&str, usize); 33] = [
    // The server accepts one, but only with two does it check whether the key may be written.
    ("BITFIELD", 2),
    ("BLPOP", 2),
    ("EXISTS", 1),
    ("GET", 1),
    ("GETRANGE", 3),
    ("HDEL", 2),
    ("HEXISTS", 2),
    ("HGET", 2),
    ("HKEYS", 1),
    ("HLEN", 1),
    ("HMGET", 2),
    ("HSCAN", 2),
    ("HSET", 3),
    ("HSTRLEN", 2),
    ("LLEN", 1),
    ("LPUSH", 2),
    ("PEXPIRE", 2),
    ("PTTL", 1),
    ("RENAME", 2),
    ("RPUSH", 2),
    ("SET", 2),
    ("STRLEN", 1),
    ("UNLINK", 1),
    ("XADD", 4),
    ("XLEN", 1),
    ("ZADD", 3),
    ("ZCARD", 1),
    ("ZCOUNT", 3),
    ("ZRANGE", 3),
    ("ZRANGEBYSCORE", 3),
    ("ZREM", 2),
    ("ZREVRANGEBYSCORE", 3),
    ("ZSCORE", 2),
];

/// Returns the minimum number of arguments of `command`, or `None` if no script may call it.
///
/// A permission check passes the key's name for each of them: the server ignores arguments that are
/// not keys.
pub(crate) fn least_arguments(command: &str) -> Option<usize> {
    COMMANDS.iter().find_map(|(name, count)| (*name == command).then_some(*count))
}

#[cfg(test)]
mod tests {
    use delayline_test_server::{Reply, Server};

    use super::*;

    #[test]
    fn the_server_wants_as_many_arguments() {
        let server = Server::start();
        for (name, least) in COMMANDS {
            let info = server.command(&["COMMAND", "INFO", name]);
            let Reply::Array(commands) = &info else { panic!("{info:?}") };
            let Some(Reply::Array(fields)) = commands.first() else { panic!("{name}: {info:?}") };
            // The name counts as an argument. A negative number means that more may follow.
            let Some(Reply::Int(arity)) = fields.get(1) else { panic!("{name}: {info:?}") };
            let asked = if name == "BITFIELD" { least } else { least + 1 };
            assert_eq!(arity.unsigned_abs(), u64::try_from(asked).unwrap(), "{name}");
        }
    }
}
