//! Rings of a packet socket that the kernel and the program share in memory
//! (Documentation/networking/packet_mmap.rst), version 2: one slot per frame.

use super::memory::{MappedMemory, READ_WRITE};
use super::packet::{self, Batch, bind, dropped, share, wait_readable};
use super::{check, tcp};
use libc::{TP_STATUS_KERNEL, TP_STATUS_SEND_REQUEST, TP_STATUS_USER, TP_STATUS_WRONG_FORMAT};
use rustix::net::SocketFlags;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::ptr::null;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

/// Bytes of `struct tpacket2_hdr`, rounded up as by TPACKET_ALIGN: in a slot to be sent, the frame
/// starts after it.
const HEADER: usize = 32;

/// Most bytes that the kernel puts before a received frame: the header, a `sockaddr_ll`, and
/// padding that aligns the network header.
const BEFORE: usize = 96;

/// Bytes of a block of slots: a power of two pages.
const BLOCK: usize = 64 << 10;

/// A packet socket with one ring.
struct Ring {
    socket: OwnedFd,
    /// Shared with the kernel; the status of a slot, which is only accessed atomically, tells which
    /// side may access the slot.
    memory: MappedMemory,
    slot: usize,
    slots: usize,
}

impl Ring {
    /// Opens a ring for at least `least` frames of at most `largest` bytes.
    fn open(
        kind: i32,
        index: u32,
        largest: usize,
        least: usize,
        protocol: u16,
    ) -> io::Result<Ring> {
        let socket = packet::open(SocketFlags::empty())?;
        let version = libc::tpacket_versions::TPACKET_V2 as i32;
        tcp::set_int(socket.as_fd(), libc::SOL_PACKET, libc::PACKET_VERSION, version)?;
        let slot = (BEFORE + largest).next_power_of_two();
        let block = BLOCK.max(slot);
        let blocks = least.max(1).div_ceil(block / slot);
        let slots = blocks * (block / slot);
        // struct tpacket_req.
        let request = [block, blocks, slot, slots].map(|n| (n as u32).to_ne_bytes()).concat();
        tcp::set_option(socket.as_fd(), libc::SOL_PACKET, kind, &request)?;
        let memory = MappedMemory::on_demand(&socket, block * blocks, READ_WRITE)?;
        bind(&socket, index, protocol)?;
        Ok(Ring { socket, memory, slot, slots })
    }

    fn at(&self, slot: usize) -> *mut u8 {
        debug_assert!(slot < self.slots, "a slot beyond the ring");
        // SAFETY: a slot of the ring begins within the mapping.
        unsafe { self.memory.start().as_ptr().add(slot * self.slot) }
    }

    /// Returns the status of a slot: who owns it, and its state.
    #[inline]
    fn status(&self, slot: usize) -> &AtomicU32 {
        // SAFETY: a slot begins with its status, which is aligned, lives as long as the mapping and
        // is written only by the kernel and here, atomically by both.
        unsafe { AtomicU32::from_ptr(self.at(slot).cast()) }
    }

    /// Writes a number in the header of a slot that is ours.
    fn set(&self, slot: usize, offset: usize, value: u32) {
        // SAFETY: within the header of the slot, aligned, and the kernel does not access a slot
        // that is ours.
        unsafe { self.at(slot).add(offset).cast::<u32>().write_volatile(value) }
    }

    fn get(&self, slot: usize, offset: usize) -> u32 {
        // SAFETY: as in `set`.
        unsafe { self.at(slot).add(offset).cast::<u32>().read_volatile() }
    }
}

// Offsets in `struct tpacket2_hdr`.
const LENGTH: usize = 4;
const SNAPPED: usize = 8;
const OFFSETS: usize = 12;

/// Frames that are in a ring and are sent from there, in a fixed order and over again. The kernel
/// copies their link header and refers to the rest.
pub struct Sender {
    ring: Ring,
    /// The next slot to hand over.
    filled: usize,
    /// The first slot that was handed over and that the kernel has not taken.
    taken: usize,
    /// Number of slots handed over and not taken.
    waiting: usize,
}

impl Sender {
    /// Puts frames into a ring of at least `least` slots, to be sent through a device.
    pub fn open(index: u32, frames: &[Vec<u8>], least: usize) -> io::Result<Sender> {
        let largest = frames.iter().map(Vec::len).max().unwrap_or(0);
        let ring = Ring::open(libc::PACKET_TX_RING, index, largest, least.max(frames.len()), 0)?;
        // The order restarts with each round of the ring.
        for slot in 0..ring.slots {
            let frame = &frames[slot % frames.len()];
            ring.set(slot, LENGTH, frame.len() as u32);
            // SAFETY: a slot has room for its header and the largest frame, and is ours at this
            // point.
            unsafe {
                ring.at(slot).add(HEADER).copy_from_nonoverlapping(frame.as_ptr(), frame.len());
            }
        }
        Ok(Sender { ring, filled: 0, taken: 0, waiting: 0 })
    }

