//! What happens to requests, and what the proxy and its connections share about it.

use std::time::Duration;

use tokio::sync::watch;

/// What happens to a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// It is not forwarded; its connection ends. The server has not executed it.
    CutBeforeRequest,
    /// It is forwarded and executed; its connection ends instead of the reply, and replies to
    /// earlier requests that are still on their way are lost too.
    CutAfterExecution,
    /// It is held, and replies too; connections stay open. Held data passes when the fault is
    /// removed. As a [one-time fault](super::Proxy::once) it holds that one connection permanently.
    Blackhole,
    /// It is held for this long, together with all that arrives behind it.
    Delay(Duration),
    /// This many of its bytes are forwarded; then its connection ends. A request with fewer bytes
    /// passes, and does not count. For one request at a time, like the next.
    CutRequestAt(usize, End),
    /// It is forwarded and executed, and this many bytes of its reply are passed on; then its
    /// connection ends. A shorter reply passes, and does not count. Of use for clients that have
    /// no other request on its way.
    CutReplyAt(usize, End),
}

/// How a connection ends in the middle of a request or reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// Both sides receive a FIN.
    Close,
    /// The client receives a RST if it is connected over TCP.
    Reset,
    /// Neither side is notified: the connection stays open, and no more data arrives.
    Stall,
}

/// What the proxy and its connections share.
#[derive(Clone, Default)]
pub(super) struct Shared {
    pub(super) rules: watch::Sender<Rules>,
    pub(super) faults: watch::Sender<u64>,
    /// Each change ends the connections that are open.
    pub(super) cuts: watch::Sender<u64>,
}

/// Which requests meet which fault.
#[derive(Default)]
pub(super) struct Rules {
    pub(super) always: Option<Fault>,
    /// Takes precedence.
    pub(super) once: Option<(Fault, Vec<u8>)>,
}
