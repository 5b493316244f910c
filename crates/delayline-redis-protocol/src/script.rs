//! The scripts: one for each operation, assembled from the files in lua/.

mod assemble;
mod inline;

use std::collections::{BTreeSet, HashMap};
use std::sync::LazyLock;

use delayline_core::{Known, NewMessage, Op};

pub(crate) use self::assemble::Need;
use self::assemble::{
    keys_of, needs_of, with_literal_constants, with_literal_keys, with_looks, with_parts,
    with_questions,
};
use self::inline::with_functions_inline;
use crate::layout::{SCHEMA_VERSION, constants};

/// A script as it is sent to the server.
#[derive(Debug)]
pub struct Script {
    /// The name of its file.
    pub name: &'static str,
    /// Its source, which starts with a line that names the library's version and the script.
    pub source: String,
    /// The SHA-1 of its source, in 40 lowercase hexadecimal digits: its name in the server's cache.
    pub sha1: String,
    /// The names of its `KEYS`, in the order of [`KEY_NAMES`](crate::KEY_NAMES): only those that it
    /// uses, because each key costs every call something. A relay's destination comes last.
    pub keys: Vec<&'static str>,
    /// The commands that it calls, each with the name of its key.
    pub(crate) needs: BTreeSet<Need>,
}

/// The values of the names in capitals.
static CONSTANTS: LazyLock<HashMap<String, String>> =
    LazyLock::new(|| constants().into_iter().collect());

macro_rules! scripts {
    ($($name:ident: $file:literal;)+) => {
        $(pub(crate) static $name: LazyLock<Script> =
            LazyLock::new(|| Script::new($file, include_str!(concat!("../lua/", $file))));)+

        /// The files of all scripts.
        #[cfg(test)]
        const FILES: &[&str] = &[$(include_str!(concat!("../lua/", $file))),+];

        /// All scripts, for tests and for loading them in advance.
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
    SET_PAUSED: "set_paused.lua";
    SET_LIMITS: "set_limits.lua";
    UPDATE: "update.lua";
    HAND_OFF: "hand_off.lua";
    RELAY: "relay.lua";
    GET: "get.lua";
    PROGRESS: "progress.lua";
    LIST: "list.lua";
    STATS: "stats.lua";
    FORECAST: "forecast.lua";
    HISTORY: "history.lua";
    CHECK: "check.lua";
    REPAIR: "repair.lua";
    RING: "ring.lua";
}

/// Removes a queue. It is not among [`all_scripts`], for which users have rights: few may do that.
pub(crate) static DELETE_QUEUE: LazyLock<Script> =
    LazyLock::new(|| Script::new("delete_queue.lua", include_str!("../lua/delete_queue.lua")));

/// Reads which layout a queue has. Not among [`all_scripts`] either: only upgrades call it.
pub(crate) static UPGRADE: LazyLock<Script> =
    LazyLock::new(|| Script::new("upgrade.lua", include_str!("../lua/upgrade.lua")));

impl Script {
    /// The script that executes `op`; `None` if a newer version of the core has added the
    /// operation.
    #[must_use]
    pub fn of(op: &Op) -> Option<&'static Self> {
        Some(match op {
            Op::Enqueue(messages) if messages.iter().any(is_special) => &UPDATE,
            Op::Enqueue(_) => &ENQUEUE,
            Op::Claim(_) => &CLAIM,
            Op::Settle(_) => &SETTLE,
            Op::HandOff(_) => &HAND_OFF,
            Op::Extend(_) => &EXTEND,
            Op::Cancel(_) => &CANCEL,
            Op::Reschedule(_) => &RESCHEDULE,
            Op::Redrive(_) => &REDRIVE,
            Op::Purge(_) => &PURGE,
            Op::Pause | Op::Resume => &SET_PAUSED,
            Op::SetLimits(_) => &SET_LIMITS,
            Op::Relay(_) => &RELAY,
            Op::Get(_) => &GET,
            Op::Progress(_) => &PROGRESS,
            Op::List(_) => &LIST,
            Op::Stats => &STATS,
            Op::Forecast(_) => &FORECAST,
            Op::History(_) => &HISTORY,
            Op::Check(_) => &CHECK,
            Op::Repair(_) => &REPAIR,
            _ => return None,
        })
    }

    /// The script that rings the bell.
    #[must_use]
    pub fn of_ring() -> &'static Self {
        &RING
    }

    pub(crate) fn new(name: &'static str, file: &str) -> Self {
        let whole = with_looks(&with_functions_inline(&with_parts(file)));
        let needs = needs_of(&whole);
        let whole = with_questions(&whole, &needs);
        let keys = keys_of(&whole);
        let source = with_literal_constants(&with_literal_keys(&whole, &keys), &CONSTANTS);
        let source = format!("{}{source}", header(name));
        let sha1 = sha1_smol::Sha1::from(&source).digest().to_string();
        Self { name, source, sha1, keys, needs }
    }
}

