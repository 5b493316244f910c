//! Backends that apply operations like the model, with a wrong clock, hint or call.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use delayline_core::{
    Applied, At, Backend, Error, Millis, Op, QueueBackend, State, Timestamp, Wakeup,
};

use super::failures;
use super::model::instant;
use crate::Fixture;

/// What is wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wrong {
    Nothing,
    WholeSeconds,
    LocalTime,
}

/// The queues of such a backend.
struct Queues(Wrong);

#[async_trait]
impl Fixture for Queues {
    async fn fresh(&self) -> Result<Arc<dyn QueueBackend>, Error> {
        Ok(Arc::new(Client { wrong: self.0, state: Mutex::default() }))
    }
}

#[derive(Debug)]
struct Client {
    wrong: Wrong,
    state: Mutex<State>,
}

impl Client {
    fn now(&self) -> Timestamp {
        let now = instant(At::Server);
        match self.wrong {
            Wrong::WholeSeconds => Timestamp::from_ms(now.as_ms() / 1_000 * 1_000).unwrap(),
            Wrong::LocalTime => now.after(Millis::saturating(3_600_000)),
            Wrong::Nothing => now,
        }
    }
}

#[async_trait]
impl Backend for Client {
    async fn apply(&self, at: At, op: &Op) -> Result<Applied, Error> {
        op.validate()?;
        let mut state = self.state.lock().unwrap();
        let now = if let At::Fixed(at) = at { at } else { self.now() };
        Ok(state.apply(now, op))
    }
}

#[async_trait]
impl Wakeup for Client {
    async fn wait(&self, _: Duration) -> Result<bool, Error> {
        Ok(false)
    }
}

/// Checks which of the cases of a topic fail, by their names without guarantees.
fn assert_fails(topic: &str, wrong: Wrong, expected: &[&str]) {
    let begin = format!("cases::{topic}::");
    let failed = failures(Queues(wrong), |name| name.starts_with(&begin));
    let failed = failed.iter().map(|name| name[begin.len()..].split(' ').next().unwrap());
    assert_eq!(failed.collect::<Vec<_>>(), expected, "{wrong:?}");
}

#[test]
fn cases_show_wrong_clocks() {
    let counts = "the_servers_clock_counts_milliseconds";
    assert_fails("clock", Wrong::Nothing, &[]);
    assert_fails("clock", Wrong::WholeSeconds, &[counts]);
    assert_fails("clock", Wrong::LocalTime, &[counts]);
}
