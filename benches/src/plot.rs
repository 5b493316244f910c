//! A table as a plot.

use std::path::Path;

use anyhow::{Result, anyhow};
use plotters::coord::Shift;
use plotters::prelude::*;

use crate::table::{Table, number, shown};

const SIZE: (u32, u32) = (1060, 420);
const LEGEND_WIDTH: u32 = 190;
const COLORS: [RGBColor; 8] = [
    RGBColor(0x1f, 0x77, 0xb4),
    RGBColor(0xff, 0x7f, 0x0e),
    RGBColor(0x2c, 0xa0, 0x2c),
    RGBColor(0xd6, 0x27, 0x28),
    RGBColor(0x94, 0x67, 0xbd),
    RGBColor(0x8c, 0x56, 0x4b),
    RGBColor(0xe3, 0x77, 0xc2),
    RGBColor(0x7f, 0x7f, 0x7f),
];

/// Draws the table as groups of bars, a group for each column, as an SVG file.
pub(crate) fn draw(table: &Table, file: &Path) -> Result<()> {
    let area = SVGBackend::new(file, SIZE).into_drawing_area();
    bars(table, &area).map_err(|error| anyhow!("{error}"))?;
    area.present().map_err(|error| anyhow!("writing {}: {error}", file.display()))
}

type Failure = Box<dyn std::error::Error>;

fn bars(table: &Table, area: &DrawingArea<SVGBackend<'_>, Shift>) -> Result<(), Failure> {
    area.fill(&WHITE)?;
    let (area, legend) = area.split_horizontally(SIZE.0 - LEGEND_WIDTH);
    let figures = || table.rows.iter().flat_map(|(_, figures)| figures.iter().copied());
    let least = figures().fold(f64::MAX, f64::min).max(1e-3);
    // On a logarithmic axis bars stand on the power of ten below all of them.
    let foot = least.log10().floor();
    let height = |figure: f64| {
        if table.wide { figure.max(1e-3).log10() - foot } else { figure }
    };
    let figure = |height: f64| if table.wide { 10_f64.powf(height + foot) } else { height };
    let most = figures().map(height).fold(f64::MIN_POSITIVE, f64::max);
    let top = if table.wide { most.ceil() } else { most * 1.1 };
    let mut chart = ChartBuilder::on(&area)
        .caption(format!("{} ({})", table.title, table.unit), ("sans-serif", 18))
        .margin(12)
        .x_label_area_size(30)
        .y_label_area_size(70)
        .build_cartesian_2d(0.0..number(table.columns.len()), 0.0..top)?;
    let label = |x: &f64| {
        let column =
            table.columns.iter().enumerate().find(|(n, _)| (number(*n) + 0.5 - x).abs() < 0.01);
        column.map(|(_, name)| name.clone()).unwrap_or_default()
    };
    chart
        .configure_mesh()
        .disable_x_mesh()
        .x_labels(2 * table.columns.len() + 1)
        .x_label_formatter(&label)
        // Powers of ten.
        .y_labels(if table.wide { 5 } else { 10 })
        .y_label_formatter(&|height| shown(figure(*height)))
        .light_line_style(TRANSPARENT)
        .draw()?;
    for (row, ((name, figures), color)) in table.rows.iter().zip(COLORS.iter().cycle()).enumerate()
    {
        let bar = |(column, figure): (usize, &f64)| {
            let (left, right) = place(table, row, column);
            Rectangle::new([(left, 0.0), (right, height(*figure))], color.filled())
        };
        chart.draw_series(figures.iter().enumerate().map(bar))?;
        let y = 60 + 20 * i32::try_from(row)?;
        legend.draw(&Rectangle::new([(0, y), (10, y + 10)], color.filled()))?;
        legend.draw(&Text::new(name.trim().to_owned(), (16, y), ("sans-serif", 12)))?;
    }
    Ok(())
}

/// Where the bar of a row begins and ends in the group of a column.
fn place(table: &Table, row: usize, column: usize) -> (f64, f64) {
    let slot = 0.8 / number(table.rows.len());
    let left = number(column) + 0.1 + slot * number(row);
    (left, left + slot * 0.9)
}
