//! Does Prometheus have the alerts of `monitoring/alerts.yml`, and which of them fire?

use serde::Deserialize;

use super::findings::{Finding, Findings, Verdict};

/// The names of the alerts in `monitoring/alerts.yml`.
pub const ALERTS: [&str; 15] = [
    "DelaylineOverdue",
    "DelaylineNoWorker",
    "DelaylineNoScheduler",
    "DelaylineDeadLetters",
    "DelaylinePausedForLong",
    "DelaylineHeldForLong",
    "DelaylineQueueUnreachable",
    "DelaylineExporterAbsent",
    "DelaylineQueuesNotWatched",
    "DelaylineQueueListStale",
    "DelaylineDirectoryFailed",
    "DelaylineDirectoryFull",
    "DelaylineDirectoryFillsUp",
    "DelaylineLateDeliveries",
    "DelaylineLeasesLost",
];

/// The reply of Prometheus to `/api/v1/rules`.
#[derive(Deserialize)]
struct Reply {
    data: Data,
}

#[derive(Deserialize)]
struct Data {
    groups: Vec<Group>,
}

#[derive(Deserialize)]
struct Group {
    rules: Vec<Rule>,
}

#[derive(Deserialize)]
struct Rule {
    name: String,
    /// `firing`, `pending` or `inactive`. Recording rules have none.
    state: Option<String>,
    /// `ok`, `err`, or `unknown` before the first evaluation.
    health: Option<String>,
}

/// Examines the reply of a Prometheus server to `/api/v1/rules`, or why there is none. `place` is
/// its URL without credentials.
#[must_use]
pub fn examine_alerts(place: &str, reply: Result<&[u8], String>) -> Vec<Finding> {
    let mut findings = Findings::default();
    let mut add = |check, verdict, detail: String, advice| {
        findings.add_on(place, check, verdict, detail, advice);
    };
    match reply.and_then(rules) {
        Err(why) => {
            let advice = "check the URL, including its path, user and password: Prometheus must \
                          answer at /api/v1/rules below it";
            add("alerts", Verdict::Bad, why, advice);
        }
        Ok(rules) => {
            let (verdict, detail, advice) = loaded(&rules);
            add("alerts", verdict, detail, advice);
            let is = |name: &str, test: &dyn Fn(&Rule) -> bool| {
                rules.iter().any(|rule| rule.name == name && test(rule))
            };
            let failing = names(|name| is(name, &|rule| rule.health.as_deref() == Some("err")));
            if !failing.is_empty() {
                let detail = format!("Prometheus cannot evaluate {failing}");
                let advice = "the page of the rules in Prometheus shows the error";
                add("evaluated alerts", Verdict::Bad, detail, advice);
            }
            let firing = names(|name| is(name, &|rule| rule.state.as_deref() == Some("firing")));
            let advice = "the guide \"Observe\" says what to check first for each alert";
            if !firing.is_empty() {
                add("firing alerts", Verdict::Beware, firing, advice);
            } else if !rules.is_empty() {
                add("firing alerts", Verdict::Good, "no alert is firing".to_owned(), "");
            }
        }
    }
    findings.0
}

/// The alerts of a reply that are Delayline's.
fn rules(reply: &[u8]) -> Result<Vec<Rule>, String> {
    let reply: Reply = serde_json::from_slice(reply)
        .map_err(|_| "the reply does not list rules as Prometheus does".to_owned())?;
    let rules = reply.data.groups.into_iter().flat_map(|group| group.rules);
    Ok(rules.filter(|it| it.state.is_some() && ALERTS.contains(&it.name.as_str())).collect())
}

/// How many of the alerts are loaded.
fn loaded(rules: &[Rule]) -> (Verdict, String, &'static str) {
    let all = ALERTS.len();
    let is_missing = |name: &str| !rules.iter().any(|rule| rule.name == name);
    match ALERTS.iter().filter(|name| is_missing(name)).count() {
        0 => (Verdict::Good, format!("all {all} alerts are loaded"), ""),
        count if count == all => (
            Verdict::Bad,
            format!("none of the {all} alerts is loaded"),
            "add monitoring/alerts.yml to rule_files and reload Prometheus",
        ),
        count => (
            Verdict::Beware,
            format!("{count} of {all} alerts are not loaded: {}", names(is_missing)),
            "load monitoring/alerts.yml of this version, unless you left them out on purpose",
        ),
    }
}

