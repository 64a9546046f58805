//! Records of tracepoints for chosen threads and all that they make, through
//! the ring of one CPU: perf_event_open(2). A small thing beside a sampler: no
//! call chains, no counters, every event of the tracepoints in full.

use super::check;
use perf_event_open_sys::bindings as perf;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering};

/// The ring of one CPU.
#[derive(Debug)]
pub struct TraceRing {
    /// The event that owns the ring, and those that write into it too.
    owner: OwnedFd,
    others: Vec<OwnedFd>,
    page: *mut perf::perf_event_mmap_page,
    /// Bytes of the ring's data, a power of two.
    size: usize,
    cpu: u32,
}

// SAFETY: the mapping belongs to this value alone, and nothing in it depends on
// the thread that uses it.
unsafe impl Send for TraceRing {}

/// A record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Record {
    /// A tracepoint was passed.
    Event {
        /// Process and thread.
        pid: u32,
        /// Thread.
        tid: u32,
        /// Monotonic clock, nanoseconds.
        time: u64,
        /// The record that tracefs describes.
        raw: Vec<u8>,
    },
    /// A thread was made.
    Fork {
        /// Its process.
        pid: u32,
        /// Itself.
        tid: u32,
        /// The thread that made it.
        parent: u32,
        /// Monotonic clock, nanoseconds.
        time: u64,
    },
    /// A thread ended.
    Exit {
        /// Which.
        tid: u32,
        /// Monotonic clock, nanoseconds.
        time: u64,
    },
    /// A thread got a name.
    Name {
        /// Its process.
        pid: u32,
        /// Which.
        tid: u32,
        /// The name.
        name: String,
        /// Monotonic clock, nanoseconds.
        time: u64,
    },
    /// So many records found no room.
    Lost(u64),
}

/// Largest ring, bytes; halved where the limit of locked memory is lower.
const LARGEST: usize = 8 << 20;
const SMALLEST: usize = 64 << 10;

impl TraceRing {
    /// A ring for these tracepoints (numbers of tracefs), on one CPU.
    pub fn open(tracepoints: &[u64], tid: u32, cpu: u32) -> io::Result<TraceRing> {
        let first = tracepoints.first().ok_or(io::ErrorKind::InvalidInput)?;
        // Names and forks are told once, by the first event.
        let owner = event(*first, tid, cpu, true)?;
        let (page, size) = map(&owner)?;
        let mut ring = TraceRing { owner, others: Vec::new(), page, size, cpu };
        for tracepoint in tracepoints.iter().skip(1) {
            ring.join(event(*tracepoint, tid, cpu, false)?)?;
        }
        Ok(ring)
    }

    /// Adds another thread.
    pub fn add(&mut self, tracepoints: &[u64], tid: u32) -> io::Result<()> {
        for (i, tracepoint) in tracepoints.iter().enumerate() {
            self.join(event(*tracepoint, tid, self.cpu, i == 0)?)?;
        }
        Ok(())
    }

    /// Hands over every record that is there, in the order written.
    pub fn drain(&mut self, mut take: impl FnMut(Record)) {
        let page = rustix::param::page_size();
        // SAFETY: the first page of the mapping is this structure; the kernel
        // writes data_head, we write data_tail, and nobody holds a reference.
        let (head, tail) = unsafe {
            let head = AtomicU64::from_ptr(&raw mut (*self.page).data_head);
            let tail = AtomicU64::from_ptr(&raw mut (*self.page).data_tail);
            (head.load(Ordering::Acquire), tail)
        };
        let mut at = tail.load(Ordering::Relaxed);
        while head.wrapping_sub(at) >= 8 {
            let header = self.copy(page, at, 8);
            let (kind, size) = (word(&header, 0), usize::from(half(&header, 6)));
            if size < 8 || size as u64 > head.wrapping_sub(at) {
                break;
            }
            let body = self.copy(page, at.wrapping_add(8), size - 8);
            if let Some(record) = decode(kind, &body) {
                take(record);
            }
            at = at.wrapping_add(size as u64);
        }
        tail.store(at, Ordering::Release);
    }

    /// Copies out of the ring; what runs over its end goes on at its beginning.
    fn copy(&self, page: usize, at: u64, length: usize) -> Vec<u8> {
        let start = (at % self.size as u64) as usize;
        let first = length.min(self.size - start);
        let mut bytes = vec![0u8; length];
        // SAFETY: the data begins one page into the mapping and is `size` bytes
        // long; both pieces lie within, and the kernel leaves records alone
        // until data_tail has passed them.
        unsafe {
            let data = self.page.cast::<u8>().add(page);
            std::ptr::copy_nonoverlapping(data.add(start), bytes.as_mut_ptr(), first);
            let rest = bytes.as_mut_ptr().add(first);
            std::ptr::copy_nonoverlapping(data, rest, (length - first).min(self.size));
        }
        bytes
    }

    fn join(&mut self, event: OwnedFd) -> io::Result<()> {
        let ring = self.owner.as_raw_fd();
        // SAFETY: the ioctl takes a plain number.
        let done = unsafe { perf_event_open_sys::ioctls::SET_OUTPUT(event.as_raw_fd(), ring) };
        check(done.into())?;
        self.others.push(event);
        Ok(())
    }
}

