//! Processes with workers: the names of their connections, and the lists of these names.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::fmt::{self, Write as _};
use std::str::FromStr;

use bytes::Bytes;
use delayline_core::{Error, ErrorKind, ProcessId, QueueName, Timestamp};

/// A process with workers, as it describes itself.
///
/// Any client of the server can claim to be such a process. So it is only displayed, and its texts
/// have harmless characters only.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct WorkerProcess {
    /// The half that its claim ids have in common, which
    /// [`MessageInfo::holder`](delayline_core::MessageInfo::holder) shows as well.
    pub id: ProcessId,
    /// The version of its library.
    pub version: String,
    /// The name of its machine.
    pub host: String,
    /// Its process id on that machine.
    pub pid: u32,
    /// When the first of its workers started, by the clock of that machine.
    pub since: Timestamp,
    /// Maximum number of handlers at once.
    pub handlers: u32,
    /// Its queues, with the maximum number of handlers of each.
    pub queues: BTreeMap<QueueName, u32>,
    /// Number of its queues that do not fit into `queues`.
    pub more_queues: u32,
    /// The address of its connection, as the server sees it. `None` for this process, and for the
    /// process that has opened the directory of the queues.
    pub address: Option<String>,
}

impl WorkerProcess {
    /// Creates a process without queues. Characters that are invalid in the name of a host become
    /// `_`.
    #[must_use]
    pub fn new(id: ProcessId, version: &str, host: &str, pid: u32, since: Timestamp) -> Self {
        Self {
            id,
            version: harmless(version, MAX_VERSION_BYTES),
            host: harmless(host, MAX_HOST_BYTES),
            pid,
            since,
            handlers: 0,
            queues: BTreeMap::new(),
            more_queues: 0,
            address: None,
        }
    }

    /// Returns the name of a connection. A process can have several connections, each with other
    /// workers, which `part` distinguishes.
    pub(crate) fn name(&self, part: u32) -> Bytes {
        let Self { id, version, host, pid, since, handlers, queues, more_queues, .. } = self;
        let since = since.as_ms();
        let mut name = format!("{MARK}{id};{part};{version};{host};{pid};{since};{handlers};");
        let (mut listed, start) = (0, name.len());
        for (queue, handlers) in queues {
            let next = format!("{queue}={handlers},");
            if name.len() + next.len() > start + MAX_QUEUES_BYTES {
                break;
            }
            name.push_str(&next);
            listed += 1;
        }
        let left_out = u32::try_from(queues.len() - listed).unwrap_or(u32::MAX);
        // Writing to a string cannot fail.
        let _ = write!(name, "+{}", more_queues.saturating_add(left_out));
        name.into()
    }

    /// Reads the name of a connection, and its part. Returns `None` for other names.
    fn named(name: &str) -> Option<(u32, Self)> {
        if name.len() > MAX_NAME_BYTES {
            return None;
        }
        let mut fields = name.strip_prefix(MARK)?.split(';');
        let id = fields.next()?.parse().ok()?;
        let part = number(fields.next()?)?;
        let version = fields.next().filter(|it| is_harmless(it, MAX_VERSION_BYTES))?;
        let host = fields.next().filter(|it| is_harmless(it, MAX_HOST_BYTES))?;
        let pid = number(fields.next()?)?;
        let since = Timestamp::from_ms(fields.next()?.parse().ok()?).ok()?;
        let mut process = Self::new(id, version, host, pid, since);
        process.handlers = number(fields.next()?)?;
        let mut queues = fields.next()?.split(',').rev();
        process.more_queues = number(queues.next()?.strip_prefix('+')?)?;
        for queue in queues {
            let (queue, handlers) = queue.rsplit_once('=')?;
            process.queues.insert(QueueName::new(queue).ok()?, number(handlers)?);
        }
        fields.next().is_none().then_some((part, process))
    }

    /// Adds the workers of another connection of the process.
    fn join(&mut self, other: Self) {
        self.since = self.since.min(other.since);
        self.handlers = self.handlers.saturating_add(other.handlers);
        self.more_queues = self.more_queues.saturating_add(other.more_queues);
        for (queue, handlers) in other.queues {
            let known = self.queues.entry(queue).or_default();
            *known = known.saturating_add(handlers);
        }
    }
}

/// The process as it introduces itself: one line of at most 1,024 bytes, with as many queues as
/// fit.
impl fmt::Display for WorkerProcess {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&String::from_utf8_lossy(&self.name(0)))
    }
}

/// Reads a process that has introduced itself.
impl FromStr for WorkerProcess {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let unreadable = || Error::with_detail(ErrorKind::Protocol, "a process is unreadable");
        Self::named(text).map(|(_, process)| process).ok_or_else(unreadable)
    }
}

/// The processes that [`Transport::workers`](crate::Transport::workers) has found.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct WorkerList {
    /// The processes, by id.
    pub processes: Vec<WorkerProcess>,
    /// Whether these are all processes of all primaries.
    pub complete: bool,
    /// The error of the primaries that could not be asked, with the address of each.
    pub failure: Option<Error>,
}

