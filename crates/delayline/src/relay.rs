//! Relays: due messages go to a list or stream, for consumers without Delayline.
//!
//! [`Queue::relay`](crate::Queue::relay) makes one.

pub use delayline_core::{Backlog, Destination, DestinationKey, Element, GroupName, Relayed};

pub use crate::relayer::{RelayHandle, RelaySummary, Relayer};
