//! Encoding values as payloads.

use bytes::Bytes;

/// Encodes values as payloads, which a queue needs for sending.
///
/// [`Decode`] is the opposite. A program that only sends needs no type that can be decoded: it can
/// use a `Queue<str>`, or a queue of values that borrow.
///
/// ```
/// # #[cfg(feature = "json")]
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), delayline::Error> {
/// use delayline::Queue;
///
/// // Consumers read it as a `String`.
/// let texts: Queue<str> = delayline::connect("memory:").await?.queue("texts").await?;
/// texts.send("your cart is waiting").await?;
/// # Ok(())
/// # }
/// # #[cfg(not(feature = "json"))]
/// # fn main() {}
/// ```
///
/// Your own codec may hold keys or compression levels. All clones of a queue share it.
///
/// ```
/// use delayline::Bytes;
/// use delayline::codec::{CodecError, Decode, Encode};
///
/// /// A number as its 8 bytes, big-endian.
/// struct BigEndian;
///
/// impl Encode<u64> for BigEndian {
///     fn encode(&self, value: &u64) -> Result<Bytes, CodecError> {
///         Ok(Bytes::copy_from_slice(&value.to_be_bytes()))
///     }
/// }
///
/// impl Decode<u64> for BigEndian {
///     fn decode(&self, payload: &Bytes) -> Result<u64, CodecError> {
///         let bytes = payload[..].try_into().map_err(|_| CodecError::new("not 8 bytes long"))?;
///         Ok(u64::from_be_bytes(bytes))
///     }
/// }
/// # assert_eq!(BigEndian.decode(&BigEndian.encode(&7)?)?, 7);
/// # Ok::<(), CodecError>(())
/// ```
#[diagnostic::on_unimplemented(
    message = "the codec `{Self}` cannot encode `{T}`",
    note = "the codec `Json` encodes types that implement `serde::Serialize`"
)]
pub trait Encode<T: ?Sized>: Send + Sync + 'static {
    /// Returns the payload for a value.
    ///
    /// # Errors
    ///
    /// [`CodecError`] if the value cannot be encoded.
    fn encode(&self, value: &T) -> Result<Bytes, CodecError>;
}

/// Decodes payloads as values, which a worker needs for handling.
///
/// A worker does not compile with a codec that only encodes:
///
/// ```compile_fail,E0277
/// use delayline::codec::{CodecError, Encode};
/// use delayline::worker::Summary;
/// use delayline::{Bytes, Error, Job, Queue, Worker};
///
/// struct BigEndian;
///
/// impl Encode<u64> for BigEndian {
///     fn encode(&self, value: &u64) -> Result<Bytes, CodecError> {
///         Ok(Bytes::copy_from_slice(&value.to_be_bytes()))
///     }
/// }
///
/// async fn work(queue: Queue<u64, BigEndian>) -> Result<Summary, Error> {
///     let worker = Worker::builder(queue).build()?;
///     Ok(worker.run(|_: Job<u64>| async { Ok::<(), Error>(()) }).await)
/// }
/// ```
#[diagnostic::on_unimplemented(
    message = "the codec `{Self}` cannot decode `{T}`",
    note = "the codec `Json` decodes types that implement `serde::de::DeserializeOwned`"
)]
pub trait Decode<T>: Send + Sync + 'static {
    /// Returns the value of a payload, which may contain any bytes. If this fails, a worker retries
    /// the message until its last allowed failure: see
    /// [`WorkerBuilder::on_undecodable`](crate::worker::WorkerBuilder::on_undecodable).
    ///
    /// # Errors
    ///
    /// [`CodecError`] if the payload was not written by this codec or for this type.
    fn decode(&self, payload: &Bytes) -> Result<T, CodecError>;
}

/// [`Encode`] and [`Decode`] together, as one bound. Every type that implements both implements it.
pub trait Codec<T>: Encode<T> + Decode<T> {}

impl<T, C: Encode<T> + Decode<T>> Codec<T> for C {}

/// The reason why a codec failed. It must not contain any part of the payload, because the text is
/// stored with dead letters and written to logs.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct CodecError(String);