/// Updates and messages that throttle have a script of their own, which costs others nothing.
fn is_special(message: &NewMessage) -> bool {
    message.known != Known::Refuse || message.throttle.is_some()
}

/// Names the script in the server's cache and in the lines of errors.
fn header(name: &str) -> String {
    let name = name.trim_end_matches(".lua");
    format!("-- delayline {}, schema {SCHEMA_VERSION}: {name}\n", env!("CARGO_PKG_VERSION"))
}

#[cfg(test)]
mod tests {
    use super::assemble::{PARTS, directives, is_word};
    use super::*;
    use crate::keys::DESTINATION;

    #[test]
    fn every_key_is_a_literal_and_declared() {
        for script in all_scripts() {
            let code = &script.source;
            assert!(!code.contains("key."), "a key that keys.rs does not know");
            for call in code.split("redis.call(").skip(1) {
                let arguments = call.split(')').next().unwrap_or_default();
                let mut arguments = arguments.split(',').map(str::trim);
                let command = arguments.next().unwrap_or_default();
                assert!(command.starts_with('\'') && command.ends_with('\''), "{call:.60}");
                if command != "'TIME'" {
                    // The key stands behind the subcommand.
                    let before = usize::from(command == "'XINFO'");
                    let key = arguments.nth(before).unwrap_or_default();
                    assert!(key.starts_with("KEYS["), "{call:.60}");
                }
            }
        }
    }

    /// What others do costs them nothing, and only a relay's user needs rights to it.
    #[test]
    fn only_a_relay_has_a_destination_which_comes_last() {
        for script in all_scripts() {
            let place = script.keys.iter().position(|name| *name == DESTINATION);
            let last = (script.name == "relay.lua").then_some(script.keys.len() - 1);
            assert_eq!(place, last, "{}", script.name);
        }
    }

    #[test]
    fn a_script_gets_the_keys_that_it_names_and_needs_what_it_calls() {
        let script = Script::new(
            "test.lua",
            "redis.call('TIME')\nredis.call('RENAME', key.finished_new, key.finished_old)\n\
             redis.call('ZADD', key.index, 1, 'a')\n",
        );
        assert_eq!(script.keys, ["index", "finished_new", "finished_old"]);
        let rename = |key| ("RENAME".to_owned(), key);
        let zadd = ("ZADD".to_owned(), "index");
        let needs = [rename("finished_new"), rename("finished_old"), zadd];
        assert_eq!(script.needs, BTreeSet::from(needs));
        assert!(script.source.contains("redis.call('RENAME', KEYS[2], KEYS[3])"));
    }

    #[test]
    fn every_include_names_a_part() {
        for file in FILES.iter().chain(PARTS.iter().map(|(_, text)| text)) {
            let left = with_parts(file);
            let left = left.lines().find(|line| line.trim_start().starts_with("--@include"));
            assert_eq!(left, None);
        }
    }

    #[test]
    fn questions_are_literal_and_have_as_many_arguments_as_the_command_takes() {
        let script = Script::new(
            "test.lua",
            "--@ask SET control, ZREM index\nredis.call('LLEN', key.bell)\n",
        );
        let question = "if redis.acl_check_cmd and not (\
                        redis.acl_check_cmd('SET', KEYS[1], KEYS[1]) and \
                        redis.acl_check_cmd('ZREM', KEYS[2], KEYS[2])) then error({err = ";
        assert!(script.source.contains(question), "{}", script.source);
        let all = Script::new("test.lua", "--@ask all\nredis.call('SET', key.control, '')\n");
        let question = "not (redis.acl_check_cmd('SET', KEYS[1], KEYS[1])) then";
        assert!(all.source.contains(question), "{}", all.source);
    }

