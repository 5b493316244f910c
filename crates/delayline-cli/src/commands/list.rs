//! `delayline list`, and what `delayline dead list` shares with it.

use std::ops::ControlFlow;
use std::process::ExitCode;

use delayline::admin::{Listed, Listing, Position};
use delayline::codec::Raw;
use delayline::message::MessageInfo;
use delayline::{Bytes, Error, Queue, Timestamp, limits};
use delayline_admin::{DueMessages, MessageSearch, Wanted};
use delayline_json::{self as json, Cursor};
use serde_json::json;

use super::window::{Bounds, shown};
use crate::args::{List, Paging, State, Target};
use crate::failure::Failure;
use crate::print::{Table, json_line, write_on};

pub(crate) async fn run(target: &Target, args: List) -> Result<ExitCode, Failure> {
    let states = match &args.state {
        Some(state) => std::slice::from_ref(state),
        None => &State::ALL,
    };
    if args.is_search() {
        return search(target, &args, states).await;
    }
    if let Some(bounds) = Bounds::read(&args.window)? {
        return due(target, &args, bounds).await;
    }
    let start = start(&args.paging, states)?;
    let queue = target.open_known().await?;
    let pages = Pages::new(&queue, states, start, args.paging.most(), None);
    print(pages, Output::new(args.json, &args.paging)).await
}

/// Prints the scheduled messages that fall due in a window.
async fn due(target: &Target, args: &List, bounds: Bounds) -> Result<ExitCode, Failure> {
    if let Some(state) = args.state.filter(|state| *state != State::Scheduled) {
        let state = Listed::from(state).name();
        let sentence = format!("a window contains scheduled messages only, not --state {state}");
        return Err(Failure::usage(sentence).hint("leave out --state, or --from and --until"));
    }
    let start = start(&args.paging, &[State::Scheduled])?;
    let queue = target.open_known().await?;
    let window = bounds.window(&queue).await?;
    let until = window.until.map(|until| format!(" until {}", shown(until)));
    eprintln!("due from {}{}", shown(window.from), until.unwrap_or_default());
    let due = DueMessages::new(queue.clone(), window.from, window.until.unwrap_or(Timestamp::MAX));
    let due = match start.and_then(|start| start.position) {
        Some(position) => due.after(position),
        None => due,
    };
    let source = Some((State::Scheduled, Source::Due(due)));
    let pages = Pages {
        queue: &queue,
        states: [].iter(),
        current: source,
        left: args.paging.most(),
        passes: None,
    };
    print(pages, Output { window: window.flags() + " ", ..Output::new(args.json, &args.paging) })
        .await
}

/// Prints the messages whose contents match, as they are found.
async fn search(target: &Target, args: &List, states: &[State]) -> Result<ExitCode, Failure> {
    let [group, kind, header, content] =
        [&args.group, &args.kind, &args.header, &args.content].map(Option::as_deref);
    let wanted = Wanted::new(group, kind, header, content).map_err(Failure::usage)?;
    let queue = target.open_known().await?;
    let mut search = MessageSearch::new(queue, states.iter().map(|&it| it.into()), wanted);
    let mut output = Output::new(args.json, &args.paging);
    let (mut page, mut found, most) = (Vec::new(), 0, args.paging.most());
    while found < most
        && let Some(matching) = search.step().await?
    {
        let left = usize::try_from(most - found).unwrap_or(usize::MAX);
        let before = page.len();
        page.extend(matching.into_iter().map(|message| message.info).take(left));
        found += (page.len() - before) as u64;
        if page.len() >= limits::MAX_PAGE || output.has_lines() {
            if output.page(&page, None, false)?.is_break() {
                return Ok(ExitCode::SUCCESS);
            }
            page.clear();
        }
    }
    if found == 0 {
        return output.nothing();
    }
    if !page.is_empty() || !args.json {
        let _ = output.page(&page, None, true)?;
    }
    if found == most {
        eprintln!(
            "delayline: the search stopped at --limit {most}, and there may be more; \
             --all lists all"
        );
    }
    Ok(ExitCode::SUCCESS)
}