/// The names of some alerts, separated by commas.
fn names(wanted: impl Fn(&str) -> bool) -> String {
    let names: Vec<&str> = ALERTS.into_iter().filter(|name| wanted(name)).collect();
    names.join(", ")
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn rule(name: &str, state: &str, health: &str) -> Value {
        json!({"name": name, "state": state, "health": health, "type": "alerting", "query": "x"})
    }

    fn examined(rules: &[Value]) -> Vec<(Verdict, String)> {
        let group = |rules: &[Value]| json!({"name": "g", "file": "alerts.yml", "rules": rules});
        let (some, more) = rules.split_at(rules.len() / 2);
        let reply = json!({"status": "success", "data": {"groups": [group(some), group(more)]}});
        let findings = examine_alerts("http://a", Ok(reply.to_string().as_bytes()));
        assert!(findings.iter().all(|it| it.servers == ["http://a"]));
        assert!(findings.iter().all(|it| it.advice.is_empty() == (it.verdict == Verdict::Good)));
        findings.into_iter().map(|finding| (finding.verdict, finding.detail)).collect()
    }

    #[test]
    fn the_names_are_those_of_the_file() {
        let file = include_str!("../../../../monitoring/alerts.yml");
        let lines = file.lines().filter_map(|line| line.trim().strip_prefix("- alert: "));
        assert_eq!(lines.collect::<Vec<_>>(), ALERTS);
    }

    #[test]
    fn missing_failing_and_firing_alerts_are_named() {
        let all: Vec<Value> = ALERTS.map(|name| rule(name, "inactive", "ok")).into();
        let good = |detail: &str| (Verdict::Good, detail.to_owned());
        let fine = [good("all 15 alerts are loaded"), good("no alert is firing")];
        assert_eq!(examined(&all), fine);
        let none = [(Verdict::Bad, "none of the 15 alerts is loaded".to_owned())];
        // Other alerts, and a recording rule of the same name, do not count.
        let recording = json!({"name": ALERTS[0], "health": "ok", "type": "recording"});
        let other = rule("delaylineoverdue\u{1b}[2J", "firing", "err");
        assert_eq!(examined(&[]), none);
        assert_eq!(examined(&[recording.clone(), other.clone()]), none);
        assert_eq!(examined(&[&all[..], &[recording, other]].concat()), fine);

        let firing = rule(ALERTS[1], "firing", "ok");
        let pending = rule(ALERTS[2], "pending", "unknown");
        let failing = rule(ALERTS[3], "inactive", "err");
        let some = [&[firing.clone(), firing, pending, failing], &all[4..14]].concat();
        let expected = [
            (
                Verdict::Beware,
                "2 of 15 alerts are not loaded: DelaylineOverdue, DelaylineLeasesLost",
            ),
            (Verdict::Bad, "Prometheus cannot evaluate DelaylineDeadLetters"),
            (Verdict::Beware, "DelaylineNoWorker"),
        ];
        assert_eq!(examined(&some), expected.map(|(verdict, detail)| (verdict, detail.to_owned())));
    }

    #[test]
    fn other_replies_are_findings() {
        for reply in [
            "",
            "{",
            "[]",
            "null",
            "<html>hunter2</html>",
            r#"{"status":"error","error":"hunter2"}"#,
            r#"{"status":"success","data":[]}"#,
            r#"{"status":"success","data":{"groups":[{"rules":[{"name":7}]}]}}"#,
            &"[".repeat(1_000_000),
        ] {
            let findings = examine_alerts("http://a", Ok(reply.as_bytes()));
            assert_eq!((findings.len(), findings[0].verdict), (1, Verdict::Bad), "{reply}");
            assert!(!findings[0].line().contains("hunter2"), "{}", findings[0].line());
        }
        let findings = examine_alerts("http://a", Err("no reply".to_owned()));
        assert_eq!(findings[0].line(), "no reply (http://a)");
    }
}
