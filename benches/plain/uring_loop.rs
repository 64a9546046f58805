//! The same exchanges as [`super::epoll`] by io_uring: a multishot receive on each connection, into
//! provided buffers shared by all, and sends that the next io_uring_enter(2) submits.

use super::epoll::Load;
use super::uring::result;
use super::{Window, memory};
use anyhow::{Context, Result, ensure};
use io_uring::types::{BufRingEntry, Fixed};
use io_uring::{IoUring, cqueue, opcode, squeue};
use std::net::TcpStream;
use std::os::fd::{AsRawFd, RawFd};
use std::sync::atomic::{AtomicU16, Ordering};

/// Buffers shared by all connections; a power of two.
const BUFFERS: u16 = 4096;

/// Mark of a send in its user data.
const SEND: u64 = 1 << 32;

/// Answers requests until the first client has ended.
pub fn serve(streams: &[TcpStream], load: Load) -> Result<()> {
    let mut ring = Ring::new(streams, load.response, load.request)?;
    loop {
        ring.submit_and_wait()?;
        while let Some((place, bytes)) = ring.received()? {
            if bytes == 0 {
                return Ok(());
            }
            for _ in 0..ring.messages(place, bytes) {
                ring.send(place)?;
            }
        }
    }
}

/// Sends the next request after each response; returns the number of responses, and the seconds.
pub fn request(streams: &[TcpStream], load: Load, window: &mut Window) -> Result<(u64, f64)> {
    let mut ring = Ring::new(streams, load.request, load.response)?;
    (0..streams.len()).try_for_each(|place| ring.send(place))?;
    loop {
        ring.submit_and_wait()?;
        while let Some((place, bytes)) = ring.received()? {
            ensure!(bytes > 0, "the server is gone");
            for _ in 0..ring.messages(place, bytes) {
                if !window.count(1) {
                    return window.measured().context("no window");
                }
                ring.send(place)?;
            }
        }
    }
}

struct Ring {
    uring: IoUring,
    message: &'static [u8],
    /// Bytes of an incoming message; below, the bytes received of one over each connection.
    size: usize,
    came: Vec<usize>,
    entries: *mut BufRingEntry,
    buffers: &'static mut [u8],
    room: usize,
    tail: u16,
}

impl Ring {
    fn new(streams: &[TcpStream], send: usize, receive: usize) -> Result<Ring> {
        let entries = (2 * streams.len()).clamp(8, 4096) as u32;
        let uring = IoUring::builder()
            .setup_single_issuer()
            .setup_defer_taskrun()
            .setup_cqsize(1 << 16)
            .build(entries)?;
        let files: Vec<RawFd> = streams.iter().map(AsRawFd::as_raw_fd).collect();
        uring.submitter().register_files(&files)?;
        let count = usize::from(BUFFERS);
        let entries = memory(count * size_of::<BufRingEntry>())?.as_mut_ptr().cast();
        let room = receive.max(4096);
        let buffers = memory(count * room)?;
        let (message, came) = (memory(send)?, vec![0; streams.len()]);
        let mut ring =
            Ring { uring, message, size: receive, came, entries, buffers, room, tail: 0 };
        (0..BUFFERS).for_each(|id| ring.provide(id));
        // SAFETY: the entries are page-aligned and live as long as the process.
        unsafe {
            let submitter = ring.uring.submitter();
            submitter.register_buf_ring_with_flags(entries as u64, BUFFERS, 0, 0)?;
        }
        (0..streams.len()).try_for_each(|place| ring.receive(place))?;
        Ok(ring)
    }

    fn submit_and_wait(&mut self) -> Result<()> {
        self.uring.submit_and_wait(1)?;
        Ok(())
    }

    /// Bytes received over a connection, 0 at its end; `None` if no completion is pending.
    fn received(&mut self) -> Result<Option<(usize, usize)>> {
        while let Some(done) = { self.uring.completion().next() } {
            let place = done.user_data() as usize & (SEND - 1) as usize;
            if done.user_data() & SEND != 0 {
                // A send to a peer that has closed is handled by the receive.
                continue;
            }
            if !cqueue::more(done.flags()) && done.result() != 0 {
                self.receive(place)?;
            }
            match done.result() {
                e if e == -libc::ENOBUFS => continue,
                e if e == -libc::ECONNRESET => return Ok(Some((place, 0))),
                _ => {}
            }
            let bytes = result(&done)?;
            if let Some(id) = cqueue::buffer_select(done.flags()) {
                self.provide(id);
            }
            return Ok(Some((place, bytes)));
        }
        Ok(None)
    }

    fn messages(&mut self, place: usize, bytes: usize) -> usize {
        self.came[place] += bytes;
        let whole = self.came[place] / self.size;
        self.came[place] %= self.size;
        whole
    }

    fn send(&mut self, place: usize) -> Result<()> {
        let (from, len) = (self.message.as_ptr(), self.message.len() as u32);
        let entry = opcode::Send::new(Fixed(place as u32), from, len)
            .flags(libc::MSG_WAITALL | libc::MSG_NOSIGNAL);
        self.push(&entry.build().user_data(place as u64 | SEND))
    }

    fn receive(&mut self, place: usize) -> Result<()> {
        let entry = opcode::RecvMulti::new(Fixed(place as u32), 0).build();
        self.push(&entry.user_data(place as u64))
    }

    fn push(&mut self, entry: &squeue::Entry) -> Result<()> {
        // SAFETY: message and buffers live as long as the process.
        if unsafe { self.uring.submission().push(entry) }.is_err() {
            self.uring.submit()?;
            // SAFETY: as above.
            unsafe { self.uring.submission().push(entry) }.context("a full queue")?;
        }
        Ok(())
    }

    fn provide(&mut self, id: u16) {
        let at = usize::from(id) * self.room;
        // SAFETY: there are `BUFFERS` entries, and the kernel does not read those past the tail,
        // which is an aligned u16 in the first of them.
        unsafe {
            let entry = &mut *self.entries.add(usize::from(self.tail % BUFFERS));
            entry.set_addr(self.buffers[at..].as_ptr() as u64);
            entry.set_len(self.room as u32);
            entry.set_bid(id);
            self.tail = self.tail.wrapping_add(1);
            let tail = AtomicU16::from_ptr(BufRingEntry::tail(self.entries).cast_mut());
            tail.store(self.tail, Ordering::Release);
        }
    }
}
