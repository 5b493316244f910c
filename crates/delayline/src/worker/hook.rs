//! User functions that a worker calls.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

/// A function that is called with values of `T`.
pub(super) struct Hook<T>(Arc<dyn Fn(&T) + Send + Sync>);

impl<T> Hook<T> {
    pub(super) fn new(hook: impl Fn(&T) + Send + Sync + 'static) -> Self {
        Self(Arc::new(hook))
    }

    /// Calls the function. A panic does not end the worker.
    pub(super) fn call(&self, value: &T) {
        if let Err(panic) = catch_unwind(AssertUnwindSafe(|| (self.0)(value))) {
            // Dropping the panic's payload could panic again.
            std::mem::forget(panic);
            tracing::error!(of = std::any::type_name::<T>(), "a hook of the worker panicked");
        }
    }
}

impl<T> Clone for Hook<T> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<T> fmt::Debug for Hook<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Hook")
    }
}
