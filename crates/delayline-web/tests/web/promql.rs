//! The metrics and labels that a PromQL expression names. `cargo xtask prove monitoring` lets
//! promtool check its syntax: the crate `promql-parser` needs `bincode`, which is unmaintained
//! (RUSTSEC-2025-0141).

use std::collections::BTreeSet;

/// What an expression names.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Named {
    pub(crate) metrics: BTreeSet<String>,
    /// The labels of matchers, each with its metric.
    pub(crate) matched: BTreeSet<(String, String)>,
    /// The labels after `by` and the like.
    pub(crate) listed: BTreeSet<String>,
    /// The functions and aggregations.
    pub(crate) called: BTreeSet<String>,
}

/// Reads an expression that promtool accepts.
pub(crate) fn named(expr: &str) -> Named {
    let tokens = tokens(expr);
    let mut named = Named::default();
    let mut at = 0;
    let text = |at: usize| tokens.get(at).map_or("", String::as_str);
    while at < tokens.len() {
        let word = text(at).to_owned();
        at += 1;
        if !is_word(&word) || KEYWORDS.contains(&word.as_str()) {
        } else if LISTS.contains(&word.as_str()) {
            if text(at) == "(" {
                let labels = tokens[at..].iter().take_while(|it| *it != ")");
                let labels: Vec<_> = labels.filter(|it| is_word(it)).cloned().collect();
                at += tokens[at..].iter().take_while(|it| *it != ")").count();
                named.listed.extend(labels);
            }
        } else if text(at) == "(" || LISTS.contains(&text(at)) {
            named.called.insert(word);
        } else {
            if text(at) == "{" {
                while at < tokens.len() && text(at) != "}" {
                    if is_word(text(at)) {
                        named.matched.insert((word.clone(), text(at).to_owned()));
                    }
                    at += 1;
                }
            }
            named.metrics.insert(word);
        }
    }
    named
}

/// Words before a list of labels.
const LISTS: [&str; 6] = ["by", "without", "on", "ignoring", "group_left", "group_right"];

const KEYWORDS: [&str; 5] = ["and", "or", "unless", "bool", "offset"];

fn is_word(token: &str) -> bool {
    token.starts_with(|it: char| it.is_ascii_alphabetic() || it == '_')
}

/// Words, numbers with their units, single signs, and a quote for each text.
fn tokens(expr: &str) -> Vec<String> {
    let mut tokens = Vec::new();
    let mut rest = expr.trim_start();
    while let Some(first) = rest.chars().next() {
        let end = if first.is_ascii_alphanumeric() || first == '_' {
            let part = |it: char| it.is_ascii_alphanumeric() || "_:.".contains(it);
            rest.find(|it| !part(it)).unwrap_or(rest.len())
        } else if first == '"' {
            let end = rest[1..].find('"').expect("a text has an end");
            assert!(!rest[1..=end].contains('\\'), "an escape: {expr}");
            end + 2
        } else {
            first.len_utf8()
        };
        tokens.push(rest[..if first == '"' { 1 } else { end }].to_owned());
        rest = rest[end..].trim_start();
    }
    tokens
}

#[test]
fn names_are_told_apart() {
    let texts = |names: &[&str]| names.iter().map(|it| (*it).to_owned()).collect::<BTreeSet<_>>();
    let read = named(
        r#"histogram_quantile(0.5, sum by (a, le) (rate(x_bucket{b=~"c d",e!="f"}[5m] offset 1h)))
           unless ignoring (g) max(y{}) without (h) > bool 1"#,
    );
    assert_eq!(read.metrics, texts(&["x_bucket", "y"]));
    let matched = ["b", "e"].map(|label| ("x_bucket".to_owned(), label.to_owned()));
    assert_eq!(read.matched, BTreeSet::from(matched));
    assert_eq!(read.listed, texts(&["a", "g", "h", "le"]));
    assert_eq!(read.called, texts(&["histogram_quantile", "max", "rate", "sum"]));
}
