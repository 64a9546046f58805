//! The drawings of the page, by plotters: ticks, grid, marks, and the SVG itself.
//!
//! The page has one palette for each scheme (light, dark, print), so a mark has a
//! class there and no colour. plotters knows colours only: each mark is drawn in one
//! that is its number, and [`themed`] puts the class of the mark in its place.

use super::scale::Scale;
use maud::{Markup, PreEscaped, html};
use plotters::prelude::*;
use std::fmt::Write;

/// plotters has whole units only, so that a drawing is made in tenths of a pixel.
const UNIT: f64 = 10.0;

/// A row is drawn as wide as this in pixels, and shown as wide as the page has room:
/// what is across in it are parts of the width, and all else keeps its size.
const WIDTH: f64 = 400.0;

/// Left free at both ends of a row of that width: half of a tick's text has room there.
const MARGIN: f64 = 18.0;

/// Height of the head of a plot in pixels.
const HEAD: f64 = 16.0;

/// A panel in pixels: its size, which it keeps but for the page's rounding to columns,
/// and what its ticks take of it.
const PANEL: (f64, f64) = (300.0, 112.0);
const LEFT: f64 = 28.0;
const BELOW: f64 = 20.0;

/// Length of a tick at an axis of a panel, in pixels; its text stands twice as far off.
const TICK: f64 = 2.0;

/// Ticks of a row, and of the two axes of a panel, at most.
const TICKS: usize = 6;
const PANEL_TICKS: (usize, usize) = (5, 4);

/// Something drawn, with its place in values of the horizontal axis and, in a
/// row, in pixels from above.
pub struct Mark {
    form: Form,
    class: &'static str,
    words: Option<String>,
}

enum Form {
    /// A disc: centre, radius in pixels.
    Dot((f64, f64), f64),
    /// A line between two points.
    Line((f64, f64), (f64, f64)),
    /// A line through many.
    Course(Vec<(f64, f64)>),
    /// A filled rectangle between two corners.
    Bar((f64, f64), (f64, f64)),
}

impl Mark {
    /// A dot of this radius in pixels.
    pub fn dot(class: &'static str, at: (f64, f64), radius: f64) -> Mark {
        Mark { form: Form::Dot(at, radius), class, words: None }
    }

    /// A line between two points.
    pub fn line(class: &'static str, from: (f64, f64), to: (f64, f64)) -> Mark {
        Mark { form: Form::Line(from, to), class, words: None }
    }

    /// A line through any number of points, for a panel.
    pub fn course(class: &'static str, points: Vec<(f64, f64)>) -> Mark {
        Mark { form: Form::Course(points), class, words: None }
    }

    /// A bar between two opposite corners.
    pub fn bar(class: &'static str, from: (f64, f64), to: (f64, f64)) -> Mark {
        Mark { form: Form::Bar(from, to), class, words: None }
    }

    /// With words for those who point at it.
    pub fn says(self, words: String) -> Mark {
        Mark { words: Some(words), ..self }
    }
}

/// The head of a plot: the ticks that its rows share.
pub fn head(scale: &Scale) -> Markup {
    let frame = Frame {
        size: (WIDTH, HEAD),
        sides: MARGIN,
        labels: vec![(LabelAreaPosition::Top, HEAD - 1.0)],
        ticks: (TICKS, 0),
        grid: false,
        axes: false,
    };
    drawn(&frame, scale, &Scale::between(1.0, 0.0), Vec::new())
}

/// A row of a plot, so many pixels tall.
pub fn row(scale: &Scale, height: f64, marks: Vec<Mark>) -> Markup {
    let frame = Frame {
        size: (WIDTH, height),
        sides: MARGIN,
        labels: Vec::new(),
        ticks: (TICKS, 0),
        grid: true,
        axes: false,
    };
    drawn(&frame, scale, &Scale::between(height, 0.0), marks)
}

/// A small plot with both of its axes.
pub fn panel(across: &Scale, up: &Scale, marks: Vec<Mark>) -> Markup {
    let frame = Frame {
        size: PANEL,
        sides: 0.0,
        labels: vec![(LabelAreaPosition::Left, LEFT), (LabelAreaPosition::Bottom, BELOW)],
        ticks: PANEL_TICKS,
        grid: true,
        axes: true,
    };
    drawn(&frame, across, up, marks)
}

/// What surrounds the marks; lengths in pixels.
struct Frame {
    size: (f64, f64),
    /// Left free at the left and the right.
    sides: f64,
    /// Where ticks are written, and how much room they have there.
    labels: Vec<(LabelAreaPosition, f64)>,
    /// Ticks of the horizontal and the vertical axis, at most.
    ticks: (usize, usize),
    grid: bool,
    axes: bool,
}

