//! The files of a directory of queues, and the messages of its socket.

use delayline_file::reading;

/// Reads the bytes as the first one says: a log (0), the records of one (1), a snapshot (2), the
/// values of one (3), requests (4) or replies (5) of the socket, or a lock file (6). Records have
/// their lengths in front, in two bytes.
///
/// # Panics
///
/// Reading panics, an error has no text, or a lock file names a process that it does not contain.
pub fn directory(data: &[u8]) {
    let Some((&kind, data)) = data.split_first() else { return };
    let read = match kind {
        0 => reading::log(data),
        1 => reading::records(records(data)),
        2 => reading::snapshot(data),
        3 => reading::snapshot_of(data),
        4 | 5 => return messages(data, kind == 4),
        _ => return lock(data),
    };
    if let Err(error) = read {
        assert!(!error.to_string().is_empty(), "{error:?}");
    }
}

fn records(mut data: &[u8]) -> Vec<&[u8]> {
    let mut records = Vec::new();
    while let Some((len, rest)) = data.split_first_chunk() {
        let (record, rest) = rest.split_at(usize::from(u16::from_le_bytes(*len)).min(rest.len()));
        records.push(record);
        data = rest;
    }
    records
}

fn messages(data: &[u8], are_requests: bool) {
    let runtime = tokio::runtime::Builder::new_current_thread().build();
    let read = runtime.expect("a runtime starts").block_on(reading::socket(data, are_requests));
    assert!(read.is_err() || read.is_ok_and(|count| count <= data.len()));
}

fn lock(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    if let Some(holder) = reading::lock(&text) {
        assert!(text.contains(&holder), "{text:?} names {holder:?}");
    }
}