    #[test]
    fn every_write_but_the_first_is_asked_about() {
        const WRITES: [&str; 12] = [
            "BITFIELD", "HDEL", "HSET", "LPUSH", "PEXPIRE", "RENAME", "RPUSH", "SET", "UNLINK",
            "XADD", "ZADD", "ZREM",
        ];
        for file in FILES {
            let script = Script::new("test.lua", file);
            let position = |key: &str| script.keys.iter().position(|name| *name == key).unwrap();
            let is_first = |need: (&str, &str)| {
                let is_first = |line: &str| line.contains("--@first ") && line.contains(need.0);
                with_parts(file).lines().any(|line| is_first(line) && line.contains(need.1))
            };
            for (command, key) in &script.needs {
                let asked = format!("acl_check_cmd('{command}', KEYS[{}]", position(key) + 1);
                let is_write = WRITES.contains(&&**command);
                let known = !is_write || script.source.contains(&asked);
                assert!(known || is_first((command, key)), "{command} {key}: {file:.60}");
            }
        }
    }

    /// Whether it reads them on every way to a write is shown on servers.
    #[test]
    fn what_a_script_says_that_it_reads_saves_a_look_and_is_read() {
        for script in all_scripts() {
            let path = format!("{}/lua/{}", env!("CARGO_MANIFEST_DIR"), script.name);
            let whole = with_functions_inline(&with_parts(&std::fs::read_to_string(path).unwrap()));
            let named = |kind| directives(&whole, kind).flat_map(|keys| keys.split(", "));
            let looks: Vec<_> = named("--@look ").collect();
            let is_right =
                |key: &&str| looks.contains(key) && whole.contains(&format!(", key.{key},"));
            let wrong: Vec<_> = named("--@reads ").filter(|key| !is_right(key)).collect();
            assert!(
                wrong.is_empty(),
                "{} does not read them, or they would not be checked: {wrong:?}",
                script.name
            );
        }
    }

    #[test]
    fn functions_that_a_script_does_not_use_are_left_out() {
        for script in all_scripts() {
            for text in script.source.split("local function ").skip(1) {
                let name = text.split('(').next().unwrap_or_default();
                let uses = script.source.split(|c| !is_word(c)).filter(|word| *word == name);
                assert!(uses.count() > 1, "{} does not use {name}", script.name);
            }
        }
    }

    #[test]
    fn parts_are_known_and_constants_have_one_value() {
        for script in FILES {
            let text = with_parts(script);
            let unknown = |line: &&str| {
                let line = line.trim_start();
                let known = [
                    "--@ask ",
                    "--@first ",
                    "--@look ",
                    "--@reads ",
                    "--@with ",
                    "--@inline",
                    "--@functions",
                ];
                line.starts_with("--@") && !known.iter().any(|known| line.starts_with(known))
            };
            assert_eq!(text.lines().find(unknown), None, "{script:.60}");
        }
        let mut known = HashMap::new();
        for (name, value) in constants() {
            let earlier = known.insert(name.clone(), value.clone());
            assert!(earlier.is_none_or(|earlier| earlier == value), "{name}");
        }
    }

    /// A name that is not known would be a variable that is nil.
    #[test]
    fn no_name_in_capitals_is_left() {
        for script in all_scripts() {
            let code = script.source.split('\'').step_by(2);
            let words = code.flat_map(|code| code.split(|character| !is_word(character)));
            let is_constant = |word: &&str| {
                word.starts_with(|first: char| first.is_ascii_uppercase())
                    && !["KEYS", "ARGV"].contains(word)
            };
            assert_eq!(words.into_iter().find(is_constant), None, "{}", script.name);
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
        let of = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        let constants = HashMap::from([of("LIMIT", "5"), of("FIELD", "1, 8")]);
        let source = "return {LIMIT, 'LIMIT', sub(a, FIELD), x.LIMITS} -- LIMIT\n";
        let literal = "return {5, 'LIMIT', sub(a, 1, 8), x.LIMITS}\n";
        assert_eq!(with_literal_constants(source, &constants), literal);
    }

    /// A server that waits in between would have two instants for one operation.
    #[test]
    fn no_script_reads_the_clock_twice() {
        for script in all_scripts() {
            assert!(script.source.matches("'TIME'").count() <= 1, "{}", script.name);
        }
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
