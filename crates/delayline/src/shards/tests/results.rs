//! Results beyond one reply.

use bytes::Bytes;
use delayline_core::limits::{MAX_BATCH_BYTES, MAX_RESULT_BYTES};
use delayline_core::{HandOff, NewResult};

use super::*;

/// The shard of the id knows nothing, and that of the group leaves out the last ones.
#[tokio::test]
async fn what_the_shard_of_a_group_leaves_out_is_not_unknown() {
    const FIT: usize = MAX_BATCH_BYTES / MAX_RESULT_BYTES;
    let (shards, recorded) = shards(2);
    let now = At::Fixed(Timestamp::from_ms(1_800_000_000_000).unwrap());
    let ids = (0..).map(|n| MessageId::try_from(format!("m{n}")).unwrap());
    let mut ids: Vec<_> = ids.filter(|id| place_of(None, id, 2) == 0).take(FIT + 3).collect();
    let mut groups = (0..).map(|n| Group::new(format!("g{n}")).unwrap());
    let group = groups.find(|it| place_of(Some(it), &ids[0], 2) == 1).unwrap();
    let unknown = ids.pop().unwrap();
    let messages = ids.iter().map(|id| NewMessage::new(id.clone(), "").group(group.clone()));
    let messages: Vec<_> = messages.collect();
    recorded[1].apply(now, &Op::Enqueue(messages)).await.unwrap();
    let (consumer, lease) = (ConsumerName::new("c").unwrap(), Millis::saturating(60_000));
    let claim = Claim::new(consumer, ClaimId::from_bytes([1; ClaimId::BYTES]), ids.len(), lease);
    let claimed = recorded[1].apply(now, &Op::Claim(claim)).await.unwrap().reply;
    let Reply::Claim(claimed) = claimed else { panic!() };
    assert_eq!(claimed.deliveries.len(), ids.len());
    for some in claimed.deliveries.chunks(FIT) {
        let ack = |it: &Delivery| {
            let ack = Settlement::new(it.message.info.id.clone(), it.lease, Outcome::Ack);
            let result = NewResult::new(vec![7; MAX_RESULT_BYTES], lease);
            HandOff::new(ack, Vec::new()).with_result(result)
        };
        recorded[1].apply(now, &Op::HandOff(some.iter().map(ack).collect())).await.unwrap();
    }
    ids.push(unknown);
    let progress = async |ids: &[MessageId]| {
        let reply = shards.apply(now, &Op::Progress(ids.to_vec())).await.unwrap().reply;
        let Reply::Progress(all) = reply else { panic!() };
        all.iter().map(|it| it.result().map(Bytes::len)).collect::<Vec<_>>()
    };
    assert_eq!(progress(&ids).await, [Some(MAX_RESULT_BYTES); FIT]);
    let rest = [Some(MAX_RESULT_BYTES), Some(MAX_RESULT_BYTES), None];
    assert_eq!(progress(&ids[FIT..]).await, rest);
}
