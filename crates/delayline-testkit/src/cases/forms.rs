//! Messages with every property a message can have, in every combination.

use delayline_core::limits::MAX_LOOK_UP;
use delayline_core::{
    Cancelled, Found, Message, MessageId, NewMessage, Op, Outcome, Priority, Redrive, Redriven,
    Reply, Schedule, Settlement, Status,
};

use super::queue::{Queue, at, claim, done, ids, lease, message, reject, retry};

super::cases! { "forms",
    a_message_of_any_form_is_kept_whole: "G2, G12, G22",
    a_dead_letter_of_any_form_is_revived_whole: "G2, G11, G22",
    a_message_of_any_form_expires_at_its_instant: "G4, G11",
}

/// When the expiring ones expire.
const EXPIRY: u64 = 500;

/// Every priority, with and without its own limits, an expiry, headers, and large content.
fn forms() -> Vec<NewMessage> {
    let mut forms = Vec::new();
    // In delivery order.
    for priority in [Priority::Urgent, Priority::High, Priority::Normal, Priority::Low] {
        for form in 0..16 {
            let has = |bit: u8| form & bit != 0;
            let mut new = message(&format!("{priority:?} {form}"));
            new.priority = priority;
            if has(1) {
                (new.max_failures, new.max_crashes) = (0x0102, 0x0304);
            }
            if has(2) {
                new.expires = Some(Schedule::At(at(EXPIRY)));
            }
            if has(4) {
                let set = new.headers.set("name", "value");
                set.unwrap_or_else(|violation| panic!("{violation}"));
            }
            if has(8) {
                new.payload = format!("{priority:?} {form} ").repeat(500).into();
            }
            forms.push(new);
        }
    }
    forms
}

fn names(forms: &[NewMessage]) -> Vec<MessageId> {
    forms.iter().map(|form| form.id.clone()).collect()
}

fn assert_whole(message: &Message, sent: &NewMessage, expires: bool) {
    let expected = (&sent.headers, &sent.payload, sent.priority);
    assert_eq!((&message.headers, &message.payload, message.info.priority), expected);
    let info = &message.info;
    assert_eq!(info.id, sent.id);
    let expiry = sent.expires.filter(|_| expires).map(|_| at(EXPIRY));
    assert_eq!(info.expires_at, expiry, "{}", sent.id);
    let limits = (info.max_failures, info.max_crashes);
    assert_eq!(limits, (sent.max_failures, sent.max_crashes), "{}", sent.id);
    assert_eq!(info.payload_bytes, sent.payload.len(), "{}", sent.id);
}

/// Asserts that all of them exist, intact, in every kind of query.
async fn assert_all(queue: &Queue, ms: u64, forms: &[NewMessage], status: Status, expires: bool) {
    for forms in forms.chunks(MAX_LOOK_UP) {
        let Reply::Get(all) = queue.apply(ms, &Op::Get(names(forms))).await.reply else {
            panic!("not the reply to a look-up")
        };
        for (found, sent) in all.iter().zip(forms) {
            let Found::Live(message) = found else { panic!("{} is {found:?}", sent.id) };
            assert_eq!(message.info.state.status(), status, "{}", sent.id);
            assert_whole(message, sent, expires);
        }
    }
    let page = queue.list(ms, status, 100).await;
    assert_eq!(page.messages.len(), forms.len());
    for info in page.messages {
        let sent = forms.iter().find(|form| form.id == info.id);
        let bytes = sent.map(|sent| sent.payload.len());
        assert_eq!(Some(info.payload_bytes), bytes, "{}", info.id);
    }
    assert_eq!(queue.check(ms, 100).await, u64::try_from(forms.len()).unwrap_or_default());
}

async fn assert_claimed(queue: &Queue, ms: u64, token: u8, forms: &[NewMessage], expires: bool) {
    for again in [false, true] {
        let taken = queue.claim(ms, claim(token, 100, 100)).await.deliveries;
        assert_eq!(taken.len(), forms.len(), "again: {again}");
        for (delivery, sent) in taken.iter().zip(forms) {
            assert_whole(&delivery.message, sent, expires);
        }
    }
}

