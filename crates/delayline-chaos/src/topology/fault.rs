//! What happens to the servers.

use std::time::Duration;

use clap::ValueEnum;

use crate::strikes::Effect;

/// A kind of fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, ValueEnum)]
pub enum Fault {
    /// A primary is killed with SIGKILL, replaced, and restarts as a replica.
    Kill,
    /// A primary is stopped with SIGSTOP until it was replaced, and then continues: for some
    /// milliseconds it still acts as the primary.
    Freeze,
    /// A primary is stopped for less time than it takes to replace it.
    Stall,
    /// An operator fails over: `CLUSTER FAILOVER`, `SENTINEL FAILOVER`.
    FailOver,
    /// `SENTINEL FAILOVER COORDINATED` (Valkey 9): the replica has everything before it takes over.
    HandOver,
    /// A slot moves in the classic way, and waits with half of its keys on each node.
    MoveInHalves,
    /// A slot moves in one step (Redis 8.4, Valkey 9), and back.
    MoveAtOnce,
    /// A node joins, gets a slot, gives it back, and leaves.
    AddAndRemoveNode,
    /// A primary forgets its scripts, again and again.
    FlushScripts,
    /// Clients cannot reach a primary that all others can reach.
    CutOff,
    /// A primary executes requests, and their connections end instead of the replies.
    LoseReplies,
    /// A replica is killed, and restarts.
    KillReplica,
    /// A sentinel is stopped for a while.
    FreezeSentinel,
    /// A primary, a minority of the servers and one process reach each other only, until the
    /// majority has replaced the primary.
    Part,
    /// What a primary sends to other servers is lost, until they have replaced it.
    Mute,
    /// What a primary sends to other servers is late.
    SlowDown,
}

impl Fault {
    pub(super) const fn effect(self) -> Effect {
        match self {
            Self::Kill | Self::Freeze | Self::CutOff | Self::LoseReplies | Self::Part => {
                Effect::Failure
            }
            Self::Stall => Effect::Delay,
            _ => Effect::None,
        }
    }
}

/// What a fault came to.
#[derive(Clone, Copy, Debug, Default)]
pub struct Struck {
    /// From the promotion of a new primary, or else from the end of the fault, until the last
    /// affected queue answered again.
    pub recovery: Duration,
    /// How often a second a process asked the server that it asked most who serves what.
    pub asked_a_second: f64,
    /// Whether a call felt it.
    pub is_felt: bool,
    /// Whether a primary was replaced before without a fault, or instead of a requested handover:
    /// the machine was too busy.
    pub is_unasked: bool,
}
