//! Relays: moving due messages to a list or stream, for consumers without Delayline.
//!
//! [`Queue::relay`](crate::Queue::relay) creates one.

pub use delayline_core::{Backlog, Destination, DestinationKey, Element, GroupName, Relayed};

pub use crate::relayer::{RelayHandle, RelaySummary, Relayer};
