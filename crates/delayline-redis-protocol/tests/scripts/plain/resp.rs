//! As much of RESP2 and RESP3 as servers send to us.

use std::io::{Error, ErrorKind, Result};
use std::pin::Pin;

use bytes::Bytes;
use delayline_redis_protocol::Value;
use tokio::io::{AsyncBufRead, AsyncBufReadExt, AsyncReadExt};

/// What answers a command.
pub(crate) enum Reply {
    /// A value.
    Value(Value),
    /// The line of an error.
    Error(String),
}

/// A command as it is sent.
pub(crate) fn encode(command: &str, args: &[Bytes]) -> Vec<u8> {
    let mut out = format!("*{}\r\n", args.len() + 1).into_bytes();
    for part in std::iter::once(command.as_bytes()).chain(args.iter().map(|arg| &arg[..])) {
        out.extend_from_slice(format!("${}\r\n", part.len()).as_bytes());
        out.extend_from_slice(part);
        out.extend_from_slice(b"\r\n");
    }
    out
}

/// The next reply; push messages are passed over.
pub(crate) async fn read(from: &mut (impl AsyncBufRead + Unpin + Send)) -> Result<Reply> {
    loop {
        let (kind, line) = line(from).await?;
        match kind {
            b'-' => return Ok(Reply::Error(line)),
            b'!' => {
                let text = blob(from, &line).await?;
                return Ok(Reply::Error(String::from_utf8_lossy(&text).into_owned()));
            }
            b'>' => drop(items(from, number(&line)?).await?),
            _ => return value(from, kind, line).await.map(Reply::Value),
        }
    }
}

type Boxed<'a> = Pin<Box<dyn Future<Output = Result<Value>> + Send + 'a>>;

fn value(from: &mut (impl AsyncBufRead + Unpin + Send), kind: u8, line: String) -> Boxed<'_> {
    Box::pin(async move {
        Ok(match kind {
            b'+' | b',' | b'(' => Value::Bytes(line.into()),
            b':' => Value::Int(number(&line)?),
            b'#' => Value::Int((line == "t").into()),
            b'_' => Value::Nil,
            b'$' | b'*' if line == "-1" => Value::Nil,
            b'$' => Value::Bytes(blob(from, &line).await?),
            b'=' => Value::Bytes(blob(from, &line).await?.slice(4..)),
            b'*' | b'~' => Value::Array(items(from, number(&line)?).await?),
            b'%' => Value::Array(items(from, number(&line)? * 2).await?),
            _ => return Err(not_resp()),
        })
    })
}

async fn items(from: &mut (impl AsyncBufRead + Unpin + Send), count: i64) -> Result<Vec<Value>> {
    let mut items = Vec::new();
    for _ in 0..count {
        let (kind, line) = line(from).await?;
        items.push(value(from, kind, line).await?);
    }
    Ok(items)
}

async fn line(from: &mut (impl AsyncBufRead + Unpin + Send)) -> Result<(u8, String)> {
    let mut bytes = Vec::new();
    from.read_until(b'\n', &mut bytes).await?;
    let [kind, line @ .., b'\r', b'\n'] = &bytes[..] else { return Err(not_resp()) };
    Ok((*kind, String::from_utf8_lossy(line).into_owned()))
}

async fn blob(from: &mut (impl AsyncBufRead + Unpin + Send), length: &str) -> Result<Bytes> {
    let length = usize::try_from(number(length)?).map_err(|_| not_resp())?;
    let mut bytes = vec![0; length + 2];
    from.read_exact(&mut bytes).await?;
    bytes.truncate(length);
    Ok(bytes.into())
}

fn number(line: &str) -> Result<i64> {
    line.parse().map_err(|_| not_resp())
}

fn not_resp() -> Error {
    Error::new(ErrorKind::InvalidData, "not RESP")
}
