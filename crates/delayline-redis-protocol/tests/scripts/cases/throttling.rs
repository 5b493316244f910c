//! Throttled ids: how many there are, and when they go.

use delayline_core::Enqueued;
use delayline_core::limits::{MAX_THROTTLE_MS, MAX_THROTTLED_IDS};

use super::recorded::{Recorded, Shown};
use super::*;

/// The number of the key in `Keys::all`.
const WINDOWS: usize = 16;

async fn sent(queue: &impl Backend, ms: u64, message: NewMessage) -> Enqueued {
    match apply(queue, ms, Op::Enqueue(vec![message])).await {
        Reply::Enqueue(answers) => answers[0],
        other => panic!("{other:?}"),
    }
}

fn instant(ms: u64) -> Timestamp {
    match at(ms) {
        At::Fixed(instant) => instant,
        At::Server => unreachable!(),
    }
}

fn created(ms: u64) -> Enqueued {
    Enqueued::Created { due: instant(ms) }
}

/// Each new window removes two that have ended, and all of them end with the key.
pub(crate) async fn windows_go_by_themselves<C: Connect>() {
    let server = Server::start();
    let queue = open::<C>(&server.url()).await.unwrap();
    let windows = &queue.keys().all()[WINDOWS][..];
    let names: Vec<_> = (0..9).map(|n| n.to_string()).collect();
    let first = names.iter().map(|name| throttled(name)).collect();
    apply(&queue, 0, Op::Enqueue(first)).await;
    assert_eq!(server.binary_command(&[b"ZCARD", windows]), Raw::Int(9));
    for (n, left) in (0..).zip([8, 7, 6, 5, 5, 6]) {
        assert_eq!(sent(&queue, 60_000, throttled(&format!("later {n}"))).await, created(60_000));
        assert_eq!(server.binary_command(&[b"ZCARD", windows]), Raw::Int(left), "{n}");
    }
    let most = i64::try_from(MAX_THROTTLE_MS).unwrap();
    let is_limited = || {
        let ttl_ms = server.binary_command(&[b"PTTL", windows]);
        matches!(ttl_ms, Raw::Int(ms) if (most - 60_000..=most).contains(&ms))
    };
    assert!(is_limited());
    // A file may end just before.
    assert_eq!(server.binary_command(&[b"PERSIST", windows]), Raw::Int(1));
    assert_eq!(repaired(&queue, 0, 100).await, []);
    assert!(is_limited());
}

pub(crate) async fn as_many_ids_are_throttled_as_promised<C: Connect>() {
    const FILL: &str = "for i = 1, ARGV[1] do redis.call('ZADD', KEYS[1], ARGV[2], i) end";
    let server = Server::start();
    let queue = open::<C>(&server.url()).await.unwrap();
    let windows = &queue.keys().all()[WINDOWS][..];
    let count = (MAX_THROTTLED_IDS - 1).to_string();
    let until = instant(500).as_ms().to_string();
    server.binary_command(&[
        b"EVAL",
        FILL.as_bytes(),
        b"1",
        windows,
        count.as_bytes(),
        until.as_bytes(),
    ]);
    let [last, more] = ["last", "more"].map(throttled);
    let plain = message("plain").throttle(None);
    let answers = apply(&queue, 0, Op::Enqueue(vec![last, more.clone(), plain])).await;
    let expected = vec![created(0), Enqueued::TooManyThrottled, created(0)];
    assert_eq!(answers, Reply::Enqueue(expected));
    let before = dump(&server, queue.keys().all());
    assert_eq!(sent(&queue, 499, more.clone()).await, Enqueued::TooManyThrottled);
    assert_eq!(dump(&server, queue.keys().all()), before, "nothing changed");
    assert_eq!(
        sent(&queue, 499, throttled("7")).await,
        Enqueued::Throttled { until: instant(500) }
    );
    assert_eq!(sent(&queue, 500, more).await, created(500));
}

