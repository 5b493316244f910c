//! What only some of the supported servers can do.

use std::io::Write as _;

use delayline_test_server::{Reply as Raw, Server};

/// A capability that a case needs for its full promise.
///
/// A server has it by its version, so that one which loses it fails the case.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Capability {
    /// A script asks for its rights before its first write, by `redis.acl_check_cmd`, and rights
    /// are given for single keys, by selectors. Since Redis 7.0. Without it a missing right may
    /// leave half an operation, which `Op::Repair` mends; crates/delayline/docs/guarantees.md says
    /// so.
    RightsAreAsked,
    /// A server reports how many entries a group of a stream has not read. Since Redis 7.0. Without
    /// it a relay with a backlog is refused.
    GroupsHaveLag,
    /// `min-replicas-to-write` counts inside scripts. Since Redis 6.2. Without it a script writes
    /// although replicas are missing: the setting then does not protect writes of scripts.
    ReplicasCountInScripts,
}

impl Capability {
    /// Whether the server has it. If not, writes that to stderr, past the capture of a test's
    /// output.
    pub fn is_of(self, server: &Server) -> bool {
        let version = server.info("server", "redis_version");
        let mut numbers = version.split('.').map(|number| number.parse::<u32>().unwrap());
        let since = match self {
            Self::RightsAreAsked | Self::GroupsHaveLag => (7, 0),
            Self::ReplicasCountInScripts => (6, 2),
        };
        let has_it = (numbers.next().unwrap(), numbers.next().unwrap()) >= since;
        if self == Self::RightsAreAsked {
            let question = "return redis.acl_check_cmd and 1 or 0";
            let answer = server.command(&["EVAL", question, "0"]);
            assert_eq!(answer, Raw::Int(has_it.into()), "{self:?} on {version}");
        }
        if !has_it {
            let case = std::thread::current().name().unwrap_or_default().to_owned();
            let told = format!("{case}: in part only: Redis {version} lacks {self:?}\n");
            std::io::stderr().write_all(told.as_bytes()).unwrap();
        }
        has_it
    }
}
