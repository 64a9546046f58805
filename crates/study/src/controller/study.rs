//! Runs or resumes a study: check the hosts, run its blocks, profile, restore the hosts.

use super::agents::{check_stop, unless_stopped};
use super::guard::Guard;
use super::plan::{Laboratory, Observer, Plan};
use super::preflight::{
    Feasibility, Surveyed, cannot_run, facts_for_header, needed_meters, refuse_without,
    survey_hosts,
};
use super::progress::{CompletedTrials, stopped_early};
use super::request::planned_blocks;
use super::run::{Run, host_difference};
use super::trial::now_ms;
use super::trust::Acts;
use super::{metering, power, profiles};
use crate::store::StudyWriter;
use bytepath_engine::workload;
use bytepath_host::{CpuTimes, VERSION, differences};
use bytepath_record::{
    Cell, Fault, SCHEMA_VERSION, SettingRecord, Study, StudyHeader, WantedSetting, Work, joined,
};
use bytepath_stats as stats;
use bytepath_sys::Roots;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Runs a study. On error or cancellation, returns the trials completed so far (already on disk)
/// with the fault.
pub fn run_study(
    laboratory: &Laboratory,
    plan: &Plan,
    observer: &mut dyn Observer,
) -> (Option<Study>, Result<(), Fault>) {
    finish(begin(laboratory, plan, observer), laboratory)
}

/// A study opened to be resumed. No other process can write to it meanwhile.
pub struct OpenStudy {
    folder: PathBuf,
    writer: StudyWriter,
    study: Study,
}

impl OpenStudy {
    /// Opens a study. Refuses one that others may have written and that names commands, hosts,
    /// kernels or settings, unless it is `trusted`.
    pub fn open(folder: &Path, trusted: bool) -> Result<OpenStudy, Fault> {
        let (writer, study) = StudyWriter::reopen(folder)?;
        let StudyHeader { testbed, cells, power, settings, .. } = &study.header;
        let mut acts = Acts::of(cells, power);
        acts.testbed(testbed);
        settings_to_reapply(settings).iter().for_each(|wanted| acts.set(&wanted.setting));
        let what = format!("the study {}", folder.display());
        acts.check(&what, writer.stranger()?, trusted)?;
        Ok(OpenStudy { folder: folder.to_owned(), writer, study })
    }

    /// Returns the testbed as typed on the command line.
    pub fn testbed(&self) -> &str {
        &self.study.header.testbed
    }
}

/// Resumes an interrupted study: runs the missing trials in the order in which they would have
/// come. Nothing that has ended is repeated, however it ended.
///
/// Refuses a complete study, and one that was started on another kernel, another CPU or by another
/// version of bytepath, because its trials would not compare with those to come.
pub fn resume_study(
    laboratory: &Laboratory,
    study: OpenStudy,
    observer: &mut dyn Observer,
) -> (Option<Study>, Result<(), Fault>) {
    finish(reopen(laboratory, study, observer), laboratory)
}

fn finish(
    begun: Result<Run<'_, '_>, Fault>,
    laboratory: &Laboratory,
) -> (Option<Study>, Result<(), Fault>) {
    let (study, result) = begun.map_or_else(|fault| (None, Err(fault)), Run::finish);
    (study, result.map_err(|fault| unless_stopped(laboratory.stop, fault)))
}

impl Run<'_, '_> {
    fn finish(mut self) -> (Option<Study>, Result<(), Fault>) {
        let result = self.run_all().and_then(|()| self.power_log());
        // The hosts are restored in any case.
        let end = self.end();
        (Some(self.study), result.and(end))
    }

    /// Runs every trial that is missing.
    fn run_all(&mut self) -> Result<(), Fault> {
        self.note_unavailable()?;
        if stopped_early(&self.study).is_none() {
            self.find_loads()?;
            self.run_blocks()?;
        }
        self.profiles()
    }
}