fn drawn(frame: &Frame, across: &Scale, up: &Scale, marks: Vec<Mark>) -> Markup {
    let mut key = Key(Vec::new());
    let mut svg = String::new();
    let (width, height) = (units(frame.size.0), units(frame.size.1));
    let result = draw(
        SVGBackend::with_string(&mut svg, (width, height)),
        frame,
        (across, up),
        marks,
        &mut key,
    );
    match result {
        Ok(()) if frame.axes => html! {
            svg class="chart" viewBox={ "0 0 " (frame.size.0) " " (frame.size.1) } aria-hidden="true" {
                (themed(&svg, &key, None))
            }
        },
        Ok(()) => html! {
            svg class="chart" height=(frame.size.1) aria-hidden="true" {
                (themed(&svg, &key, Some(width)))
            }
        },
        Err(error) => {
            html! { p class="note" { "plotters could not draw this: " (error.to_string()) } }
        }
    }
}

type Drawn<B> = Result<(), DrawingAreaErrorKind<<B as DrawingBackend>::ErrorType>>;

fn draw<B: DrawingBackend>(
    backend: B,
    frame: &Frame,
    (across, up): (&Scale, &Scale),
    marks: Vec<Mark>,
    key: &mut Key,
) -> Drawn<B> {
    let root = backend.into_drawing_area();
    let mut builder = ChartBuilder::on(&root);
    builder.margin_left(units(frame.sides)).margin_right(units(frame.sides));
    if frame.axes {
        // Half of the text of the last tick of each axis.
        builder.margin_top(units(6.0)).margin_right(units(10.0));
    }
    for (side, size) in &frame.labels {
        builder.set_label_area_size(*side, units(*size));
    }
    let mut chart = builder.build_cartesian_2d(across.clone(), up.clone())?;
    let (axis, tick) = if frame.axes {
        (key.colour("axis", None).to_rgba(), units(TICK))
    } else {
        (TRANSPARENT, 0)
    };
    let mut mesh = chart.configure_mesh();
    if !frame.grid {
        mesh.disable_mesh();
    }
    mesh.x_labels(frame.ticks.0)
        .y_labels(frame.ticks.1)
        .max_light_lines(0)
        .set_all_tick_mark_size(tick)
        .axis_style(axis)
        .bold_line_style(key.colour("grid", None))
        .label_style(("sans-serif", 1).into_font().color(&key.colour("tick", None)))
        .x_label_formatter(&|value| across.label(*value))
        .y_label_formatter(&|value| up.label(*value))
        .draw()?;
    for Mark { form, class, words } in marks {
        let colour = key.colour(class, words);
        match form {
            Form::Dot(at, radius) => {
                chart.draw_series([Circle::new(at, units(radius), colour.filled())])?;
            }
            Form::Bar(from, to) => {
                chart.draw_series([Rectangle::new([from, to], colour.filled())])?;
            }
            Form::Line(from, to) => {
                chart.draw_series(LineSeries::new([from, to], colour))?;
            }
            Form::Course(points) => {
                chart.draw_series(LineSeries::new(points, colour))?;
            }
        }
    }
    root.present()
}

fn units(pixels: f64) -> u32 {
    (pixels * UNIT).round() as u32
}

