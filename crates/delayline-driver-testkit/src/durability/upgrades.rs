//! A queue that is upgraded while programs of both versions use it, and its server is killed.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use delayline_core::limits::MAX_LOOK_UP;
use delayline_core::{
    At, Backend, Check, Claim, ClaimId, ConsumerName, Error, ErrorClass, ErrorKind, Found,
    MessageId, Millis, NewMessage, Op, Outcome, Reply, Schedule, Settlement, Status,
};
use delayline_test_server::Server;
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::{sleep, timeout};

use super::{PATIENCE, QUEUE};
use crate::Connect;
use crate::next_layout::{NEXT, Versions, conversions};

/// Number of messages that wait while the queue is converted: several pages.
const WAITING: usize = 1_500;
/// Number of pages after each of which the server is killed.
const KILLS: usize = 4;

fn id(text: &str) -> MessageId {
    MessageId::try_from(text).unwrap()
}

/// A program that sends and works until it is stopped, or until its version is refused permanently.
struct Program<B> {
    queue: B,
    name: &'static str,
    stopped: Arc<AtomicBool>,
    /// Number of messages that all programs have acked.
    acked: Arc<AtomicUsize>,
    /// Whether it repeats calls that are refused because the layout is older, until the upgrade.
    waits_for_upgrade: bool,
}

impl<B: Backend> Program<B> {
    /// Returns the accepted ids, and the error that ended the program.
    async fn run(self) -> Ended {
        let (mut accepted, mut claims) = (Vec::new(), 0_u32);
        while !self.stopped.load(Ordering::Relaxed) {
            let new = id(&format!("{}-{}", self.name, accepted.len()));
            let message = NewMessage::new(new.clone(), "payload");
            match self.patiently(&Op::Enqueue(vec![message])).await {
                Ok(_) => accepted.push(new),
                Err(error) => return (accepted, Some(error.kind().clone())),
            }
            claims += 1;
            if let Err(error) = self.work(claims).await {
                return (accepted, Some(error.kind().clone()));
            }
        }
        (accepted, None)
    }

    async fn work(&self, claims: u32) -> Result<(), Error> {
        let mut bytes = [0; 16];
        bytes[..4].copy_from_slice(&claims.to_be_bytes());
        bytes[4] = self.name.as_bytes()[0];
        let claim = Claim::new(
            ConsumerName::new(self.name).unwrap(),
            ClaimId::from_bytes(bytes),
            5,
            Millis::saturating(2_000),
        );
        let Reply::Claim(claimed) = self.patiently(&Op::Claim(claim)).await? else { panic!() };
        let settlements = claimed.deliveries.into_iter().map(|delivery| {
            Settlement::new(delivery.message.info.id, delivery.lease, Outcome::Ack)
        });
        let settlements: Vec<_> = settlements.collect();
        if !settlements.is_empty() {
            let count = settlements.len();
            self.patiently(&Op::Settle(settlements)).await?;
            self.acked.fetch_add(count, Ordering::Relaxed);
        }
        Ok(())
    }

    /// Repeats a call until it succeeds or is refused permanently.
    async fn patiently(&self, op: &Op) -> Result<Reply, Error> {
        let begin = Instant::now();
        loop {
            let error = match self.queue.apply(At::Server, op).await {
                Ok(applied) => return Ok(applied.reply),
                Err(error) => error,
            };
            assert!(begin.elapsed() < PATIENCE, "{}: {error}", self.name);
            let waits =
                self.waits_for_upgrade && matches!(error.kind(), ErrorKind::OlderVersion { .. });
            if error.class() == ErrorClass::Rejected && !waits {
                return Err(error);
            }
            sleep(Duration::from_millis(5)).await;
        }
    }
}

/// The accepted ids of a program, and the error that ended it.
type Ended = (Vec<MessageId>, Option<ErrorKind>);

/// Old and new programs send and work on one queue, while the server is killed. Clients convert the
/// queue, each by one page, or are dropped in the middle of it. No message is lost, no waiting
/// message is early, and the old programs end with an error that names the newer version.
pub async fn an_upgrade_under_load_with_kills_loses_nothing<C: Connect>() {
    let server = Arc::new(Server::builder().append_only("always").start());
    let url = server.url();
    let queue = Versions::open::<C>(&url, QUEUE).await.unwrap();
    let waiting: Vec<_> = (0..WAITING).map(|n| id(&format!("waiting-{n}"))).collect();
    for ids in waiting.chunks(500) {
        let message = |id: &MessageId| {
            let due = Schedule::In(Millis::saturating(86_400_000));
            NewMessage::new(id.clone(), "payload").schedule(due)
        };
        let op = Op::Enqueue(ids.iter().map(message).collect());
        queue.this.apply(At::Server, &op).await.unwrap();
    }
    let (stopped, acked) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
    let mut old = JoinSet::new();
    let mut new: Vec<JoinHandle<Ended>> = Vec::new();
    for (old_name, new_name) in [("a", "w"), ("b", "x")] {
        let Versions { this, next } = Versions::open::<C>(&url, QUEUE).await.unwrap();
        let (stopped, acked) = (Arc::clone(&stopped), Arc::clone(&acked));
        let again = (Arc::clone(&stopped), Arc::clone(&acked));
        let this =
            Program { queue: this, name: old_name, stopped, acked, waits_for_upgrade: false };
        old.spawn(this.run());
        let (stopped, acked) = again;
        let next = Program { queue: next, name: new_name, stopped, acked, waits_for_upgrade: true };
        new.push(tokio::spawn(next.run()));
    }
    until_acked(&acked, 20).await;
    upgrade_with_kills::<C>(&server).await;

    let mut accepted: Vec<MessageId> = Vec::new();
    let too_new = ErrorKind::NewerVersion { found: NEXT, supported: NEXT - 1 };
    while let Some(ended) = old.join_next().await {
        let (ids, error) = ended.unwrap();
        assert_eq!(error, Some(too_new.clone()));
        accepted.extend(ids);
    }
    until_acked(&acked, acked.load(Ordering::Relaxed) + 20).await;
    stopped.store(true, Ordering::Relaxed);
    for program in new {
        let (ids, error) = program.await.unwrap();
        assert_eq!(error, None);
        accepted.extend(ids);
    }
    judge(queue.next, &accepted, &waiting).await;
}

