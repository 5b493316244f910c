//! A server whose writes can be read, and played again.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::PathBuf;

use super::*;

/// A command's words.
pub(crate) type Command = Vec<Vec<u8>>;

/// A server with an append-only file.
pub(crate) struct Recorded {
    pub(crate) server: Server,
}

impl Recorded {
    pub(crate) fn start(fsync: &str) -> Self {
        let server = Server::builder().append_only(fsync).start();
        // The file must not be rewritten.
        server.command(&["CONFIG", "SET", "auto-aof-rewrite-percentage", "0"]);
        Self { server }
    }

    pub(crate) fn append_only_file(&self) -> PathBuf {
        let before_redis_7 = self.server.data_dir().join("appendonly.aof");
        if before_redis_7.is_file() {
            return before_redis_7;
        }
        let files = std::fs::read_dir(self.server.data_dir().join("appendonlydir")).unwrap();
        let mut paths = files.map(|file| file.unwrap().path());
        paths.find(|path| path.to_string_lossy().ends_with(".incr.aof")).expect("a file")
    }

    /// Executes an operation, and returns its writes.
    pub(crate) async fn record(&self, queue: &impl Backend, ms: u64, op: &Op) -> Vec<Command> {
        self.written_by(apply(queue, ms, op.clone())).await.1
    }

    /// Does some work, and returns its result and its writes.
    pub(crate) async fn written_by<T>(&self, work: impl Future<Output = T>) -> (T, Vec<Command>) {
        let length = || usize::try_from(std::fs::metadata(self.append_only_file()).unwrap().len());
        let start = length().unwrap();
        let result = work.await;
        let mut file = File::open(self.append_only_file()).unwrap();
        let mut text = Vec::new();
        file.seek(SeekFrom::Start(start as u64)).unwrap();
        file.read_to_end(&mut text).unwrap();
        let (mut commands, mut position) = (Vec::new(), 0);
        while let Some(command) = words(&text, &mut position) {
            if !["MULTI", "EXEC", "SELECT"].iter().any(|name| command[0] == name.as_bytes()) {
                commands.push(command);
            }
        }
        assert_eq!(position, text.len(), "what was written is unreadable");
        (result, commands)
    }

    fn key_names(&self) -> Vec<Vec<u8>> {
        let Raw::Array(keys) = self.server.command(&["KEYS", "*"]) else { panic!("no keys") };
        let mut names: Vec<_> = keys.into_iter().map(bytes).collect();
        names.sort();
        names
    }

    /// All keys, as commands that bring them back.
    pub(crate) fn keys(&self) -> Vec<Command> {
        let names = self.key_names();
        let of_each = |command: &str| {
            let command = |key: &Vec<u8>| vec![command.as_bytes().to_vec(), key.clone()];
            let commands: Vec<_> = names.iter().map(command).collect();
            self.server.commands(&commands)
        };
        let (dumps, ttls) = (of_each("DUMP"), of_each("PTTL"));
        let restore = |((key, dump), ttl_ms): ((&Vec<u8>, Raw), Raw)| {
            let Raw::Int(ttl_ms) = ttl_ms else { panic!("{ttl_ms:?}") };
            let ttl_ms = ttl_ms.max(0).to_string().into_bytes();
            vec![b"RESTORE".to_vec(), key.clone(), ttl_ms, bytes(dump)]
        };
        names.iter().zip(dumps).zip(ttls).map(restore).collect()
    }

    pub(crate) fn restore(&self, keys: &[Command]) {
        let mut commands = vec![vec![b"FLUSHALL".to_vec()]];
        commands.extend_from_slice(keys);
        self.server.commands(&commands);
    }

    /// What all keys hold, however the server keeps it.
    pub(crate) fn holdings(&self) -> Vec<(Vec<u8>, Vec<Vec<u8>>)> {
        let joined =
            |items: Vec<Vec<Vec<u8>>>| items.iter().map(|it| it.join(&b"\0 \0"[..])).collect();
        self.typed_holdings().into_iter().map(|(key, _, items)| (key, joined(items))).collect()
    }

    /// Each key with its type and what it holds, in the order of the words of the command that
    /// writes it.
    pub(crate) fn typed_holdings(&self) -> Vec<(Vec<u8>, String, Vec<Command>)> {
        let hold = |key: Vec<u8>| {
            let command = |words: &[&[u8]]| {
                let words: Command = words.iter().map(|word| word.to_vec()).collect();
                self.server.command(&words)
            };
            let kind = match command(&[b"TYPE", &key]) {
                Raw::SimpleString(kind) => kind,
                other => panic!("{other:?}"),
            };
            let mut held = match &*kind {
                "string" => vec![vec![bytes(command(&[b"GET", &key]))]],
                "list" => flat(command(&[b"LRANGE", &key, b"0", b"-1"]), 1),
                "hash" => flat(command(&[b"HGETALL", &key]), 2),
                "zset" => {
                    let range = command(&[b"ZRANGE", &key, b"0", b"-1", b"WITHSCORES"]);
                    let mut items = flat(range, 2);
                    items.iter_mut().for_each(|item| item.reverse());
                    items
                }
                other => panic!("{other}"),
            };
            held.sort();
            (key, kind, held)
        };
        self.key_names().into_iter().map(hold).collect()
    }
}

fn flat(reply: Raw, size: usize) -> Vec<Command> {
    let Raw::Array(items) = reply else { panic!("{reply:?}") };
    let items: Vec<_> = items.into_iter().map(bytes).collect();
    items.chunks(size).map(<[_]>::to_vec).collect()
}

fn bytes(value: Raw) -> Vec<u8> {
    match value {
        Raw::BulkString(bytes) => bytes,
        other => panic!("{other:?}"),
    }
}

/// The command at `position`, which moves behind it, or `None` at the end of the complete commands.
pub(crate) fn words(text: &[u8], position: &mut usize) -> Option<Command> {
    let mut at = *position;
    let count = number(text, &mut at, b'*')?;
    let mut command = Vec::new();
    for _ in 0..count {
        let length = number(text, &mut at, b'$')?;
        command.push(text.get(at..at + length)?.to_vec());
        at += length + 2;
    }
    *position = at;
    Some(command)
}

fn number(text: &[u8], at: &mut usize, kind: u8) -> Option<usize> {
    let line = text.get(*at..)?.split(|byte| *byte == b'\r').next()?;
    let digits = line.strip_prefix(&[kind])?;
    *at += line.len() + 2;
    std::str::from_utf8(digits).ok()?.parse().ok()
}

/// Names of commands and the ends of their keys, for messages.
pub(crate) struct Shown<'a>(pub &'a [Command]);

impl std::fmt::Debug for Shown<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for command in self.0 {
            let key = String::from_utf8_lossy(command.get(1).map_or(b"", |key| key));
            let key = key.rsplit(':').next().unwrap_or_default();
            write!(f, "{} {key}; ", String::from_utf8_lossy(&command[0]))?;
        }
        Ok(())
    }
}
