//! Draws a figure as SVG.
//!
//! Colors are CSS variables with a light value to fall back on: the page that holds the figure chooses light or dark.

use std::sync::Arc;

use kuva::prelude::*;
use kuva::render::layout::TickFormat;
use kuva::render::theme::Theme;

use super::figure::{Figure, Point};
use super::numbers::short;

/// Width and height of a figure, in pixels: readable on a phone, whose width is about the same.
const SIZE: (f64, f64) = (640.0, 400.0);
/// Colors of lines (Okabe and Ito 2008), which people with any color vision can distinguish.
pub(super) const COLORS: &[&str] =
    &["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#7a5195", "#8c6d31"];
/// Color of text and axes, of the grid, and of the background.
pub(super) const INK: &str = "#1f2328";
pub(super) const GRID: &str = "#d8dee4";
pub(super) const PAPER: &str = "#ffffff";

/// Returns an element `svg` for a page.
#[must_use]
pub fn draw(figure: &Figure) -> String {
    let mut plots: Vec<Plot> = Vec::new();
    for (number, series) in figure.series.iter().enumerate() {
        let color = variable(&format!("series-{}", number % COLORS.len()), COLORS[number % COLORS.len()]);
        let places = || series.points.iter().map(|point| (point.x, point.y));
        let arms = series.points.iter().map(|point| {
            let (low, high) = point.interval.unwrap_or((point.y, point.y));
            (point.y - low, high - point.y)
        });
        let line = LinePlot::new().with_data(places()).with_color(&color).with_stroke_width(2.0);
        if figure.marks {
            let labels = series.points.iter().map(|point| hover_text(figure, &series.name, point));
            let marks = ScatterPlot::new().with_data(places()).with_color(&color).with_size(4.0);
            plots.push(line.with_y_err_asymmetric(arms).into());
            plots.push(marks.with_tooltip_labels(labels).with_legend(&series.name).into());
        } else {
            plots.push(line.with_legend(&series.name).into());
        }
    }
    let layout = layout(figure, &plots);
    scalable(&kuva::render_to_svg(plots, layout), &figure.title)
}

fn variable(name: &str, fallback: &str) -> String {
    format!("var(--{name}, {fallback})")
}

fn layout(figure: &Figure, plots: &[Plot]) -> Layout {
    let (ink, grid) = (variable("ink", INK), variable("grid", GRID));
    let theme = Theme {
        background: "none".to_owned(),
        axis_color: ink.clone(),
        grid_color: grid,
        tick_color: ink.clone(),
        text_color: ink,
        legend_bg: "none".to_owned(),
        legend_border: "none".to_owned(),
        font_family: Some("system-ui, sans-serif".to_owned()),
        ..Theme::light()
    };
    let mut layout = Layout::auto_from_plots(plots)
        .with_width(SIZE.0)
        .with_height(SIZE.1)
        .with_theme(theme)
        .with_x_label(&figure.x.label)
        .with_y_label(&figure.y.label)
        .with_label_size(15)
        .with_tick_size(13)
        .with_body_size(14)
        .with_y_tick_format(TickFormat::Custom(Arc::new(short)))
        .with_legend_position(LegendPosition::OutsideBottomColumns);
    if figure.x.is_log {
        layout = layout.with_log_x();
    }
    if figure.y.is_log {
        layout = layout.with_log_y();
    } else {
        // A difference of heights is a difference of values only from 0 on.
        layout = layout.with_y_axis_min(0.0);
    }
    if figure.x.names.is_empty() {
        return layout;
    }
    let names = figure.x.names.clone();
    let name = move |x: f64| {
        let is_place = (x - x.round()).abs() < 1e-6 && x >= 1.0;
        is_place.then(|| names.get(x.round() as usize - 1)).flatten().cloned().unwrap_or_default()
    };
    layout
        .with_x_axis_min(0.0)
        .with_x_axis_max(figure.x.names.len() as f64 + 1.0)
        .with_x_tick_step(1.0)
        .with_x_tick_format(TickFormat::Custom(Arc::new(name)))
}

/// Returns the text that is shown when the pointer is over a point.
fn hover_text(figure: &Figure, series: &str, point: &Point) -> String {
    let x = figure.x_text(point.x);
    let place = if figure.x.names.is_empty() { format!("{}: {x}\n", figure.x.label) } else { String::new() };
    let interval =
        point.interval.map_or(String::new(), |(low, high)| format!(" ({} … {})", short(low), short(high)));
    let rounds = point.rounds;
    format!("{series}\n{place}{}: {}{interval}\n{rounds} round(s)", figure.y.label, short(point.y))
}

/// Lets the page choose the size, and names the figure for readers of the screen.
fn scalable(svg: &str, title: &str) -> String {
    let Some(start) = svg.find("<svg") else { return String::new() };
    let Some(length) = svg[start..].find('>') else { return String::new() };
    let (open, rest) = svg[start..].split_at(length);
    let attributes = open.split_inclusive('"').collect::<String>();
    let title = title.replace('&', "&amp;").replace('"', "&quot;").replace('<', "&lt;");
    format!("{attributes} role=\"img\" aria-label=\"{title}\"{rest}")
}

#[cfg(test)]
mod tests {
    use super::super::figure::{Axis, Series};
    use super::*;

    /// Maximum bytes of a figure.
    const FIGURE_BYTES_MAX: usize = 60 << 10;

    fn figure(count: usize, points: usize) -> Figure {
        let point = |x: usize| Point {
            x: (1 << x) as f64,
            y: 100.0 * (x + 1) as f64,
            interval: Some((90.0 * (x + 1) as f64, 105.0 * (x + 1) as f64)),
            rounds: 6,
        };
        let series = |number: usize| Series {
            name: format!("server {number} <&>"),
            points: (0..points).map(point).collect(),
        };
        let x = Axis { label: "threads".to_owned(), is_log: true, names: Vec::new() };
        let y = Axis { label: "operations/s".to_owned(), ..Axis::default() };
        let series = (0..count).map(series).collect();
        Figure { title: "create \"4.1\"".to_owned(), x, y, series, marks: true }
    }

    #[test]
    fn figures_are_small() {
        let svg = draw(&figure(8, 10));
        assert!(svg.len() < FIGURE_BYTES_MAX, "{} bytes", svg.len());
    }

    #[test]
    fn colors_follow_the_page() {
        let svg = draw(&figure(2, 3));
        for variable in [
            "var(--ink, #1f2328)",
            "var(--grid, #d8dee4)",
            "var(--series-0, #0072b2)",
            "var(--series-1, #d55e00)",
        ] {
            assert!(svg.contains(variable), "{variable}");
        }
        assert!(!svg.contains("fill=\"black\"") && !svg.contains("fill=\"white\""));
    }

    #[test]
    fn points_show_their_values_and_names_are_escaped() {
        let svg = draw(&figure(1, 3));
        assert_eq!(svg.matches("<title>").count(), 3);
        assert!(svg.contains("operations/s: 200 (180 … 210)"), "{svg}");
        assert!(svg.contains("server 0 &lt;&amp;&gt;") && !svg.contains("<&>"));
        assert!(svg.contains("aria-label=\"create &quot;4.1&quot;\""));
    }
}
