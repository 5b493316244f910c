//! Headers: a few named byte strings that travel with a message.

use std::fmt;
use std::time::Duration;

use bytes::{BufMut, Bytes};

use crate::limits::{MAX_HEADERS, MAX_HEADERS_BYTES, MAX_KIND_BYTES, MAX_RESULT_RETENTION_MS};
use crate::time::ms_rounded_up;
use crate::{Millis, NewResult, Violation, is_printable};

/// A short list of named values. Names are unique, and the order is kept.
///
/// The `Debug` output shows names but not values.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Headers(Vec<(String, Bytes)>);

impl Headers {
    /// The name of the header with the position in a distributed trace, as defined by the W3C
    /// recommendation *Trace Context*. It is not part of the content: see [`NewMessage::digest`].
    ///
    /// [`NewMessage::digest`]: crate::NewMessage::digest
    pub const TRACEPARENT: &str = "traceparent";

    /// The name of the header with the data of tracing systems. It is not part of the content
    /// either.
    pub const TRACESTATE: &str = "tracestate";

    /// The name of the header with which a move to another queue keeps since when a message waits
    /// for others. It is not part of the content either: a producer may repeat its send there.
    pub const WAITS_SINCE: &str = "delayline-waits-since";

    /// The name of the header with how long the sender wants the result of the ack to be kept:
    /// decimal digits, in milliseconds. See [`NewResult::retention`](crate::NewResult::retention).
    pub const RESULT_RETENTION_MS: &str = "delayline-result-retention-ms";

    /// The name of the header with the kind of the payload, in a queue whose payloads have several
    /// types. It is part of the content.
    pub const KIND: &str = "delayline-kind";

    /// Creates an empty list.
    #[must_use]
    pub const fn new() -> Self {
        Self(Vec::new())
    }

    /// Sets a header, replacing an earlier one of the same name.
    ///
    /// # Errors
    ///
    /// [`Violation`] if the name is empty or longer than 255 bytes, or if there would be more than
    /// [`MAX_HEADERS`] headers or [`MAX_HEADERS_BYTES`] bytes of them. Then nothing is changed.
    pub fn set(
        &mut self,
        name: impl Into<String>,
        value: impl Into<Bytes>,
    ) -> Result<(), Violation> {
        let (name, value) = (name.into(), value.into());
        if name.is_empty() {
            return Err(Violation::Empty { what: "the header name" });
        }
        Violation::at_most("the header name", "bytes", name.len(), usize::from(u8::MAX))?;
        let mut changed = self.0.clone();
        match changed.iter_mut().find(|(known, _)| *known == name) {
            Some((_, old)) => *old = value,
            None => changed.push((name, value)),
        }
        let changed = Self(changed);
        changed.validate()?;
        *self = changed;
        Ok(())
    }

    /// Asks for the result of the ack to be kept, in the header
    /// [`RESULT_RETENTION_MS`](Self::RESULT_RETENTION_MS).
    ///
    /// # Errors
    ///
    /// [`Violation`] if the time is not within 1 ms and
    /// [`MAX_RESULT_RETENTION_MS`](crate::limits::MAX_RESULT_RETENTION_MS), or like
    /// [`set`](Self::set); nothing is changed then.
    pub fn set_result_retention(&mut self, retention: Duration) -> Result<(), Violation> {
        let retention_ms = ms_rounded_up(retention);
        Violation::within(
            "the result's retention in ms",
            retention_ms,
            1,
            MAX_RESULT_RETENTION_MS,
        )?;
        self.set(Self::RESULT_RETENTION_MS, retention_ms.to_string())
    }

    /// How long the sender wants the result of the ack to be kept. `None` if it wants no result, or
    /// if the header is not a number of milliseconds within the limit.
    #[must_use]
    pub fn result_retention(&self) -> Option<Duration> {
        let digits = std::str::from_utf8(self.get(Self::RESULT_RETENTION_MS)?).ok()?;
        let retention = Millis::new(digits.parse().ok()?).ok()?;
        NewResult::new("", retention).validate().is_ok().then(|| retention.into())
    }

    /// Sets the kind of the payload, in the header [`KIND`](Self::KIND).
    ///
    /// # Errors
    ///
    /// [`Violation`] if the kind is empty, longer than [`MAX_KIND_BYTES`], or has characters that
    /// are not [printable](crate::is_printable), or like [`set`](Self::set); nothing is changed
    /// then.
    pub fn set_kind(&mut self, kind: &str) -> Result<(), Violation> {
        let what = "the kind";
        if kind.is_empty() {
            return Err(Violation::Empty { what });
        }
        Violation::at_most(what, "bytes", kind.len(), MAX_KIND_BYTES)?;
        if !kind.chars().all(is_printable) {
            let reason = "it has characters that cannot be printed".to_owned();
            return Err(Violation::Malformed { what, value: kind.to_owned(), reason });
        }
        self.set(Self::KIND, kind.to_owned())
    }

    /// The kind of the payload. `None` if there is none, or if [`set_kind`](Self::set_kind) would
    /// refuse it, so that a kind can always be printed and logged.
    #[must_use]
    pub fn kind(&self) -> Option<&str> {
        let kind = std::str::from_utf8(self.get(Self::KIND)?).ok()?;
        let is_kind = (1..=MAX_KIND_BYTES).contains(&kind.len()) && kind.chars().all(is_printable);
        is_kind.then_some(kind)
    }

