//! `delayline get`.

use std::fmt::Write as _;
use std::process::ExitCode;

use delayline::after::Member;
use delayline::message::{Attempt, Message, MessageState};
use delayline::update::Follower;
use delayline::{Bytes, Found, MessageId};
use delayline_json::{self as json, harmless, harmless_line};

use crate::args::{Get, Target};
use crate::failure::{Failure, SOME_BAD};
use crate::input;
use crate::print::{write, write_bytes};

pub(crate) async fn run(target: &Target, args: Get) -> Result<ExitCode, Failure> {
    let ids = input::ids(args.ids)?;
    if args.raw && ids.len() > 1 {
        return Err(Failure::usage("--raw takes one message only"));
    }
    let queue = target.open_known().await?;
    let mut unknown = false;
    for (number, id) in ids.iter().enumerate() {
        let found = queue.get(id.clone()).await?;
        unknown |= found == Found::Unknown;
        if args.raw {
            return raw(id, &found);
        }
        let text = if args.json { line(id, &found)? } else { text(id, &found) };
        let gap = if number > 0 && !args.json { "\n" } else { "" };
        write(&format!("{gap}{text}"))?;
    }
    Ok(if unknown { ExitCode::from(SOME_BAD) } else { ExitCode::SUCCESS })
}

fn raw(id: &MessageId, found: &Found<Bytes>) -> Result<ExitCode, Failure> {
    let Found::Live(message) = found else {
        return Err(Failure::input(format!("{id} has no payload: it is {}", state(found))));
    };
    write_bytes(&message.payload).map(drop)?;
    Ok(ExitCode::SUCCESS)
}

fn line(id: &MessageId, found: &Found<Bytes>) -> Result<String, Failure> {
    let value = match found {
        Found::Live(message) => json::message(message),
        _ => json::stateless(id, state(found)),
    };
    json::line(&value).map_err(|error| Failure::other("no JSON", &error))
}

const fn state(found: &Found<Bytes>) -> &'static str {
    match found {
        Found::Live(message) => message.info.state.status().name(),
        Found::Finished(status) => status.name(),
        Found::Unknown => "unknown",
        _ => "unreadable",
    }
}

fn text(id: &MessageId, found: &Found<Bytes>) -> String {
    let mut rows = vec![("id", harmless_line(&id.to_string())), ("state", state(found).to_owned())];
    let Found::Live(message) = found else { return lines(rows) };
    rows.extend(message.headers.kind().map(|kind| ("kind", harmless_line(kind))));
    rows.extend(details(message));
    let mut text = lines(rows);
    for (name, value) in message.headers.iter() {
        let (plain, base64) = json::text_or_base64(value);
        let kind = if plain.is_some() { "" } else { " (base64)" };
        let value = harmless_line(plain.or(base64.as_deref()).unwrap_or_default());
        let _ = writeln!(text, "header {}{kind}: {value}", harmless_line(name));
    }
    let contents =
        [("payload", Some(&message.payload)), ("checkpoint", message.checkpoint.as_ref())];
    for (name, bytes) in contents {
        let Some(bytes) = bytes else { continue };
        let (plain, base64) = json::text_or_base64(bytes);
        let kind = if plain.is_some() { "" } else { ", in base64" };
        let _ = writeln!(text, "{name} of {} bytes{kind}:", bytes.len());
        // Indented, so that no content can look like a line of ours.
        for line in plain.or(base64.as_deref()).unwrap_or_default().lines() {
            let _ = writeln!(text, "  {}", harmless(line));
        }
    }
    text
}

