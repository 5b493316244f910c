//! Every operation, cut at every byte of its request and of its reply, by an end of the connection,
//! a reset or a silence in turn: the caller's result is true, the same call again has no second
//! effect, and queue and model agree at the end. Each run begins with another of the three.

use std::sync::Arc;
use std::time::Duration;

use delayline_core::{
    At, Backend, Check, Claim, ClaimId, ConsumerName, Destination, DestinationKey, ErrorClass,
    ErrorKind, Extend, FinishedIds, Group, HandOff, Hold, Known, Lease, List, MessageId, Millis,
    NewMessage, NewResult, Op, Outcome, QueueName, Redrive, Relay, Reply, Reschedule, Resolution,
    Schedule, SetLimits, Settlement, State, Status, Timestamp, Update, UpdateContent, UpdateDue,
    UpdateToken,
};
use delayline_redis_protocol::{ConnectOptions, ScriptBackend, Transport};
use delayline_test_server::Server;
use delayline_test_server::proxy::{End, Fault, Proxy};

use crate::Connect;

/// An operation, its preparation, and its clean-up.
pub struct Scene {
    before: Vec<Op>,
    pub op: Op,
    after: Vec<Op>,
}

/// Where the sweeps run side by side: silences take time, but nothing else. A multiple of the
/// number of ends, so that neighbouring bytes are cut by different ones.
const LANES: usize = 24;
/// From a scene's number to that of its second message, of the same group.
const SECOND: u64 = 1_000_000;
/// After this silence a call has failed.
const PATIENCE: Duration = Duration::from_millis(120);

fn id(number: u64) -> MessageId {
    MessageId::try_from(format!("m{number}").as_str()).unwrap()
}

fn enqueue(number: u64) -> Op {
    Op::Enqueue(vec![NewMessage::new(id(number), "payload")])
}

/// A message of one of a few groups.
fn enqueue_of_a_group(number: u64) -> Op {
    let group = Group::new(format!("group-{}", number % 5)).unwrap();
    Op::Enqueue(vec![NewMessage::new(id(number), "payload").group(group)])
}

fn limit_groups(most: Option<u32>) -> Op {
    Op::SetLimits(SetLimits::new().each_group(most))
}

/// An update with another content, whose token is the number's.
fn update(number: u64) -> Op {
    let token = UpdateToken::from_bytes((number + 1).to_be_bytes());
    let (content, due) = (UpdateContent::Replace, UpdateDue::Set);
    let known = Known::Update(Update::new(content, due, token));
    let finished_ids = FinishedIds::Reuse;
    let message = NewMessage::new(id(number), "another payload");
    Op::Enqueue(vec![message.known(known).finished_ids(finished_ids)])
}

/// An enqueue whose id is throttled.
fn throttle(number: u64) -> Op {
    let message = NewMessage::new(id(number), "payload").finished_ids(FinishedIds::Reuse);
    Op::Enqueue(vec![message.throttle(millis(3_600_000))])
}

fn lease(number: u64) -> Lease {
    Lease { claim_id: claim_id(number), epoch: 1 }
}

fn claim_id(number: u64) -> ClaimId {
    ClaimId::from_bytes(u128::from(number).to_be_bytes())
}

fn millis(ms: u64) -> Millis {
    Millis::new(ms).unwrap()
}

fn claim(number: u64) -> Op {
    let consumer = ConsumerName::new("c").unwrap();
    Op::Claim(Claim::new(consumer, claim_id(number), 1, millis(60_000)))
}

fn settle(number: u64, outcome: Outcome) -> Op {
    Op::Settle(vec![Settlement::new(id(number), lease(number), outcome)])
}

fn reject(number: u64) -> Op {
    settle(number, Outcome::Reject { error: "no".to_owned() })
}

fn cancel(number: u64) -> Op {
    Op::Cancel(vec![id(number)])
}

fn scene(before: Vec<Op>, op: Op, after: Vec<Op>) -> Scene {
    Scene { before, op, after }
}

/// The scene of each operation, for the message of this number.
pub mod scenes {
    use super::*;