    /// Returns the value of a header.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&Bytes> {
        self.0.iter().find(|(known, _)| known == name).map(|(_, value)| value)
    }

    /// Iterates over all headers in order.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &Bytes)> {
        self.0.iter().map(|(name, value)| (name.as_str(), value))
    }

    /// Returns the number of headers.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Returns `true` if there are no headers.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the length of [`encode`](Self::encode)'s result, in bytes.
    #[must_use]
    pub fn encoded_len(&self) -> usize {
        self.0.iter().map(|(name, value)| 3 + name.len() + value.len()).sum()
    }

    /// Encodes the headers as every backend stores them. For each header: the length of its name (1
    /// byte), the name, the length of its value (2 bytes, big-endian), the value.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        self.encode_those(|_| true)
    }

    /// Encodes the headers that are content.
    pub(crate) fn encode_content(&self) -> Vec<u8> {
        const OTHERS: [&str; 3] = [Headers::TRACEPARENT, Headers::TRACESTATE, Headers::WAITS_SINCE];
        self.encode_those(|name| !OTHERS.contains(&name))
    }

    fn encode_those(&self, is_wanted: impl Fn(&str) -> bool) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(self.encoded_len());
        for (name, value) in self.0.iter().filter(|(name, _)| is_wanted(name)) {
            // `validate` keeps both lengths well below these maxima.
            bytes.put_u8(u8::try_from(name.len()).unwrap_or(u8::MAX));
            bytes.put_slice(name.as_bytes());
            bytes.put_u16(u16::try_from(value.len()).unwrap_or(u16::MAX));
            bytes.put_slice(value);
        }
        bytes
    }

    /// Decodes [`encode`](Self::encode)'s result. Returns `None` for any other bytes.
    #[must_use]
    pub fn decode(mut bytes: Bytes) -> Option<Self> {
        let mut headers = Vec::new();
        while !bytes.is_empty() {
            let name_len = usize::from(*bytes.first()?);
            let _ = bytes.split_to(1);
            if bytes.len() < name_len + 2 {
                return None;
            }
            let name = String::from_utf8(bytes.split_to(name_len).to_vec()).ok()?;
            let value_len = bytes.split_to(2);
            let value_len = usize::from(u16::from_be_bytes([value_len[0], value_len[1]]));
            if bytes.len() < value_len {
                return None;
            }
            headers.push((name, bytes.split_to(value_len)));
        }
        Some(Self(headers))
    }

    pub(crate) fn validate(&self) -> Result<(), Violation> {
        Violation::at_most("the header list", "items", self.0.len(), MAX_HEADERS)?;
        Violation::at_most("the headers", "bytes", self.encoded_len(), MAX_HEADERS_BYTES)
    }
}

impl fmt::Debug for Headers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.0.iter().map(|(name, _)| name)).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_encoded_is_decoded() {
        let mut headers = Headers::new();
        headers.set("traceparent", "00-1-2-01").unwrap();
        headers.set("empty", "").unwrap();
        headers.set("bytes", vec![0, 255, 13, 10]).unwrap();
        headers.set("empty", "no more").unwrap();
        let bytes = headers.encode();
        assert_eq!(bytes.len(), headers.encoded_len());
        assert_eq!(Headers::decode(bytes.into()), Some(headers));
    }

    #[test]
    fn headers_are_found_by_name_and_told_without_their_values() {
        let mut headers = Headers::new();
        assert!(headers.is_empty() && headers.get("a").is_none());
        headers.set("a", "secret").unwrap();
        headers.set("b", "").unwrap();
        assert!(!headers.is_empty());
        assert_eq!(headers.get("a"), Some(&Bytes::from("secret")));
        assert_eq!(headers.get("b"), Some(&Bytes::new()));
        assert!(headers.get("c").is_none());
        assert_eq!(format!("{headers:?}"), r#"["a", "b"]"#);
    }

    #[test]
    fn kinds_are_short_and_printable() {
        let mut headers = Headers::new();
        assert_eq!(headers.kind(), None);
        headers.set_kind("close-order").unwrap();
        assert_eq!(headers.kind(), Some("close-order"));
        for bad in ["", "a\nb", "a\u{202e}b", &"x".repeat(MAX_KIND_BYTES + 1)] {
            assert!(headers.set_kind(bad).is_err(), "{bad:?}");
            assert_eq!(headers.kind(), Some("close-order"));
        }
        for bad in [&b"\xff"[..], b"", b"\x1b[2J"] {
            headers.set(Headers::KIND, bad.to_vec()).unwrap();
            assert_eq!(headers.kind(), None, "{bad:?}");
        }
    }

    #[test]
    fn headers_that_are_cut_anywhere_are_none() {
        let mut headers = Headers::new();
        headers.set("name", "value").unwrap();
        let bytes = headers.encode();
        for length in 1..bytes.len() {
            assert_eq!(Headers::decode(bytes[..length].to_vec().into()), None, "{length} bytes");
        }
        // These are exactly a name and an empty value; shorter input cannot be a header.
        assert!(Headers::decode(Bytes::from_static(b"\x01a\0\0")).is_some());
        assert!(Headers::decode(Bytes::from_static(b"\0\0\0")).is_some());
        assert!(Headers::decode(Bytes::from_static(b"\0\0")).is_none());
    }

    #[test]
    fn limits_leave_the_headers_as_they_were() {
        let mut headers = Headers::new();
        assert!(headers.set("", "x").is_err());
        assert!(headers.set("x".repeat(256), "x").is_err());
        assert!(headers.set("big", vec![0; MAX_HEADERS_BYTES]).is_err());
        assert!(headers.is_empty());
        for n in 0..MAX_HEADERS {
            headers.set(n.to_string(), "x").unwrap();
        }
        assert!(headers.set("one more", "x").is_err());
        assert_eq!(headers.len(), MAX_HEADERS);
    }

    proptest::proptest! {
        #[test]
        fn decoding_is_total(bytes: Vec<u8>) {
            if let Some(headers) = Headers::decode(bytes.clone().into()) {
                proptest::prop_assert_eq!(headers.encode(), bytes);
            }
        }
    }
}
