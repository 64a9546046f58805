//! How the trials of an experiment are laid out in time, and what its verdicts
//! are to mean.

use super::document::{Entry, Section, between, parse_warm_up, parse_window};
use crate::record::{Cell, Design, Fault, FaultKind, Judgement, Stopping};
use crate::spec::did_you_mean;
use crate::spec::stream::MEMORY_LIMIT;
use std::time::Duration;

/// Blocks of a study that says nothing of them.
pub const DEFAULT_BLOCKS: u32 = 5;

/// Most blocks of a study.
pub const MOST_BLOCKS: u32 = 1000;

/// Warm-up and window of a study that says nothing of them.
pub const DEFAULT_WARM_UP: Duration = Duration::from_secs(1);
/// See [`DEFAULT_WARM_UP`].
pub const DEFAULT_WINDOW: Duration = Duration::from_secs(3);

/// One slice of the design `slices`, in seconds. Of the lengths that were tried
/// it saw the smallest effect in a given time (docs/journal/0002-slices.md).
const DEFAULT_SLICE: f64 = 0.1;

/// Blocks before the stopping rule is asked for the first time. Fewer give no
/// variance that an interval could stand on.
const DEFAULT_AT_LEAST: u32 = 5;

/// Most cells that a sliced block keeps open at once.
const MOST_LANES: usize = 64;

/// Keys of `stop`.
pub(super) const STOP_KEYS: &[&str] = &["within", "at-least"];

/// Keys of `roi`.
pub(super) const ROI_KEYS: &[&str] = &["throughput", "power"];

/// Blocks, warm-up, window, seed, design and stopping rule of a file.
#[derive(Clone, Debug)]
pub(super) struct Layout {
    pub blocks: u32,
    pub warm_up: Duration,
    pub window: Duration,
    pub seed: Option<u64>,
    pub design: Option<Design>,
    pub stopping: Option<Stopping>,
}

pub(super) fn layout(top: &Section) -> Result<Layout, Fault> {
    let blocks = top.get("blocks").map(|e| e.count(1..=MOST_BLOCKS.into())).transpose()?;
    let warm_up = top.get("warm-up").map(|e| e.duration(parse_warm_up)).transpose()?;
    let window = top.get("window").map(|e| e.duration(parse_window)).transpose()?;
    let seed = top.get("seed").map(|e| e.count(0..=i64::MAX as u64)).transpose()?;
    let stopping = top.get("stop").map(|e| stopping(&e)).transpose()?;
    let blocks = blocks.map_or(DEFAULT_BLOCKS, |n| n as u32);
    let window = window.unwrap_or(DEFAULT_WINDOW);
    let design = match top.get("design") {
        None => None,
        Some(entry) => {
            let design = parse_design(entry.string("\"slices:250ms\"")?)
                .and_then(|design| check_design(design, window));
            Some(design.map_err(|f| entry.fault(f))?)
        }
    };
    if let (Some(rule), Some(entry)) = (stopping, top.get("stop"))
        && let Err(fault) = check_stopping(rule, blocks)
    {
        return Err(entry.fault(fault));
    }
    let warm_up = warm_up.unwrap_or(DEFAULT_WARM_UP);
    Ok(Layout { blocks, warm_up, window, seed, design, stopping })
}

/// Reads `trials`, `slices` or `slices:TIME`.
pub fn parse_design(text: &str) -> Result<Design, Fault> {
    let (kind, slice) = match text.trim().split_once(':') {
        Some((kind, slice)) => (kind.trim(), Some(slice.trim())),
        None => (text.trim(), None),
    };
    match (kind, slice) {
        ("trials", None) => Ok(Design::Trials),
        ("trials", Some(_)) => Err(usage("the design 'trials' has no slices".into())
            .remedy("write slices:TIME, or trials alone")),
        ("slices", None) => Ok(Design::Slices { slice: DEFAULT_SLICE }),
        ("slices", Some(time)) => {
            let least = Duration::from_millis(10);
            let slice = between(time, least, "a slice lasts at least 10ms").map_err(usage)?;
            Ok(Design::Slices { slice: slice.as_secs_f64() })
        }
        _ => {
            let fault = usage(format!("there is no design '{kind}'"));
            Err(match did_you_mean(kind, &["trials", "slices"]) {
                Some(near) => fault.remedy(format!("did you mean '{near}'?")),
                None => fault.remedy("choose trials or slices:TIME"),
            })
        }
    }
}

