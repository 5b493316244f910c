//! Inlines functions that are marked `--@inline`.
//!
//! Each call of a script pays for every function that it defines, and for every variable that the
//! function uses. So the steps of an operation are functions in the sources, and plain code in the
//! script that the server gets.

use std::collections::{BTreeSet, HashMap};

use super::assemble::{code, is_word};

/// A piece of a script: a function at its top level, or lines outside of functions.
struct Piece<'a> {
    /// The function's name. Empty outside of functions.
    name: &'a str,
    is_inline: bool,
    lines: Vec<&'a str>,
    /// The other pieces that use the function, except for unused ones.
    users: Vec<usize>,
}

/// Inlines the functions of a script.
///
/// A function that is used only by inlined functions is defined in them, at `--@functions` or at
/// their start. Unused functions are left out.
pub(super) fn with_functions_inline(text: &str) -> String {
    let mut pieces = pieces(text);
    find_users(&mut pieces);
    let homes: Vec<_> = (0..pieces.len()).map(|at| homes(&pieces, at)).collect();
    let mut lines = Vec::new();
    for (at, piece) in pieces.iter().enumerate() {
        if !piece.is_inline && homes[at].contains(&"") {
            lines.extend(piece.lines.iter().map(|line| (*line).to_owned()));
        }
    }
    let mut at = 0;
    while at < lines.len() {
        let Some(function) = called(&pieces, &lines[at]) else {
            at += 1;
            continue;
        };
        let indent = indent_of(&lines[at]);
        let guests: Vec<_> = (0..pieces.len())
            .filter(|guest| !pieces[*guest].is_inline && homes[*guest].contains(&function.name))
            .flat_map(|guest| pieces[guest].lines.iter().map(|line| format!("  {line}")))
            .collect();
        let mut body: Vec<String> = function.lines[1..function.lines.len() - 1]
            .iter()
            .map(|line| (*line).to_owned())
            .collect();
        let place = body.iter().position(|line| line.trim() == "--@functions");
        body.splice(place.map_or(0..0, |place| place..place + 1), guests);
        let body = body.into_iter().map(|line| format!("{}{line}", " ".repeat(indent)));
        let body = body.collect::<Vec<_>>();
        let begin = format!("{}do", " ".repeat(indent));
        let end = format!("{}end", " ".repeat(indent));
        let block = std::iter::once(begin).chain(body).chain([end]);
        lines.splice(at..=at, block.collect::<Vec<_>>());
    }
    let mut text = without_absent_lists(&lines).join("\n");
    text.push('\n');
    text
}

const FUNCTION: &str = "local function ";

fn pieces(text: &str) -> Vec<Piece<'_>> {
    let mut pieces: Vec<Piece<'_>> = Vec::new();
    let (mut is_inline, mut is_inside) = (false, false);
    for line in text.lines() {
        if is_inside {
            if let Some(piece) = pieces.last_mut() {
                piece.lines.push(line);
            }
            is_inside = line != "end";
        } else if line == "--@inline" {
            is_inline = true;
        } else if let Some(rest) = line.strip_prefix(FUNCTION) {
            let name = rest.split('(').next().unwrap_or_default();
            pieces.push(Piece { name, is_inline, lines: vec![line], users: Vec::new() });
            (is_inline, is_inside) = (false, true);
        } else if let Some(outside) = pieces.last_mut().filter(|piece| piece.name.is_empty()) {
            outside.lines.push(line);
        } else {
            let lines = vec![line];
            pieces.push(Piece { name: "", is_inline: false, lines, users: Vec::new() });
        }
    }
    pieces
}

/// Notes the users of each function, from the code outside of functions on.
fn find_users(pieces: &mut [Piece<'_>]) {
    let names: HashMap<_, _> = pieces.iter().map(|it| it.name).zip(0..).collect();
    let mut found: BTreeSet<_> =
        (0..pieces.len()).filter(|at| pieces[*at].name.is_empty()).collect();
    let mut open: Vec<_> = found.iter().copied().collect();
    while let Some(user) = open.pop() {
        let lines = pieces[user].lines.iter();
        let words = lines.flat_map(|line| code(line).split(|c| !is_word(c)));
        let words = words.filter(|word| !word.is_empty() && *word != pieces[user].name);
        let used: BTreeSet<_> = words.filter_map(|word| names.get(word).copied()).collect();
        for at in used {
            pieces[at].users.push(user);
            if found.insert(at) {
                open.push(at);
            }
        }
    }
}

/// Returns where a function is defined: the inlined functions, or the empty name for the top level.
fn homes<'a>(pieces: &[Piece<'a>], at: usize) -> Vec<&'a str> {
    let name = pieces[at].name;
    if name.is_empty() {
        return vec![""];
    }
    let mut all: Vec<&str> = Vec::new();
    for &user_at in &pieces[at].users {
        let user = &pieces[user_at];
        if user.name.is_empty() || user.is_inline {
            all.push(user.name);
        } else {
            all.extend(homes(pieces, user_at));
        }
    }
    all.sort_unstable();
    all.dedup();
    if all.contains(&"") {
        return vec![""];
    }
    // A function inside of another home sees the definition there.
    let is_inside = |inner: &str| {
        let users = pieces.iter().find(|piece| piece.name == inner).map(|piece| &piece.users);
        users
            .is_some_and(|it| !it.is_empty() && it.iter().all(|at| all.contains(&pieces[*at].name)))
    };
    all.iter().copied().filter(|home| !is_inside(home)).collect()
}

