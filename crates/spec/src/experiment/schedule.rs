//! The schedule of an experiment's trials, and the confidence and margin of its verdicts.

use super::document::{Document, MOST_BLOCKS, Placed, Share, Stop, Text, Time};
use crate::stream::MEMORY_LIMIT;
use crate::{suggest, usage};
use bytepath_record::{Cell, Design, Fault, Judgement, Stopping, unit};
use std::ops::RangeInclusive;
use std::time::Duration;

/// One slice of the design `slices`, in seconds. Of the lengths that were tried, it detected the
/// smallest effect in a given time (docs/journal/0002-slices.md).
const DEFAULT_SLICE: f64 = 0.1;

/// Blocks of a study that requests neither blocks nor a time.
pub const DEFAULT_BLOCKS: u32 = 10;

/// Blocks before the stopping rule is first applied. Fewer give no reliable variance for an
/// interval.
const DEFAULT_AT_LEAST: u32 = 5;

/// Most cells that a sliced block keeps open at once.
const MOST_LANES: usize = 64;

/// The schedule of an experiment's trials.
#[derive(Clone, Debug, PartialEq)]
pub struct Layout {
    /// Passes over all cells; with a stopping rule or a time, the maximum. `None` leaves it to the
    /// time; without one it means [`DEFAULT_BLOCKS`].
    pub blocks: Option<u32>,
    /// Time for which traffic flows before a window.
    pub warm_up: Duration,
    pub window: Duration,
    /// Seed of the random order; `None` leaves it to chance.
    pub seed: Option<u64>,
    /// How the cells of a block share its time; `None` means [`default_design`].
    pub design: Option<Design>,
    pub stopping: Option<Stopping>,
    /// The time that the study may take; it ends earlier once its answer is certain.
    pub time: Option<Duration>,
    /// Share of a role's CPU that others may use before a trial is rejected.
    pub max_interference: Option<f64>,
}

impl Layout {
    /// Returns the schedule of a study for people who wait for it: windows so short that an answer
    /// takes some twenty seconds, and an end once the answer is certain. Whole trials of `cells`
    /// cells, one after the other, are longer if the time allows: three quarters of it must suffice
    /// for `FEW_BLOCKS` blocks, without which nothing is decided; the last quarter is for
    /// profiles.
    pub fn until_sure(time: Option<Duration>, design: Design, cells: usize) -> Layout {
        let (all, longest, shortest) = match design {
            Design::Trials => (300, [1000, 1500], [100, 150]),
            Design::Slices { .. } => (90, [100, 200], [100, 200]),
        };
        let time = time.unwrap_or(Duration::from_secs(all));
        let trial = time.as_secs_f64() * 0.75 / (FEW_BLOCKS * cells.max(1)) as f64 - BETWEEN_TRIALS;
        let of_longest = 1000.0 * trial / longest.iter().sum::<u64>() as f64;
        let fitting = |longest: u64, shortest: u64| {
            let fits = (longest as f64 * of_longest).round() as u64;
            Duration::from_millis(fits.clamp(shortest, longest))
        };
        let [warm_up, window] = [0, 1].map(|at| fitting(longest[at], shortest[at]));
        Layout { warm_up, window, time: Some(time), ..Layout::default() }
    }
}

/// Fewest blocks with which a study that ends once its answer is certain decides anything.
const FEW_BLOCKS: usize = 6;

/// Seconds between two trials on one machine, in which agents end, start and connect.
pub const BETWEEN_TRIALS: f64 = 0.15;

impl Default for Layout {
    fn default() -> Layout {
        Layout {
            blocks: None,
            warm_up: Duration::from_secs(1),
            window: Duration::from_millis(1500),
            seed: None,
            design: None,
            stopping: None,
            time: None,
            max_interference: None,
        }
    }
}

