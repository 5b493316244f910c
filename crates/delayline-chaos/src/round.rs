//! One round: a server from its start to the verdict.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use delayline_core::{At, Timestamp};

use delayline_test_server::Server;
use delayline_test_server::proxy::Proxy;
use delayline_testkit::History;

use crate::fault::{Adversary, Fault, LONGEST_OUTAGE_MS};
use crate::load::{self, Improvised, LONGEST_HEALING, Queue, Relaying, Working};
use crate::log::{Outcome, Setting};
use crate::promises;
use crate::replay::{Account, replay};
use crate::verdict::Totals;
use crate::witness::{AppendOnlyFile, transactions};

/// The kind of server of a round, which determines its faults.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// `appendfsync always`: no acknowledged call is lost.
    Always,
    /// `appendfsync everysec`: a kill may lose the latest calls.
    EverySecond,
    /// Tails of the append-only file are lost.
    LostTails,
    /// Operations use the server's own clock, which is set again and again.
    ServerClock,
}

impl Kind {
    /// Returns the kind of the `number`th round.
    pub(crate) const fn of(number: u64) -> Self {
        match number % 4 {
            0 => Self::Always,
            1 => Self::EverySecond,
            2 => Self::LostTails,
            _ => Self::ServerClock,
        }
    }

    /// Returns the faults of the `number`th round, in random order.
    fn schedule(self, seed: u64, number: u64, chance: &mut fastrand::Rng) -> Vec<Fault> {
        let mut faults = Vec::new();
        let kill = match self {
            Self::Always | Self::EverySecond => Fault::Kill,
            Self::LostTails => Fault::KillAndLoseTail,
            Self::ServerClock => {
                let choose = |_| chance.choice(Fault::HARMLESS).unwrap_or(Fault::StepClock);
                faults.extend((0..HARMLESS).map(choose));
                faults.extend([Fault::StepClock; 6]);
                chance.shuffle(&mut faults);
                return faults;
            }
        };
        faults.extend([kill; KILLS]);
        faults.extend([Fault::Freeze; FREEZES]);
        faults.extend([Fault::StepClock; 2]);
        faults.extend(others(seed, number));
        chance.shuffle(&mut faults);
        faults
    }
}

/// Returns the other faults of the `number`th round. Two rounds in a row share these faults, not
/// counting rounds with the server's clock. So any four rounds have all of them.
fn others(seed: u64, number: u64) -> impl Iterator<Item = Fault> {
    let place = number / 4 * 3 + number % 4;
    let mut deck = Fault::others();
    fastrand::Rng::with_seed(seed.wrapping_mul(1_000_003).wrapping_add(place / 2))
        .shuffle(&mut deck);
    let half = deck.len() / 2;
    deck.into_iter().skip(if place.is_multiple_of(2) { 0 } else { half }).take(half)
}

/// Plays a round and judges it.
///
/// # Errors
///
/// The first violation, beginning with the number of the guarantee if it violates one.
pub(crate) async fn play(seed: u64, number: u64, totals: &mut Totals) -> Result<()> {
    let kind = Kind::of(number);
    let mut chance = fastrand::Rng::with_seed(seed.wrapping_mul(1_000_003).wrapping_add(number));
    let server = start(kind).await?;
    let urls = [Proxy::start_unix(&server).await?, Proxy::start(&server).await?];
    let protocol = if chance.bool() { "?protocol=resp3" } else { "" };
    let setting = Setting::new(kind == Kind::ServerClock);
    // A call at the server's clock cannot be replayed without its reply, so none may be lost there.
    let patience = match kind {
        Kind::ServerClock => Duration::from_secs(30),
        _ => Duration::from_millis(LONGEST_OUTAGE_MS / 2),
    };
    let options = |n: usize| load::options(&format!("{}{protocol}", urls[n].url()), patience);
    let names = ["improvised", load::WORKING, "keyed", "relaying"].map(str::to_owned);
    let options = [options(0)?, options(1)?];
    let queues = load::open(options, &setting, &names, &mut chance).await?;
    let [improvised, working, keyed, relaying] = &queues[..] else {
        bail!("four names make four queues")
    };

    let file = AppendOnlyFile::in_directory(server.data_dir())?;
    let improvisers = Improvised::start(improvised, &mut chance);
    let mut workers =
        [Working::start(working, &mut chance)?, Working::start_keyed(keyed, &mut chance)?];
    let relays = Relaying::start(relaying, load::STREAM, &mut chance)?;
    let mut keys: Vec<_> = queues.iter().flat_map(Queue::keys).collect();
    keys.push(load::STREAM.into());
    let mut adversary = Adversary {
        server: Arc::clone(&server),
        proxies: &urls,
        setting: Arc::clone(&setting),
        keys,
        chance: chance.fork(),
        lossy: matches!(kind, Kind::EverySecond | Kind::LostTails),
        file: &file,
        era_ends: Vec::new(),
        furthest_step_ms: 0,
    };

    let faults = kind.schedule(seed, number, &mut chance);
    let deployed = chance.usize(faults.len() / 3..faults.len() * 2 / 3);
    for (n, fault) in faults.into_iter().enumerate() {
        if n == deployed {
            workers[0].set_limits(!setting.goes_by_server())?;
        }
        tokio::time::sleep(Duration::from_millis(chance.u64(..100))).await;
        let from = setting.elapsed();
        adversary.strike(fault, &mut workers).await.with_context(|| format!("{fault:?}"))?;
        let healed = setting.elapsed();
        // So the next fault meets calls in progress.
        for queue in &queues {
            queue.recover(healed).await.with_context(|| format!("after {fault:?}"))?;
        }
        let recovery = setting.elapsed() - healed;
        let met = |queue: &Queue| queue.log.has_met(fault.effect(), from, healed);
        totals.note_fault(fault, queues.iter().any(met), recovery);
    }
    adversary.heal_clock();
    let era_ends = adversary.era_ends;

    improvisers.stop().await;
    let mut deliveries = 0;
    for working in workers {
        let (handled, unsettled) = working.finish().await?;
        ensure!(unsettled == 0, "G21: workers that stopped have not settled {unsettled} messages");
        deliveries += handled.check().map_err(anyhow::Error::msg)?;
    }
    relays.finish().await?;
    for queue in &queues {
        drain(queue, &setting).await?;
    }
    server.stop_gracefully();
    let text = file.read()?;
    for queue in &queues {
        let transactions = transactions(&text, &queue.control_key())?;
        let account = Account { file: text.clone(), transactions, era_ends: era_ends.clone() };
        judge(queue, &account, totals).or_else(|reason| {
            let evidence = keep(queue, &account).context("the evidence is lost")?;
            bail!("{reason}\nall calls and the server's file are in {}", evidence.display())
        })?;
    }
    totals.note_handled(deliveries);
    Ok(())
}

