//! Receive buffers of a group, and how the bytes that a completion reports are found in them.

use super::group::BufferGroup;
use super::{Completion, Core};
use crate::memory::Region;
use io_uring::cqueue;
use std::io;
use std::slice;

/// Number, size and use of the buffers that a ring receives into.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecvShape {
    /// Number of buffers, 1 to 32768.
    pub buffers: u16,
    /// Bytes of each, 1 to 1 GiB.
    pub buffer_size: u32,
    /// One completion may fill several buffers
    /// (`IORING_RECVSEND_BUNDLE`, Linux 6.10).
    pub bundle: bool,
    /// A buffer is filled by several completions until it is full
    /// (`IOU_PBUF_RING_INC`, Linux 6.12).
    pub incremental: bool,
}

impl RecvShape {
    /// Errors with EINVAL if a number is out of range.
    pub(super) fn check(&self) -> io::Result<()> {
        let sized =
            (1..=1 << 15).contains(&self.buffers) && (1..=1 << 30).contains(&self.buffer_size);
        if sized { Ok(()) } else { Err(io::Error::from_raw_os_error(libc::EINVAL)) }
    }

    /// Whether completions must arrive in the order in which the kernel used the buffers: a
    /// completion names only one buffer; the other buffers and the offset follow from earlier
    /// completions.
    fn needs_order(&self) -> bool {
        self.bundle || self.incremental
    }
}

/// The buffers of a ring. They are given back in order of arrival, so that the kernel uses them in
/// one fixed cycle.
pub(super) struct Buffers {
    group: BufferGroup,
    /// Index of their memory in `Core::kept`.
    place: usize,
    shape: RecvShape,
    /// Bytes of the current completion not yet handed out, and its flags.
    left: u32,
    flags: u32,
    /// The buffer used next, and how many of its bytes are filled.
    next: u16,
    offset: u32,
    /// The buffer whose bytes were handed out last.
    lent: Option<u16>,
}

impl Buffers {
    /// Allocates and touches the memory, and gives all buffers to the kernel. EINVAL: the kernel
    /// has no such buffer ring.
    pub(super) fn new(core: &mut Core, shape: RecvShape) -> io::Result<Self> {
        let bytes = usize::from(shape.buffers) * shape.buffer_size as usize;
        let place = core.keep(Region::new(bytes, false)?);
        let group = BufferGroup::new(core, shape.buffers, shape.incremental)?;
        let (left, flags, next, offset, lent) = (0, 0, 0, 0, None);
        let mut all = Buffers { group, place, shape, left, flags, next, offset, lent };
        for id in 0..shape.buffers {
            all.give_back(core, id);
        }
        Ok(all)
    }

    /// Whether the current completion has bytes not yet handed out.
    #[inline]
    pub(super) fn pending(&self) -> bool {
        self.left > 0
    }

    /// Starts on a completion with bytes, after checking that they are where they are expected.
    pub(super) fn begin(&mut self, completion: &Completion) -> io::Result<()> {
        let wrong = |what: String| Err(io::Error::new(io::ErrorKind::InvalidData, what));
        let (next, any) = (self.next, !self.shape.needs_order());
        match cqueue::buffer_select(completion.flags) {
            Some(id) if id == next || (any && id < self.shape.buffers) => self.next = id,
            other => return wrong(format!("the kernel filled buffer {other:?}, not {next}")),
        }
        let bytes = completion.result as u32;
        let buffers = if self.shape.bundle { self.shape.buffers } else { 1 };
        let most = u64::from(buffers) * u64::from(self.shape.buffer_size);
        if u64::from(bytes) + u64::from(self.offset) > most {
            return wrong(format!("the kernel reports {bytes} bytes in {most}"));
        }
        self.left = bytes;
        self.flags = completion.flags;
        Ok(())
    }

    /// Returns those bytes of the current completion that are in one buffer.
    ///
    /// # Safety
    ///
    /// The bytes are not used after the next call of [`Buffers::take_back`].
    pub(super) unsafe fn piece<'a>(&mut self, core: &'a Core) -> &'a [u8] {
        let len = self.left.min(self.shape.buffer_size - self.offset);
        let at = usize::from(self.next) * self.shape.buffer_size as usize + self.offset as usize;
        self.left -= len;
        self.offset += len;
        // An incremental buffer is used up once the kernel flags it so; any other buffer,
        // and all but the last of a bundle, after one filling.
        let full = self.offset == self.shape.buffer_size;
        let kept = self.shape.incremental && self.left == 0 && cqueue::buffer_more(self.flags);
        if full || !kept {
            self.lent = Some(self.next);
            self.next = (self.next + 1) % self.shape.buffers;
            self.offset = 0;
        }
        // SAFETY: `at + len` lies within buffer `next`, hence in the region.
        // The kernel has filled these bytes and writes to them again only after
        // `take_back`, when the caller no longer uses them.
        unsafe { slice::from_raw_parts(core.kept[self.place].as_ptr().add(at), len as usize) }
    }

    /// Gives the buffers of a completion, if it has any, back to the kernel without handing out
    /// their bytes.
    pub(super) fn discard(&mut self, core: &Core, completion: &Completion) -> io::Result<()> {
        if cqueue::buffer_select(completion.flags).is_none() {
            return Ok(());
        }
        self.begin(&Completion { result: completion.result.max(0), ..*completion })?;
        // SAFETY: the bytes are not used.
        unsafe { self.piece(core) };
        self.discard_rest(core);
        Ok(())
    }

    /// Gives the buffers of the current completion back to the kernel; its bytes not yet handed out
    /// are dropped.
    pub(super) fn discard_rest(&mut self, core: &Core) {
        self.take_back(core);
        while self.pending() {
            // SAFETY: the bytes are not used.
            unsafe { self.piece(core) };
            self.take_back(core);
        }
    }

    /// Gives back to the kernel the buffer whose bytes were handed out last.
    #[inline]
    pub(super) fn take_back(&mut self, core: &Core) {
        if let Some(id) = self.lent.take() {
            self.give_back(core, id);
        }
    }

    fn give_back(&mut self, core: &Core, id: u16) {
        let size = self.shape.buffer_size;
        let at = u64::from(id) * u64::from(size);
        let address = core.kept[self.place].as_ptr() as u64 + at;
        // SAFETY: the buffer lies within the region, and its bytes are no longer used.
        unsafe { self.group.provide(core, address, size, id) };
    }
}
