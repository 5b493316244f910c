//! Small changes of a Lua script, each of which should break it.

use std::ops::Range;

/// One change, in every script that contains the changed code: many scripts include the same parts.
#[derive(Clone, Debug)]
pub(crate) struct Mutant {
    /// The script in which it was made.
    pub(crate) script: usize,
    /// The line of the assembled script, from 1.
    pub(crate) line: usize,
    /// That line, before and after.
    pub(crate) before: String,
    pub(crate) after: String,
    edit: Edit,
}

/// A change: the bytes from `from` to `to` become `text`.
#[derive(Clone, Debug)]
struct Edit {
    from: usize,
    to: usize,
    text: String,
}

/// A word, a number, an operator, or a text in quotes.
#[derive(Clone, Copy)]
struct Token<'a> {
    at: usize,
    text: &'a str,
}

impl Token<'_> {
    const fn end(&self) -> usize {
        self.at + self.text.len()
    }

    fn replaced(&self, text: impl Into<String>) -> Edit {
        Edit { from: self.at, to: self.end(), text: text.into() }
    }
}

/// Returns every mutant of a script. Some are not valid Lua.
///
/// `script` is the position of the script among all, and `keys` the number of its keys.
pub(crate) fn mutants(script: usize, source: &str, keys: usize) -> Vec<Mutant> {
    let tokens = tokens(source);
    let mut edits = Vec::new();
    for (place, token) in tokens.iter().enumerate() {
        edits.extend(of_operator(token));
        edits.extend(of_number(&tokens, place, keys));
        edits.extend(of_condition(&tokens, place));
        edits.extend(of_operands(source, &tokens, place));
        edits.extend(of_value(source, &tokens, place));
    }
    edits.extend(of_statements(source));
    edits.into_iter().map(|edit| edit.mutant(script, source)).collect()
}

/// Returns a script without indentation, so that a part is the same wherever it is included.
pub(crate) fn unindented(source: &str) -> String {
    source.lines().flat_map(|line| [line.trim_start(), "\n"]).collect()
}

impl Mutant {
    /// Returns the changed code, with the lines before and after it.
    pub(crate) fn context<'a>(&self, sources: &'a [String]) -> &'a str {
        let source = &sources[self.script];
        &source[self.edit.context(source)]
    }

    /// Returns the scripts that this changes, with their positions: all that have the same lines,
    /// with keys of any numbers.
    pub(crate) fn changed(&self, sources: &[String]) -> Vec<(usize, String)> {
        let (edit, source) = (&self.edit, &sources[self.script]);
        // In another script, the number is that of another key.
        let names_keys = source[..edit.from].ends_with(KEY) || edit.text.contains(KEY);
        let compared = |source: &str| Compared::of(source, names_keys);
        let (here, context) = (compared(source), edit.context(source));
        let [start, end, from, to] =
            [context.start, context.end, edit.from, edit.to].map(|place| here.find(place));
        let changed = |(script, source): (usize, &String)| {
            let there = compared(source);
            let places = there.text.rmatch_indices(&here.text[start..end]);
            let edited = |source: String, (place, _): (usize, &str)| {
                let [from, to] = [from, to].map(|it| there.places[place + it - start]);
                edit.applied(&source, from..to)
            };
            // From the last place to the first, so that earlier places do not move.
            let changed = places.fold(source.clone(), edited);
            (changed != *source).then_some((script, changed))
        };
        sources.iter().enumerate().filter_map(changed).collect()
    }
}

/// A script without the numbers of its keys, which differ between scripts.
struct Compared {
    text: String,
    /// The place of each byte in the script, and the end of the script.
    places: Vec<usize>,
}

impl Compared {
    fn of(source: &str, with_numbers: bool) -> Self {
        let (mut text, mut places) = (String::new(), Vec::new());
        for (place, letter) in source.char_indices() {
            if with_numbers || !letter.is_ascii_digit() || !text.ends_with(KEY) {
                places.extend(place..place + letter.len_utf8());
                text.push(letter);
            }
        }
        places.push(source.len());
        Self { text, places }
    }

    /// Converts a place in the script to a place in the text.
    fn find(&self, place: usize) -> usize {
        self.places.partition_point(|it| *it < place)
    }
}

const KEY: &str = "KEYS[";