async fn start(kind: Kind) -> Result<Arc<Server>> {
    let sync = if kind == Kind::EverySecond { "everysec" } else { "always" };
    let builder = Server::builder()
        .append_only(sync)
        // The file is read as the record of all calls.
        .config("auto-aof-rewrite-percentage", "0");
    let builder = if kind == Kind::ServerClock { builder.own_clock() } else { builder };
    Ok(Arc::new(tokio::task::spawn_blocking(move || builder.try_start()).await??))
}

/// Handles all remaining messages. The server works, but clients may not have reconnected yet.
async fn drain(queue: &Queue, setting: &Setting) -> Result<()> {
    let begin = setting.elapsed();
    loop {
        let end = At::Fixed(Timestamp::MAX);
        match delayline_testkit::drain(async |op| queue.clients[0].apply(end, &op).await).await {
            Ok(()) => return Ok(()),
            Err(error) if setting.elapsed() - begin > LONGEST_HEALING => return Err(error.into()),
            Err(_) => tokio::time::sleep(Duration::from_millis(50)).await,
        }
    }
}

/// Judges the history of a queue.
fn judge(queue: &Queue, account: &Account, totals: &mut Totals) -> Result<(), String> {
    let entries = queue.log.entries();
    let named = |reason: String| format!("queue {}: {reason}", queue.name);
    let replayed = replay(&entries, account).map_err(named)?;
    History::check_messages(&replayed.order).map_err(named)?;
    let kept = promises::check(&replayed.order).map_err(named)?;
    if let Some(client) = queue.outdated {
        let refused = load::judge_versions(&entries, client, &replayed.order).map_err(named)?;
        totals.note_versions(refused);
    }
    let refused = entries.iter().filter(|entry| matches!(entry.outcome, Outcome::NotExecuted(_)));
    totals.note_history(&replayed, kept, refused.count());
    Ok(())
}

/// Saves the evidence of a failure, and returns its directory.
fn keep(queue: &Queue, account: &Account) -> Result<PathBuf> {
    let folder = tempfile::Builder::new().prefix("delayline-chaos-").tempdir()?.keep();
    let entries = queue.log.entries();
    let lines = entries.iter().enumerate().map(|(n, entry)| format!("{n}: {entry:?}\n"));
    std::fs::write(folder.join("calls.txt"), lines.collect::<String>())?;
    std::fs::write(folder.join("appendonly.aof"), &account.file)?;
    std::fs::write(folder.join("eras.txt"), format!("{:?}\n", account.era_ends))?;
    Ok(folder)
}

const KILLS: usize = 7;
const FREEZES: usize = 7;
const HARMLESS: usize = 8;

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use clap::ValueEnum as _;

    use super::Kind;
    use crate::fault::Fault;

    #[test]
    fn every_kind_of_fault_strikes_in_any_four_rounds() {
        for first in 0..50 {
            let mut faults = BTreeSet::new();
            for number in first..first + 4 {
                let mut chance = fastrand::Rng::with_seed(number);
                faults.extend(Kind::of(number).schedule(7, number, &mut chance));
            }
            assert_eq!(
                faults,
                Fault::value_variants().iter().copied().collect(),
                "from round {first} on"
            );
        }
    }
}
