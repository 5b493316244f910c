//! Damaged turns, slots and places of messages with a group.

use std::collections::BTreeSet;

use delayline_core::{Finding, Group, Priority};
use delayline_redis_protocol::layout::control;

use super::*;

/// The group of a message is the first letter of its id.
async fn send(queue: &impl Backend, names: &[&str]) {
    let of = |name: &&str| message(name).group(Group::new(&name[..1]).unwrap());
    apply(queue, 0, Op::Enqueue(names.iter().map(of).collect())).await;
}

async fn take(queue: &impl Backend, ms: u64, token: u8, max: usize) -> Vec<String> {
    let Reply::Claim(claimed) = apply(queue, ms, claim(token, max)).await else {
        panic!("not the reply to a claim")
    };
    claimed.deliveries.iter().map(|it| it.message.info.id.to_string()).collect()
}

/// By a repair, and by a claim that finds nothing else.
pub(crate) async fn lost_turns_come_back<C: Connect>() {
    let server = Server::start();
    let queue = open::<C>(&server.url()).await.unwrap();
    let keys = queue.keys().all().to_vec();
    for is_repaired in [true, false] {
        server.command(&["FLUSHALL"]);
        send(&queue, &["a1", "a2", "b1", "b2"]).await;
        let first = apply(&queue, 0, claim(1, 1)).await;
        assert!(matches!(first, Reply::Claim(claimed) if claimed.deliveries.len() == 1));
        server.binary_command(&[b"DEL", &keys[TURNS][..]]);
        let lost = ["a2", "b1", "b2"].map(|name| Finding::MissingTurn { id: id(name) });
        let mut found = findings(&queue, 1).await;
        found.sort_by_key(|finding| format!("{finding:?}"));
        assert_eq!(found, lost);
        if is_repaired {
            assert_eq!(repaired(&queue, 1, 2).await.len(), 2, "one of each lane");
            assert_eq!(findings(&queue, 1).await, []);
        } else {
            let nothing = claimed(&queue, 1, 2).await;
            assert!(nothing.deliveries.is_empty() && nothing.more, "{nothing:?}");
        }
        let all = claimed(&queue, 2, 3).await.deliveries;
        let names: BTreeSet<_> = all.iter().map(|it| it.message.info.id.to_string()).collect();
        assert_eq!(names.iter().map(String::as_str).collect::<Vec<_>>(), ["a2", "b1", "b2"]);
        // A message whose lane is not that of its group.
        let member = member(&server, &keys[INDEX], "a2");
        server.binary_command(&[
            b"ZADD",
            &keys[INDEX][..],
            score(Position::LANES, 5).as_bytes(),
            &member,
        ]);
        assert_eq!(findings(&queue, 3).await, [Finding::WrongRecord { id: id("a2") }]);
        repaired(&queue, 3, 10).await;
        assert_eq!(findings(&queue, 4).await, []);
    }
}

/// If the limits are lost, the messages that waited for a slot are delivered.
pub(crate) async fn lost_limits_hold_up_no_group<C: Connect>() {
    let server = Server::start();
    let queue = open::<C>(&server.url()).await.unwrap();
    let limit = Op::SetLimits(SetLimits::new().each_group(1));
    for is_set_again in [false, true] {
        server.command(&["FLUSHALL"]);
        apply(&queue, 0, limit.clone()).await;
        send(&queue, &["a1", "a2", "b1"]).await;
        assert_eq!(take(&queue, 0, 1, 9).await, ["a1", "b1"]);
        server.binary_command(&[b"DEL", &queue.keys().all()[CONTROL][..]]);
        apply(&queue, 1, settle("a1", 1, Outcome::Ack)).await;
        if is_set_again {
            apply(&queue, 1, limit.clone()).await;
        }
        let mut seen = take(&queue, 2, 2, 9).await;
        seen.extend(take(&queue, 3, 3, 9).await);
        assert_eq!(seen, ["a2"], "{is_set_again}");
    }
    // After a repair also in a queue that is never without ready messages.
    for limit in [SetLimits::new().each_group(1), SetLimits::new().in_order(true)] {
        server.command(&["FLUSHALL"]);
        apply(&queue, 0, Op::SetLimits(limit)).await;
        send(&queue, &["a1", "a2", "b1"]).await;
        assert_eq!(take(&queue, 0, 1, 1).await, ["a1"]);
        assert_eq!(take(&queue, 0, 2, 1).await, ["b1"]);
        server.binary_command(&[b"DEL", &queue.keys().all()[CONTROL][..]]);
        assert!(repaired(&queue, 1, 9).await.contains(&Finding::MissingTurn { id: id("a2") }));
        assert_eq!(findings(&queue, 1).await, []);
        send(&queue, &["c1", "c2"]).await;
        assert!(take(&queue, 2, 3, 2).await.contains(&"a2".to_owned()));
    }
}

/// Also where they are the only messages, and no longer known to be there.
pub(crate) async fn groups_that_are_not_known_are_found<C: Connect>() {
    let server = Server::start();
    let queue = open::<C>(&server.url()).await.unwrap();
    let at = control::USES.offset.unwrap().to_string();
    send(&queue, &["a1", "b1"]).await;
    let key = &queue.keys().all()[CONTROL];
    server.binary_command(&[b"SETRANGE", &key[..], at.as_bytes(), &[0; 4]]);
    let mut seen = take(&queue, 1, 1, 9).await;
    seen.extend(take(&queue, 2, 2, 9).await);
    assert_eq!(seen, ["a1", "b1"]);
}

