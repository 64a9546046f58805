//! A study from its first look at the hosts to its last trial, or from
//! where it was interrupted.

use super::Laboratory;
use super::guard::{Guard, note_changes};
use super::lost::lost;
use super::metering;
use super::outlook::{Outlook, Surveyed, look_at_all, recorded};
use super::passes::{Ended, first_pass, second_pass};
use super::plan::{Blocks, Observer, Plan};
use super::power;
use super::profiles;
use super::slices::{self, time_of_trial};
use super::store::{HostsAfter, StudyWriter};
use super::trial::{Position, blank, fail, now_ms, trial};
use bytepath_host::{VERSION, differences};
use bytepath_meter::Chosen;
use bytepath_record::{
    Cell, Design, Facts, Fault, FaultKind, Restoration, Role, SCHEMA_VERSION, Schedule,
    SettingRecord, Study, StudyHeader, Trial, TrialStatus, WantedSetting, unit,
};
use bytepath_stats as stats;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Runs a study. What was measured before an error or the user's stop is on
/// disk and is returned with the fault.
pub fn conduct(
    laboratory: &Laboratory,
    plan: &Plan,
    observer: &mut dyn Observer,
) -> (Option<Study>, Result<(), Fault>) {
    let opened = prepare(laboratory, plan, observer);
    finish(laboratory, opened, observer)
}

/// Resumes a study that was interrupted: the trials that are missing, in
/// the order in which they would have come. Nothing that has ended, however it
/// ended, is repeated.
///
/// Refuses a study that is complete, and one that was started on another kernel,
/// another CPU or by another version of bytepath, because its trials would not
/// compare with those to come.
pub fn resume(
    laboratory: &Laboratory,
    folder: &Path,
    observer: &mut dyn Observer,
) -> (Option<Study>, Result<(), Fault>) {
    let opened = reopen(laboratory, folder, observer);
    finish(laboratory, opened, observer)
}

/// How far a study has come.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Reached {
    /// Trials that have ended.
    pub ended: usize,
    /// Trials that are missing.
    pub missing: usize,
    /// Profile trials that are missing; known once no other trial is.
    pub profiles: usize,
    /// Seconds that these take at least.
    pub left: f64,
}

impl Reached {
    /// Looks at the trials of a study.
    pub fn of(study: &Study) -> Reached {
        let (header, ended) = (&study.header, Ended::of(study));
        let stopped = stopped_early(study).is_some();
        let missing = if stopped { 0 } else { ended.missing(study) };
        let profiles = if missing == 0 { profiles::missing(study).len() } else { 0 };
        let each = header.profiling.as_ref().map_or(0.0, |p| header.schedule.warm_up + p.window);
        let left = missing as f64 * time_of_trial(&header.schedule) + profiles as f64 * each;
        Reached { ended: ended.trials.len(), missing, profiles, left }
    }

    /// Whether there is nothing left to run.
    pub fn is_all(&self) -> bool {
        self.missing + self.profiles == 0
    }
}

/// A study that can be run, or run on.
pub(super) struct Opened {
    pub study: Study,
    pub writer: StudyWriter,
    pub guard: Guard,
    outlook: Outlook,
    /// The blocks that it shares with others.
    shared: Option<Arc<Blocks>>,
}

fn finish(
    laboratory: &Laboratory,
    opened: Result<Opened, Fault>,
    observer: &mut dyn Observer,
) -> (Option<Study>, Result<(), Fault>) {
    match opened {
        Ok(opened) => {
            let mut run = Run { laboratory, observer, opened };
            let result = run.all().and_then(|()| run.power_log());
            let end = run.end();
            (Some(run.opened.study), result.and(end))
        }
        Err(fault) => (None, Err(fault)),
    }
}

