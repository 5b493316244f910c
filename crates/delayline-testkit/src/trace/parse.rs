//! Parses the text form of a trace.

use std::str::FromStr;

use delayline_core::{
    Backlog, Check, Claim, ClaimId, ConsumerName, Destination, DestinationKey, Extend, FinishedIds,
    GroupName, HandOff, Known, Lease, List, MessageId, Millis, NewMessage, NewResult, Op, Outcome,
    Position, Priority, Redrive, Relay, Reschedule, Resolution, Schedule, Settlement, Status,
    Timestamp, Update, UpdateContent, UpdateDue, UpdateToken,
};

use super::bytes::decode;
use super::{Step, Trace};

/// A line that is not a valid operation.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {reason}")]
pub struct TraceError {
    /// The number of the line, from 1.
    pub line: usize,
    /// What is wrong with it.
    pub reason: String,
}

impl FromStr for Trace {
    type Err = TraceError;

    fn from_str(text: &str) -> Result<Self, TraceError> {
        let lines = text.lines().enumerate();
        let steps = lines
            .filter(|(_, line)| !line.trim().is_empty() && !line.starts_with('#'))
            .map(|(n, line)| line.parse().map_err(|reason| TraceError { line: n + 1, reason }))
            .collect::<Result<_, _>>()?;
        Ok(Self { steps })
    }
}

impl FromStr for Step {
    type Err = String;

    fn from_str(line: &str) -> Result<Self, String> {
        let mut words = Words(line.split_whitespace().collect());
        let at = timestamp(words.word()?)?;
        let name = words.word()?;
        let op = match name {
            "enqueue" => Op::Enqueue(words.items(message)?),
            "claim" => Op::Claim(claim(&mut words)?),
            "relay" => {
                let max = number(words.required("max")?)?;
                Op::Relay(Relay::new(destination(&mut words)?, max))
            }
            "settle" => Op::Settle(words.items(settlement)?),
            "hand_off" => Op::HandOff(words.items(hand_off)?),
            "extend" => {
                let duration = millis(words.required("lease")?)?;
                let leases = words.items(|item| Ok((id(item.word()?)?, lease(item.word()?)?)))?;
                Op::Extend(Extend::new(leases, duration))
            }
            "cancel" => Op::Cancel(words.ids()?),
            "reschedule" => {
                Op::Reschedule(words.items(|item| {
                    Ok(Reschedule::new(id(item.word()?)?, required_schedule(item)?))
                })?)
            }
            "redrive" => {
                let schedule = required_schedule(&mut words)?;
                Op::Redrive(Redrive::new(words.ids()?, schedule))
            }
            "purge" => Op::Purge(words.ids()?),
            "pause" => Op::Pause,
            "resume" => Op::Resume,
            "get" => Op::Get(words.ids()?),
            "progress" => Op::Progress(words.ids()?),
            "list" => Op::List(
                List::new(status(words.word()?)?, number(words.required("limit")?)?)
                    .after(words.optional("after").map(position).transpose()?),
            ),
            "stats" => Op::Stats,
            "forecast" => Op::Forecast(words.all(millis)?),
            "history" => Op::History(match words.word()? {
                "minutes" => Resolution::Minutes,
                "hours" => Resolution::Hours,
                other => return Err(format!("there is no resolution {other:?}")),
            }),
            "check" => Op::Check(check(&mut words)?),
            "repair" => Op::Repair(check(&mut words)?),
            _ => return Err(format!("there is no operation {name:?}")),
        };
        words.end()?;
        Ok(Self { at, op })
    }
}

/// The remaining words of a line or an item.
struct Words<'a>(Vec<&'a str>);

