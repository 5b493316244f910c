//! The same measurement for every peer.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use delayline_benches::cpu_time;
use delayline_test_server::Server;

/// A private server that holds messages.
pub(crate) trait Store: Sized {
    fn start() -> Result<Self>;

    /// How much processor time it has used so far.
    fn cpu_time(&self) -> Result<Duration>;
}

impl Store for Server {
    fn start() -> Result<Self> {
        Ok(Self::builder().tcp().try_start()?)
    }

    fn cpu_time(&self) -> Result<Duration> {
        Ok(cpu_time(self))
    }
}

/// A queue that is measured.
pub(crate) trait Peer: Sized {
    type Store: Store;

    /// The most messages of a round, for a queue that is too slow for all.
    const MOST_MESSAGES: usize = usize::MAX;

    /// Connects to the peer's own server.
    async fn open(server: &Self::Store) -> Result<Self>;

    /// Sends messages one by one from [`TASKS`](crate::load::TASKS) tasks.
    async fn send(&mut self, messages: usize) -> Result<()>;

    /// Sends messages by the peer's bulk call. Returns whether it has one.
    async fn send_in_bulk(&mut self, messages: usize) -> Result<bool>;

    /// Handles all messages of the queue with an empty handler and acks them. Returns how many it
    /// has handled.
    async fn work(&mut self, messages: usize) -> Result<usize>;

    /// How many messages the server holds that are not finished.
    async fn unfinished(&mut self) -> Result<usize>;

    /// The most messages that may wait at once.
    fn most_waiting(&self) -> usize {
        usize::MAX
    }
}

/// What a step took.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Step {
    /// Messages a second; of several rounds, the median.
    pub(crate) rate: f64,
    /// The lowest rate of the rounds.
    pub(crate) least: f64,
    /// The highest rate of the rounds.
    pub(crate) most: f64,
    /// The server's processor time for a message, in microseconds.
    pub(crate) cpu: f64,
}

/// The figures of a peer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Figures {
    pub(crate) messages: usize,
    /// How many rounds the figures are the medians of.
    pub(crate) rounds: usize,
    pub(crate) send: Step,
    pub(crate) bulk: Option<Step>,
    pub(crate) work: Step,
}

impl Figures {
    /// The median of each figure; `None` without any.
    pub(crate) fn median(all: &[Self]) -> Option<Self> {
        let steps = |step: fn(&Self) -> Option<Step>| median(all.iter().filter_map(step).collect());
        Some(Self {
            messages: all.first()?.messages,
            rounds: all.len(),
            send: steps(|figures| Some(figures.send))?,
            bulk: steps(|figures| figures.bulk),
            work: steps(|figures| Some(figures.work))?,
        })
    }
}

/// Measures a peer on its own server.
pub(crate) async fn measure<P: Peer>(messages: usize) -> Result<Figures> {
    let messages = messages.min(P::MOST_MESSAGES);
    let server = P::Store::start()?;
    let mut peer = P::open(&server).await.context("connecting")?;
    // Both sides get warm.
    round(&mut peer, &server, messages / 10, false).await.context("warming up")?;
    let (send, work) = round(&mut peer, &server, messages, false).await?;
    let (bulk, _) = round(&mut peer, &server, messages, true).await.context("in bulk")?;
    Ok(Figures {
        messages,
        rounds: 1,
        send: send.unwrap_or_default().of(messages),
        bulk: bulk.map(|spent| spent.of(messages)),
        work: work.of(messages),
    })
}

/// Sends all messages and then handles all of them, or alternates if only a limited number may
/// wait. Does nothing if they are to be sent in bulk and the peer has no such call.
async fn round<P: Peer>(
    peer: &mut P,
    server: &P::Store,
    messages: usize,
    in_bulk: bool,
) -> Result<(Option<Spent>, Spent)> {
    let (mut sent, mut worked) = (Spent::default(), Spent::default());
    let most = peer.most_waiting().min(messages).max(1);
    for first in (0..messages).step_by(most) {
        let part = most.min(messages - first);
        let meter = Meter::start(server)?;
        if !in_bulk {
            peer.send(part).await.context("sending")?;
        } else if !peer.send_in_bulk(part).await.context("sending")? {
            return Ok((None, worked));
        }
        sent.add(&meter)?;
        let waiting = peer.unfinished().await?;
        ensure!(waiting == part, "{part} messages were sent, and {waiting} are there");
        let meter = Meter::start(server)?;
        let handled = peer.work(part).await.context("working")?;
        worked.add(&meter)?;
        let left = peer.unfinished().await?;
        ensure!(handled == part && left == 0, "{handled} of {part} were handled, {left} are left");
    }
    Ok((Some(sent), worked))
}