impl CodecError {
    /// Creates an error with this description, which must not contain any part of the payload.
    #[must_use]
    pub fn new(complaint: impl Into<String>) -> Self {
        Self(complaint.into())
    }
}

/// Encodes every type that implements `serde::Serialize` as compact JSON, and decodes every type
/// that implements `serde::de::DeserializeOwned`. Needs the feature `json`.
///
/// Its errors have a category, line and column, because the error texts of `serde_json` would quote
/// the payload.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Json;

#[cfg(feature = "json")]
impl<T: serde::Serialize + ?Sized> Encode<T> for Json {
    fn encode(&self, value: &T) -> Result<Bytes, CodecError> {
        serde_json::to_vec(value).map(Bytes::from).map_err(|error| json_error(&error))
    }
}

#[cfg(feature = "json")]
impl<T: serde::de::DeserializeOwned> Decode<T> for Json {
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

/// Passes payloads through unchanged: [`Bytes`], `Vec<u8>` and `String`; for sending also `[u8]`
/// and `str`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Raw;

impl Encode<Bytes> for Raw {
    fn encode(&self, value: &Bytes) -> Result<Bytes, CodecError> {
        Ok(value.clone())
    }
}

impl Decode<Bytes> for Raw {
    fn decode(&self, payload: &Bytes) -> Result<Bytes, CodecError> {
        Ok(payload.clone())
    }
}

impl Encode<[u8]> for Raw {
    fn encode(&self, value: &[u8]) -> Result<Bytes, CodecError> {
        Ok(Bytes::copy_from_slice(value))
    }
}

impl Encode<Vec<u8>> for Raw {
    fn encode(&self, value: &Vec<u8>) -> Result<Bytes, CodecError> {
        Ok(Bytes::copy_from_slice(value))
    }
}

impl Decode<Vec<u8>> for Raw {
    fn decode(&self, payload: &Bytes) -> Result<Vec<u8>, CodecError> {
        Ok(payload.to_vec())
    }
}

impl Encode<str> for Raw {
    fn encode(&self, value: &str) -> Result<Bytes, CodecError> {
        Ok(Bytes::copy_from_slice(value.as_bytes()))
    }
}

impl Encode<String> for Raw {
    fn encode(&self, value: &String) -> Result<Bytes, CodecError> {
        Ok(Bytes::copy_from_slice(value.as_bytes()))
    }
}

impl Decode<String> for Raw {
    fn decode(&self, payload: &Bytes) -> Result<String, CodecError> {
        let text = std::str::from_utf8(payload);
        text.map(str::to_owned).map_err(|_| CodecError::new("it is not UTF-8"))
    }
}

#[cfg(all(test, feature = "json"))]
mod tests {
    use super::*;

    #[test]
    fn a_json_error_has_the_place_and_not_the_payload() {
        let payload = Bytes::from_static(br#"{"secret": "hunter2"}"#);
        let error = Decode::<u64>::decode(&Json, &payload).unwrap_err();
        assert_eq!(
            error.to_string(),
            "the JSON does not have the expected structure: line 1, column 0"
        );
        let error = Decode::<u64>::decode(&Json, &Bytes::from_static(b"1 hunter2")).unwrap_err();
        assert_eq!(error.to_string(), "it is not JSON: line 1, column 3");
    }

    #[test]
    fn raw_takes_any_bytes() {
        let bytes = Bytes::from_static(b"\xff\0");
        assert_eq!(Encode::<Bytes>::encode(&Raw, &bytes).unwrap(), bytes);
        assert_eq!(Decode::<Bytes>::decode(&Raw, &bytes).unwrap(), bytes);
        assert_eq!(Encode::<Vec<u8>>::encode(&Raw, &bytes.to_vec()).unwrap(), bytes);
        assert_eq!(Decode::<Vec<u8>>::decode(&Raw, &bytes).unwrap(), bytes);
        let text = "\u{e9}t\u{e9}".to_owned();
        let encoded = Encode::<String>::encode(&Raw, &text).unwrap();
        assert_eq!(
            (&*encoded, Decode::<String>::decode(&Raw, &encoded).unwrap()),
            (text.as_bytes(), text.clone())
        );
        assert!(Decode::<String>::decode(&Raw, &bytes).is_err());
    }
}
