//! Searches for messages by group, kind, header and content.

use std::borrow::Cow;
use std::collections::VecDeque;
use std::fmt;

use delayline::admin::{Listed, Listing};
use delayline::codec::Raw;
use delayline::message::{Group, Message, MessageInfo};
use delayline::{Bytes, Error, Found, Queue};

/// Conditions, all of which a message must meet to be found.
///
/// `Debug` does not show them, because they may be a part of a payload.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Wanted {
    group: Option<Group>,
    kind: Option<String>,
    header: Option<(String, Option<String>)>,
    content: Option<String>,
}

impl Wanted {
    /// Selects messages of this group and kind, with this header (`NAME`, or `NAME=TEXT` for a
    /// value that contains the text), whose payload contains `content`. An empty text counts as
    /// `None`.
    ///
    /// # Errors
    ///
    /// A sentence, if all are `None`, a text has more than 1,024 bytes, the group is invalid, or
    /// the header has no name.
    pub fn new(
        group: Option<&str>,
        kind: Option<&str>,
        header: Option<&str>,
        content: Option<&str>,
    ) -> Result<Self, String> {
        let given = |text: Option<&str>| text.map(str::to_owned).filter(|text| !text.is_empty());
        let (kind, header, content) = (given(kind), given(header), given(content));
        if [&kind, &header, &content].into_iter().flatten().any(|it| it.len() > MOST_BYTES) {
            return Err(format!("a search has at most {MOST_BYTES} bytes in each field"));
        }
        let group = given(group).map(Group::new).transpose().map_err(|why| why.to_string())?;
        if group.is_none() && kind.is_none() && header.is_none() && content.is_none() {
            return Err("a search needs a group, a kind, a header or a content".to_owned());
        }
        if header.as_ref().is_some_and(|it| it.starts_with('=')) {
            return Err("the header to search for has no name".to_owned());
        }
        let header = header.map(|header| match header.split_once('=') {
            Some((name, value)) => (name.to_owned(), given(Some(value))),
            None => (header, None),
        });
        Ok(Self { group, kind, header, content })
    }

    /// Returns `true` if the message meets all conditions. Bytes that are not UTF-8 match no text.
    #[must_use]
    pub fn matches(&self, message: &Message<Bytes>) -> bool {
        let is_kind = |kind: &String| message.headers.kind() == Some(kind);
        let has_header = |(name, text): &(String, Option<String>)| {
            let value = message.headers.get(name);
            value.is_some_and(|value| text.as_ref().is_none_or(|text| contains(value, text)))
        };
        self.is_of_group(&message.info)
            && self.kind.as_ref().is_none_or(is_kind)
            && self.header.as_ref().is_none_or(has_header)
            && self.content.as_ref().is_none_or(|text| contains(&message.payload, text))
    }

    /// Returns whether the group of a message is wanted, which is known before its content is read.
    fn is_of_group(&self, info: &MessageInfo) -> bool {
        self.group.as_ref().is_none_or(|group| info.group.as_ref() == Some(group))
    }
}

/// Changes a message before it is examined, so that hidden parts are not found.
type See = dyn Fn(&mut Message<Bytes>) + Send + Sync;

/// Takes a time that is linear in the sum of both lengths, because payloads may be hostile.
fn contains(bytes: &[u8], text: &str) -> bool {
    match String::from_utf8_lossy(bytes) {
        Cow::Borrowed(whole) => whole.contains(text),
        Cow::Owned(whole) => whole.contains(text),
    }
}

impl fmt::Debug for Wanted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Wanted").finish_non_exhaustive()
    }
}

/// Searches the messages of some states, a few at a time.
///
/// Messages that change their state meanwhile may be missed, or found twice.
pub struct MessageSearch {
    queue: Queue<Bytes, Raw>,
    wanted: Wanted,
    states: VecDeque<Listed>,
    listing: Option<Listing>,
    /// Messages that were listed and have not been examined yet.
    listed: VecDeque<MessageInfo>,
    see: Box<See>,
    examined: u64,
    bytes: u64,
}

impl MessageSearch {
    /// Searches these states, in this order.
    #[must_use]
    pub fn new(
        queue: Queue<Bytes, Raw>,
        states: impl IntoIterator<Item = Listed>,
        wanted: Wanted,
    ) -> Self {
        Self {
            queue,
            wanted,
            states: states.into_iter().collect(),
            listing: None,
            listed: VecDeque::new(),
            see: Box::new(|_| {}),
            examined: 0,
            bytes: 0,
        }
    }