/// Makes the settings, surveys the hosts, checks what can run on them, and creates the folder.
fn begin<'r, 'a>(
    laboratory: &'r Laboratory<'a>,
    plan: &Plan,
    observer: &'r mut dyn Observer,
) -> Result<Run<'r, 'a>, Fault> {
    let baseline = plan.cells.iter().find(|cell| cell.id == plan.baseline);
    let baseline = baseline.ok_or_else(|| Fault::usage("there is nothing to run"))?;
    if let Some(wait) = plan.wait_idle {
        wait_until_idle(laboratory, wait, observer)?;
    }
    let before = programs(laboratory);
    let (mut guard, left_behind) = Guard::begin(laboratory, &plan.settings)?;
    observer.settings(&guard.records, &left_behind);
    let (surveyed, mut header, mut remarks) = header(laboratory, plan, baseline, &guard)?;
    let force = header.schedule.force;
    let mut feasibility = Feasibility::of(laboratory, surveyed, baseline, force);
    let gpus = feasibility.gpus(&header.cells);
    remarks.extend(gpus.iter().map(ToString::to_string));
    guard.hold_gpus(gpus)?;
    guard.common = feasibility.common_nic_setup(&mut guard, &header.cells)?;
    let mut able = 0;
    for cell in &header.cells {
        match feasibility.obstacle(&mut guard, cell)? {
            // Cells requested by name must be able to run, and so must the baseline.
            Some(obstacle) if plan.mandatory || cell.id == header.baseline => {
                return Err(cannot_run(&cell.id, obstacle));
            }
            Some(_) => {}
            None => able += 1,
        }
    }
    header.schedule.blocks = planned_blocks(&header.schedule, able, laboratory.testbed);
    if let Some(busy) = before.and_then(|before| busy_since(&before)) {
        observer.remark(&format!("{busy}; trials that this disturbs are marked with ~"));
    }
    check_stop(laboratory.stop)?;
    // The checks above were the first to open a NIC, and only then did its interrupts appear.
    guard.check_for_changes()?;
    header.fingerprint = guard.fingerprint();
    let mut writer = StudyWriter::create(&plan.folder, &header)?;
    for remark in &remarks {
        writer.remark(remark)?;
    }
    let study = Study { header, trials: Vec::new(), profiles: Vec::new(), remarks };
    let shared = plan.shared.clone();
    let cpu_times = cpu_times(laboratory);
    Ok(Run { laboratory, observer, study, writer, guard, feasibility, shared, cpu_times })
}

/// Returns the CPU time of all programs so far, if the programs of this machine run next to the
/// study's hosts.
fn cpu_times(laboratory: &Laboratory) -> Option<CpuTimes> {
    let apart = laboratory.testbed.properties().hosts_apart;
    (!apart).then(|| CpuTimes::read(&Roots::real().proc))
}

/// From how many CPUs used by other programs this machine counts as busy.
const BUSY: f64 = stats::FOREIGN_LIMIT;

/// How long programs are watched at least.
const MOMENT: Duration = Duration::from_secs(1);

/// Returns the CPU time of all programs so far, if others on this machine can disturb the study.
fn programs(laboratory: &Laboratory) -> Option<CpuTimes> {
    cpu_times(laboratory).filter(|_| laboratory.testbed.emulation().is_none())
}

/// Returns what other programs have used of this machine since `before`, if that disturbs a study.
/// Trials name the programs that disturbed them themselves.
fn busy_since(before: &CpuTimes) -> Option<String> {
    std::thread::sleep(MOMENT.saturating_sub(before.age()));
    let programs = CpuTimes::read(&Roots::real().proc).since(before, std::process::id());
    let all: f64 = programs.iter().map(|program| program.cpus).sum();
    let busiest = joined(programs.iter().take(3), ", ");
    (all >= BUSY)
        .then(|| format!("other programs keep {all:.1} CPUs of this machine busy: {busiest}"))
}

/// Waits until no other program disturbs a study, at most for `wait`.
fn wait_until_idle(
    laboratory: &Laboratory,
    wait: Duration,
    observer: &mut dyn Observer,
) -> Result<(), Fault> {
    let begun = Instant::now();
    while let Some(busy) = programs(laboratory).and_then(|before| busy_since(&before)) {
        check_stop(laboratory.stop)?;
        match wait.saturating_sub(begun.elapsed()) {
            Duration::ZERO => break,
            left => observer.waits(&busy, left),
        }
    }
    Ok(())
}

/// Returns the header of a study, with the survey of the hosts that it is based on, and remarks.
fn header(
    laboratory: &Laboratory,
    plan: &Plan,
    baseline: &Cell,
    guard: &Guard,
) -> Result<(Vec<Surveyed>, StudyHeader, Vec<String>), Fault> {
    // Measuring the ceiling takes a second, and is skipped if it says nothing: on an emulated
    // processor, for work other than bytes, or if without meters only rates are requested.
    let emulation = laboratory.testbed.emulation();
    let copies = emulation.is_none() && !plan.meters.is_empty();
    let copies = copies && workload::of(baseline)?.work == Work::Bytes;
    let needed = needed_meters(laboratory, plan);
    let tried = !needed.is_empty();
    let (surveyed, ceiling) = survey_hosts(laboratory, &plan.cells, baseline, tried, copies)?;
    let (facts, kernels) = facts_for_header(&surveyed);
    needed.into_iter().try_for_each(|meter| refuse_without(meter, &facts))?;
    let (meters, power) = metering::meters_for_header(&plan.meters)?;
    let apart = laboratory.testbed.properties().hosts_apart;
    let (power, idle) = power::settle(&power, &facts, apart, laboratory.stop)?;
    let remarks = surveyed.iter().filter_map(|one| one.hosts.as_ref().ok());
    let remarks = remarks.flat_map(|hosts| hosts.remarks.clone()).chain(idle).collect();
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
        loads: Vec::new(),
        meters,
        source: plan.source.clone(),
        profiling: plan.profiling.clone(),
        power,
        facts,
        kernels,
        ceiling,
        settings: guard.records.to_vec(),
        fingerprint: guard.fingerprint(),
    };
    Ok((surveyed, header, remarks))
}