    pub fn enqueue(n: u64) -> Scene {
        scene(vec![], super::enqueue(n), vec![super::cancel(n)])
    }
    pub fn update(n: u64) -> Scene {
        scene(vec![super::enqueue(n)], super::update(n), vec![super::cancel(n)])
    }
    pub fn throttle(n: u64) -> Scene {
        scene(vec![], super::throttle(n), vec![super::cancel(n)])
    }
    pub fn follow(n: u64) -> Scene {
        let before = vec![super::enqueue(n), super::claim(n)];
        let after = vec![super::cancel(n), settle(n, Outcome::Ack)];
        scene(before, super::update(n), after)
    }
    pub fn ack_of_a_followed_message(n: u64) -> Scene {
        let before = vec![super::enqueue(n), super::claim(n), super::update(n)];
        scene(before, settle(n, Outcome::Ack), vec![super::cancel(n)])
    }
    pub fn claim(n: u64) -> Scene {
        let ack = settle(n, Outcome::Ack);
        scene(vec![super::enqueue(n)], super::claim(n), vec![ack])
    }
    /// The group of the next message has no slot then.
    pub fn claim_of_a_group(n: u64) -> Scene {
        let mut before = vec![limit_groups(Some(1))];
        before.extend([n, n + SECOND].map(enqueue_of_a_group));
        let after = vec![settle(n, Outcome::Ack), super::cancel(n + SECOND)];
        scene(before, super::claim(n), [after, vec![limit_groups(None)]].concat())
    }
    pub fn hold_of_a_group(n: u64) -> Scene {
        let before = [n, n + SECOND].map(enqueue_of_a_group).to_vec();
        let until = Schedule::In(millis(500));
        let settlement = Settlement::new(id(n), lease(n), Outcome::Release);
        let op = Op::Settle(vec![settlement.hold(Hold::Group(until))]);
        let after = [n, n + SECOND].map(super::cancel).to_vec();
        scene([before, vec![super::claim(n)]].concat(), op, after)
    }
    pub fn relay(n: u64) -> Scene {
        let key = DestinationKey::try_from("a-list").unwrap();
        let relay = Relay::new(Destination::List { key, max_len: None }, 1);
        scene(vec![super::enqueue(n)], Op::Relay(relay), vec![])
    }
    pub fn ack(n: u64) -> Scene {
        let before = vec![super::enqueue(n), super::claim(n)];
        scene(before, settle(n, Outcome::Ack), vec![])
    }
    pub fn retry(n: u64) -> Scene {
        let before = vec![super::enqueue(n), super::claim(n)];
        let retry =
            Outcome::Retry { schedule: Schedule::In(millis(5_000)), error: "later".to_owned() };
        scene(before, settle(n, retry), vec![super::cancel(n)])
    }
    pub fn hand_off(n: u64) -> Scene {
        let before = vec![super::enqueue(n), super::claim(n)];
        let settlement = Settlement::new(id(n), lease(n), Outcome::Ack);
        let next = MessageId::try_from(format!("next{n}").as_str()).unwrap();
        let messages = vec![NewMessage::new(next.clone(), "payload")];
        let result = NewResult::new("42", millis(5_000));
        let op = Op::HandOff(vec![HandOff::new(settlement, messages).with_result(result)]);
        scene(before, op, vec![Op::Cancel(vec![next])])
    }
    pub fn extend(n: u64) -> Scene {
        let before = vec![super::enqueue(n), super::claim(n)];
        let extend = Extend::new(vec![(id(n), lease(n))], millis(90_000));
        scene(before, Op::Extend(extend), vec![settle(n, Outcome::Ack)])
    }
    pub fn cancel(n: u64) -> Scene {
        scene(vec![super::enqueue(n)], super::cancel(n), vec![])
    }
    pub fn reschedule(n: u64) -> Scene {
        let schedule = Schedule::In(millis(5_000));
        let op = Op::Reschedule(vec![Reschedule::new(id(n), schedule)]);
        scene(vec![super::enqueue(n)], op, vec![super::cancel(n)])
    }
    pub fn redrive(n: u64) -> Scene {
        let before = vec![super::enqueue(n), super::claim(n), reject(n)];
        let redrive = Redrive::new(vec![id(n)], Schedule::In(millis(5_000)));
        scene(before, Op::Redrive(redrive), vec![super::cancel(n)])
    }
    pub fn purge(n: u64) -> Scene {
        let before = vec![super::enqueue(n), super::claim(n), reject(n)];
        scene(before, Op::Purge(vec![id(n)]), vec![])
    }
    pub fn pause(_: u64) -> Scene {
        scene(vec![], Op::Pause, vec![Op::Resume])
    }
    pub fn resume(_: u64) -> Scene {
        scene(vec![Op::Pause], Op::Resume, vec![])
    }
    pub fn set_limits(_: u64) -> Scene {
        let none = SetLimits::new().leased(None);
        scene(vec![], Op::SetLimits(SetLimits::new().leased(3)), vec![Op::SetLimits(none)])
    }
    pub fn get(n: u64) -> Scene {
        scene(vec![super::enqueue(n)], Op::Get(vec![id(n)]), vec![super::cancel(n)])
    }
    pub fn progress(n: u64) -> Scene {
        let before = vec![super::enqueue(n), super::claim(n), settle(n, Outcome::Ack)];
        scene(before, Op::Progress(vec![id(n)]), vec![])
    }
    pub fn list(n: u64) -> Scene {
        let list = List::new(Status::Ready, 10);
        scene(vec![super::enqueue(n)], Op::List(list), vec![super::cancel(n)])
    }
    pub fn stats(n: u64) -> Scene {
        scene(vec![super::enqueue(n)], Op::Stats, vec![super::cancel(n)])
    }
    pub fn forecast(n: u64) -> Scene {
        let delays = [10, 1_000_000].map(Millis::saturating).to_vec();
        scene(vec![super::enqueue(n)], Op::Forecast(delays), vec![super::cancel(n)])
    }
    pub fn history(n: u64) -> Scene {
        let op = Op::History(Resolution::Minutes);
        scene(vec![super::enqueue(n)], op, vec![super::cancel(n)])
    }
    pub fn repair(n: u64) -> Scene {
        let check = Check::new(10);
        scene(vec![super::enqueue(n)], Op::Repair(check), vec![super::cancel(n)])
    }
    pub fn check(n: u64) -> Scene {
        let check = Check::new(10);
        scene(vec![super::enqueue(n)], Op::Check(check), vec![super::cancel(n)])
    }
}

