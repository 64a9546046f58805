//! An experiment file: TOML that says what is varied, against what, how long
//! and how often. `docs/experiments.md` describes the format by example.
//!
//! Pure: what a file may name comes in as [`Catalogues`], and the same text
//! gives the same cells anywhere. A level that is well formed but that this
//! host cannot do (a path that needs a NIC, a CPU that is not there) is no
//! error here: its cells become rows with a reason when the hosts are known.

mod document;
mod factors;
mod product;
mod schedule;
mod schema;
mod settings;

pub use document::{parse_warm_up, parse_window};
pub use factors::{OWN_FACTORS, factor_names};
pub use product::MOST_CELLS;
pub use schedule::{
    DEFAULT_BLOCKS, DEFAULT_WARM_UP, DEFAULT_WINDOW, MOST_BLOCKS, check_design, check_lanes,
    check_stopping, default_design, parse_design,
};
pub use schema::experiment_schema;

use super::{
    PathSpec, TestbedChoice, TestbedDeclaration, did_you_mean, parse_power, parse_profile,
    parse_testbed,
};
use crate::record::{
    Cell, CellId, Design, Fault, Judgement, Power, Profiling, Stopping, WantedSetting,
};
use document::{Entry, Section, Text};
use std::time::Duration;

/// What an experiment file may name.
#[derive(Clone, Debug, Default)]
pub struct Catalogues {
    /// Paths and pairs.
    pub paths: PathSpec,
    /// The testbeds; the first is the default.
    pub testbeds: Vec<TestbedDeclaration>,
    /// Names of the meters.
    pub meters: Vec<&'static str>,
    /// CPUs that this process may use.
    pub cpus: Vec<u32>,
    /// The testbed that was asked for, whatever the experiment says.
    pub testbed: Option<TestbedChoice>,
}

/// A validated experiment.
#[derive(Clone, Debug, PartialEq)]
pub struct Experiment {
    /// What it is about, in the words of the file; may be empty.
    pub title: String,
    /// The testbed and its options.
    pub testbed: TestbedChoice,
    /// The cells, the first factor varying slowest; at their end the second
    /// copy of the baseline, by which the study measures its own noise.
    pub cells: Vec<Cell>,
    /// The cell that all others are compared with.
    pub baseline: CellId,
    /// Passes over all cells; the most, where there is a stopping rule.
    pub blocks: u32,
    /// Time that flows before a window.
    pub warm_up: Duration,
    /// The measured window.
    pub window: Duration,
    /// Seed of the random order; none leaves it to chance.
    pub seed: Option<u64>,
    /// How the cells of a block share its time; none leaves it to
    /// [`default_design`].
    pub design: Option<Design>,
    /// When to stop before all blocks are run.
    pub stopping: Option<Stopping>,
    /// What the verdicts are to mean.
    pub judgement: Judgement,
    /// Names of the meters to run.
    pub meters: Vec<String>,
    /// Which profiles are taken; none if none are.
    pub profiling: Option<Profiling>,
    /// How power is measured.
    pub power: Power,
    /// Settings of the host that are made before the first trial and put back
    /// after the last.
    pub settings: Vec<WantedSetting>,
}

/// Every key of an experiment file and what it says.
pub const EXPERIMENT_KEYS: &[(&str, &str)] = &[
    ("title", "what the experiment is about, one line"),
    ("workload", "what is asked of a path: \"stream\", the only one"),
    ("testbed", "where the roles run"),
    ("baseline", "the cell that all others are compared with: a path, or a table of levels"),
    ("blocks", "passes over all cells, each in random order; with stop, the most"),
    ("warm-up", "time that flows before the window"),
    ("window", "the measured time of one trial"),
    ("seed", "seed of the random order; without it, chance decides"),
    ("margin", "differences within this share do not matter"),
    ("confidence", "confidence of the intervals, over the whole matrix"),
    ("roi", "exponents of throughput and power in the return on investment"),
    ("design", "how the cells of a block share its time: \"trials\" or \"slices:TIME\""),
    ("stop", "stopping rule: within this share, after at least so many blocks"),
    ("meters", "\"all\", \"none\", or a list of meters"),
    (
        "profile",
        "profiles taken at the end: \"none\", \"largest\" or \"all\", with options as in largest:rate=499",
    ),
    (
        "power",
        "where readings of power come from: \"auto\", \"rapl\", \"csv=FILE\" ..., with options",
    ),
    (
        "settings",
        "settings of the host that are made and put back: a profile, or a table of profile and set",
    ),
    ("factors", "what is varied: a level or a list of levels each"),
    ("exclude", "combinations of levels that are left out"),
];

/// Longest title, in characters: it heads a page of 72 columns.
const LONGEST_TITLE: usize = 200;