    /// Changes each message before it is examined. Use it to remove parts that must not be found.
    #[must_use]
    pub fn seeing(self, see: impl Fn(&mut Message<Bytes>) + Send + Sync + 'static) -> Self {
        Self { see: Box::new(see), ..self }
    }

    /// Number of messages that were examined.
    #[must_use]
    pub const fn examined(&self) -> u64 {
        self.examined
    }

    /// Number of bytes of their payloads.
    #[must_use]
    pub const fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Examines the next messages: at most [`AT_ONCE`](Self::AT_ONCE), whose payloads have about 4
    /// MiB at most, and up to a page of messages of other groups, whose payloads are not read.
    /// Returns the matching messages, or `None` after the last message.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, the messages of this step may be skipped.
    ///
    /// # Errors
    ///
    /// Those of [`Queue::list`] and [`Queue::get_many`]. The messages of this step may be skipped.
    pub async fn step(&mut self) -> Result<Option<Vec<Message<Bytes>>>, Error> {
        while self.listed.is_empty() {
            let Some(listing) = &mut self.listing else {
                let Some(state) = self.states.pop_front() else { return Ok(None) };
                self.listing = Some(self.queue.list(state));
                continue;
            };
            match listing.next_page().await? {
                Some(page) => {
                    let listed = page.len();
                    self.listed.extend(page.into_iter().filter(|it| self.wanted.is_of_group(it)));
                    self.examined += (listed - self.listed.len()) as u64;
                    if self.listed.is_empty() {
                        return Ok(Some(Vec::new()));
                    }
                }
                None => self.listing = None,
            }
        }
        let (mut ids, mut bytes) = (Vec::new(), 0_usize);
        while let Some(info) = self.listed.front() {
            let with_next = bytes.saturating_add(info.payload_bytes);
            if ids.len() == Self::AT_ONCE || (!ids.is_empty() && with_next > STEP_BYTES) {
                break;
            }
            bytes = with_next;
            ids.extend(self.listed.pop_front().map(|info| info.id));
        }
        self.examined += ids.len() as u64;
        let mut matching = Vec::new();
        for found in self.queue.get_many(ids).await? {
            let Found::Live(mut message) = found else { continue };
            self.bytes += message.payload.len() as u64;
            (self.see)(&mut message);
            if self.wanted.matches(&message) {
                matching.push(*message);
            }
        }
        Ok(Some(matching))
    }

    /// Maximum number of messages that one step examines.
    pub const AT_ONCE: usize = 16;
}

impl fmt::Debug for MessageSearch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MessageSearch").field("examined", &self.examined).finish_non_exhaustive()
    }
}

/// Maximum number of bytes of each text of a search.
const MOST_BYTES: usize = 1_024;

