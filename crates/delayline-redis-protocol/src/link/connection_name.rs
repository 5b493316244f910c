//! The name of the connections that carry calls.

use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;

/// The name that all connections of a transport that carry calls are to have, on all servers.
#[derive(Clone, Debug, Default)]
pub(crate) struct ConnectionName(Arc<Mutex<Option<Bytes>>>);

impl ConnectionName {
    /// Returns whether that is another name than before.
    pub(crate) fn set(&self, name: Option<Bytes>) -> bool {
        let mut held = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let is_other = *held != name;
        *held = name;
        is_other
    }

    pub(crate) fn get(&self) -> Option<Bytes> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}
