//! Headers.

use arbitrary::{Arbitrary, Unstructured};
use bytes::Bytes;
use delayline_core::Headers;

/// Reads the bytes as encoded headers, and as names and values to encode.
///
/// # Panics
///
/// Decoding panics or is not the reverse of encoding, or a name stands twice.
pub fn headers(data: &[u8]) {
    if let Some(headers) = Headers::decode(Bytes::copy_from_slice(data)) {
        let encoded = headers.encode();
        assert_eq!(encoded.len(), headers.encoded_len());
        assert_eq!(encoded, data);
        assert!(headers.iter().count() == headers.len() && headers.is_empty() == data.is_empty());
        let _ = format!("{headers:?}");
    }
    if let Ok(pairs) = Vec::<(String, Vec<u8>)>::arbitrary_take_rest(Unstructured::new(data)) {
        made(pairs);
    }
}

fn made(pairs: Vec<(String, Vec<u8>)>) {
    let mut headers = Headers::new();
    for (name, value) in pairs {
        let before = headers.clone();
        match headers.set(name.as_str(), value.clone()) {
            Ok(()) => assert_eq!(headers.get(&name), Some(&Bytes::from(value))),
            Err(_) => assert_eq!(headers, before),
        }
    }
    for (name, value) in headers.iter() {
        assert_eq!(headers.get(name), Some(value), "{name:?} stands twice");
    }
    assert_eq!(Headers::decode(headers.encode().into()), Some(headers));
}
