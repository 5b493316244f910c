//! Encoding values as payloads.

use bytes::Bytes;

/// Encodes values as payloads and decodes them.
///
/// A codec of your own may hold keys or compression levels; all clones of a queue share it.
///
/// ```
/// use delayline::{Bytes, Codec, CodecError};
///
/// /// A number as its 8 bytes, big-endian.
/// struct BigEndian;
///
/// impl Codec<u64> for BigEndian {
///     fn encode(&self, value: &u64) -> Result<Bytes, CodecError> {
///         Ok(Bytes::copy_from_slice(&value.to_be_bytes()))
///     }
///
///     fn decode(&self, payload: &Bytes) -> Result<u64, CodecError> {
///         let bytes = payload[..].try_into().map_err(|_| CodecError::new("not 8 bytes long"))?;
///         Ok(u64::from_be_bytes(bytes))
///     }
/// }
/// # assert_eq!(BigEndian.decode(&BigEndian.encode(&7)?)?, 7);
/// # Ok::<(), CodecError>(())
/// ```
pub trait Codec<T>: Send + Sync + 'static {
    /// Returns the payload for a value.
    ///
    /// # Errors
    ///
    /// [`CodecError`] if the value cannot be encoded.
    fn encode(&self, value: &T) -> Result<Bytes, CodecError>;

    /// Returns the value of a payload, which may contain any bytes. If this fails, a worker retries
    /// the message until its last allowed failure: see
    /// [`WorkerBuilder::on_undecodable`](crate::WorkerBuilder::on_undecodable).
    ///
    /// # Errors
    ///
    /// [`CodecError`] if the payload was not written by this codec or for this type.
    fn decode(&self, payload: &Bytes) -> Result<T, CodecError>;
}

/// Why a codec failed. It must never contain any of the payload: the text is stored with dead
/// letters and written to logs.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct CodecError(String);

impl CodecError {
    /// An error with this description, which must not contain any of the payload.
    #[must_use]
    pub fn new(complaint: impl Into<String>) -> Self {
        Self(complaint.into())
    }
}

/// Encodes payloads as compact JSON, for every type that implements serde's traits. Needs the
/// feature `json`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Json;

#[cfg(feature = "json")]
impl<T: serde::Serialize + serde::de::DeserializeOwned> Codec<T> for Json {
    fn encode(&self, value: &T) -> Result<Bytes, CodecError> {
        serde_json::to_vec(value).map(Bytes::from).map_err(|error| json_error(&error))
    }

    fn decode(&self, payload: &Bytes) -> Result<T, CodecError> {
        serde_json::from_slice(payload).map_err(|error| json_error(&error))
    }
}

/// `serde_json` quotes the unexpected value; only its position is harmless.
#[cfg(feature = "json")]
fn json_error(error: &serde_json::Error) -> CodecError {
    use serde_json::error::Category;
    let complaint = match error.classify() {
        Category::Io => "it cannot be written as JSON",
        Category::Syntax => "it is not JSON",
        Category::Data => "the JSON does not have the expected structure",
        Category::Eof => "the JSON is truncated",
    };
    match error.line() {
        0 => CodecError::new(complaint),
        line => CodecError::new(format!("{complaint}: line {line}, column {}", error.column())),
    }
}

/// Passes payloads through unchanged: [`Bytes`], `Vec<u8>` or `String`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Raw;

impl Codec<Bytes> for Raw {
    fn encode(&self, value: &Bytes) -> Result<Bytes, CodecError> {
        Ok(value.clone())
    }

    fn decode(&self, payload: &Bytes) -> Result<Bytes, CodecError> {
        Ok(payload.clone())
    }
}

impl Codec<Vec<u8>> for Raw {
    fn encode(&self, value: &Vec<u8>) -> Result<Bytes, CodecError> {
        Ok(Bytes::copy_from_slice(value))
    }

    fn decode(&self, payload: &Bytes) -> Result<Vec<u8>, CodecError> {
        Ok(payload.to_vec())
    }
}

impl Codec<String> for Raw {
    fn encode(&self, value: &String) -> Result<Bytes, CodecError> {
        Ok(Bytes::copy_from_slice(value.as_bytes()))
    }

    fn decode(&self, payload: &Bytes) -> Result<String, CodecError> {
        let text = std::str::from_utf8(payload);
        text.map(str::to_owned).map_err(|_| CodecError::new("it is not UTF-8"))
    }
}

#[cfg(all(test, feature = "json"))]
mod tests {
    use super::*;

    #[test]
    fn a_json_error_tells_the_place_and_not_the_payload() {
        let payload = Bytes::from_static(br#"{"secret": "hunter2"}"#);
        let error = Codec::<u64>::decode(&Json, &payload).unwrap_err();
        assert_eq!(
            error.to_string(),
            "the JSON does not have the expected structure: line 1, column 0"
        );
        let error = Codec::<u64>::decode(&Json, &Bytes::from_static(b"1 hunter2")).unwrap_err();
        assert_eq!(error.to_string(), "it is not JSON: line 1, column 3");
    }

    #[test]
    fn raw_takes_any_bytes() {
        let bytes = Bytes::from_static(b"\xff\0");
        assert_eq!(Codec::<Bytes>::encode(&Raw, &bytes).unwrap(), bytes);
        assert_eq!(Codec::<Bytes>::decode(&Raw, &bytes).unwrap(), bytes);
        assert_eq!(Codec::<Vec<u8>>::encode(&Raw, &bytes.to_vec()).unwrap(), bytes);
        assert_eq!(Codec::<Vec<u8>>::decode(&Raw, &bytes).unwrap(), bytes);
        let text = "\u{e9}t\u{e9}".to_owned();
        let encoded = Codec::<String>::encode(&Raw, &text).unwrap();
        assert_eq!(
            (&*encoded, Codec::<String>::decode(&Raw, &encoded).unwrap()),
            (text.as_bytes(), text.clone())
        );
        assert!(Codec::<String>::decode(&Raw, &bytes).is_err());
    }
}
