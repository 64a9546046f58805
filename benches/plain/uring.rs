//! io_uring: chains of linked sends, and one multishot receive into a ring of
//! provided buffers.

use super::{MESSAGE, Window, memory};
use io_uring::squeue::Flags;
use io_uring::types::{BufRingEntry, Fixed};
use io_uring::{IoUring, cqueue, opcode};
use std::io;
use std::net::TcpStream;
use std::os::fd::AsRawFd;
use std::slice;
use std::sync::atomic::{AtomicU16, Ordering};

/// Sends per io_uring_enter(2).
pub const DEPTH: usize = 4;

/// Buffers of one message each in the ring of the receiver; a power of two.
const BUFFERS: u16 = 16;

/// The group id of these buffers.
const GROUP: u16 = 0;

/// Sends the message repeatedly, four times per call. Each send is issued once the previous one has
/// queued all of its bytes.
pub fn send(stream: &TcpStream) -> io::Result<()> {
    let message = memory(MESSAGE)?;
    let mut ring = ring(stream)?;
    loop {
        for left in (0..DEPTH).rev() {
            let link = if left > 0 { Flags::IO_LINK } else { Flags::empty() };
            let entry = opcode::Send::new(Fixed(0), message.as_ptr(), MESSAGE as u32)
                .flags(libc::MSG_WAITALL | libc::MSG_NOSIGNAL)
                .build()
                .flags(link);
            // SAFETY: the message lives as long as the process.
            unsafe { ring.submission().push(&entry).map_err(io::Error::other)? };
        }
        ring.submit_and_wait(DEPTH)?;
        for done in ring.completion() {
            result(&done)?;
        }
    }
}

/// Receives into the buffers that the kernel picks.
pub fn receive(stream: &TcpStream, window: &mut Window) -> io::Result<()> {
    let mut buffers = Buffers::new()?;
    let mut ring = ring(stream)?;
    // SAFETY: the entries are page-aligned and live as long as the process.
    unsafe {
        let address = buffers.entries as u64;
        ring.submitter().register_buf_ring_with_flags(address, BUFFERS, GROUP, 0)?;
    }
    let mut armed = false;
    loop {
        if !armed {
            let entry = opcode::RecvMulti::new(Fixed(0), GROUP).build();
            // SAFETY: it writes only to the buffers of the group.
            unsafe { ring.submission().push(&entry).map_err(io::Error::other)? };
            armed = true;
        }
        ring.submit_and_wait(1)?;
        for done in ring.completion() {
            armed &= cqueue::more(done.flags());
            if done.result() == -libc::ENOBUFS {
                continue;
            }
            let bytes = result(&done)?;
            if let Some(id) = cqueue::buffer_select(done.flags()) {
                buffers.provide(id);
            }
            if !window.count(bytes) {
                return Ok(());
            }
        }
    }
}

/// A ring with the socket as its file 0. Completions wait for io_uring_enter(2) instead of
/// interrupting this thread.
pub fn ring(stream: &TcpStream) -> io::Result<IoUring> {
    let ring = IoUring::builder()
        .setup_single_issuer()
        .setup_defer_taskrun()
        .setup_cqsize(8192)
        .build(DEPTH as u32)?;
    ring.submitter().register_files(&[stream.as_raw_fd()])?;
    Ok(ring)
}

/// Returns the bytes of a completed operation.
pub fn result(done: &cqueue::Entry) -> io::Result<usize> {
    usize::try_from(done.result()).map_err(|_| io::Error::from_raw_os_error(-done.result()))
}

/// Memory from which the kernel picks buffers (io_uring_register_buf_ring(3)).
struct Buffers {
    entries: *mut BufRingEntry,
    memory: &'static mut [u8],
    tail: u16,
}

impl Buffers {
    fn new() -> io::Result<Self> {
        let entries = memory(usize::from(BUFFERS) * size_of::<BufRingEntry>())?;
        let entries = entries.as_mut_ptr().cast::<BufRingEntry>();
        let memory = memory(usize::from(BUFFERS) * MESSAGE)?;
        let mut buffers = Buffers { entries, memory, tail: 0 };
        (0..BUFFERS).for_each(|id| buffers.provide(id));
        Ok(buffers)
    }

    fn provide(&mut self, id: u16) {
        let at = usize::from(id % BUFFERS) * MESSAGE;
        // SAFETY: there are `BUFFERS` entries, and the kernel does not read those past the tail.
        let entries = unsafe { slice::from_raw_parts_mut(self.entries, usize::from(BUFFERS)) };
        let entry = &mut entries[usize::from(self.tail % BUFFERS)];
        entry.set_addr(self.memory[at..].as_ptr() as u64);
        entry.set_len(MESSAGE as u32);
        entry.set_bid(id);
        self.tail = self.tail.wrapping_add(1);
        // SAFETY: the tail is an aligned u16 in the first entry.
        let tail = unsafe { AtomicU16::from_ptr(BufRingEntry::tail(self.entries).cast_mut()) };
        tail.store(self.tail, Ordering::Release);
    }
}