/// What a sweep has seen.
#[derive(Debug, Default)]
pub struct Seen {
    cuts: usize,
    /// Cut calls that were reported as not executed.
    not_executed: usize,
    /// Cut calls that may have been executed, and whose repetition shows that they were.
    executed: usize,
    /// Cut calls that may have been executed, and were not, as far as one can tell.
    lost: usize,
}

/// Opens a queue. A busy machine can take longer than [`PATIENCE`], although nothing is cut yet.
async fn opened<T: Transport>(transport: Arc<T>, name: QueueName) -> ScriptBackend<T> {
    for _ in 0..200 {
        match ScriptBackend::open(Arc::clone(&transport), name.clone(), false).await {
            Ok(queue) => return queue,
            Err(error) => assert_ne!(error.class(), ErrorClass::Rejected, "{error}"),
        }
        // The next attempt to connect is some milliseconds away.
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    panic!("{name} is never opened");
}

/// How a connection is cut.
const ENDS: [End; 3] = [End::Close, End::Reset, End::Stall];

/// Cuts one operation everywhere.
pub async fn sweep<C: Connect + 'static>(scene: fn(u64) -> Scene) {
    let server = Server::start();
    let mut all = Seen::default();
    let first = std::process::id() as usize;
    let lanes = (0..LANES)
        .map(|lane| Lane::<C>::sweep(&server, scene, ENDS[(first + lane) % ENDS.len()], lane));
    for seen in futures_util::future::join_all(lanes).await {
        all.cuts += seen.cuts;
        all.not_executed += seen.not_executed;
        all.executed += seen.executed;
        all.lost += seen.lost;
    }
    println!("{all:?}, from {:?} on", ENDS[first % ENDS.len()]);
    // Every byte of a request; the shortest has four keys.
    assert!(all.cuts > 200 && all.lost > 60, "{all:?}");
    let changes = !scene(0).op.is_read_only() && !matches!(scene(0).op, Op::Repair(_));
    let tells = !matches!(
        scene(0).op,
        // These answer the same however often they are executed.
        Op::Claim(_) | Op::Extend(_) | Op::Cancel(_) | Op::Reschedule(_) | Op::Purge(_)
    );
    assert!(all.executed > 10 || !changes || !tells, "{all:?}");
}

/// Some of the cuts, one after the other, in their own queue.
struct Lane<C: Connect> {
    /// Through the proxy.
    queue: ScriptBackend<C::Transport>,
    proxy: Proxy,
    model: State,
    clock: u64,
}

