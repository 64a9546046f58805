//! A receive queue from the driver's side: we offer buffers, the device fills them and returns them
//! (Virtual I/O Device 1.2, 2.7 "Split Virtqueues" and 5.1.6.4 "Processing of Incoming Packets";
//! linux/virtio_ring.h).

use crate::memory::Region;
use std::io;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU16, Ordering, fence};

/// Bytes of `struct virtio_net_hdr_v1`, which precedes every frame.
pub const HEADER: usize = 12;

/// Offset in the header of the number of buffers that the frame takes.
const NUM_BUFFERS: usize = 10;
/// The device writes to the buffer (`VIRTQ_DESC_F_WRITE`).
const WRITE: u16 = 2;
/// The device wants no kicks (`VIRTQ_USED_F_NO_NOTIFY`).
const NO_NOTIFY: u16 = 1;
/// The driver wants no calls (`VIRTQ_AVAIL_F_NO_INTERRUPT`).
const NO_INTERRUPT: u16 = 1;
/// Bytes of flags and index, before the entries of either ring.
const RING_HEADER: usize = 4;

/// The layout of a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// Number of buffers: a power of two up to 32768.
    pub entries: u16,
    /// Bytes of each buffer, more than those of the header.
    pub buffer: u32,
    /// Whether a frame may take several buffers (`VIRTIO_NET_F_MRG_RXBUF`). Otherwise vhost
    /// discards a frame that does not fit into a buffer, without counting it anywhere.
    pub mergeable: bool,
}

/// The part of a frame in one buffer, without the header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece<'a> {
    /// Its bytes.
    pub bytes: &'a [u8],
    /// Whether the frame begins with it.
    pub begins: bool,
    /// Whether the frame ends with it.
    pub ends: bool,
}

/// Something in the ring that a device may not put there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Malformed {
    /// A buffer that was never offered, or with more bytes than it can hold.
    #[error("it returned {len} bytes in buffer {id}")]
    Buffer {
        /// Number of the buffer.
        id: u32,
        /// Bytes reported to be in it.
        len: u32,
    },
    /// A frame with no buffers, or with more than there are.
    #[error("it reports that a frame takes {0} buffers")]
    Count(u16),
}

/// `struct vhost_vring_addr`: addresses of the parts.
#[repr(C)]
pub(super) struct Addresses {
    index: u32,
    flags: u32,
    descriptors: u64,
    used: u64,
    available: u64,
    log: u64,
}

const _: () = assert!(size_of::<Addresses>() == 40);

/// Our side of the queue, and its whole memory.
#[derive(Debug)]
pub(super) struct ReceiveRing {
    memory: Region,
    shape: Shape,
    stride: usize,
    /// The available index, counting entries not yet published.
    next: u16,
    /// Number of entries of the used ring that were taken.
    taken: u16,
    /// Buffers left of the frame being taken.
    rest: u16,
}

impl ReceiveRing {
    /// Makes a queue with all buffers offered. EINVAL: invalid shape.
    pub(super) fn new(shape: Shape) -> io::Result<Self> {
        let stride = (shape.buffer as usize).next_multiple_of(64);
        if !shape.entries.is_power_of_two() || shape.buffer as usize <= HEADER {
            return Err(io::Error::from_raw_os_error(libc::EINVAL));
        }
        let buffers = (shape.entries as usize).checked_mul(stride);
        let len = buffers.and_then(|len| len.checked_add(buffers_at(shape.entries)));
        let len = len.ok_or_else(|| io::Error::from_raw_os_error(libc::ENOMEM))?;
        let memory = Region::new(len, false)?;
        let mut ring = ReceiveRing { memory, shape, stride, next: 0, taken: 0, rest: 0 };
        for id in 0..shape.entries {
            let address = ring.memory.as_ptr() as u64 + ring.buffer(id) as u64;
            let descriptor = Descriptor {
                address: address.to_le(),
                len: shape.buffer.to_le(),
                flags: WRITE.to_le(),
                next: 0,
            };
            let at = id as usize * size_of::<Descriptor>();
            // SAFETY: the descriptors lie at the start of the memory, which is aligned to a page
            // and not yet known to anyone else.
            unsafe { ring.at(at).cast::<Descriptor>().write_volatile(descriptor) };
            ring.offer(id);
        }
        ring.want_calls(false);
        ring.show();
        Ok(ring)
    }

