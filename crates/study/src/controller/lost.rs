//! A host that is lost while a study runs: what ran on it has failed, and the study continues
//! when it is back.

use super::run::Run;
use bytepath_record::{Facts, Fault, FaultKind, RestorationRow, Role, Trial, TrialStatus, unit};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// How often a lost host is tried again.
const RETRY: Duration = Duration::from_secs(2);

/// How often a pause checks the stop flag.
const POLL: Duration = Duration::from_millis(20);

/// Why a trial failed, if it lost one of its ends.
pub(super) fn lost_peer(trial: &Trial) -> Option<Fault> {
    match &trial.status {
        TrialStatus::Failed { fault } if fault.kind == FaultKind::PeerLost => Some(fault.clone()),
        _ => None,
    }
}

/// What differs between two hosts such that their trials do not compare.
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
    /// After an end was lost: waits for its host, where that is lost, too, for as long as was
    /// declared. An agent alone comes back with the next trial.
    pub(super) fn wait_for_host(&mut self, lost: Option<Fault>) -> Result<(), Fault> {
        let Some(lost) = lost.filter(|_| !self.opened.guard.holds()) else { return Ok(()) };
        let timeout = self.laboratory.testbed.properties().timeout;
        let begin = Instant::now();
        self.observer.host_changed(&format!("{}; waiting for its host", lost.message));
        let (facts, rows) = self.begin_again(begin + timeout)?;
        let away = unit::seconds(Duration::from_secs(begin.elapsed().as_secs()));
        self.remark(format!("a host was lost ({}) and came back after {away}", lost.message))?;
        self.observer.settings(self.opened.guard.records(), &rows);
        let before = &self.opened.study.header.facts;
        match facts.and_then(|facts| host_difference(before, &facts)) {
            None => Ok(()),
            Some(difference) => {
                let text = format!("the study cannot continue: {difference}");
                Err(Fault::new(FaultKind::Unsupported, text)
                    .remedy("`bytepath resume` continues once the host is as it was"))
            }
        }
    }

    fn begin_again(
        &mut self,
        deadline: Instant,
    ) -> Result<(Option<[Facts; 2]>, Vec<RestorationRow>), Fault> {
        loop {
            match self.opened.guard.begin_again(self.laboratory) {
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

    /// Lets time pass, unless the user cancels.
    fn pause(&self, time: Duration) -> Result<(), Fault> {
        let end = Instant::now() + time;
        while Instant::now() < end {
            if self.laboratory.stop.load(Ordering::Relaxed) {
                return Err(Fault::new(FaultKind::Interrupted, "interrupted by the user"));
            }
            std::thread::sleep(POLL);
        }
        Ok(())
    }
}
