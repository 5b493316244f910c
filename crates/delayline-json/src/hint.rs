//! What may help when something fails.

use delayline::ErrorKind;

/// What may help against an error, as a half-sentence; `None` if its text says all there is to say.
/// It names flags of the command.
#[must_use]
pub fn hint(kind: &ErrorKind) -> Option<&'static str> {
    Some(match kind {
        ErrorKind::Unreachable => {
            "is a Redis server running there? --url or DELAYLINE_URL names another; \
             `delayline demo` needs none"
        }
        ErrorKind::Tls => "--tls-ca FILE trusts your own certificate authority",
        ErrorKind::Authentication => "set the login with DELAYLINE_URL=redis://USER:PASSWORD@HOST",
        ErrorKind::PermissionDenied => "the server's `ACL GETUSER` shows what the user may do",
        ErrorKind::ReadOnly => "connect to its primary instead",
        ErrorKind::WrongType => {
            "another program uses a key of this queue, whose keys are delayline:{QUEUE}:*, or the \
             destination of a relay: choose another name, or remove the key that `TYPE` shows as \
             another type"
        }
        ErrorKind::InUse => {
            "`delayline serve QUEUE --exec COMMAND` delivers messages itself; beside it, all \
             subcommands work but work, relay, serve and schedule run"
        }
        ErrorKind::DiskFull => "free up space on the disk, or let workers drain the queues",
        ErrorKind::OutOfMemory => "raise the server's maxmemory, or let workers drain the queue",
        ErrorKind::Evicting { .. } => {
            "`CONFIG SET maxmemory-policy noeviction` on the server, or use --allow-eviction"
        }
        ErrorKind::NewerVersion { .. } | ErrorKind::NewerFeature { .. } => {
            "install a newer delayline"
        }
        ErrorKind::OlderVersion { .. } => {
            "stop the workers of the version that wrote it, and run `delayline upgrade`"
        }
        ErrorKind::Upgrading { .. } => "`delayline upgrade` resumes an interrupted upgrade",
        ErrorKind::ConnectionLost | ErrorKind::Timeout => {
            "the operation may have been executed; it is safe to repeat it with the same ids, \
             unless it reuses finished ids"
        }
        ErrorKind::Unconfirmed => {
            "it was executed: sending it again under the same id is harmless, unless it reuses \
             finished ids, and confirms it, once the replicas are there"
        }
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_hint_says_what_to_do() {
        for (kind, words) in [
            (ErrorKind::Unreachable, "is a Redis server running there?"),
            (ErrorKind::Tls, "--tls-ca FILE"),
            (ErrorKind::Authentication, "DELAYLINE_URL=redis://USER:PASSWORD@HOST"),
            (ErrorKind::PermissionDenied, "ACL GETUSER"),
            (ErrorKind::ReadOnly, "its primary"),
            (ErrorKind::WrongType, "choose another name"),
            (ErrorKind::InUse, "`delayline serve QUEUE"),
            (ErrorKind::DiskFull, "free up space on the disk"),
            (ErrorKind::OutOfMemory, "maxmemory,"),
            (ErrorKind::Evicting { policy: "allkeys-lru".to_owned() }, "--allow-eviction"),
            (ErrorKind::NewerVersion { found: 9, supported: 8 }, "install a newer delayline"),
            (ErrorKind::NewerFeature { major: 2, minor: 1 }, "install a newer delayline"),
            (ErrorKind::OlderVersion { found: 7, supported: 8 }, "run `delayline upgrade`"),
            (ErrorKind::ConnectionLost, "may have been executed"),
            (ErrorKind::Timeout, "may have been executed"),
            (ErrorKind::Unconfirmed, "under the same id"),
        ] {
            assert!(hint(&kind).is_some_and(|hint| hint.contains(words)), "{kind:?}");
        }
        assert_eq!(hint(&ErrorKind::Busy), None);
    }
}