/// Reads an experiment file. `name` stands in front of errors, which read
/// `NAME:LINE:COLUMN: cause (remedy)`, all of kind [`Usage`].
///
/// [`Usage`]: crate::record::FaultKind::Usage
pub fn parse_experiment(
    name: &str,
    text: &str,
    catalogues: &Catalogues,
) -> Result<Experiment, Fault> {
    let text = Text { name, text };
    let document = text.parse()?;
    let top = Section::of(text, "an experiment", document.get_ref());
    top.only(&EXPERIMENT_KEYS.iter().map(|(key, _)| *key).collect::<Vec<_>>())?;
    let title = top.get("title").map(|e| title(&e)).transpose()?.unwrap_or_default();
    if let Some(entry) = top.get("workload") {
        one_of(&entry, "workload", &["stream"])?;
    }
    let said = match top.get("testbed") {
        Some(entry) => {
            let text = entry.string("\"vm\"")?;
            parse_testbed(text, &catalogues.testbeds).map_err(|fault| entry.fault(fault))?
        }
        None => {
            let first = catalogues.testbeds.first().map_or("", |testbed| testbed.name);
            parse_testbed(first, &catalogues.testbeds)?
        }
    };
    let testbed = catalogues.testbed.clone().unwrap_or(said);
    let cpus = testbed.cpus(&catalogues.cpus);
    let catalogues = &Catalogues { cpus, testbed: Some(testbed.clone()), ..catalogues.clone() };
    let layout = schedule::layout(&top)?;
    let judgement = schedule::judgement(&top)?;
    let meters = meters(top.get("meters").as_ref(), &catalogues.meters)?;

    let profiling = match top.get("profile") {
        Some(entry) => {
            let text = entry.string("\"largest\"")?;
            parse_profile(text).map_err(|fault| entry.fault(fault))?
        }
        None => None,
    };

    let power = match top.get("power") {
        Some(entry) => {
            let text = entry.string("\"auto\"")?;
            parse_power(text).map_err(|fault| entry.fault(fault))?
        }
        None => Power::default(),
    };
    let settings = top.get("settings").map(|entry| settings::settings(&entry)).transpose()?;

    let entry = top.need("factors", &(0..0), "[factors] with path = [\"socket\", \"uring\"]")?;
    let factors = factors::factors(&entry, catalogues)?;
    if let Some(kernels) = factors::kernels(&entry)? {
        testbed.check_kernels(true).map_err(|fault| kernels.fault_at_key(fault))?;
    }
    let excludes = top.get("exclude").map(|e| e.list()).unwrap_or_default();
    let product = product::product(&entry, &factors, &excludes, catalogues)?;
    let (cells, baseline) = product.finish(top.get("baseline").as_ref(), catalogues)?;
    if let (Some(design), Some(entry)) = (layout.design, top.get("design")) {
        schedule::check_lanes(&cells, design).map_err(|fault| entry.fault(fault))?;
    }
    Ok(Experiment {
        title,
        testbed,
        cells,
        baseline,
        blocks: layout.blocks,
        warm_up: layout.warm_up,
        window: layout.window,
        seed: layout.seed,
        design: layout.design,
        stopping: layout.stopping,
        judgement,
        meters,
        profiling,
        power,
        settings: settings.unwrap_or_default(),
    })
}

fn title(entry: &Entry) -> Result<String, Fault> {
    let title = entry.string("\"one line\"")?.trim();
    if title.chars().any(char::is_control) || title.chars().count() > LONGEST_TITLE {
        let text = format!("a title is one line of at most {LONGEST_TITLE} characters");
        return Err(entry.wrong(text).remedy("put the rest into comments"));
    }
    Ok(title.to_owned())
}

fn meters(entry: Option<&Entry>, known: &[&'static str]) -> Result<Vec<String>, Fault> {
    let all = || known.iter().map(|name| (*name).to_owned()).collect();
    let Some(entry) = entry else { return Ok(all()) };
    match entry.as_string() {
        Some("all") => return Ok(all()),
        Some("none") => return Ok(Vec::new()),
        _ => {}
    }
    let mut chosen: Vec<String> = Vec::new();
    for meter in entry.list() {
        let name = one_of(&meter, "meter", known)?;
        if !chosen.iter().any(|one| one == name) {
            chosen.push(name.to_owned());
        }
    }
    Ok(chosen)
}

/// A text that must be one of a few.
fn one_of<'k>(entry: &Entry, what: &str, known: &[&'k str]) -> Result<&'k str, Fault> {
    let first = known.first().copied().unwrap_or_default();
    let text = entry.string(&format!("\"{first}\""))?;
    known.iter().find(|name| **name == text).copied().ok_or_else(|| {
        let fault = entry.wrong(format!("there is no {what} '{text}'"));
        match did_you_mean(text, known) {
            Some(near) => fault.remedy(format!("did you mean '{near}'?")),
            None => fault.remedy(format!("choose from {}", known.join(", "))),
        }
    })
}

#[cfg(test)]
mod tests;
