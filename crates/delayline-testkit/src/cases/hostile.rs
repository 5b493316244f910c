//! Bytes that might be taken for something else.

use bytes::Bytes;
use delayline_core::{
    Claim, ClaimId, ConsumerName, Enqueued, Headers, Lease, MessageId, NewMessage, Op, Outcome,
    Settlement, Status,
};

use super::queue::{Queue, at, claim, done, id, lease, message, millis, one, reject, retry};

super::cases! { "hostile",
    ids_of_any_bytes_are_told_apart: "G20",
    payloads_of_any_bytes_are_kept: "G2, G20",
    headers_of_any_bytes_are_kept: "G2, G20",
    consumers_and_tokens_of_any_bytes_are_told_apart: "G16, G20",
    error_texts_of_any_characters_are_kept: "G11, G20",
}

/// They look like protocol, script, key, number, format or markup, or like nothing at all.
const HOSTILE: &[&[u8]] = &[
    b"\0",
    b"\0\0",
    b"a\0b",
    b"\r\n",
    b"*1\r\n$4\r\nPING\r\n",
    b"$-1\r\n",
    b"-ERR unknown\r\n",
    b"+OK",
    b":1",
    b"message",
    b"subscribe",
    b"MOVED 1 h:1",
    b"NOSCRIPT",
    b"nil",
    b"false",
    b"0",
    b"-1",
    b"007",
    b"1e5",
    b"nan",
    b"inf",
    b"9007199254740993",
    b"18446744073709551616",
    b"1.7000000001235e+15",
    b"{x}",
    b"}{",
    b"*",
    b"a:b",
    b"%s%n%d",
    b"\" or 1=1 --",
    b"]] os.exit() --[[",
    b"<img src=x onerror=alert(1)>",
    b"\x1b[2J",
    b" ",
    b"A",
    b"a",
    b"\xc3\xa9",
    b"e\xcc\x81",
    b"\xed\xa0\x80",
    b"\xff",
    b"\xff\xfe",
    b"\xc3",
];

fn raw(bytes: &'static [u8]) -> MessageId {
    MessageId::new(bytes).unwrap_or_else(|violation| panic!("{violation}"))
}

async fn ids_of_any_bytes_are_told_apart(queue: &Queue) {
    let all = HOSTILE.iter().map(|bytes| NewMessage::new(raw(bytes), *bytes)).collect();
    let created = queue.enqueue(0, all).await;
    assert_eq!(created, vec![Enqueued::Created { due: at(0) }; HOSTILE.len()]);
    let claimed = queue.claim(0, claim(1, 1_000, 50)).await;
    let got: Vec<_> = claimed
        .deliveries
        .iter()
        .map(|delivery| (&delivery.message.info.id, &delivery.message.payload[..]))
        .map(|(id, payload)| (id.as_bytes().to_vec(), payload.to_vec()))
        .collect();
    let sent: Vec<_> = HOSTILE.iter().map(|bytes| (bytes.to_vec(), bytes.to_vec())).collect();
    assert_eq!(got, sent);
    // Every other one is settled; their neighbours must not change.
    let (settled, kept): (Vec<_>, Vec<_>) =
        claimed.deliveries.into_iter().enumerate().partition(|(n, _)| n % 2 == 0);
    let acks: Vec<_> = settled
        .into_iter()
        .map(|(_, d)| Settlement::new(d.message.info.id, d.lease, Outcome::Ack))
        .collect();
    let count = acks.len();
    assert_eq!(queue.settle(1, acks).await, vec![done(Status::Acked); count]);
    let page = queue.list(1, Status::Leased, 100).await;
    let left: Vec<_> = page.messages.into_iter().map(|info| info.id).collect();
    let kept: Vec<_> = kept.into_iter().map(|(_, d)| d.message.info.id).collect();
    assert_eq!(left, kept);
}

async fn payloads_of_any_bytes_are_kept(queue: &Queue) {
    let every_byte: Vec<u8> = (0..=255).collect();
    let odd = [Bytes::new(), every_byte.into(), vec![b'\n'; 70_000].into()];
    let payloads: Vec<_> =
        HOSTILE.iter().map(|bytes| Bytes::from_static(bytes)).chain(odd).collect();
    for (n, payload) in payloads.iter().enumerate() {
        queue.enqueue_one(0, NewMessage::new(id(&n.to_string()), payload.clone())).await;
    }
    let claimed = queue.claim(0, claim(1, 1_000, 50)).await;
    let got: Vec<_> = claimed.deliveries.into_iter().map(|d| d.message.payload).collect();
    assert!(got == payloads, "a payload was changed");
}

async fn headers_of_any_bytes_are_kept(queue: &Queue) {
    let mut headers = Headers::new();
    for (n, bytes) in HOSTILE.iter().take(32).enumerate() {
        let name = format!("{n}\0\r\n\u{1f980}");
        headers.set(name, *bytes).unwrap_or_else(|violation| panic!("{violation}"));
    }
    queue.enqueue_one(0, message("a").headers(headers.clone())).await;
    assert!(queue.live(0, "a").await.headers == headers);
    let taken = one(queue.claim(0, claim(1, 1, 50)).await.deliveries);
    assert!(taken.message.headers == headers);
}

async fn consumers_and_tokens_of_any_bytes_are_told_apart(queue: &Queue) {
    for (n, bytes) in HOSTILE.iter().enumerate() {
        let consumer = ConsumerName::new(*bytes).unwrap_or_else(|violation| panic!("{violation}"));
        let mut token = [0; ClaimId::BYTES];
        let len = bytes.len().min(token.len());
        token[..len].copy_from_slice(&bytes[..len]);
        // Tokens with the same first bytes differ in the last.
        token[15] = u8::try_from(n).unwrap_or(u8::MAX);
        let claim_id = ClaimId::from_bytes(token);
        let name = n.to_string();
        queue.enqueue_one(0, message(&name)).await;
        let own = Claim::new(consumer, claim_id, 1, millis(50));
        for _ in 0..2 {
            let taken = one(queue.claim(0, own.clone()).await.deliveries);
            assert_eq!(taken.message.info.id, id(&name));
            assert_eq!(taken.lease, Lease { claim_id, epoch: 1 });
        }
    }
}

async fn error_texts_of_any_characters_are_kept(queue: &Queue) {
    let texts = HOSTILE.iter().filter_map(|bytes| std::str::from_utf8(bytes).ok());
    let all: Vec<_> = texts.collect();
    let names: Vec<_> = (0..all.len()).map(|n| n.to_string()).collect();
    queue.enqueue(0, names.iter().map(|name| message(name)).collect()).await;
    queue.claim(0, claim(1, 1_000, 50)).await;
    let settle = |(n, (name, text)): (usize, (&String, &&str))| {
        Settlement::new(
            id(name),
            lease(1, 1),
            if n % 2 == 0 { retry(0, text) } else { reject(text) },
        )
    };
    let settlements = names.iter().zip(&all).enumerate().map(settle).collect();
    queue.settle(1, settlements).await;
    for (name, text) in names.iter().zip(&all) {
        let info = queue.live(1, name).await.info;
        let kept = (info.first_error.as_deref(), info.last_error.as_deref());
        assert_eq!(kept, (Some(*text), Some(*text)));
    }
    // The operation's own name is also just data.
    let op = Op::Get(vec![id("enqueue"), id("claim")]);
    queue.apply(2, &op).await;
}