/// Which class and which words a colour stands for.
struct Key(Vec<(&'static str, Option<String>)>);

impl Key {
    /// A colour of its own for this class and these words.
    fn colour(&mut self, class: &'static str, words: Option<String>) -> RGBColor {
        let [_, red, green, blue] = (self.0.len() as u32).to_be_bytes();
        self.0.push((class, words));
        RGBColor(red, green, blue)
    }

    fn of(&self, colour: &str) -> Option<&(&'static str, Option<String>)> {
        self.0.get(usize::from_str_radix(colour.strip_prefix('#')?, 16).ok()?)
    }
}

/// What the page's style decides, and a name that no browser needs in a page.
const STYLED: [&str; 7] =
    ["fill", "stroke", "stroke-width", "opacity", "font-family", "font-size", "xmlns"];

/// What is inside of plotters' drawing, with a class and words in place of each
/// colour, in pixels; or, where the units it is wide are given, in parts of the width
/// and pixels from above. It has one element, one text or one end of an element in a
/// line, and its texts and attributes are escaped.
fn themed(svg: &str, key: &Key, wide: Option<u32>) -> Markup {
    let mut page = String::with_capacity(svg.len());
    for line in svg.lines() {
        let Some((name, attributes)) = line.strip_prefix('<').and_then(|l| l.split_once(' '))
        else {
            if line != "</svg>" {
                page.push_str(line);
            }
            continue;
        };
        if name == "svg" {
            continue;
        }
        let attributes: Vec<(&str, &str)> = attributes
            .trim_end_matches(['>', '/', '"'])
            .split("\" ")
            .filter_map(|attribute| attribute.split_once("=\""))
            .collect();
        let mark = attributes.iter().find_map(|(_, value)| key.of(value));
        let between = attributes.iter().find_map(|(_, value)| ends(value));
        let (name, attributes) = match &between {
            // Of all lines, only this element takes parts of the width.
            Some(ends) if wide.is_some() => ("line", ends.to_vec()),
            _ => (name, attributes),
        };
        page.push('<');
        page.push_str(name);
        if let Some((class, _)) = mark {
            let _ = write!(page, " class=\"{class}\"");
        }
        for (name, value) in attributes.iter().filter(|(name, _)| !STYLED.contains(name)) {
            let _ = write!(page, " {name}=\"{}\"", place(name, value, wide));
        }
        page.push('>');
        if let Some((_, Some(words))) = mark {
            page.push_str(&html! { title { (words) } }.into_string());
        }
        if line.ends_with("/>") {
            let _ = write!(page, "</{name}>");
        }
    }
    PreEscaped(page)
}

/// Both ends of a polyline of two points, as attributes of a line.
fn ends(points: &str) -> Option<[(&'static str, &str); 4]> {
    let (from, to) = points.trim_end().split_once(' ').filter(|(_, to)| !to.contains(' '))?;
    let ((x1, y1), (x2, y2)) = (from.split_once(',')?, to.split_once(',')?);
    Some([("x1", x1), ("y1", y1), ("x2", x2), ("y2", y2)])
}

/// An attribute in pixels, or in parts of so many units where it goes across.
fn place(name: &str, value: &str, wide: Option<u32>) -> String {
    let pixels = |value: &str| match value.parse::<f64>() {
        Ok(units) => (units / UNIT).to_string(),
        Err(_) => value.to_owned(),
    };
    match (name, wide, value.parse::<f64>()) {
        ("x" | "x1" | "x2" | "cx" | "width", Some(wide), Ok(units)) => {
            format!("{}%", units * 100.0 / f64::from(wide))
        }
        ("points", ..) => {
            let points = value.split_whitespace().filter_map(|point| point.split_once(','));
            let points: Vec<String> =
                points.map(|(x, y)| format!("{},{}", pixels(x), pixels(y))).collect();
            points.join(" ")
        }
        _ => pixels(value),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mark_has_its_class_its_words_and_no_colour() {
        let marks = vec![
            Mark::bar("user", (0.0, 2.0), (5.0, 8.0)),
            Mark::dot("dot", (5.0, 6.0), 3.4).says("5 & <b>\"".into()),
            Mark::line("mean", (10.0, 1.0), (10.0, 9.0)),
        ];
        let drawn = row(&Scale::between(0.0, 10.0), 10.0, marks).into_string();
        assert!(drawn.starts_with("<svg class=\"chart\" height=\"10\""), "{drawn}");
        // From the left margin of 18 of 400 pixels to the middle.
        let bar = r#"<rect class="user" x="4.5%" y="2" width="45.475%" height="6">"#;
        assert!(drawn.contains(bar), "{bar} in {drawn}");
        assert!(drawn.contains(r#"cx="49.975%" cy="6" r="3.4">"#), "{drawn}");
        assert!(drawn.contains("<title>5 &amp; &lt;b&gt;&quot;</title></circle>"), "{drawn}");
        let mean = r#"<line class="mean" x1="95.475%" y1="1" x2="95.475%" y2="9">"#;
        assert!(drawn.contains(mean), "{drawn}");
        assert!(drawn.contains("<line class=\"grid\""), "{drawn}");
        for word in ["#", "opacity", "font", "fill", "stroke", "xmlns"] {
            assert!(!drawn.contains(word), "{word} in {drawn}");
        }
    }

    #[test]
    fn a_panel_is_drawn_in_pixels_and_scales_as_one() {
        let course = Mark::course("course", vec![(0.0, 0.0), (5.0, 1.0), (10.0, 0.0)]);
        let drawn = panel(&Scale::between(0.0, 10.0), &Scale::shares(), vec![course]);
        let drawn = drawn.into_string();
        assert!(drawn.starts_with("<svg class=\"chart\" viewBox=\"0 0 300 112\""), "{drawn}");
        let points = r#"<polyline class="course" points="28,91.9 158.9,6 289.9,91.9">"#;
        assert!(drawn.contains(points), "{drawn}");
        assert!(!drawn.replace("%<", "").contains('%'), "{drawn}");
    }

    #[test]
    fn ticks_are_written_once_at_the_head_and_at_both_axes_of_a_panel() {
        let scale = Scale::between(0.0, 10.0);
        let texts = |markup: Markup| -> Vec<String> {
            let text = markup.into_string();
            let texts = text.split("</text>").filter_map(|part| part.split_once("<text "));
            texts.filter_map(|(_, t)| Some(t.rsplit_once('>')?.1.to_owned())).collect()
        };
        assert_eq!(texts(head(&scale)), ["0", "2", "4", "6", "8", "10"]);
        assert!(texts(row(&scale, 20.0, Vec::new())).is_empty());
        let both = texts(panel(&scale, &Scale::shares(), Vec::new()));
        assert!(both.contains(&"10".to_owned()) && both.contains(&"100%".to_owned()), "{both:?}");
    }

    #[test]
    fn any_number_of_marks_is_told_apart() {
        let mut key = Key(Vec::new());
        for n in 0..70_000 {
            let RGBColor(red, green, blue) = key.colour("dot", Some(n.to_string()));
            let colour = format!("#{red:02X}{green:02X}{blue:02X}");
            assert_eq!(key.of(&colour).and_then(|m| m.1.as_deref()), Some(&*n.to_string()));
        }
        assert!(key.of("none").is_none() && key.of("#").is_none());
    }
}
