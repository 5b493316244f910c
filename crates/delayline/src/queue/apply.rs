//! Raw operations.

use delayline_core::{Applied, Op};

use super::Queue;
use crate::Error;

impl<T: ?Sized, C> Queue<T, C> {
    /// Applies an operation, and repeats it like every other call: see
    /// [`patience`](Self::patience). Use it for operations of [`Op`] that have no method here, or
    /// if you need the instant or the revision of a reply.
    ///
    /// ```
    /// # use delayline::Queue;
    /// use delayline::backend::{Op, Reply};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), delayline::Error> {
    /// # let queue: Queue<u64> = delayline::connect("memory:").await?.queue("numbers").await?;
    /// let counted = queue.apply(&Op::Stats).await?;
    /// let Reply::Stats(stats) = counted.reply else { panic!("another reply") };
    /// println!("{} are ready at {}", stats.ready, counted.at);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// If the operation is outside its limits. Otherwise see [`patience`](Self::patience).
    pub async fn apply(&self, op: &Op) -> Result<Applied, Error> {
        self.client().apply(op).await
    }
}
