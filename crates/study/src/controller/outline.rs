//! The outline of a dry run: the cells, which of them cannot run, the order and time of the others,
//! and the settings that would be made.

use super::deployment::Deployment;
use super::pilots::PilotTrials;
use super::preflight::{Judged, cannot_run, obstacles};
use super::preparation::{Previewed, previewed};
use super::queues::Common;
use super::request::{ProfileTrials, planned_blocks};
use crate::{Laboratory, Plan, meters_for_header, time_of_trial};
use bytepath_engine::path;
use bytepath_record::{Cell, CellId, Fault, Judgement, Power, Profiling, Schedule, SettingRecord};
use bytepath_spec as spec;
use schemars::JsonSchema;
use serde::Serialize;
use std::path::Path;
use std::sync::atomic::AtomicBool;

/// A plan as a person and `--dry-run --json` see it.
#[derive(Serialize, JsonSchema)]
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
    /// The cells that cannot run here.
    pub unable: Vec<Unable<'a>>,
    /// Why the study would end before its first trial.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub obstacle: Option<Fault>,
    /// The cells of each block that can run, in the order in which they do.
    pub order: Vec<Vec<&'a CellId>>,
    /// `None` where a cell that can run ends by a count, and takes as long as that takes.
    pub seconds_per_trial: Option<f64>,
    /// Without the time to raise a testbed and to drain a stream.
    pub seconds: Option<f64>,
    /// Trials before the first block that find peaks, where a rate is a part of one, and their time.
    pub pilots: usize,
    pub pilot_seconds: f64,
    /// Trials that are profiled after the last block, at most, and their time.
    pub profile_trials: f64,
    pub profile_seconds: f64,
    /// More of them, at most, in place of rejected ones.
    pub profile_retakes: f64,
    /// Settings of the hosts for the whole study.
    pub settings: Vec<SettingRecord>,
    /// Settings for the trials of each cell.
    pub prepared: Vec<Prepared<'a>>,
    /// The GPUs whose memory cells take, and where they are.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub gpus: Vec<String>,
}

/// A cell that cannot run, and why.
#[derive(Serialize, JsonSchema)]
pub struct Unable<'a> {
    pub cell: &'a CellId,
    pub fault: Fault,
}

/// What would be set before each trial of a cell, and restored after it.
#[derive(Serialize, JsonSchema)]
pub struct Prepared<'a> {
    pub cell: &'a CellId,
    #[serde(flatten)]
    pub settings: Preview,
    /// What cannot be known before some of it is made.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub unseen: Vec<String>,
}

/// Settings as text, or why the cell cannot run.
#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Preview {
    Settings(Vec<String>),
    Fault(String),
}

impl<'a> Prepared<'a> {
    fn fault(cell: &'a CellId, why: impl ToString) -> Self {
        Prepared { cell, settings: Preview::Fault(why.to_string()), unseen: Vec::new() }
    }
}

