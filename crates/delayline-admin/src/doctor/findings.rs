//! What checks find.

use delayline::Error;
use delayline_json::{harmless_line, hint};
use serde_json::{Value, json};

/// What one check has found.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Finding {
    /// The examined thing, in a word or two.
    pub check: &'static str,
    /// Where: addresses. Empty if it is about all of them, or about none.
    pub servers: Vec<String>,
    /// Whether that is good.
    pub verdict: Verdict,
    /// The finding. May have text that a server wrote.
    pub detail: String,
    /// What to do about it. Empty if it is good.
    pub advice: &'static str,
}

/// How good something is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Verdict {
    /// Nothing has to be done.
    Good,
    /// It can cost something.
    Beware,
    /// The queues do not work, or may lose messages.
    Bad,
}

impl Finding {
    /// The finding and its place, in one line without a character that could steer a terminal.
    #[must_use]
    pub fn line(&self) -> String {
        harmless_line(&match &self.servers[..] {
            [] => self.detail.clone(),
            servers => format!("{} ({})", self.detail, servers.join(", ")),
        })
    }

    /// As a JSON object.
    #[must_use]
    pub fn json(&self) -> Value {
        json!({
            "check": self.check,
            "servers": self.servers,
            "verdict": self.verdict.name(),
            "detail": self.detail,
            "advice": Some(self.advice).filter(|_| self.verdict != Verdict::Good),
        })
    }
}

impl Verdict {
    /// `good`, `beware` or `bad`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Good => "good",
            Self::Beware => "beware",
            Self::Bad => "bad",
        }
    }
}

/// The findings so far.
#[derive(Default)]
pub(super) struct Findings(pub(super) Vec<Finding>);

impl Findings {
    /// Adds a finding about the whole.
    pub(super) fn add(
        &mut self,
        check: &'static str,
        verdict: Verdict,
        detail: impl Into<String>,
        advice: &'static str,
    ) {
        let (detail, advice) = (detail.into(), advised(verdict, advice));
        self.0.push(Finding { check, servers: Vec::new(), verdict, detail, advice });
    }

    /// Adds why something could not be looked at.
    pub(super) fn add_failure(&mut self, check: &'static str, error: &Error) {
        let advice = hint(error.kind()).unwrap_or("see above");
        self.add(check, Verdict::Bad, error.to_string(), advice);
    }

    /// Adds a finding of one server, together with other servers that have the same.
    pub(super) fn add_on(
        &mut self,
        server: &str,
        check: &'static str,
        verdict: Verdict,
        detail: impl Into<String>,
        advice: &'static str,
    ) {
        let (detail, advice) = (detail.into(), advised(verdict, advice));
        let is_same = |it: &&mut Finding| {
            !it.servers.is_empty()
                && (it.check, it.verdict, it.advice) == (check, verdict, advice)
                && it.detail == detail
        };
        match self.0.iter_mut().find(is_same) {
            Some(finding) => finding.servers.push(server.to_owned()),
            None => {
                let servers = vec![server.to_owned()];
                self.0.push(Finding { check, servers, verdict, detail, advice });
            }
        }
    }
}

/// Good findings need no advice.
fn advised(verdict: Verdict, advice: &'static str) -> &'static str {
    if verdict == Verdict::Good { "" } else { advice }
}

pub(super) const fn good_if(good: bool) -> Verdict {
    if good { Verdict::Good } else { Verdict::Bad }
}

pub(super) const fn good_unless(dubious: bool) -> Verdict {
    if dubious { Verdict::Beware } else { Verdict::Good }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn servers_with_the_same_finding_share_a_line() {
        let mut findings = Findings::default();
        findings.add("role", Verdict::Good, "primary", "none");
        for (server, check, verdict, detail, advice) in [
            ("a", "role", Verdict::Good, "primary", "x"),
            ("b", "role", Verdict::Good, "primary", "y"),
            ("c", "role", Verdict::Good, "replica", ""),
            ("d", "lag", Verdict::Good, "primary", ""),
            ("e", "role", Verdict::Bad, "primary", "x"),
            ("f", "role", Verdict::Bad, "primary", "y"),
            ("g", "role", Verdict::Bad, "primary", "y"),
        ] {
            findings.add_on(server, check, verdict, detail, advice);
        }
        let lines: Vec<_> = findings.0.iter().map(Finding::line).collect();
        let expected = [
            "primary",
            "primary (a, b)",
            "replica (c)",
            "primary (d)",
            "primary (e)",
            "primary (f, g)",
        ];
        assert_eq!(lines, expected);
        assert_eq!((findings.0[1].advice, findings.0[4].advice), ("", "x"));
        assert_eq!(findings.0[4].json()["advice"], "x");
        assert_eq!(findings.0[1].json()["advice"], Value::Null);
    }
}
