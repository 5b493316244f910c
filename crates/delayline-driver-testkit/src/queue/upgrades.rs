//! Queues that are converted to a next layout, which only tests know.

use delayline_core::limits::MAX_LOOK_UP;
use delayline_core::{Claimed, Delivery, ErrorClass, Found, MessageState, Settled};
use delayline_redis_protocol::{Transport, Upgrade};

use super::*;
use crate::next_layout::{NEXT, Versions, conversions};

/// More than a page, so that hashes are converted in several.
const MANY: usize = 1_200;
/// After everything that `fill_more` does.
const LATER: u64 = 10;

const UPGRADING: ErrorKind = ErrorKind::Upgrading { from: SCHEMA_VERSION, to: NEXT };
const TOO_NEW: ErrorKind = ErrorKind::NewerVersion { found: NEXT, supported: SCHEMA_VERSION };

/// Everything that a queue can hold, and more messages than a page has: waiting and leased ones.
pub async fn populate(queue: &impl Backend) -> Vec<MessageId> {
    fill_more(queue).await;
    let names: Vec<_> = (0..MANY).map(|n| format!("many-{n}")).collect();
    for names in names.chunks(300) {
        let messages = names.iter().map(|name| message(name)).collect();
        apply(queue, 5, Op::Enqueue(messages)).await;
    }
    // Clearly more than one page too: where a page ends is the server's choice.
    for token in 30..38 {
        apply(queue, 6, claim(token, 100)).await;
    }
    let known = ["dead", "acked", "leased", "expiring", "scheduled", "ready", "large", "throttled"];
    let known = known.into_iter().chain(["done", "unknown"]).map(str::to_owned);
    known.chain(names).map(|name| id(&name)).collect()
}

/// What a queue says of these ids, and of itself.
pub async fn seen(queue: &impl Backend, ids: &[MessageId]) -> Vec<Reply> {
    let mut all = Vec::new();
    for ids in ids.chunks(MAX_LOOK_UP) {
        all.push(apply(queue, LATER, Op::Get(ids.to_vec())).await);
        all.push(apply(queue, LATER, Op::Progress(ids[..1].to_vec())).await);
    }
    for op in [Op::Stats, Op::Forecast(vec![millis(60_000)]), Op::History(Resolution::Minutes)] {
        all.push(apply(queue, LATER, op).await);
    }
    all
}

/// Converts a queue to its end, and returns in how many pages. Each page shows progress.
pub async fn upgraded<T: Transport>(queue: &ScriptBackend<T>) -> usize {
    let mut pages: Vec<Upgrade> = Vec::new();
    let done = queue.upgrade(&conversions(), |page| pages.push(*page)).await.unwrap();
    assert!(!done.begun && done.version == NEXT && !done.is_needed(), "{done:?}");
    let (last, begun) = pages.split_last().unwrap();
    assert_eq!(*last, done);
    assert!(begun.iter().all(|page| page.begun && page.is_needed()), "{pages:?}");
    assert!(begun.is_sorted_by_key(|page| page.seen), "{pages:?}");
    pages.len()
}

/// Each message is claimed or dead, and claimed ones are acked; nothing is left.
pub async fn drained(queue: &impl Backend) -> usize {
    let mut acked = 0;
    // All leases have ended, and everything is due.
    for (round, token) in (0..).zip(100..250) {
        let now = 1_000_000 + round;
        let Claimed { deliveries, .. } = claimed(queue, now, token).await;
        if deliveries.is_empty() {
            break;
        }
        let ack = |delivery: &Delivery| {
            Settlement::new(delivery.message.info.id.clone(), delivery.lease, Outcome::Ack)
        };
        acked += deliveries.len();
        apply(queue, now, Op::Settle(deliveries.iter().map(ack).collect())).await;
    }
    acked
}

