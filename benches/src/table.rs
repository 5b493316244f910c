//! Figures in rows.

use std::fmt;

use serde_json::{Value, json};

/// Rows of figures under one heading.
pub(crate) struct Table {
    pub(crate) title: &'static str,
    pub(crate) unit: &'static str,
    pub(crate) columns: Vec<String>,
    /// A name and a figure for each column.
    pub(crate) rows: Vec<(String, Vec<f64>)>,
}

impl Table {
    pub(crate) fn to_json(&self) -> Value {
        let rows: serde_json::Map<_, _> =
            self.rows.iter().map(|(name, figures)| (name.clone(), json!(figures))).collect();
        json!({ "title": self.title, "unit": self.unit, "columns": self.columns, "rows": rows })
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
                write!(f, "  {figure:>12.2}")?;
            }
        }
        Ok(())
    }
}
