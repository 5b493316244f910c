//! Which of the requests of a connection are answered.
//!
//! On `CLUSTERDOWN`, fred 10.1.0 closes the connection and ends all unanswered requests with that
//! line. Only the oldest of them got this reply: the server may have executed the others.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Numbers requests in the order in which fred sends them, which is that of the replies.
#[derive(Default)]
pub(crate) struct Order(Mutex<Counts>);

#[derive(Default)]
struct Counts {
    sent: u64,
    /// The newest request that was answered; so all before it were answered.
    answered: u64,
}

impl Order {
    /// Runs a request that is sent when it is first polled. Returns its output and number.
    pub(crate) async fn number<F: Future>(&self, request: F) -> (F::Output, u64) {
        let (mut request, mut number) = (pin!(request), None);
        poll_fn(|context| {
            let Some(number) = number else {
                // Locked meanwhile, so that no request overtakes it.
                let mut counts = self.lock();
                counts.sent += 1;
                let first = *number.insert(counts.sent);
                return request.as_mut().poll(context).map(|output| (output, first));
            };
            request.as_mut().poll(context).map(|output| (output, number))
        })
        .await
    }

    /// A request was answered.
    pub(crate) fn answered(&self, number: u64) {
        let mut counts = self.lock();
        counts.answered = counts.answered.max(number);
    }

    /// Whether all requests before this one are known to be answered, so that the next reply
    /// belongs to it. A request whose future was dropped counts as unanswered.
    pub(crate) fn is_next(&self, number: u64) -> bool {
        self.lock().answered + 1 == number
    }

    fn lock(&self) -> MutexGuard<'_, Counts> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::future::{pending, ready};

    use futures_util::FutureExt as _;

    use super::*;

    #[test]
    fn only_the_oldest_unanswered_request_is_next() {
        let order = Order::default();
        let sent = || order.number(ready(())).now_or_never().unwrap().1;
        let (first, second) = (sent(), sent());
        assert!(order.is_next(first) && !order.is_next(second));
        order.answered(first);
        assert!(order.is_next(second));
        // Its caller gives up. It may be answered next.
        assert!(order.number(pending::<()>()).now_or_never().is_none());
        let fourth = sent();
        order.answered(second);
        assert!(!order.is_next(fourth));
        // Replies arrive in order, so the abandoned call was answered as well.
        order.answered(fourth);
        assert!(order.is_next(sent()));
        order.answered(second);
        assert!(!order.is_next(second + 1), "what is answered stays answered");
    }
}
