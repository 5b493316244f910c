//! How a script is put together from its file and the parts that it includes.

use std::collections::{BTreeSet, HashMap};

use crate::commands::least_arguments;
use crate::keys::{DESTINATION, KEY_NAMES};

/// A command, and the name of a key on which a script calls it.
pub(crate) type Need = (String, &'static str);

macro_rules! files {
    ($($file:literal)+) => {
        &[$(($file, include_str!(concat!("../../lua/parts/", $file)))),+]
    };
}

/// The files in lua/parts/, which scripts include.
pub(super) const PARTS: &[(&str, &str)] = files! {
    "prelude.lua" "lists.lua" "bell.lua" "scheduling.lua" "limits.lua" "admitting.lua" "totals.lua" "point.lua" "minute.lua" "places.lua"
    "records.lua" "details.lua" "lanes.lua" "turns.lua" "slots.lua" "freeing.lua" "turning.lua" "finished.lua" "over.lua" "results.lua" "windows.lua" "finish.lua" "remains.lua" "ready.lua"
    "next_claimable.lua" "journal.lua" "claimed_before.lua" "reclaim.lua" "take.lua" "take_over.lua" "write.lua"
    "walk.lua" "audit.lua" "orphans.lua" "enqueuing.lua" "saving.lua" "settling.lua" "converting.lua" "converted.lua"
};

fn part(name: &str) -> Option<&'static str> {
    PARTS.iter().find_map(|(part, text)| (*part == name).then_some(*text))
}

/// Puts the parts in the place of the lines that include them.
pub(super) fn with_parts(file: &str) -> String {
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

/// The commands that are called on keys, each with the name of its key; one entry for each key of a
/// command that has several.
pub(super) fn needs_of(source: &str) -> BTreeSet<Need> {
    let mut needs = BTreeSet::new();
    for call in source.split("redis.call('").skip(1) {
        let Some((command, mut rest)) = call.split_once('\'') else { continue };
        while let Some(argument) = rest.strip_prefix(", key.") {
            let end = argument.find(|character| !is_word(character)).unwrap_or(argument.len());
            let (name, after) = argument.split_at(end);
            let known = all_names().find(|known| *known == name);
            needs.extend(known.map(|key| (command.to_owned(), key)));
            rest = after;
        }
    }
    needs
}

/// Puts looks at keys in the place of the lines `--@look KEY`: the script ends there if the key
/// holds another type. The keys that a line `--@reads KEY, KEY` names were looked at already.
pub(super) fn with_looks(source: &str) -> String {
    let read: Vec<_> = directives(source, "--@reads ").flat_map(|keys| keys.split(", ")).collect();
    let mut text = String::with_capacity(source.len());
    for line in source.lines() {
        match line.trim_start().strip_prefix("--@look ") {
            None => text.push_str(line),
            Some(key) if read.contains(&key) => {}
            Some(key) => {
                let count = match key {
                    "index" | "turns" | "slots" => "ZCARD",
                    "totals" => "STRLEN",
                    _ => "HLEN",
                };
                text.push_str(&format!("redis.call('{count}', key.{key})"));
            }
        }
        text.push('\n');
    }
    text
}

/// Puts questions to the server in the place of the lines `--@ask COMMAND key, COMMAND key`: the
/// script ends there with `NOPERM` if the user may not run one of the commands on its key. `all`
/// asks about everything that the script calls. The command of `--@first COMMAND key` needs no
/// question, because it is the first write. A block that writes before it asks with
/// `!COMMAND key`.
///
/// Redis 6 cannot be asked.
pub(super) fn with_questions(source: &str, needs: &BTreeSet<Need>) -> String {
    let first: Vec<_> =
        directives(source, "--@first ").filter_map(|need| need.split_once(' ')).collect();
    let mut text = String::with_capacity(source.len());
    for line in source.lines() {
        match line.trim_start().strip_prefix("--@ask ") {
            None => text.push_str(line),
            Some("all") => text.push_str(&question(needs.iter().map(|(c, key)| (&**c, *key)))),
            Some(list) => {
                let asked = list.split(", ").filter_map(|need| need.split_once(' '));
                let asked = asked.filter(|need| !first.contains(need));
                text.push_str(&question(asked.map(|(c, key)| (c.trim_start_matches('!'), key))));
            }
        }
        text.push('\n');
    }
    text
}

/// What stands behind each directive of this kind.
pub(super) fn directives<'a>(source: &'a str, kind: &'a str) -> impl Iterator<Item = &'a str> {
    source.lines().filter_map(move |line| line.trim_start().strip_prefix(kind))
}

fn question<'a>(needs: impl Iterator<Item = (&'a str, &'a str)>) -> String {
    let permitted = |(command, key): (&str, &str)| {
        let arguments = format!(", key.{key}").repeat(least_arguments(command).unwrap_or(1));
        format!("redis.acl_check_cmd('{command}'{arguments})")
    };
    let permitted: Vec<_> = needs.map(permitted).collect();
    if permitted.is_empty() {
        return String::new();
    }
    let permitted = permitted.join(" and ");
    format!("if redis.acl_check_cmd and not ({permitted}) then error({{err = '{DENIED}'}}) end")
}