    pub fn socket(&self) -> BorrowedFd<'_> {
        self.ring.socket.as_fd()
    }

    /// Hands over free slots until at most `most` frames are with the kernel, including those that
    /// it has not taken before, without waiting. A frame that was refused is handed over again.
    /// EINVAL: the kernel could not read a frame.
    pub fn send(&mut self, most: usize) -> io::Result<Batch> {
        while self.waiting < most
            && self.waiting < self.ring.slots
            && self.ring.status(self.filled).load(Ordering::Acquire) == TP_STATUS_KERNEL
        {
            self.ring.status(self.filled).store(TP_STATUS_SEND_REQUEST, Ordering::Release);
            self.filled = (self.filled + 1) % self.ring.slots;
            self.waiting += 1;
        }
        let socket = self.ring.socket.as_raw_fd();
        // SAFETY: no memory is passed.
        let result = unsafe { libc::send(socket, null(), 0, libc::MSG_DONTWAIT) };
        let mut turn = Batch::default();
        match check(result as libc::c_long) {
            Ok(_) => {}
            Err(e) if e.raw_os_error() == Some(libc::ENOBUFS) => turn.refused = true,
            // Frames held in a queue fill the socket's buffer.
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => {}
            Err(e) => return Err(e),
        }
        while self.waiting > 0 {
            match self.ring.status(self.taken).load(Ordering::Acquire) {
                TP_STATUS_SEND_REQUEST => break,
                status if status & TP_STATUS_WRONG_FORMAT != 0 => {
                    return Err(io::Error::from_raw_os_error(libc::EINVAL));
                }
                _ => {}
            }
            turn.sent += 1;
            turn.bytes += u64::from(self.ring.get(self.taken, LENGTH));
            self.taken = (self.taken + 1) % self.ring.slots;
            self.waiting -= 1;
        }
        Ok(turn)
    }
}

/// Frames that a device receives, read in place.
pub struct Receiver {
    ring: Ring,
    next: usize,
    dropped: u64,
}

impl Receiver {
    /// Opens a ring of at least `least` slots that receives what a device receives of an EtherType,
    /// including frames for other hosts. Sockets with the same `group` share the frames by a hash
    /// of their headers (`PACKET_FANOUT`).
    pub fn open(
        index: u32,
        ethertype: u16,
        largest: usize,
        least: usize,
        group: Option<u16>,
    ) -> io::Result<Receiver> {
        let ring = Ring::open(libc::PACKET_RX_RING, index, largest, least, ethertype)?;
        if let Some(group) = group {
            share(ring.socket.as_fd(), group)?;
        }
        Ok(Receiver { ring, next: 0, dropped: 0 })
    }

    /// Passes the next frame to `at` and releases it; `None` if there is none.
    #[inline]
    pub fn with_next_frame<T>(&mut self, at: impl FnOnce(&[u8]) -> T) -> Option<T> {
        if !self.is_there() {
            return None;
        }
        let slot = self.next;
        let length = self.ring.get(slot, SNAPPED) as usize;
        // Two 16-bit numbers; the first is the offset of the frame.
        let offsets = self.ring.get(slot, OFFSETS);
        let begin = if cfg!(target_endian = "big") { offsets >> 16 } else { offsets & 0xffff };
        let begin = begin as usize;
        let length = length.min(self.ring.slot.saturating_sub(begin));
        // SAFETY: within the slot, which is ours until its status is changed below.
        let frame = unsafe { std::slice::from_raw_parts(self.ring.at(slot).add(begin), length) };
        let found = at(frame);
        self.ring.status(slot).store(TP_STATUS_KERNEL, Ordering::Release);
        self.next = (slot + 1) % self.ring.slots;
        Some(found)
    }

    /// Whether there is a frame, without a system call.
    #[inline]
    pub fn is_there(&self) -> bool {
        self.ring.status(self.next).load(Ordering::Acquire) & TP_STATUS_USER != 0
    }

    /// Waits at most `timeout` until there is a frame.
    pub fn wait(&self, timeout: Duration) -> io::Result<bool> {
        wait_readable(self.ring.socket.as_fd(), timeout)
    }

    /// Returns the number of frames for which the ring had no room since it was opened.
    pub fn dropped(&mut self) -> io::Result<u64> {
        self.dropped += dropped(self.ring.socket.as_fd())?;
        Ok(self.dropped)
    }
}
