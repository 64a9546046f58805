//! The text of `bytepath size`: what a goal requires, and what this host lacks.

use crate::document::{Column, Document, Table, Tone};
use crate::wording::figures::{amount, bytes, digits, number};
use bytepath_stats::{DONTNEED, Goal, POLL_WEIGHT, Shortage, Sizing, Traffic};

/// Shows a plan: the goal, its requirements, the memory traffic of each method, and what this host
/// lacks.
pub fn sizing(
    goal: &Goal,
    sizing: &Sizing,
    traffic: &[Traffic],
    shortages: &[Shortage],
) -> Document {
    let mut page = Document::default();
    page.line(&title(goal), Tone::Strong);
    sizes(&mut page, goal, sizing);
    page.heading("Memory traffic of one end, if the caches keep nothing");
    page.add(Table::of(
        traffic,
        [
            (Column::words("", 0, None), |way| way.way.to_owned()),
            (Column::number("", "times", 0), |way| number(way.crossings, 0)),
            (Column::number("", "GB/s", 0), |way| {
                let rate = way.bytes / 1e9;
                number(rate, digits(rate, 2).max(1))
            }),
        ],
    ));
    page.text("  ", "An application that reads what it received adds 1.");
    page.heading("This host");
    if shortages.is_empty() {
        page.text("  ", "None of the limits visible here is too low.");
    }
    for short in shortages {
        let Shortage { setting, is, needs, command } = short;
        page.text("  - ", format!("{setting} is {is} and must be {needs}"));
        page.text("    ", command);
    }
    page
}

/// Returns the goal, on one line.
fn title(goal: &Goal) -> String {
    let queues = if goal.queues == 1 { String::new() } else { format!(", {} queues", goal.queues) };
    format!(
        "{} over {} ms with an MTU of {}{queues}, {} held by the application",
        bits(goal.rate),
        number(goal.rtt * 1e3, 3).trim_end_matches('0').trim_end_matches('.'),
        goal.mtu,
        bytes(goal.hold as f64)
    )
}

/// Bits per second in the unit that fits: `200 Gbit/s`, `2.5 Gbit/s`, `40 Mbit/s`.
fn bits(rate: f64) -> String {
    let (scale, unit) = match rate {
        1e9.. => (1e9, "Gbit/s"),
        1e6.. => (1e6, "Mbit/s"),
        _ => (1e3, "kbit/s"),
    };
    format!("{} {unit}", number(rate / scale, 1).trim_end_matches(".0"))
}

fn sizes(page: &mut Document, goal: &Goal, s: &Sizing) {
    page.heading("Requirements");
    let mut segment = format!("{} bytes of payload", s.segment);
    if !s.segment.is_multiple_of(goal.buffer) {
        let whole = bytes(f64::from(goal.buffer));
        segment += &format!("; an MTU of {} would fill buffers of {whole}", s.page_mtu);
    }
    let mut ring =
        format!("{} entries, {} of buffers, per queue", s.ring, bytes(s.ring_bytes as f64));
    if s.ring < s.least_ring {
        ring += &format!("; too small: what is in flight requires {}", s.least_ring);
    }
    let (area, lasts) = (bytes(s.area as f64), number(s.lasts * 1e3, 2));
    let socket_buffer = bytes(s.socket_buffer as f64);
    for (name, text) in [
        ("segment", segment),
        ("BDP", format!("{} (bandwidth-delay product)", bytes(s.delay_product))),
        ("in flight", format!("{} (twice the BDP)", bytes(s.in_flight))),
        ("packets", format!("{} per second", amount(s.packets))),
        ("polls", format!("{} per second at {POLL_WEIGHT} packets each", amount(s.polls))),
        ("receive ring", ring),
        (
            "area",
            format!(
                "{area} per queue (ring and held data): udmabuf, zcrx area or GPU buffer; {} huge \
                 pages in all",
                s.huge_pages
            ),
        ),
        (
            "lasts",
            format!(
                "{lasts} ms if the application returns nothing; then packets are dropped or copied"
            ),
        ),
        ("held", format!("{} buffers per queue", s.held)),
        ("returns", format!("{} calls per second at {DONTNEED} buffers each", amount(s.recycles))),
        ("socket buffer", format!("{socket_buffer}: maximum in tcp_rmem and tcp_wmem")),
    ] {
        page.text(&format!("  {name:<14}"), text);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_have_the_unit_that_fits() {
        let said = [200e9, 2.5e9, 40e6, 9600.0].map(bits);
        assert_eq!(said, ["200 Gbit/s", "2.5 Gbit/s", "40 Mbit/s", "9.6 kbit/s"]);
    }
}