impl<'a> Outline<'a> {
    /// Judges cells and previews settings on the hosts of the deployment, or with `over` on a link
    /// over this device of this machine, and changes nothing there.
    pub fn of(
        plan: &'a Plan,
        deployment: &Deployment,
        over: Option<&str>,
    ) -> Result<Outline<'a>, Fault> {
        let schedule = &plan.schedule;
        let count = plan.cells.len();
        let stop = AtomicBool::new(false);
        let laboratory = deployment.laboratory(&stop)?;
        let (settings, infeasible) = previewed_settings(plan, deployment)?;
        let (unable, judged, lost) = judge(plan, &laboratory, settings.clone(), over);
        let is_able = |cell: &CellId| !unable.iter().any(|unable| unable.cell == cell);
        let able: Vec<Cell> = plan.cells.iter().filter(|c| is_able(&c.id)).cloned().collect();
        let blocks = planned_blocks(schedule, able.len(), deployment.testbed());
        let order = spec::order(count, blocks, schedule.seed);
        let block = |pass: &[(u32, usize)]| {
            let cells = pass.iter().map(|(_, cell)| &plan.cells[*cell].id);
            cells.filter(|id| is_able(id)).collect::<Vec<_>>()
        };
        let mut order: Vec<Vec<&CellId>> = order.chunks(count.max(1)).map(block).collect();
        order.retain(|pass| !pass.is_empty());
        let is_timed = able.iter().all(|cell| cell.workload.options.number("count").is_none());
        let seconds_per_trial = is_timed.then(|| time_of_trial(schedule));
        let profiles = ProfileTrials::of(schedule, &able, plan.profiling.as_ref());
        let pilots = PilotTrials::of(schedule, &able);
        let (meters, power) = meters_for_header(&plan.meters)?;
        // Cells requested by name must be able to run, and so must the baseline.
        let is_needed = |one: &&Unable| plan.mandatory || *one.cell == plan.baseline;
        let needed = unable.iter().find(is_needed);
        let needed = needed.map(|one| cannot_run(one.cell, one.fault.clone()));
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
            seconds_per_trial,
            seconds: seconds_per_trial
                .map(|each| each * order.iter().map(Vec::len).sum::<usize>() as f64),
            order,
            obstacle: infeasible.or(lost).or(needed),
            pilots: pilots.trials,
            pilot_seconds: pilots.seconds(),
            profile_trials: profiles.trials,
            profile_seconds: profiles.trials * profiles.seconds_each,
            profile_retakes: profiles.retakes,
            settings,
            prepared: prepared(plan, &laboratory, &judged.common)?,
            gpus: judged.gpus.iter().map(ToString::to_string).collect(),
            unable,
        })
    }
}

/// Returns the records that the study's settings would have, and why they cannot be made.
fn previewed_settings(
    plan: &Plan,
    deployment: &Deployment,
) -> Result<(Vec<SettingRecord>, Option<Fault>), Fault> {
    let settings = [&plan.settings[..], &deployment.testbed().settings()].concat();
    if settings.is_empty() {
        return Ok((Vec::new(), None));
    }
    let mut stewards = deployment.stewards()?;
    Ok((stewards.preview(&settings)?, stewards.feasible(&settings).err()))
}

/// Returns the cells that cannot run, the feasibility of all, and why no cell can be judged.
fn judge<'a>(
    plan: &'a Plan,
    laboratory: &Laboratory,
    settings: Vec<SettingRecord>,
    over: Option<&str>,
) -> (Vec<Unable<'a>>, Judged, Option<Fault>) {
    let cells = &plan.cells;
    let (judged, lost) = match obstacles(laboratory, plan, settings, over) {
        Ok(judged) => (judged, None),
        Err(fault) => {
            let obstacles = vec![Some(fault.clone()); cells.len()];
            (Judged { obstacles, ..Judged::default() }, Some(fault))
        }
    };
    let unable = |(cell, fault): (&'a Cell, &Option<Fault>)| {
        Some(Unable { cell: &cell.id, fault: fault.clone()? })
    };
    (cells.iter().zip(&judged.obstacles).filter_map(unable).collect(), judged, lost)
}

fn prepared<'a>(
    plan: &'a Plan,
    laboratory: &Laboratory,
    common: &Common,
) -> Result<Vec<Prepared<'a>>, Fault> {
    let previews = previewed(laboratory, &plan.cells, common)?;
    let one = |(previewed, cell): (Result<Previewed, Fault>, &'a Cell)| {
        let cell_id = &cell.id;
        let Previewed { records, unseen } = match previewed {
            Err(fault) => return Prepared::fault(cell_id, fault),
            Ok(previewed) => previewed,
        };
        match records.iter().find(|record| is_lacking(cell, record)) {
            Some(lacking) => Prepared::fault(cell_id, lacking),
            None => {
                let settings = Preview::Settings(records.iter().map(ToString::to_string).collect());
                Prepared { cell: cell_id, settings, unseen }
            }
        }
    };
    Ok(previews.into_iter().zip(&plan.cells).map(one).collect())
}

/// True if a cell cannot run because this setting cannot be made.
fn is_lacking(cell: &Cell, record: &SettingRecord) -> bool {
    let of_path = path::to_requested(record.setting.clone());
    let mut wanted = cell.settings.iter().chain([&of_path]);
    let is_optional = wanted.any(|w| w.optional && w.setting == record.setting);
    record.skipped.is_some() && !is_optional
}
