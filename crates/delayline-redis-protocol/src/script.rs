//! The scripts: one for each operation, put together from the files in lua/.

use std::collections::{BTreeSet, HashMap};
use std::sync::LazyLock;

use delayline_core::Op;

use crate::commands::least_arguments;
use crate::keys::KEY_NAMES;

/// A command and the name of a key that a script calls it on.
pub(crate) type Need = (String, &'static str);

/// A script as the server gets it.
#[derive(Debug)]
pub struct Script {
    /// The name of its file.
    pub name: &'static str,
    /// Its text.
    pub source: String,
    /// The SHA-1 of its text, in 40 lowercase hexadecimal digits: its name in the server's cache.
    pub sha1: String,
    /// The names of its `KEYS`, as in [`KEY_NAMES`] and in the same order: those that it names, because
    /// each key costs every call something.
    pub keys: Vec<&'static str>,
    /// The commands that stand in it, each with the name of its key.
    pub(crate) needs: BTreeSet<Need>,
}

macro_rules! files {
    ($($file:literal)+) => {
        &[$(($file, include_str!(concat!("../lua/", $file)))),+]
    };
}

/// What scripts include.
const PARTS: &[(&str, &str)] = files! {
    "prelude.lua" "writing.lua" "bell.lua" "scheduling.lua" "records.lua" "record_reading.lua" "details.lua"
    "details_writing.lua" "finished.lua" "finishing.lua" "remains.lua" "replay.lua" "reclaim.lua" "burial.lua"
    "unusual_record.lua" "walk.lua" "audit.lua" "half.lua" "content_looking.lua" "orphans.lua" "newer.lua"
};

macro_rules! scripts {
    ($($name:ident: $file:literal;)+) => {
        $(pub(crate) static $name: LazyLock<Script> =
            LazyLock::new(|| Script::new($file, include_str!(concat!("../lua/", $file))));)+

        /// The files of all scripts.
        #[cfg(test)]
        const FILES: &[&str] = &[$(include_str!(concat!("../lua/", $file))),+];

        /// All scripts, for tests and for loading them ahead.
        #[must_use]
        pub fn all_scripts() -> Vec<&'static Script> {
            vec![$(&*$name),+]
        }
    };
}

scripts! {
    ENQUEUE: "enqueue.lua";
    CLAIM: "claim.lua";
    SETTLE: "settle.lua";
    EXTEND: "extend.lua";
    CANCEL: "cancel.lua";
    RESCHEDULE: "reschedule.lua";
    REDRIVE: "redrive.lua";
    PURGE: "purge.lua";
    PAUSE: "pause.lua";
    GET: "get.lua";
    LIST: "list.lua";
    STATS: "stats.lua";
    CHECK: "check.lua";
    REPAIR: "repair.lua";
    RING: "ring.lua";
}

impl Script {
    /// The script that carries out `op`.
    #[must_use]
    pub fn of(op: &Op) -> &'static Self {
        match op {
            Op::Enqueue(_) => &ENQUEUE,
            Op::Claim(_) => &CLAIM,
            Op::Settle(_) => &SETTLE,
            Op::Extend(_) => &EXTEND,
            Op::Cancel(_) => &CANCEL,
            Op::Reschedule(_) => &RESCHEDULE,
            Op::Redrive(_) => &REDRIVE,
            Op::Purge(_) => &PURGE,
            Op::Pause | Op::Resume => &PAUSE,
            Op::Get(_) => &GET,
            Op::List(_) => &LIST,
            Op::Stats => &STATS,
            Op::Check(_) => &CHECK,
            Op::Repair(_) => &REPAIR,
        }
    }

    /// The script that gives a hint.
    #[must_use]
    pub fn of_ring() -> &'static Self {
        &RING
    }

    fn new(name: &'static str, file: &str) -> Self {
        let whole = without_unused_functions(&with_parts(file));
        let needs = needs_of(&whole);
        let whole = with_questions(&whole, &needs);
        let keys = keys_of(&whole);
        let source = with_literal_constants(&with_literal_keys(&whole, &keys));
        let sha1 = sha1_smol::Sha1::from(&source).digest().to_string();
        Self { name, source, sha1, keys, needs }
    }
}

