//! Where a request ends. Clients send arrays of bulk strings and nothing else.

/// The length in bytes of the first request in `bytes`; `None` if it is not complete.
///
/// Anything but an array of bulk strings counts as one request up to the end: the server rejects
/// it.
pub(super) fn request_len(bytes: &[u8]) -> Option<usize> {
    if bytes.first()? != &b'*' {
        return Some(bytes.len());
    }
    let (count, mut end) = match number(&bytes[1..]) {
        Number::Complete { value, len } => (value, 1 + len),
        Number::Partial => return None,
        Number::Malformed => return Some(bytes.len()),
    };
    for _ in 0..count {
        let rest = bytes.get(end..)?;
        if rest.first()? != &b'$' {
            return Some(bytes.len());
        }
        match number(&rest[1..]) {
            Number::Complete { value, len } => {
                end = end.saturating_add(1 + len).saturating_add(value).saturating_add(2);
            }
            Number::Partial => return None,
            Number::Malformed => return Some(bytes.len()),
        }
    }
    (end <= bytes.len()).then_some(end)
}

/// The number at the start of some bytes, with its line end.
enum Number {
    Complete { value: usize, len: usize },
    Partial,
    Malformed,
}

fn number(bytes: &[u8]) -> Number {
    let Some(digits) = bytes.windows(2).position(|pair| pair == b"\r\n") else {
        let partial =
            bytes.len() <= LONGEST && bytes.iter().all(|b| b.is_ascii_digit() || *b == b'\r');
        return if partial { Number::Partial } else { Number::Malformed };
    };
    std::str::from_utf8(&bytes[..digits])
        .ok()
        .and_then(|text| text.parse().ok())
        .map_or(Number::Malformed, |value| Number::Complete { value, len: digits + 2 })
}

/// Digits of the largest number, with one byte of the line end.
const LONGEST: usize = 21;

#[cfg(test)]
mod tests {
    use super::request_len;

    const PING: &[u8] = b"*1\r\n$4\r\nPING\r\n";
    /// The payload looks like the end of a request.
    const SET: &[u8] = b"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$6\r\n*1\r\n\r\n\r\n";

    #[test]
    fn every_prefix_of_a_request_is_incomplete() {
        for request in [PING, SET, b"*0\r\n"] {
            for len in 0..request.len() {
                assert_eq!(request_len(&request[..len]), None, "{len} bytes");
            }
            assert_eq!(request_len(request), Some(request.len()));
        }
    }

    #[test]
    fn what_follows_is_not_part_of_it() {
        let both = [SET, PING].concat();
        assert_eq!(request_len(&both), Some(SET.len()));
    }

    #[test]
    fn nonsense_is_passed_on_as_it_is() {
        for nonsense in ["PING\r\n", "*x\r\n", "*1\r\n:5\r\n", "*1\r\n$-1\r\n"] {
            assert_eq!(request_len(nonsense.as_bytes()), Some(nonsense.len()), "{nonsense:?}");
        }
    }
}
