//! Faults of a network: packets between servers that are dropped or late.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use super::{Network, Place, State, address, run};
use crate::{Server, StartError};

impl Network {
    /// Drops all packets of a server to another one, silently. The other direction stays open.
    ///
    /// # Panics
    ///
    /// One of the servers is not in this network, or the operating system refuses.
    #[track_caller]
    pub fn cut(&self, from: &Server, to: &Server) {
        let (from, to) = (self.place(from), self.place(to));
        // Frames to a hardware address that no server has: no error reaches the sender.
        let (name, address) = (from.namespace(), to.address());
        must(&format!(
            "-n {name} neigh replace {address} lladdr {NO_SERVER} nud permanent dev eth0"
        ));
        self.lock().cuts.insert((from.number, to.number));
    }

    /// Drops all packets between these servers and those, in both directions.
    ///
    /// # Panics
    ///
    /// See [`cut`](Self::cut).
    #[track_caller]
    pub fn part(&self, these: &[&Server], those: &[&Server]) {
        for (one, other) in these.iter().flat_map(|one| those.iter().map(move |it| (one, it))) {
            self.cut(one, other);
            self.cut(other, one);
        }
    }

    /// Slows all packets down that a server sends: `netem` delays each, and where the kernel has no
    /// `netem`, `tbf` sends at most 250 KB per second and holds or drops the rest.
    ///
    /// # Errors
    ///
    /// The kernel has neither.
    ///
    /// # Panics
    ///
    /// The server is not in this network.
    #[track_caller]
    pub fn slow(&self, server: &Server, delay: Duration) -> Result<(), StartError> {
        let place = self.place(server);
        let (name, ms) = (place.namespace(), delay.as_millis());
        let add = |qdisc: &str| run("tc", &format!("-n {name} qdisc add dev eth0 root {qdisc}"));
        add(&format!("netem delay {ms}ms"))
            .or_else(|_| add(&format!("tbf rate 2mbit burst 4kb latency {ms}ms")))
            .map_err(StartError::io("slow packets down with tc"))?;
        self.lock().slow.insert(place.number);
        Ok(())
    }

    /// Lets everything pass again, at full speed.
    ///
    /// # Panics
    ///
    /// The operating system refuses.
    #[track_caller]
    pub fn heal(&self) {
        let State { cuts, slow } = std::mem::take(&mut *self.lock());
        for (from, to) in cuts {
            let (name, address) = (self.namespace(from), address(to));
            must(&format!("-n {name} neigh del {address} dev eth0"));
        }
        for number in slow {
            let name = self.namespace(number);
            if let Err(error) = run("tc", &format!("-n {name} qdisc del dev eth0 root")) {
                refused(&error);
            }
        }
    }

    fn place<'a>(&self, server: &'a Server) -> &'a Place {
        let place = server.place().filter(|it| Arc::ptr_eq(&it.network.shared, &self.shared));
        let Some(place) = place else { not_here() };
        place
    }
}

#[track_caller]
fn must(args: &str) {
    if let Err(error) = run("ip", args) {
        refused(&error);
    }
}

#[track_caller]
#[expect(clippy::panic, reason = "documented: a test cannot go on then")]
fn refused(error: &io::Error) -> ! {
    panic!("cannot change the network: {error}")
}

#[track_caller]
#[expect(clippy::panic, reason = "documented: a test cannot go on then")]
fn not_here() -> ! {
    panic!("the server was built without this network")
}

/// Locally administered, and the address of no interface.
const NO_SERVER: &str = "02:00:00:00:00:01";