impl<'a> Words<'a> {
    /// Takes the next word.
    fn word(&mut self) -> Result<&'a str, String> {
        if self.0.is_empty() { Err("a word is missing".to_owned()) } else { Ok(self.0.remove(0)) }
    }

    /// Takes the value of the first `name=value`, at any position.
    fn optional(&mut self, name: &str) -> Option<&'a str> {
        let value = |word: &'a str| word.strip_prefix(name)?.strip_prefix('=');
        let at = self.0.iter().position(|word| value(word).is_some())?;
        value(self.0.remove(at))
    }

    fn required(&mut self, name: &str) -> Result<&'a str, String> {
        self.optional(name).ok_or_else(|| format!("{name}= is missing"))
    }

    fn flag(&mut self, name: &str) -> bool {
        let at = self.0.iter().position(|word| *word == name);
        at.is_some_and(|at| self.0.remove(at) == name)
    }

    /// Takes all remaining words as items separated by `;`.
    fn items<T>(
        &mut self,
        read: impl Fn(&mut Self) -> Result<T, String>,
    ) -> Result<Vec<T>, String> {
        let words = std::mem::take(&mut self.0);
        let groups = words.split(|word| *word == ";").filter(|group| !group.is_empty());
        let items = groups.map(|group| {
            let mut item = Words(group.to_vec());
            let value = read(&mut item)?;
            item.end()?;
            Ok(value)
        });
        items.collect()
    }

    /// Takes all remaining words as ids.
    fn ids(&mut self) -> Result<Vec<MessageId>, String> {
        self.all(id)
    }

    /// Takes all remaining words.
    fn all<T>(&mut self, read: impl Fn(&'a str) -> Result<T, String>) -> Result<Vec<T>, String> {
        std::mem::take(&mut self.0).into_iter().map(read).collect()
    }

    fn end(&self) -> Result<(), String> {
        self.0.first().map_or(Ok(()), |word| Err(format!("what is {word:?}?")))
    }
}

fn message(item: &mut Words<'_>) -> Result<NewMessage, String> {
    let mut message = NewMessage::new(id(item.word()?)?, "");
    if let Some(payload) = item.optional("payload") {
        message.payload = decode(payload)?;
    }
    while let Some(header) = item.optional("header") {
        let (name, value) = header.split_once(':').ok_or("a header is name:value")?;
        fits(message.headers.set(text(name)?, decode(value)?))?;
    }
    message.schedule = schedule(item, "")?.unwrap_or(Schedule::NOW);
    message.expires = schedule(item, "expires-")?;
    if let Some(name) = item.optional("priority") {
        let known = Priority::ALL.into_iter().find(|priority| priority.name() == name);
        message.priority = known.ok_or_else(|| format!("there is no priority {name:?}"))?;
    }
    if let Some(most) = item.optional("failures") {
        message.max_failures = number(most)?;
    }
    if let Some(most) = item.optional("crashes") {
        message.max_crashes = number(most)?;
    }
    if item.flag("reuse") {
        message.finished_ids = FinishedIds::Reuse;
    }
    if let Some(window) = item.optional("once-per") {
        message.once_per = Some(millis(window)?);
    }
    if let Some(token) = item.optional("update") {
        message.known = Known::Update(update(item, token)?);
    }
    Ok(message)
}

fn update(item: &mut Words<'_>, token: &str) -> Result<Update, String> {
    let content = match item.required("content")? {
        "keep" => UpdateContent::Keep,
        "replace" => UpdateContent::Replace,
        other => return Err(format!("what is content={other}?")),
    };
    let due = match item.required("due")? {
        "keep" => UpdateDue::Keep,
        "set" => UpdateDue::Set,
        "later" => UpdateDue::Later { at_most: millis(item.required("at-most")?)? },
        other => return Err(format!("what is due={other}?")),
    };
    let bytes = <[u8; UpdateToken::BYTES]>::try_from(&*decode(token)?);
    let bytes = bytes.map_err(|_| format!("{token:?} is not {} bytes", UpdateToken::BYTES))?;
    Ok(Update::new(content, due, UpdateToken::from_bytes(bytes)))
}

fn claim(words: &mut Words<'_>) -> Result<Claim, String> {
    Ok(Claim::new(
        fits(ConsumerName::new(decode(words.required("consumer")?)?))?,
        claim_id(words.required("claim")?)?,
        number(words.required("max")?)?,
        millis(words.required("lease")?)?,
    ))
}

fn settlement(item: &mut Words<'_>) -> Result<Settlement, String> {
    let (id, lease) = (id(item.word()?)?, lease(item.word()?)?);
    let outcome = match item.word()? {
        "ack" => Outcome::Ack,
        "retry" => Outcome::Retry {
            delay: millis(item.required("delay")?)?,
            error: text(item.required("error")?)?,
        },
        "snooze" => Outcome::Snooze { delay: millis(item.required("delay")?)? },
        "release" => Outcome::Release,
        "reject" => Outcome::Reject { error: text(item.required("error")?)? },
        other => return Err(format!("there is no outcome {other:?}")),
    };
    Ok(Settlement::new(id, lease, outcome))
}