/// Time that passes.
struct Meter<'a, S> {
    server: &'a S,
    start: Instant,
    cpu: Duration,
}

impl<'a, S: Store> Meter<'a, S> {
    fn start(server: &'a S) -> Result<Self> {
        Ok(Self { server, cpu: server.cpu_time()?, start: Instant::now() })
    }
}

/// Time that has passed.
#[derive(Clone, Copy, Default)]
struct Spent {
    time: Duration,
    cpu: Duration,
}

impl Spent {
    fn add<S: Store>(&mut self, meter: &Meter<'_, S>) -> Result<()> {
        self.time += meter.start.elapsed();
        self.cpu += meter.server.cpu_time()?.saturating_sub(meter.cpu);
        Ok(())
    }

    fn of(self, messages: usize) -> Step {
        let messages = f64::from(u32::try_from(messages).unwrap_or(u32::MAX));
        let (seconds, cpu) = (self.time.as_secs_f64(), self.cpu.as_secs_f64());
        let rate = messages / seconds;
        Step { rate, least: rate, most: rate, cpu: cpu * 1e6 / messages }
    }
}

/// Of each figure for itself.
fn median(steps: Vec<Step>) -> Option<Step> {
    let sorted = |figure: fn(&Step) -> f64| {
        let mut figures: Vec<f64> = steps.iter().map(figure).collect();
        figures.sort_by(f64::total_cmp);
        figures
    };
    let (rates, cpu) = (sorted(|step| step.rate), sorted(|step| step.cpu));
    Some(Step {
        rate: middle(&rates)?,
        least: *rates.first()?,
        most: *rates.last()?,
        cpu: middle(&cpu)?,
    })
}

/// The middle one of sorted figures; of an even number, the mean of both.
fn middle(sorted: &[f64]) -> Option<f64> {
    let last = sorted.len().checked_sub(1)?;
    Some(f64::midpoint(*sorted.get(last / 2)?, *sorted.get(sorted.len() / 2)?))
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;
    use crate::peers::apalis::ApalisRedis;
    use crate::peers::baselines::{Blocking, Polled, Popped, Strings};
    use crate::peers::bullmq_rust::BullmqOfficial;
    use crate::peers::delayline::{ByFred, ByRedisRs};
    use crate::peers::rsmq::Singly;

    #[test]
    fn two_rounds_have_their_mean_as_median() {
        let medians = [&[][..], &[3.0], &[1.0, 4.0], &[1.0, 2.0, 9.0]].map(middle);
        assert_eq!(medians, [None, Some(3.0), Some(2.5), Some(2.0)]);
    }

    /// Longer than the 500 ms after which redis-rs gives up.
    const STANDSTILL: Duration = Duration::from_millis(1_500);

    async fn outlasts<P: Peer<Store = Server>>() {
        let server = Server::builder().tcp().try_start().unwrap();
        let mut peer = P::open(&server).await.unwrap();
        server.pause();
        thread::scope(|scope| {
            scope.spawn(|| {
                thread::sleep(STANDSTILL);
                server.resume();
            });
            tokio::task::block_in_place(|| {
                let name = std::any::type_name::<P>();
                let sent = tokio::runtime::Handle::current().block_on(peer.send(300));
                sent.unwrap_or_else(|error| panic!("{name}: {error:#}"));
            });
        });
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_machine_that_stands_still_ends_no_round() {
        outlasts::<ByRedisRs>().await;
        outlasts::<ByFred>().await;
        outlasts::<Singly>().await;
        outlasts::<ApalisRedis>().await;
        outlasts::<BullmqOfficial>().await;
        outlasts::<Polled>().await;
        outlasts::<Popped>().await;
        outlasts::<Blocking>().await;
        outlasts::<Strings>().await;
    }
}
