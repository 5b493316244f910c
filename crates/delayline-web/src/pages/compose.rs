//! Sends a message, and edits a dead letter to redrive it.

use axum::extract::Request;
use axum::response::Response;
use delayline::after;
use delayline::backend::{
    Headers, Known, NewMessage, Schedule, Update, UpdateContent, UpdateDue, UpdateToken,
    is_printable,
};
use delayline::limits::MAX_UPDATE_BYTES;
use delayline::message::{Group, Message, MessageState, Priority};
use delayline::{Bytes, Found, MessageId};
use maud::{Markup, html};
use uuid::Uuid;
use xxhash_rust::xxh3::xxh3_64;

use super::buttons::{see, when, when_fields};
use super::layout::Frame;
use super::parts::message_link;
use crate::Role;
use crate::audited;
use crate::context::{Context, form};
use crate::failure::Failure;
use crate::ids::encoded;
use crate::origin::{self, SQS_HEADER};
use crate::params::Params;

/// The form of a new message.
pub(super) async fn send_page(context: Context) -> Result<Response, Failure> {
    context.require(Role::Operator)?;
    let (name, _) = context.queue()?;
    // With an id from here on, a form that is sent twice sends one message.
    let id = Uuid::now_v7().to_string();
    let content = html! {
        h1 { "Send a message" }
        form.fields method="post" action=(format!("send?queue={}", encoded(name.as_bytes()))) {
            label { "Id " input name="id" value=(id) required maxlength="384" autocomplete="off"; }
            (content_fields("", ""))
            label { "Group, such as a tenant (empty: none) "
                input name="group" maxlength="128" autocomplete="off";
            }
            label { "Priority (normal with a group) "
                select name="priority" {
                    @for priority in Priority::ALL {
                        option value=(priority.name()) selected[priority == Priority::Normal] {
                            (priority.name())
                        }
                    }
                }
            }
            div.actions { (when_fields("Due in, or at (empty: now)")) }
            div.actions { button { "Send" } }
        }
    };
    Ok(frame(&context, "Send a message", name, &content))
}

/// Sends the message of the form.
pub(super) async fn send(context: Context, request: Request) -> Result<Response, Failure> {
    context.require(Role::Operator)?;
    let (name, _) = context.queue()?;
    let fields =
        form(&context, request, &["id", "payload", "headers", "group", "priority", "when*"])
            .await?;
    let id = MessageId::new(fields.bytes("id").unwrap_or_default().trim_ascii().to_vec())?;
    let mut message = NewMessage::new(id.clone(), payload(&fields));
    message.headers = headers(&fields)?;
    origin::known(&context.visitor, &message.headers).map_err(Failure::Wrong)?;
    message.group = fields.text("group").map(Group::try_from).transpose()?;
    message.priority = priority(&fields)?;
    message.schedule = when(&context, &fields).await?.unwrap_or(Schedule::NOW);
    let outcome = audited::send(&context, name, "send", message).await?;
    Ok(see(&format!("{}&note={outcome}", message_link(name, &id))))
}

/// The form of a dead letter's content.
pub(super) async fn edit_page(context: Context) -> Result<Response, Failure> {
    context.require(Role::Operator)?;
    context.require(context.shared.contents_for)?;
    let (name, _) = context.queue()?;
    let letter = letter(&context, name).await?;
    let id = &letter.info.id;
    let Some((payload, headers)) = texts(&context, &letter) else {
        let content = html! {
            h1 { "Edit " (id) }
            p.alert {
                "This letter cannot be edited here: its payload and headers must be text that a form \
                 sends back unchanged, of at most " (MAX_UPDATE_BYTES) " bytes together. Send it \
                 again with \
                 `delayline send`, or through the API."
            }
            p { a href=(message_link(name, id)) { "Back" } }
        };
        return Ok(frame(&context, "Edit", name, &content));
    };
    let to = message_link(name, id).replacen("message", "edit", 1);
    let content = html! {
        h1 { "Edit and redrive " (id) }
        p { "The message gets this content and is due again. Its failures, errors and expiry are gone." }
        form.fields method="post" action=(to) {
            input type="hidden" name="of" value=(version(&letter));
            (content_fields(&payload, &headers))
            div.actions { (when_fields("Due in, or at (empty: now)")) }
            div.actions {
                button { "Redrive with this content" }
                a.button href=(message_link(name, id)) { "Back" }
            }
        }
    };
    Ok(frame(&context, "Edit and redrive", name, &content))
}

