//! From an error line of the server to an [`Error`].

use delayline_core::{Error, ErrorKind};

/// The longest detail that an error carries, in bytes.
const LONGEST_DETAIL: usize = 200;

/// Classifies an error line of the server, without the leading `-`.
///
/// The code at the start of the line determines the kind, even where a server before Redis 7 wraps
/// it in `ERR Error running script`. Its class holds for scripts that check before they write, and
/// of which the server can only refuse the first write. A line with an unknown code is
/// [`ErrorKind::Server`], whose outcome is unknown.
///
/// The detail is the line without the script's digest and without what a client sent: one line of
/// printable characters, at most 200 bytes long.
#[must_use]
pub fn classify(line: &str) -> Error {
    let line = unwrapped(line);
    Error::with_detail(kind(line), detail(line))
}

/// Whether the line says that the user has no such command: the access rules do not permit it, or
/// the server has renamed or removed it. Then nothing was executed.
pub(crate) fn is_forbidden(line: &str) -> bool {
    matches!(kind(line), ErrorKind::PermissionDenied | UNKNOWN_COMMAND)
}

const UNKNOWN_COMMAND: ErrorKind = ErrorKind::Unsupported("a command");

/// What a cluster does not support.
pub(crate) const SEVERAL_SLOTS: &str = "keys in several hash slots";

/// How Redis 6 begins a line about an error inside a script.
const INSIDE_A_SCRIPT: &str = "ERR Error running script (call to f_";

/// Whether a server before Redis 7 says that a script has begun and was stopped by an error.
pub(crate) fn is_from_inside_a_script_of_redis_6(line: &str) -> bool {
    line.starts_with(INSIDE_A_SCRIPT)
}

/// Whether the line says that the server does not know the script by its digest. Then nothing was
/// executed, and the call can be sent again with the script's source.
#[must_use]
pub fn is_no_script(line: &str) -> bool {
    code(line) == "NOSCRIPT"
}

fn kind(line: &str) -> ErrorKind {
    match code(line) {
        "OOM" => ErrorKind::OutOfMemory,
        "READONLY" => ErrorKind::ReadOnly,
        "BUSY" | "LOADING" | "MISCONF" | "NOREPLICAS" | "MASTERDOWN" | "CLUSTERDOWN"
        | "TRYAGAIN" | "MOVED" | "ASK" | "NOSCRIPT" | "UNBLOCKED" => ErrorKind::Busy,
        "WRONGTYPE" => ErrorKind::WrongType,
        "NOPERM" => ErrorKind::PermissionDenied,
        // In protected mode, a server without a password refuses clients of other machines.
        "NOAUTH" | "WRONGPASS" | "DENIED" => ErrorKind::Authentication,
        "CROSSSLOT" => ErrorKind::Unsupported(SEVERAL_SLOTS),
        "NOPROTO" => ErrorKind::Unsupported("the RESP version"),
        "ERR" => general_kind(line.get(4..).unwrap_or_default()),
        // Not a code but a sentence: unwrapped lines may have lost their `ERR`.
        word if word.contains(|letter: char| letter.is_ascii_lowercase()) => general_kind(line),
        _ => ErrorKind::Server,
    }
}

/// The kind of an error whose code is just `ERR`: only its words tell.
fn general_kind(words: &str) -> ErrorKind {
    let begins = |prefix: &str| {
        words.get(..prefix.len()).is_some_and(|start| start.eq_ignore_ascii_case(prefix))
    };
    if begins("max number of clients") {
        ErrorKind::Overloaded
    } else if begins("the user executing the script") || begins("acl failure in script") {
        ErrorKind::PermissionDenied
    } else if begins("invalid password")
        || begins("auth ")
        || begins("client sent auth")
        || begins("invalid username-password")
    {
        ErrorKind::Authentication
    } else if begins("unknown command") {
        // Refused before execution. Inside a script the words are others.
        UNKNOWN_COMMAND
    } else if begins("the stream has exhausted the last possible id") {
        // The first write of a relay.
        ErrorKind::Unsupported("a stream that has no id left for an entry")
    } else if begins("db index is out of range")
        || begins("invalid db index")
        || begins("select is not allowed in cluster mode")
    {
        ErrorKind::Unsupported("the database number")
    } else {
        ErrorKind::Server
    }
}

/// The first word of a line.
fn code(line: &str) -> &str {
    line.split([' ', '\r', '\n']).next().unwrap_or_default()
}

/// The line as the command inside a script gave it. Servers before Redis 7 wrap it:
/// `ERR Error running script (call to f_DIGEST): @user_script:12: @user_script: 12: -OOM ...`
/// (OptimalBits/bull#416).
fn unwrapped(line: &str) -> &str {
    let Some(inner) = line
        .strip_prefix(INSIDE_A_SCRIPT)
        .and_then(|rest| rest.split_once("): "))
        .map(|(_, inner)| inner)
    else {
        return line;
    };
    let inner = after_positions(inner);
    let inner = inner.strip_prefix('-').unwrap_or(inner);
    if inner.is_empty() { line } else { inner }
}

