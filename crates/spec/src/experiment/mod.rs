//! An experiment file: TOML that defines what is varied, compared with what, how long and how
//! often. `docs/guide/experiments.md` describes the format by example.
//!
//! Pure: the names that a file may use are passed in as [`Catalogues`], and the same text gives the
//! same cells anywhere. A level that is well formed but impossible on this host (a path that needs
//! a NIC, a CPU that does not exist) is not an error here: its cells become rows with a reason once
//! the hosts are known.

mod catalogues;
mod document;
mod factors;
mod product;
mod schedule;
mod schema;
mod settings;

pub use catalogues::{Catalogues, OWN_FACTORS, factor_names};
pub use document::{MOST_BLOCKS, experiment_schema};
pub use factors::MOST_CELLS;
pub use schedule::{
    BETWEEN_TRIALS, DEFAULT_BLOCKS, Layout, check_design, check_lanes, check_stopping,
    default_design, parse_design, parse_interference, parse_time, parse_warm_up, parse_window,
};

use super::cells::activity;
use super::options::usage;
use super::{TestbedChoice, parse_power, parse_profile, parse_testbed};
use bytepath_record::{Cell, CellId, Fault, Judgement, Power, Profiling, WantedSetting};
use document::{Entry, LONGEST_TITLE, Text};

/// A validated experiment.
#[derive(Clone, Debug, PartialEq)]
pub struct Experiment {
    /// Title from the file; may be empty.
    pub title: String,
    /// The testbed and its options.
    pub testbed: TestbedChoice,
    /// The cells, the first factor varying slowest; the last is the second copy of the baseline,
    /// with which the study measures its own noise.
    pub cells: Vec<Cell>,
    /// The cell that all others are compared with.
    pub baseline: CellId,
    /// The schedule of its trials.
    pub layout: Layout,
    /// Confidence and margin of its verdicts.
    pub judgement: Judgement,
    /// Names of the meters to run.
    pub meters: Vec<String>,
    /// Profiles to take; `None` for none.
    pub profiling: Option<Profiling>,
    /// How power is measured.
    pub power: Power,
    /// Settings of the host to make before the first trial and restore after the last.
    pub settings: Vec<WantedSetting>,
}

/// Parses an experiment file. `name` prefixes errors, which have the form `NAME:LINE:COLUMN: cause
/// (remedy)` and are all of kind [`Usage`].
///
/// [`Usage`]: bytepath_record::FaultKind::Usage
pub fn parse_experiment(
    name: &str,
    text: &str,
    catalogues: &Catalogues,
) -> Result<Experiment, Fault> {
    let text = Text { name, text };
    let document = text.parse()?;
    let workload = text.read(document.workload.as_ref(), |name: &str| {
        activity(name, &catalogues.paths).map(|_| name.to_owned())
    })?;
    let title = text.read(document.title.as_ref(), title)?.unwrap_or_default();
    let there = |name: &str| parse_testbed(name, &catalogues.testbeds);
    let testbed = match text.read(document.testbed.as_ref(), there)? {
        Some(testbed) => testbed,
        None => there(catalogues.testbeds.first().map_or("", |testbed| testbed.name))?,
    };
    let testbed = catalogues.testbed.clone().unwrap_or(testbed);
    let cpus = testbed.cpus(&catalogues.cpus);
    let catalogues = &Catalogues {
        cpus,
        testbed: Some(testbed.clone()),
        workload: workload.unwrap_or_default(),
        ..catalogues.clone()
    };
    let layout = schedule::layout(text, &document)?;
    let judgement = schedule::judgement(text, &document)?;
    let meters = meters(Entry::top(text, "meters", &document.meters).as_ref(), catalogues)?;
    let profiling = text.read(document.profile.as_ref(), parse_profile)?.flatten();
    let power = text.read(document.power.as_ref(), parse_power)?.unwrap_or_default();
    let settings = Entry::top(text, "settings", &document.settings);
    let settings = settings.map(|entry| settings::settings(&entry)).transpose()?;

    let varied = Entry::top(text, "factors", &document.factors).ok_or_else(|| {
        let fault = text.wrong(0, "the experiment has no 'factors'");
        fault.remedy("write [factors] with path = [\"socket\", \"uring\"]")
    })?;
    let factors = factors::factors(&varied, catalogues)?;
    if let Some(kernels) = factors::kernels(&varied)? {
        testbed.check_kernels(true).map_err(|fault| kernels.fault_at_key(fault))?;
    }
    let excludes =
        Entry::top(text, "exclude", &document.exclude).map(|e| e.list()).unwrap_or_default();
    let product = product::product(&varied, &factors, &excludes, catalogues)?;
    let (cells, baseline) =
        product.finish(Entry::top(text, "baseline", &document.baseline).as_ref(), catalogues)?;
    if let (Some(design), Some(typed)) = (layout.design, &document.design) {
        schedule::check_lanes(&cells, design).map_err(|fault| text.at(typed.at(), fault))?;
    }
    Ok(Experiment {
        title,
        testbed,
        cells,
        baseline,
        layout,
        judgement,
        meters,
        profiling,
        power,
        settings: settings.unwrap_or_default(),
    })
}

fn title(title: &str) -> Result<String, Fault> {
    let title = title.trim();
    if title.chars().any(char::is_control) || title.chars().count() > LONGEST_TITLE {
        let text = format!("a title is one line of at most {LONGEST_TITLE} characters");
        return Err(usage(text).remedy("put the rest into comments"));
    }
    Ok(title.to_owned())
}

fn meters(entry: Option<&Entry>, catalogues: &Catalogues) -> Result<Vec<String>, Fault> {
    let Some(entry) = entry else { return catalogues.meters(["default"]) };
    let words = entry.list();
    for meter in &words {
        let named = catalogues.meters([meter.one_word()?]);
        named.map_err(|fault| Fault { remedy: fault.remedy, ..meter.wrong(fault.message) })?;
    }
    let words = words.iter().map(Entry::one_word).collect::<Result<Vec<_>, _>>()?;
    catalogues.meters(words)
}

#[cfg(test)]
mod tests;
