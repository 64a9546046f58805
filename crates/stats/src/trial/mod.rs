//! One trial: whether it counts ([`events`], [`interference`]), what CPU time its roles took
//! ([`threads`], [`cpu`], [`device_work`]), and what it achieved for that ([`efficiency`]).

mod cpu;
mod device_work;
mod efficiency;
mod events;
mod interference;
mod threads;

pub use cpu::{CpuRule, RoleCpu, role_cpu};
pub use device_work::softirq_cpus;
pub use efficiency::{Costs, Headline, POWER, PerEnd, costs};
pub(crate) use efficiency::{headline, roi, roi_power, service_demand};
pub use events::{FOREIGN_LIMIT, STEAL_LIMIT, judge_events};
pub use threads::ENGINE_RUN;