impl<C: Connect> Lane<C> {
    async fn sweep(server: &Server, scene: fn(u64) -> Scene, end: End, lane: usize) -> Seen {
        let proxy = Proxy::start(server).await.unwrap();
        let mut options: ConnectOptions = proxy.url().parse().unwrap();
        options.response_timeout = PATIENCE;
        options.connect_timeout = Duration::from_secs(5);
        let transport = Arc::new(C::connect(&options).await.unwrap());
        let name = QueueName::new(format!("q{lane}{end:?}")).unwrap();
        let queue = opened(transport, name).await;
        let mut lane_ = Self { queue, proxy, model: State::new(), clock: 0 };
        let mut seen = Seen::default();
        let mut number = 1;
        // Whatever is done once for a script is done now.
        lane_.play(scene(0), None, &mut Seen::default()).await;
        for of_reply in [false, true] {
            for byte in (lane..).step_by(LANES) {
                let fault = if of_reply {
                    Fault::CutReplyAt(byte, end)
                } else {
                    Fault::CutRequestAt(byte, end)
                };
                number += 1;
                if !lane_.play(scene(number), Some(fault), &mut seen).await {
                    break;
                }
            }
        }
        seen
    }

    /// Plays a scene. Returns whether the fault has hit.
    async fn play(&mut self, scene: Scene, fault: Option<Fault>, seen: &mut Seen) -> bool {
        let Scene { before, op, after } = scene;
        self.clock += 1_000;
        for op in &before {
            self.both(op).await;
        }
        let now = Timestamp::from_ms(1_800_000_000_000 + self.clock).unwrap();
        let once = self.model.apply(now, &op).reply;
        let twice = self.model.apply(now, &op).reply;
        let before = self.proxy.faults();
        if let Some(fault) = fault {
            self.proxy.once(fault, "EVALSHA");
        }
        let first = self.queue.apply(At::Fixed(now), &op).await;
        self.proxy.heal();
        let hit = self.proxy.faults() > before;
        match first {
            Ok(applied) => assert_eq!(applied.reply, once, "{op:?} with {fault:?}"),
            Err(error) => {
                let (again, unknown) = self.insist(At::Fixed(now), &op).await;
                let unknown = unknown || error.class() == ErrorClass::Ambiguous;
                assert_ne!(error.class(), ErrorClass::Rejected, "{error} with {fault:?}");
                // As far as it has come, it is RESP.
                assert_ne!(error.kind(), &ErrorKind::Protocol, "{error} with {fault:?}");
                if unknown && again == twice && once != twice {
                    seen.executed += 1;
                } else {
                    assert_eq!(again, once, "{op:?} with {fault:?}, after {error}");
                    *if unknown { &mut seen.lost } else { &mut seen.not_executed } += 1;
                }
            }
        }
        seen.cuts += usize::from(hit);
        for op in after {
            self.both(&op).await;
        }
        for op in [Op::Stats, Op::Check(Check::new(100))] {
            self.both(&op).await;
        }
        hit
    }

    /// Sends an operation until it is answered. Returns whether it may have been executed
    /// before that.
    async fn insist(&self, at: At, op: &Op) -> (Reply, bool) {
        let mut unknown = false;
        for _ in 0..200 {
            match self.queue.apply(at, op).await {
                Ok(applied) => return (applied.reply, unknown),
                Err(error) => {
                    unknown |= error.class() == ErrorClass::Ambiguous;
                    // The next attempt to connect is some milliseconds away.
                    tokio::time::sleep(Duration::from_millis(5)).await;
                }
            }
        }
        panic!("{op:?} is never answered");
    }

    /// Applies an operation to queue and model, which agree.
    async fn both(&mut self, op: &Op) {
        let now = Timestamp::from_ms(1_800_000_000_000 + self.clock).unwrap();
        let expected = self.model.apply(now, op).reply;
        let (reply, unknown) = self.insist(At::Fixed(now), op).await;
        // A busy machine can make any call slow, and then it may have been executed twice.
        if !unknown {
            assert_eq!(reply, expected, "{op:?}");
        }
    }
}

/// Tests of connections that break, one for each operation: it is cut at every byte of its request
/// and of its reply, by three kinds of ends in turn, and queue and model agree at the end.
///
/// Takes a type that implements [`Connect`]. Write it once in a test program: the tests are named
/// after the operations.
#[macro_export]
macro_rules! wire_cases {
    ($connect:ty) => {
        $crate::each_scene!($connect: enqueue update throttle follow ack_of_a_followed_message
            claim claim_of_a_group relay ack hold_of_a_group retry hand_off extend cancel reschedule redrive purge pause resume set_limits
            get progress list stats forecast history check repair);
    };
}

#[doc(hidden)]
#[macro_export]
macro_rules! each_scene {
    ($connect:ty: $($scene:ident)*) => {
        $(
            #[test]
            fn $scene() {
                $crate::run($crate::wire::sweep::<$connect>($crate::wire::scenes::$scene));
            }
        )*
    };
}
