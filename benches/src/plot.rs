//! Figures as a plot: a dot for each, on a background that the page chooses.

use std::fmt::Display;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use delayline_chart::{Scale, Svg, short};
use serde_json::Value;

use self::figures::{Figures, Mark};

mod figures;

const WIDTH: f64 = 860.0;
const MARGIN: f64 = 16.0;
/// The top of the lanes, below title and legend.
const TOP: f64 = 66.0;
/// Room for the ticks and the unit.
const BOTTOM: f64 = 40.0;
/// Distance between the dots of one category, if each has its own line.
const STEP: f64 = 13.0;
/// Width of a letter.
const LETTER: f64 = 7.0;
/// Room to the right of the largest figure, for its value.
const BESIDE: f64 = 46.0;

const FONTS: &str = "system-ui, -apple-system, 'Segoe UI', Helvetica, Arial, sans-serif";
/// Readable on white and on the black of dark pages.
const INK: &str = "#727b85";
const COLORS: [&str; 8] =
    ["#2f81f7", "#d9730d", "#2da44e", "#a371f7", "#e5534b", "#1b9aaa", "#db61a2", "#a0723c"];

/// Returns a report as JSON with one row of a table in a line.
#[must_use]
pub fn in_lines(report: &Value) -> String {
    format!("{report}\n").replace("},{", "},\n{")
}

/// Draws a table in the form of `Table::to_json` as an SVG file.
///
/// # Errors
///
/// If it is not such a table, or the file cannot be written.
pub fn draw(table: &Value, file: &Path) -> Result<()> {
    let text = svg(table).with_context(|| format!("drawing {}", table["name"]))?;
    std::fs::write(file, text).with_context(|| format!("writing {}", file.display()))
}

/// Returns the plot of a table in the form of `Table::to_json`.
///
/// # Errors
///
/// If it is not such a table.
pub fn svg(table: &Value) -> Result<String> {
    let figures = Figures::read(table)?;
    ensure!(!figures.categories.is_empty(), "it has no figures");
    let labels = figures.categories.iter().map(|(name, _)| name.chars().count());
    let left = MARGIN + LETTER * labels.max().map_or(0.0, float) + 14.0;
    let lane = if figures.in_line { 24.0 } else { STEP * float(figures.series.len()) + 11.0 };
    let foot = TOP + lane * float(figures.categories.len());
    let axis = figures.scale().between(left, WIDTH - MARGIN - BESIDE);
    let mut out = Drawing::default();
    out.head(&figures, foot + BOTTOM);
    out.scale(&axis, foot, &figures.unit);
    for (n, (name, marks)) in figures.categories.iter().enumerate() {
        let middle = TOP + lane * (float(n) + 0.5);
        if n > 0 {
            let y = middle - lane / 2.0;
            out.line((MARGIN, y), (WIDTH - MARGIN, y), 0.15, 1.0);
        }
        out.text((left - 14.0, middle + 4.0), "end", 12, name);
        out.marks(&figures, marks, middle, &axis);
    }
    Ok(out.0.finish())
}

#[derive(Default)]
struct Drawing(Svg);

impl Drawing {
    fn head(&mut self, figures: &Figures, height: f64) {
        let size = [format!("0 0 {WIDTH:.0} {height:.0}"), format!("{height:.0}")];
        self.0.open(
            "svg",
            &[
                ("xmlns", &"http://www.w3.org/2000/svg"),
                ("viewBox", &size[0]),
                ("width", &WIDTH),
                ("height", &size[1]),
                ("role", &"img"),
                ("aria-label", &figures.title),
                ("font-family", &FONTS),
                ("fill", &INK),
            ],
        );
        let at: [(&str, &dyn Display); 2] = [("x", &MARGIN), ("y", &26)];
        let bold: [(&str, &dyn Display); 2] = [("font-size", &16), ("font-weight", &600)];
        self.0.words("text", &[at, bold].concat(), &figures.title);
        let mut x = MARGIN + 5.0;
        for (n, name) in figures.series.iter().enumerate() {
            self.dot((x, 46.0), n);
            self.text((x + 10.0, 50.0), "start", 12, name);
            x += LETTER * float(name.chars().count()) + 34.0;
        }
        if let Some(note) = &figures.note {
            self.text((WIDTH - MARGIN, 50.0), "end", 12, note);
        }
    }

    fn scale(&mut self, axis: &Scale, foot: f64, unit: &str) {
        for tick in axis.ticks() {
            let x = axis.place(*tick);
            self.line((x, TOP), (x, foot), 0.3, 1.0);
            self.text((x, foot + 16.0), "middle", 12, &short(*tick));
        }
        let kind = if axis.is_logarithmic() { ", logarithmic" } else { "" };
        self.text((WIDTH - MARGIN, foot + 33.0), "end", 12, &format!("{unit}{kind}"));
    }

