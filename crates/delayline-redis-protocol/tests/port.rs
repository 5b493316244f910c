//! The scripts are the port of `State`: the same functions under the same names in the same order,
//! so that both can be read side by side.

#![allow(clippy::unwrap_used, reason = "a test program")]

use std::fs;
use std::path::PathBuf;

use delayline_redis_protocol::all_scripts;

/// What `State` has and the scripts have not, and why.
const IN_RUST_ONLY: [(&str, &str); 23] = [
    ("new", "an empty queue has no keys"),
    ("apply", "`Script::of` chooses the script"),
    ("apply_and_hint", "`rings` in bell.lua, and `tell_sleepers` in next_claimable.lua"),
    ("next_deliverable", "`next_claimable` in next_claimable.lua"),
    ("forget", "`write` in write.lua does it for all messages at once"),
    ("insert", "`write` in write.lua does it for all messages at once"),
    ("remove", "`write` in write.lua does it for all messages at once"),
    ("waiting", "bands of one key"),
    ("index_mut", "keys are literal"),
    ("index", "keys are literal"),
    ("first", "a command on a sorted set"),
    ("next_ready", "`ready_messages` in ready.lua, and `add_groups` in turning.lua"),
    ("continues", "`next_in_lane` in turning.lua, after each message"),
    ("head", "`first_in_lane` in turning.lua"),
    ("first_normal", "`first_in_lane` in turning.lua"),
    ("end_turn", "`pass_over` and `serve` in turning.lua"),
    ("share", "`most` and `several` in claim.lua"),
    ("share_of_relay", "`most` and `several` in relay.lua"),
    ("take_slot", "`deliver` in take.lua"),
    ("look_at_slot", "`free_slots` in settling.lua, and `take_back` in reclaim.lua"),
    ("look_at_lane", "the end of `free_slot` in freeing.lua"),
    ("oldest_in_lanes", "a part of stats.lua"),
    ("take_relayed", "consumers do it"),
];

/// What the scripts do that `State` has not, and why.
const IN_LUA_ONLY: [(&str, &str); 2] =
    [("repair", "the model has nothing to mend"), ("ring", "the hint of `Wakeup::ring`")];

/// The files with functions of `State`, in an order that the scripts have, too.
const STATE: [&str; 8] = [
    "ready.rs",
    "slots.rs",
    "settling.rs",
    "updates.rs",
    "hand_off.rs",
    "relay.rs",
    "history.rs",
    "read.rs",
];

/// Audits that only tests run, a queue as other backends store it, what its removal would lose, and
/// which claims a directory may lose.
const NOT_PORTED: [&str; 4] = ["held.rs", "invariants.rs", "lost_claims.rs", "stored.rs"];

fn core() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../delayline-core/src")
}

/// The product code of a file.
fn code_of(path: PathBuf) -> String {
    let text = fs::read_to_string(path).unwrap();
    text.split("#[cfg(test)]").next().unwrap().to_owned()
}

/// The functions of `State` in the order of its files, with their bodies.
fn bodies_of_state() -> Vec<(String, String)> {
    let folder = core().join("state");
    let files = STATE.map(|file| folder.join(file));
    let mut functions: Vec<(String, String)> = Vec::new();
    for file in [folder.with_extension("rs")].into_iter().chain(files) {
        for line in fs::read_to_string(file).unwrap().lines() {
            let rest = line.trim_start();
            let is_ours = line.len() - rest.len() <= 4;
            let rest = ["pub(super) ", "pub ", "const "]
                .iter()
                .fold(rest, |rest, word| rest.strip_prefix(word).unwrap_or(rest));
            if let (true, Some(rest)) = (is_ours, rest.strip_prefix("fn ")) {
                let name = rest.split(['(', '<']).next().unwrap();
                functions.push((name.to_owned(), String::new()));
            } else if let Some((_, body)) = functions.last_mut() {
                body.push_str(line);
                body.push('\n');
            }
        }
    }
    functions.retain(|(name, _)| name != "default");
    functions
}

fn functions_of_state() -> Vec<String> {
    bodies_of_state().into_iter().map(|(name, _)| name).collect()
}

#[test]
fn no_file_of_state_is_left_out() {
    let files = fs::read_dir(core().join("state")).unwrap().map(|file| file.unwrap().path());
    let files = files.filter(|path| path.is_file());
    let ours = files.filter(|path| code_of(path.clone()).contains("\nimpl State {"));
    let mut ours: Vec<_> =
        ours.map(|path| path.file_name().unwrap().to_str().unwrap().to_owned()).collect();
    let mut known: Vec<_> = STATE.into_iter().chain(NOT_PORTED).map(str::to_owned).collect();
    ours.sort();
    known.sort();
    assert_eq!(ours, known);
}