impl Edit {
    fn mutant(self, script: usize, source: &str) -> Mutant {
        let changed = self.applied(source, self.from..self.to);
        // The left operand may begin lines before the change.
        let same = || source.bytes().zip(changed.bytes()).take_while(|(old, new)| old == new);
        let from = if self.text.is_empty() { self.from } else { same().count() };
        let line = source.as_bytes()[..from].iter().filter(|byte| **byte == b'\n').count() + 1;
        // A statement may have had several lines.
        let removed = source[self.from..self.to].trim_end().to_owned();
        let of = |text: &str| text.lines().nth(line - 1).unwrap_or_default().to_owned();
        let (before, after) = if self.text.is_empty() && removed.contains(['(', '=']) {
            (removed, String::new())
        } else {
            (of(source), of(&changed))
        };
        Mutant { script, line, before, after, edit: self }
    }

    /// Returns the source with this change at `place`.
    fn applied(&self, source: &str, place: Range<usize>) -> String {
        format!("{}{}{}", &source[..place.start], self.text, &source[place.end..])
    }

    /// Returns the range of the changed lines, with some lines around them.
    fn context(&self, source: &str) -> Range<usize> {
        let before = source[..self.from].rmatch_indices('\n').nth(LINES_AROUND);
        let after = source[self.to..].match_indices('\n').nth(LINES_AROUND);
        before.map_or(0, |(at, _)| at + 1)..after.map_or(source.len(), |(at, _)| self.to + at)
    }
}

/// Number of lines before and after a change that must match for another script to contain it.
const LINES_AROUND: usize = 2;

/// Replaces an operator by a similar one.
fn of_operator(token: &Token<'_>) -> Option<Edit> {
    const SWAPS: [(&str, &str); 16] = [
        ("<", "<="),
        ("<=", "<"),
        (">", ">="),
        (">=", ">"),
        ("==", "~="),
        ("~=", "=="),
        ("+", "-"),
        ("-", "+"),
        ("*", "+"),
        ("/", "*"),
        ("%", "+"),
        ("and", "or"),
        ("or", "and"),
        ("not", ""),
        ("true", "false"),
        ("false", "true"),
    ];
    let (_, swap) = SWAPS.iter().find(|(operator, _)| *operator == token.text)?;
    Some(token.replaced(*swap))
}

