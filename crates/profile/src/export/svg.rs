//! A flame graph drawn by inferno: an SVG that can be zoomed and searched in a browser.

use super::Exporter;
use super::folded::fold;
use crate::{Profile, Weight};
use inferno::flamegraph::{self, Options, Palette, color::MultiPalette};
use std::io::{self, Write};

/// See the module documentation.
pub(super) static FORMAT: Exporter = Exporter {
    name: "svg",
    summary: "flame graph for a browser; orange is kernel, aqua inlined",
    extension: "svg",
    write,
    binary: false,
};

fn write(profile: &Profile, out: &mut dyn Write) -> io::Result<()> {
    let stacks = fold(profile);
    // The graph uses whole numbers; its labels are in the unit of the profile.
    let largest = stacks.iter().map(|(_, weight)| weight.abs()).fold(0.0, f64::max);
    let whole = stacks.iter().all(|(_, weight)| weight.fract() == 0.0);
    let scale = if whole && largest >= 1.0 || largest == 0.0 { 1.0 } else { FINE / largest };
    let lines: Vec<String> = stacks
        .iter()
        .map(|(stack, weight)| (stack, (weight.max(0.0) * scale).round().min(MOST)))
        .filter(|(_, weight)| *weight >= 1.0)
        .map(|(stack, weight)| format!("{} {weight}", printable(stack)))
        .collect();
    if lines.is_empty() {
        return out.write_all(EMPTY.as_bytes());
    }
    let header = &profile.header;
    let mut options = Options::default();
    options.title = printable(&header.title);
    options.subtitle = (!header.event.is_empty()).then(|| printable(&header.event));
    options.count_name = match header.weight {
        Weight::Nanoseconds | Weight::Delay => "ns",
        Weight::Percent => "%",
        counted => counted.into(),
    }
    .into();
    options.factor = 1.0 / scale;
    // The palette that supports the marks `_[k]` and `_[i]`; a function has the same shade in every
    // graph.
    options.colors = Palette::Multi(MultiPalette::Java);
    options.deterministic = true;
    flamegraph::from_lines(&mut options, lines.iter().map(String::as_str), out)
}

/// Fractional weights are drawn as this many parts.
const FINE: f64 = 1e9;

/// Largest whole number that is exact.
const MOST: f64 = 9e15;

const EMPTY: &str = "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"400\" height=\"40\">\
<text x=\"10\" y=\"25\">The profile holds no samples.</text></svg>\n";

/// Removes characters that XML 1.0 cannot contain, not even escaped.
fn printable(text: &str) -> String {
    let is_invalid = |c: char| c.is_control() || matches!(c, '\u{fffe}' | '\u{ffff}');
    text.replace(is_invalid, "\u{fffd}")
}
