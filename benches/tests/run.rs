//! The program runs, and saves its output.

use std::process::Command;

#[test]
fn figures_are_printed_and_saved() {
    let home = tempfile::tempdir().unwrap();
    let output = Command::new(env!("CARGO_BIN_EXE_delayline-bench"))
        .args([
            "cost",
            "throughput",
            "durable",
            "backlog",
            "pull",
            "sqs",
            "--messages",
            "400",
            "--backlog",
            "1000",
        ])
        .arg("--save")
        .arg(home.path())
        .output()
        .unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
    let printed = String::from_utf8(output.stdout).unwrap();
    let page = std::fs::read_to_string(home.path().join("README.md")).unwrap();
    let figures = std::fs::read(home.path().join("figures.json")).unwrap();
    let figures: serde_json::Value = serde_json::from_slice(&figures).unwrap();
    let tables = figures["tables"].as_array().unwrap();
    assert_eq!(tables.len(), 11, "{page}");
    assert!(!page.contains('\\'), "a text is broken in its middle: {page}");
    for table in tables {
        let (name, title) = (table["name"].as_str().unwrap(), table["title"].as_str().unwrap());
        assert!(printed.contains(title) && page.contains(title), "{title}");
        let plot = std::fs::read_to_string(home.path().join(format!("{name}.svg"))).unwrap();
        assert!(plot.contains("</svg>"), "{name}");
        let rows = table["rows"].as_array().unwrap();
        let mut all = rows.iter().flat_map(|row| row["figures"].as_array().unwrap());
        assert!(all.all(|figure| figure.as_f64().unwrap() > 0.0), "{table}");
    }
}