fn part(name: &str) -> Option<&'static str> {
    PARTS.iter().find_map(|(part, text)| (*part == name).then_some(*text))
}

/// Puts the parts in the place of the lines that include them.
fn with_parts(file: &str) -> String {
    let mut text = String::with_capacity(32 * 1024);
    for line in file.lines() {
        let part = line.trim_start().strip_prefix("--@include ").and_then(part);
        if let Some(part) = part {
            text.push_str(&with_parts(part));
        } else {
            text.push_str(line);
            text.push('\n');
        }
    }
    text
}

/// Leaves out the functions that a script includes and does not use: each costs every call something.
///
/// They begin and end at the beginning of a line.
fn without_unused_functions(text: &str) -> String {
    let mut text = text.to_owned();
    let mut from = 0;
    while let Some(start) = text[from..].find(FUNCTION).map(|at| from + at + 1) {
        let name_at = start + FUNCTION.len() - 1;
        let name = text[name_at..].split('(').next().unwrap_or_default();
        let words = text.lines().flat_map(|line| code(line).split(|character| !is_word(character)));
        let is_used = words.filter(|word| *word == name).count() > 1;
        match text[start..].find("\nend\n") {
            Some(length) if !is_used => {
                text.replace_range(start..start + length + "\nend\n".len(), "");
                // What it called may not be used any more.
                from = 0;
            }
            _ => from = name_at,
        }
    }
    text
}

const FUNCTION: &str = "\nlocal function ";

/// The commands that are called on keys, each with the name of its key; one entry for each key of a
/// command that has several.
fn needs_of(source: &str) -> BTreeSet<Need> {
    let mut needs = BTreeSet::new();
    for call in source.split("redis.call('").skip(1) {
        let Some((command, mut rest)) = call.split_once('\'') else { continue };
        while let Some(argument) = rest.strip_prefix(", key.") {
            let end = argument.find(|character| !is_word(character)).unwrap_or(argument.len());
            let (name, after) = argument.split_at(end);
            let known = KEY_NAMES.into_iter().find(|known| *known == name);
            needs.extend(known.map(|key| (command.to_owned(), key)));
            rest = after;
        }
    }
    needs
}

/// Puts questions to the server in the place of the lines `--@ask COMMAND key, COMMAND key`: the
/// script ends there with `NOPERM` if the user may not run one of the commands on its key. `all` asks
/// about everything that the script calls.
///
/// Redis 6 cannot be asked.
fn with_questions(source: &str, needs: &BTreeSet<Need>) -> String {
    let mut text = String::with_capacity(source.len());
    for line in source.lines() {
        match line.trim_start().strip_prefix("--@ask ") {
            None => text.push_str(line),
            Some("all") => text.push_str(&question(needs.iter().map(|(c, key)| (&**c, *key)))),
            Some(list) => {
                text.push_str(&question(list.split(", ").filter_map(|need| need.split_once(' '))));
            }
        }
        text.push('\n');
    }
    text
}

fn question<'a>(needs: impl Iterator<Item = (&'a str, &'a str)>) -> String {
    let permitted = |(command, key): (&str, &str)| {
        let arguments = format!(", key.{key}").repeat(least_arguments(command).unwrap_or(1));
        format!("redis.acl_check_cmd('{command}'{arguments})")
    };
    let permitted: Vec<_> = needs.map(permitted).collect();
    let permitted = permitted.join(" and ");
    format!("if redis.acl_check_cmd and not ({permitted}) then error({{err = '{DENIED}'}}) end")
}

/// What a script answers that may not do all that it needs.
const DENIED: &str = "NOPERM the user lacks a permission that the script needs";