pub(super) fn layout(text: Text, document: &Document) -> Result<Layout, Fault> {
    let default = Layout::default();
    let blocks = text.within(document.blocks.as_ref(), 1..=MOST_BLOCKS.into())?;
    let blocks = blocks.map(|n| n as u32);
    let seed = text.within(document.seed.as_ref(), 0..=i64::MAX)?.map(|n| n as u64);
    let warm_up = time(text, document.warm_up.as_ref(), parse_warm_up)?.unwrap_or(default.warm_up);
    let window = time(text, document.window.as_ref(), parse_window)?.unwrap_or(default.window);
    let design = text.read(document.design.as_ref(), |design| {
        parse_design(design).and_then(|design| check_design(design, window))
    })?;
    let most = blocks.unwrap_or(DEFAULT_BLOCKS);
    let stopping = document.stop.as_ref().map(|stop| stopping(text, stop, most)).transpose()?;
    let total = time(text, document.time.as_ref(), parse_time)?;
    let max_interference = document.max_interference.as_ref();
    let max_interference =
        max_interference.map(|value| share(text, value, 1.0..=100.0)).transpose()?;
    Ok(Layout { blocks, warm_up, window, seed, design, stopping, time: total, max_interference })
}

fn time(
    text: Text,
    value: Option<&Placed<Time>>,
    parse: fn(&str) -> Result<Duration, String>,
) -> Result<Option<Duration>, Fault> {
    let read = |value: &Placed<Time>| {
        let time = match value.get() {
            Time::Text(time) => parse(time),
            Time::Number(number) => parse(&number.to_string()),
        };
        time.map_err(|wrong| text.wrong(value.at(), wrong))
    };
    value.map(read).transpose()
}

fn stopping(text: Text, value: &Placed<Stop>, blocks: u32) -> Result<Stopping, Fault> {
    let at_least = text.within(value.get().at_least.as_ref(), 2..=MOST_BLOCKS.into())?;
    let rule = Stopping {
        within: share(text, &value.get().within, 0.01..=50.0)?,
        at_least: at_least.map_or(DEFAULT_AT_LEAST, |n| n as u32),
    };
    check_stopping(rule, blocks).map_err(|fault| text.at(value.at(), fault))?;
    Ok(rule)
}

/// Parses a share within a range of percent.
fn share(text: Text, value: &Placed<Share>, percent: RangeInclusive<f64>) -> Result<f64, Fault> {
    let share = match value.get() {
        Share::Part(part) => Some(*part),
        Share::Text(text) => percentage(text).map(|percent| percent / 100.0),
    };
    // Compare in percent, like the bounds: dividing those would exclude 5 % itself.
    share.filter(|share| percent.contains(&(share * 100.0))).ok_or_else(|| {
        let (min, max) = (percent.start(), percent.end());
        let fault = text.wrong(value.at(), format!("this is not a share from {min}% to {max}%"));
        fault.remedy(format!("write \"{}%\"", min.max(2.0)))
    })
}

/// The longest duration of a part of a trial.
const LONGEST: Duration = Duration::from_secs(3600);

/// Parses the share of a role's CPU that others may use: `10%`.
pub fn parse_interference(text: &str) -> Result<f64, String> {
    let percent = percentage(text).filter(|percent| (1.0..=100.0).contains(percent));
    let wrong = || format!("'{text}' is not a share from 1% to 100%");
    percent.map(|percent| percent / 100.0).ok_or_else(wrong)
}

/// Parses the number before a percent sign.
fn percentage(text: &str) -> Option<f64> {
    text.trim().strip_suffix('%')?.trim().parse().ok()
}

/// Parses a measured window: [`unit::parse_duration`] within 100 ms, the shortest for which a
/// tick-based CPU figure is meaningful, and one hour.
pub fn parse_window(text: &str) -> Result<Duration, String> {
    within(text, Duration::from_millis(100), LONGEST, "a window lasts 100ms to 60m")
}

/// Parses a warm-up: at most one hour.
pub fn parse_warm_up(text: &str) -> Result<Duration, String> {
    within(text, Duration::ZERO, LONGEST, "a warm-up lasts at most 60m")
}

/// Parses the time that a study may take: a second to a week.
pub fn parse_time(text: &str) -> Result<Duration, String> {
    within(text, Duration::from_secs(1), 24 * 7 * LONGEST, "a time is from 1s to 168h")
}

fn within(
    text: &str,
    least: Duration,
    most: Duration,
    otherwise: &str,
) -> Result<Duration, String> {
    let time = unit::parse_duration(text)?;
    if (least..=most).contains(&time) { Ok(time) } else { Err(format!("'{text}': {otherwise}")) }
}