fn hand_off(item: &mut Words<'_>) -> Result<HandOff, String> {
    let words = std::mem::take(&mut item.0);
    let mut parts = words.split(|word| *word == ">").map(|part| Words(part.to_vec()));
    let mut first = parts.next().unwrap_or_else(|| Words(Vec::new()));
    let settlement = settlement(&mut first)?;
    let result = match first.optional("result") {
        Some(result) => {
            Some(NewResult::new(decode(result)?, millis(first.required("retention")?)?))
        }
        None => None,
    };
    first.end()?;
    let messages = parts.map(|mut part| {
        let message = message(&mut part)?;
        part.end()?;
        Ok(message)
    });
    Ok(HandOff::new(settlement, messages.collect::<Result<_, String>>()?).with_result(result))
}

fn destination(words: &mut Words<'_>) -> Result<Destination, String> {
    let key = |word| fits(DestinationKey::new(decode(word)?));
    let limit = words.optional("full").map(number).transpose()?;
    if let Some(list) = words.optional("list") {
        return Ok(Destination::List { key: key(list)?, max_len: limit });
    }
    let key = key(words.required("stream")?)?;
    let backlog = match limit {
        None => None,
        Some(max) => {
            let group = fits(GroupName::new(decode(words.required("group")?)?))?;
            Some(Backlog::new(group, max))
        }
    };
    Ok(Destination::Stream { key, backlog })
}

fn check(words: &mut Words<'_>) -> Result<Check, String> {
    let limit = number(words.required("limit")?)?;
    Ok(Check::new(limit).after(words.optional("after").map(position).transpose()?))
}

fn required_schedule(words: &mut Words<'_>) -> Result<Schedule, String> {
    schedule(words, "")?.ok_or_else(|| "in= or at= is missing".to_owned())
}

fn schedule(words: &mut Words<'_>, prefix: &str) -> Result<Option<Schedule>, String> {
    if let Some(delay) = words.optional(&format!("{prefix}in")) {
        return Ok(Some(Schedule::In(millis(delay)?)));
    }
    let instant = words.optional(&format!("{prefix}at"));
    instant.map(|instant| Ok(Schedule::At(timestamp(instant)?))).transpose()
}

fn status(name: &str) -> Result<Status, String> {
    let known = Status::ALL.iter().find(|status| status.name() == name);
    known.copied().ok_or_else(|| format!("there is no status {name:?}"))
}

fn position(word: &str) -> Result<Position, String> {
    let mut parts = word.splitn(3, '/');
    let mut part = || parts.next().ok_or_else(|| format!("{word:?} is not a position"));
    Ok(Position {
        index: number(part()?)?,
        instant: timestamp(part()?)?,
        sequence: number(part()?)?,
    })
}

fn lease(word: &str) -> Result<Lease, String> {
    let (claim, epoch) = word.split_once('/').ok_or_else(|| format!("{word:?} is no lease"))?;
    Ok(Lease { claim_id: claim_id(claim)?, epoch: number(epoch)? })
}

fn claim_id(word: &str) -> Result<ClaimId, String> {
    let bytes = <[u8; ClaimId::BYTES]>::try_from(&*decode(word)?);
    bytes.map(ClaimId::from_bytes).map_err(|_| format!("{word:?} is not {} bytes", ClaimId::BYTES))
}

fn id(word: &str) -> Result<MessageId, String> {
    fits(MessageId::new(decode(word)?))
}

fn text(word: &str) -> Result<String, String> {
    String::from_utf8(decode(word)?.into()).map_err(|error| error.to_string())
}

fn millis(word: &str) -> Result<Millis, String> {
    fits(Millis::new(number(word)?))
}

fn timestamp(word: &str) -> Result<Timestamp, String> {
    fits(Timestamp::from_ms(number(word)?))
}

fn number<N: FromStr>(word: &str) -> Result<N, String> {
    word.parse().map_err(|_| format!("{word:?} is not a number that fits"))
}

fn fits<T>(result: Result<T, delayline_core::Violation>) -> Result<T, String> {
    result.map_err(|violation| violation.to_string())
}
