//! How long a host is waited for. A guest is not silent while its threads wait for a CPU of this
//! machine: that time comes on top.

use bytepath_sys::procfs;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// By how many times its limit a wait may grow for want of a CPU.
const STARVED: u32 = 3;

/// A wait that has begun.
pub struct Patience {
    pub begun: Instant,
    limit: Duration,
    /// The limit with what came on top of it so far.
    extended: Duration,
    guest: Option<Guest>,
}

/// The process that runs what is waited for.
struct Guest {
    pid: u32,
    /// When the wait began.
    before: Waits,
}

/// How long each thread of a process has waited for a CPU in its life.
type Waits = BTreeMap<u32, Duration>;

impl Patience {
    /// Begins a wait that nothing extends.
    pub fn new(limit: Duration) -> Patience {
        Patience { begun: Instant::now(), limit, extended: limit, guest: None }
    }

    /// Begins a wait for what this process runs.
    pub(crate) fn with_guest(limit: Duration, pid: u32) -> Patience {
        let guest = Some(Guest { pid, before: waits(pid) });
        Patience { guest, ..Patience::new(limit) }
    }

    /// Returns what is left of it; zero once it is over.
    pub fn left(&mut self) -> Duration {
        let passed = self.begun.elapsed();
        if let Some(guest) = self.guest.as_ref().filter(|_| self.extended <= passed) {
            self.extended = extended(self.limit, starved(&guest.before, &waits(guest.pid)));
        }
        self.extended.saturating_sub(passed)
    }
}

/// Adds the time without a CPU to a limit.
fn extended(limit: Duration, starved: Duration) -> Duration {
    limit + starved.min(STARVED * limit)
}

/// Returns how long the thread that waited longest for a CPU since then did so. A new thread has
/// done all its waiting since.
fn starved(before: &Waits, now: &Waits) -> Duration {
    let since = |(thread, wait): (&u32, &Duration)| {
        wait.saturating_sub(before.get(thread).copied().unwrap_or_default())
    };
    now.iter().map(since).max().unwrap_or_default()
}

/// Reads them; none where the kernel keeps no account.
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
        // The one that had waited longest before has had its CPU since.
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
        // Of a process that has ended nothing is waited for.
        let gone = || Some(Guest { pid: u32::MAX, before: Waits::new() });
        assert!(begun(1, gone()) > Duration::ZERO);
        assert_eq!(begun(3, gone()), Duration::ZERO);
    }
}