/// Such as `Windows::begin`, a function or a field.
#[test]
fn what_scripts_say_of_other_types_is_there() {
    let mut texts = String::new();
    for folder in [core(), core().join("state")] {
        for file in fs::read_dir(folder).unwrap().map(|file| file.unwrap().path()) {
            if file.extension().is_some_and(|it| it == "rs") {
                texts.push_str(&code_of(file));
            }
        }
    }
    let mut mentions = 0;
    for (file, text) in sources() {
        for (before, after) in text.split("::").zip(text.split("::").skip(1)) {
            let kind = before.rsplit(|c: char| !c.is_ascii_alphanumeric()).next().unwrap();
            let end = after.find(|c: char| !c.is_ascii_lowercase() && c != '_');
            let name = &after[..end.unwrap_or(after.len())];
            if kind == "State" || !kind.starts_with(|c: char| c.is_ascii_uppercase()) {
                continue;
            }
            mentions += 1;
            let declared = ["struct", "enum", "trait"].map(|word| format!("{word} {kind}"));
            assert!(declared.iter().any(|it| texts.contains(it)), "{file}.lua speaks of {kind}");
            let there = [format!("fn {name}("), format!(" {name}:")];
            assert!(there.iter().any(|it| texts.contains(it)), "{file}.lua: {kind}::{name}");
        }
    }
    assert!(mentions > 7, "only {mentions}");
}

/// Compares the functions that both call, in the order of their first calls.
#[test]
fn functions_call_others_in_the_order_of_state() {
    let (bodies, sources) = (bodies_of_state(), sources());
    let mut compared = 0;
    for (name, body) in &bodies {
        let whole =
            sources.iter().find(|(file, _)| file == name && operations().contains(&&**name));
        let local = || {
            let head = format!("\nlocal function {name}(");
            let (_, rest) = sources.iter().find_map(|(_, text)| text.split_once(&head))?;
            rest.split_once("\nend").map(|(body, _)| body)
        };
        let operation = whole.and_then(|(_, text)| text.split_once("\n-- READ"));
        let Some(lua) = operation.map(|(_, body)| body).or_else(local) else { continue };
        let first = |text: &str, callee: &str| {
            let call = format!("{callee}(");
            let mut calls = text.match_indices(&call);
            calls.find_map(|(at, _)| {
                let is_start =
                    text[..at].ends_with(|c: char| !c.is_ascii_alphanumeric() && c != '_');
                is_start.then_some(at)
            })
        };
        let both = bodies.iter().filter_map(|(callee, _)| {
            Some((first(body, &format!("self.{callee}"))?, first(lua, callee)?, callee))
        });
        let mut both: Vec<_> = both.collect();
        both.sort_unstable();
        compared += usize::from(both.len() > 1);
        assert!(both.is_sorted_by_key(|(_, in_lua, _)| *in_lua), "{name}: {both:?}");
    }
    assert!(compared > 2, "only {compared} functions call several others");
}

/// The names and texts of lua/ and lua/parts/.
fn sources() -> Vec<(String, String)> {
    let lua = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("lua");
    let files = [lua.join("parts"), lua].into_iter().flat_map(|folder| {
        let files = fs::read_dir(folder).unwrap().map(|file| file.unwrap().path());
        files.filter(|path| path.is_file())
    });
    let read = |path: PathBuf| {
        let name = path.file_stem().unwrap().to_str().unwrap().to_owned();
        (name, fs::read_to_string(path).unwrap())
    };
    files.map(read).collect()
}

fn operations() -> Vec<&'static str> {
    all_scripts().iter().map(|script| script.name.trim_end_matches(".lua")).collect()
}

#[test]
fn every_function_of_state_has_its_lua() {
    let sources = sources();
    for name in functions_of_state() {
        let is_function = |text: &str| text.contains(&format!("\nlocal function {name}("));
        let in_lua = operations().contains(&&*name) || sources.iter().any(|(_, t)| is_function(t));
        let in_rust_only = IN_RUST_ONLY.iter().any(|(rust, _)| *rust == name);
        assert!(in_lua != in_rust_only, "{name}: in the scripts {in_lua}");
        let heading = format!("State::{name}");
        let is_headed = sources.iter().any(|(_, text)| text.contains(&heading));
        assert!(is_headed || in_rust_only, "no script says that it is {heading}");
    }
}

