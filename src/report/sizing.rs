//! The text of `bytepath plan`: what a goal takes, what this host lacks, and
//! whether the pool of buffers lasts.

use super::Style;
use super::figures::{amount, bytes, number, percent};
use super::page::{Page, Tone};
use super::table::{Column, Table};
use crate::stats::{
    CheckedPool, DONTNEED, Goal, POLL_WEIGHT, PoolCourse, PoolModel, Shortage, Sizing, Traffic,
};
use std::io::{self, Write};

/// Everything a plan says.
#[derive(Clone, Copy, Debug)]
pub struct SizingPlan<'a> {
    /// What was asked.
    pub goal: &'a Goal,
    /// What it takes.
    pub sizing: &'a Sizing,
    /// Memory traffic of each way.
    pub traffic: &'a [Traffic],
    /// What this host lacks.
    pub shortages: &'a [Shortage],
    /// The pool that was simulated.
    pub pool: &'a PoolModel,
    /// What became of it.
    pub course: &'a PoolCourse,
    /// The least pool that never runs dry; none if even four times as much does.
    pub least_buffers: Option<u64>,
    /// Pools of other sizes beside it, with what becomes of each.
    pub neighbours: &'a [(PoolModel, PoolCourse)],
    /// Pools that were run for real; empty if none was.
    pub checked: &'a [CheckedPool],
    /// By what time was stretched and counts were divided in those runs.
    pub scale: (f64, f64),
}

/// Writes a plan.
pub fn sizing(plan: &SizingPlan, style: &Style, out: &mut dyn Write) -> io::Result<()> {
    let mut page = Page::new(style.width, style.colour);
    let (goal, s) = (plan.goal, plan.sizing);
    page.pieces(&[(title(goal), Tone::Strong)]);
    sizes(&mut page, goal, s);
    page.heading("Memory traffic of one end, if the caches keep nothing");
    let columns = vec![
        Column::words("", 0, None),
        Column::number("", "times", 0),
        Column::number("", "GB/s", 0),
    ];
    let mut table = Table::new(columns);
    for way in plan.traffic {
        let plain = |text: String| (text, Tone::Plain);
        let rate = plain(number(way.bytes / 1e9, 1));
        table.row(vec![plain(way.way.into()), plain(number(way.crossings, 0)), rate]);
    }
    table.print(&mut page, 2);
    page.text("  ", "An application that reads what it got adds 1.");
    pool(&mut page, plan);
    page.heading("This host");
    if plan.shortages.is_empty() {
        page.text("  ", "Nothing that it shows of its limits is too low.");
    }
    for short in plan.shortages {
        page.text(
            "  - ",
            &format!("{} is {} and has to be {}", short.setting, short.is, short.needs),
        );
        page.text("    ", &short.command);
    }
    page.finish(out)
}

/// What was asked, in one line.
pub fn title(goal: &Goal) -> String {
    let queues = if goal.queues == 1 { String::new() } else { format!(", {} queues", goal.queues) };
    format!(
        "{} Gbit/s over {} ms with an MTU of {}{queues}, {} kept by the application",
        number(goal.rate / 1e9, 1).trim_end_matches(".0"),
        number(goal.rtt * 1e3, 3).trim_end_matches('0').trim_end_matches('.'),
        goal.mtu,
        bytes(goal.hold as f64)
    )
}

fn sizes(page: &mut Page, goal: &Goal, s: &Sizing) {
    page.heading("What it takes");
    let mut segment = format!("{} bytes of payload", s.segment);
    if !s.segment.is_multiple_of(goal.buffer) {
        let whole = bytes(f64::from(goal.buffer));
        segment += &format!("; an MTU of {} would fill buffers of {whole}", s.page_mtu);
    }
    let mut ring =
        format!("{} entries, {} of buffers, each queue", s.ring, bytes(s.ring_bytes as f64));
    if s.ring < s.least_ring {
        ring += &format!("; too small: what is in flight needs {}", s.least_ring);
    }
    for (name, text) in [
        ("segment", segment),
        ("delay product", bytes(s.delay_product)),
        ("in flight", format!("{} (twice the delay product)", bytes(s.in_flight))),
        ("packets", format!("{} a second", amount(s.packets))),
        ("polls", format!("{} a second at {POLL_WEIGHT} packets each", amount(s.polls))),
        ("receive ring", ring),
        (
            "area",
            format!(
                "{} each queue (ring and what is kept): udmabuf, zcrx area or GPU buffer; {} huge \
                 pages in all",
                bytes(s.area as f64),
                s.huge_pages
            ),
        ),
        ("kept", format!("{} buffers each queue", s.held)),
        ("give back", format!("{} calls a second at {DONTNEED} buffers each", amount(s.recycles))),
        (
            "socket buffer",
            format!("{}: the most that tcp_rmem and tcp_wmem allow", bytes(s.socket_buffer as f64)),
        ),
    ] {
        page.text(&format!("  {name:<14}"), &text);
    }
}

