//! An event that is counted and not sampled (perf_event_open(2)).

use super::event::Event;
use std::io;
use std::os::fd::OwnedFd;

/// A counter of one event on one CPU, every task together.
#[derive(Debug)]
pub struct Count {
    fd: OwnedFd,
}

impl Count {
    /// Begins to count. EACCES: not for this user (kernel.perf_event_paranoid above 0
    /// and neither CAP_PERFMON nor CAP_SYS_ADMIN).
    pub fn open(event: &Event, cpu: u32) -> io::Result<Count> {
        // Units outside the core count whole packages and refuse to leave out a mode,
        // so nothing is excluded.
        Ok(Count { fd: super::event::open(event.attributes(), cpu)? })
    }

    /// Counts since it was opened. Without a read format that is one word.
    pub fn read(&self) -> io::Result<u64> {
        let mut word = [0; 8];
        match rustix::io::read(&self.fd, &mut word)? {
            8 => Ok(u64::from_ne_bytes(word)),
            // The kernel says end of file of an event that is in an error state.
            _ => Err(io::Error::from_raw_os_error(libc::EIO)),
        }
    }
}