async fn until_acked(acked: &AtomicUsize, count: usize) {
    let begin = Instant::now();
    while acked.load(Ordering::Relaxed) < count {
        assert!(begin.elapsed() < PATIENCE, "the programs stand still");
        sleep(Duration::from_millis(5)).await;
    }
}

/// Converts the queue, one page per client, and kills the server after each of the first pages.
async fn upgrade_with_kills<C: Connect>(server: &Arc<Server>) {
    let (begin, conversions) = (Instant::now(), conversions());
    let mut pages = 0;
    loop {
        assert!(begin.elapsed() < PATIENCE, "the upgrade does not end");
        let Ok(clients) = async {
            let one = Versions::open::<C>(&server.url(), QUEUE).await?;
            Ok::<_, Error>((one, Versions::open::<C>(&server.url(), QUEUE).await?))
        }
        .await
        else {
            continue;
        };
        // One client is dropped before its reply, at different points of its call.
        let dropped = clients.0.this.upgrade_page(&conversions);
        let patience = Duration::from_micros(200 * (pages as u64 % 8));
        let (page, _) =
            tokio::join!(clients.1.this.upgrade_page(&conversions), timeout(patience, dropped));
        match page {
            Ok(state) if !state.is_needed() => break,
            Ok(state) => assert!(state.begun, "{state:?}"),
            Err(error) => assert_ne!(error.class(), ErrorClass::Rejected, "{error}"),
        }
        pages += 1;
        if pages <= KILLS {
            let server = Arc::clone(server);
            let killed = tokio::task::spawn_blocking(move || {
                server.kill();
                server.restart();
            });
            killed.await.unwrap();
        }
    }
    assert!(pages > KILLS, "only {pages} pages");
}

/// Handles the due messages, and checks the state of all messages.
async fn judge(queue: impl Backend, accepted: &[MessageId], waiting: &[MessageId]) {
    let last = Program {
        queue,
        name: "z",
        stopped: Arc::default(),
        acked: Arc::default(),
        waits_for_upgrade: false,
    };
    let begin = Instant::now();
    let mut claims = 0;
    let stats = loop {
        claims += 1;
        last.work(claims).await.unwrap();
        let Ok(Reply::Stats(stats)) = last.patiently(&Op::Stats).await else { panic!() };
        if stats.ready + stats.leased == 0 {
            break stats;
        }
        assert!(begin.elapsed() < PATIENCE, "{stats:?}");
    };
    assert_eq!((stats.scheduled, stats.dead), (waiting.len() as u64, 0), "{stats:?}");
    assert_eq!(accepted.iter().collect::<BTreeSet<_>>().len(), accepted.len());
    // The last send of each program may have been executed although its reply was lost.
    let unanswered = stats.totals.acked - accepted.len() as u64;
    assert!(unanswered <= 4, "{unanswered} messages more than were accepted");
    for ids in accepted.chunks(MAX_LOOK_UP) {
        let Ok(Reply::Get(found)) = last.patiently(&Op::Get(ids.to_vec())).await else { panic!() };
        for (id, found) in ids.iter().zip(found) {
            assert_eq!(found, Found::Finished(Status::Acked), "{id}");
        }
    }
    for ids in waiting.chunks(MAX_LOOK_UP) {
        let Ok(Reply::Get(found)) = last.patiently(&Op::Get(ids.to_vec())).await else { panic!() };
        for (id, found) in ids.iter().zip(found) {
            assert!(matches!(found, Found::Live(_)), "{id}: {found:?}");
        }
    }
    let mut check = Check::new(100);
    loop {
        let reply = last.patiently(&Op::Check(check)).await.unwrap();
        let Reply::Check(page) = reply else { panic!("{reply:?}") };
        assert_eq!(page.findings, []);
        if page.next.is_none() {
            break;
        }
        check = Check::new(100).after(page.next);
    }
}