/// The design of a study that asks for none: slices, which see smaller effects
/// in the same time, unless all cells cannot be open at once.
pub fn default_design(cells: &[Cell], window: Duration) -> Design {
    let slices = Design::Slices { slice: DEFAULT_SLICE };
    let fits = check_design(slices, window).and_then(|design| check_lanes(cells, design));
    if fits.is_ok() { slices } else { Design::Trials }
}

/// A slice is a part of a window.
pub fn check_design(design: Design, window: Duration) -> Result<Design, Fault> {
    match design {
        Design::Slices { slice } if slice > window.as_secs_f64() => {
            Err(usage(format!("a slice of {slice} s is longer than the window"))
                .remedy(format!("at most {} s", window.as_secs_f64())))
        }
        design => Ok(design),
    }
}

/// Cells of a sliced block are open at once, each with two agents, and their
/// buffers are all in memory: there is an end to how many that can be.
pub fn check_lanes(cells: &[Cell], design: Design) -> Result<(), Fault> {
    if design == Design::Trials {
        return Ok(());
    }
    let buffers = |cell: &Cell| {
        let s = &cell.stream;
        u64::from(s.flows) * (s.message_size + s.read_size)
    };
    let memory: u64 = cells.iter().map(buffers).fold(0, u64::saturating_add);
    let what = if cells.len() > MOST_LANES {
        format!("slices keep all {} cells open at once, and {MOST_LANES} is the most", cells.len())
    } else if memory > MEMORY_LIMIT {
        format!("slices keep all cells open at once, and their buffers take {} GiB", memory >> 30)
    } else {
        return Ok(());
    };
    Err(usage(what).remedy("choose the design trials, or fewer cells"))
}

/// The blocks must allow what the rule wants.
pub fn check_stopping(rule: Stopping, blocks: u32) -> Result<(), Fault> {
    if rule.at_least <= blocks {
        return Ok(());
    }
    let text = format!("the rule wants at least {} of {blocks} blocks", rule.at_least);
    Err(usage(text).remedy("blocks is the most that is run: raise it, or lower at-least"))
}

fn stopping(entry: &Entry) -> Result<Stopping, Fault> {
    let example = "{ within = \"1%\", at-least = 5 }";
    let section = entry.section("a stopping rule", example)?;
    section.only(STOP_KEYS)?;
    let within = section.need("within", &entry.place(), "stop = { within = \"1%\" }")?;
    let at_least = section.get("at-least").map(|e| e.count(2..=MOST_BLOCKS.into())).transpose()?;
    Ok(Stopping {
        within: within.share(0.01..=50.0)?,
        at_least: at_least.map_or(DEFAULT_AT_LEAST, |n| n as u32),
    })
}

pub(super) fn judgement(top: &Section) -> Result<Judgement, Fault> {
    let mut judgement = Judgement::default();
    if let Some(entry) = top.get("margin") {
        judgement.margin = entry.share(0.01..=50.0)?;
    }
    if let Some(entry) = top.get("confidence") {
        judgement.confidence = entry.share(50.0..=99.99)?;
    }
    if let Some(entry) = top.get("roi") {
        let example = "{ throughput = 2, power = 1 }";
        let section = entry.section("the return on investment", example)?;
        section.only(ROI_KEYS)?;
        for (key, exponent) in
            [("throughput", &mut judgement.roi_throughput), ("power", &mut judgement.roi_power)]
        {
            if let Some(entry) = section.get(key) {
                *exponent = entry.number(0.0..=10.0)?;
            }
        }
    }
    Ok(judgement)
}

fn usage(message: String) -> Fault {
    Fault::new(FaultKind::Usage, message)
}
