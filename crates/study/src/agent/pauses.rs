//! Detects whether this process was kept from running within a window: stopped (SIGSTOP, Ctrl-Z),
//! frozen with its control group (`cgroup.freeze`, `docker pause`), or suspended with its machine.
//! The rate of such a window is one of the pause.

use bytepath_meter::{TICK, bpf};
use bytepath_sys::Roots;
use bytepath_sys::procfs::{SchedStat, parse_schedstat};
use rustix::time::{ClockId, clock_gettime};
use std::fs;
use std::time::Duration;

/// Gaps between the ticks of the control thread that neither waiting for a CPU nor its own work
/// explains. A pause that ends within a tick is not detected.
pub(super) struct Pauses {
    last: Moment,
    paused: Duration,
    /// An emulated processor stops whenever the emulator waits for a CPU, and reports no steal.
    is_emulated: bool,
}

/// Longer gaps are pauses: many times the usual delay of a timer.
const LATE: Duration = Duration::from_millis(100);

impl Pauses {
    /// Starts watching.
    pub(super) fn begin() -> Pauses {
        let is_emulated = bpf::is_emulated(&Roots::real());
        Pauses { last: Moment::now(), paused: Duration::ZERO, is_emulated }
    }

    /// Checks the time since the last call of this or of [`skip`](Self::skip), which is at most
    /// TICK unless there was a pause.
    pub(super) fn tick(&mut self) {
        let now = Moment::now();
        let gap = unexplained(&self.last, &now).unwrap_or_default();
        self.paused += if gap > LATE && !self.is_emulated { gap } else { Duration::ZERO };
        self.last = now;
    }

    /// Ignores the time since the last tick.
    pub(super) fn skip(&mut self) {
        self.last = Moment::now();
    }

    /// Returns how long the process was kept from running.
    pub(super) fn end(mut self) -> Duration {
        self.tick();
        self.paused
    }
}

struct Moment {
    /// CLOCK_BOOTTIME, which continues while the machine is suspended.
    time: Duration,
    /// This thread's; `None` if the kernel does not record it (`CONFIG_SCHED_INFO`).
    sched: Option<SchedStat>,
}

impl Moment {
    fn now() -> Moment {
        let time = clock_gettime(ClockId::Boottime);
        let time = Duration::new(time.tv_sec as u64, time.tv_nsec as u32);
        let text = fs::read_to_string(Roots::real().proc.join("thread-self/schedstat"));
        let sched = text.ok().and_then(|text| parse_schedstat(&text).ok());
        Moment { time, sched: sched.filter(|sched| *sched != SchedStat::default()) }
    }
}

/// Returns the time between two ticks in which the thread was due, did not wait for a CPU and did
/// not run; `None` if the kernel does not record waiting times.
fn unexplained(last: &Moment, now: &Moment) -> Option<Duration> {
    let (was, is) = (last.sched?, now.sched?);
    let explained = (is.run + is.wait).saturating_sub(was.run + was.wait);
    let gap = now.time.saturating_sub(last.time);
    Some(gap.saturating_sub(TICK).saturating_sub(Duration::from_nanos(explained)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn moment(milliseconds: u64, run: u64, wait: u64) -> Moment {
        let sched = Some(SchedStat { run: run * 1_000_000, wait: wait * 1_000_000, slices: 1 });
        Moment { time: Duration::from_millis(milliseconds), sched }
    }

    #[test]
    fn waiting_for_a_cpu_and_running_are_no_pauses() {
        let gap = |last, now| unexplained(&last, &now).map(|gap| gap.as_millis());
        assert_eq!(gap(moment(0, 1, 5), moment(2100, 1, 5)), Some(2000));
        assert_eq!(gap(moment(0, 1, 5), moment(2100, 11, 1505)), Some(490));
        assert_eq!(gap(moment(0, 1, 5), moment(100, 1, 5)), Some(0));
        let unknown = Moment { sched: None, ..moment(2100, 1, 5) };
        assert_eq!(gap(moment(0, 1, 5), unknown), None);
    }
}
