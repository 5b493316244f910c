//! Mutexes that requests and background work share.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Locks the mutex, also after a panic: nothing panics while it is locked.
pub(crate) fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
