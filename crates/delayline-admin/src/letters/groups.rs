//! Dead letters grouped by reason and error.

use std::cmp::Reverse;
use std::collections::HashMap;

use delayline::admin::folded_error;
use delayline::message::{DeathReason, MessageInfo, MessageState};
use delayline::{MessageId, Timestamp};
use serde_json::{Value, json};

/// Dead letters with the same reason and, apart from ids and numbers, the same last error.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Group {
    /// Why they died.
    pub reason: DeathReason,
    /// Their last error with ids and numbers folded; empty if they have none.
    pub error: String,
    /// Number of letters.
    pub letters: u64,
    /// The earliest death.
    pub first: Timestamp,
    /// The latest death.
    pub last: Timestamp,
    /// The letter that died last.
    pub latest: MessageId,
    /// The last error of that letter.
    pub example: String,
}

/// The order of groups.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum GroupOrder {
    /// The group with the latest death first.
    #[default]
    Newest,
    /// The group with the earliest death first.
    Oldest,
    /// The group with the most letters first.
    Largest,
}

impl GroupOrder {
    /// All orders.
    pub const ALL: [Self; 3] = [Self::Newest, Self::Oldest, Self::Largest];

    /// `newest`, `oldest` or `largest`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Newest => "newest",
            Self::Oldest => "oldest",
            Self::Largest => "largest",
        }
    }
}

/// Groups letters, up to a number of groups.
#[derive(Clone, Debug)]
pub struct Groups {
    groups: HashMap<(DeathReason, String), Group>,
    most: usize,
    letters: u64,
    ungrouped: u64,
}

impl Groups {
    /// No letters yet, and at most `most` groups: letters of further groups are only counted.
    #[must_use]
    pub fn new(most: usize) -> Self {
        Self { groups: HashMap::new(), most, letters: 0, ungrouped: 0 }
    }

    /// Adds a dead letter to its group. Ignores messages that are no dead letters.
    pub fn add(&mut self, letter: &MessageInfo) {
        let MessageState::Dead { reason, since } = letter.state else { return };
        self.letters += 1;
        let error = letter.last_error.as_deref().unwrap_or_default();
        let key = (reason, folded_error(error));
        if self.groups.len() >= self.most && !self.groups.contains_key(&key) {
            self.ungrouped += 1;
            return;
        }
        let folded = key.1.clone();
        let group = self.groups.entry(key).or_insert_with(|| Group {
            reason,
            error: folded,
            letters: 0,
            first: since,
            last: since,
            latest: letter.id.clone(),
            example: error.to_owned(),
        });
        group.letters += 1;
        group.first = group.first.min(since);
        if since > group.last {
            group.last = since;
            group.latest = letter.id.clone();
            error.clone_into(&mut group.example);
        }
    }

    /// Number of letters that were added.
    #[must_use]
    pub const fn letters(&self) -> u64 {
        self.letters
    }

    /// Number of letters that are in no group, because there are too many groups.
    #[must_use]
    pub const fn ungrouped(&self) -> u64 {
        self.ungrouped
    }

    /// The groups in an order.
    #[must_use]
    pub fn sorted(&self, order: GroupOrder) -> Vec<Group> {
        let mut groups: Vec<Group> = self.groups.values().cloned().collect();
        // Reason and error make the order the same each time.
        let rest = |it: &Group| (it.reason.name(), it.error.clone());
        match order {
            GroupOrder::Newest => groups.sort_by_cached_key(|it| (Reverse(it.last), rest(it))),
            GroupOrder::Oldest => groups.sort_by_cached_key(|it| (it.first, rest(it))),
            GroupOrder::Largest => groups.sort_by_cached_key(|it| (Reverse(it.letters), rest(it))),
        }
        groups
    }
}

impl Group {
    /// As a JSON object. The id is under `latest`, or `latest_base64` if it is not UTF-8.
    #[must_use]
    pub fn json(&self) -> Value {
        let mut object = json!({
            "reason": self.reason.name(),
            "error": self.error,
            "letters": self.letters,
            "first": self.first.to_string(),
            "last": self.last.to_string(),
            "example": self.example,
        });
        let (name, id) = delayline_json::named("latest", self.latest.as_bytes());
        object[name] = id;
        object
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn letter(id: &str, since: u64, reason: DeathReason, error: Option<&str>) -> MessageInfo {
        let at = |ms| Timestamp::from_ms(ms).unwrap();
        let state = MessageState::Dead { reason, since: at(since) };
        let mut info = MessageInfo::new(id.try_into().unwrap(), state, 1, at(0), at(0));
        info.last_error = error.map(str::to_owned);
        info
    }

    #[test]
    fn letters_of_one_reason_and_cause_are_a_group() {
        use DeathReason::{Expired, Rejected};
        let mut groups = Groups::new(3);
        for (id, since, reason, error) in [
            ("a", 10, Rejected, Some("no customer 1")),
            ("b", 30, Rejected, Some("no customer 22")),
            ("c", 20, Rejected, Some("no customer 3")),
            ("d", 5, Expired, None),
            ("e", 40, Rejected, Some("timed out")),
            ("f", 50, Rejected, Some("a fourth group")),
            ("g", 7, Expired, None),
        ] {
            groups.add(&letter(id, since, reason, error));
        }
        assert_eq!((groups.letters(), groups.ungrouped()), (7, 1));
        let errors = |order| -> Vec<_> {
            groups.sorted(order).into_iter().map(|it| (it.error, it.letters)).collect()
        };
        let owned = |list: [(&str, u64); 3]| list.map(|(text, count)| (text.to_owned(), count));
        let (no, out, none) = (("no customer #", 3), ("timed out", 1), ("", 2));
        assert_eq!(errors(GroupOrder::Newest), owned([out, no, none]));
        assert_eq!(errors(GroupOrder::Oldest), owned([none, no, out]));
        assert_eq!(errors(GroupOrder::Largest), owned([no, none, out]));
        let newest = &groups.sorted(GroupOrder::Largest)[0];
        assert_eq!((newest.first.as_ms(), newest.last.as_ms()), (10, 30));
        assert_eq!((newest.latest.to_string().as_str(), &*newest.example), ("b", "no customer 22"));
        assert_eq!(newest.json()["latest"], "b");
    }
}
