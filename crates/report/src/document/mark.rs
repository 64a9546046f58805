//! Drawing primitives, as data: a position and a class of the page's style, but no colour.

use bytepath_record::CellId;

/// Something drawn, with its position in values of the horizontal axis and, in a row, in pixels
/// from the top.
#[derive(Clone, Debug)]
pub(crate) struct Mark {
    pub form: Form,
    pub class: &'static str,
    /// Tooltip.
    pub tip: Option<String>,
    /// The cell that it belongs to, in a plot with several.
    pub cell: Option<String>,
}

#[derive(Clone, Debug)]
pub(crate) enum Form {
    /// A disc: centre, radius in pixels.
    Dot((f64, f64), f64),
    /// A line between two points.
    Line((f64, f64), (f64, f64)),
    /// A line through many points.
    Course(Vec<(f64, f64)>),
    /// A filled rectangle between two corners.
    Bar((f64, f64), (f64, f64)),
    /// A name next to a point: this many pixels to the right and below it. To the left of the
    /// point, the name ends there.
    Name((f64, f64), (f64, f64), String),
}

impl Mark {
    fn new(class: &'static str, form: Form) -> Mark {
        Mark { form, class, tip: None, cell: None }
    }

    pub(crate) fn dot(class: &'static str, at: (f64, f64), radius: f64) -> Mark {
        Mark::new(class, Form::Dot(at, radius))
    }

    pub(crate) fn line(class: &'static str, from: (f64, f64), to: (f64, f64)) -> Mark {
        Mark::new(class, Form::Line(from, to))
    }

    pub(crate) fn course(class: &'static str, points: Vec<(f64, f64)>) -> Mark {
        Mark::new(class, Form::Course(points))
    }

    pub(crate) fn bar(class: &'static str, from: (f64, f64), to: (f64, f64)) -> Mark {
        Mark::new(class, Form::Bar(from, to))
    }

    pub(crate) fn name(at: (f64, f64), offset: (f64, f64), text: String) -> Mark {
        Mark::new("name", Form::Name(at, offset, text))
    }

    pub(crate) fn tip(self, text: String) -> Mark {
        Mark { tip: Some(text), ..self }
    }

    /// Assigns it to a cell, so that it is hidden together with the cell by the filter.
    pub(crate) fn of(self, cell: &CellId) -> Mark {
        Mark { cell: Some(cell.to_string()), ..self }
    }
}
