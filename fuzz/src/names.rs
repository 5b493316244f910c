//! Names and ids, and the keys that are made of them.

use delayline_core::limits::{MAX_CONSUMER_BYTES, MAX_ID_BYTES, MAX_QUEUE_NAME_BYTES};
use delayline_core::{ConsumerName, MessageId, QueueName};
use delayline_redis_protocol::{KEY_NAMES, Keys};

/// Reads the bytes as names of two queues, of a message and of a consumer.
///
/// # Panics
///
/// A name outside of the limits is accepted, or one within them is refused. Two queues share a key,
/// or a queue's keys are in different slots of a cluster.
pub fn names(data: &[u8]) {
    let id = MessageId::new(data.to_vec());
    assert_eq!(id.is_ok(), (1..=MAX_ID_BYTES).contains(&data.len()));
    let consumer = ConsumerName::new(data.to_vec());
    assert_eq!(consumer.is_ok(), (1..=MAX_CONSUMER_BYTES).contains(&data.len()));
    if let (Ok(id), Ok(consumer)) = (&id, &consumer) {
        assert_eq!(id.as_bytes(), data);
        assert_eq!(&consumer.as_bytes()[..], data);
    }
    if let Ok(id) = id {
        let shown = format!("{id} {id:?}");
        assert!(!shown.contains(char::is_control), "{shown}");
    }

    let text = String::from_utf8_lossy(data);
    let half = text.char_indices().nth(text.chars().count() / 2).map_or(0, |(place, _)| place);
    let (one, other) = text.split_at(half);
    let queues = [&*text, one, other].map(|name| (name.to_owned(), QueueName::new(name)));
    for (text, name) in &queues {
        match name {
            Ok(name) => {
                assert_eq!(name.as_str(), text);
                assert!((1..=MAX_QUEUE_NAME_BYTES).contains(&text.len()), "{text:?}");
                keys_stand_in_one_slot(name);
            }
            Err(violation) => assert!(!violation.to_string().contains(char::is_control)),
        }
    }
    for (text, name) in &queues {
        for (other_text, other) in &queues {
            if let (Ok(name), Ok(other)) = (name, other)
                && text != other_text
            {
                let (keys, others) = (Keys::new(name), Keys::new(other));
                assert!(keys.all().iter().all(|key| !others.all().contains(key)));
            }
        }
    }
}

/// A cluster hashes what stands between the first `{` and the first `}` after it.
fn keys_stand_in_one_slot(name: &QueueName) {
    let keys = Keys::new(name);
    assert_eq!(keys.all().len(), KEY_NAMES.len());
    for key in keys.all() {
        let start = key.iter().position(|byte| *byte == b'{').expect("a hash tag") + 1;
        let length = key[start..].iter().position(|byte| *byte == b'}').expect("its end");
        assert_eq!(&key[start..start + length], name.as_str().as_bytes());
    }
}
