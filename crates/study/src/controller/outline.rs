//! What a dry run shows: the cells, their order, the time they take, and what would be set.

use super::deployment::Deployment;
use super::request::{ProfileTrials, planned_blocks};
use crate::{Plan, meters_for_header, previewed, time_of_trial};
use bytepath_record::{
    Cell, CellId, Fault, Judgement, Power, Profiling, Schedule, SettingRecord, WantedSetting,
};
use bytepath_spec as spec;
use serde::Serialize;
use std::path::Path;
use std::sync::atomic::AtomicBool;

/// A plan as a person and `--dry-run --json` see it.
#[derive(Serialize)]
pub struct Outline<'a> {
    pub title: &'a str,
    testbed: &'a str,
    folder: &'a Path,
    pub cells: &'a [Cell],
    pub baseline: &'a CellId,
    pub schedule: &'a Schedule,
    judgement: &'a Judgement,
    meters: Vec<String>,
    power: Power,
    pub profiling: Option<&'a Profiling>,
    /// The cells of each block, in the order in which they run.
    pub order: Vec<Vec<&'a CellId>>,
    pub seconds_per_trial: f64,
    /// Without the time to raise a testbed and to drain a stream.
    pub seconds: f64,
    /// Trials that are profiled after the last block, at most, and their time.
    pub profile_trials: f64,
    pub profile_seconds: f64,
    /// More of them, at most, in place of rejected ones.
    pub profile_retakes: f64,
    /// Settings of the hosts for the whole study.
    pub settings: Vec<SettingRecord>,
    /// Settings for the trials of each cell.
    pub prepared: Vec<Prepared<'a>>,
}

/// What would be set before each trial of a cell, and restored after it.
#[derive(Serialize)]
pub struct Prepared<'a> {
    pub cell: &'a CellId,
    #[serde(flatten)]
    pub settings: Preview,
}

/// Settings as text, or why the cell cannot run.
#[derive(Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Preview {
    Settings(Vec<String>),
    Fault(String),
}

impl<'a> Outline<'a> {
    /// Previews settings on the hosts of the deployment, and changes nothing there.
    pub fn of(plan: &'a Plan, deployment: &Deployment) -> Result<Outline<'a>, Fault> {
        let schedule = &plan.schedule;
        let count = plan.cells.len();
        let blocks = planned_blocks(schedule, count, deployment.testbed());
        let order = spec::order(count, blocks, schedule.seed);
        let block =
            |pass: &[(u32, usize)]| pass.iter().map(|(_, cell)| &plan.cells[*cell].id).collect();
        let seconds_per_trial = time_of_trial(schedule);
        let profiles = ProfileTrials::of(schedule, &plan.cells, plan.profiling.as_ref());
        let (meters, power) = meters_for_header(&plan.meters)?;
        let settings = [&plan.settings[..], &deployment.testbed().settings()].concat();
        let settings = match settings.is_empty() {
            true => Vec::new(),
            false => deployment.stewards()?.preview(&settings)?,
        };
        Ok(Outline {
            title: &plan.title,
            testbed: &plan.testbed,
            folder: &plan.folder,
            cells: &plan.cells,
            baseline: &plan.baseline,
            schedule,
            judgement: &plan.judgement,
            meters,
            power,
            profiling: plan.profiling.as_ref(),
            order: order.chunks(count.max(1)).map(block).collect(),
            seconds_per_trial,
            seconds: seconds_per_trial * order.len() as f64,
            profile_trials: profiles.trials,
            profile_seconds: profiles.trials * profiles.seconds_each,
            profile_retakes: profiles.retakes,
            settings,
            prepared: prepared(plan, deployment)?,
        })
    }
}

fn prepared<'a>(plan: &'a Plan, deployment: &Deployment) -> Result<Vec<Prepared<'a>>, Fault> {
    let stop = AtomicBool::new(false);
    let previews = previewed(&deployment.laboratory(&stop)?, &plan.cells)?;
    let one = |(records, cell): (Result<Vec<SettingRecord>, Fault>, &'a Cell)| {
        let settings = match records {
            Err(fault) => Preview::Fault(fault.to_string()),
            Ok(records) => match records.iter().find(|record| is_lacking(cell, record)) {
                Some(lacking) => Preview::Fault(lacking.to_string()),
                None => Preview::Settings(records.iter().map(ToString::to_string).collect()),
            },
        };
        Prepared { cell: &cell.id, settings }
    };
    Ok(previews.into_iter().zip(&plan.cells).map(one).collect())
}

/// Whether a cell cannot run because this cannot be set.
fn is_lacking(cell: &Cell, record: &SettingRecord) -> bool {
    let is_optional = |w: &WantedSetting| w.optional && w.setting == record.setting;
    record.skipped.is_some() && !cell.settings.iter().any(is_optional)
}
