//! Events that are counted but not sampled (perf_event_open(2)).

use super::event::{Event, Target, switch};
use perf_event_open_sys::bindings as b;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// A counter of one event on one CPU, over all tasks.
#[derive(Debug)]
pub struct Count {
    fd: OwnedFd,
    pub cpu: u32,
}

impl Count {
    /// Starts counting. EACCES: not allowed for this user (kernel.perf_event_paranoid above 0 and
    /// neither CAP_PERFMON nor CAP_SYS_ADMIN).
    pub fn open(event: &Event, cpu: u32) -> io::Result<Count> {
        // Uncore units count whole packages and refuse to exclude a mode, so nothing is excluded.
        Ok(Count { fd: super::event::open(event.attributes(), Target::Cpu(cpu))?, cpu })
    }

    /// Returns the count since it was opened. Without a read format that is one word.
    pub fn read(&self) -> io::Result<u64> {
        let mut word = [0; 8];
        match rustix::io::read(&self.fd, &mut word)? {
            8 => Ok(u64::from_ne_bytes(word)),
            // The kernel returns end of file for an event in error state.
            _ => Err(io::Error::from_raw_os_error(libc::EIO)),
        }
    }
}

/// A counter of one event in one thread, on any CPU.
#[derive(Debug)]
pub struct ThreadCount {
    fd: OwnedFd,
}

/// The kernel's counts for one event.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    pub count: u64,
    /// Time the event was enabled, in ns; for a thread, only while the thread ran.
    pub enabled: u64,
    /// Time the event was actually counted, in ns: less than `enabled` if events had to take turns
    /// on the hardware's counters.
    pub running: u64,
    /// Samples that did not fit in the ring; `None` if the kernel does not count them
    /// (`PERF_FORMAT_LOST`, Linux 6.0).
    pub lost: Option<u64>,
}

impl ThreadCount {
    /// Opens the counter; nothing is counted yet. ENOENT, EOPNOTSUPP, ENODEV: this machine cannot
    /// count the event. EACCES: not allowed for this user (kernel.perf_event_paranoid above 1 and
    /// no CAP_PERFMON, or another user's thread). ESRCH: the thread has ended. EMFILE: too many are
    /// open.
    pub fn open(event: &Event, thread: u32) -> io::Result<ThreadCount> {
        let times = b::PERF_FORMAT_TOTAL_TIME_ENABLED | b::PERF_FORMAT_TOTAL_TIME_RUNNING;
        let mut attributes = b::perf_event_attr { read_format: times.into(), ..event.attributes() };
        attributes.set_disabled(1);
        Ok(ThreadCount { fd: super::event::open(attributes, Target::Thread(thread))? })
    }

    /// Starts counting.
    pub fn enable(&self) -> io::Result<()> {
        switch(&self.fd, true)
    }

    pub fn disable(&self) -> io::Result<()> {
        switch(&self.fd, false)
    }

    /// Returns the counts so far. `lost` is meaningless for an event that is not sampled.
    pub fn read(&self) -> io::Result<Tally> {
        tally(self.fd.as_fd())
    }
}

/// Reads an event's count with both times, and the number of lost samples if that was requested.
pub(super) fn tally(event: BorrowedFd) -> io::Result<Tally> {
    let mut words = [0u64; 4];
    let mut bytes = [0u8; 32];
    let length = rustix::io::read(event, &mut bytes)?;
    for (word, bytes) in words.iter_mut().zip(bytes[..length].chunks_exact(8)) {
        *word = u64::from_ne_bytes(bytes.try_into().expect("eight bytes"));
    }
    let [count, enabled, running, lost] = words;
    Ok(Tally { count, enabled, running, lost: Some(lost) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;
    use std::sync::mpsc;

    #[test]
    fn a_thread_is_counted_while_that_is_enabled() {
        let event = |name| Event::parse(name, Path::new("/sys")).unwrap();
        let (go, begin) = mpsc::channel();
        let (done, ended) = mpsc::channel();
        let thread = std::thread::spawn(move || {
            done.send(crate::thread::id()).unwrap();
            while begin.recv().is_ok() {
                std::thread::yield_now();
                done.send(0).unwrap();
            }
        });
        let tid = ended.recv().unwrap();
        let switches = match ThreadCount::open(&event("context-switches"), tid) {
            Err(e) if e.kind() == io::ErrorKind::PermissionDenied => {
                return bytepath_testing::skip!("the kernel lets this user count no threads");
            }
            other => other.unwrap(),
        };
        let turn = || {
            go.send(()).unwrap();
            ended.recv().unwrap();
        };
        turn();
        assert_eq!(switches.read().unwrap().count, 0, "it is not enabled yet");
        switches.enable().unwrap();
        (0..10).for_each(|_| turn());
        switches.disable().unwrap();
        let counted = switches.read().unwrap();
        // The thread slept before each turn except perhaps the first.
        assert!(counted.count > 0 && counted.enabled > 0, "{counted:?}");
        assert_eq!(counted.enabled, counted.running, "a software event takes no turns");
        (0..10).for_each(|_| turn());
        assert_eq!(switches.read().unwrap().count, counted.count);
        drop(go);
        thread.join().unwrap();
        let gone = ThreadCount::open(&event("task-clock"), tid).unwrap_err();
        assert_eq!(gone.raw_os_error(), Some(libc::ESRCH));
    }
}