/// Maximum number of payload bytes that one step reads, unless one message has more.
const STEP_BYTES: usize = 4 << 20;

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    async fn queue() -> Queue<Bytes, Raw> {
        delayline::connect("memory:").await.unwrap().queue("orders").await.unwrap().codec(Raw)
    }

    async fn search(search: MessageSearch) -> (Vec<String>, u64) {
        let (mut search, mut ids) = (search, Vec::new());
        while let Some(found) = search.step().await.unwrap() {
            ids.extend(found.iter().map(|message| message.info.id.to_string()));
        }
        (ids, search.examined())
    }

    fn wanted(kind: &str, header: &str, content: &str) -> Wanted {
        Wanted::new(None, Some(kind), Some(header), Some(content)).unwrap()
    }

    #[tokio::test]
    async fn all_that_is_given_must_match_in_the_states_that_are_given() {
        let queue = queue().await;
        for (id, delay, region, payload) in [
            ("a", 0, "eu-west", &b"{\"customer\":17}"[..]),
            ("b", 3_600, "eu-north", b"{\"customer\":17}"),
            ("c", 3_600, "us", b"{\"customer\":8}"),
            ("d", 3_600, "", b"\xff17\xfe"),
        ] {
            let draft = queue.message(&Bytes::copy_from_slice(payload)).id(id);
            let draft = draft.due_in(Duration::from_secs(delay));
            let draft = if region.is_empty() { draft } else { draft.header("region", region) };
            assert!(draft.send().await.unwrap().is_accepted());
        }
        let all = [Listed::Scheduled, Listed::Ready, Listed::Leased, Listed::Dead];
        for (states, wanted, expected) in [
            (&all[..], wanted("", "", "17"), "b d a"),
            (&all[..1], wanted("", "", "17"), "b d"),
            (&all[..], wanted("", "region", ""), "b c a"),
            (&all[..], wanted("", "region=eu-", "17"), "b a"),
            (&all[..], wanted("", "region=us", "17"), ""),
            (&all[..], wanted("x", "", ""), ""),
        ] {
            let of = MessageSearch::new(queue.clone(), states.iter().copied(), wanted);
            assert_eq!(search(of).await.0.join(" "), expected);
        }
    }

    #[tokio::test]
    async fn many_and_large_messages_are_all_examined_in_small_steps() {
        let queue = queue().await;
        let large = Bytes::from(vec![b'x'; 900_000]);
        let drafts = (0..250).map(|n| {
            let payload =
                if (100..110).contains(&n) { large.clone() } else { Bytes::from(format!("<{n}>")) };
            queue.message(&payload).id(format!("m-{n}")).due_in(Duration::from_secs(60))
        });
        assert!(queue.send_many(drafts).await.iter().all(Result::is_ok));
        let mut of = MessageSearch::new(queue, [Listed::Scheduled], wanted("", "", "<249>"));
        let (mut before, mut found) = ((0, 0), 0);
        while let Some(matching) = of.step().await.unwrap() {
            assert!(of.examined() - before.0 <= MessageSearch::AT_ONCE as u64);
            assert!(of.bytes() - before.1 <= STEP_BYTES as u64);
            before = (of.examined(), of.bytes());
            found += matching.len();
        }
        assert_eq!((found, of.examined()), (1, 250));
        assert!(of.bytes() > 9_000_000);
    }

    #[tokio::test]
    async fn hidden_contents_are_not_found() {
        let queue = queue().await;
        let draft = queue.message(&Bytes::from_static(b"secret")).id("a");
        assert!(draft.send().await.unwrap().is_accepted());
        let hidden = |message: &mut Message<Bytes>| message.payload = Bytes::new();
        let of = MessageSearch::new(queue, [Listed::Ready], wanted("", "", "secret"));
        assert_eq!(search(of.seeing(hidden)).await, (Vec::new(), 1));
    }

    #[tokio::test]
    async fn messages_of_other_groups_are_not_read() {
        let queue = queue().await;
        for n in 0..150 {
            let draft = queue.message(&Bytes::from_static(b"paid")).id(format!("m-{n}"));
            let draft = if n % 50 == 7 { draft.group("shop-7") } else { draft.group("other") };
            assert!(draft.send().await.unwrap().is_accepted());
        }
        for (content, expected) in [("", "m-7 m-57 m-107"), ("paid", "m-7 m-57 m-107"), ("x", "")] {
            let wanted = Wanted::new(Some("shop-7"), None, None, Some(content)).unwrap();
            let mut of = MessageSearch::new(queue.clone(), [Listed::Ready, Listed::Dead], wanted);
            let mut ids = Vec::new();
            while let Some(found) = of.step().await.unwrap() {
                ids.extend(found.iter().map(|message| message.info.id.to_string()));
            }
            assert_eq!((ids.join(" "), of.examined(), of.bytes()), (expected.to_owned(), 150, 12));
        }
    }

    #[test]
    fn senseless_searches_are_refused_and_not_shown() {
        let long = "x".repeat(1_025);
        for (kind, header, content) in
            [("", "", ""), (&*long, "", ""), ("", "", &*long), ("", "=x", "")]
        {
            let refused = Wanted::new(None, Some(kind), Some(header), Some(content));
            assert!(refused.unwrap_err().len() < 100);
        }
        assert!(Wanted::new(None, None, None, None).is_err());
        let long_group = Wanted::new(Some(&"x".repeat(129)), None, None, None);
        assert!(long_group.unwrap_err().contains("128"));
        let shown = format!("{:?}", wanted("hunter2", "hunter2=hunter2", "hunter2"));
        assert!(!shown.contains("hunter2"), "{shown}");
    }
}