fn prepare(
    laboratory: &Laboratory,
    plan: &Plan,
    observer: &mut dyn Observer,
) -> Result<Opened, Fault> {
    let baseline = plan.cells.iter().find(|cell| cell.id == plan.baseline);
    let baseline =
        baseline.ok_or_else(|| Fault::new(FaultKind::Usage, "there is nothing to run"))?;
    let (mut guard, left_behind) = Guard::begin(laboratory, &plan.settings, &plan.cells)?;
    observer.settings(guard.records(), &left_behind);
    // What an emulated processor copies bounds nothing.
    let emulation = laboratory.testbed.emulation();
    let measure = emulation.is_none();
    let (surveyed, ceiling) = look_at_all(laboratory, &plan.cells, baseline, measure)?;
    let (facts, kernels) = recorded(&surveyed);
    let properties = laboratory.testbed.properties();
    let (meters, power) = metering::for_header(&plan.meters)?;
    let (power, resting) = power::settle(&power, &facts, properties.hosts_apart)?;
    let remarks = surveyed.iter().flat_map(|one| one.remarks.clone());
    let remarks: Vec<String> = remarks.chain(resting).collect();
    let header = StudyHeader {
        schema: SCHEMA_VERSION,
        bytepath: VERSION.to_owned(),
        title: plan.title.clone(),
        started_ms: now_ms(),
        testbed: plan.testbed.clone(),
        instructions_per_second: emulation.as_ref().and_then(|one| one.instructions_per_second),
        functional: emulation.map(|emulation| emulation.because),
        cells: plan.cells.clone(),
        baseline: plan.baseline.clone(),
        schedule: plan.schedule.clone(),
        judgement: plan.judgement,
        meters,
        source: plan.source.clone(),
        profiling: plan.profiling.clone(),
        power,
        facts,
        kernels,
        ceiling,
        settings: guard.records().to_vec(),
        fingerprint: guard.fingerprint(),
    };
    // What is requested by name must run, and so must the baseline.
    let mut outlook = Outlook::of(surveyed, baseline);
    guard.alike = outlook.alike(laboratory, &mut guard, &header.cells)?;
    for cell in header.cells.iter().filter(|cell| plan.mandatory || cell.id == header.baseline) {
        if let Some(obstacle) = outlook.obstacle(laboratory, &mut guard, cell)? {
            return Err(obstacle.fault(cell));
        }
    }
    let mut writer = StudyWriter::create(&plan.folder, &header)?;
    for remark in &remarks {
        writer.remark(remark)?;
    }
    let study = Study { header, trials: Vec::new(), profiles: Vec::new(), remarks };
    Ok(Opened { study, writer, guard, outlook, shared: plan.shared.clone() })
}

fn reopen(
    laboratory: &Laboratory,
    folder: &Path,
    observer: &mut dyn Observer,
) -> Result<Opened, Fault> {
    let (mut writer, mut study) = StudyWriter::reopen(folder)?;
    let header = &study.header;
    let complete = |how: &str| {
        Fault::new(FaultKind::Usage, format!("the study {} is complete: {how}", folder.display()))
            .remedy("`bytepath show` prints its report")
    };
    if study.trials.iter().any(|trial| trial.pair.is_some()) {
        let text = format!("the study {} was merged from several", folder.display());
        return Err(Fault::new(FaultKind::Usage, text).remedy("resume those it was merged from"));
    }
    let ended = Ended::of(&study);
    // A study that ran every block was stopped by nothing.
    let stopped = stopped_early(&study).filter(|_| ended.missing(&study) > 0);
    if let Some(why) = &stopped
        && !study.remarks.iter().any(|remark| remark.contains(why))
    {
        writer.remark(&format!("stopped early: {why}"))?;
    }
    if profiles::missing(&study).is_empty() {
        if let Some(why) = stopped {
            return Err(complete(&why));
        }
        if ended.missing(&study) == 0 {
            return Err(complete(&format!("all {} trials have ended", ended.trials.len())));
        }
    }
    let baseline = header.cells.iter().find(|cell| cell.id == header.baseline);
    let baseline = baseline.ok_or_else(|| {
        let text = format!("the baseline '{}' is not a cell of this study", header.baseline);
        Fault::new(FaultKind::Storage, text)
    })?;
    let (mut guard, left_behind) =
        Guard::begin(laboratory, &again(&header.settings), &header.cells)?;
    observer.settings(guard.records(), &left_behind);
    let (surveyed, _) = look_at_all(laboratory, &header.cells, baseline, false)?;
    if let Some(difference) = difference(header, &surveyed) {
        let text = format!("cannot resume the study {} here: {difference}", folder.display());
        return Err(Fault::new(FaultKind::Unsupported, text)
            .remedy("resume it where it was started, or start a new study"));
    }
    let mut outlook = Outlook::of(surveyed, baseline);
    guard.alike = outlook.alike(laboratory, &mut guard, &header.cells)?;
    let (count, total) = (ended.trials.len(), ended.trials.len() + ended.missing(&study));
    let taken = study.profiles.len();
    let remark = match taken {
        0 => format!("interrupted and resumed after {count} of {total} trials"),
        _ => format!("interrupted and resumed after {count} trials and {taken} profiles"),
    };
    writer.remark(&remark)?;
    study.remarks.push(remark);
    // A study of before there were fingerprints has none to compare with.
    let header = &study.header;
    if !header.fingerprint.is_empty() {
        for change in differences(&header.fingerprint, &guard.fingerprint()) {
            let remark = format!("when the study was resumed, {change}");
            writer.remark(&remark)?;
            study.remarks.push(remark);
        }
    }
    Ok(Opened { study, writer, guard, outlook, shared: None })
}