#[test]
fn everything_of_the_scripts_that_is_called_a_function_of_state_is_one() {
    let functions = functions_of_state();
    for (file, text) in sources() {
        for mention in text.split("State::").skip(1) {
            let end = mention.find(|c: char| !c.is_ascii_lowercase() && c != '_').unwrap();
            let name = &mention[..end];
            let known = functions.iter().any(|function| function == name)
                || IN_LUA_ONLY.iter().any(|(lua, _)| *lua == name);
            assert!(known, "{file}.lua speaks of State::{name}");
        }
    }
    for (name, _) in IN_LUA_ONLY {
        assert!(operations().contains(&name), "there is no {name}.lua");
        assert!(!functions.iter().any(|function| function == name), "State has {name} now");
    }
    for (name, _) in IN_RUST_ONLY {
        assert!(functions.iter().any(|function| function == name), "State has no {name}");
    }
}

#[test]
fn operations_and_their_steps_are_in_the_order_of_state() {
    let functions = functions_of_state();
    let rank = |name: &str| functions.iter().position(|function| function == name);
    let ranks: Vec<_> = operations().into_iter().filter_map(rank).collect();
    assert!(ranks.is_sorted(), "the scripts are in another order: {:?}", operations());
    for (file, text) in sources() {
        let included = text.lines().filter_map(|line| line.strip_prefix("--@include "));
        let steps = included.filter_map(|part| rank(part.trim_end_matches(".lua")));
        let steps: Vec<_> = steps.collect();
        let functions = text.lines().filter_map(|line| line.strip_prefix("local function "));
        let own = functions.filter_map(|line| rank(line.split('(').next().unwrap()));
        let own: Vec<_> = own.collect();
        assert!(steps.is_sorted() && own.is_sorted(), "{file}.lua has another order");
    }
}

#[test]
fn what_changes_messages_reads_then_decides_then_writes() {
    for name in operations() {
        let (_, text) = sources().into_iter().find(|(file, _)| file == name).unwrap();
        let changes = text.contains("--@include write.lua");
        if !changes || IN_LUA_ONLY.iter().any(|(lua, _)| *lua == name) {
            continue;
        }
        let phase = |phase: &str| text.find(&format!("\n-- {phase}"));
        let phases = ["READ", "DECIDE", "WRITE"].map(phase);
        assert!(phases.iter().all(Option::is_some) && phases.is_sorted(), "{name}.lua");
        let write = text.find("\n  write()").unwrap();
        assert!(phases[2] < Some(write), "{name}.lua writes before it has decided");
    }
}

/// What stands at the top level is read from top to bottom.
#[test]
fn nothing_is_included_inside_of_control_flow() {
    for (file, text) in sources() {
        let included =
            text.lines().find(|line| line.starts_with(' ') && line.contains("--@include"));
        assert_eq!(included, None, "{file}.lua");
    }
}

/// The words of a text that can only be names.
fn names_in(text: &str) -> impl Iterator<Item = &str> {
    let words = text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    words.filter(|word| word.contains('_'))
}

/// What "Reads ...; sets ..." says in front of a part that stands in the place of its calls.
#[test]
fn what_a_part_says_that_it_reads_or_sets_it_uses() {
    let all: String = sources().into_iter().map(|(_, text)| text).collect();
    let body_of = |name: &str| {
        let (_, rest) = all.split_once(&format!("\nlocal function {name}("))?;
        rest.split_once("\nend\n").map(|(body, _)| body)
    };
    let mut checked = 0;
    for (before, after) in all.split("\n--@inline\n").zip(all.split("\n--@inline\n").skip(1)) {
        let name = after.strip_prefix("local function ").unwrap().split('(').next().unwrap();
        let comment: Vec<_> =
            before.lines().rev().map_while(|line| line.strip_prefix("--")).collect();
        let comment: String = comment.into_iter().rev().collect();
        // With the functions that it calls.
        let mut bodies = vec![body_of(name).unwrap()];
        let mut at = 0;
        while let Some(body) = bodies.get(at).copied() {
            let called = body.split('(').filter_map(|call| {
                call.rsplit(|c: char| !c.is_ascii_alphanumeric() && c != '_').next()
            });
            for body in called.filter_map(body_of) {
                if !bodies.contains(&body) {
                    bodies.push(body);
                }
            }
            at += 1;
        }
        let sentences = comment.split(". ").map(str::trim_start);
        let said = sentences.filter(|it| it.starts_with("Reads ") || it.starts_with("Sets "));
        for word in said.flat_map(names_in) {
            checked += 1;
            let is_used = bodies.iter().flat_map(|body| names_in(body)).any(|used| used == word);
            assert!(is_used, "{name} does not use {word}");
        }
    }
    assert!(checked > 20, "only {checked} names");
}
