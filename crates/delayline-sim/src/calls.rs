//! All calls that a queue has executed, judged without the model.

use std::time::Duration;

use delayline_core::{Applied, Op, Reply};
use delayline_testkit::{Call, History};

use crate::ledger::Violation;
use crate::story::Ms;

#[derive(Default)]
pub(crate) struct Calls(Vec<Call>);

impl Calls {
    pub(crate) fn note(&mut self, now: Ms, op: Op, applied: Applied) {
        let at = Duration::from_millis(now);
        self.0.push(Call { called: at, returned: at, op, applied });
    }

    /// Judges the calls, which end with a list of the dead letters and the counters.
    pub(crate) fn check(&self) -> Result<(), Violation> {
        let delivers = |call: &Call| match &call.applied.reply {
            Reply::Claim(claimed) => !claimed.deliveries.is_empty(),
            Reply::Relay(relayed) => !relayed.ids.is_empty(),
            _ => false,
        };
        // A history without deliveries is refused.
        if self.0.iter().any(delivers) { History::check_messages(&self.0) } else { Ok(()) }
    }
}