/// Members that no library has written, and messages without a group, among those with one.
pub(crate) async fn strangers_among_groups_harm_nobody<C: Connect>() {
    let server = Server::start();
    let queue = open::<C>(&server.url()).await.unwrap();
    let index = queue.keys().all()[INDEX].clone();
    let now = 1_800_000_000_000;
    for (stranger, max) in [(&b"x"[..], 1), (b"x", 9), (b"12345678junk", 1), (b"", 1)] {
        for limited in [false, true] {
            server.command(&["FLUSHALL"]);
            if limited {
                apply(&queue, 0, Op::SetLimits(SetLimits::new().each_group(9))).await;
            }
            send(&queue, &["a1", "a2", "b1"]).await;
            apply(&queue, 0, Op::Enqueue(vec![message("plain")])).await;
            let place = score(Position::GROUPED, now);
            server.binary_command(&[b"ZADD", &index[..], place.as_bytes(), stranger]);
            let mut seen = Vec::new();
            for token in 1..9 {
                seen.extend(take(&queue, u64::from(token), token, max).await);
            }
            seen.sort();
            assert_eq!(seen, ["a1", "a2", "b1", "plain"], "{stranger:?}, {max}, {limited}");
        }
    }
    // A whole message without a group, at the place of messages with one.
    for max in [1, 9] {
        server.command(&["FLUSHALL"]);
        send(&queue, &["a1"]).await;
        apply(&queue, 0, Op::Enqueue(vec![message("abcdefghij"), message("plain")])).await;
        let member = member(&server, &index, "abcdefghij");
        let place = score(Position::GROUPED, now);
        server.binary_command(&[b"ZADD", &index[..], place.as_bytes(), &member]);
        let mut seen = Vec::new();
        for token in 1..7 {
            seen.extend(take(&queue, u64::from(token), token, max).await);
        }
        seen.sort();
        assert_eq!(seen, ["a1", "abcdefghij", "plain"], "{max}");
        assert_eq!(findings(&queue, 9).await, [], "{max}");
    }
    // The id of a message begins with its lane, and an urgent entry lacks one of the two.
    server.command(&["FLUSHALL"]);
    let group = Group::new("a").unwrap();
    let rest = [&group.lane().to_be_bytes()[2..], b"x"].concat();
    let of_group = NewMessage::new(MessageId::new(rest.clone()).unwrap(), "").group(group);
    let urgent = message("urgent").priority(Priority::Urgent);
    apply(&queue, 0, Op::Enqueue(vec![of_group, urgent])).await;
    let stray = [&(Position::OF_GROUPS + 1).to_be_bytes()[..], &rest].concat();
    let place = score(Priority::Urgent.level(), now);
    server.binary_command(&[b"ZADD", &index[..], place.as_bytes(), &stray]);
    assert_eq!(take(&queue, 1, 1, 9).await.len(), 2);
}

/// A check finds what a repair mends, at once.
pub(crate) async fn damaged_turns_and_slots_are_mended<C: Connect>() {
    let server = Server::start();
    let queue = open::<C>(&server.url()).await.unwrap();
    let [turns, slots] = [TURNS, TURNS + 1].map(|key| queue.keys().all()[key].clone());
    let lane = |group: &str| Group::new(group).unwrap().lane();
    // A score that no lane has.
    send(&queue, &["a1", "a2", "b1"]).await;
    assert_eq!(take(&queue, 0, 1, 1).await, ["a1"]);
    let name = lane("a").to_be_bytes();
    server.binary_command(&[b"ZADD", &turns[..], b"-5", &name[2..]]);
    assert_eq!(findings(&queue, 1).await, [Finding::MissingTurn { id: id("a2") }]);
    repaired(&queue, 1, 10).await;
    assert_eq!(findings(&queue, 1).await, []);
    assert_eq!(take(&queue, 2, 2, 9).await, ["b1", "a2"]);
    // A score that is no longer exact: it goes with the next claim of all lanes.
    server.command(&["FLUSHALL"]);
    send(&queue, &["a1", "a2", "a3", "a4", "b1", "b2", "b3"]).await;
    assert_eq!(take(&queue, 0, 1, 1).await, ["a1"]);
    server.binary_command(&[b"ZADD", &turns[..], b"1e18", &name[2..]]);
    assert_eq!(take(&queue, 1, 2, 4).await, ["b1", "a2", "b2", "a3"]);
    send(&queue, &["c1"]).await;
    assert_eq!(take(&queue, 2, 3, 2).await, ["b3", "a4"]);
    // A slot that no message holds.
    server.command(&["FLUSHALL"]);
    apply(&queue, 0, Op::SetLimits(SetLimits::new().each_group(1))).await;
    send(&queue, &["a1", "a2"]).await;
    assert_eq!(take(&queue, 0, 1, 1).await, ["a1"]);
    let number = lane("a").to_string();
    server.binary_command(&[b"ZADD", &slots[..], number.as_bytes(), b"junk"]);
    apply(&queue, 1, settle("a1", 1, Outcome::Ack)).await;
    assert_eq!(take(&queue, 1, 2, 9).await, [""; 0]);
    assert_ne!(repaired(&queue, 2, 10).await, []);
    assert_eq!(findings(&queue, 2).await, []);
    assert_eq!(take(&queue, 3, 3, 9).await, ["a2"]);
}
