//! Users with as few permissions as possible.

use super::*;

/// What the scripts and the drivers call; `delayline acl` prints the part of each role.
const COMMANDS: &str = "+evalsha +eval +info +ping +blpop +time +get +set +getrange +strlen +bitfield \
                        +hget +hmget +hset +hdel +hlen +hkeys +hscan +hexists +hstrlen +zadd +zrem +zcard +zcount +zscore +zrange +zrangebyscore +zrevrangebyscore \
                        +llen +lpush +unlink +rename +pexpire +pttl \
                        +rpush +exists +xlen +xadd +xinfo";

fn user(rules: &str) -> Server {
    Server::builder().acl_user(&format!("worker on >secret {rules}")).start()
}

pub async fn the_documented_permissions_are_enough<C: Connect>() {
    let server = user(&format!("resetkeys ~delayline:{{q}}:* ~{LIST} ~{STREAM} -@all {COMMANDS}"));
    let queue = open::<C>(&server.url_with_login("worker", "secret")).await.unwrap();
    fill(&queue).await;
    for op in every_op() {
        assert!(kind_of(&queue, 6_000, &op).await.is_ok(), "{}", op.name());
    }
    // Two hours later the memory of finished messages and of claims has been cleared.
    for hours in [1, 3, 4] {
        let ms = hours * 3_600_000;
        apply(&queue, ms, Op::Enqueue(vec![message(&format!("hour {hours}"))])).await;
        for delivery in claimed(&queue, ms, 50 + u8::try_from(hours).unwrap()).await.deliveries {
            let id = delivery.message.info.id;
            let ack = Settlement::new(id, delivery.lease, Outcome::Ack);
            apply(&queue, ms, Op::Settle(vec![ack])).await;
        }
    }
    let other = queue.with_queue(&QueueName::new("other").unwrap());
    let denied = kind_of(&other, 0, &Op::Stats).await;
    assert_eq!(denied, Err(ErrorKind::PermissionDenied), "another queue's keys are out of reach");
}

pub async fn a_missing_permission_is_named_before_anything_is_done<C: Connect>() {
    let server = user(&format!("~* -@all {COMMANDS} -zadd"));
    let queue = open::<C>(&server.url_with_login("worker", "secret")).await.unwrap();
    let enqueue = Op::Enqueue(vec![message("a")]);
    let error = queue.apply(at(0), &enqueue).await.unwrap_err();
    if Capability::RightsAreAsked.is_of(&server) {
        assert_eq!(error.kind(), &ErrorKind::PermissionDenied);
        assert!(error.detail().contains("ZADD") && error.detail().contains("index"), "{error}");
    } else {
        // The caller cannot know how far the script ran.
        assert_eq!(error.kind(), &ErrorKind::Server, "{error}");
    }
    assert_eq!(server.command(&["DBSIZE"]), Raw::Int(0), "no half of a message");

    server.command(&["ACL", "SETUSER", "worker", "+zadd"]);
    apply(&queue, 0, enqueue).await;
    assert_eq!(
        claimed(&queue, 0, 1).await.deliveries.len(),
        1,
        "a permission granted later counts"
    );

    let denied = user("~* +@all -info");
    open::<C>(&denied.url_with_login("worker", "secret")).await.expect("INFO may be forbidden");
}
