//! One trial: whether it counts ([`events`], [`interference`]), how much CPU time its roles took
//! ([`threads`], [`cpu`], [`device_work`], [`guest`]), and what it achieved with that
//! ([`efficiency`]).

mod cpu;
mod device_work;
mod efficiency;
mod events;
mod guest;
mod interference;
mod threads;

pub use cpu::{CpuRule, RoleCpu, role_cpu};
pub use device_work::softirq_cpus;
pub use efficiency::{CostRule, Costs, Headline, POWER, PerEnd, costs};
pub(crate) use efficiency::{headline, other_rules, roi, roi_power, service_demand};
pub(crate) use events::by_chance;
pub use events::{Events, FOREIGN_LIMIT, PAUSED, STEAL_LIMIT, judge_events};
pub use guest::GuestCpu;
pub use threads::ENGINE_RUN;
pub(crate) use threads::is_kernel_worker;

use bytepath_record::{Reading, Trial, TrialStatus};

/// Returns the sum of a trial's matching readings; `None` if there are none.
pub(crate) fn sum_of(trial: &Trial, counts: impl Fn(&Reading) -> bool) -> Option<f64> {
    let readings = trial.readings.iter().filter(|reading| counts(reading));
    readings.map(|reading| reading.value).reduce(|sum, value| sum + value)
}

/// Returns why a trial does not count; `None` if it does.
pub fn why_not_measured(trial: &Trial) -> Option<String> {
    match &trial.status {
        TrialStatus::Measured => None,
        TrialStatus::Rejected { events } => Some(events.join("; ")),
        TrialStatus::Unavailable { reason, .. } => Some(reason.clone()),
        TrialStatus::Failed { fault } => Some(fault.message.clone()),
    }
}
