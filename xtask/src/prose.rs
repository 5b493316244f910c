//! Words that our sentences do without: in comments, documentation, strings, help and pages.

/// Checks the text of a file, without its blocks of code.
pub(crate) fn check(path: &str, text: &str) -> Vec<String> {
    if LEFT_OUT.iter().any(|ending| path.ends_with(ending)) {
        return Vec::new();
    }
    let tokens = tokens(text);
    let mut findings = Vec::new();
    for (at, (number, _)) in tokens.iter().enumerate() {
        let found = PHRASES.iter().find(|(phrase, _)| begins_with(&tokens[at..], phrase));
        if let Some((phrase, instead)) = found {
            findings.push(format!("{path}:{number}: \"{phrase}\": {instead}"));
        }
    }
    findings
}

/// Records of histories, whose ids are data, and this list of words.
const LEFT_OUT: &[&str] = &[".trace", "xtask/src/prose.rs"];

const ACTOR: &str = "name the actor: caller, client, worker, producer, user, operator";
const REPORT: &str = "returned, reported, shown, logged or rejected";
const LIMIT: &str = "\"at most N\", \"maximum number of\" or \"this number of\"";

const PHRASES: &[(&str, &str)] = &[
    ("nobody", ACTOR),
    ("nobody's", ACTOR),
    ("somebody", ACTOR),
    ("somebody's", ACTOR),
    ("whoever", ACTOR),
    ("is told", REPORT),
    ("are told", REPORT),
    ("was told", REPORT),
    ("were told", REPORT),
    ("be told", REPORT),
    ("been told", REPORT),
    ("being told", REPORT),
    ("unless told", "(default: ...)"),
    ("so often", LIMIT),
    ("so many", LIMIT),
    ("at the most", LIMIT),
    ("answers whether", "\"Returns whether\" or \"Returns `true` if\""),
    ("meddle", ACTOR),
    ("meddles", ACTOR),
    ("meddling", ACTOR),
];

fn begins_with(tokens: &[(usize, String)], phrase: &str) -> bool {
    let mut tokens = tokens.iter();
    phrase.split(' ').all(|word| tokens.next().is_some_and(|(_, it)| it == word))
}

/// The words of a text in lower case, with their lines. Sentences may go over several lines;
/// punctuation is an empty word.
fn tokens(text: &str) -> Vec<(usize, String)> {
    let (mut tokens, mut is_code) = (Vec::new(), false);
    for (number, line) in (1..).zip(text.lines()) {
        let line = prose(line);
        if line.starts_with("```") {
            is_code = !is_code;
            tokens.push((number, String::new()));
            continue;
        }
        if is_code {
            continue;
        }
        let mut word = String::new();
        for c in line.chars() {
            if c.is_alphanumeric() || c == '_' || c == '\'' {
                word.extend(c.to_lowercase());
                continue;
            }
            if !word.is_empty() {
                tokens.push((number, std::mem::take(&mut word)));
            }
            if !c.is_whitespace() {
                tokens.push((number, String::new()));
            }
        }
        if !word.is_empty() {
            tokens.push((number, word));
        }
    }
    tokens
}

/// A line without the sign of a comment and of a string that continues.
fn prose(line: &str) -> &str {
    let line = line.trim();
    let line = line.strip_suffix('\\').unwrap_or(line);
    line.trim_start_matches(['/', '-', '#', '!']).trim_start()
}

#[cfg(test)]
mod tests {
    use super::{PHRASES, check};

    fn findings(text: &str) -> usize {
        check("a.rs", text).len()
    }

    #[test]
    fn phrases_are_found_in_sentences_and_not_in_names_and_code() {
        for (phrase, instead) in PHRASES {
            let found = check("a.md", &format!("One.\nIt {phrase}, it.\n"));
            assert_eq!(found, [format!("a.md:2: \"{phrase}\": {instead}")]);
            assert_eq!(findings(&format!("fn a_{}_a()", phrase.replace(' ', "_"))), 0);
            assert_eq!(findings(&format!("/// ```\n/// {phrase}\n/// ```\n/// text")), 0);
            assert_eq!(findings(&format!("/// ```\n/// code\n/// ```\n/// {phrase}")), 1);
            let Some((first, rest)) = phrase.split_once(' ') else { continue };
            // It may go over lines and begin a sentence, but not end one.
            assert_eq!(findings(&format!("It {first}. {rest}")), 0);
            let first = first.to_uppercase();
            assert_eq!(findings(&format!("    /// {first}\n    /// {rest} it")), 1);
            assert_eq!(findings(&format!("-- {first}\n-- {rest} it")), 1);
            assert_eq!(findings(&format!("\"a string {first} \\\n    {rest} it\"")), 1);
        }
    }
}
