//! The report of a failed comparison.

use std::fmt::{self, Write as _};

use delayline_core::{Applied, Error, Found, Message, Reply};

use crate::{Step, Trace};

/// A difference between a backend and the model, and the run that leads to it.
///
/// Its `Display` output contains the lines that differ, and the trace to keep as a regression.
#[derive(Clone, Debug)]
pub struct Divergence {
    /// The step of the trace, from 1, at or after which it appeared.
    pub step: usize,
    /// The operation whose results differ: the step's own, or one that reads the queue after it.
    pub asked: Step,
    /// The differing lines: `-` marks expected lines, `+` actual ones.
    pub difference: String,
    /// The complete run.
    pub trace: Trace,
}

impl Divergence {
    pub(crate) fn new(step: usize, asked: &Step, trace: &Trace, difference: String) -> Self {
        Self { step, asked: asked.clone(), difference, trace: trace.clone() }
    }

    pub(crate) fn between(
        step: usize,
        asked: &Step,
        trace: &Trace,
        expected: &Result<Applied, Error>,
        got: &Result<Applied, Error>,
    ) -> Self {
        Self::new(step, asked, trace, difference(&show(expected), &show(got)))
    }
}

impl fmt::Display for Divergence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "at step {} the backend differs from the model, asked", self.step)?;
        writeln!(f, "    {}", self.asked)?;
        writeln!(f, "(- is expected, + is the backend's)")?;
        writeln!(f, "{}", self.difference.trim_end())?;
        writeln!(f, "the trace, to be kept as regressions/<name>.trace:")?;
        write!(f, "{}", self.trace)
    }
}

impl std::error::Error for Divergence {}

/// Shows everything in a result, including what its `Debug` output omits.
pub(crate) fn show(answer: &Result<Applied, Error>) -> String {
    let applied = match answer {
        Ok(applied) => applied,
        Err(error) => return format!("{error:#?}"),
    };
    let mut text = format!("{applied:#?}");
    for message in messages(&applied.reply) {
        let (id, payload) = (&message.info.id, &message.payload);
        let _ = write!(text, "\npayload of {id}: {}", payload.escape_ascii());
        for (name, value) in message.headers.iter() {
            let _ = write!(text, "\nheader of {id}: {name:?} is {}", value.escape_ascii());
        }
    }
    text
}

fn messages(reply: &Reply) -> Vec<&Message> {
    match reply {
        Reply::Claim(claimed) => claimed.deliveries.iter().map(|d| &d.message).collect(),
        Reply::Get(found) => {
            let live = found.iter().filter_map(|found| match found {
                Found::Live(message) => Some(&**message),
                _ => None,
            });
            live.collect()
        }
        _ => Vec::new(),
    }
}

/// Compares two texts by lines: those only in the first with `-`, those only in the second with
/// `+`, and a few lines around them.
pub(crate) fn difference(expected: &str, got: &str) -> String {
    let (expected, got): (Vec<_>, Vec<_>) = (expected.lines().collect(), got.lines().collect());
    let same = common_tails(&expected, &got);
    let (mut text, mut e, mut g) = (String::new(), 0, 0);
    let mut skipped: Vec<&str> = Vec::new();
    while e < expected.len() || g < got.len() {
        if e < expected.len() && g < got.len() && expected[e] == got[g] {
            skipped.push(expected[e]);
            (e, g) = (e + 1, g + 1);
            continue;
        }
        for line in skipped.iter().skip(skipped.len().saturating_sub(CONTEXT)) {
            let _ = writeln!(text, "  {line}");
        }
        skipped.clear();
        let drop_expected =
            g == got.len() || (e < expected.len() && same[e + 1][g] >= same[e][g + 1]);
        if drop_expected {
            let _ = writeln!(text, "- {}", expected[e]);
            e += 1;
        } else {
            let _ = writeln!(text, "+ {}", got[g]);
            g += 1;
        }
    }
    text
}

/// For each pair of positions, the length of the longest common subsequence of the remaining lines.
fn common_tails(a: &[&str], b: &[&str]) -> Vec<Vec<usize>> {
    let mut table = vec![vec![0; b.len() + 1]; a.len() + 1];
    for i in (0..a.len()).rev() {
        for j in (0..b.len()).rev() {
            table[i][j] = if a[i] == b[j] {
                table[i + 1][j + 1] + 1
            } else {
                table[i + 1][j].max(table[i][j + 1])
            };
        }
    }
    table
}

/// The number of equal lines shown before differing ones.
const CONTEXT: usize = 3;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_differs_is_shown() {
        let expected = "a\nb\nc\nd\ne\nf\ng";
        let got = "a\nb\nc\nd\ne\nF\nF\ng";
        assert_eq!(difference(expected, got), "  c\n  d\n  e\n- f\n+ F\n+ F\n");
    }
}
