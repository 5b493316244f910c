//! What must hold of a queue after an operation in it was torn.

use super::*;

/// The state of a queue before an operation is torn.
pub(super) struct Before<'a> {
    tear: &'a Tear,
    pub(super) before: BTreeMap<&'static str, Message>,
}

impl<'a> Before<'a> {
    pub(super) async fn of(queue: &impl Backend, tear: &'a Tear) -> Self {
        let names = [&WAITING[..], &LEASED, &DEAD].concat();
        let found = look_up(queue, POPULATED, &names).await;
        let alive = names.into_iter().zip(found).map(|(name, found)| match found {
            Found::Live(message) => (name, *message),
            other => panic!("{name} is {other:?}"),
        });
        let before = alive.collect();
        Self { tear, before }
    }

    /// Workers claim messages before the repair: they handle some, and lose some.
    pub(super) async fn work(&self, queue: &impl Backend, what: &str) {
        for (round, token) in (0..).zip(40..43) {
            let deliveries = claimed(queue, LATER + round, token).await.deliveries;
            let acks = deliveries.iter().enumerate().filter_map(|(n, delivery)| {
                assert_content(&delivery.message, what);
                let id = delivery.message.info.id.clone();
                let ack = Settlement::new(id, delivery.lease, Outcome::Ack);
                (n % 2 == 0).then_some(ack)
            });
            let acks: Vec<_> = acks.collect();
            if !acks.is_empty() {
                apply(queue, LATER + round, Op::Settle(acks)).await;
            }
        }
    }