/// The connections that servers have listed. Other primaries list the same processes again.
#[derive(Debug, Default)]
pub(crate) struct Listed {
    connections: BTreeMap<(ProcessId, u32), WorkerProcess>,
    /// Whether connections were left out.
    cut: bool,
}

impl Listed {
    /// Reads the reply to `CLIENT LIST`: a line for each connection, with `name=VALUE` among its
    /// fields. Values have no spaces. A line that is cut off, or that is not of a worker, is left
    /// out, and so are connections to another database, which has other queues. Of two connections
    /// of a process for the same, the later one counts: the server may not have noticed yet that
    /// the other is dead.
    pub(crate) fn read(&mut self, text: &str, database: u32) {
        // Servers list connections in the order of their age.
        for line in text.lines().rev() {
            let field = |name: &str| line.split(' ').find_map(|field| field.strip_prefix(name));
            let Some((part, process)) = field("name=").and_then(WorkerProcess::named) else {
                continue;
            };
            // A server without databases need not name one.
            if field("db=").is_some_and(|number| number.parse() != Ok(database)) {
                continue;
            }
            let is_full = self.connections.len() >= MAX_CONNECTIONS;
            let Entry::Vacant(place) = self.connections.entry((process.id, part)) else {
                continue;
            };
            if is_full {
                self.cut = true;
                return;
            }
            let address = field("addr=").filter(|it| is_address(it)).map(str::to_owned);
            place.insert(WorkerProcess { address, ..process });
        }
    }

    /// Returns all processes. `failure` is the error of the servers that could not be asked.
    pub(crate) fn into_list(self, failure: Option<Error>) -> WorkerList {
        let mut processes: Vec<WorkerProcess> = Vec::new();
        for process in self.connections.into_values() {
            match processes.last_mut() {
                Some(known) if known.id == process.id => known.join(process),
                _ => processes.push(process),
            }
        }
        WorkerList { processes, complete: !self.cut && failure.is_none(), failure }
    }
}

fn number(text: &str) -> Option<u32> {
    // Our names have no other forms, such as `+1`.
    text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse().ok())?
}

fn is_harmless_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b".-_+".contains(&byte)
}

fn is_harmless(text: &str, most: usize) -> bool {
    (1..=most).contains(&text.len()) && text.bytes().all(is_harmless_byte)
}

/// Returns the beginning of a text, with `_` in place of other bytes. Never empty.
fn harmless(text: &str, most: usize) -> String {
    let bytes = text.bytes().take(most);
    let text: String =
        bytes.map(|byte| if is_harmless_byte(byte) { char::from(byte) } else { '_' }).collect();
    if text.is_empty() { "_".to_owned() } else { text }
}

/// Returns whether a text looks like `HOST:PORT`, or like the path of a socket with `:0`.
fn is_address(text: &str) -> bool {
    let is_known = |byte: u8| is_harmless_byte(byte) || b":[]%/".contains(&byte);
    text.len() <= MAX_ADDRESS_BYTES && text.bytes().all(is_known)
}

/// The start of the names. The number is that of the format.
const MARK: &str = "delayline-worker;1;";
const MAX_VERSION_BYTES: usize = 32;
const MAX_HOST_BYTES: usize = 64;
const MAX_QUEUES_BYTES: usize = 700;
const MAX_NAME_BYTES: usize = 1_024;
const MAX_ADDRESS_BYTES: usize = 128;
/// Maximum number of connections of workers that are read from the lists of all servers together.
const MAX_CONNECTIONS: usize = 1_000;

#[cfg(test)]
mod tests {
    use super::*;

    fn process(id: u8) -> WorkerProcess {
        let id = ProcessId::from_bytes([id; ProcessId::BYTES]);
        let since = Timestamp::from_ms(1_700_000_000_000).unwrap();
        let mut process = WorkerProcess::new(id, "0.1.0", "host-1", 17, since);
        process.handlers = 20;
        for (queue, handlers) in [("orders", 16), ("a:b/c.d_e-F9", 4)] {
            process.queues.insert(QueueName::new(queue).unwrap(), handlers);
        }
        process
    }

    fn line(name: &str) -> String {
        format!(
            "id=3 addr=10.0.0.1:5000 laddr=10.0.0.9:6379 fd=8 name={name} age=0 db=0 cmd=client\n"
        )
    }

    fn listed(texts: &[String]) -> WorkerList {
        let mut listed = Listed::default();
        texts.iter().for_each(|text| listed.read(text, 0));
        listed.into_list(None)
    }

    fn name(process: &WorkerProcess, part: u32) -> String {
        String::from_utf8(process.name(part).to_vec()).unwrap()
    }