/// What a study had set, to be set again; what its testbed requests, it requests by
/// itself. What could not be set then is not an error
/// if it cannot be now.
fn again(records: &[SettingRecord]) -> Vec<WantedSetting> {
    let want = |record: &SettingRecord| WantedSetting {
        setting: record.setting.clone(),
        profile: record.profile.clone(),
        optional: record.skipped.is_some(),
        obstacle: None,
        host: record.host,
    };
    records.iter().filter(|record| !record.setting.is_of_testbed()).map(want).collect()
}

/// What differs between the hosts a study was started on and these, if it matters.
fn difference(header: &StudyHeader, now: &[Surveyed]) -> Option<String> {
    if header.bytepath != VERSION {
        return Some(format!("bytepath was {} and is {VERSION}", header.bytepath));
    }
    now.iter().find_map(|now| {
        let named = header.kernels.iter().find(|hosts| now.kernel.as_ref() == Some(&hosts.kernel));
        let then = named.map_or(&header.facts, |hosts| &hosts.facts);
        let difference = host_difference(then, now.facts.as_deref().unwrap_or_default())?;
        match &now.kernel {
            Some(kernel) => Some(format!("with kernel {}, {difference}", kernel.name)),
            None => Some(difference),
        }
    })
}

pub(super) fn host_difference(then: &[Facts], now: &[Facts]) -> Option<String> {
    for (role, (then, now)) in Role::ALL.into_iter().zip(then.iter().zip(now)) {
        for (what, then, now) in [
            ("kernel", &then.kernel_release, &now.kernel_release),
            ("kernel build", &then.kernel_version, &now.kernel_version),
            ("architecture", &then.architecture, &now.architecture),
            ("CPU model", &then.cpu_model, &now.cpu_model),
        ] {
            if then != now {
                return Some(format!("the {role}'s {what} was '{then}' and is '{now}'"));
            }
        }
    }
    None
}

/// Why the declared rule ends a study at the end of a block. A rule
/// that was asked and said no is not asked again after later blocks were started.
fn stopped_early(study: &Study) -> Option<String> {
    let header = &study.header;
    header.schedule.stopping?;
    let ended = Ended::of(study);
    let last = (0..header.schedule.blocks).take_while(|block| ended.has(*block)).last()?;
    let whole = header.cells.iter().all(|cell| !ended.is_missing(cell, last));
    if whole { stats::should_stop(study) } else { None }
}

/// A study that is under way.
pub(super) struct Run<'r, 'a> {
    pub laboratory: &'r Laboratory<'a>,
    pub observer: &'r mut dyn Observer,
    pub opened: Opened,
}

impl Run<'_, '_> {
    /// Runs every trial that is missing.
    fn all(&mut self) -> Result<(), Fault> {
        self.note_unavailable()?;
        if stopped_early(&self.opened.study).is_none() {
            // The second pass is known when the first one has ended.
            for pass in [first_pass, second_pass] {
                let study = &self.opened.study;
                let ended = Ended::of(study);
                let missing = pass(study).into_iter().map(|(block, cells)| {
                    let cells = cells.into_iter().filter(|cell| ended.is_missing(cell, block));
                    (block, cells.cloned().collect())
                });
                let missing: Vec<(u32, Vec<Cell>)> = missing.collect();
                self.pass(&missing)?;
            }
        }
        self.profiles()
    }

    /// Runs these blocks of one pass.
    fn pass(&mut self, blocks: &[(u32, Vec<Cell>)]) -> Result<(), Fault> {
        let header = self.opened.study.header.clone();
        let schedule = &header.schedule;
        let total = blocks.iter().map(|(_, cells)| cells.len()).sum();
        if total == 0 {
            return Ok(());
        }
        if schedule.first_pass().is_some_and(|first| blocks[0].0 >= first) {
            self.note_second_pass()?;
        }
        self.observer.begins(&header, total);
        let mut clock = Clock { begin: Instant::now(), done: 0, total };
        for (block, cells) in blocks.iter().filter(|(_, cells)| !cells.is_empty()) {
            let (block, missing) = (*block, cells.iter().collect::<Vec<&Cell>>());
            if self.opened.shared.as_ref().is_some_and(|blocks| !blocks.take()) {
                break;
            }
            self.laboratory.testbed.begin_block();
            match schedule.design {
                Design::Trials => self.trials(&missing, block, &mut clock)?,
                Design::Slices { slice } => self.slices(&missing, slice, block, &mut clock)?,
            }
            self.observer.block_ends(&self.opened.study);
            if block + 1 < schedule.blocks && self.stop_early(&clock)? {
                break;
            }
        }
        Ok(())
    }