/// Replaces a dead letter by the message of the form.
pub(super) async fn edit(context: Context, request: Request) -> Result<Response, Failure> {
    context.require(Role::Operator)?;
    context.require(context.shared.contents_for)?;
    let (name, _) = context.queue()?;
    let fields = form(&context, request, &["of", "payload", "headers", "when*"]).await?;
    let letter = letter(&context, name).await?;
    let of = fields.text("of").unwrap_or_default();
    if of != version(&letter) {
        let why = "the letter has changed since this form was opened; nothing was done";
        return Err(Failure::Busy(why.to_owned()));
    }
    let info = &letter.info;
    let mut message = NewMessage::new(info.id.clone(), payload(&fields));
    message.headers = headers(&fields)?;
    // It may come from a queue that the visitor does not know, and that the form does not name.
    let shown = origin::shown(&context.visitor, &letter.headers);
    if message.headers.get(SQS_HEADER) != shown.get(SQS_HEADER) {
        origin::known(&context.visitor, &message.headers).map_err(Failure::Wrong)?;
    } else if let Some(stored) = letter.headers.get(SQS_HEADER) {
        message.headers.set(SQS_HEADER, stored.clone())?;
    }
    message.group.clone_from(&info.group);
    message.priority = info.priority;
    (message.max_failures, message.max_crashes) = (info.max_failures, info.max_crashes);
    message.schedule = when(&context, &fields).await?.unwrap_or(Schedule::NOW);
    // The same form sent twice has the same token, and changes nothing the second time.
    let token = UpdateToken::from_bytes((xxh3_64(of.as_bytes()) | 1).to_be_bytes());
    let update = Update::new(UpdateContent::Replace, UpdateDue::Set, token);
    message.known = Known::Update(update);
    let outcome = audited::send(&context, name, "edit_redrive", message).await?;
    let note = if outcome == "updated" || outcome == "created" { "edited" } else { outcome };
    Ok(see(&format!("{}&note={note}", message_link(name, &info.id))))
}

/// The dead letter of the query, as it is stored.
async fn letter(context: &Context, queue: &str) -> Result<Box<Message<Bytes>>, Failure> {
    if context.shared.redacts() {
        let why = "contents are redacted here, so an edited letter would lose what is not shown";
        return Err(Failure::Wrong(why.to_owned()));
    }
    match context.get(queue, &context.id()?).await? {
        Found::Live(message) if matches!(message.info.state, MessageState::Dead { .. }) => {
            Ok(message)
        }
        _ => Err(Failure::Busy("it is not a dead letter; nothing was done".to_owned())),
    }
}

/// Differs once the letter has been redriven or replaced.
fn version(letter: &Message<Bytes>) -> String {
    let since = match letter.info.state {
        MessageState::Dead { since, .. } => since.as_ms(),
        _ => 0,
    };
    format!("{}-{}-{since}", letter.info.sequence, letter.info.epoch)
}

fn content_fields(payload: &str, headers: &str) -> Markup {
    html! {
        label { "Payload "
            // A browser drops the first line break.
            textarea name="payload" rows="10" spellcheck="false" { "\n" (payload) }
        }
        label { "Headers, one \"name: value\" a line "
            textarea name="headers" rows="4" spellcheck="false" { "\n" (headers) }
        }
    }
}

/// Payload and headers as a form can show them and send them back unchanged.
fn texts(context: &Context, letter: &Message<Bytes>) -> Option<(String, String)> {
    let is_safe = |it: char| it == '\n' || it == '\t' || is_printable(it);
    let text = |bytes: &[u8]| {
        let text = std::str::from_utf8(bytes).ok()?;
        text.chars().all(is_safe).then(|| text.to_owned())
    };
    // As much as an update may have.
    if letter.payload.len().saturating_add(letter.headers.encoded_len()) > MAX_UPDATE_BYTES {
        return None;
    }
    // A form cannot say what it waits for.
    if letter.waiting.is_some() || after::wakes(&letter.headers).is_some() {
        return None;
    }
    let payload = text(&letter.payload)?;
    let mut lines = String::new();
    for (name, value) in origin::shown(&context.visitor, &letter.headers).iter() {
        let value = text(value).filter(|it| !it.contains('\n') && it.trim() == it)?;
        let fits = name.trim() == name && name.chars().all(is_printable) && !name.contains(':');
        fits.then_some(())?;
        lines += &format!("{name}: {value}\n");
    }
    Some((payload, lines))
}

/// The payload of a form. Browsers send every line break as two characters.
fn payload(fields: &Params) -> Vec<u8> {
    let text = fields.texts("payload").next().unwrap_or_default();
    text.replace("\r\n", "\n").into_bytes()
}

fn headers(fields: &Params) -> Result<Headers, Failure> {
    let text = fields.texts("headers").next().unwrap_or_default();
    let mut headers = Headers::default();
    for (line, number) in text.lines().zip(1_u32..).filter(|(line, _)| !line.trim().is_empty()) {
        let why = || Failure::Wrong(format!("line {number} of the headers is not `name: value`"));
        let (name, value) = line.split_once(':').ok_or_else(why)?;
        let value = Bytes::from(value.trim().to_owned().into_bytes());
        if after::HEADERS.contains(&name.trim()) {
            let why = format!("line {number}: a form cannot set this header");
            return Err(Failure::Wrong(why));
        }
        headers.set(name.trim(), value)?;
    }
    Ok(headers)
}

fn priority(fields: &Params) -> Result<Priority, Failure> {
    let name = fields.text("priority").unwrap_or(Priority::Normal.name());
    let known = Priority::ALL.into_iter().find(|priority| priority.name() == name);
    known.ok_or_else(|| {
        let names = Priority::ALL.map(Priority::name).join(", ");
        Failure::Wrong(format!("`priority` is one of {names}"))
    })
}

fn frame(context: &Context, title: &str, queue: &str, content: &Markup) -> Response {
    Frame { context, title, queue: Some(queue), here: "", live: None }.page(content)
}
