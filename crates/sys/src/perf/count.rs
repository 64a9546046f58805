//! An event that is counted and not sampled (perf_event_open(2)).

use super::event::Event;
use perf_event_open_sys::bindings as b;
use perf_event_open_sys::perf_event_open;
use std::io;
use std::os::fd::{FromRawFd, OwnedFd};

/// A counter of one event on one CPU, every task together.
#[derive(Debug)]
pub struct Count {
    fd: OwnedFd,
}

impl Count {
    /// Begins to count. EACCES: not for this user (kernel.perf_event_paranoid above 0
    /// and neither CAP_PERFMON nor CAP_SYS_ADMIN).
    pub fn open(event: &Event, cpu: u32) -> io::Result<Count> {
        let cpu = i32::try_from(cpu).map_err(|_| io::Error::from_raw_os_error(libc::EINVAL))?;
        // Units outside the core count whole packages and refuse to leave out a mode,
        // so nothing is excluded.
        let mut attr = b::perf_event_attr {
            type_: event.kind,
            size: size_of::<b::perf_event_attr>() as u32,
            config: event.config[0],
            ..Default::default()
        };
        attr.__bindgen_anon_3.config1 = event.config[1];
        attr.__bindgen_anon_4.config2 = event.config[2];
        // SAFETY: the attributes are initialised and know their size; the kernel
        // writes at most their `size` field.
        let fd = unsafe { perf_event_open(&mut attr, -1, cpu, -1, b::PERF_FLAG_FD_CLOEXEC.into()) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the kernel has just given us this descriptor and nobody else has it.
        Ok(Count { fd: unsafe { OwnedFd::from_raw_fd(fd) } })
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