    /// Tells which cells the first pass chose. A study that is resumed has said so.
    fn note_second_pass(&mut self) -> Result<(), Fault> {
        let study = &self.opened.study;
        let first = study.header.schedule.first_pass();
        let Some((first, pass)) = first.zip(stats::second_pass(study)) else { return Ok(()) };
        let chosen: Vec<&str> = pass.chosen.iter().map(|cell| cell.0.as_str()).collect();
        let remark = format!(
            "within its budget: {first} blocks of all cells, then {} more of the leaders \
             and of cells still undecided; judged by the later ones alone: {}. Each comparison \
             is made at half of the declared error, since the first blocks chose which ones judge it",
            pass.blocks,
            chosen.join(", ")
        );
        if self.opened.study.remarks.contains(&remark) {
            return Ok(());
        }
        self.observer.second_pass(&remark);
        self.remark(remark)
    }

    /// Writes down which cells cannot run, and why.
    fn note_unavailable(&mut self) -> Result<(), Fault> {
        let header = self.opened.study.header.clone();
        let ended = Ended::of(&self.opened.study);
        for cell in header.cells.iter().filter(|cell| !ended.unable.contains(&cell.id)) {
            let Opened { outlook, guard, .. } = &mut self.opened;
            if let Some(obstacle) = outlook.obstacle(self.laboratory, guard, cell)? {
                let (reason, remedy) = (obstacle.reason, obstacle.remedy);
                let status = TrialStatus::Unavailable { reason, remedy };
                let row = Trial { status, ..blank(cell, self.position(0)) };
                self.keep(vec![row])?;
            }
        }
        Ok(())
    }

    /// One block of whole trials, one after the other.
    fn trials(&mut self, cells: &[&Cell], block: u32, clock: &mut Clock) -> Result<(), Fault> {
        let meters = self.meters_that_count();
        let schedule = self.opened.study.header.schedule.clone();
        for cell in cells {
            self.observer.trial_begins(clock.done + 1, &cell.id, block + 1);
            let position = self.position(block);
            let guard = &mut self.opened.guard;
            let ended = trial(self.laboratory, guard, cell, &meters, &schedule, position)?;
            // Before it is written down: a study that ends here, because its host is not
            // back or is taken from it, repeats the trial when it is resumed.
            self.regain(lost(Some(&ended)))?;
            self.keep(vec![ended])?;
            self.notify(clock, 1);
            self.regain(lost(self.opened.study.trials.last()))?;
        }
        Ok(())
    }

    /// One block whose cells take turns. It is written down as a whole, because
    /// a part of it could not be completed by slices of another hour.
    fn slices(
        &mut self,
        cells: &[&Cell],
        slice: f64,
        block: u32,
        clock: &mut Clock,
    ) -> Result<(), Fault> {
        let meters = self.meters_that_count();
        let schedule = self.opened.study.header.schedule.clone();
        self.observer.trial_begins(clock.done + 1, &cells[0].id, block + 1);
        let position = self.position(block);
        let ended = slices::block(
            self.laboratory,
            &self.opened.guard,
            cells,
            &meters,
            &schedule,
            slice,
            position,
        )?;
        self.keep(ended)?;
        self.notify(clock, cells.len());
        Ok(())
    }

    /// Notifies the observer of the last trials, which are on disk by now.
    fn notify(&mut self, clock: &mut Clock, count: usize) {
        let trials = &self.opened.study.trials;
        let first = clock.done + 1;
        clock.done += count;
        let ended = &trials[trials.len().saturating_sub(count)..];
        for (number, trial) in (first..).zip(ended) {
            self.observer.trial_ends(number, trial, clock.left());
        }
    }

    /// Asks the declared rule, and writes down what it saves.
    fn stop_early(&mut self, clock: &Clock) -> Result<bool, Fault> {
        let Some(why) = stopped_early(&self.opened.study) else {
            return Ok(false);
        };
        let saved = unit::seconds(Duration::from_secs(clock.left().as_secs()));
        let remark = format!("stopped early: {why}; about {saved} saved");
        self.opened.writer.remark(&remark)?;
        self.observer.stops_early(&remark);
        self.opened.study.remarks.push(remark);
        Ok(true)
    }

