//! `delayline list`.

use clap::ValueEnum;
use delayline::admin::Listed;

use super::Window;

/// List messages
///
/// At most 100 by default: scheduled messages first, then ready, leased and dead ones. Scheduled
/// and ready messages are in delivery order: by priority, then due time. Messages with a group come
/// last.
///
/// With --from or --until, lists the scheduled messages that fall due in the window, the earliest
/// first, whatever their priority or group.
///
/// Messages that change state while you list them may appear twice or not at all.
#[derive(clap::Args)]
#[command(after_help = HELP)]
pub(crate) struct List {
    /// Only messages in this state
    #[arg(long, value_enum)]
    pub(crate) state: Option<State>,

    #[command(flatten)]
    pub(crate) paging: Paging,

    #[command(flatten)]
    pub(crate) window: Window,

    /// Only messages of this group
    #[arg(long, value_name = "NAME", conflicts_with_all = NO_SEARCH)]
    pub(crate) group: Option<String>,

    /// Only messages of this kind
    #[arg(long, value_name = "KIND", conflicts_with_all = NO_SEARCH)]
    pub(crate) kind: Option<String>,

    /// Only messages with this header, whose value contains the text
    #[arg(long, value_name = "NAME[=TEXT]", conflicts_with_all = NO_SEARCH)]
    pub(crate) header: Option<String>,

    /// Only messages whose payload contains this text
    #[arg(long, value_name = "TEXT", conflicts_with_all = NO_SEARCH)]
    pub(crate) content: Option<String>,

    /// Print JSON: one line per page of up to 100, or with --all one line per message
    #[arg(long)]
    pub(crate) json: bool,
}

impl List {
    /// Whether only some messages of the states are wanted.
    pub(crate) fn is_search(&self) -> bool {
        [&self.group, &self.kind, &self.header, &self.content].into_iter().any(Option::is_some)
    }
}

/// The part of a list to show.
#[derive(clap::Args)]
pub(crate) struct Paging {
    /// Maximum number of messages [default: 100]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) limit: Option<u64>,

    /// Continue from the cursor of an earlier list
    #[arg(long, value_name = "CURSOR")]
    pub(crate) after: Option<String>,

    /// All messages
    #[arg(long, conflicts_with = "limit")]
    pub(crate) all: bool,
}

/// A state that `list` can show.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum State {
    /// Not due yet
    Scheduled,
    /// Due, and waiting for a worker
    Ready,
    /// With a worker
    Leased,
    /// Dead letters
    Dead,
}

impl State {
    /// In the order in which they are listed.
    pub(crate) const ALL: [Self; 4] = [Self::Scheduled, Self::Ready, Self::Leased, Self::Dead];
}

impl From<State> for Listed {
    fn from(state: State) -> Self {
        match state {
            State::Scheduled => Self::Scheduled,
            State::Ready => Self::Ready,
            State::Leased => Self::Leased,
            State::Dead => Self::Dead,
        }
    }
}

impl Paging {
    /// How many messages to list.
    pub(crate) fn most(&self) -> u64 {
        if self.all { u64::MAX } else { self.limit.unwrap_or(DEFAULT_LIMIT) }
    }
}

const DEFAULT_LIMIT: u64 = 100;

/// Flags that a search does not have.
const NO_SEARCH: [&str; 3] = ["after", "from", "until"];

const HELP: &str = "\
Examples:
  delayline list
  delayline list --state ready --limit 10
  delayline list --all --json | jq -r .id
  delayline list --all --content customer-17 --header region=eu
  delayline list --state ready --group tenant-7
  delayline list --from 'tomorrow 09:00' --until 'tomorrow 17:00'

A window contains its beginning, but not its end. Its bounds are printed on stderr, in the time zone
of this machine and in UTC. `delayline forecast` with the same flags counts its messages.

--group, --kind, --header and --content search until enough messages match all that is given. All
but --group read the contents of messages.

Without these flags, if there are more messages, the cursor for --after is printed on stderr. With --json, it
is the field `next` of the last line (null if there are no more). Each line of JSON is an object
{\"messages\": [...], \"next\": ...}; with --all it is a message. Ids that are not UTF-8 are in
id_base64. For exit codes, see `delayline --help`.";