/// The keys that a script names.
fn keys_of(source: &str) -> Vec<&'static str> {
    let named = |name: &str| {
        let mut uses = source.match_indices("key.").map(|(at, dot)| &source[at + dot.len()..]);
        uses.any(|rest| rest.strip_prefix(name).is_some_and(|rest| !rest.starts_with(is_word)))
    };
    KEY_NAMES.into_iter().filter(|name| named(name)).collect()
}

/// Puts `KEYS[i]` for `key.NAME`: some servers and proxies accept a key in a script only as a
/// literal `KEYS[i]` (<https://github.com/HDT3213/delayqueue/issues/12>).
fn with_literal_keys(source: &str, keys: &[&str]) -> String {
    let mut names: Vec<_> = keys.iter().zip(1..).collect();
    // A name may begin with another one.
    names.sort_by_key(|(name, _)| std::cmp::Reverse(name.len()));
    names.into_iter().fold(source.to_owned(), |text, (name, position)| {
        text.replace(&format!("key.{name}"), &format!("KEYS[{position}]"))
    })
}

/// Puts their values for the names of constants, and leaves comments out.
///
/// A constant is declared in a line like `local A, B = 1, 'text'`. Lua has no constants: as a
/// variable each costs every call a slot, and every function that uses it a search through all such
/// slots. Together that was a tenth of the time of a call.
fn with_literal_constants(source: &str) -> String {
    let mut constants = HashMap::new();
    let mut kept = Vec::new();
    for line in source.lines() {
        let line = code(line);
        match declared(line) {
            Some(declared) => constants.extend(declared),
            None if line.is_empty() => {}
            None => kept.push(line),
        }
    }
    let mut text = kept.join("\n");
    text.push('\n');
    // Every other piece is a text in quotes.
    let pieces = text.split('\'').enumerate().map(|(n, piece)| match n % 2 {
        0 => with_values(piece, &constants),
        _ => piece.to_owned(),
    });
    pieces.collect::<Vec<_>>().join("'")
}

/// A line without its comment; no text holds two hyphens.
fn code(line: &str) -> &str {
    line.split("--").next().unwrap_or_default().trim()
}

/// The names and values of a line that declares constants.
fn declared(line: &str) -> Option<Vec<(&str, &str)>> {
    let (names, values) = line.strip_prefix("local ")?.split_once(" = ")?;
    let (names, values) = (names.split(", "), values.split(", "));
    let is_name = |name: &str| name.bytes().all(|byte| byte.is_ascii_uppercase() || byte == b'_');
    let is_value = |value: &str| {
        value.parse::<i64>().is_ok() || value.starts_with('\'') && value.ends_with('\'')
    };
    let fits = names.clone().count() == values.clone().count()
        && names.clone().all(is_name)
        && values.clone().all(is_value);
    fits.then(|| names.zip(values).collect())
}

fn is_word(character: char) -> bool {
    character.is_ascii_alphanumeric() || character == '_'
}

