//! The name of the connections that carry calls.

use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;

/// The name that all connections of a transport that carry calls are to have, on all servers.
#[derive(Clone, Debug, Default)]
pub(crate) struct Tag(Arc<Mutex<Option<Bytes>>>);

impl Tag {
    pub(crate) fn set(&self, name: Option<Bytes>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = name;
    }

    pub(crate) fn get(&self) -> Option<Bytes> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}