/// Skips `@user_script:12: ` and `@user_script: 12: `, as often as they stand in a row.
fn after_positions(mut text: &str) -> &str {
    loop {
        let after_name = text.strip_prefix('@').unwrap_or(text).strip_prefix("user_script:");
        let Some((number, rest)) = after_name.and_then(|rest| rest.split_once(':')) else {
            return text;
        };
        let number = number.trim_start();
        if number.is_empty() || !number.bytes().all(|byte| byte.is_ascii_digit()) {
            return text;
        }
        text = rest.trim_start();
    }
}

fn detail(line: &str) -> String {
    let line = without_script(without_arguments(line));
    let mut detail = String::with_capacity(line.len().min(LONGEST_DETAIL));
    for character in line.trim_end().chars() {
        let character = if character.is_control() { ' ' } else { character };
        if detail.len() + character.len_utf8() > LONGEST_DETAIL {
            break;
        }
        detail.push(character);
    }
    detail
}

/// Cuts what the server repeats of a command: `..., with args beginning with: 'payload'`. A name
/// that is no command's name is cut as well: it came out of a payload, somehow.
fn without_arguments(line: &str) -> &str {
    const UNKNOWN: &str = "ERR unknown command";
    let line = line.split(", with args").next().unwrap_or_default();
    if line.get(..UNKNOWN.len()).is_none_or(|start| !start.eq_ignore_ascii_case(UNKNOWN)) {
        return line;
    }
    let name = line.get(UNKNOWN.len()..).unwrap_or_default().trim();
    let is_name = |byte: u8| byte.is_ascii_alphanumeric() || b"'`|.-_".contains(&byte);
    if name.len() <= 32 && name.bytes().all(is_name) {
        line
    } else {
        line.get(..UNKNOWN.len()).unwrap_or_default()
    }
}

/// Cuts ` script: DIGEST, on @user_script:12.`, which Redis 7 appends.
fn without_script(line: &str) -> &str {
    match line.split_once(" script: ") {
        Some((words, rest))
            if rest.len() >= 40 && rest.bytes().take(40).all(|byte| byte.is_ascii_hexdigit()) =>
        {
            words
        }
        _ => line,
    }
}

#[cfg(test)]
mod tests {
    use delayline_core::ErrorClass;
    use proptest::prelude::*;

    use super::*;

    const DIGEST: &str = "5332031c6b470dc5a0dd9b4bf2030dea6d65de91";

    #[test]
    fn every_known_line_has_its_kind() {
        let table = [
            ("OOM command not allowed when used memory > 'maxmemory'.", ErrorKind::OutOfMemory),
            ("READONLY You can't write against a read only replica.", ErrorKind::ReadOnly),
            ("BUSY Redis is busy running a script.", ErrorKind::Busy),
            ("LOADING Redis is loading the dataset in memory", ErrorKind::Busy),
            ("MISCONF Redis is configured to save RDB snapshots", ErrorKind::Busy),
            ("NOREPLICAS Not enough good replicas to write.", ErrorKind::Busy),
            ("MASTERDOWN Link with MASTER is down", ErrorKind::Busy),
            ("CLUSTERDOWN The cluster is down", ErrorKind::Busy),
            ("TRYAGAIN Multiple keys request during rehashing of slot", ErrorKind::Busy),
            ("MOVED 3999 127.0.0.1:6381", ErrorKind::Busy),
            ("ASK 3999 127.0.0.1:6381", ErrorKind::Busy),
            ("NOSCRIPT No matching script. Please use EVAL.", ErrorKind::Busy),
            ("UNBLOCKED client unblocked via CLIENT UNBLOCK", ErrorKind::Busy),
            ("ERR max number of clients reached", ErrorKind::Overloaded),
            ("ERR max number of clients + cluster connections reached", ErrorKind::Overloaded),
            ("WRONGTYPE Operation against a key holding the wrong kind", ErrorKind::WrongType),
            ("NOPERM this user has no permissions", ErrorKind::PermissionDenied),
            (
                "ERR The user executing the script can't run this command or subcommand",
                ErrorKind::PermissionDenied,
            ),
            ("ERR ACL failure in script: no permission", ErrorKind::PermissionDenied),
            ("NOAUTH Authentication required.", ErrorKind::Authentication),
            ("WRONGPASS invalid username-password pair", ErrorKind::Authentication),
            ("DENIED Redis is running in protected mode", ErrorKind::Authentication),
            ("ERR invalid password", ErrorKind::Authentication),
            ("ERR AUTH <password> called without any password", ErrorKind::Authentication),
            ("ERR Client sent AUTH, but no password is set", ErrorKind::Authentication),
            ("ERR DB index is out of range", ErrorKind::Unsupported("the database number")),
            (
                "ERR SELECT is not allowed in cluster mode",
                ErrorKind::Unsupported("the database number"),
            ),
            ("ERR unknown command 'EVALSHA'", ErrorKind::Unsupported("a command")),
            ("NOPROTO unsupported protocol version", ErrorKind::Unsupported("the RESP version")),
            (
                "CROSSSLOT Keys in request don't hash to the same slot",
                ErrorKind::Unsupported("keys in several hash slots"),
            ),
            ("ERR value is not an integer or out of range", ErrorKind::Server),
            ("ERR user_script:1: Script attempted to access a non local key", ErrorKind::Server),
            ("EXECABORT Transaction discarded", ErrorKind::Server),
            ("OOMPH is no code", ErrorKind::Server),
            ("AUTH is a script's own code", ErrorKind::Server),
            ("ERR", ErrorKind::Server),
            ("", ErrorKind::Server),
        ];
        for (line, expected) in table {
            let error = classify(line);
            assert_eq!(error.kind(), &expected, "{line}");
            assert_eq!(error.detail(), line);
        }
    }