/// Returns the inlined function that this line calls.
fn called<'p, 'a>(pieces: &'p [Piece<'a>], line: &str) -> Option<&'p Piece<'a>> {
    let name = line.contains("()").then(|| code(line))?.strip_suffix("()")?;
    pieces.iter().find(|piece| piece.is_inline && piece.name == name)
}

fn indent_of(line: &str) -> usize {
    line.len() - line.trim_start().len()
}

/// Leaves out each block under `--@with NAME` that sees no such variable.
fn without_absent_lists(lines: &[String]) -> Vec<&str> {
    let mut kept: Vec<&str> = Vec::new();
    // The lines so far that are not empty, with their indents.
    let mut before: Vec<(usize, &str)> = Vec::new();
    let mut lines = lines.iter().map(String::as_str);
    while let Some(line) = lines.next() {
        let (indent, text) = (indent_of(line), line.trim_start());
        let Some(name) = text.strip_prefix("--@with ") else {
            kept.push(line);
            if !text.is_empty() {
                before.push((indent, text));
            }
            continue;
        };
        if !is_declared(name, &before, indent) {
            let end = format!("{}end", " ".repeat(indent));
            lines.by_ref().take_while(|line| *line != end).for_each(drop);
        }
    }
    kept
}

/// Returns whether a line behind these, with this indent, sees a variable of this name.
fn is_declared(name: &str, before: &[(usize, &str)], mut indent: usize) -> bool {
    for (its_indent, text) in before.iter().rev() {
        if *its_indent > indent {
            continue;
        }
        indent = *its_indent;
        let declared = text.strip_prefix("local ");
        let names = declared.map(|rest| rest.split(" = ").next().unwrap_or_default());
        if names.is_some_and(|names| names.split(", ").any(|known| known == name)) {
            return true;
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_become_blocks_and_functions_move_to_where_they_are_used() {
        let text = "local x = 1\nlocal function rare()\n  return 2\nend\nlocal function often()\n  return 3\nend\n\
                    --@inline\nlocal function step()\n  local y = 4\n  --@functions\n  x = rare() + often()\nend\n\
                    if x then\n  step()\nend\nreturn often()\n";
        let expected = "local x = 1\nlocal function often()\n  return 3\nend\nif x then\n  do\n    local y = 4\n\
                        \u{20}   local function rare()\n      return 2\n    end\n    x = rare() + often()\n  end\nend\nreturn often()\n";
        assert_eq!(with_functions_inline(text), expected);
    }

    #[test]
    fn a_function_inside_of_another_uses_what_is_defined_there() {
        let text = "local function f()\n  return 1\nend\n--@inline\nlocal function outer()\n  x = f()\n  inner()\nend\n\
                    --@inline\nlocal function inner()\n  y = f()\nend\nouter()\n";
        let expected = "do\n  local function f()\n    return 1\n  end\n  x = f()\n  do\n    y = f()\n  end\nend\n";
        assert_eq!(with_functions_inline(text), expected);
    }

    #[test]
    fn unused_functions_are_left_out() {
        let text = "local x\nlocal function a()\n  return 1\nend\nlocal function b()\n  return a()\nend\n\
                    local function c()\n  return x\nend\nlocal function d()\nend\nreturn {c(), d}\n";
        let kept = "local x\nlocal function c()\n  return x\nend\nlocal function d()\nend\nreturn {c(), d}\n";
        assert_eq!(with_functions_inline(text), kept);
    }

    #[test]
    fn lists_that_are_not_declared_are_not_written() {
        let write = "--@inline\nlocal function write()\n  --@with a\n  if #a > 0 then\n    put(a)\n  end\n\
                     \u{20} --@with b\n  if #b > 0 then\n    put(b)\n  end\nend\n";
        let text = format!("{write}if x then\n  local a = 1\nend\nlocal _, b = 1, 2\nwrite()\n");
        let expected = "if x then\n  local a = 1\nend\nlocal _, b = 1, 2\ndo\n  if #b > 0 then\n    put(b)\n  end\nend\n";
        assert_eq!(with_functions_inline(&text), expected);
    }
}
