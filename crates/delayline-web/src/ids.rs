//! Ids in URLs and forms: any bytes, percent-encoded.

use std::borrow::Cow;

use delayline::{MessageId, Violation};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode, percent_encode};

/// Characters that are not encoded, since they mean nothing anywhere in a URL.
const ENCODED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// Bytes for the path or the query of a URL, or for a form.
pub(crate) fn encoded(bytes: &[u8]) -> String {
    percent_encode(bytes, ENCODED).to_string()
}

pub(crate) fn decoded(text: &[u8]) -> Cow<'_, [u8]> {
    percent_decode(text).into()
}

/// The id that stands percent-encoded somewhere.
pub(crate) fn id(text: &[u8]) -> Result<MessageId, Violation> {
    MessageId::new(decoded(text).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_byte_comes_back() {
        let all: Vec<u8> = (0..=255).collect();
        for bytes in all.chunks(64) {
            let text = encoded(bytes);
            assert!(text.bytes().all(|it| it.is_ascii_graphic() && !b"<>\"'&+/?#".contains(&it)));
            assert_eq!(id(text.as_bytes()).unwrap().as_bytes(), bytes);
        }
        assert_eq!(encoded(b"order-1_2.3~"), "order-1_2.3~");
    }
}
