//! The buffers of a pool over time as a drawing that stands alone: how many are free,
//! for the pool that was asked for and its neighbours, and where copies begin.

use super::figures::{number, percent};
use crate::stats::{PoolCourse, PoolModel};
use plotters::coord::types::RangedCoordf64;
use plotters::prelude::*;
use std::io;

/// Size of the drawing in pixels.
const SIZE: (u32, u32) = (760, 360);

/// Above the largest pool there is room for the legend.
const HEADROOM: f64 = 1.35;

/// Colours that are told apart by those who see no red or green (Okabe and Ito), the
/// middle one, what was asked for, the strongest.
const COLOURS: [RGBColor; 3] =
    [RGBColor(0xD5, 0x5E, 0x00), RGBColor(0x00, 0x00, 0x00), RGBColor(0x00, 0x72, 0xB2)];

const GREY: RGBColor = RGBColor(0x77, 0x77, 0x77);

/// A pool, what became of it, and, where it was run for real, points of seconds and
/// free buffers.
pub struct Drawing {
    /// The pool.
    pub model: PoolModel,
    /// What the model says.
    pub course: PoolCourse,
    /// What was measured.
    pub measured: Vec<(f64, f64)>,
}

/// Draws pools with what became of them, as SVG. Where copies begin a mark stands on
/// the axis; what was measured is drawn in dots. Fails only where plotters does.
pub fn pool_svg(title: &str, pools: &[Drawing]) -> io::Result<String> {
    let mut svg = String::new();
    let drawn = draw(SVGBackend::with_string(&mut svg, SIZE), title, pools);
    drawn.map_err(|e| io::Error::other(format!("plotters: {e}")))?;
    Ok(svg)
}

type Chart<'a, B> = ChartContext<'a, B, Cartesian2d<RangedCoordf64, RangedCoordf64>>;
type Drawn<B> = Result<(), DrawingAreaErrorKind<<B as DrawingBackend>::ErrorType>>;

fn draw<B: DrawingBackend>(backend: B, title: &str, pools: &[Drawing]) -> Drawn<B> {
    let root = backend.into_drawing_area();
    root.fill(&WHITE)?;
    let end = |pool: &Drawing| pool.course.step * pool.course.course.len() as f64;
    let longest = pools.iter().map(end).fold(0.0, f64::max).max(f64::MIN_POSITIVE);
    let most = pools.iter().map(|pool| pool.model.buffers).max().unwrap_or(1).max(1);
    let mut chart = ChartBuilder::on(&root)
        .caption(title, ("sans-serif", 15))
        .margin(12)
        .margin_right(24)
        .x_label_area_size(36)
        .y_label_area_size(64)
        .build_cartesian_2d(0.0..longest * 1e3, 0.0..most as f64 * HEADROOM)?;
    chart
        .configure_mesh()
        .x_desc("milliseconds")
        .y_desc("buffers free or posted")
        .light_line_style(TRANSPARENT)
        .bold_line_style(GREY.mix(0.25))
        .axis_style(GREY)
        .label_style(("sans-serif", 12))
        .x_label_formatter(&|ms| short(*ms))
        .y_label_formatter(&|buffers| short(*buffers))
        .draw()?;
    for (at, pool) in pools.iter().enumerate() {
        let colour = COLOURS[at % COLOURS.len()];
        curve(&mut chart, pool, colour)?;
        let Drawing { model, course, .. } = pool;
        let place = (SIZE.0 as i32 - 330, 40 + at as i32 * 18);
        root.draw(&Rectangle::new(
            [(place.0, place.1 + 6), (place.0 + 16, place.1 + 9)],
            colour.filled(),
        ))?;
        let style = ("sans-serif", 12).into_font().color(&colour);
        root.draw(&Text::new(outcome(model, course), (place.0 + 22, place.1), style))?;
    }
    if pools.iter().any(|pool| !pool.measured.is_empty()) {
        let place = (SIZE.0 as i32 - 308, 40 + pools.len() as i32 * 18);
        let style = ("sans-serif", 12).into_font().color(&GREY);
        root.draw(&Text::new("lines: the model; dots: measured", place, style))?;
    }
    root.present()
}

fn curve<B: DrawingBackend>(
    chart: &mut Chart<'_, B>,
    pool: &Drawing,
    colour: RGBColor,
) -> Drawn<B> {
    let Drawing { model, course, measured } = pool;
    let start = [(0.0, model.buffers as f64)];
    let points = course.course.iter().enumerate().skip(1);
    let points = points.map(|(at, left)| (at as f64 * course.step * 1e3, *left as f64));
    chart.draw_series(LineSeries::new(start.into_iter().chain(points), colour.stroke_width(2)))?;
    let dots = measured.iter().map(|(seconds, left)| (seconds * 1e3, *left));
    chart.draw_series(dots.map(|at| Circle::new(at, 2, colour.filled())))?;
    if let Some(first) = course.first_copy {
        let at = (first * 1e3, 0.0);
        chart.draw_series([TriangleMarker::new(at, 7, colour.filled())])?;
    }
    Ok(())
}

/// What became of a pool, in words.
pub fn outcome(model: &PoolModel, course: &PoolCourse) -> String {
    match course.first_copy {
        None => format!("{} buffers: never dry, {} at least", model.buffers, course.least),
        Some(at) => format!(
            "{} buffers: dry after {} ms, {} copied",
            model.buffers,
            number(at * 1e3, 2),
            percent(course.copied)
        ),
    }
}

/// A tick's number: as many digits as it takes.
fn short(value: f64) -> String {
    let text = number(value, if value.abs() < 10.0 { 2 } else { 0 });
    if text.contains('.') {
        text.trim_end_matches('0').trim_end_matches('.').to_owned()
    } else {
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_drawing_tells_every_pool_and_where_it_runs_dry() {
        let pool = PoolModel {
            arrivals: 6.1e6,
            buffers: 16384,
            ring: 4096,
            read: 256,
            hold: 2e-3,
            batch: 1024,
        };
        let [half, same, twice] = pool.neighbours(0.01, 100);
        let drawing = |(model, course): (PoolModel, PoolCourse), measured| Drawing {
            model,
            course,
            measured,
        };
        let svg = |measured: Vec<(f64, f64)>| {
            let pools = [
                drawing(half.clone(), measured),
                drawing(same.clone(), Vec::new()),
                drawing(twice.clone(), Vec::new()),
            ];
            pool_svg("a <b> & \"c\"", &pools).unwrap()
        };
        let text = svg(Vec::new());
        assert!(text.starts_with("<svg ") && text.trim_end().ends_with("</svg>"));
        assert!(text.contains("a &lt;b&gt; &amp; "), "the title is escaped");
        assert!(text.contains("8192 buffers: dry after 1.34 ms, "), "{text}");
        assert!(text.contains("16384 buffers: never dry, ") && text.contains("32768 buffers: "));
        assert_eq!(text.matches("<polygon").count(), 1, "one pool runs dry");
        assert_eq!(text.matches("<circle").count(), 0);
        let dots = svg(vec![(0.001, 8000.0), (0.002, 10.0)]);
        assert_eq!(dots.matches("<circle").count(), 2);
        assert!(dots.contains("dots: measured"));
    }

    #[test]
    fn nothing_to_draw_is_an_empty_frame() {
        let text = pool_svg("", &[]).unwrap();
        assert!(text.contains("milliseconds"));
    }
}