    #[test]
    fn redis_7_form_loses_the_digest() {
        let line = format!(
            "OOM command not allowed when used memory > 'maxmemory'. \
             script: {DIGEST}, on @user_script:12."
        );
        let error = classify(&line);
        assert_eq!(error.kind(), &ErrorKind::OutOfMemory);
        assert_eq!(error.detail(), "OOM command not allowed when used memory > 'maxmemory'.");
    }

    #[test]
    fn form_before_redis_7_is_unwrapped() {
        let wrapped =
            |inner: &str| format!("ERR Error running script (call to f_{DIGEST}): {inner}");
        let table = [
            ("@user_script:12: @user_script: 12: -OOM command not allowed", ErrorKind::OutOfMemory),
            ("@user_script:1: WRONGTYPE Operation against a key", ErrorKind::WrongType),
            ("@user_script:3: @user_script: 3: -READONLY You can't write", ErrorKind::ReadOnly),
            ("@user_script:3: @user_script: 3: -NOREPLICAS Not enough", ErrorKind::Busy),
            (
                "@user_script: 1: -NOPERM No permissions to access a key",
                ErrorKind::PermissionDenied,
            ),
            (
                "@user_script:1: The user executing the script can't run this command",
                ErrorKind::PermissionDenied,
            ),
            ("@user_script:9: user_script:9: attempt to compare nil", ErrorKind::Server),
        ];
        for (inner, expected) in table {
            let error = classify(&wrapped(inner));
            assert_eq!(error.kind(), &expected, "{inner}");
            assert!(!error.detail().contains(DIGEST), "{inner}");
        }
        assert_eq!(classify(&wrapped("")).kind(), &ErrorKind::Server);
    }

    #[test]
    fn what_a_client_sent_is_cut() {
        let line = "ERR unknown command 'FOO', with args beginning with: 'secret' 'payload' ";
        assert_eq!(classify(line).detail(), "ERR unknown command 'FOO'");
        let line = "ERR unknown command `HELLO`, with args beginning with: `3`, `AUTH`, `secret`, ";
        assert_eq!(classify(line).detail(), "ERR unknown command `HELLO`");
        let line = "ERR unknown command 'a secret payload'";
        assert_eq!(classify(line).detail(), "ERR unknown command");
        assert_eq!(classify(line).class(), ErrorClass::Rejected);
    }

    #[test]
    fn digest_is_known_missing_only_by_its_code() {
        assert!(is_no_script("NOSCRIPT No matching script. Please use EVAL."));
        assert!(is_no_script("NOSCRIPT"));
        assert!(!is_no_script("ERR NOSCRIPT"));
        assert!(!is_no_script("NOSCRIPTS"));
    }

    #[test]
    fn a_detail_is_cut_at_its_limit_and_between_characters() {
        let cut = |length, end: &str| detail(&("x".repeat(length) + end)).len();
        assert_eq!((cut(200, ""), cut(201, "")), (200, 200));
        assert_eq!((cut(198, "\u{e9}"), cut(199, "\u{e9}")), (200, 199));
    }

    #[test]
    fn only_positions_in_a_script_are_skipped() {
        let skipped = "@user_script:12: @user_script: 12: -OOM no memory";
        assert_eq!(after_positions(skipped), "-OOM no memory");
        for kept in ["@user_script:: -OOM", "user_script: : -OOM", "@user_script:1a: -OOM"] {
            assert_eq!(after_positions(kept), kept);
        }
    }

    proptest! {
        #[test]
        fn any_line_gives_a_short_printable_detail(line in any::<String>()) {
            let error = classify(&line);
            prop_assert!(error.detail().len() <= LONGEST_DETAIL);
            prop_assert!(!error.detail().contains(char::is_control));
        }

        #[test]
        fn wrapped_lines_do_not_panic(inner in "(@?user_script: ?[0-9]{0,3}:? ?){0,4}-?[A-Z]{0,9} .*") {
            let line = format!("ERR Error running script (call to f_{DIGEST}): {inner}");
            prop_assert!(classify(&line).detail().len() <= LONGEST_DETAIL);
        }
    }
}