    /// Returns address and length of its memory.
    pub(super) fn extent(&self) -> (u64, u64) {
        (self.memory.as_ptr() as u64, self.memory.len() as u64)
    }

    /// Returns the addresses of the parts, for the queue with this number.
    pub(super) fn addresses(&self, index: u32) -> Addresses {
        let at = |offset| self.memory.as_ptr() as u64 + offset as u64;
        let (descriptors, entries) = (at(0), self.shape.entries);
        let (used, available) = (at(used_at(entries)), at(available_at(entries)));
        Addresses { index, flags: 0, descriptors, used, available, log: 0 }
    }

    /// Number of buffers that the device has filled and that were not yet taken.
    pub(super) fn waiting(&self) -> u16 {
        let index =
            u16::from_le(self.word(used_at(self.shape.entries) + 2).load(Ordering::Acquire));
        index.wrapping_sub(self.taken)
    }

    /// Passes to `visit` what has arrived, up to `most` frames, and offers their buffers again.
    /// Returns the number of frames that ended.
    #[inline]
    pub(super) fn take(
        &mut self,
        most: usize,
        mut visit: impl FnMut(Piece),
    ) -> Result<usize, Malformed> {
        let (mut frames, mut waiting) = (0, self.waiting());
        while waiting > 0 && frames < most {
            let (id, piece) = self.piece()?;
            visit(piece);
            frames += usize::from(piece.ends);
            self.rest -= 1;
            self.taken = self.taken.wrapping_add(1);
            waiting -= 1;
            self.offer(id);
        }
        self.show();
        Ok(frames)
    }

    /// Whether the device has to be notified of new buffers.
    #[inline]
    pub(super) fn must_kick(&self) -> bool {
        // Orders publishing the index before reading the device's flags.
        fence(Ordering::SeqCst);
        let flags = self.word(used_at(self.shape.entries)).load(Ordering::Relaxed);
        u16::from_le(flags) & NO_NOTIFY == 0
    }

    /// Sets whether the device is to call when it has filled a buffer. After requesting it, check
    /// [`Self::waiting`] once more.
    pub(super) fn want_calls(&self, wanted: bool) {
        let flags = if wanted { 0 } else { NO_INTERRUPT };
        self.word(available_at(self.shape.entries)).store(flags.to_le(), Ordering::Relaxed);
        fence(Ordering::SeqCst);
    }

    /// Takes the next filled buffer.
    #[inline]
    fn piece(&mut self) -> Result<(u16, Piece<'_>), Malformed> {
        let entries = self.shape.entries;
        let slot = (self.taken & (entries - 1)) as usize;
        let at = used_at(entries) + RING_HEADER + slot * size_of::<Used>();
        // SAFETY: the slot lies in the used ring; the device wrote it before it moved the index,
        // which was read with Acquire.
        let used = unsafe { self.at(at).cast::<Used>().read_volatile() };
        let (id, len) = (u32::from_le(used.id), u32::from_le(used.len));
        let begins = self.rest == 0;
        let least = if begins { HEADER as u32 } else { 0 };
        if id >= entries.into() || len > self.shape.buffer || len < least {
            return Err(Malformed::Buffer { id, len });
        }
        let id = id as u16;
        let start = self.buffer(id);
        if begins {
            let count = match self.shape.mergeable {
                true => u16::from_le(self.word(start + NUM_BUFFERS).load(Ordering::Relaxed)),
                false => 1,
            };
            if count == 0 || count > entries {
                return Err(Malformed::Count(count));
            }
            self.rest = count;
        }
        let skip = least as usize;
        // SAFETY: buffer and length were checked; the device does not access the buffer until it is
        // offered again, after this borrow.
        let bytes = unsafe {
            std::slice::from_raw_parts(self.at(start + skip).as_ptr(), len as usize - skip)
        };
        Ok((id, Piece { bytes, begins, ends: self.rest == 1 }))
    }

    /// Puts a buffer into the available ring; [`Self::show`] publishes it.
    #[inline]
    fn offer(&mut self, id: u16) {
        let slot = (self.next & (self.shape.entries - 1)) as usize;
        let at = available_at(self.shape.entries) + RING_HEADER + slot * 2;
        self.word(at).store(id.to_le(), Ordering::Relaxed);
        self.next = self.next.wrapping_add(1);
    }

