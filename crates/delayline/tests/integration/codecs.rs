//! What can be sent, and what can be handled.

use std::time::Duration;

use delayline::admin::Listed;
use delayline::codec::{Codec, CodecError, Decode, Encode, Json, Raw};
use delayline::{Bytes, Connection, ErrorClass, ErrorKind, Found, Queue};

#[derive(serde::Serialize)]
struct Receipt<'a> {
    number: u64,
    shop: &'a str,
}

/// Fails to compile if the codec decodes the type: two implementations would fit.
macro_rules! assert_no_decode {
    ($codec:ty, $payload:ty) => {{
        trait OnlyOne<A> {
            fn fits() {}
        }
        struct Decodes;
        impl<C> OnlyOne<()> for C {}
        impl<C: Decode<$payload>> OnlyOne<Decodes> for C {}
        <$codec as OnlyOne<_>>::fits();
    }};
}

/// Returns the payload of the only message of the named queue.
async fn payload(connection: &Connection, queue: &str) -> Bytes {
    let queue: Queue<Bytes, Raw> = connection.queue(queue).await.unwrap().codec(Raw);
    let infos = queue.list(Listed::Ready).next_page().await.unwrap().unwrap();
    let Found::Live(message) = queue.get(infos[0].id.clone()).await.unwrap() else { panic!() };
    message.payload
}

#[tokio::test]
async fn types_that_borrow_and_cannot_be_decoded_are_sent() {
    let connection = delayline::connect("memory:").await.unwrap();
    let shop = "acme".to_owned();
    let receipts: Queue<Receipt<'_>> = connection.queue("receipts").await.unwrap();
    receipts.send(&Receipt { number: 17, shop: &shop }).await.unwrap();
    assert_eq!(payload(&connection, "receipts").await, r#"{"number":17,"shop":"acme"}"#);
    assert_no_decode!(Json, Receipt<'static>);
}

#[tokio::test]
async fn a_queue_of_static_values_takes_those_that_live_shorter() {
    async fn tell(queue: &Queue<&'static str>, shop: &str) {
        queue.send(&shop).await.unwrap();
    }
    let connection = delayline::connect("memory:").await.unwrap();
    let queue = connection.queue("texts").await.unwrap();
    let shop = ["ac", "me"].concat();
    tell(&queue, &shop).await;
    assert_eq!(payload(&connection, "texts").await, r#""acme""#);
}

#[tokio::test]
async fn texts_and_slices_are_sent_without_a_copy() {
    let connection = delayline::connect("memory:").await.unwrap();
    let texts: Queue<str> = connection.queue("texts").await.unwrap();
    texts.send("close it").await.unwrap();
    assert_eq!(payload(&connection, "texts").await, r#""close it""#);
    // The other program reads owned values.
    let owned: Queue<String> = connection.queue("texts").await.unwrap();
    assert_eq!(owned.decode(&payload(&connection, "texts").await).unwrap(), "close it");

    let numbers: Queue<[u64]> = connection.queue("numbers").await.unwrap();
    numbers.send_in(&[1, 2], Duration::ZERO).await.unwrap();
    assert_eq!(payload(&connection, "numbers").await, "[1,2]");

    let plain: Queue<str, Raw> = connection.queue("plain").await.unwrap().codec(Raw);
    plain.send("as it is").await.unwrap();
    assert_eq!(payload(&connection, "plain").await, "as it is");
    let bytes: Queue<[u8], Raw> = connection.queue("bytes").await.unwrap().codec(Raw);
    bytes.send(b"\xff\0").await.unwrap();
    assert_eq!(payload(&connection, "bytes").await, b"\xff\0"[..]);
}

#[test]
fn what_encodes_and_decodes_is_a_codec() {
    const fn is_codec<T, C: Codec<T>>(_: &C) {}
    is_codec::<u64, _>(&Json);
    is_codec::<String, _>(&Raw);
    let payload = Encode::<str>::encode(&Raw, "text").unwrap();
    assert_eq!(Decode::<String>::decode(&Raw, &payload).unwrap(), "text");
}

/// Refuses everything, in its own words.
struct Picky;

impl Encode<u64> for Picky {
    fn encode(&self, _: &u64) -> Result<Bytes, CodecError> {
        Err(CodecError::new("the number is odd"))
    }
}

#[tokio::test]
async fn errors_of_codecs_have_a_kind_their_text_and_a_source() {
    let connection = delayline::connect("memory:").await.unwrap();
    let queue: Queue<u64, Picky> = connection.queue("odd").await.unwrap().codec(Picky);
    let error = queue.send(&1).await.unwrap_err();
    assert_eq!((error.kind(), error.class()), (&ErrorKind::Encode, ErrorClass::Rejected));
    assert!(error.is_invalid() && !error.is_retryable());
    assert_eq!(error.to_string(), "the value could not be encoded: the number is odd");
    assert!(std::error::Error::source(&error).unwrap().is::<CodecError>());

    let queue: Queue<u64> = connection.queue("numbers").await.unwrap();
    let error = queue.decode(&Bytes::from_static(b"\"hunter2\"")).unwrap_err();
    assert_eq!(error.kind(), &ErrorKind::Decode);
    assert!(!error.is_invalid() && !error.is_retryable());
    let text = format!("{error} {error:?}");
    assert!(text.contains("expected structure: line 1, column 9"), "{text}");
    assert!(!text.contains("hunter2"), "{text}");
}