impl Drop for TraceRing {
    fn drop(&mut self) {
        let length = self.size + rustix::param::page_size();
        // SAFETY: the mapping is of this length, and nobody uses it any more.
        unsafe { libc::munmap(self.page.cast(), length) };
    }
}

/// An event of a thread and all that it makes, on one CPU.
fn event(tracepoint: u64, tid: u32, cpu: u32, tell: bool) -> io::Result<OwnedFd> {
    let mut attr = perf::perf_event_attr {
        type_: perf::PERF_TYPE_TRACEPOINT,
        size: size_of::<perf::perf_event_attr>() as u32,
        config: tracepoint,
        sample_type: u64::from(perf::PERF_SAMPLE_TID | perf::PERF_SAMPLE_TIME)
            | u64::from(perf::PERF_SAMPLE_RAW),
        clockid: libc::CLOCK_MONOTONIC,
        ..Default::default()
    };
    attr.__bindgen_anon_1.sample_period = 1;
    attr.set_inherit(1);
    attr.set_use_clockid(1);
    attr.set_sample_id_all(1);
    attr.set_task(tell.into());
    attr.set_comm(tell.into());
    let flags = perf::PERF_FLAG_FD_CLOEXEC as libc::c_ulong;
    // SAFETY: the structure is initialised and says its size.
    let fd = unsafe {
        perf_event_open_sys::perf_event_open(&mut attr, tid as i32, cpu as i32, -1, flags)
    };
    check(fd as libc::c_long)?;
    // SAFETY: a descriptor that was just made and belongs to nobody else.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

fn map(event: &OwnedFd) -> io::Result<(*mut perf::perf_event_mmap_page, usize)> {
    let page = rustix::param::page_size();
    let mut size = LARGEST;
    loop {
        // SAFETY: a new mapping at a place of the kernel's choice.
        let at = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                size + page,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED,
                event.as_raw_fd(),
                0,
            )
        };
        if at != libc::MAP_FAILED {
            return Ok((at.cast(), size));
        }
        let error = io::Error::last_os_error();
        if error.raw_os_error() != Some(libc::EPERM) || size <= SMALLEST.max(page) {
            return Err(error);
        }
        size /= 2;
    }
}

/// What a record says, behind its header; none for kinds that are of no use.
fn decode(kind: u32, body: &[u8]) -> Option<Record> {
    match kind {
        perf::PERF_RECORD_SAMPLE => {
            let length = word(body, 16) as usize;
            let raw = body.get(20..20usize.checked_add(length)?)?.to_vec();
            Some(Record::Event { pid: word(body, 0), tid: word(body, 4), time: long(body, 8), raw })
        }
        perf::PERF_RECORD_FORK => Some(Record::Fork {
            pid: word(body, 0),
            tid: word(body, 8),
            parent: word(body, 12),
            time: long(body, 16),
        }),
        perf::PERF_RECORD_EXIT => Some(Record::Exit { tid: word(body, 8), time: long(body, 16) }),
        perf::PERF_RECORD_COMM => {
            let name = body.get(8..)?;
            let end = name.iter().position(|byte| *byte == 0)?;
            let name = String::from_utf8_lossy(&name[..end]).into_owned();
            // What identifies samples stands at the end of every other record:
            // process, thread, time (PERF_SAMPLE_* with sample_id_all).
            let time = long(body, body.len().checked_sub(8)?);
            Some(Record::Name { pid: word(body, 0), tid: word(body, 4), name, time })
        }
        perf::PERF_RECORD_LOST => Some(Record::Lost(long(body, 8))),
        _ => None,
    }
}

fn long(bytes: &[u8], at: usize) -> u64 {
    bytes.get(at..at + 8).and_then(|b| b.try_into().ok()).map_or(0, u64::from_ne_bytes)
}

fn word(bytes: &[u8], at: usize) -> u32 {
    bytes.get(at..at + 4).and_then(|b| b.try_into().ok()).map_or(0, u32::from_ne_bytes)
}

fn half(bytes: &[u8], at: usize) -> u16 {
    bytes.get(at..at + 2).and_then(|b| b.try_into().ok()).map_or(0, u16::from_ne_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_are_read_as_the_kernel_writes_them() {
        let mut body = Vec::new();
        body.extend(7u32.to_ne_bytes());
        body.extend(8u32.to_ne_bytes());
        body.extend(99u64.to_ne_bytes());
        body.extend(3u32.to_ne_bytes());
        body.extend([1, 2, 3, 0, 0, 0]);
        let event = Record::Event { pid: 7, tid: 8, time: 99, raw: vec![1, 2, 3] };
        assert_eq!(decode(perf::PERF_RECORD_SAMPLE, &body), Some(event));
        assert_eq!(decode(perf::PERF_RECORD_SAMPLE, &body[..21]), None, "cut short");
        assert_eq!(decode(perf::PERF_RECORD_COMM, &body[..9]), None);
        assert_eq!(decode(12345, &body), None);
    }
}