pub async fn a_conversion_keeps_all_that_a_queue_holds<C: Connect>() {
    let server = Server::start();
    let queue = Versions::open::<C>(&server.url(), "q").await.unwrap();
    let ids = populate(&queue.this).await;
    let before = seen(&queue.this, &ids).await;
    let conversions = conversions();
    let older = kind_of(&queue.next, LATER, &Op::Stats).await.unwrap_err();
    assert!(matches!(older, ErrorKind::OlderVersion { .. }), "{older:?}");
    let whole = dump(&server, queue.this.keys().all());
    let counted = queue.this.upgrade_status(&conversions).await.unwrap();
    assert!(counted.is_needed() && !counted.begun && counted.seen == 0, "{counted:?}");
    assert!(counted.total > 2 * MANY as u64 * 2 / 3, "{counted:?}");
    assert_eq!(dump(&server, queue.this.keys().all()), whole, "a count changes nothing");

    let (mut pages, mut last) = (0, Upgrade::default());
    loop {
        // Each page is converted by another client.
        let by = Versions::open::<C>(&server.url(), "q").await.unwrap();
        let state = by.this.upgrade_page(&conversions).await.unwrap();
        if !state.is_needed() {
            break;
        }
        pages += 1;
        assert!(state.begun && state.seen >= last.seen && state.total == counted.total);
        last = state;
        let status = by.this.upgrade_status(&conversions).await.unwrap();
        assert_eq!(status, state);
        let half = dump(&server, queue.this.keys().all());
        for op in every_op() {
            assert_eq!(kind_of(&queue.this, LATER, &op).await, Err(UPGRADING), "{}", op.name());
            assert_eq!(kind_of(&queue.next, LATER, &op).await, Err(UPGRADING), "{}", op.name());
        }
        assert_eq!(UPGRADING.class(), ErrorClass::NotExecuted);
        assert_eq!(queue.this.delete_if_empty().await.unwrap_err().kind(), &UPGRADING);
        assert_eq!(open::<C>(&server.url()).await.unwrap_err().kind(), &UPGRADING);
        assert_eq!(dump(&server, queue.this.keys().all()), half);
    }
    assert!(pages > 4, "only {pages} pages");
    for op in every_op() {
        assert_eq!(kind_of(&queue.this, LATER, &op).await, Err(TOO_NEW), "{}", op.name());
    }
    // A version without the conversion, and one with it.
    let newer = queue.this.upgrade_status(&[]).await.unwrap_err();
    assert_eq!(newer.kind(), &TOO_NEW);
    assert!(!queue.this.upgrade_page(&conversions).await.unwrap().is_needed());
    assert_eq!(seen(&queue.next, &ids).await, before);
    assert_eq!(findings(&queue.next, LATER).await, []);

    let Reply::Get(found) = apply(&queue.next, LATER, Op::Get(vec![id("leased")])).await else {
        panic!()
    };
    let [Found::Live(leased)] = &found[..] else { panic!("{found:?}") };
    assert!(matches!(leased.info.state, MessageState::Leased { .. }), "{leased:?}");
    // Its worker still has it.
    let ack = apply(&queue.next, LATER, settle("leased", 1, Outcome::Ack)).await;
    assert!(
        matches!(&ack, Reply::Settle(all) if matches!(all[..], [Settled::Done { .. }])),
        "{ack:?}"
    );
    let Reply::Stats(half) = apply(&queue.next, LATER, Op::Stats).await else { panic!() };
    let acked = drained(&queue.next).await as u64;
    let Reply::Stats(stats) = apply(&queue.next, 2_000_000, Op::Stats).await else { panic!() };
    assert_eq!((stats.scheduled, stats.ready, stats.leased, stats.dead), (0, 0, 0, 1));
    let totals = stats.totals;
    assert_eq!(totals.acked, half.totals.acked + acked);
    assert_eq!(totals.enqueued, totals.acked + totals.replaced + stats.dead, "{totals:?}");
    assert_eq!(findings(&queue.next, 2_000_000).await, []);
}

pub async fn an_upgrade_of_a_queue_that_is_not_there_creates_none<C: Connect>() {
    let server = Server::start();
    let queue = Versions::open::<C>(&server.url(), "q").await.unwrap().this;
    for conversions in [&conversions()[..], &[]] {
        for state in
            [queue.upgrade_status(conversions).await, queue.upgrade_page(conversions).await]
        {
            assert!(!state.unwrap().exists);
        }
    }
    assert_eq!(server.command(&["DBSIZE"]), Raw::Int(0));
    fill(&queue).await;
    let state = queue.upgrade_page(&[]).await.unwrap();
    assert!(state.exists && !state.is_needed() && state.target == SCHEMA_VERSION, "{state:?}");
    // One that has lost its control record is of the layout that every operation takes it for.
    server.binary_command(&[b"DEL", &queue.keys().all()[CONTROL]]);
    assert!(!queue.upgrade_page(&conversions()).await.unwrap().is_needed());
}

