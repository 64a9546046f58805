//! `text`: the report for a terminal or a mail. Plain ASCII; the answer first,
//! then the tables, then what they rest on.

mod details;
mod difference;
mod heading;
mod prose;
mod studies;
mod tables;

pub(crate) use difference::put_difference;
pub use difference::{difference, side_by_side};
pub use studies::{between, history, thresholds};
pub(crate) use studies::{put_between, put_history, put_thresholds};

use super::page::Page;
use super::{Report, Style, Subject, counted, factors, frames, waterfall};
use std::io::{self, Write};

/// Columns of the bars of a waterfall or chart.
const BARS: usize = 32;

/// See the module's text.
pub(crate) static FORMAT: Report = Report {
    name: "text",
    summary: "tables and plain text, for a terminal or a mail",
    render,
    extension: "txt",
    binary: false,
    short_names: true,
};

fn render(subject: &Subject, style: &Style, out: &mut dyn Write) -> io::Result<()> {
    let Subject { study, analysis, explanation, .. } = *subject;
    let mut page = Page::new(style.width, style.colour);
    prose::break_even(&mut page, analysis);
    prose::answer(&mut page, subject);
    heading::print(&mut page, subject);
    tables::result(&mut page, analysis);
    tables::latency(&mut page, analysis);
    tables::hops(&mut page, analysis);
    let most = if style.details { usize::MAX } else { frames::SHOWN };
    frames::print(&mut page, frames::all(analysis, explanation).iter().take(most));
    tables::cost(&mut page, analysis);
    if let Some(grid) = counted::grid(study, analysis) {
        grid.print(&mut page);
    }
    tables::energy(&mut page, analysis);
    tables::worth(&mut page, analysis);
    factors::print(&mut page, study, analysis, BARS);
    prose::placement(&mut page, analysis);
    prose::verdicts(&mut page, analysis);
    prose::profiles(&mut page, analysis);
    if let Some(explanation) = explanation {
        waterfall::print(&mut page, explanation, BARS, style.details);
        // Of many pairs the waterfalls are enough, unless details are requested.
        if explanation.ranked.len() == 1 || style.details {
            explanation.ranked.iter().for_each(|each| difference::ranked(&mut page, each));
        }
    }
    prose::zero_copy(&mut page, analysis);
    prose::not_measured(&mut page, analysis);
    prose::warnings(&mut page, analysis);
    if style.details {
        details::print(&mut page, study, analysis);
    }
    page.finish(out)
}
