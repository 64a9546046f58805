//! Drawings in a page: marks with classes of the page's style, over a grid at the ticks of their
//! scale. The page has one palette for each scheme (light, dark, print), so a mark has a class but
//! no colour.

use crate::document::{Form, Mark, Scale};
use bytepath_record::joined;
use maud::{Markup, html};

/// A row is as wide as the page allows: its horizontal positions are in percent of the width,
/// everything else is in pixels. This percentage is left free at both ends, so that half of a
/// tick's label fits there.
const MARGIN: f64 = 4.5;

/// Height of the head of a plot in pixels.
const HEAD: f64 = 16.0;

/// The size of a plot with two axes, in pixels.
pub(crate) struct Panel {
    size: (f64, f64),
    /// Left and right edge, then top and bottom edge, of the area within the axes.
    across: (f64, f64),
    up: (f64, f64),
}

pub(crate) const SMALL: Panel =
    Panel { size: (300.0, 112.0), across: (28.0, 290.0), up: (6.0, 92.0) };

/// A plot that is a whole figure, with room for the titles of its axes.
pub(crate) const LARGE: Panel =
    Panel { size: (640.0, 304.0), across: (52.0, 620.0), up: (24.0, 276.0) };

/// Length of a tick at an axis of a panel, in pixels; its label is twice as far away.
const TICK: f64 = 2.0;

/// Most ticks of a row, and of the two axes of a panel.
const TICKS: usize = 6;
const PANEL_TICKS: (usize, usize) = (5, 4);

/// Draws a mark; `place` maps its points, and `unit` is that of horizontal positions.
fn drawn(mark: &Mark, unit: &str, place: impl Fn((f64, f64)) -> (f64, f64)) -> Markup {
    let (class, tip, cell) = (mark.class, mark.tip.as_deref(), mark.cell.as_deref());
    match &mark.form {
        Form::Dot(at, radius) => {
            let (x, y) = place(*at);
            html! {
                circle class=(class) cx={ (short(x)) (unit) } cy=(short(y)) r=(radius)
                    data-tip=[tip] data-cell=[cell] {}
            }
        }
        Form::Line(from, to) => {
            let (from, to) = (place(*from), place(*to));
            html! {
                line class=(class) x1={ (short(from.0)) (unit) } y1=(short(from.1))
                    x2={ (short(to.0)) (unit) } y2=(short(to.1)) data-tip=[tip] {}
            }
        }
        Form::Course(points) => {
            let points = points.iter().map(|at| place(*at));
            let points = points.map(|(x, y)| format!("{},{}", shorter(x), shorter(y)));
            html! { polyline class=(class) points=(joined(points, " ")) data-tip=[tip] {} }
        }
        Form::Name(at, off, text) => {
            let (x, y) = place(*at);
            let anchor = if off.0 < 0.0 { "end" } else { "start" };
            html! {
                text class=(class) x=(short(x + off.0)) y=(short(y + off.1)) dy="0.5ex"
                    text-anchor=(anchor) data-cell=[cell] { (text) }
            }
        }
        Form::Bar(from, to) => {
            let (from, to) = (place(*from), place(*to));
            let (x, width) = (from.0.min(to.0), (to.0 - from.0).abs());
            let (y, height) = (from.1.min(to.1), (to.1 - from.1).abs());
            html! {
                rect class=(class) x={ (short(x)) (unit) } y=(short(y))
                    width={ (short(width)) (unit) } height=(short(height)) data-tip=[tip] {}
            }
        }
    }
}

/// Renders a legend: the classes and names of the colours.
pub(crate) fn key<'a>(colours: impl IntoIterator<Item = (&'a str, impl maud::Render)>) -> Markup {
    html! {
        ul class="key" {
            @for (class, name) in colours {
                li {
                    svg viewBox="0 0 14 10" aria-hidden="true" { rect class=(class) width="14" height="10" {} }
                    (name)
                }
            }
        }
    }
}

/// Renders the head of a plot, with the ticks that its rows share.
pub(crate) fn head(scale: &Scale) -> Markup {
    html! {
        svg class="chart" height=(HEAD) aria-hidden="true" {
            @for tick in scale.ticks(TICKS) {
                text class="tick" x={ (short(percent(scale, tick))) "%" } y=(HEAD - 4.0)
                    text-anchor="middle" { (scale.label(tick)) }
            }
        }
    }
}

/// Renders a row of a plot; `height` is in pixels.
pub(crate) fn row(scale: &Scale, height: f64, marks: &[Mark]) -> Markup {
    let grid = |tick| Mark::line("grid", (tick, 0.0), (tick, height));
    let grid: Vec<Mark> = scale.ticks(TICKS).into_iter().map(grid).collect();
    html! {
        svg class="chart" height=(height) aria-hidden="true" {
            @for mark in grid.iter().chain(marks) {
                (drawn(mark, "%", |(value, y)| (percent(scale, value), y)))
            }
        }
    }
}

fn percent(scale: &Scale, value: f64) -> f64 {
    MARGIN + scale.part(value) * (100.0 - 2.0 * MARGIN)
}

impl Panel {
    /// Maps a pair of values to pixels.
    pub(crate) fn place(&self, (across, up): (&Scale, &Scale), at: (f64, f64)) -> (f64, f64) {
        let between = |(from, to): (f64, f64), part: f64| from + part * (to - from);
        (between(self.across, across.part(at.0)), between(self.up, 1.0 - up.part(at.1)))
    }

