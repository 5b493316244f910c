//! What the buttons do. Each answers with the page to look at next, so that a reload does nothing
//! again; what cannot be undone is asked about first.

use axum::extract::Request;
use axum::http::StatusCode;
use axum::http::header::LOCATION;
use axum::response::{IntoResponse, Response};
use delayline::backend::{Millis, Schedule};
use delayline::{MessageId, limits};
use delayline_json::duration;
use maud::{Markup, html};

use super::dead_views::{newest_first, order_query};
use super::layout::Frame;
use super::parts::message_link;
use crate::action::{Action, Outcome};
use crate::asked::Asked;
use crate::audited;
use crate::context::{Context, encoded_id, form};
use crate::failure::Failure;
use crate::ids::encoded;
use crate::params::Params;
use crate::when::moment;

pub(super) async fn pause(context: Context) -> Result<Response, Failure> {
    switch(&context, true).await
}

pub(super) async fn resume(context: Context) -> Result<Response, Failure> {
    switch(&context, false).await
}

async fn switch(context: &Context, pause: bool) -> Result<Response, Failure> {
    let (name, _) = context.queue()?;
    audited::switch(context, name, pause).await?;
    let note = if pause { "paused" } else { "resumed" };
    Ok(see(&format!("queue?queue={}&note={note}", encoded(name.as_bytes()))))
}

pub(super) async fn cancel(context: Context, request: Request) -> Result<Response, Failure> {
    context.require(Action::Cancel.needs())?;
    let fields = form(&context, request, &["sure"]).await?;
    one(&context, &fields, Action::Cancel, Some("Cancel")).await
}

pub(super) async fn reschedule(context: Context, request: Request) -> Result<Response, Failure> {
    context.require(Action::Reschedule(Schedule::NOW).needs())?;
    let fields = form(&context, request, &["when*"]).await?;
    let schedule = when(&context, &fields).await?.ok_or_else(no_time)?;
    one(&context, &fields, Action::Reschedule(schedule), None).await
}

pub(super) async fn redrive(context: Context, request: Request) -> Result<Response, Failure> {
    context.require(Action::Redrive(Schedule::NOW).needs())?;
    let fields = form(&context, request, &["scope", "id*", "page*"]).await?;
    let action = Action::Redrive(Schedule::NOW);
    match context.params.bytes("id") {
        Some(_) => one(&context, &fields, action, None).await,
        None => many(&context, &fields, action, None).await,
    }
}

pub(super) async fn purge(context: Context, request: Request) -> Result<Response, Failure> {
    context.require(Action::Purge.needs())?;
    let fields = form(&context, request, &["scope", "id*", "page*", "sure"]).await?;
    let sure = Some("Delete");
    match context.params.bytes("id") {
        Some(_) => one(&context, &fields, Action::Purge, sure).await,
        None => many(&context, &fields, Action::Purge, sure).await,
    }
}

/// Does something to the message of the query. `sure` is what a button says that asks first.
async fn one(
    context: &Context,
    fields: &Params,
    action: Action,
    sure: Option<&str>,
) -> Result<Response, Failure> {
    context.require(action.needs())?;
    let (name, _) = context.queue()?;
    let id = context.id()?;
    if let Some(verb) = sure.filter(|_| fields.text("sure").is_none()) {
        return Ok(ask(context, name, verb, &[id], None));
    }
    let outcomes = audited::on_messages(context, name, vec![id.clone()], action).await?;
    let word = outcomes.first().map_or("not_found", |outcome| outcome.word);
    Ok(see(&format!("{}&note={word}", message_link(name, &id))))
}

