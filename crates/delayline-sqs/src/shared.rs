//! What all requests share.

use std::sync::Arc;

use tokio_util::sync::DropGuard;

use crate::access::Access;
use crate::bodies::Bodies;
use crate::moves::Moves;
use crate::queues::Queues;

/// What all requests share.
pub(crate) struct Shared {
    pub(crate) queues: Arc<Queues>,
    pub(crate) access: Access,
    pub(crate) public_url: Option<String>,
    pub(crate) bodies: Bodies,
    pub(crate) moves: Arc<Moves>,
    /// Ends the workers of move tasks and deletions with the router.
    pub(crate) _workers_end: DropGuard,
}
