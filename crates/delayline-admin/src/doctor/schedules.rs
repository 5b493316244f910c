//! Are schedules handled?

use std::time::Duration;

use delayline::schedules::Schedules;
use delayline::{Connection, Error, ErrorClass};

use super::findings::{Finding, Findings, good_if};

/// Examines whether a scheduler sends the messages of the schedules in this queue. Without
/// schedules, and without the permission to read them, there is no finding. Changes nothing.
///
/// # Cancel safety
///
/// This call changes nothing; its future can be dropped.
pub async fn examine_schedules(connection: &Connection, queue: &str) -> Vec<Finding> {
    let mut findings = Findings::default();
    match read(connection, queue).await {
        Ok(Some((count, overdue))) => check(count, overdue, &mut findings),
        Err(error) if error.class() != ErrorClass::Rejected => {
            findings.add_failure("schedules", &error);
        }
        _ => {}
    }
    findings.0
}

/// The number of schedules, and how long they are overdue.
async fn read(connection: &Connection, queue: &str) -> Result<Option<(u64, Duration)>, Error> {
    let schedules = Schedules::open_named(connection, queue).await?;
    let stats = schedules.queue().stats().await?;
    let count = stats.scheduled + stats.ready + stats.leased + stats.dead;
    if count == 0 {
        return Ok(None);
    }
    Ok(Some((count, schedules.overdue().await?)))
}

fn check(count: u64, overdue: Duration, findings: &mut Findings) {
    let is_handled = overdue < SCHEDULE_OVERDUE;
    let of = if count == 1 { "1 schedule".to_owned() } else { format!("{count} schedules") };
    let detail = if is_handled {
        format!("of {of}, no message is overdue")
    } else {
        format!("of {of}, a message has been overdue for {} s", overdue.as_secs())
    };
    let advice = "run a scheduler: `delayline schedule run`; if one runs, resume the queue of \
                  schedules, or see the scheduler's log";
    findings.add("schedules", good_if(is_handled), detail, advice);
}

/// From this time after its instant on, a message that no scheduler has sent is overdue. Another
/// scheduler takes over within a lease, or within a poll if it does not know of the schedule yet.
pub const SCHEDULE_OVERDUE: Duration = Duration::from_secs(10);

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "test code")]
mod tests {
    use delayline::schedules::Spec;

    use super::*;
    use crate::doctor::Verdict;

    #[test]
    fn messages_that_no_scheduler_sends_are_found() {
        let mut findings = Findings::default();
        check(1, Duration::from_millis(9_999), &mut findings);
        check(2, Duration::from_secs(90), &mut findings);
        let found = findings.0.iter().map(|it| (it.verdict, &it.detail[..]));
        let expected = [
            (Verdict::Good, "of 1 schedule, no message is overdue"),
            (Verdict::Bad, "of 2 schedules, a message has been overdue for 90 s"),
        ];
        assert_eq!(found.collect::<Vec<_>>(), expected);
    }

    #[tokio::test]
    async fn schedules_are_counted_and_a_queue_without_any_has_no_finding() {
        let connection = delayline::connect("memory:").await.unwrap();
        assert_eq!(examine_schedules(&connection, "ticks").await, []);
        let schedules = Schedules::open_named(&connection, "ticks").await.unwrap();
        let spec = Spec::every(Duration::from_secs(3_600), "orders").unwrap();
        schedules.put("hourly", &spec).await.unwrap();
        let found = examine_schedules(&connection, "ticks").await;
        let found: Vec<_> = found.iter().map(|it| (it.verdict, &it.detail[..])).collect();
        assert_eq!(found, [(Verdict::Good, "of 1 schedule, no message is overdue")]);
    }
}