/// Whether or not it is among the oldest, which make room for the first.
pub(crate) async fn an_ended_window_of_the_same_id_makes_room_once<C: Connect>() {
    const FILL: &str = "for i = 1, ARGV[1] do redis.call('ZADD', KEYS[1], ARGV[2], i) end \
                        for i = 3, #ARGV do redis.call('ZADD', KEYS[1], ARGV[2] - 1000 + i, ARGV[i]) end";
    let server = Server::start();
    let queue = open::<C>(&server.url()).await.unwrap();
    let windows = &queue.keys().all()[WINDOWS][..];
    let until = instant(1_000).as_ms().to_string();
    // Which windows have ended, the oldest first, and for how many of those that are sent there is
    // room.
    for (ended, room) in [(&["own"][..], 1), (&["other", "own"], 2), (&["1st", "2nd", "own"], 3)] {
        server.command(&["FLUSHALL"]);
        let going_on = (MAX_THROTTLED_IDS - ended.len()).to_string();
        let fill = [b"EVAL", FILL.as_bytes(), b"1", windows, going_on.as_bytes(), until.as_bytes()];
        let ended = ended.iter().map(|name| name.as_bytes());
        server.command(&fill.into_iter().chain(ended).collect::<Vec<_>>());
        let messages = ["own", "new 1", "new 2", "new 3"].map(throttled).to_vec();
        let mut expected = vec![Enqueued::TooManyThrottled; 4];
        expected[..room].fill(created(500));
        let answers = apply(&queue, 500, Op::Enqueue(messages)).await;
        assert_eq!(answers, Reply::Enqueue(expected));
        let full = i64::try_from(MAX_THROTTLED_IDS).unwrap();
        assert_eq!(server.binary_command(&[b"ZCARD", windows]), Raw::Int(full));
    }
}

/// Whatever has put them there, a repair removes them.
pub(crate) async fn windows_without_an_end_throttle_nobody<C: Connect>() {
    let server = Server::start();
    let queue = open::<C>(&server.url()).await.unwrap();
    let windows = &queue.keys().all()[WINDOWS][..];
    sent(&queue, 0, throttled("sound")).await;
    for (n, score) in (1..).zip(["+inf", "253402300800000", "1e300", "-inf", "-1", "0.5"]) {
        let name = format!("damaged {n}");
        for name in [&name, "endless"] {
            server.binary_command(&[b"ZADD", windows, score.as_bytes(), name.as_bytes()]);
        }
        assert_eq!(sent(&queue, 1, throttled(&name)).await, created(1), "{score}");
        server.binary_command(&[b"ZADD", windows, b"+inf", b"endless"]);
    }
    repaired(&queue, 2, 100).await;
    assert_eq!(server.binary_command(&[b"ZSCORE", windows, b"endless"]), Raw::Nil);
    let other = || throttled("sound").payload("other");
    assert_eq!(sent(&queue, 3, other()).await, Enqueued::Throttled { until: instant(60_000) });
    apply(&queue, 4, Op::Cancel(vec![id("sound")])).await;
    assert_eq!(sent(&queue, 60_000, other()).await, created(60_000));
}

/// Wherever a send is torn, a repeated send creates the message.
pub(crate) async fn a_torn_send_is_not_throttled<C: Connect>() {
    let server = Recorded::start("no");
    let queue = open::<C>(&server.server.url()).await.unwrap();
    sent(&queue, 0, throttled("over")).await;
    let sound = server.keys();
    let send = Op::Enqueue(vec![throttled("new")]);
    let commands = server.record(&queue, 60_000, &send).await;
    assert!(commands.len() > 4, "{:?}", Shown(&commands));
    for kept in 1..=commands.len() {
        server.restore(&sound);
        server.server.commands(&commands[..kept]);
        apply(&queue, 60_001, send.clone()).await;
        let deliveries = claimed(&queue, 60_002, 9).await.deliveries;
        let new = deliveries.iter().filter(|delivery| delivery.message.info.id == id("new"));
        assert_eq!(new.count(), 1, "torn to {:?}", Shown(&commands[..kept]));
    }
}