    fn marks(&mut self, figures: &Figures, marks: &[Mark], middle: f64, axis: &Scale) {
        if figures.in_line {
            let values = || marks.iter().map(|mark| axis.place(mark.value));
            let ends = (values().fold(f64::MAX, f64::min), values().fold(f64::MIN, f64::max));
            self.line((ends.0, middle), (ends.1, middle), 0.6, 2.0);
        }
        let first = middle - STEP * (float(figures.series.len()) - 1.0) / 2.0;
        for (n, mark) in marks.iter().enumerate() {
            let y = if figures.in_line { middle } else { first + STEP * float(n) };
            let mut right = mark.value;
            if let Some((least, most)) = mark.spread {
                self.line((axis.place(least), y), (axis.place(most), y), 0.8, 2.0);
                right = most;
            }
            self.dot((axis.place(mark.value), y), n);
            if !figures.in_line {
                self.text((axis.place(right) + 9.0, y + 3.5), "start", 10, &short(mark.value));
            }
        }
    }

    /// Draws a dot in the colour and shape of its series.
    fn dot(&mut self, (x, y): (f64, f64), series: usize) {
        let fill = COLORS[series % COLORS.len()];
        let at = |names: [&'static str; 2], x: f64, y: f64| {
            names.into_iter().zip([x, y]).map(|(name, at)| (name, format!("{at:.1}")))
        };
        let (name, place): (_, Vec<(&str, String)>) = match series % 4 {
            0 => ("circle", at(["cx", "cy"], x, y).chain([("r", "4.5".to_owned())]).collect()),
            1 => {
                ("path", vec![("d", format!("M{x:.1} {:.1}l5.5 5.5l-5.5 5.5l-5.5-5.5z", y - 5.5))])
            }
            2 => {
                let size = ["width", "height"].map(|name| (name, "8".to_owned()));
                ("rect", at(["x", "y"], x - 4.0, y - 4.0).chain(size).collect())
            }
            _ => ("path", vec![("d", format!("M{x:.1} {:.1}l5.2 9h-10.4z", y - 5.5))]),
        };
        let place = place.iter().map(|(name, value)| (*name, value as &dyn Display));
        self.0.leaf(name, &place.chain([("fill", &fill as &dyn Display)]).collect::<Vec<_>>());
    }

    fn line(&mut self, from: (f64, f64), to: (f64, f64), opacity: f64, width: f64) {
        let d = format!("M{:.1} {:.1}L{:.1} {:.1}", from.0, from.1, to.0, to.1);
        self.0.leaf(
            "path",
            &[("d", &d), ("stroke", &INK), ("stroke-opacity", &opacity), ("stroke-width", &width)],
        );
    }

    fn text(&mut self, (x, y): (f64, f64), anchor: &str, size: u32, text: &str) {
        let at = [format!("{x:.1}"), format!("{y:.1}")];
        let place: [(&str, &dyn Display); 4] =
            [("x", &at[0]), ("y", &at[1]), ("text-anchor", &anchor), ("font-size", &size)];
        self.0.words("text", &place, text);
    }
}

fn float(count: usize) -> f64 {
    f64::from(u32::try_from(count).unwrap_or(u32::MAX))
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;

    /// After a change of a figure or of this module, redraw the plots:
    /// `cargo xtask bench --redraw`.
    #[test]
    fn the_plots_of_the_documentation_are_drawn_from_their_figures() {
        for report in [
            "benchmarks/figures",
            "benchmarks/groups/figures",
            "benchmarks/instructions/figures",
            "benchmarks/shards/figures",
            "benchmarks/peers",
            "drivers/figures",
        ] {
            let report = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../docs"))
                .join(report)
                .with_extension("json");
            let directory = report.parent().unwrap();
            let text = std::fs::read_to_string(&report).unwrap();
            let report: Value = serde_json::from_str(&text).unwrap();
            for table in report["tables"].as_array().unwrap() {
                let file = directory.join(table["name"].as_str().unwrap()).with_extension("svg");
                let known = std::fs::read_to_string(&file).unwrap();
                assert!(svg(table).unwrap() == known, "redraw {}", file.display());
            }
        }
    }

    #[test]
    fn texts_cannot_leave_their_element() {
        let table = serde_json::json!({
            "name": "a", "title": "<a & b>", "unit": "\"", "columns": ["<x>"],
            "rows": [{ "name": "<script>", "figures": [1.0] }],
            "scale": "linear", "columns_are": "cases",
        });
        let text = svg(&table).unwrap();
        assert!(text.contains("&lt;a &amp; b&gt;") && text.contains("&lt;script&gt;"));
        assert!(!text.contains("<script") && !text.contains("<x>"));
    }

    #[test]
    fn what_is_no_table_is_refused() {
        assert!(svg(&Value::Null).is_err());
        let table = serde_json::json!({ "title": "a", "unit": "ms", "columns": ["x"], "rows": [] });
        assert!(svg(&table).is_err());
    }
}