    /// The meters of a trial that counts.
    fn meters_that_count(&self) -> Vec<Chosen> {
        self.meters().into_iter().filter(|chosen| !chosen.meter.apart).collect()
    }

    /// The meters that were requested.
    pub(super) fn meters(&self) -> Vec<Chosen> {
        metering::of_trial(self.laboratory.meters, &self.opened.study.header)
    }

    pub(super) fn position(&self, block: u32) -> Position {
        let study = &self.opened.study;
        Position { block, order: (study.trials.len() + study.profiles.len()) as u32 }
    }

    /// Writes down what the reader of the study should know.
    pub(super) fn remark(&mut self, remark: String) -> Result<(), Fault> {
        self.opened.writer.remark(&remark)?;
        self.opened.study.remarks.push(remark);
        Ok(())
    }

    /// The host as the run leaves it: what it was set to at the end, and what
    /// became of the study's own settings.
    fn end(&mut self) -> Result<(), Fault> {
        let changes = self.opened.guard.look();
        let fingerprint = self.opened.guard.fingerprint();
        let settings = self.opened.guard.end()?;
        let changes = changes?;
        for change in changes {
            self.remark(format!("the host changed after the last trial: {change}"))?;
        }
        self.observer.put_back(&settings);
        for row in settings.iter().filter(|row| row.outcome != Restoration::Restored) {
            self.remark(format!("settings of the host: {row}"))?;
        }
        let pending = settings.iter().find(|row| row.is_pending()).map(ToString::to_string);
        let schema = SCHEMA_VERSION;
        self.opened.writer.after(&HostsAfter { schema, fingerprint, settings })?;
        match pending {
            None => Ok(()),
            Some(row) => Err(Fault::new(FaultKind::System, row)
                .remedy("`bytepath restore` tries again; the study itself is complete")),
        }
    }

    /// Foreign changes to the host while these trials ran, noted in them and
    /// in the study.
    pub(super) fn watch_host(&mut self, trials: &mut [Trial]) -> Result<(), Fault> {
        if !trials.iter().any(|trial| trial.status == TrialStatus::Measured) {
            return Ok(());
        }
        let changes = match self.opened.guard.look() {
            // What was done to a host that is lost is not known.
            Err(lost) if lost.kind == FaultKind::PeerLost => {
                trials.iter_mut().for_each(|trial| fail(trial, lost.clone()));
                return Ok(());
            }
            changes => changes?,
        };
        note_changes(trials, &changes);
        let Some(first) = trials.first().filter(|_| !changes.is_empty()) else { return Ok(()) };
        let remark = format!(
            "the host changed during block {} ({}): {}; trials before and after it were not \
             run on the same host",
            first.block + 1,
            first.cell,
            changes.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")
        );
        self.observer.host_changed(&remark);
        self.remark(remark)
    }

    fn keep(&mut self, mut trials: Vec<Trial>) -> Result<(), Fault> {
        self.watch_host(&mut trials)?;
        let header = &self.opened.study.header;
        let before = &self.opened.study.trials;
        let judge = |trial: Trial| match header.cells.iter().find(|cell| cell.id == trial.cell) {
            Some(cell) => {
                judged(trial, cell, &header.schedule, header.functional.is_some(), before)
            }
            None => trial,
        };
        let trials: Vec<Trial> = trials.into_iter().map(judge).collect();
        self.opened.writer.append(&trials)?;
        self.opened.study.trials.extend(trials);
        Ok(())
    }
}

/// A trial that an event invalidated is marked before anyone looks at its value.
/// Where no speed is measured, events invalidate nothing and are only reported. `before` are the
/// study's trials of its kind up to now, of all cells.
pub(super) fn judged(
    mut trial: Trial,
    cell: &Cell,
    schedule: &Schedule,
    functional: bool,
    before: &[Trial],
) -> Trial {
    let of_cell = |t: &&Trial| t.cell == cell.id && t.status == TrialStatus::Measured;
    let earlier: Vec<&Trial> = before.iter().filter(of_cell).collect();
    let events = stats::judge_events(&trial, cell, schedule, &earlier);
    if functional {
        trial.warnings.extend(events);
        return trial;
    }
    if events.is_empty() {
        return trial;
    }
    Trial { status: TrialStatus::Rejected { events }, ..trial }
}

/// How long the rest will take, judged by what is done.
pub(super) struct Clock {
    pub begin: Instant,
    pub done: usize,
    pub total: usize,
}

impl Clock {
    pub(super) fn left(&self) -> Duration {
        let each = self.begin.elapsed().div_f64(self.done.max(1) as f64);
        each * self.total.saturating_sub(self.done) as u32
    }
}
