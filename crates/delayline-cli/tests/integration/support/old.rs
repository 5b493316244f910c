//! Old queues, and what becomes of them.

use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::mpsc::{self, Receiver};
use std::sync::{Arc, Mutex};
use std::thread;

use delayline_test_server::{Reply, Server};

use super::{on, run};

/// In 2027, in seconds.
pub const LATER: u64 = 1_800_000_000;

/// Executes Redis commands, one a line, and returns the reply to the last one as text.
pub fn redis(server: &Server, commands: &str) -> String {
    let mut last = String::new();
    for line in commands.lines().map(str::trim).filter(|line| !line.is_empty()) {
        let words: Vec<&str> = line.split(' ').collect();
        last = text(&server.command(&words));
    }
    last
}

fn text(reply: &Reply) -> String {
    match reply {
        Reply::Int(number) => number.to_string(),
        Reply::BulkString(bytes) => String::from_utf8_lossy(bytes).into_owned(),
        Reply::Array(replies) => replies.iter().map(text).collect::<Vec<_>>().join(" "),
        _ => String::new(),
    }
}

/// A URL of the server. Before the first `times` requests with this word that come this way are
/// executed, others send it a command.
pub fn interrupted(
    server: &Server,
    word: &'static str,
    times: usize,
    command: fn(usize) -> String,
) -> String {
    let path = server.unix_path();
    let others = Mutex::new(None);
    proxied(server, word, times, move |done| {
        let mut others = others.lock().unwrap();
        let others = others.get_or_insert_with(|| UnixStream::connect(&path).unwrap());
        others.write_all(format!("{}\r\n", command(done)).as_bytes()).unwrap();
        let mut reply = String::new();
        BufReader::new(others).read_line(&mut reply).unwrap();
        assert!(reply.starts_with(':'), "{reply}");
    })
}

/// A URL of the server, and a channel that reports a request with this word. It is not executed,
/// and nothing after it.
pub fn held(server: &Server, word: &'static str) -> (String, Receiver<()>) {
    let (tell, told) = mpsc::channel();
    let url = proxied(server, word, usize::MAX, move |_| {
        let _ = tell.send(());
        loop {
            thread::park();
        }
    });
    (url, told)
}

/// A URL of the server that calls a function before each of the first `times` requests that have
/// this word.
fn proxied(
    server: &Server,
    word: &'static str,
    times: usize,
    before: impl Fn(usize) + Send + Sync + 'static,
) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("redis://{}", listener.local_addr().unwrap());
    let path = server.unix_path();
    let word = format!("${}\r\n{word}\r\n", word.len());
    let before: Arc<dyn Fn(usize) + Send + Sync> = Arc::new(before);
    thread::spawn(move || {
        for client in listener.incoming() {
            let (path, word, before) = (path.clone(), word.clone(), Arc::clone(&before));
            thread::spawn(move || pass(client.unwrap(), &path, word.as_bytes(), times, &*before));
        }
    });
    url
}

fn pass(
    mut client: TcpStream,
    server: &Path,
    word: &[u8],
    times: usize,
    before: &dyn Fn(usize),
) -> io::Result<()> {
    let mut up = UnixStream::connect(server)?;
    let (mut down, mut back) = (up.try_clone()?, client.try_clone()?);
    let replies = thread::spawn(move || {
        let _ = io::copy(&mut down, &mut back);
        back.shutdown(Shutdown::Both)
    });
    let (mut done, mut buffer) = (0, [0; 65536]);
    loop {
        let count = client.read(&mut buffer)?;
        if count == 0 {
            break;
        }
        // The client waits for the reply to each request before it sends the next.
        if done < times && buffer[..count].windows(word.len()).any(|part| part == word) {
            before(done);
            done += 1;
        }
        up.write_all(&buffer[..count])?;
    }
    up.shutdown(Shutdown::Both)?;
    replies.join().unwrap()
}

/// Payload, due time in ms and `max_failures` of each message that waits, sorted.
pub fn waiting(server: &Server) -> Vec<(String, u64, u64)> {
    let mut messages = Vec::new();
    for state in ["scheduled", "ready"] {
        let list = run(on(server, &["list", "--state", state, "--all", "--json"]));
        if list.is_unknown_queue() {
            continue;
        }
        for message in list.code(0).lines() {
            let id = message["id"].as_str().unwrap();
            let whole = run(on(server, &["get", id, "--json"])).code(0).lines().remove(0);
            let due: jiff::Timestamp = whole["due"].as_str().unwrap().parse().unwrap();
            messages.push((
                whole["payload"]
                    .as_str()
                    .map_or_else(|| whole["payload"].to_string(), str::to_owned),
                u64::try_from(due.as_millisecond()).unwrap(),
                whole["max_failures"].as_u64().unwrap(),
            ));
        }
    }
    messages.sort();
    messages
}

pub fn expected(messages: &[(&str, u64, u64)]) -> Vec<(String, u64, u64)> {
    messages.iter().map(|(payload, due, most)| ((*payload).to_owned(), *due, *most)).collect()
}
