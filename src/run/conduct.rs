//! A study from its first look at the hosts to its last trial.

use super::Laboratory;
use super::agent::BUILD;
use super::remote::{Remotes, unexpected};
use super::slices;
use super::store::StudyWriter;
use super::trial::{Position, blank, now_ms, set_up_link, trial};
use crate::meter::Meter;
use crate::path;
use crate::record::wire::{Reply, Request};
use crate::record::{
    Cell, CellId, CopyCeiling, Design, Facts, Fault, FaultKind, Judgement, Role, SCHEMA_VERSION,
    Schedule, Study, StudyHeader, Support, Trial, TrialStatus,
};
use crate::spec;
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// What to run.
#[derive(Clone, Debug)]
pub struct Plan {
    /// What the study is about; may be empty.
    pub title: String,
    /// The cells, in the order in which reports show them.
    pub cells: Vec<Cell>,
    /// The cell all others are compared with.
    pub baseline: CellId,
    /// Blocks, window, seed.
    pub schedule: Schedule,
    /// Margin, confidence, exponents.
    pub judgement: Judgement,
    /// Names of the meters.
    pub meters: Vec<String>,
    /// True if every cell was asked for by name: one that cannot run here is
    /// an error then, and not a row with a reason.
    pub mandatory: bool,
    /// Folder for the study.
    pub folder: PathBuf,
}

/// Who watches a study.
pub trait Observer {
    /// The hosts are known; `trials` will be run.
    fn begins(&mut self, header: &StudyHeader, trials: usize);
    /// A trial starts: its number (from 1), cell, block (from 1).
    fn trial_begins(&mut self, number: usize, cell: &CellId, block: u32);
    /// A trial has ended; so much time the rest will take.
    fn trial_ends(&mut self, number: usize, trial: &Trial, left: Duration);
}

/// Runs a study. What was measured before an error or the user's stop is on
/// disk and comes back beside the fault.
pub fn conduct(
    laboratory: &Laboratory,
    plan: &Plan,
    observer: &mut dyn Observer,
) -> (Option<Study>, Result<(), Fault>) {
    let (header, mut writer) = match prepare(laboratory, plan) {
        Ok(prepared) => prepared,
        Err(fault) => return (None, Err(fault)),
    };
    let mut study = Study { header, trials: Vec::new(), remarks: Vec::new() };
    let result = run_all(laboratory, plan, &mut study, &mut writer, observer);
    (Some(study), result)
}

/// Looks at both hosts of a testbed, with a link of these settings.
pub fn survey(laboratory: &Laboratory, cell: &Cell) -> Result<Vec<Facts>, Fault> {
    let (facts, _) = look(laboratory, cell, false)?;
    Ok(facts)
}

fn prepare(laboratory: &Laboratory, plan: &Plan) -> Result<(StudyHeader, StudyWriter), Fault> {
    let first = plan
        .cells
        .first()
        .ok_or_else(|| Fault::new(FaultKind::Usage, "there is nothing to run"))?;
    let (facts, ceiling) = look(laboratory, first, true)?;
    let header = StudyHeader {
        schema: SCHEMA_VERSION,
        bytepath: BUILD.to_owned(),
        title: plan.title.clone(),
        started_ms: now_ms(),
        testbed: laboratory.testbed.name().to_owned(),
        cells: plan.cells.clone(),
        baseline: plan.baseline.clone(),
        schedule: plan.schedule.clone(),
        judgement: plan.judgement,
        meters: plan.meters.clone(),
        facts,
        ceiling,
    };
    check_runnable(laboratory, plan, &header)?;
    let writer = StudyWriter::create(&plan.folder, &header)?;
    Ok((header, writer))
}

/// What is asked for by name must run, and so must the baseline.
fn check_runnable(laboratory: &Laboratory, plan: &Plan, header: &StudyHeader) -> Result<(), Fault> {
    for cell in &plan.cells {
        let needed = plan.mandatory || cell.id == plan.baseline;
        if let Support::No { reason, remedy } = support(laboratory, header, cell)
            && needed
        {
            return Err(Fault::new(
                FaultKind::Unsupported,
                format!("path {} cannot run here: {reason}", cell.id),
            )
            .remedy(remedy));
        }
    }
    Ok(())
}

