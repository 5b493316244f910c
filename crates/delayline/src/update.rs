//! Updates: the effect of a send whose id is already known.
//!
//! [`Draft::debounce`](crate::Draft::debounce), [`coalesce`](crate::Draft::coalesce) and
//! [`or_replace`](crate::Draft::or_replace) make the usual ones;
//! [`Draft::update`](crate::Draft::update) makes any. The guide
//! [one message per id](crate::guides::one_message_per_id) compares them.

pub use delayline_core::{Follower, Known, Update, UpdateContent, UpdateToken};

pub use crate::queue::UpdateDue;