/// Does something to the selected letters of a page, or to all of it.
async fn many(
    context: &Context,
    fields: &Params,
    action: Action,
    sure: Option<&str>,
) -> Result<Response, Failure> {
    context.require(action.needs())?;
    let (name, served) = context.served(context.params.text("queue").unwrap_or_default())?;
    let field = match fields.text("scope") {
        Some("selected") => "id",
        Some("page") => "page",
        _ => return Err(Failure::Wrong("`scope` is `selected` or `page`".to_owned())),
    };
    let ids = fields.all(field).map(encoded_id).collect::<Result<Vec<_>, _>>()?;
    if ids.is_empty() {
        return Err(Failure::Wrong("no message was selected; nothing was done".to_owned()));
    }
    if ids.len() > limits::MAX_PAGE {
        return Err(Failure::Wrong(format!("at most {} at once", limits::MAX_PAGE)));
    }
    // What leads back to the page can be wrong, too, so it is read before anything is done.
    let after = context.params.text("after").map(|it| encoded(it.as_bytes()));
    let after = after.map(|after| format!("&after={after}")).unwrap_or_default();
    let order = order_query(newest_first(&context.params)?);
    let (_, now) = served.counts_for(true).await?;
    let filter = Asked::in_params(&context.params, now)?.query() + order;
    if let Some(verb) = sure.filter(|_| fields.text("sure").is_none()) {
        return Ok(ask(context, name, verb, &ids, Some(field)));
    }
    let outcomes = audited::on_messages(context, name, ids, action).await?;
    let done: Vec<&Outcome> = outcomes.iter().filter(|outcome| outcome.done).collect();
    let word = done.first().copied().or_else(|| outcomes.first());
    let word = word.map_or("not_found", |outcome| outcome.word);
    let (done, rest) = (done.len(), outcomes.len() - done.len());
    let of = encoded(name.as_bytes());
    Ok(see(&format!("dead?queue={of}{after}{filter}&note={word}&done={done}&rest={rest}")))
}

/// Asks whether to continue. If the ids do not stand in the address, they are fields of this name.
fn ask(
    context: &Context,
    queue: &str,
    verb: &str,
    ids: &[MessageId],
    field: Option<&str>,
) -> Response {
    let title = match ids {
        [id] => format!("{verb} {id}?"),
        _ => format!("{verb} {} messages?", ids.len()),
    };
    let back = match ids {
        [id] if field.is_none() => message_link(queue, id),
        _ => format!("dead?queue={}", encoded(queue.as_bytes())),
    };
    let content = html! {
        h1 { (title) }
        p { "This cannot be undone." }
        ul.ids { @for id in ids { li.id { (id) } } }
        // Without an action it goes to the address of this page.
        form method="post" {
            @if let Some(field) = field {
                input type="hidden" name="scope" value=(if field == "id" { "selected" } else { "page" });
                @for id in ids {
                    input type="hidden" name=(field) value=(encoded(id.as_bytes()));
                }
            }
            div.actions {
                button.danger name="sure" value="yes" { (verb) }
                a.button href=(back) { "Back" }
            }
        }
    };
    Frame { context, title: &title, queue: Some(queue), here: "", live: None }.page(&content)
}

/// The first field `when` that is not empty: a delay, or a time in the visitor's zone by the clock
/// of the queue of the query. `None` if all are empty.
pub(super) async fn when(context: &Context, fields: &Params) -> Result<Option<Schedule>, Failure> {
    let Some(text) = fields.typed_or_picked("when")? else { return Ok(None) };
    // A delay begins when the server gets it.
    if let Ok(delay) = duration(&text)
        && !text.contains(':')
    {
        return Ok(Some(Schedule::In(Millis::try_from(delay)?)));
    }
    let (_, served) = context.served(context.params.text("queue").unwrap_or_default())?;
    let (_, now) = served.counts_for(true).await?;
    Ok(Some(Schedule::At(moment(now, &text)?)))
}

/// Why a form without a time does nothing.
pub(super) fn no_time() -> Failure {
    Failure::Wrong("no time was given; nothing was done".to_owned())
}

/// The fields of a time: text, and a picker that browsers draw.
pub(super) fn when_fields(label: &str) -> Markup {
    html! {
        label { (label) " "
            input name="when" maxlength="80" autocomplete="off"
                placeholder="30m, 14:00, tomorrow 09:00"; }
        label { span.far { "or " } span.unseen { (label) ", picked " }
            input type="datetime-local" name="when" step="1"; }
    }
}

/// Sends the browser to a page next to this one.
pub(super) fn see(to: &str) -> Response {
    (StatusCode::SEE_OTHER, [(LOCATION, to)]).into_response()
}
