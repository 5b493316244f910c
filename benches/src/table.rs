//! Figures in rows.

use std::fmt;

use serde_json::{Value, json};

/// Rows of figures under one heading.
pub(crate) struct Table {
    /// A word for file names.
    pub(crate) name: &'static str,
    pub(crate) title: &'static str,
    pub(crate) unit: &'static str,
    pub(crate) columns: Vec<String>,
    /// A name and a figure for each column.
    pub(crate) rows: Vec<(String, Vec<f64>)>,
    /// Whether the figures differ by powers of ten, so that a plot needs a logarithmic axis.
    pub(crate) wide: bool,
    /// What there is to know for who reads the figures.
    pub(crate) note: &'static str,
}

impl Table {
    pub(crate) fn to_json(&self) -> Value {
        let rows: serde_json::Map<_, _> =
            self.rows.iter().map(|(name, figures)| (name.clone(), json!(figures))).collect();
        json!({
            "name": self.name, "title": self.title, "unit": self.unit, "columns": self.columns,
            "rows": rows, "note": self.note,
        })
    }

    /// As a section of a page, with the plot of the same name.
    pub(crate) fn to_markdown(&self) -> String {
        let rule = "|---".repeat(self.columns.len() + 1) + "|\n";
        let mut text = format!("## {}\n\n{}\n\n", self.title, self.note);
        text += &format!("| {} | {} |\n{rule}", self.unit, self.columns.join(" | "));
        for (name, figures) in &self.rows {
            let figures: Vec<_> = figures.iter().map(|figure| shown(*figure)).collect();
            text += &format!("| {} | {} |\n", name.trim(), figures.join(" | "));
        }
        text + &format!("\n![{}]({}.svg)\n", self.title, self.name)
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let width = self.rows.iter().map(|(name, _)| name.len()).max().unwrap_or_default();
        writeln!(f, "{} ({})", self.title, self.unit)?;
        write!(f, "{:width$}", "")?;
        for column in &self.columns {
            write!(f, "  {column:>12}")?;
        }
        for (name, figures) in &self.rows {
            write!(f, "\n{name:width$}")?;
            for figure in figures {
                write!(f, "  {:>12}", shown(*figure))?;
            }
        }
        Ok(())
    }
}

/// With as many digits as can mean something.
pub(crate) fn shown(figure: f64) -> String {
    match figure.abs() {
        100.0.. => format!("{figure:.0}"),
        10.0.. => format!("{figure:.1}"),
        _ => format!("{figure:.2}"),
    }
}

/// A count as a figure.
pub(crate) fn number(count: usize) -> f64 {
    f64::from(u32::try_from(count).unwrap_or(u32::MAX))
}