fn look(
    laboratory: &Laboratory,
    cell: &Cell,
    measure: bool,
) -> Result<(Vec<Facts>, Option<CopyCeiling>), Fault> {
    let mut remotes = Remotes::raise(laboratory.testbed, &laboratory.program, laboratory.stop)?;
    set_up_link(&mut remotes, cell)?;
    let mut facts = Vec::new();
    for role in Role::ALL {
        let device = remotes.raised.device(role);
        match remotes.ask(role, &Request::Survey { device })? {
            Reply::Facts(found) => facts.push(*found),
            other => return Err(unexpected(role, &other)),
        }
    }
    if !measure {
        return Ok((facts, None));
    }
    let size = cell.stream.message_size.max(cell.stream.read_size);
    let request = Request::Ceiling { cpu: cell.placement.receiver, size };
    match remotes.ask(Role::Receiver, &request)? {
        Reply::Ceiling(ceiling) => Ok((facts, Some(ceiling))),
        other => Err(unexpected(Role::Receiver, &other)),
    }
}

fn run_all(
    laboratory: &Laboratory,
    plan: &Plan,
    study: &mut Study,
    writer: &mut StudyWriter,
    observer: &mut dyn Observer,
) -> Result<(), Fault> {
    let meters: Vec<&'static dyn Meter> = laboratory
        .meters
        .iter()
        .copied()
        .filter(|m| plan.meters.contains(&m.name().into()))
        .collect();
    let (able, unable): (Vec<&Cell>, Vec<&Cell>) =
        plan.cells.iter().partition(|cell| support(laboratory, &study.header, cell).is_yes());
    let schedule = &plan.schedule;
    let total = able.len() * schedule.blocks as usize;
    observer.begins(&study.header, total);

    for cell in unable {
        if let Support::No { reason, remedy } = support(laboratory, &study.header, cell) {
            let position = Position { block: 0, order: study.trials.len() as u32 };
            let status = TrialStatus::Unavailable { reason, remedy };
            keep(study, writer, Trial { status, ..blank(&cell.id, position) })?;
        }
    }
    let order = spec::order(able.len(), schedule.blocks, schedule.seed);
    let mut clock = Clock { begin: Instant::now(), done: 0, total };
    for block in 0..schedule.blocks {
        let position = |study: &Study| Position { block, order: study.trials.len() as u32 };
        match schedule.design {
            Design::Trials => {
                for (_, index) in order.iter().filter(|(b, _)| *b == block) {
                    let cell = able[*index];
                    observer.trial_begins(clock.done + 1, &cell.id, block + 1);
                    let ended = trial(laboratory, cell, &meters, schedule, position(study))?;
                    clock.tell(observer, &ended);
                    keep(study, writer, ended)?;
                }
            }
            Design::Slices { slice } => {
                observer.trial_begins(clock.done + 1, &able[0].id, block + 1);
                let ended =
                    slices::block(laboratory, &able, &meters, schedule, slice, position(study))?;
                for trial in ended {
                    clock.tell(observer, &trial);
                    keep(study, writer, trial)?;
                }
            }
        }
    }
    Ok(())
}

/// How long the rest will take, judged by what is done.
struct Clock {
    begin: Instant,
    done: usize,
    total: usize,
}

impl Clock {
    fn tell(&mut self, observer: &mut dyn Observer, ended: &Trial) {
        self.done += 1;
        let each = self.begin.elapsed().div_f64(self.done as f64);
        let left = self.total.saturating_sub(self.done) as u32;
        observer.trial_ends(self.done, ended, each * left);
    }
}

fn keep(study: &mut Study, writer: &mut StudyWriter, trial: Trial) -> Result<(), Fault> {
    writer.append(&trial)?;
    study.trials.push(trial);
    Ok(())
}

/// Whether both halves of a cell can run on the hosts surveyed.
fn support(laboratory: &Laboratory, header: &StudyHeader, cell: &Cell) -> Support {
    let probe = |role: Role| {
        let facts = header.facts.get(role as usize);
        match (path::find(laboratory.paths, &cell.half(role).path), facts) {
            (Some(path), Some(facts)) => path.probe(role, facts),
            _ => Support::no("no such path, or no facts of its host", "report this as a bug"),
        }
    };
    probe(Role::Sender).and(probe(Role::Receiver))
}