    /// Returns whether a rectangle (left, top, right, bottom) lies within the plot.
    pub(crate) fn holds(&self, [left, top, right, bottom]: [f64; 4]) -> bool {
        left >= 0.0 && top >= 0.0 && right <= self.size.0 && bottom <= self.size.1
    }

    /// Draws a plot with both of its axes and their titles: across, up.
    pub(crate) fn drawn(
        &self,
        across: &Scale,
        up: &Scale,
        titles: Option<&[String; 2]>,
        marks: &[Mark],
    ) -> Markup {
        let ((left, right), (top, bottom)) = (self.across, self.up);
        let place = |at| self.place((across, up), at);
        let line = |class, from, to| drawn(&Mark::line(class, from, to), "", |at| at);
        html! {
            svg class="chart" viewBox={ "0 0 " (self.size.0) " " (self.size.1) } aria-hidden="true" {
                @for (tick, x) in across.ticks(PANEL_TICKS.0).into_iter().map(|t| (t, place((t, 0.0)).0)) {
                    (line("grid", (x, top), (x, bottom)))
                    (line("axis", (x, bottom), (x, bottom + TICK)))
                    text class="tick" x=(short(x)) y=(bottom + 2.0 * TICK) dy="0.76em"
                        text-anchor="middle" { (across.label(tick)) }
                }
                @for (tick, y) in up.ticks(PANEL_TICKS.1).into_iter().map(|t| (t, place((0.0, t)).1)) {
                    (line("grid", (left, y), (right, y)))
                    (line("axis", (left - TICK, y), (left, y)))
                    text class="tick" x=(left - 2.0 * TICK) y=(short(y)) dy="0.5ex"
                        text-anchor="end" { (up.label(tick)) }
                }
                @if let Some([across, up]) = titles {
                    text class="title" x=(right) y=(bottom - 2.0 * TICK) text-anchor="end" {
                        (across) " \u{2192}"
                    }
                    text class="title" x=(left - 10.0 * TICK) y=(top - 4.0 * TICK) { "\u{2191} " (up) }
                }
                (line("axis", (left, top), (left, bottom)))
                (line("axis", (left, bottom), (right, bottom)))
                @for mark in marks { (drawn(mark, "", place)) }
            }
        }
    }
}

/// Rounds a length to a tenth, since lines have many points.
fn shorter(length: f64) -> f64 {
    (length * 10.0).round() / 10.0
}

/// Rounds a length to a hundredth, which no screen resolves.
fn short(length: f64) -> f64 {
    (length * 100.0).round() / 100.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_have_classes_and_tips_but_no_colour() {
        let marks = vec![
            Mark::bar("user", (0.0, 2.0), (5.0, 8.0)),
            Mark::dot("dot", (5.0, 6.0), 3.4).tip("5 & <b>\"".into()),
            Mark::line("mean", (10.0, 1.0), (10.0, 9.0)),
        ];
        let drawn = row(&Scale::over([0.0, 10.0]), 10.0, &marks).into_string();
        assert!(drawn.starts_with("<svg class=\"chart\" height=\"10\""), "{drawn}");
        let bar = r#"<rect class="user" x="4.5%" y="2" width="45.5%" height="6"></rect>"#;
        assert!(drawn.contains(bar), "{bar} in {drawn}");
        assert!(drawn.contains(r#"cx="50%" cy="6" r="3.4" data-tip="#), "{drawn}");
        assert!(drawn.contains("\"5 &amp; &lt;b&gt;&quot;\"></circle>"), "{drawn}");
        let mean = r#"<line class="mean" x1="95.5%" y1="1" x2="95.5%" y2="9">"#;
        assert!(drawn.contains(mean), "{drawn}");
        let grid = r#"<line class="grid" x1="4.5%" y1="0" x2="4.5%" y2="10">"#;
        assert!(drawn.contains(grid), "{drawn}");
        for word in ["#", "opacity", "font", "fill", "stroke", "xmlns"] {
            assert!(!drawn.contains(word), "{word} in {drawn}");
        }
    }

    #[test]
    fn a_panel_is_drawn_in_pixels_and_scales_as_one() {
        let course = Mark::course("course", vec![(0.0, 0.0), (5.0, 1.0), (10.0, 0.0)]);
        let drawn =
            SMALL.drawn(&Scale::over([0.0, 10.0]), &Scale::shares(), None, &[course]).into_string();
        assert!(drawn.starts_with("<svg class=\"chart\" viewBox=\"0 0 300 112\""), "{drawn}");
        let points = r#"<polyline class="course" points="28,92 159,6 290,92">"#;
        assert!(drawn.contains(points), "{drawn}");
        assert!(!drawn.replace("%<", "").contains('%'), "{drawn}");
    }

    #[test]
    fn ticks_are_written_once_at_the_head_and_at_both_axes_of_a_panel() {
        let scale = Scale::over([0.0, 10.0]);
        let texts = |markup: Markup| -> Vec<String> {
            let text = markup.into_string();
            let texts = text.split("</text>").filter_map(|part| part.split_once("<text "));
            texts.filter_map(|(_, t)| Some(t.rsplit_once('>')?.1.to_owned())).collect()
        };
        assert_eq!(texts(head(&scale)), ["0", "2", "4", "6", "8", "10"]);
        assert!(texts(row(&scale, 20.0, &[])).is_empty());
        let both = texts(SMALL.drawn(&scale, &Scale::shares(), None, &[]));
        assert!(both.contains(&"10".to_owned()) && both.contains(&"100%".to_owned()), "{both:?}");
    }
}
