//! A study that is under way: its state, and the steps that all of its stages share.

use super::agents::check_stop;
use super::guard::{Guard, not_restored, note_changes};
use super::metering;
use super::plan::{Blocks, Laboratory, Observer};
use super::preflight::Feasibility;
use super::trial::{Position, TrialRunner, fail};
use crate::store::{HostsAfter, StudyWriter};
use bytepath_host::CpuTimes;
use bytepath_host::testbed::LinkTrouble;
use bytepath_meter::Chosen;
use bytepath_record::{
    Cell, Facts, Fault, FaultKind, Restoration, RestorationRow, Role, SCHEMA_VERSION, Schedule,
    Study, Trial, TrialStatus, joined, unit,
};
use bytepath_stats as stats;
use bytepath_sys::Roots;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// A study that is under way.
pub(super) struct Run<'r, 'a> {
    pub laboratory: &'r Laboratory<'a>,
    pub observer: &'r mut dyn Observer,
    pub study: Study,
    pub writer: StudyWriter,
    pub guard: Guard,
    pub feasibility: Feasibility<'r, 'a>,
    /// The blocks shared with other runs, if any.
    pub shared: Option<Arc<Blocks>>,
    /// CPU time that each program had used when the last trials were stored; `None` if the hosts
    /// are other machines.
    pub cpu_times: Option<CpuTimes>,
}

impl<'a> Run<'_, 'a> {
    /// Returns a runner of trials with these meters.
    pub(super) fn runner<'t>(
        &'t mut self,
        meters: &'t [Chosen],
        schedule: &'t Schedule,
    ) -> TrialRunner<'t, 'a> {
        let (laboratory, guard, loads) =
            (self.laboratory, &mut self.guard, &self.study.header.loads);
        TrialRunner { laboratory, guard, meters, schedule, loads }
    }

    /// Returns the meters that were requested.
    pub(super) fn meters(&self) -> Vec<Chosen> {
        metering::of_trial(self.laboratory.meters, &self.study.header)
    }

    /// Returns the position of the next trial.
    pub(super) fn position(&self, block: u32) -> Position {
        let study = &self.study;
        Position { block, order: (study.trials.len() + study.profiles.len()) as u32 }
    }

    /// Writes a remark for the reader of the study.
    pub(super) fn remark(&mut self, remark: String) -> Result<(), Fault> {
        self.writer.remark(&remark)?;
        self.study.remarks.push(remark);
        Ok(())
    }

    /// Like [`Self::remark`], and shows the remark to the observer.
    pub(super) fn announce(&mut self, remark: String) -> Result<(), Fault> {
        self.observer.remark(&remark);
        self.remark(remark)
    }

    /// Checks whether another program changed settings of the host while these trials ran, and
    /// notes it in the trials and in the study.
    pub(super) fn watch_host(&mut self, trials: &mut [Trial]) -> Result<(), Fault> {
        if !trials.iter().any(|trial| trial.status == TrialStatus::Measured) {
            return Ok(());
        }
        let changes = match self.guard.check_for_changes() {
            // Changes on a lost host are unknown.
            Err(lost) if lost.kind == FaultKind::PeerLost => {
                let stop = self.laboratory.stop;
                return trials.iter_mut().try_for_each(|trial| fail(trial, lost.clone(), stop));
            }
            changes => changes?,
        };
        note_changes(trials, &changes);
        let Some(first) = trials.first().filter(|_| !changes.is_empty()) else { return Ok(()) };
        let (shown, rest) = changes.split_at(changes.len().min(MOST_CHANGES));
        let mut named = joined(shown.iter().map(|(_, what)| what), "; ");
        if !rest.is_empty() {
            named.push_str(&format!("; and {} more", rest.len()));
        }
        let remark = format!(
            "another program changed settings of the host during block {}: {named}; trials before \
             and after are not comparable",
            first.block + 1,
        );
        self.observer.host_changed(&remark);
        self.remark(remark)
    }

    /// Judges trials and writes them to the study.
    pub(super) fn store(&mut self, mut trials: Vec<Trial>) -> Result<(), Fault> {
        self.watch_host(&mut trials)?;
        let header = &self.study.header;
        let before = &self.study.trials;
        let judge = |trial: Trial| match header.cells.iter().find(|cell| cell.id == trial.cell) {
            Some(cell) => {
                judged(trial, cell, &header.schedule, header.functional.is_some(), before)
            }
            None => trial,
        };
        let mut trials: Vec<Trial> = trials.into_iter().map(judge).collect();
        self.name_disturbers(&mut trials);
        self.writer.append(&trials)?;
        self.study.trials.extend(trials);
        Ok(())
    }

    /// Adds the names of the programs that used the CPUs to trials that were disturbed.
    fn name_disturbers(&mut self, trials: &mut [Trial]) {
        let Some(before) = &self.cpu_times else { return };
        let now = CpuTimes::read(&Roots::real().proc);
        let programs = now.since(before, std::process::id());
        let busiest = programs.iter().filter(|program| program.cpus > 0.02).take(3);
        let busiest = joined(busiest, ", ");
        self.cpu_times = Some(now);
        let is_named = |trial: &&mut Trial| !trial.disturbances.is_empty() && !busiest.is_empty();
        for trial in trials.iter_mut().filter(is_named) {
            trial.disturbances.push(format!("mostly {busiest}"));
        }
    }

    /// Restores the hosts' settings and records how the run leaves the hosts: the fingerprint after
    /// the last trial, and what became of the study's settings.
    pub(super) fn end(&mut self) -> Result<(), Fault> {
        let changes = self.guard.check_for_changes();
        let fingerprint = self.guard.fingerprint();
        let settings = self.guard.end()?;
        for (_, what) in changes? {
            self.remark(format!("settings of the host changed after the last trial: {what}"))?;
        }
        self.observer.put_back(&settings);
        for row in settings.iter().filter(|row| row.outcome != Restoration::Restored) {
            self.remark(format!("settings of the host: {row}"))?;
        }
        let pending = settings.iter().find(|row| row.is_pending()).map(ToString::to_string);
        let schema = SCHEMA_VERSION;
        self.writer.after(&HostsAfter { schema, fingerprint, settings })?;
        pending.map_or(Ok(()), |row| Err(not_restored(row)))
    }
}