fn details(message: &Message<Bytes>) -> Vec<(&'static str, String)> {
    let info = &message.info;
    let mut rows = Vec::new();
    match info.state {
        MessageState::Leased { deadline, cancel_requested } => {
            rows.push(("lease until", deadline.to_string()));
            rows.extend(info.holder.map(|process| ("held by", process.to_string())));
            if cancel_requested {
                rows.push(("cancel", "requested".to_owned()));
            }
        }
        MessageState::Dead { reason, since } => {
            rows.push(("reason", reason.name().replace('_', "-")));
            rows.push(("dead since", since.to_string()));
        }
        _ => {}
    }
    rows.extend([("due", info.due.to_string()), ("enqueued", info.enqueued_at.to_string())]);
    rows.extend(info.group.as_ref().map(|group| ("group", harmless_line(&group.to_string()))));
    rows.extend([
        ("priority", info.priority.name().to_owned()),
        ("failures", format!("{} of {}", info.failures, info.max_failures)),
        ("crashes", format!("{} of {}", info.crashes, info.max_crashes)),
        ("epoch", info.epoch.to_string()),
        ("sequence", info.sequence.to_string()),
    ]);
    rows.extend(info.expires_at.map(|expires| ("expires", expires.to_string())));
    rows.extend(info.first_error.as_ref().map(|error| ("first error", harmless_line(error))));
    rows.extend(info.last_error.as_ref().map(|error| ("last error", harmless_line(error))));
    let progress = info.progress.as_ref();
    rows.extend(progress.map(|progress| ("progress", harmless_line(&progress.to_string()))));
    if let Some(waiting) = &message.waiting {
        let member = |member: &Member| ("after", harmless_line(&member.to_string()));
        rows.extend(waiting.members.iter().map(member));
        rows.push(("on failure", waiting.on_failure.name().to_owned()));
        rows.push(("wait at most", format!("{:?}", waiting.at_most)));
    }
    rows.extend(message.follower.as_ref().map(|follower| ("follower", described(follower))));
    rows.extend(message.attempts.iter().map(|attempt| ("attempt", in_words(attempt))));
    rows
}

/// The update that replaces a leased message.
fn described(follower: &Follower) -> String {
    let (due, enqueued, bytes) = (follower.due, follower.enqueued_at, follower.payload_bytes);
    let mut text = format!("due {due}, enqueued {enqueued}, payload of {bytes} bytes");
    if let Some(group) = &follower.group {
        let _ = write!(text, ", group {}", harmless_line(&group.to_string()));
    }
    let _ = write!(text, ", priority {}", follower.priority.name());
    if let Some(expires) = follower.expires_at {
        let _ = write!(text, ", expires {expires}");
    }
    text
}

fn in_words(attempt: &Attempt) -> String {
    let error = attempt.error.as_ref().map(|error| format!(": {}", harmless_line(error)));
    format!("{} {}{}", attempt.at, attempt.outcome.name(), error.unwrap_or_default())
}

fn lines(rows: Vec<(&'static str, String)>) -> String {
    rows.into_iter().map(|(name, value)| format!("{name:<12} {value}\n")).collect()
}

#[cfg(test)]
mod tests {
    use delayline::Timestamp;
    use delayline::admin::ProcessId;
    use delayline::message::{Group, MessageInfo};

    use super::*;

    #[test]
    fn the_update_of_a_leased_message_and_its_holder_are_shown() {
        let at = |ms| Timestamp::from_ms(ms).unwrap();
        let id = MessageId::new("a").unwrap();
        let state = MessageState::Leased { deadline: at(9), cancel_requested: false };
        let mut info = MessageInfo::new(id.clone(), state, 7, at(1), at(2));
        info.holder = Some(ProcessId::from_bytes([1; 8]));
        let mut follower = Follower::new(at(3), at(4));
        follower.group = Group::new("t\u{1b}").ok();
        let mut message = Message::new(info, Bytes::new());
        message.follower = Some(follower);
        let text = text(&id, &Found::Live(Box::new(message)));
        let follower = format!(
            "follower     due {}, enqueued {}, payload of 0 bytes, group t\\u{{1b}}, priority normal\n",
            at(4),
            at(3)
        );
        assert!(text.contains(&follower), "{text}");
        assert!(text.contains(&format!("held by      {}\n", "01".repeat(8))), "{text}");
    }
}