/// Where to begin.
pub(super) fn start(paging: &Paging, states: &[State]) -> Result<Option<Cursor>, Failure> {
    let Some(text) = &paging.after else { return Ok(None) };
    let cursor: Cursor = text.parse().map_err(Failure::usage)?;
    if states.iter().any(|&state| Listed::from(state) == cursor.status) {
        return Ok(Some(cursor));
    }
    Err(Failure::usage(format!("{cursor} is a cursor for another state")))
}

/// Says which messages to list.
pub(super) type Passes<'a> = &'a (dyn Fn(&MessageInfo) -> bool + Sync);

/// Messages, state by state and page by page, up to a number of them.
pub(super) struct Pages<'a> {
    queue: &'a Queue<Bytes, Raw>,
    /// The states that come after this one.
    states: std::slice::Iter<'a, State>,
    current: Option<(State, Source)>,
    left: u64,
    passes: Option<Passes<'a>>,
}

impl<'a> Pages<'a> {
    pub(super) fn new(
        queue: &'a Queue<Bytes, Raw>,
        states: &'a [State],
        start: Option<Cursor>,
        most: u64,
        passes: Option<Passes<'a>>,
    ) -> Self {
        let skipped =
            states.iter().take_while(|&&it| start.is_some_and(|at| at.status != it.into()));
        let mut states = states[skipped.count()..].iter();
        let current = states.next().map(|&state| {
            let listing = queue.list(state.into());
            let position = start.and_then(|at| at.position);
            let listing = match position {
                Some(position) => listing.after(position),
                None => listing,
            };
            (state, Source::List(listing))
        });
        Self { queue, states, current, left: most, passes }
    }

    /// The next page with a message to show, and where the one after it begins; `None` after the
    /// last.
    async fn next(&mut self) -> Result<Option<(Vec<MessageInfo>, Option<Cursor>)>, Failure> {
        while let Some((state, listing)) = &mut self.current {
            if self.left == 0 {
                return Ok(None);
            }
            let Some(page) = wanted(listing, self.left, self.passes).await? else {
                self.next_state();
                continue;
            };
            let position = listing.position();
            let after = match position {
                Some(_) => Some(Cursor { status: (*state).into(), position }),
                None => {
                    self.next_state();
                    self.current
                        .as_ref()
                        .map(|(state, _)| Cursor { status: (*state).into(), position: None })
                }
            };
            if !page.is_empty() {
                self.left -= page.len() as u64;
                return Ok(Some((page, after)));
            }
        }
        Ok(None)
    }

    fn next_state(&mut self) {
        let next = self.states.next();
        self.current = next.map(|&state| (state, Source::List(self.queue.list(state.into()))));
    }

    /// Whether there is a message after the last page, also one that would not pass.
    async fn more(&mut self) -> Result<bool, Failure> {
        while let Some((_, listing)) = &mut self.current {
            let mut look = listing.clone().page_size(1);
            if look.next_page().await?.is_some() {
                return Ok(true);
            }
            self.next_state();
        }
        Ok(false)
    }
}

/// The messages of a state, or the scheduled messages of a window.
#[derive(Clone)]
enum Source {
    List(Listing),
    Due(DueMessages),
}

impl Source {
    fn page_size(self, messages: usize) -> Self {
        match self {
            Self::List(listing) => Self::List(listing.page_size(messages)),
            Self::Due(due) => Self::Due(due.page_size(messages)),
        }
    }

    fn position(&self) -> Option<Position> {
        match self {
            Self::List(listing) => listing.position(),
            Self::Due(due) => due.position(),
        }
    }