/// Marks a trial that an event invalidated or disturbed, regardless of its value. In a functional
/// study, which measures no speed, events are only reported. `before` are the study's earlier
/// trials of the same kind, of all cells.
pub(super) fn judged(
    mut trial: Trial,
    cell: &Cell,
    schedule: &Schedule,
    functional: bool,
    before: &[Trial],
) -> Trial {
    let of_cell = |t: &&Trial| {
        t.cell == cell.id && t.status == TrialStatus::Measured && t.disturbances.is_empty()
    };
    let earlier: Vec<&Trial> = before.iter().filter(of_cell).collect();
    let stats::Events { invalidating: events, disturbing, .. } =
        stats::judge_events(&trial, cell, schedule, &earlier);
    if functional {
        trial.warnings.extend(events);
        trial.warnings.extend(disturbing);
        return trial;
    }
    trial.disturbances = disturbing;
    match events.is_empty() {
        true => trial,
        false => Trial { status: TrialStatus::Rejected { events }, ..trial },
    }
}

/// How many changed settings a remark names at most.
const MOST_CHANGES: usize = 3;

/// Estimates how long the rest takes, from the time that the finished part took.
pub(super) struct Countdown {
    pub begin: Instant,
    pub done: usize,
    pub total: usize,
}

impl Countdown {
    pub(super) fn left(&self) -> Duration {
        let each = self.begin.elapsed().div_f64(self.done.max(1) as f64);
        each * self.total.saturating_sub(self.done) as u32
    }
}

/// Pause between attempts to reach a lost host.
const RETRY: Duration = Duration::from_secs(2);

/// Interval at which a pause checks the stop flag.
const POLL: Duration = Duration::from_millis(20);

/// Returns why a trial failed, if it lost one of its ends.
pub(super) fn lost_peer(trial: &Trial) -> Option<Fault> {
    match &trial.status {
        TrialStatus::Failed { fault } if fault.kind == FaultKind::PeerLost => Some(fault.clone()),
        _ => None,
    }
}

/// Returns the first difference between the hosts then and now that makes their trials
/// incomparable.
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

impl Run<'_, '_> {
    /// After an end was lost, waits for its host, if that is lost as well, at most for the
    /// testbed's timeout. If only the agent was lost, the next trial starts a new one.
    pub(super) fn wait_for_host(&mut self, lost: Option<Fault>) -> Result<(), Fault> {
        let Some(lost) = lost.filter(|_| !self.guard.holds()) else { return Ok(()) };
        let timeout = self.laboratory.testbed.properties().timeout;
        let begin = Instant::now();
        self.observer.host_changed(&format!("{}; waiting for its host", lost.message));
        let (facts, rows) = self.begin_again(begin + timeout)?;
        let away = unit::seconds(Duration::from_secs(begin.elapsed().as_secs()));
        self.remark(format!("a host was lost ({}) and came back after {away}", lost.message))?;
        self.observer.settings(&self.guard.records, &rows);
        let before = &self.study.header.facts;
        facts.and_then(|facts| host_difference(before, &facts)).map_or(Ok(()), |difference| {
            Err(Fault::unsupported(format!("the study cannot continue: {difference}"))
                .remedy("`bytepath resume` continues once the host is as it was"))
        })
    }

    /// After a trial failed, waits for the carrier of its link, as long as for a lost host. Errors
    /// if it does not come back, since every later trial would fail, too.
    pub(super) fn wait_for_link(&self, trial: &Trial) -> Result<(), Fault> {
        if !matches!(trial.status, TrialStatus::Failed { .. }) {
            return Ok(());
        }
        let testbed = self.laboratory.testbed;
        let deadline = Instant::now() + testbed.properties().timeout;
        loop {
            match testbed.link_trouble() {
                None | Some(LinkTrouble::Down(_)) => return Ok(()),
                Some(LinkTrouble::NoCarrier(_)) if Instant::now() < deadline => self.pause(POLL)?,
                Some(trouble) => {
                    return Err(Fault::peer_lost(format!("the link is lost: {trouble}"))
                        .remedy("`bytepath resume` continues once it is back"));
                }
            }
        }
    }

    fn begin_again(
        &mut self,
        deadline: Instant,
    ) -> Result<(Option<[Facts; 2]>, Vec<RestorationRow>), Fault> {
        loop {
            match self.guard.begin_again(self.laboratory) {
                Ok(back) => return Ok(back),
                Err(fault) if fault.kind == FaultKind::Interrupted => return Err(fault),
                Err(fault) if Instant::now() >= deadline => {
                    return Err(fault
                        .context("a host was lost and has not come back")
                        .remedy("`bytepath resume` continues once it is back"));
                }
                Err(_) => self.pause(RETRY)?,
            }
        }
    }

    /// Sleeps, and errors if the user cancels meanwhile.
    fn pause(&self, time: Duration) -> Result<(), Fault> {
        let end = Instant::now() + time;
        while Instant::now() < end {
            check_stop(self.laboratory.stop)?;
            std::thread::sleep(POLL);
        }
        Ok(())
    }
}
