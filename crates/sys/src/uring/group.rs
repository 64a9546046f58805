//! A ring of provided buffers: memory from which operations pick their buffers themselves.
//! io_uring_register_buf_ring(3), `IORING_REGISTER_PBUF_RING`.

use super::Core;
use crate::memory::Region;
use io_uring::types::BufRingEntry;
use std::io;
use std::sync::atomic::{AtomicU16, Ordering};

/// The group id in use: each of our rings has at most one group.
pub(super) const GROUP: u16 = 0;

/// `IOU_PBUF_RING_INC`: a buffer is consumed bit by bit (Linux 6.12).
const INCREMENTAL: u16 = 2;

/// The shared array from which the kernel takes buffers, in order.
pub(super) struct BufferGroup {
    /// Index of the array in `Core::kept`.
    place: usize,
    mask: u16,
    tail: u16,
}

impl BufferGroup {
    /// Registers an empty array with room for `buffers` (at most 32768, rounded up to a power of
    /// two). EINVAL: the kernel has no buffer rings, or none that are consumed incrementally.
    pub(super) fn new(core: &mut Core, buffers: u16, incremental: bool) -> io::Result<Self> {
        let entries = buffers.max(1).checked_next_power_of_two();
        let entries = entries.ok_or(io::Error::from_raw_os_error(libc::EINVAL))?;
        let array = Region::new(usize::from(entries) * size_of::<BufRingEntry>(), false)?;
        let address = array.as_ptr() as u64;
        let place = core.keep(array);
        let flags = if incremental { INCREMENTAL } else { 0 };
        // SAFETY: the array has `entries` entries, is page-aligned, and the
        // core keeps it until after the ring is closed.
        unsafe {
            let submitter = core.ring.uring.submitter();
            submitter.register_buf_ring_with_flags(address, entries, GROUP, flags)?;
        }
        Ok(BufferGroup { place, mask: entries - 1, tail: 0 })
    }

    /// Adds a buffer at the end of the array and publishes it to the kernel.
    ///
    /// # Safety
    ///
    /// `address` and `len` describe memory in a region that the core keeps. If
    /// the kernel may write to it, no Rust reference to it exists until a
    /// completion has handed it back.
    pub(super) unsafe fn provide(&mut self, core: &Core, address: u64, len: u32, id: u16) {
        let base = core.kept[self.place].as_ptr().cast_mut().cast::<BufRingEntry>();
        // SAFETY: the index is masked, so the entry lies in the array; the kernel does not read
        // entries past the tail. Only address, length and id are written, because the tail shares
        // the first entry's last bytes. An all-zero entry is initialized.
        unsafe {
            let entry = &mut *base.add(usize::from(self.tail & self.mask));
            entry.set_addr(address);
            entry.set_len(len);
            entry.set_bid(id);
        }
        self.tail = self.tail.wrapping_add(1);
        // SAFETY: the tail is an aligned u16 within the first entry, which the kernel reads and
        // only we write.
        unsafe {
            let tail = BufRingEntry::tail(base).cast_mut();
            AtomicU16::from_ptr(tail).store(self.tail, Ordering::Release);
        }
    }
}