    async fn next_page(&mut self) -> Result<Option<Vec<MessageInfo>>, Error> {
        match self {
            Self::List(listing) => listing.next_page().await,
            Self::Due(due) => due.next_page().await,
        }
    }
}

/// The next messages of a listing that pass, and not more of them than wanted.
async fn wanted(
    listing: &mut Source,
    most: u64,
    passes: Option<Passes<'_>>,
) -> Result<Option<Vec<MessageInfo>>, Failure> {
    let most = usize::try_from(most).unwrap_or(usize::MAX).min(limits::MAX_PAGE);
    let Some(passes) = passes else {
        *listing = listing.clone().page_size(most);
        return Ok(listing.next_page().await?);
    };
    // Whole pages, because few messages may pass. If too many do, the page is read again up to the
    // last one wanted: the position is known at the ends of pages only.
    let before = listing.clone();
    let Some(mut page) = listing.next_page().await? else { return Ok(None) };
    if let Some((end, _)) = page.iter().enumerate().filter(|(_, it)| passes(it)).nth(most) {
        *listing = before.page_size(end);
        page = listing.next_page().await?.unwrap_or_default();
        *listing = listing.clone().page_size(limits::MAX_PAGE);
    }
    page.retain(|it| passes(it));
    page.truncate(most);
    Ok(Some(page))
}

/// Prints pages as they come.
pub(super) async fn print(mut pages: Pages<'_>, mut output: Output) -> Result<ExitCode, Failure> {
    if output.has_lines() {
        while let Some((page, _)) = pages.next().await?
            && output.page(&page, None, false)?.is_continue()
        {}
        return Ok(ExitCode::SUCCESS);
    }
    let Some((mut page, mut next)) = pages.next().await? else {
        return output.nothing();
    };
    loop {
        // A page is printed when it is known whether another one follows.
        let following = pages.next().await?;
        if following.is_none() && !pages.more().await? {
            next = None;
        }
        let reader = output.page(&page, next, following.is_none())?;
        match following {
            Some(following) if reader.is_continue() => (page, next) = following,
            _ => return Ok(ExitCode::SUCCESS),
        }
    }
}

/// Prints pages, as a table or as JSON.
pub(super) struct Output {
    as_json: bool,
    /// Whether all messages are listed, so that none has to be continued from.
    all: bool,
    table: Table,
    /// The flags of a window, for the next command.
    window: String,
}

impl Output {
    pub(super) fn new(as_json: bool, paging: &Paging) -> Self {
        Self { as_json, all: paging.all, table: Table::default(), window: String::new() }
    }

    /// Whether each message is a line of JSON.
    const fn has_lines(&self) -> bool {
        self.as_json && self.all
    }

    fn page(
        &mut self,
        page: &[MessageInfo],
        next: Option<Cursor>,
        last: bool,
    ) -> Result<ControlFlow<()>, Failure> {
        let next = next.map(|next| next.to_string());
        if self.has_lines() {
            let lines: String = page.iter().map(|it| json_line(&json::info(it))).collect();
            return write_on(&lines);
        }
        if self.as_json {
            let messages: Vec<_> = page.iter().map(json::info).collect();
            let line = json::line(&json!({"messages": messages, "next": next}));
            return write_on(&line.map_err(|error| Failure::other("no JSON", &error))?);
        }
        self.table.add(page);
        if !last && !self.table.is_full() {
            return Ok(ControlFlow::Continue(()));
        }
        let reader = write_on(&self.table.piece())?;
        if let (Some(next), true) = (next, last) {
            eprintln!("more messages: {}--after {next}", self.window);
        }
        Ok(reader)
    }

    fn nothing(&self) -> Result<ExitCode, Failure> {
        if self.has_lines() {
            return Ok(ExitCode::SUCCESS);
        }
        if self.as_json {
            write_on("{\"messages\":[],\"next\":null}\n").map(drop)?;
        } else {
            eprintln!("no messages");
        }
        Ok(ExitCode::SUCCESS)
    }
}