    /// The messages that are reported as finished.
    pub(super) async fn finished(&self, queue: &impl Backend, ms: u64) -> BTreeSet<&'static str> {
        let names: Vec<_> = self.before.keys().copied().collect();
        let found = look_up(queue, ms, &names).await.into_iter();
        let gone = names.into_iter().zip(found).filter(|(_, it)| matches!(it, Found::Finished(_)));
        gone.map(|(name, _)| name).collect()
    }

    /// `gone` had finished before the repair.
    pub(super) async fn judge(
        &self,
        queue: &impl Backend,
        worked: bool,
        next: &str,
        gone: &BTreeSet<&str>,
        what: &str,
    ) {
        let now = LATER + 20;
        if self.tear.before.contains(&Op::Pause) || self.tear.op == Op::Pause {
            apply(queue, now, Op::Resume).await;
        }
        repaired(queue, now, 100).await;
        let names: Vec<_> = self.before.keys().copied().collect();
        let mut left = BTreeSet::new();
        for (name, found) in names.iter().zip(look_up(queue, now, &names).await) {
            let before = &self.before[name];
            let worked = worked || next == "a claim" && !DEAD.contains(name);
            let is_back = gone.contains(name) && matches!(found, Found::Live(_));
            assert!(!is_back, "{name} is back: {what}");
            match found {
                Found::Live(found) if !worked && !self.tear.touches.contains(name) => {
                    assert_eq!(*found, *before, "{what}");
                }
                Found::Live(found) => {
                    assert_content(&found, what);
                    let state = found.info.state;
                    let unreadable =
                        matches!(state, MessageState::Dead { reason: DeathReason::Unreadable, .. });
                    assert!(!unreadable, "{name} is buried: {what}");
                    assert!(found.info.crashes <= before.info.crashes + 1, "{name}: {what}");
                }
                Found::Finished(_) if worked || self.tear.finishes.contains(name) => continue,
                other => panic!("{name} is {other:?}: {what}"),
            }
            left.insert(*name);
        }
        self.revive(queue, now, &left, what).await;
        let delivered = drain(queue, what).await;
        let ends = look_up(queue, END, &names).await;
        for (name, end) in names.iter().zip(ends).filter(|(name, _)| left.contains(*name)) {
            let cancelled = end == Found::Finished(Status::Cancelled) && self.may_be_flagged(name);
            assert!(delivered.contains(*name) || cancelled, "{name} is not delivered: {what}");
        }
        if next == "the same again" && !worked {
            for name in &self.tear.creates {
                assert!(delivered.contains(*name), "{name} was sent again in vain: {what}");
            }
        }
        if next == "an enqueue" {
            let after = look_up(queue, END, &["after"]).await;
            assert_eq!(after, [Found::Finished(Status::Acked)], "{what}");
        }
        let Reply::Stats(stats) = apply(queue, END, Op::Stats).await else { panic!() };
        let alive = stats.scheduled + stats.ready + stats.leased + stats.dead;
        let finished = stats.totals.acked
            + stats.totals.cancelled
            + stats.totals.purged
            + stats.totals.relayed
            + stats.totals.replaced;
        assert_eq!((alive, finished), (0, stats.totals.enqueued), "{what}");
        assert_eq!(findings(queue, END).await, [], "{what}");
    }

    /// Sends the finished messages again. Returns the number of new messages.
    pub(super) async fn send_again(&self, queue: &impl Backend, again: Again, what: &str) -> usize {
        let (names, now) = (&self.tear.finishes, self.tear.at + 1);
        let reuse = again != Again::Refused;
        let message = |name: &&str| {
            let finished_ids = if reuse { FinishedIds::Reuse } else { FinishedIds::Refuse };
            let message = content(name).finished_ids(finished_ids);
            if again != Again::Updated {
                return message;
            }
            let token = UpdateToken::from_bytes([9; UpdateToken::BYTES]);
            message.known(Known::Update(Update::new(UpdateContent::Replace, UpdateDue::Set, token)))
        };
        let enqueue = Op::Enqueue(names.iter().map(message).collect());
        let Reply::Enqueue(told) = apply(queue, now, enqueue).await else { panic!() };
        let found = look_up(queue, now, names).await;
        let list = List::new(Status::Ready, 100);
        let Reply::List(page) = apply(queue, now, Op::List(list)).await else { panic!() };
        let mut expected = Vec::new();
        for ((name, told), found) in names.iter().zip(&told).zip(found) {
            match (told, &found) {
                (Enqueued::Created { .. }, Found::Live(message)) => {
                    assert!(page.messages.contains(&message.info), "{name}: {page:?}: {what}");
                    expected.push((*name, true));
                }
                (Enqueued::Updated { .. } | Enqueued::Following { .. }, Found::Live(_))
                    if again == Again::Updated =>
                {
                    expected.push((*name, true));
                }
                (Enqueued::Duplicate { status }, Found::Live(_)) if !ENDS.contains(status) => {
                    expected.push((*name, false));
                }
                (Enqueued::Duplicate { status }, Found::Finished(end)) if !reuse => {
                    assert_eq!(status, end, "{name}: {what}");
                }
                other => panic!("{name} is {other:?}: {what}"),
            }
        }
        if again == Again::Extended {
            let leases = ids(names).into_iter().map(|id| (id, lease(3))).collect();
            apply(queue, now, Op::Extend(Extend::new(leases, millis(9_000)))).await;
        }
        if self.tear.before.contains(&Op::Pause) {
            apply(queue, now, Op::Resume).await;
        }
        // It reclaims the leases of the torn operation. Its own leases expire.
        claimed(queue, LATER, 49).await;
        let all = self.before.keys().copied().collect();
        self.revive(queue, LATER + 20, &all, what).await;
        let delivered = drain(queue, what).await;
        for (name, is_new) in &expected {
            let cancelled = !is_new && self.may_be_flagged(name);
            assert!(delivered.contains(*name) || cancelled, "{name} is not delivered: {what}");
        }
        repaired(queue, END, 100).await;
        assert_eq!(findings(queue, END).await, [], "{what}");
        expected.iter().filter(|(_, is_new)| *is_new).count()
    }

    /// A caller that got no reply repeats the call.
    pub(super) async fn repeat(&self, queue: &impl Backend, what: &str) {
        let names = &self.tear.finishes;
        match apply(queue, self.tear.at + 1, self.tear.op.clone()).await {
            Reply::Purge(told) => {
                assert!(told.iter().all(|it| *it == Purged::Purged), "{told:?}: {what}");
            }
            Reply::Cancel(told) => {
                assert!(told.iter().all(|it| *it == Cancelled::Cancelled), "{told:?}: {what}");
            }
            Reply::Settle(told) => {
                let is_settled = |it: &Settled| !matches!(it, Settled::Stale | Settled::Missing);
                assert!(told.iter().all(is_settled), "{told:?}: {what}");
            }
            Reply::HandOff(told) => {
                self.look_for_results(queue, &told, what).await;
                for HandedOff { settled, messages, .. } in told {
                    let is_settled = !matches!(settled, Settled::Stale | Settled::Missing);
                    assert!(is_settled, "{settled:?}: {what}");
                    let is_there = |it: &Enqueued| !matches!(it, Enqueued::Conflict { .. });
                    assert!(messages.iter().all(is_there), "{messages:?}: {what}");
                }
                for found in look_up(queue, self.tear.at + 1, &self.tear.creates).await {
                    assert!(matches!(found, Found::Live(_)), "{found:?} follows: {what}");
                }
            }
            Reply::Claim(_) | Reply::Relay(_) => return,
            other => panic!("{other:?}"),
        }
        for (name, found) in names.iter().zip(look_up(queue, self.tear.at + 1, names).await) {
            assert!(matches!(found, Found::Finished(_)), "{name} is {found:?}: {what}");
        }
    }

    /// The results of a hand-off exist once it has been repeated.
    pub(super) async fn look_for_results(
        &self,
        queue: &impl Backend,
        told: &[HandedOff],
        what: &str,
    ) {
        let Op::HandOff(items) = &self.tear.op else { panic!() };
        let carriers = items.iter().zip(told).filter(|(item, _)| item.result.is_some());
        let kept = carriers.map(|(item, told)| (item.settlement.id.clone(), told.result_kept));
        let (ids, kept): (Vec<_>, Vec<_>) = kept.unzip();
        assert!(kept.iter().all(|kept| *kept), "{told:?}: {what}");
        if ids.is_empty() {
            return;
        }
        match apply(queue, self.tear.at + 1, Op::Progress(ids)).await {
            Reply::Progress(all) => {
                assert!(all.iter().all(|it| it.result().is_some()), "{all:?}: {what}");
            }
            other => panic!("{other:?}: {what}"),
        }
    }

    pub(super) fn may_be_flagged(&self, name: &str) -> bool {
        name == "flagged"
            || matches!(&self.tear.op, Op::Cancel(ids) if ids.contains(&id(name)) && LEASED.contains(&name))
    }

    /// Redrives all dead letters. Nothing may be dead but what is known, and nothing that was whole
    /// may be refused.
    pub(super) async fn revive(
        &self,
        queue: &impl Backend,
        now: u64,
        left: &BTreeSet<&str>,
        what: &str,
    ) {
        let list = List::new(Status::Dead, 100);
        let Reply::List(page) = apply(queue, now, Op::List(list)).await else { panic!() };
        let ids: Vec<_> = page.messages.into_iter().map(|info| info.id).collect();
        if ids.is_empty() {
            return;
        }
        let redrive = Redrive::new(ids.clone(), Schedule::NOW);
        let Reply::Redrive(redriven) = apply(queue, now, Op::Redrive(redrive)).await else {
            panic!()
        };
        for (id, redriven) in ids.into_iter().zip(redriven) {
            let name = id.to_string();
            let created = self.tear.creates.contains(&&*name);
            if matches!(redriven, Redriven::Done { .. }) {
                assert!(created || left.contains(&*name), "{name} was dead: {what}");
            } else {
                assert!(created, "{name}: {redriven:?}: {what}");
                apply(queue, now, Op::Purge(vec![id])).await;
            }
        }
    }
}