/// Checks that trials are missing, and that the hosts are the same.
fn reopen<'r, 'a>(
    laboratory: &'r Laboratory<'a>,
    OpenStudy { folder, mut writer, mut study }: OpenStudy,
    observer: &'r mut dyn Observer,
) -> Result<Run<'r, 'a>, Fault> {
    refuse_complete(&folder, &study, &mut writer)?;
    let header = &study.header;
    let baseline = header.cells.iter().find(|cell| cell.id == header.baseline);
    let baseline = baseline.ok_or_else(|| {
        Fault::storage(format!("the baseline '{}' is not a cell of this study", header.baseline))
    })?;
    let settings = settings_to_reapply(&header.settings);
    let (mut guard, left_behind) = Guard::begin(laboratory, &settings)?;
    observer.settings(&guard.records, &left_behind);
    let (surveyed, _) = survey_hosts(laboratory, &header.cells, baseline, false, false)?;
    if let Some(difference) = difference(header, &surveyed) {
        let text = format!("cannot resume the study {} here: {difference}", folder.display());
        return Err(
            Fault::unsupported(text).remedy("resume it where it was started, or start a new study")
        );
    }
    let mut feasibility = Feasibility::of(laboratory, surveyed, baseline, header.schedule.force);
    guard.hold_gpus(feasibility.gpus(&header.cells))?;
    guard.common = feasibility.common_nic_setup(&mut guard, &header.cells)?;
    guard.check_for_changes()?;
    for remark in resume_remarks(&study, &guard) {
        writer.remark(&remark)?;
        study.remarks.push(remark);
    }
    let cpu_times = cpu_times(laboratory);
    Ok(Run { laboratory, observer, study, writer, guard, feasibility, shared: None, cpu_times })
}

fn refuse_complete(folder: &Path, study: &Study, writer: &mut StudyWriter) -> Result<(), Fault> {
    let folder = folder.display();
    if study.trials.iter().any(|trial| trial.pair.is_some()) {
        let text = format!("the study {folder} was merged from several");
        return Err(Fault::usage(text).remedy("resume those it was merged from"));
    }
    let completed = CompletedTrials::of(study);
    let missing = completed.missing(study);
    // A study that ran every block was not stopped early.
    let stopped = stopped_early(study).filter(|_| missing > 0);
    if let Some(why) = &stopped
        && !study.remarks.iter().any(|remark| remark.contains(why))
    {
        writer.remark(&format!("stopped early: {why}"))?;
    }
    let why = match stopped {
        _ if !profiles::missing(study).is_empty() => return Ok(()),
        Some(why) => why,
        None if missing == 0 => format!("all {} trials have ended", completed.trials.len()),
        None => return Ok(()),
    };
    Err(Fault::usage(format!("the study {folder} is complete: {why}"))
        .remedy("`bytepath show` prints its report"))
}

/// Returns remarks on the interruption, and on what changed on the hosts meanwhile.
fn resume_remarks(study: &Study, guard: &Guard) -> Vec<String> {
    let completed = CompletedTrials::of(study);
    let count = completed.trials.len();
    let mut remarks = vec![match study.profiles.len() {
        0 => {
            let total = count + completed.missing(study);
            format!("interrupted and resumed after {count} of {total} trials")
        }
        profiles => format!("interrupted and resumed after {count} trials and {profiles} profiles"),
    }];
    let before = &study.header.fingerprint;
    // The earliest studies have no fingerprint.
    if !before.is_empty() {
        let changes = differences(before, &guard.fingerprint()).into_iter();
        remarks.extend(changes.map(|change| format!("when the study was resumed, {change}")));
    }
    remarks
}

/// Returns the settings of a study to make again, without those that its testbed makes itself.
/// Settings that could not be made then are optional now.
fn settings_to_reapply(records: &[SettingRecord]) -> Vec<WantedSetting> {
    let want = |record: &SettingRecord| WantedSetting {
        setting: record.setting.clone(),
        profile: record.profile.clone(),
        optional: record.skipped.is_some(),
        obstacle: None,
        host: record.host,
    };
    records.iter().filter(|record| !record.setting.is_of_testbed()).map(want).collect()
}

/// Returns the first relevant difference between the hosts that a study was started on and these.
fn difference(header: &StudyHeader, now: &[Surveyed]) -> Option<String> {
    if header.bytepath != VERSION {
        return Some(format!("bytepath was {} and is {VERSION}", header.bytepath));
    }
    now.iter().find_map(|now| {
        let named = header.kernels.iter().find(|hosts| now.kernel.as_ref() == Some(&hosts.kernel));
        let then = named.map_or(&header.facts, |hosts| &hosts.facts);
        let facts = now.hosts.as_ref().map_or(&[][..], |hosts| &hosts.facts);
        let difference = host_difference(then, facts)?;
        let named = now.kernel.as_ref().map(|k| format!("with kernel {}, {difference}", k.name));
        named.or(Some(difference))
    })
}
