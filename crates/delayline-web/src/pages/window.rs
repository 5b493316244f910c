//! A window of time: the messages that fall due in it, or a list from an instant on.

use delayline::admin::{Listed, Position};
use delayline::codec::Raw;
use delayline::message::MessageInfo;
use delayline::{Bytes, Queue, Timestamp};
use delayline_admin::{DueCounts, DueMessages};
use maud::{Markup, html};

use super::parts::{PAGE, number};
use crate::failure::Failure;
use crate::ids::encoded;
use crate::params::Params;
use crate::when::{moment, time};

/// From an instant, and until another one if that was asked for.
pub(super) struct Window {
    from: Timestamp,
    until: Option<Timestamp>,
}

/// A page of messages, and where the next one starts.
type Part = (Vec<MessageInfo>, Option<Position>);

impl Window {
    /// The window in the fields `from` and `until`, or none if both are empty. Ready messages have
    /// no window: they are all due.
    pub(super) fn asked(
        params: &Params,
        now: Timestamp,
        status: Listed,
    ) -> Result<Option<Self>, Failure> {
        let read =
            |name: &str| params.picked_or_typed(name).map(|text| moment(now, text)).transpose();
        let (from, until) = (read("from")?, read("until")?);
        if from.is_none() && until.is_none() {
            return Ok(None);
        }
        if status == Listed::Ready {
            return Err(Failure::Wrong("ready messages have no window of time".to_owned()));
        }
        if status != Listed::Scheduled && until.is_some() {
            return Err(Failure::Wrong("`until` is for scheduled messages only".to_owned()));
        }
        let from = from.unwrap_or(now);
        if let Some(until) = until.filter(|until| *until <= from) {
            let why = format!("the window ends at {until}, but begins at {from}");
            return Err(Failure::Wrong(why));
        }
        Ok(Some(Self { from, until }))
    }

    /// A page of the list of this status.
    pub(super) async fn page(
        &self,
        queue: &Queue<Bytes, Raw>,
        status: Listed,
        position: Option<Position>,
    ) -> Result<Part, Failure> {
        let until = self.until.unwrap_or(Timestamp::MAX);
        if status == Listed::Scheduled {
            let mut due = DueMessages::new(queue.clone(), self.from, until).page_size(PAGE);
            if let Some(position) = position {
                due = due.after(position);
            }
            let messages = due.next_page().await?.unwrap_or_default();
            return Ok((messages, due.position()));
        }
        let start = Position { index: Position::LEASED, instant: self.from, sequence: 0 };
        let start = position.unwrap_or(start);
        let mut listing = queue.list(status).page_size(PAGE).after(start);
        let messages = listing.next_page().await?.unwrap_or_default();
        Ok((messages, listing.position()))
    }

    /// Number of messages that are scheduled in the window, and whether it is exact.
    pub(super) async fn coming(&self, queue: &Queue<Bytes, Raw>) -> Result<(u64, bool), Failure> {
        let counts = DueCounts::of(queue, self.from, self.until).await?;
        Ok((counts.due, counts.is_exact))
    }

    /// The window and its messages in words.
    pub(super) fn told(&self, now: Timestamp, coming: Option<(u64, bool)>, ready: u64) -> Markup {
        html! {
            p role="status" {
                @match coming {
                    None => { "Leases that end from " (time(now, self.from)) " on." }
                    Some((count, is_exact)) => {
                        @if !is_exact { "About " }
                        strong { (number(count)) }
                        " due from " (time(now, self.from))
                        @if let Some(until) = self.until { " until " (time(now, until)) }
                        @else { " on" }
                        ", in this order."
                    }
                }
            }
            @if coming.is_some() && ready > 0 && self.from <= now {
                p.far { "Ready now, and not listed here: " (number(ready)) "." }
            }
        }
    }

    /// The window as the rest of a query, in instants: the typed words would mean another window
    /// later.
    pub(super) fn query(&self) -> String {
        let from = format!("&from={}", encoded(self.from.to_string().as_bytes()));
        let until = self.until.map(|it| format!("&until={}", encoded(it.to_string().as_bytes())));
        from + &until.unwrap_or_default()
    }
}

/// The form that leads to a window of a list.
pub(super) fn jump(queue: &str, state: &str, window: Option<&Window>) -> Markup {
    let is_due = state == "scheduled";
    let field = |name: &str, label: &str, value: Option<Timestamp>| {
        html! {
            label { (label) " "
                input.time name=(name) maxlength="80" autocomplete="off"
                    value=[value.map(|it| it.to_string())] placeholder="midnight, monday 09:00"; }
            label { span.far { "or " } span.unseen { (label) ", picked " }
                input type="datetime-local" name=(name); }
        }
    };
    html! {
        form.line method="get" action="messages" {
            input type="hidden" name="queue" value=(queue);
            input type="hidden" name="state" value=(state);
            (field("from", if is_due { "Due from" } else { "From" }, window.map(|it| it.from)))
            @if is_due { (field("until", "Until", window.and_then(|it| it.until))) }
            button { "Go to time" }
        }
    }
}