/// What a script answers that may not do all that it needs.
const DENIED: &str = "NOPERM the user lacks a permission that the script needs";

/// The keys that a script names.
pub(super) fn keys_of(source: &str) -> Vec<&'static str> {
    let named = |name: &str| {
        let mut uses = source.match_indices("key.").map(|(at, dot)| &source[at + dot.len()..]);
        uses.any(|rest| rest.strip_prefix(name).is_some_and(|rest| !rest.starts_with(is_word)))
    };
    all_names().filter(|name| named(name)).collect()
}

/// The keys of a queue, and behind them what a relay moves messages to.
fn all_names() -> impl Iterator<Item = &'static str> {
    KEY_NAMES.into_iter().chain([DESTINATION])
}

/// Puts `KEYS[i]` for `key.NAME`: some servers and proxies accept a key in a script only as a
/// literal `KEYS[i]` (<https://github.com/HDT3213/delayqueue/issues/12>).
pub(super) fn with_literal_keys(source: &str, keys: &[&str]) -> String {
    let mut names: Vec<_> = keys.iter().zip(1..).collect();
    // A name may begin with another one.
    names.sort_by_key(|(name, _)| std::cmp::Reverse(name.len()));
    names.into_iter().fold(source.to_owned(), |text, (name, position)| {
        text.replace(&format!("key.{name}"), &format!("KEYS[{position}]"))
    })
}

/// Puts their values for the names of constants, and leaves comments out.
///
/// Lua has no constants: as a variable each costs every call a slot, and every function that uses
/// it a search through all such slots. Together that was a tenth of the time of a call.
pub(super) fn with_literal_constants(source: &str, constants: &HashMap<String, String>) -> String {
    let mut text = String::with_capacity(source.len());
    for line in source.lines().map(code).filter(|line| !line.is_empty()) {
        text.push_str(line);
        text.push('\n');
    }
    // Every other piece is a text in quotes.
    let pieces = text.split('\'').enumerate().map(|(n, piece)| match n % 2 {
        0 => with_values(piece, constants),
        _ => piece.to_owned(),
    });
    pieces.collect::<Vec<_>>().join("'")
}

/// A line without its comment; no text holds two hyphens.
pub(super) fn code(line: &str) -> &str {
    line.split("--").next().unwrap_or_default().trim()
}

pub(super) fn is_word(character: char) -> bool {
    character.is_ascii_alphanumeric() || character == '_'
}

fn with_values(code: &str, constants: &HashMap<String, String>) -> String {
    let mut text = String::with_capacity(code.len());
    let mut rest = code;
    while let Some(start) = rest.find(is_word) {
        let (before, from_word) = rest.split_at(start);
        let end = from_word.find(|character| !is_word(character)).unwrap_or(from_word.len());
        let (word, after) = from_word.split_at(end);
        text.push_str(before);
        text.push_str(constants.get(word).map_or(word, String::as_str));
        rest = after;
    }
    text + rest
}
