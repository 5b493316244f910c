//! The operations of a request with many items.

use delayline::backend::{Op, Reply};
use delayline::codec::Raw;
use delayline::{Bytes, Error, ErrorKind, Queue, Violation, backend};

/// Operations, each with the number of its items.
pub(super) type Operations = Vec<(usize, Op)>;

/// Divides the items of a request into operations. Items that are valid alone can exceed the limits
/// of one operation together, or name a message twice.
pub(super) fn operations<T>(
    items: &[T],
    op: &impl Fn(&[T]) -> Op,
) -> Result<Operations, Violation> {
    let whole = op(items);
    match whole.validate() {
        Ok(()) => Ok(vec![(items.len(), whole)]),
        Err(violation) if items.len() < 2 => Err(violation),
        Err(_) => {
            let (first, second) = items.split_at(items.len() / 2);
            let mut all = operations(first, op)?;
            all.extend(operations(second, op)?);
            Ok(all)
        }
    }
}

/// Applies operations one after the other, and returns the result of each item, in order. After a
/// failure the others are not sent: their items have the same error.
pub(super) async fn apply<R>(
    queue: &Queue<Bytes, Raw>,
    operations: &[(usize, Op)],
    read: impl Fn(Reply) -> Option<Vec<R>>,
) -> Vec<Result<R, Error>> {
    let mut results = Vec::new();
    let mut failure: Option<Error> = None;
    for (count, op) in operations {
        let done = match failure.clone() {
            Some(error) => Err(error),
            None => queue.apply(op).await.and_then(|applied| {
                let protocol = || backend::Error::new(ErrorKind::Protocol).into();
                read(applied.reply).ok_or_else(protocol)
            }),
        };
        match done {
            Ok(items) => results.extend(items.into_iter().map(Ok)),
            Err(error) => {
                results.extend((0..*count).map(|_| Err(error.clone())));
                failure = Some(error);
            }
        }
    }
    results
}