    #[test]
    fn names_are_read_as_they_were_written() {
        let process = process(1);
        assert_eq!(
            name(&process, 2),
            "delayline-worker;1;0101010101010101;2;0.1.0;host-1;17;1700000000000;20;\
             a:b/c.d_e-F9=4,orders=16,+0"
        );
        let address = Some("10.0.0.1:5000".to_owned());
        let other = line("") + &line("another") + &line("delayline") + "\n\r\n";
        let found = listed(&[other + &line(&name(&process, 2))]);
        assert_eq!(found.processes, [WorkerProcess { address, ..process }]);
        assert!(found.complete && found.failure.is_none());
    }

    #[test]
    fn many_queues_are_cut_and_counted() {
        let mut process = process(1);
        process.queues = (0..1_000)
            .map(|n| (QueueName::new(format!("{}{n}", "q".repeat(100))).unwrap(), n))
            .collect();
        let name = name(&process, u32::MAX);
        assert!(name.len() <= MAX_NAME_BYTES, "{}", name.len());
        let (_, read) = WorkerProcess::named(&name).unwrap();
        assert_eq!(read.queues.len() + usize::try_from(read.more_queues).unwrap(), 1_000);
        assert!(read.queues.len() > 5 && read.more_queues > 5);
    }

    #[test]
    fn a_name_has_no_character_that_a_server_refuses() {
        let since = Timestamp::MIN;
        let id = ProcessId::from_bytes([0; 8]);
        let long = "h".repeat(1_000);
        for host in ["", "a b\nc", "\u{202e}", "a;b=c,+1", "<script>", &long] {
            let process = WorkerProcess::new(id, host, host, u32::MAX, since);
            let name = name(&process, 1);
            assert!(name.bytes().all(|byte| (b'!'..=b'~').contains(&byte)), "{name}");
            assert_eq!(WorkerProcess::named(&name), Some((1, process)));
        }
    }

    #[test]
    fn servers_of_a_cluster_list_the_same_process_once() {
        let name = |id, part| line(&name(&process(id), part));
        let found = listed(&[name(2, 1) + &name(1, 1), name(1, 1), name(1, 2)]);
        let [one, two] = &found.processes[..] else { panic!("{found:?}") };
        assert_eq!((one.handlers, two.handlers), (40, 20));
        assert_eq!(one.queues.values().sum::<u32>(), 40);
    }

    #[test]
    fn the_later_connection_of_a_process_counts() {
        let now = WorkerProcess { handlers: 7, ..process(1) };
        let found = listed(&[line(&name(&process(1), 1)) + &line(&name(&now, 1))]);
        assert_eq!(found.processes.iter().map(|it| it.handlers).collect::<Vec<_>>(), [7]);
    }

    #[test]
    fn hostile_and_cut_names_are_left_out() {
        let good = name(&process(1), 1);
        let wrong = [
            good.replace("host-1", "<b>host"),
            good.replace("host-1", "\u{1b}[2J"),
            good.replace("host-1", ""),
            good.replace("host-1", &"h".repeat(65)),
            good.replace(";17;", ";-17;"),
            good.replace(";17;", ";+17;"),
            good.replace(";17;", ";4294967296;"),
            good.replace("1700000000000", "99999999999999999999"),
            good.replace("orders=16", "or}ders=16"),
            good.replace("orders=16", "orders"),
            good.replace("0101010101010101", "01010101010101zz"),
            good.replace(";1;0101", ";2;0101"),
            good.clone() + ";more",
            good.clone() + &",q=1".repeat(1_000),
        ];
        for name in wrong {
            assert!(listed(&[line(&name)]).processes.is_empty(), "{name}");
        }
        // A reply can be cut off anywhere, and a field can be missing.
        let whole = line(&good);
        for end in 0..whole.len() {
            let found = listed(&[whole[..end].to_owned()]);
            assert!(found.processes.len() <= 1, "{end}");
        }
        let without_address = listed(&[format!("name={good}")]);
        assert_eq!(without_address.processes[0].address, None);
        let hostile = format!("name={good} addr=<b>{}", "1".repeat(1_000));
        assert_eq!(listed(&[hostile]).processes[0].address, None);
    }

    #[test]
    fn the_number_of_processes_is_bounded() {
        let id = |n: u64| ProcessId::from_bytes(n.to_be_bytes());
        let lines = (0..2_000).map(|n| {
            let process = WorkerProcess::new(id(n), "1", "h", 1, Timestamp::MIN);
            line(&name(&process, 1))
        });
        let lines: Vec<String> = lines.collect();
        let found = listed(&[lines.concat()]);
        assert_eq!((found.processes.len(), found.complete), (MAX_CONNECTIONS, false));
        // Another primary lists the same connections.
        let most = lines[..MAX_CONNECTIONS].concat();
        let found = listed(&[most.clone(), most]);
        assert_eq!((found.processes.len(), found.complete), (MAX_CONNECTIONS, true));
    }

    #[test]
    fn a_failure_makes_the_list_incomplete() {
        let failed = Listed::default().into_list(Some(Error::new(ErrorKind::Unreachable)));
        assert!(!failed.complete && failed.failure.is_some());
    }
}
