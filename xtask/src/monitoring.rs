//! `cargo xtask prove monitoring`: alerts, dashboard and the example's configuration as Prometheus
//! reads them.
//!
//! That their metrics and labels exist is a test of `delayline-web`.

use std::path::Path;

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};
use xshell::{Shell, cmd};

use crate::{redis_server, workspace};

/// `cargo xtask prove monitoring`.
pub(crate) fn run(shell: &Shell, args: &[String]) -> Result<()> {
    ensure!(args.is_empty(), "`monitoring` takes no arguments");
    check(shell)
}

/// Lets Prometheus' own tool read every expression, and try the alerts on invented series.
pub(crate) fn check(shell: &Shell) -> Result<()> {
    if !redis_server::on_path("promtool") {
        redis_server::install(shell, "prometheus")?;
    }
    let place = workspace::target_directory(shell)?.join("monitoring");
    shell.create_dir(&place)?;
    cmd!(shell, "promtool check rules {ALERTS}").run().context(ALERTS)?;
    cmd!(shell, "promtool test rules {ALERT_TESTS}").run().context(ALERT_TESTS)?;
    check_dashboard(shell, &place).context(DASHBOARD)?;
    check_config(shell, &place).context(CONFIG)
}

/// The tool reads rules, not dashboards: so each expression becomes one.
fn check_dashboard(shell: &Shell, place: &Path) -> Result<()> {
    let rules = rules(&serde_json::from_str(&shell.read_file(DASHBOARD)?)?)?;
    // JSON is YAML.
    let file = place.join("dashboard.yml");
    shell.write_file(&file, rules.to_string())?;
    Ok(cmd!(shell, "promtool check rules {file}").run()?)
}

/// The tool looks for the files that it names, which are elsewhere in a container.
fn check_config(shell: &Shell, place: &Path) -> Result<()> {
    let token = place.join("token");
    let config = shell.read_file(CONFIG)?;
    ensure!(config.contains(TOKEN), "it reads no {TOKEN}");
    shell.write_file(&token, "any")?;
    shell.copy_file(ALERTS, place)?;
    let file = place.join("prometheus.yml");
    shell.write_file(&file, config.replace(TOKEN, &token.display().to_string()))?;
    Ok(cmd!(shell, "promtool check config {file}").run()?)
}

/// A rule for each expression of a dashboard.
fn rules(dashboard: &Value) -> Result<Value> {
    let mut rules = Vec::new();
    for panel in dashboard["panels"].as_array().context("it has no panels")? {
        let title = panel["title"].as_str().context("a panel has no title")?;
        for (number, target) in (0..).zip(panel["targets"].as_array().into_iter().flatten()) {
            let expr = target["expr"].as_str().with_context(|| format!("no expr: {title}"))?;
            let words = title.replace(|it: char| !it.is_ascii_alphanumeric(), "_");
            let record = format!("panel:{}:{words}:{number}", panel["id"]);
            rules.push(json!({ "record": record, "expr": without_variables(expr) }));
        }
    }
    ensure!(!rules.is_empty(), "it has no expressions");
    Ok(json!({ "groups": [{ "name": "dashboard", "rules": rules }] }))
}

/// With values such as Grafana puts in. The rest of a variable is no PromQL.
fn without_variables(expr: &str) -> String {
    expr.replace("$__rate_interval", "1m").replace("\"$queue\"", "\"orders|texts\"")
}

const ALERTS: &str = "monitoring/alerts.yml";
const ALERT_TESTS: &str = "monitoring/alerts_test.yml";
const CONFIG: &str = "examples/compose/prometheus.yml";
/// The file with the token in the container.
const TOKEN: &str = "/scrape/token";
const DASHBOARD: &str = "monitoring/grafana/delayline.json";
