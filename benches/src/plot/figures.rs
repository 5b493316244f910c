//! What a plot shows: categories, one below the other, with a mark for each series.

use anyhow::{Context, Result, bail, ensure};
use delayline_chart::{Scale, short};
use serde_json::Value;

pub(super) struct Figures {
    pub(super) title: String,
    pub(super) unit: String,
    pub(super) note: Option<String>,
    pub(super) series: Vec<String>,
    /// A name and a mark for each series.
    pub(super) categories: Vec<(String, Vec<Mark>)>,
    pub(super) logarithmic: bool,
    /// Whether the marks of a category are of one distribution, and stand on one line.
    pub(super) in_line: bool,
    pub(super) has_spread: bool,
}

pub(super) struct Mark {
    pub(super) value: f64,
    /// The least and the most, where they are known.
    pub(super) spread: Option<(f64, f64)>,
}

impl Figures {
    pub(super) fn read(table: &Value) -> Result<Self> {
        let text = |key: &str| table[key].as_str().map(str::to_owned);
        let columns = table["columns"].as_array().context("it has no columns")?;
        let columns = columns.iter().map(|name| people(name.as_str().unwrap_or_default()));
        let columns: Vec<_> = columns.collect();
        let rows = table["rows"].as_array().context("it has no rows")?;
        let rows = rows.iter().map(row).collect::<Result<Vec<_>>>()?;
        ensure!(rows.iter().all(|(_, figures)| figures.len() == columns.len()), "a row is short");
        let mut figures = Self {
            title: text("title").context("it has no title")?,
            unit: text("unit").context("it has no unit")?,
            note: None,
            series: Vec::new(),
            categories: Vec::new(),
            logarithmic: table["scale"] == "logarithmic",
            in_line: false,
            has_spread: false,
        };
        match text("columns_are").as_deref() {
            Some("cases") => figures.cases(columns, rows),
            Some("percentiles") => figures.percentiles(table, columns, rows),
            Some("least, median, most") => figures.spreads(&columns, rows)?,
            other => bail!("there is no kind of columns {other:?}"),
        }
        Ok(figures)
    }

    /// The scale that has room for all figures.
    pub(super) fn scale(&self) -> Scale {
        let marks = || self.categories.iter().flat_map(|(_, marks)| marks);
        let ends = |mark: &Mark| mark.spread.unwrap_or((mark.value, mark.value));
        let least = marks().map(|mark| ends(mark).0).fold(f64::MAX, f64::min);
        let most = marks().map(|mark| ends(mark).1).fold(f64::MIN_POSITIVE, f64::max);
        match self.logarithmic {
            true => Scale::threes(least.max(1e-3), most),
            // Dots need no zero to stand on, but only ratios are read without it.
            false => Scale::even(if self.has_spread { least } else { 0.0 }, most, 6),
        }
    }

    /// The longer side of the table goes downwards.
    fn cases(&mut self, columns: Vec<String>, rows: Vec<(String, Vec<f64>)>) {
        if rows.len() >= columns.len() {
            self.by_row(columns, rows);
        } else {
            self.series = rows.iter().map(|(name, _)| name.clone()).collect();
            let column = |(n, name)| {
                (
                    name,
                    rows.iter().filter_map(|(_, row)| row.get(n).copied().map(Mark::new)).collect(),
                )
            };
            self.categories = columns.into_iter().enumerate().map(column).collect();
        }
    }

    /// With the number of samples, without which a percentile says little.
    fn percentiles(&mut self, table: &Value, columns: Vec<String>, rows: Vec<(String, Vec<f64>)>) {
        self.in_line = true;
        self.by_row(columns, rows);
        let samples = table["samples"].as_array().into_iter().flatten().filter_map(Value::as_f64);
        let samples: Vec<_> = samples.collect();
        for ((name, _), samples) in self.categories.iter_mut().zip(&samples) {
            *name += &format!(" (n = {})", short(*samples));
        }
    }

    fn by_row(&mut self, columns: Vec<String>, rows: Vec<(String, Vec<f64>)>) {
        self.series = columns;
        let marks = |figures: Vec<f64>| figures.into_iter().map(Mark::new).collect();
        self.categories = rows.into_iter().map(|(name, row)| (name, marks(row))).collect();
    }

    fn spreads(&mut self, columns: &[String], rows: Vec<(String, Vec<f64>)>) -> Result<()> {
        ensure!(columns.len().is_multiple_of(3), "the columns do not come in threes");
        self.has_spread = true;
        self.note = Some("median, from the least to the most".to_owned());
        let name = |of_three: &[String]| {
            of_three.first().map(|name| name.trim_end_matches(", least").to_owned())
        };
        self.series = columns.chunks(3).filter_map(name).collect();
        let mark = |of_three: &[f64]| match *of_three {
            [least, value, most] => Some(Mark { value, spread: Some((least, most)) }),
            _ => None,
        };
        let marks = |row: Vec<f64>| row.chunks(3).filter_map(mark).collect();
        self.categories = rows.into_iter().map(|(name, row)| (name, marks(row))).collect();
        Ok(())
    }
}

impl Mark {
    fn new(value: f64) -> Self {
        Self { value, spread: None }
    }
}

fn row(row: &Value) -> Result<(String, Vec<f64>)> {
    let name = row["name"].as_str().context("a row has no name")?;
    let figures = row["figures"].as_array().context("a row has no figures")?;
    let figures = figures.iter().map(|figure| figure.as_f64().context("a figure is no number"));
    Ok((people_in(name.trim()), figures.collect::<Result<_>>()?))
}

/// A column that is a number, as people read it.
fn people(name: &str) -> String {
    name.parse().map_or_else(|_| name.to_owned(), short)
}

/// The same for the numbers among words.
fn people_in(name: &str) -> String {
    name.split(' ').map(people).collect::<Vec<_>>().join(" ")
}