/// Columns of the plot.
const PLOT: usize = 60;

fn pool(page: &mut Page, plan: &SizingPlan) {
    let (model, course) = (plan.pool, plan.course);
    page.heading("Simulated: buffers of a queue that are free or posted");
    let highest = model.buffers.max(1);
    let rows = 6;
    for row in (0..rows).rev() {
        let bar: String = course
            .course
            .iter()
            .take(PLOT)
            .map(|left| if left * rows > row * highest { '#' } else { ' ' })
            .collect();
        let scale = highest * (row + 1) / rows;
        page.pieces(&[(format!("  {scale:>8} |{}", bar.trim_end()), Tone::Plain)]);
    }
    let end = format!("{} ms", number(course.step * PLOT as f64 * 1e3, 1));
    page.pieces(&[(format!("  {:>8} +{}", "", "-".repeat(PLOT)), Tone::Faint)]);
    page.pieces(&[(format!("  {:>8}  0{end:>width$}", "", width = PLOT - 1), Tone::Faint)]);
    let batch = model.batch;
    let text = match course.first_copy {
        None => format!(
            "The pool of {} buffers never runs dry; {} were the fewest.",
            model.buffers, course.least
        ),
        Some(at) => format!(
            "The pool of {} buffers is empty after {} ms; from then on the kernel copies: {} of all \
             packets.",
            model.buffers,
            number(at * 1e3, 2),
            percent(course.copied)
        ),
    };
    page.text("  ", &text);
    let least = match plan.least_buffers {
        Some(least) => {
            let size = bytes(least as f64 * f64::from(plan.goal.buffer));
            format!(
                "{least} buffers ({size}) are the least that never runs dry, given back {batch} at a time."
            )
        }
        None => "Four times as many would not do either.".into(),
    };
    page.text("  ", &least);
    neighbours(page, plan);
    page.text(
        "  ",
        "A model with steady arrivals and a steady application; bursts and stalls need more.",
    );
    checked(page, plan);
}

/// Pools of other sizes.
fn neighbours(page: &mut Page, plan: &SizingPlan) {
    let mut table = Table::new(vec![
        Column::number("", "buffers", 0),
        Column::number("", "memory", 0),
        Column::number("", "dry after", 0),
        Column::number("", "copied", 0),
        Column::number("", "fewest left", 0),
    ]);
    for (model, course) in plan.neighbours {
        let memory = bytes(model.buffers as f64 * f64::from(plan.goal.buffer));
        let cells = [
            model.buffers.to_string(),
            memory,
            dry(course.first_copy),
            percent(course.copied),
            course.least.to_string(),
        ];
        table.row(cells.map(|text| (text, Tone::Plain)).to_vec());
    }
    table.print(page, 2);
}

/// The model beside what was measured.
fn checked(page: &mut Page, plan: &SizingPlan) {
    if plan.checked.is_empty() {
        return;
    }
    page.heading("The model beside a run over the testbed's link");
    const MODEL: &str = "model";
    const SEEN: &str = "measured";
    let mut table = Table::new(vec![
        Column::number("", "buffers", 0),
        Column::number("", "packets/s", 0),
        Column::number("", "kept for", 0),
        Column::number(MODEL, "dry after", 0),
        Column::number(MODEL, "no buffer", 0),
        Column::number(SEEN, "dry after", 0),
        Column::number(SEEN, "no buffer", 0),
    ]);
    for pool in plan.checked {
        let cells = [
            pool.seen.buffers.to_string(),
            amount(pool.model.arrivals),
            format!("{} ms", number(pool.model.hold * 1e3, 0)),
            dry(pool.predicted.first_copy),
            percent(pool.predicted.copied),
            dry(pool.seen.first_refused),
            percent(pool.refused()),
        ];
        table.row(cells.map(|text| (text, Tone::Plain)).to_vec());
    }
    table.print(page, 2);
    let (slow, shrink) = plan.scale;
    let paced = if slow >= 1.0 {
        format!("{} times slower than planned", number(slow, 1))
    } else {
        format!("{} times faster than planned", number(1.0 / slow, 1))
    };
    let smaller = if shrink > 1.0 {
        format!(", with {} times fewer buffers", number(shrink, 1))
    } else {
        String::new()
    };
    page.text(
        "  ",
        &format!(
            "Small packets over a veth pair into a ring of a packet socket, {paced}{smaller}. The \
             kernel drops a packet for which the ring has no buffer; a card's page pool would have \
             it copied. What a card, its driver and its bursts do is not in this."
        ),
    );
}

fn dry(at: Option<f64>) -> String {
    at.map_or("never".into(), |at| format!("{} ms", number(at * 1e3, 2)))
}
