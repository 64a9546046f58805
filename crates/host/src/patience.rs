//! How long to wait for a host. Time that a guest's threads spend waiting for a CPU of this machine
//! does not count as silence, so it extends the wait.

use bytepath_sys::procfs;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// Most that a wait may be extended by for lack of a CPU, as a multiple of its limit.
const STARVED: u32 = 3;

/// A wait in progress.
pub struct Patience {
    pub begun: Instant,
    limit: Duration,
    /// The limit plus the extension so far.
    extended: Duration,
    guest: Option<Guest>,
}

/// The process of the guest that is waited for.
struct Guest {
    pid: u32,
    /// Its threads' waits when this wait began.
    before: Waits,
}

/// Total time that each thread of a process has waited for a CPU.
type Waits = BTreeMap<u32, Duration>;

impl Patience {
    /// Begins a wait that is never extended.
    pub fn new(limit: Duration) -> Patience {
        Patience { begun: Instant::now(), limit, extended: limit, guest: None }
    }

    /// Begins a wait for a guest that process `pid` runs.
    pub(crate) fn with_guest(limit: Duration, pid: u32) -> Patience {
        let guest = Some(Guest { pid, before: waits(pid) });
        Patience { guest, ..Patience::new(limit) }
    }

    /// Returns the remaining time; zero once it is over.
    pub fn left(&mut self) -> Duration {
        let passed = self.begun.elapsed();
        if let Some(guest) = self.guest.as_ref().filter(|_| self.extended <= passed) {
            self.extended = extended(self.limit, starved(&guest.before, &waits(guest.pid)));
        }
        self.extended.saturating_sub(passed)
    }
}

/// Extends a limit by the time without a CPU.
fn extended(limit: Duration, starved: Duration) -> Duration {
    limit + starved.min(STARVED * limit)
}

/// Returns the longest time that a thread has waited for a CPU since `before`. All of a new
/// thread's waits count.
fn starved(before: &Waits, now: &Waits) -> Duration {
    let since = |(thread, wait): (&u32, &Duration)| {
        wait.saturating_sub(before.get(thread).copied().unwrap_or_default())
    };
    now.iter().map(since).max().unwrap_or_default()
}

/// Reads the waits of a process; empty if the kernel keeps no schedstat.
fn waits(pid: u32) -> Waits {
    let tasks = PathBuf::from(format!("/proc/{pid}/task"));
    let waited = |thread: u32| {
        let text = std::fs::read_to_string(tasks.join(format!("{thread}/schedstat"))).ok()?;
        Some((thread, Duration::from_nanos(procfs::parse_schedstat(&text).ok()?.wait)))
    };
    let threads = procfs::numbered(&tasks).unwrap_or_default();
    threads.into_iter().filter_map(waited).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn waits(threads: &[(u32, u32)]) -> Waits {
        threads.iter().map(|(thread, seconds)| (*thread, *seconds * SECOND)).collect()
    }

    #[test]
    fn a_guest_is_starved_by_what_one_thread_waited_since_then() {
        // The thread that had waited longest before has had its CPU since.
        let before = waits(&[(1, 100), (2, 5)]);
        assert_eq!(starved(&before, &waits(&[(1, 100), (2, 17)])), 12 * SECOND);
        assert_eq!(starved(&before, &waits(&[(1, 103), (2, 6)])), 3 * SECOND);
        assert_eq!(starved(&before, &waits(&[(1, 100), (2, 5), (3, 2)])), 2 * SECOND, "a new one");
        assert_eq!(starved(&before, &waits(&[(2, 6)])), SECOND, "the other one has ended");
        assert_eq!(starved(&before, &before), Duration::ZERO);
        assert_eq!(starved(&before, &waits(&[])), Duration::ZERO);
    }

    #[test]
    fn a_limit_grows_by_what_was_starved_but_not_without_end() {
        assert_eq!(extended(20 * SECOND, Duration::ZERO), 20 * SECOND);
        assert_eq!(extended(20 * SECOND, 12 * SECOND), 32 * SECOND);
        assert_eq!(extended(20 * SECOND, 500 * SECOND), 80 * SECOND);
    }

    #[test]
    fn a_wait_is_over_at_its_limit_and_what_runs_a_guest_may_extend_it() {
        let ago = |seconds: u32| Instant::now().checked_sub(seconds * SECOND).unwrap();
        let begun = |seconds, guest| {
            let new = Patience::new(2 * SECOND);
            Patience { begun: ago(seconds), guest, ..new }.left()
        };
        assert!(begun(1, None) > Duration::ZERO);
        assert_eq!(begun(3, None), Duration::ZERO);
        // Nothing extends the wait for a process that has ended.
        let gone = || Some(Guest { pid: u32::MAX, before: Waits::new() });
        assert!(begun(1, gone()) > Duration::ZERO);
        assert_eq!(begun(3, gone()), Duration::ZERO);
    }
}
