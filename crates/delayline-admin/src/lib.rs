//! What the `delayline` command and its dashboard do for operators: they examine servers, search
//! messages, and find dead letters.
//!
//! - [`doctor`] examines servers, queues and directories.
//! - [`MessageSearch`] searches messages by group, kind, header and content.
//! - [`DueMessages`] lists the scheduled messages of a window in the order in which they are due,
//!   and [`DueCounts`] counts them.
//! - [`LetterFilter`] says which dead letters are meant, [`Letters`] finds them, and [`RateLimit`]
//!   is how fast something is done to them. [`LatestLetters`] reads the latest deaths first, and
//!   [`Groups`] groups letters by reason and error.
//! - [`GroupCount`] has the number of waiting and leased messages of a group.
//! - [`Holder`] is a process with workers, and the messages that it holds.
//! - [`is_known`] says whether a queue exists.

pub mod doctor;
mod due;
mod group_counts;
mod holders;
mod known;
mod letters;
mod search;

pub use self::due::{DueCounts, DueMessages};
pub use self::group_counts::GroupCount;
pub use self::holders::{Holder, leased};
pub use self::known::is_known;
pub use self::letters::{
    Group, GroupOrder, Groups, LatestLetters, LetterFilter, Letters, RateLimit,
};
pub use self::search::{MessageSearch, Wanted};