/// Changes a number by one, or the number of a key to that of another key.
fn of_number(tokens: &[Token<'_>], place: usize, keys: usize) -> Vec<Edit> {
    let token = &tokens[place];
    let Ok(number) = token.text.parse::<i64>() else { return Vec::new() };
    let is_key = place >= 2 && tokens[place - 2].text == "KEYS";
    if !is_key {
        return vec![
            token.replaced((number + 1).to_string()),
            token.replaced((number - 1).to_string()),
        ];
    }
    let keys = i64::try_from(keys).unwrap_or(i64::MAX);
    if keys < 2 { Vec::new() } else { vec![token.replaced((number % keys + 1).to_string())] }
}

/// Replaces the condition of an `if`, `elseif` or `while` by its opposite and by constants. A
/// `while` gets no constant that makes it endless.
fn of_condition(tokens: &[Token<'_>], place: usize) -> Vec<Edit> {
    let (ends, constants) = match tokens[place].text {
        "if" | "elseif" => ("then", &["true", "false"][..]),
        "while" => ("do", &["false"][..]),
        _ => return Vec::new(),
    };
    let rest = &tokens[place + 1..];
    let Some(end) = rest.iter().position(|token| token.text == ends) else { return Vec::new() };
    let condition = &rest[..end];
    let [first, ..] = condition else { return Vec::new() };
    let words: Vec<_> = condition.iter().map(|token| token.text).collect();
    let opposite = format!("not ({})", words.join(" "));
    let (from, to) = (first.at, condition[end - 1].end());
    let constants = constants.iter().map(|constant| (*constant).to_owned());
    std::iter::once(opposite).chain(constants).map(|text| Edit { from, to, text }).collect()
}

/// Replaces an `and` or an `or` by each of its operands.
fn of_operands(source: &str, tokens: &[Token<'_>], place: usize) -> Vec<Edit> {
    let looser: &[&str] = match tokens[place].text {
        "and" => &["and", "or"],
        "or" => &["or"],
        _ => return Vec::new(),
    };
    let first = first_of_operand(tokens, place, looser);
    let last = last_of_operand(source, tokens, place + 1, looser);
    let (from, to) = (tokens[first].at, tokens[last].end());
    let left = &source[from..tokens[place - 1].end()];
    let right = &source[tokens[place + 1].at..to];
    [left, right].map(|text| Edit { from, to, text: text.to_owned() }).to_vec()
}

/// Replaces an assigned or returned value by a constant.
fn of_value(source: &str, tokens: &[Token<'_>], place: usize) -> Option<Edit> {
    let constant = match tokens[place].text {
        "=" => "0",
        "return" => "false",
        _ => return None,
    };
    let first = tokens.get(place + 1)?;
    let last = last_of_operand(source, tokens, place + 1, &[]);
    // A single word is a name or a constant. Tables and functions are not replaced.
    let is_value = last > place + 1 && !["{", "function"].contains(&first.text);
    let edit = || Edit { from: first.at, to: tokens[last].end(), text: constant.to_owned() };
    is_value.then(edit)
}

/// Returns the place of the first token of the operand that ends before `place`.
fn first_of_operand(tokens: &[Token<'_>], place: usize, looser: &[&str]) -> usize {
    const BEFORE: [&str; 7] = ["if", "elseif", "while", "until", "return", "=", ","];
    let mut depth = 0;
    let begins = |token: &Token<'_>| {
        depth += closes(token);
        let outside = BEFORE.contains(&token.text) || looser.contains(&token.text);
        depth < 0 || depth == 0 && outside
    };
    tokens[..place].iter().rev().position(begins).map_or(0, |length| place - length)
}

/// Returns the place of the last token of the operand that begins at `place`.
fn last_of_operand(source: &str, tokens: &[Token<'_>], place: usize, looser: &[&str]) -> usize {
    const AFTER: [&str; 6] = ["then", "do", "end", "else", "elseif", ","];
    let mut depth = 0;
    let ends = |number: &usize| {
        let (number, token) = (*number, &tokens[*number]);
        depth -= closes(token);
        let outside = AFTER.contains(&token.text) || looser.contains(&token.text);
        let other = number > place && depth == 0 && is_other_statement(source, tokens, number);
        depth < 0 || depth == 0 && outside || other
    };
    let end = (place..tokens.len()).find(ends);
    end.map_or(tokens.len() - 1, |end| end.max(place + 1) - 1)
}

/// Returns whether another statement begins with this token: on a new line, without an operator.
fn is_other_statement(source: &str, tokens: &[Token<'_>], number: usize) -> bool {
    let (before, token) = (&tokens[number - 1], &tokens[number]);
    let joins = |text: &str| {
        let letter = text.as_bytes()[0];
        let is_word = letter.is_ascii_alphanumeric() || b"_'\"".contains(&letter);
        ["and", "or", "not"].contains(&text) || !is_word && !")}]".contains(text)
    };
    let line_ends = source[before.end()..token.at].contains('\n');
    line_ends && !joins(before.text) && !joins(token.text)
}

/// Returns 1 for a closing bracket, and -1 for an opening one.
fn closes(token: &Token<'_>) -> i32 {
    match token.text {
        ")" | "}" | "]" => 1,
        "(" | "{" | "[" => -1,
        _ => 0,
    }
}

/// Leaves out a statement: a call, an assignment or a jump.
fn of_statements(source: &str) -> Vec<Edit> {
    const OTHERS: [&str; 9] =
        ["local", "if", "elseif", "else", "for", "while", "function", "end", "repeat"];
    let mut edits = Vec::new();
    let (mut at, mut depth, mut begin) = (0, 0_i32, 0);
    for line in source.split_inclusive('\n') {
        if depth == 0 {
            begin = at;
        }
        at += line.len();
        for token in tokens(line) {
            match token.text {
                "(" | "{" | "[" => depth += 1,
                ")" | "}" | "]" => depth -= 1,
                _ => {}
            }
        }
        let statement = &source[begin..at];
        let first = tokens(statement).first().map_or("", |token| token.text);
        let is_whole = depth == 0 && !first.is_empty();
        if is_whole && !OTHERS.contains(&first) && !statement.contains("function") {
            edits.push(Edit { from: begin, to: at, text: String::new() });
        }
    }
    edits
}

fn tokens(source: &str) -> Vec<Token<'_>> {
    let bytes = source.as_bytes();
    let (mut tokens, mut at) = (Vec::new(), 0);
    let is_word = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    while let Some(&byte) = bytes.get(at) {
        let rest = &bytes[at..];
        let length = if byte.is_ascii_whitespace() {
            at += 1;
            continue;
        } else if rest.starts_with(b"--") {
            at += rest.iter().position(|byte| *byte == b'\n').unwrap_or(rest.len());
            continue;
        } else if is_word(byte) {
            rest.iter().position(|byte| !is_word(*byte)).unwrap_or(rest.len())
        } else if byte == b'\'' || byte == b'"' {
            quoted(rest)
        } else if [&b"=="[..], b"~=", b"<=", b">=", b".."].iter().any(|two| rest.starts_with(two)) {
            2
        } else {
            1
        };
        tokens.push(Token { at, text: &source[at..at + length] });
        at += length;
    }
    tokens
}

/// Returns the length of a text in quotes.
fn quoted(bytes: &[u8]) -> usize {
    let mut escaped = false;
    let end = bytes.iter().skip(1).position(|byte| {
        let end = !escaped && *byte == bytes[0];
        escaped = !escaped && *byte == b'\\';
        end
    });
    end.map_or(bytes.len(), |end| end + 2)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn changed(source: &str, keys: usize) -> Vec<String> {
        let sources = [source.to_owned()];
        let mutants = mutants(0, source, keys).into_iter();
        mutants.flat_map(|mutant| mutant.changed(&sources)).map(|(_, source)| source).collect()
    }

    #[test]
    fn a_part_changes_wherever_it_is_included() {
        let part = "f()\nif a then\n  b()\nend\ng()\n";
        let elsewhere = format!("if c then\n{}end\n", part.replace('\n', "\n  "));
        let twice = format!("{part}{part}");
        let sources = [part, &elsewhere, "x()\nif a then\nb()\nend\n", &twice].map(unindented);
        let all = mutants(0, &sources[0], 0);
        let omitted = all.iter().find(|mutant| mutant.before == "b()" && mutant.after.is_empty());
        let changed = omitted.unwrap().changed(&sources);
        let without = "f()\nif a then\nend\ng()\n";
        let elsewhere = format!("if c then\n{without}end\n");
        let expected = [(0, without.to_owned()), (1, elsewhere), (3, without.repeat(2))];
        assert_eq!(changed, expected);
    }

    #[test]
    fn keys_have_other_numbers_in_other_scripts() {
        let call = |key: u8| format!("a(KEYS[{key}])\nif b < 5 then\nc(KEYS[{key}])\nend\n");
        let sources = [call(2), call(12)];
        let all = mutants(0, &sources[0], 20);
        let with = |after: &str| all.iter().find(|mutant| mutant.after == after).unwrap();
        let both = with("if b < 6 then").changed(&sources);
        assert_eq!(both, [0, 1].map(|n| (n, sources[n].replace('5', "6"))));
        let omitted = all.iter().find(|it| it.before == "c(KEYS[2])" && it.after.is_empty());
        assert_eq!(omitted.unwrap().changed(&sources).len(), 2);
        let swapped = all.iter().find(|it| it.before == "c(KEYS[2])" && it.after.contains(KEY));
        assert_eq!(swapped.unwrap().changed(&sources).len(), 1);
    }

    #[test]
    fn operators_numbers_keys_conditions_and_statements_change() {
        assert_eq!(
            changed("if a < 5 then\nb = 'x < 1'\nend\n", 0),
            [
                "if not (a < 5) then\nb = 'x < 1'\nend\n",
                "if true then\nb = 'x < 1'\nend\n",
                "if false then\nb = 'x < 1'\nend\n",
                "if a <= 5 then\nb = 'x < 1'\nend\n",
                "if a < 6 then\nb = 'x < 1'\nend\n",
                "if a < 4 then\nb = 'x < 1'\nend\n",
                "if a < 5 then\nend\n",
            ]
        );
        assert_eq!(
            changed("redis.call('DEL', KEYS[2])\n", 2),
            ["redis.call('DEL', KEYS[1])\n", ""]
        );
        assert_eq!(
            changed("f(a,\nnot b)\nbreak\n", 0),
            ["f(a,\n b)\nbreak\n", "break\n", "f(a,\nnot b)\n"]
        );
    }

    #[test]
    fn operands_and_values_change() {
        let with_and_or = changed("if a and (b or c == d) or e then\n", 0);
        for text in ["a or e", "(b or c == d) or e", "a and (b or c == d)", "e", "true", "false"] {
            let text = format!("if {text} then\n");
            assert!(with_and_or.contains(&text), "{text} is not among {with_and_or:?}");
        }
        assert!(with_and_or.contains(&"if a and (b) or e then\n".to_owned()), "{with_and_or:?}");
        let lines = changed("local a = b and\nc\nreturn f(a)\n", 0);
        for text in ["local a = b\nreturn f(a)\n", "local a = c\nreturn f(a)\n"] {
            assert!(lines.contains(&text.to_owned()), "{text} is not among {lines:?}");
        }
        for text in ["local a = 0\nreturn f(a)\n", "local a = b and\nc\nreturn false\n"] {
            assert!(lines.contains(&text.to_owned()), "{text} is not among {lines:?}");
        }
    }

    #[test]
    fn texts_and_comments_stay() {
        assert_eq!(changed("local a = 'b\\' 1 == 2' -- 1 < 2\n", 0), [""; 0]);
    }
}