async fn end_all(queue: &Queue, ms: u64, token: u8, epoch: u64, forms: &[NewMessage], by: Outcome) {
    let status = match by {
        Outcome::Ack => Status::Acked,
        Outcome::Reject { .. } => Status::Dead,
        _ => Status::Ready,
    };
    let end = |form: &NewMessage| Settlement::new(form.id.clone(), lease(token, epoch), by.clone());
    let settled = queue.settle(ms, forms.iter().map(end).collect()).await;
    assert_eq!(settled, vec![done(status); forms.len()]);
}

async fn a_message_of_any_form_is_kept_whole(queue: &Queue) {
    let forms = forms();
    queue.enqueue(0, forms.clone()).await;
    assert_all(queue, 1, &forms, Status::Ready, true).await;
    assert_claimed(queue, 2, 1, &forms, true).await;
    assert_all(queue, 3, &forms, Status::Leased, true).await;
    end_all(queue, 4, 1, 1, &forms, retry(0, "boom")).await;
    assert_all(queue, 5, &forms, Status::Ready, true).await;
    assert_claimed(queue, 6, 2, &forms, true).await;
    // Expired leases count as crashes.
    assert_claimed(queue, 106, 3, &forms, true).await;
    end_all(queue, 107, 3, 3, &forms, Outcome::Ack).await;
    let stats = queue.stats(108).await;
    assert_eq!((stats.totals.acked, stats.totals.enqueued), (64, 64));
    assert_eq!(queue.check(108, 100).await, 0);
}

async fn a_dead_letter_of_any_form_is_revived_whole(queue: &Queue) {
    let forms = forms();
    queue.enqueue(0, forms.clone()).await;
    assert_claimed(queue, 1, 1, &forms, true).await;
    end_all(queue, 2, 1, 1, &forms, reject("boom")).await;
    assert_all(queue, 3, &forms, Status::Dead, true).await;
    let redrive = Redrive::new(names(&forms), Schedule::NOW);
    let redriven = queue.apply(EXPIRY, &Op::Redrive(redrive)).await.reply;
    assert_eq!(redriven, Reply::Redrive(vec![Redriven::Done { due: at(EXPIRY) }; forms.len()]));
    assert_all(queue, EXPIRY, &forms, Status::Ready, false).await;
    assert_claimed(queue, EXPIRY, 2, &forms, false).await;
    end_all(queue, EXPIRY + 1, 2, 2, &forms, Outcome::Release).await;
    let cancelled = queue.apply(EXPIRY + 2, &Op::Cancel(names(&forms))).await.reply;
    assert_eq!(cancelled, Reply::Cancel(vec![Cancelled::Cancelled; forms.len()]));
    assert_eq!(queue.check(EXPIRY + 3, 100).await, 0);
}

async fn a_message_of_any_form_expires_at_its_instant(queue: &Queue) {
    let forms = forms();
    queue.enqueue(0, forms.clone()).await;
    assert_claimed(queue, EXPIRY - 1, 1, &forms, true).await;
    end_all(queue, EXPIRY - 1, 1, 1, &forms, Outcome::Release).await;
    let (expired, others): (Vec<_>, Vec<_>) =
        forms.into_iter().partition(|form| form.expires.is_some());
    let claimed = queue.claim(EXPIRY, claim(2, 100, 100)).await;
    let names_of =
        |forms: &[NewMessage]| -> Vec<_> { forms.iter().map(|form| form.id.to_string()).collect() };
    assert_eq!(ids(&claimed.deliveries), names_of(&others));
    let dead: Vec<_> = claimed.deaths.iter().map(|death| death.id.to_string()).collect();
    assert_eq!(dead, names_of(&expired));
    for form in &expired {
        assert_whole(&queue.live(EXPIRY, &form.id.to_string()).await, form, true);
    }
}