/// Parses `trials`, `slices` or `slices:TIME`.
pub fn parse_design(text: &str) -> Result<Design, Fault> {
    let mut parts = text.splitn(2, ':').map(str::trim);
    match (parts.next().unwrap_or_default(), parts.next()) {
        ("trials", None) => Ok(Design::Trials),
        ("trials", Some(_)) => {
            Err(usage("the design 'trials' has no slices")
                .remedy("write slices:TIME, or just trials"))
        }
        ("slices", None) => Ok(Design::Slices { slice: DEFAULT_SLICE }),
        ("slices", Some(time)) => {
            let (least, rule) = (Duration::from_millis(10), "a slice lasts at least 10ms");
            let slice = within(time, least, LONGEST, rule).map_err(usage)?;
            Ok(Design::Slices { slice: slice.as_secs_f64() })
        }
        (kind, _) => {
            let fault = usage(format!("there is no design '{kind}'"));
            Err(suggest(fault, kind, ["trials", "slices"]))
        }
    }
}

/// Returns the design of a study that requests none: slices, which detect smaller effects in the
/// same time, unless the cells cannot all be open at once.
pub fn default_design(cells: &[Cell], window: Duration) -> Design {
    let slices = Design::Slices { slice: DEFAULT_SLICE };
    let fits = check_design(slices, window).and_then(|design| check_lanes(cells, design));
    if fits.is_ok() { slices } else { Design::Trials }
}

/// Errors if a slice is longer than a window.
pub fn check_design(design: Design, window: Duration) -> Result<Design, Fault> {
    match design {
        Design::Slices { slice } if slice > window.as_secs_f64() => {
            Err(usage(format!("a slice of {slice} s is longer than the window"))
                .remedy(format!("at most {} s", window.as_secs_f64())))
        }
        design => Ok(design),
    }
}

/// Errors if the cells of a sliced block cannot all be open at once: each has two agents, all their
/// buffers are in memory, and none can have its own settings.
pub fn check_lanes(cells: &[Cell], design: Design) -> Result<(), Fault> {
    if design == Design::Trials {
        return Ok(());
    }
    if cells.iter().any(|cell| !cell.settings.is_empty()) {
        let text = "slices keep all cells open at once, and some need their own host settings";
        return Err(usage(text).remedy("choose the design trials"));
    }
    let memory = cells.iter().map(|cell| cell.buffers()).fold(0, u64::saturating_add);
    let what = if cells.len() > MOST_LANES {
        format!("slices keep all {} cells open at once, and the limit is {MOST_LANES}", cells.len())
    } else if memory > MEMORY_LIMIT {
        format!("slices keep all cells open at once, and their buffers take {} GiB", memory >> 30)
    } else {
        return Ok(());
    };
    Err(usage(what).remedy("choose the design trials, or fewer cells"))
}

/// Errors if there are fewer blocks than the rule's minimum.
pub fn check_stopping(rule: Stopping, blocks: u32) -> Result<(), Fault> {
    if rule.at_least <= blocks {
        return Ok(());
    }
    let text = format!("the rule requires at least {} of {blocks} blocks", rule.at_least);
    Err(usage(text).remedy("blocks is the maximum that is run: raise it, or lower at-least"))
}

pub(super) fn judgement(text: Text, document: &Document) -> Result<Judgement, Fault> {
    let default = Judgement::default();
    let share = |value: &Option<Placed<Share>>, percent| {
        value.as_ref().map(|value| share(text, value, percent)).transpose()
    };
    let roi = document.roi.as_ref();
    let throughput = roi.and_then(|roi| roi.throughput.as_ref());
    let power = roi.and_then(|roi| roi.power.as_ref());
    Ok(Judgement {
        margin: share(&document.margin, 0.01..=50.0)?.unwrap_or(default.margin),
        confidence: share(&document.confidence, 50.0..=99.99)?.unwrap_or(default.confidence),
        roi_throughput: text.within(throughput, 0.0..=10.0)?.unwrap_or(default.roi_throughput),
        roi_power: text.within(power, 0.0..=10.0)?.unwrap_or(default.roi_power),
    })
}
