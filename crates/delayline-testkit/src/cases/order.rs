//! The order in which messages are delivered.

use delayline_core::{NewMessage, Priority, Schedule};

use super::queue::{Queue, after, at, claim, message, retry};

super::cases! { "order",
    priority_then_due_instant_then_sequence: "G12",
    ties_go_by_sequence_as_a_number: "G12",
    a_higher_priority_that_is_not_due_holds_up_nobody: "G12",
    a_retried_message_stands_at_its_new_instant: "G12",
    a_released_message_keeps_its_place: "G10, G12",
    the_order_holds_across_claims: "G12",
}

fn prioritised(name: &str, priority: Priority, due_ms: u64) -> NewMessage {
    message(name).priority(priority).schedule(Schedule::At(at(due_ms)))
}

async fn priority_then_due_instant_then_sequence(queue: &Queue) {
    use Priority::{High, Low, Normal, Urgent};
    let all = [
        prioritised("8-low", Low, 1),
        prioritised("5-normal-at-20", Normal, 20),
        prioritised("3-high-first", High, 30),
        prioritised("4-high-second", High, 30),
        prioritised("7-normal-at-21", Normal, 21),
        prioritised("6-normal-at-20-second", Normal, 20),
        prioritised("2-urgent-at-40", Urgent, 40),
        prioritised("1-urgent-at-39", Urgent, 39),
    ];
    queue.enqueue(0, all.to_vec()).await;
    let mut expected: Vec<_> = all.iter().map(|message| message.id.to_string()).collect();
    expected.sort();
    assert_eq!(queue.claim_ids(100, claim(1, 10, 50)).await, expected);
}

async fn ties_go_by_sequence_as_a_number(queue: &Queue) {
    // Enough to compare the sequence numbers 9 and 10, 99 and 100; ids are in reverse.
    let names: Vec<_> = (0..105).map(|n| format!("id-{:03}", 999 - n)).collect();
    for batch in names.chunks(20) {
        queue.enqueue(0, batch.iter().map(|name| message(name)).collect()).await;
    }
    assert_eq!(queue.claim_ids(0, claim(1, 1_000, 50)).await, names);
}

async fn a_higher_priority_that_is_not_due_holds_up_nobody(queue: &Queue) {
    let urgent = prioritised("urgent", Priority::Urgent, 500);
    queue.enqueue(0, vec![urgent, prioritised("low", Priority::Low, 0)]).await;
    assert_eq!(queue.claim_ids(499, claim(1, 10, 9_000)).await, ["low"]);
    assert_eq!(queue.claim_ids(500, claim(2, 10, 9_000)).await, ["urgent"]);
}

async fn a_retried_message_stands_at_its_new_instant(queue: &Queue) {
    let lease = queue.leased(0, message("retried"), 50).await;
    queue.end(0, "retried", lease, retry(20, "")).await;
    let schedule = after(10);
    queue.enqueue(9, vec![message("earlier").schedule(schedule)]).await;
    queue.enqueue(10, vec![message("same").schedule(schedule)]).await;
    queue.enqueue(11, vec![message("later").schedule(schedule)]).await;
    let order = queue.claim_ids(30, claim(2, 10, 50)).await;
    assert_eq!(order, ["earlier", "retried", "same", "later"]);
}

async fn a_released_message_keeps_its_place(queue: &Queue) {
    let lease = queue.leased(0, message("first"), 50).await;
    queue.enqueue(1, vec![message("second")]).await;
    queue.end(30, "first", lease, delayline_core::Outcome::Release).await;
    assert_eq!(queue.claim_ids(30, claim(2, 10, 50)).await, ["first", "second"]);
}

async fn the_order_holds_across_claims(queue: &Queue) {
    let names: Vec<_> = (0..30).map(|n| n.to_string()).collect();
    queue.enqueue(0, names.iter().map(|name| message(name)).collect()).await;
    let mut claimed = Vec::new();
    for n in 0..10 {
        claimed.extend(queue.claim_ids(1, claim(n, 3, 50)).await);
    }
    assert_eq!(claimed, names);
}
