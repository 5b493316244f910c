//! The errors that handlers return.

use std::error::Error;
use std::iter::successors;

use delayline_core::limits::MAX_ERROR_BYTES;

use super::Outcome;

/// An error that a handler can return: a type that implements [`std::error::Error`] and is
/// `Send + Sync`, a `String` or `&'static str`, a boxed error, or one of `anyhow` or `eyre`.
///
/// Such an error is a failure, and the message is retried. The error is stored with its causes, as
/// "outer: cause: cause". If an error's own text already ends with its cause, the cause is not
/// repeated.
///
/// To let an error choose the outcome, implement `From<YourError>` for [`Outcome`], and use `?`:
///
/// ```
/// use std::time::Duration;
///
/// use delayline::{Job, Outcome};
///
/// enum ChargeError {
///     Refused,
///     Busy { retry_after: Duration },
///     Network(std::io::Error),
/// }
///
/// impl From<ChargeError> for Outcome {
///     fn from(error: ChargeError) -> Self {
///         match error {
///             ChargeError::Refused => Self::reject("the card is refused"),
///             ChargeError::Busy { retry_after } => Self::Snooze(retry_after),
///             ChargeError::Network(error) => Self::failed(error),
///         }
///     }
/// }
///
/// # async fn charge(_: u64) -> Result<(), ChargeError> { Ok(()) }
/// async fn handle(job: Job<u64>) -> Result<(), Outcome> {
///     charge(*job.payload()).await?;
///     Ok(())
/// }
/// ```
///
/// `Kind` is inferred. The trait cannot be implemented by other crates.
#[diagnostic::on_unimplemented(
    message = "a handler cannot return `{Self}` as its error",
    label = "the handler's error is `{Self}`",
    note = "return a type that implements `std::error::Error + Send + Sync`, a `String`, or an `Outcome`"
)]
pub trait HandlerError<Kind>: sealed::Sealed<Kind> {
    /// Returns the outcome: a retry whose text has all causes, or the one that the error has
    /// chosen.
    #[doc(hidden)]
    fn into_outcome(self) -> Outcome;
}

mod sealed {
    pub trait Sealed<Kind> {}
}

/// An error that can become a boxed one.
#[derive(Debug)]
pub enum Plain {}

/// A boxed error that may not leave its thread.
#[derive(Debug)]
pub enum Local {}

/// An error that has chosen its outcome.
#[derive(Debug)]
pub enum Chosen {}

type Boxed = Box<dyn Error + Send + Sync>;

impl<E: Into<Boxed>> sealed::Sealed<Plain> for E {}

impl<E: Into<Boxed>> HandlerError<Plain> for E {
    fn into_outcome(self) -> Outcome {
        Outcome::retry(with_causes(&*self.into()))
    }
}

impl sealed::Sealed<Local> for Box<dyn Error> {}

impl HandlerError<Local> for Box<dyn Error> {
    fn into_outcome(self) -> Outcome {
        Outcome::retry(with_causes(&*self))
    }
}

impl sealed::Sealed<Chosen> for Outcome {}

impl HandlerError<Chosen> for Outcome {
    fn into_outcome(self) -> Outcome {
        self
    }
}

impl Outcome {
    /// Failed because of this error, to be retried according to the worker's retry policy. An error
    /// returned by a handler has the same effect: the text has all its causes ([`HandlerError`]).
    ///
    /// ```
    /// # use delayline::Outcome;
    /// let error = std::io::Error::other("the shop does not reply");
    /// assert_eq!(Outcome::failed(error), Outcome::retry("the shop does not reply"));
    /// ```
    #[must_use]
    pub fn failed<E: HandlerError<K>, K>(error: E) -> Self {
        error.into_outcome()
    }
}

/// The text of an error and of its causes, not much longer than the stored text.
fn with_causes(error: &dyn Error) -> String {
    let mut text = error.to_string();
    for cause in successors(error.source(), |&cause| cause.source()).take(MAX_CAUSES) {
        if text.len() >= MAX_ERROR_BYTES {
            break;
        }
        let cause = cause.to_string();
        // Many errors already show their cause.
        if !text.ends_with(&cause) {
            text.push_str(": ");
            text.push_str(&cause);
        }
    }
    text
}

const MAX_CAUSES: usize = 100;

#[cfg(test)]
mod tests {
    use std::io;

    use super::*;

    #[derive(Debug, thiserror::Error)]
    #[error("the order could not be closed")]
    struct Outer(#[source] Middle);

    #[derive(Debug, thiserror::Error)]
    enum Middle {
        #[error("the shop does not reply")]
        Silent(#[source] io::Error),
        #[error("the shop refuses: {0}")]
        Refused(#[from] io::Error),
    }

    fn text<K>(error: impl HandlerError<K>) -> String {
        match error.into_outcome() {
            Outcome::Retry { after: None, error } => error,
            outcome => panic!("{outcome:?}"),
        }
    }

    #[test]
    fn causes_are_part_of_the_text_once() {
        let cause = || io::Error::other("timed out");
        let expected = "the order could not be closed: the shop does not reply: timed out";
        assert_eq!(text(Outer(Middle::Silent(cause()))), expected);
        let boxed: Boxed = Outer(Middle::Silent(cause())).into();
        assert_eq!(text(boxed), expected);
        let local: Box<dyn Error> = Outer(Middle::Silent(cause())).into();
        assert_eq!(text(local), expected);
        let expected = "the order could not be closed: the shop refuses: timed out";
        assert_eq!(text(Outer(Middle::Refused(cause()))), expected);
        assert_eq!(text("plain"), "plain");
        assert_eq!(text("plain".to_owned()), "plain");
    }

    #[test]
    fn chains_are_cut() {
        #[derive(Debug, thiserror::Error)]
        #[error("{level:0>500}")]
        struct Deep {
            level: u32,
            source: Option<Box<Self>>,
        }
        let deep = |inner: Option<Box<Deep>>, level| Deep { level, source: inner };
        let chain = (0..1_000).fold(None, |inner, level| Some(Box::new(deep(inner, level))));
        let text = text(*chain.unwrap());
        assert!(text.len() >= MAX_ERROR_BYTES && text.len() < 2_000, "{}", text.len());
    }
}