pub async fn a_damaged_mark_of_an_upgrade_is_refused_with_its_remedy<C: Connect>() {
    let server = Server::start();
    let queue = Versions::open::<C>(&server.url(), "q").await.unwrap();
    let ids = populate(&queue.this).await;
    let conversions = conversions();
    for _ in 0..2 {
        queue.this.upgrade_page(&conversions).await.unwrap();
    }
    let key = &queue.this.keys().all()[CONTROL];
    let Raw::BulkString(mark) = server.binary_command(&[b"GET", key]) else { panic!() };
    for length in (1..mark.len()).filter(|length| *length != 3) {
        server.binary_command(&[b"SET", key, &mark[..length]]);
        let before = dump(&server, queue.this.keys().all());
        let error = queue.this.upgrade_page(&conversions).await.unwrap_err();
        assert_eq!(error.kind(), &ErrorKind::Damaged, "{length}: {error}");
        let remedy = "set the key delayline:{q}:control to the bytes 255, 2, 3";
        assert!(length < 3 || error.detail().contains(remedy), "{error}");
        let expected = if length < 3 { ErrorKind::Damaged } else { UPGRADING };
        for queue in [&queue.this as &dyn Backend, &queue.next] {
            let refused = queue.apply(at(LATER), &Op::Stats).await.unwrap_err();
            assert_eq!(refused.kind(), &expected);
            assert!(!refused.to_string().contains("delete the key"), "{refused}");
        }
        assert_eq!(dump(&server, queue.this.keys().all()), before);
    }
    server.binary_command(&[b"SET", key, &[255, 2, 3]]);
    upgraded(&queue.this).await;
    repaired(&queue.next, LATER, 100).await;
    let Reply::Get(found) = apply(&queue.next, LATER, Op::Get(ids[..8].to_vec())).await else {
        panic!()
    };
    for (id, found) in ids.iter().zip(&found).filter(|(id, _)| id.as_bytes() != &b"acked"[..]) {
        assert!(matches!(found, Found::Live(_)), "{id}: {found:?}");
    }
    assert!(drained(&queue.next).await >= MANY);
}

pub async fn an_upgrade_that_is_refused_midway_goes_on_later<C: Connect>() {
    let server = Server::start();
    let queue = Versions::open::<C>(&server.url(), "q").await.unwrap();
    let ids = populate(&queue.this).await;
    let before = seen(&queue.this, &ids).await;
    let conversions = conversions();
    server.command(&["ACL", "SETUSER", "u", "on", ">pw", "+@all", "~*"]);
    let user = server.url_with_login("u", "pw");
    let user = Versions::open::<C>(&user, "q").await.unwrap().this;
    for pages in 0..3 {
        let state = queue.this.upgrade_status(&conversions).await.unwrap();
        assert_eq!(state.begun, pages > 0);
        let half = dump(&server, queue.this.keys().all());
        // Writes are denied only where a server can be asked before the first.
        for denied in ["set", "hset", "info", "hscan"] {
            server.command(&["ACL", "SETUSER", "u", &format!("-{denied}")]);
            let error = user.upgrade_page(&conversions).await.unwrap_err();
            server.command(&["ACL", "SETUSER", "u", &format!("+{denied}")]);
            if Capability::RightsAreAsked.is_of(&server) {
                assert_eq!(error.kind(), &ErrorKind::PermissionDenied, "{denied}: {error}");
                assert_eq!(dump(&server, queue.this.keys().all()), half, "{denied}");
            }
        }
        server.command(&["CONFIG", "SET", "maxmemory", "1"]);
        let error = queue.this.upgrade_page(&conversions).await.unwrap_err();
        assert_eq!(error.kind(), &ErrorKind::OutOfMemory, "{error}");
        server.command(&["CONFIG", "SET", "maxmemory", "0"]);
        server.command(&["REPLICAOF", "127.0.0.1", "1"]);
        let error = queue.this.upgrade_page(&conversions).await.unwrap_err();
        assert_eq!(error.kind(), &ErrorKind::ReadOnly, "{error}");
        server.command(&["REPLICAOF", "NO", "ONE"]);
        assert_eq!(dump(&server, queue.this.keys().all()), half);
        user.upgrade_page(&conversions).await.unwrap();
    }
    upgraded(&user).await;
    assert_eq!(seen(&queue.next, &ids).await, before);
}