    #[inline]
    fn show(&self) {
        let index = self.word(available_at(self.shape.entries) + 2);
        index.store(self.next.to_le(), Ordering::Release);
    }

    /// Returns the offset of a buffer.
    fn buffer(&self, id: u16) -> usize {
        buffers_at(self.shape.entries) + id as usize * self.stride
    }

    fn at(&self, offset: usize) -> NonNull<u8> {
        debug_assert!(offset < self.memory.len());
        // SAFETY: callers pass offsets of parts that `new` has made room for.
        unsafe { self.memory.start().add(offset) }
    }

    /// Returns a 16-bit number that both sides may access at the same time.
    fn word(&self, offset: usize) -> &AtomicU16 {
        // SAFETY: it lies within the memory, at an even offset, and is only ever used as an
        // atomic on our side.
        unsafe { AtomicU16::from_ptr(self.at(offset).cast().as_ptr()) }
    }
}

/// `struct vring_desc`.
#[repr(C)]
struct Descriptor {
    address: u64,
    len: u32,
    flags: u16,
    next: u16,
}

/// `struct vring_used_elem`.
#[repr(C)]
#[derive(Clone, Copy)]
struct Used {
    id: u32,
    len: u32,
}

// Each ring ends with a word that only VIRTIO_F_EVENT_IDX gives a meaning.

fn available_at(entries: u16) -> usize {
    entries as usize * size_of::<Descriptor>()
}

fn used_at(entries: u16) -> usize {
    (available_at(entries) + RING_HEADER + entries as usize * 2 + 2).next_multiple_of(64)
}

