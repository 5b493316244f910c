//! A private network for servers that must not always reach each other.

mod faults;

use std::collections::BTreeSet;
use std::io;
use std::net::Ipv4Addr;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use crate::StartError;

/// A bridge, and for each server a network namespace with its own address:
/// [`Builder::network`](crate::Builder::network).
///
/// The servers reach each other and nothing else. The test reaches them over their unix sockets,
/// directly or through a [`proxy`](crate::proxy), so cuts between servers do not affect it.
///
/// Linux only. Requires the rights of root and the programs `ip` and `tc`. The network is removed
/// with its last handle and its last server, also if the process is killed.
///
/// ```
/// use delayline_test_server::{Network, Server};
///
/// # fn main() {
/// let Ok(network) = Network::start() else {
///     println!("skipped: no network namespaces on this machine");
///     return;
/// };
/// let [one, other] = [(); 2].map(|()| Server::builder().network(&network).start());
/// network.cut(&one, &other); // what `one` sends does not reach `other`
/// network.heal();
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Network {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    /// All namespaces of this network begin with it.
    prefix: String,
    servers: AtomicU8,
    state: Mutex<State>,
    _removal: Removal,
}

/// Faults of the network, by the numbers of servers.
#[derive(Debug, Default)]
struct State {
    /// From the first to the second, nothing passes.
    cuts: BTreeSet<(u8, u8)>,
    slow: BTreeSet<u8>,
}

/// The place of a server in a network.
#[derive(Debug)]
pub(crate) struct Place {
    network: Network,
    number: u8,
}

impl Network {
    /// Creates a network without servers.
    ///
    /// # Errors
    ///
    /// The operating system does not permit it, or `ip` is missing.
    pub fn start() -> Result<Self, StartError> {
        Self::create().map_err(StartError::io("create a network namespace"))
    }

    fn create() -> io::Result<Self> {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let prefix = format!("delayline-{}-{count}-", std::process::id());
        let hub = format!("{prefix}hub");
        // First, so that nothing is left behind if a later step fails.
        let removal = Removal::start(&prefix)?;
        run("ip", &format!("netns add {hub}"))?;
        run("ip", &format!("-n {hub} link add bridge type bridge"))?;
        run("ip", &format!("-n {hub} link set bridge up"))?;
        let (servers, state) = (AtomicU8::new(0), Mutex::default());
        Ok(Self { shared: Arc::new(Shared { prefix, servers, state, _removal: removal }) })
    }

    /// Adds a namespace for one server.
    pub(crate) fn add(&self) -> io::Result<Place> {
        let number = 1 + self.shared.servers.fetch_add(1, Ordering::Relaxed);
        let place = Place { network: self.clone(), number };
        let (hub, name, address) =
            (format!("{}hub", self.shared.prefix), place.namespace(), place.address());
        run("ip", &format!("netns add {name}"))?;
        run("ip", &format!("-n {hub} link add v{number} type veth peer name eth0 netns {name}"))?;
        run("ip", &format!("-n {hub} link set v{number} master bridge up"))?;
        run("ip", &format!("-n {name} addr add {address}/24 dev eth0"))?;
        run("ip", &format!("-n {name} link set eth0 up"))?;
        run("ip", &format!("-n {name} link set lo up"))?;
        Ok(place)
    }

    fn namespace(&self, number: u8) -> String {
        format!("{}{number}", self.shared.prefix)
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, State> {
        self.shared.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Place {
    pub(crate) fn namespace(&self) -> String {
        self.network.namespace(self.number)
    }

    pub(crate) const fn address(&self) -> Ipv4Addr {
        address(self.number)
    }

    /// Different for each server, because tests tell servers apart by their ports.
    pub(crate) fn port(&self) -> u16 {
        FIRST_PORT + u16::from(self.number)
    }
}

/// A shell that waits for the end of this process or of the network, then removes the namespaces.
#[derive(Debug)]
struct Removal(Child);

impl Removal {
    fn start(prefix: &str) -> io::Result<Self> {
        let script = r#"read -r _
            ip netns list | while read -r name _; do
                case "$name" in "$0"*) ip netns del "$name";; esac
            done"#;
        let mut command = Command::new("sh");
        command.args(["-c", script, prefix]);
        // Ctrl-C is sent to a whole process group; this shell must survive it.
        std::os::unix::process::CommandExt::process_group(&mut command, 0);
        command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
        command.spawn().map(Self)
    }
}

impl Drop for Removal {
    fn drop(&mut self) {
        drop(self.0.stdin.take());
        // Fails only if the shell has ended already.
        let _ = self.0.wait();
    }
}

const fn address(number: u8) -> Ipv4Addr {
    Ipv4Addr::new(10, 77, 0, number)
}

fn run(program: &'static str, args: &str) -> io::Result<()> {
    let mut command = Command::new(program);
    let output = command.args(args.split_whitespace()).stdin(Stdio::null()).output()?;
    if output.status.success() {
        return Ok(());
    }
    let reason = String::from_utf8_lossy(&output.stderr);
    Err(io::Error::other(format!("{program} {args}: {}", reason.trim())))
}

const FIRST_PORT: u16 = 7000;