fn with_values(code: &str, constants: &HashMap<&str, &str>) -> String {
    let mut text = String::with_capacity(code.len());
    let mut rest = code;
    while let Some(start) = rest.find(is_word) {
        let (before, from_word) = rest.split_at(start);
        let end = from_word.find(|character| !is_word(character)).unwrap_or(from_word.len());
        let (word, after) = from_word.split_at(end);
        text.push_str(before);
        text.push_str(constants.get(word).unwrap_or(&word));
        rest = after;
    }
    text + rest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_key_is_a_literal_and_declared() {
        for script in all_scripts() {
            let code = &script.source;
            assert!(!code.contains("key."), "a key that keys.rs does not know");
            for call in code.split("redis.call(").skip(1) {
                let arguments = call.split(')').next().unwrap_or_default();
                let mut arguments = arguments.splitn(3, ',').map(str::trim);
                let command = arguments.next().unwrap_or_default();
                assert!(command.starts_with('\'') && command.ends_with('\''), "{call:.60}");
                if command != "'TIME'" {
                    let key = arguments.next().unwrap_or_default();
                    assert!(key.starts_with("KEYS["), "{call:.60}");
                }
            }
        }
    }

    #[test]
    fn a_script_gets_the_keys_that_it_names_and_needs_what_it_calls() {
        let script = Script::new(
            "test.lua",
            "redis.call('TIME')\nredis.call('RENAME', key.finished_new, key.finished_old)\n\
             redis.call('ZADD', key.due, 1, 'a')\n",
        );
        assert_eq!(script.keys, ["due", "finished_new", "finished_old"]);
        let rename = |key| ("RENAME".to_owned(), key);
        let zadd = ("ZADD".to_owned(), "due");
        let needs = [rename("finished_new"), rename("finished_old"), zadd];
        assert_eq!(script.needs, BTreeSet::from(needs));
        assert!(script.source.contains("redis.call('RENAME', KEYS[2], KEYS[3])"));
    }

    #[test]
    fn questions_are_literal_and_have_as_many_arguments_as_the_command_takes() {
        let script =
            Script::new("test.lua", "--@ask SET control, ZREM due\nredis.call('LLEN', key.bell)\n");
        let question = "if redis.acl_check_cmd and not (\
                        redis.acl_check_cmd('SET', KEYS[1], KEYS[1]) and \
                        redis.acl_check_cmd('ZREM', KEYS[2], KEYS[2])) then error({err = ";
        assert!(script.source.starts_with(question), "{}", script.source);
        let all = Script::new("test.lua", "--@ask all\nredis.call('SET', key.control, '')\n");
        let question = "not (redis.acl_check_cmd('SET', KEYS[1], KEYS[1])) then";
        assert!(all.source.contains(question), "{}", all.source);
    }

    #[test]
    fn every_write_but_the_first_is_asked_about() {
        const WRITES: [&str; 9] =
            ["HDEL", "HSET", "LPUSH", "PEXPIRE", "RENAME", "SET", "UNLINK", "ZADD", "ZREM"];
        for file in FILES {
            let script = Script::new("test.lua", file);
            let position = |key: &str| script.keys.iter().position(|name| *name == key).unwrap();
            // `begin_writes` everywhere else.
            let is_first = |need: (&str, &str)| {
                need == ("HDEL", "records")
                    || script.sha1 == ENQUEUE.sha1 && need == ("ZADD", "due")
            };
            for (command, key) in &script.needs {
                let asked = format!("acl_check_cmd('{command}', KEYS[{}]", position(key) + 1);
                let is_write = WRITES.contains(&&**command);
                let known = !is_write || script.source.contains(&asked);
                assert!(known || is_first((command, key)), "{command} {key}: {file:.60}");
            }
        }
    }

    #[test]
    fn functions_that_a_script_does_not_use_are_left_out() {
        let text = "local x\nlocal function a()\n  return 1\nend\nlocal function b()\n  return a()\nend\n\
                    local function c()\n  return x\nend\nlocal function d()\nend\nreturn {c(), d}\n";
        let kept = "local x\nlocal function c()\n  return x\nend\nlocal function d()\nend\nreturn {c(), d}\n";
        assert_eq!(without_unused_functions(text), kept);
        for script in all_scripts() {
            for text in script.source.split("local function ").skip(1) {
                let name = text.split('(').next().unwrap_or_default();
                let uses = script.source.split(|c| !is_word(c)).filter(|word| *word == name);
                assert!(uses.count() > 1, "{} does not use {name}", script.name);
            }
        }
    }

    /// The value of a constant, as it stands in the text.
    fn constant<'a>(text: &'a str, name: &str) -> Option<&'a str> {
        let constants = text.lines().filter_map(|line| declared(code(line))).flatten();
        constants.into_iter().find_map(|(known, value)| (known == name).then_some(value))
    }

    #[test]
    fn numbers_that_both_sides_know_agree() {
        use delayline_core::limits::{
            FINISHED_RETENTION_MS, JOURNAL_RETENTION_MS, MAX_FINISHED, MAX_JOURNAL,
            MAX_TIMESTAMP_MS, SAFETY_POLL_MS,
        };

        use delayline_core::{NewMessage, Status};

        use crate::encode::status_code;
        use crate::record::MOST_BYTES_IN_RECORD;

        let claim = with_parts(include_str!("../lua/claim.lua"));
        let value = |name: &str| constant(&claim, name);
        for (name, expected) in [
            ("MAX_TIMESTAMP", MAX_TIMESTAMP_MS),
            ("LATE", MAX_TIMESTAMP_MS >> 40),
            ("FINISHED_RETENTION", FINISHED_RETENTION_MS),
            ("MAX_FINISHED", MAX_FINISHED as u64),
            ("JOURNAL_RETENTION", JOURNAL_RETENTION_MS),
            ("MAX_JOURNAL", MAX_JOURNAL as u64),
            ("SAFETY_POLL", SAFETY_POLL_MS),
            ("SMALL", MOST_BYTES_IN_RECORD as u64),
        ] {
            assert_eq!(value(name), Some(&*expected.to_string()), "{name}");
        }
        let repair = with_parts(include_str!("../lua/repair.lua"));
        for name in ["FINISHED_RETENTION", "JOURNAL_RETENTION"] {
            assert_eq!(constant(&repair, name), value(name), "{name}");
        }
        let failures = NewMessage::DEFAULT_MAX_FAILURES;
        let limits = format!("'\\0\\{failures}\\0\\{}'", NewMessage::DEFAULT_MAX_CRASHES);
        assert_eq!(value("DEFAULT_LIMITS"), Some(&*limits));

        let settle = include_str!("../lua/settle.lua");
        for (name, status) in [("ACKED_BYTE", Status::Acked), ("CANCELLED_BYTE", Status::Cancelled)]
        {
            let value = constant(settle, name);
            assert_eq!(value, Some(&*format!("'\\{}'", status_code(status))), "{name}");
        }
    }

    #[test]
    fn parts_are_known_and_constants_have_one_value() {
        for script in FILES {
            let text = with_parts(script);
            let unknown = |line: &&str| {
                let line = line.trim_start();
                line.starts_with("--@") && !line.starts_with("--@ask ")
            };
            assert_eq!(text.lines().find(unknown), None, "{script:.60}");
            let mut known = HashMap::new();
            for (name, value) in text.lines().filter_map(|line| declared(code(line))).flatten() {
                assert_eq!(*known.entry(name).or_insert(value), value, "{name}");
            }
        }
    }

    /// Redis gets numbers exactly; `..` rounds those of more than 14 digits.
    #[test]
    fn no_number_becomes_text_by_concatenation() {
        for script in all_scripts() {
            for (before, after) in script.source.split("..").zip(script.source.split("..").skip(1))
            {
                let number = |side: Option<char>| side.is_some_and(|c| c.is_ascii_digit());
                let (left, right) = (before.trim_end(), after.trim_start());
                assert!(!number(left.chars().next_back()), "{after:.80}");
                assert!(!number(right.chars().next()), "{after:.80}");
            }
        }
    }

    #[test]
    fn constants_become_their_values_except_in_texts() {
        let source =
            "local LIMIT, NAME = 5, 'a'\nreturn {LIMIT, 'LIMIT', NAME, x.LIMITS} -- LIMIT\n";
        assert_eq!(with_literal_constants(source), "return {5, 'LIMIT', 'a', x.LIMITS}\n");
        let variable = "local LIMIT = limit()\n";
        assert_eq!(with_literal_constants(variable), variable);
    }

    #[test]
    fn scripts_are_plain_lua_that_every_server_takes() {
        for script in all_scripts() {
            assert!(script.source.is_ascii());
            assert!(!script.source.starts_with("#!"));
            for word in ["cjson", "math.random", "redis.pcall", "KEYS[#", "loadstring"] {
                assert!(!script.source.contains(word), "{word}");
            }
            assert_eq!(script.sha1.len(), 40);
        }
    }
}