fn buffers_at(entries: u16) -> usize {
    (used_at(entries) + RING_HEADER + entries as usize * size_of::<Used>() + 2)
        .next_multiple_of(4096)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHAPE: Shape = Shape { entries: 8, buffer: 128, mergeable: true };

    /// Plays the device's end. Must not outlive its ring.
    struct FakeDevice {
        base: NonNull<u8>,
        shape: Shape,
        seen: u16,
        used: u16,
    }

    impl FakeDevice {
        fn of(ring: &ReceiveRing) -> FakeDevice {
            FakeDevice { base: ring.memory.start(), shape: ring.shape, seen: 0, used: 0 }
        }

        fn word(&self, offset: usize) -> &AtomicU16 {
            // SAFETY: the ring of the test lives, and its memory has this word.
            unsafe { AtomicU16::from_ptr(self.base.add(offset).cast().as_ptr()) }
        }

        fn offered(&self) -> u16 {
            let index = self.word(available_at(self.shape.entries) + 2).load(Ordering::Acquire);
            index.wrapping_sub(self.seen)
        }

        /// Fills buffers with a frame; returns false if too few are offered.
        fn receive(&mut self, frame: &[u8]) -> bool {
            let room = self.shape.buffer as usize;
            let mut header = [0; HEADER];
            let count = (frame.len() + HEADER).div_ceil(room) as u16;
            header[NUM_BUFFERS..].copy_from_slice(&count.to_le_bytes());
            if self.offered() < count {
                return false;
            }
            for part in [&header[..], frame].concat().chunks(room) {
                let slot = (self.seen & (self.shape.entries - 1)) as usize;
                let at = available_at(self.shape.entries) + RING_HEADER + 2 * slot;
                let id = self.word(at).load(Ordering::Relaxed);
                self.seen = self.seen.wrapping_add(1);
                // SAFETY: as above; the descriptor is the ring's own.
                unsafe {
                    let descriptor = self.base.add(id as usize * 16).cast::<Descriptor>().read();
                    let to = descriptor.address as *mut u8;
                    to.copy_from_nonoverlapping(part.as_ptr(), part.len());
                }
                self.hand_back(id.into(), part.len() as u32);
            }
            true
        }

        fn hand_back(&mut self, id: u32, len: u32) {
            let at = used_at(self.shape.entries);
            let slot = (self.used & (self.shape.entries - 1)) as usize;
            // SAFETY: as above.
            unsafe { self.base.add(at + RING_HEADER + 8 * slot).cast().write(Used { id, len }) };
            self.used = self.used.wrapping_add(1);
            self.word(at + 2).store(self.used, Ordering::Release);
        }
    }

    fn frames(ring: &mut ReceiveRing, most: usize) -> Result<Vec<Vec<u8>>, Malformed> {
        let (mut all, mut frame) = (Vec::new(), Vec::new());
        let count = ring.take(most, |piece| {
            assert_eq!(piece.begins, frame.is_empty());
            frame.extend_from_slice(piece.bytes);
            if piece.ends {
                all.push(std::mem::take(&mut frame));
            }
        })?;
        assert_eq!((count, frame.len()), (all.len(), 0));
        Ok(all)
    }

    /// More frames than the 65536 after which the indices wrap.
    #[test]
    fn frames_come_out_as_they_went_in_also_where_the_counters_wrap() {
        let mut ring = ReceiveRing::new(SHAPE).unwrap();
        let mut device = FakeDevice::of(&ring);
        let frame = |n: usize| vec![n as u8; 1 + n % 300];
        let (mut put, mut got) = (0, 0);
        while got < 100_000 {
            while device.receive(&frame(put)) {
                put += 1;
            }
            let most = 1 + got % 5;
            let all = frames(&mut ring, most).unwrap();
            assert!((1..=most).contains(&all.len()));
            for one in all {
                assert_eq!(one, frame(got));
                got += 1;
            }
        }
    }

    #[test]
    fn a_ring_left_full_takes_nothing_more_and_loses_nothing() {
        let mut ring = ReceiveRing::new(SHAPE).unwrap();
        let mut device = FakeDevice::of(&ring);
        let put = (0..20).take_while(|n| device.receive(&[*n; 60])).count();
        assert_eq!((put, ring.waiting(), device.offered()), (8, 8, 0));
        assert_eq!(frames(&mut ring, 3).unwrap(), [[0; 60], [1; 60], [2; 60]]);
        assert_eq!((ring.waiting(), device.offered()), (5, 3));
        assert_eq!(frames(&mut ring, 99).unwrap().len(), 5);
        assert_eq!(frames(&mut ring, 99).unwrap().len(), 0);
        assert_eq!(device.offered(), 8);
    }

    #[test]
    fn each_side_says_whether_it_wants_notifications() {
        let ring = ReceiveRing::new(SHAPE).unwrap();
        let device = FakeDevice::of(&ring);
        let (available, used) = (available_at(8), used_at(8));
        assert_eq!(device.word(available).load(Ordering::Relaxed), NO_INTERRUPT);
        ring.want_calls(true);
        assert_eq!(device.word(available).load(Ordering::Relaxed), 0);
        assert!(ring.must_kick());
        device.word(used).store(NO_NOTIFY, Ordering::Relaxed);
        assert!(!ring.must_kick());
    }

    #[test]
    fn what_no_device_may_say_is_refused() {
        for (id, len) in [(8, 60), (u32::MAX, 60), (0, 129), (0, 11), (0, u32::MAX)] {
            let mut ring = ReceiveRing::new(SHAPE).unwrap();
            FakeDevice::of(&ring).hand_back(id, len);
            assert_eq!(frames(&mut ring, 1), Err(Malformed::Buffer { id, len }));
        }
        // A header of zeros: a frame with no buffers.
        let mut ring = ReceiveRing::new(SHAPE).unwrap();
        FakeDevice::of(&ring).hand_back(0, 60);
        assert_eq!(frames(&mut ring, 1), Err(Malformed::Count(0)));
        let mut ring = ReceiveRing::new(Shape { mergeable: false, ..SHAPE }).unwrap();
        FakeDevice::of(&ring).hand_back(0, 60);
        assert_eq!(frames(&mut ring, 1), Ok(vec![vec![0; 48]]));
    }

    #[test]
    fn shapes_that_no_queue_has_are_refused() {
        for shape in [
            Shape { entries: 0, ..SHAPE },
            Shape { entries: 100, ..SHAPE },
            Shape { buffer: HEADER as u32, ..SHAPE },
        ] {
            let error = ReceiveRing::new(shape).unwrap_err();
            assert_eq!(error.raw_os_error(), Some(libc::EINVAL), "{shape:?}");
        }
    }
}
