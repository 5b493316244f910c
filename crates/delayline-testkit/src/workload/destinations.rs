//! Destinations of relays.

use delayline_core::{Backlog, Destination, DestinationKey, GroupName};

/// A list with this key.
pub(crate) fn list(key: &str, max_len: Option<u64>) -> Destination {
    Destination::List { key: key_of(key), max_len }
}

/// A stream with this key, and the backlog of a group that is never created.
pub(crate) fn stream(key: &str, most: Option<u64>) -> Destination {
    #[allow(clippy::expect_used, reason = "a constant within the limits")]
    let group = GroupName::try_from("absent").expect("a short name");
    let backlog = most.map(|max| Backlog::new(group, max));
    Destination::Stream { key: key_of(key), backlog }
}

#[allow(clippy::expect_used, reason = "constants within the limits")]
fn key_of(key: &str) -> DestinationKey {
    DestinationKey::try_from(key).expect("a short key")
}
