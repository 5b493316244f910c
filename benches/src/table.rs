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
    /// The relation of the columns.
    pub(crate) columns_are: Columns,
    /// Whether the figures differ by powers of ten, so that a plot needs a logarithmic axis.
    pub(crate) wide: bool,
    /// Explains the figures to the reader.
    pub(crate) note: &'static str,
}

/// How a plot shows the figures of a row.
pub(crate) enum Columns {
    /// Each column is a separate case.
    Cases,
    /// The columns are percentiles of one distribution, on one line. Has the number of samples of
    /// each row.
    Percentiles(Vec<u64>),
    /// The columns are the least, the median and the greatest value of some rounds, in threes.
    Spreads,
}

impl Table {
    pub(crate) fn to_json(&self) -> Value {
        let row =
            |(name, figures): &(String, Vec<f64>)| json!({ "name": name, "figures": figures });
        let rows: Vec<_> = self.rows.iter().map(row).collect();
        let (columns_are, samples) = match &self.columns_are {
            Columns::Cases => ("cases", None),
            Columns::Percentiles(samples) => ("percentiles", Some(samples)),
            Columns::Spreads => ("least, median, most", None),
        };
        json!({
            "name": self.name, "title": self.title, "unit": self.unit, "columns": self.columns,
            "columns_are": columns_are, "samples": samples, "rows": rows, "note": self.note,
            "scale": if self.wide { "logarithmic" } else { "linear" },
        })
    }

    /// Returns a section of a page, with the plot of the same name.
    pub(crate) fn to_markdown(&self) -> String {
        let mut columns = self.columns.clone();
        let samples = match &self.columns_are {
            Columns::Percentiles(samples) => samples.as_slice(),
            Columns::Cases | Columns::Spreads => &[],
        };
        if !samples.is_empty() {
            columns.insert(0, "samples".to_owned());
        }
        let rule = "|---".repeat(columns.len() + 1) + "|\n";
        let mut text = format!("## {}\n\n{}\n\n", self.title, self.note);
        text += &format!("| {} | {} |\n{rule}", self.unit, columns.join(" | "));
        for (n, (name, figures)) in self.rows.iter().enumerate() {
            let samples = samples.get(n).map(ToString::to_string);
            let figures = figures.iter().map(|figure| shown(*figure));
            let cells: Vec<_> = samples.into_iter().chain(figures).collect();
            text += &format!("| {} | {} |\n", name.trim(), cells.join(" | "));
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

/// Formats a figure with its significant digits.
pub(crate) fn shown(figure: f64) -> String {
    match figure.abs() {
        100.0.. => format!("{figure:.0}"),
        10.0.. => format!("{figure:.1}"),
        _ => format!("{figure:.2}"),
    }
}

/// Converts a count to a figure.
pub(crate) fn number(count: usize) -> f64 {
    f64::from(u32::try_from(count).unwrap_or(u32::MAX))
}

/// Returns the least, the median and the greatest of one or more values, for [`Columns::Spreads`].
pub(crate) fn spread(mut values: Vec<f64>) -> [f64; 3] {
    values.sort_by(f64::total_cmp);
    [0, values.len() / 2, values.len() - 1].map(|n| values[n])
}

/// Returns the median of one or more values.
pub(crate) fn median(values: Vec<f64>) -> f64 {
    spread(values)[1]
}
