//! Queries the kernel's features, registers queues, and controls registered ones.

use super::abi::{
    AREA_DMABUF, AreaReg, CTRL_ARM_EVENT, CTRL_EXPORT, CTRL_FLUSH, Ctrl, EVENT_ALLOC_FAIL,
    EVENT_COPY, EVENT_DESC_STATS, EventDesc, FEATURE_BUFFER_SIZE, FEATURE_EVENTS, IfqReg,
    QUERY_ZCRX, QUERY_ZCRX_EVENT, QueryHeader, QueryZcrx, QueryZcrxEvent, REG_IMPORT, REG_NODEV,
    REGION_OF_USER, REGISTER_CTRL, REGISTER_IFQ, REGISTER_QUERY, RefillEntry, RegionDesc, STATS,
};
use super::arrivals::{EVENTS, Piece, Reader};
use super::refill::RefillRing;
use crate::memory::{HUGE_PAGE, MappedMemory, Region};
use crate::{check, dmabuf};
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::slice;
use std::sync::{Mutex, PoisonError};

/// What the kernel's zero-copy receive supports (`IO_URING_QUERY_ZCRX`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Abilities {
    /// A queue without a device, into which the kernel copies (Linux 7.1).
    pub no_device: bool,
    /// Queues can be shared between rings (Linux 6.19).
    pub import: bool,
    /// The area may be a dmabuf (Linux 6.16).
    pub dmabuf: bool,
    /// The refill ring can be flushed by a call (Linux 6.19).
    pub flush: bool,
    /// Buffers may be larger than a page (Linux 7.0).
    pub buffer_size: bool,
    /// Events and copy statistics (Linux 7.2).
    pub events: bool,
    /// Bytes of the refill ring's header.
    pub header: usize,
    /// Shape of its copy statistics; `None` if it does not report that
    /// (`IO_URING_QUERY_ZCRX_EVENT`).
    pub stats: Option<StatsShape>,
}

/// The memory that copy statistics take in the region of the refill ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StatsShape {
    /// Bytes.
    pub size: u32,
    /// Alignment of its offset in bytes.
    pub alignment: u32,
}

/// Queries what the kernel's zero-copy receive supports. EINVAL: the kernel cannot be queried
/// (before Linux 6.19). EOPNOTSUPP: it can, and has no zero-copy receive.
pub fn abilities() -> io::Result<Abilities> {
    let answer: QueryZcrx = query(QUERY_ZCRX)?;
    let event: Option<QueryZcrxEvent> = query(QUERY_ZCRX_EVENT).ok();
    let shape = |event: QueryZcrxEvent| StatsShape {
        size: event.stats_size,
        alignment: event.stats_off_alignment,
    };
    Ok(Abilities {
        no_device: answer.register_flags & u64::from(REG_NODEV) != 0,
        import: answer.register_flags & u64::from(REG_IMPORT) != 0
            && answer.nr_ctrl_opcodes > CTRL_EXPORT,
        dmabuf: answer.area_flags & u64::from(AREA_DMABUF) != 0,
        flush: answer.nr_ctrl_opcodes > CTRL_FLUSH,
        buffer_size: answer.features & FEATURE_BUFFER_SIZE != 0,
        events: answer.features & FEATURE_EVENTS != 0 && answer.nr_ctrl_opcodes > CTRL_ARM_EVENT,
        header: answer.rq_hdr_size as usize,
        stats: event.map(shape),
    })
}

/// Makes one query. Fields that the kernel does not know stay zero.
fn query<T: Default>(question: u32) -> io::Result<T> {
    let mut answer = T::default();
    let mut header = QueryHeader {
        query_data: &raw mut answer as u64,
        query_op: question,
        size: size_of::<T>() as u32,
        ..Default::default()
    };
    // SAFETY: the kernel writes at most `size` bytes to the answer, a structure of numbers, and its
    // result to the header; both are live and ours. No ring is needed.
    unsafe { register(-1, REGISTER_QUERY, &raw mut header, 0)? };
    match header.result {
        0.. => Ok(answer),
        refusal => Err(io::Error::from_raw_os_error(refusal.saturating_neg())),
    }
}

/// The memory of a queue's area.
#[derive(Debug)]
pub enum AreaMemory {
    /// Ordinary pages, with the advice to use transparent huge pages.
    Normal(usize),
    /// Reserved huge pages on this NUMA node; rounded up to whole pages.
    Huge(usize, Option<u32>),
    /// A whole dmabuf that the CPU can read. The kernel cannot copy into it.
    Dmabuf(Box<dyn dmabuf::Memory>),
}

/// The required properties of a queue.
#[derive(Debug)]
pub struct QueueShape {
    /// Index of the network device and of its receive queue; `None` for a queue
    /// without a device, into which the kernel copies.
    pub device: Option<(u32, u32)>,
    /// The memory that bytes arrive in, a whole number of pages.
    pub area: AreaMemory,
    /// Entries of the refill ring, 1 to 32768; rounded up to a power of two.
    pub entries: u32,
    /// Bytes of a buffer: a power of two, at least a page; `None` for a page.
    pub buffer: Option<u32>,
    /// Whether the kernel provides the memory of the refill ring.
    pub kernel_ring: bool,
    /// What the kernel supports; `None` if it could not be queried.
    pub abilities: Option<Abilities>,
}

/// A registered queue: its area and its refill ring. The kernel keeps all pages
/// pinned for as long as it uses them, so none of them has to outlive anything.
#[derive(Debug)]
pub(super) struct Queue {
    area: Area,
    refill: Mutex<RefillRing>,
    pub reader: Reader,
    /// No NIC takes entries from the refill ring, so they are taken only when the ring is flushed.
    pub no_device: bool,
    /// The ring can be flushed.
    pub flush: bool,
}

/// The memory of an area, mapped.
#[derive(Debug)]
enum Area {
    Memory(Region),
    Dmabuf(Box<dyn dmabuf::Memory>),
}

impl Area {
    fn new(memory: AreaMemory) -> io::Result<Self> {
        Ok(match memory {
            AreaMemory::Normal(len) => Area::Memory(Region::new(len, len >= HUGE_PAGE)?),
            AreaMemory::Huge(len, node) => Area::Memory(Region::on_huge_pages(len, node)?),
            AreaMemory::Dmabuf(memory) => Area::Dmabuf(memory),
        })
    }

    fn len(&self) -> usize {
        match self {
            Area::Memory(region) => region.len(),
            Area::Dmabuf(memory) => memory.size(),
        }
    }

    /// Describes the area to the kernel. A dmabuf is named by offset and descriptor.
    fn request(&self) -> AreaReg {
        let len = self.len() as u64;
        match self {
            Area::Memory(region) => {
                AreaReg { addr: region.start().as_ptr() as u64, len, ..Default::default() }
            }
            Area::Dmabuf(memory) => AreaReg {
                len,
                flags: AREA_DMABUF,
                dmabuf_fd: memory.fd().as_raw_fd() as u32,
                ..Default::default()
            },
        }
    }
}

impl Queue {
    /// Registers a queue with a ring, and returns the queue with its id in that ring. The device,
    /// if there is one, restarts its receive queue.
    pub(super) fn register(ring: BorrowedFd, shape: QueueShape) -> io::Result<(Queue, u32)> {
        let can = shape.abilities.unwrap_or_default();
        let area = Area::new(shape.area)?;
        let page = rustix::param::page_size();
        let entries = shape.entries.max(1).checked_next_power_of_two();
        let entries = entries.ok_or(io::Error::from_raw_os_error(libc::EINVAL))?;
        let (stats, size) = places(&can, entries, page);
        let ours = (!shape.kernel_ring).then(|| Region::new(size, false)).transpose()?;

        let mut area_reg = area.request();
        let mut region_desc = RegionDesc { size: size as u64, ..Default::default() };
        if let Some(ours) = &ours {
            region_desc.user_addr = ours.start().as_ptr() as u64;
            region_desc.flags = REGION_OF_USER;
        }
        let mut event_desc = EventDesc {
            user_data: EVENTS,
            type_mask: 1 << EVENT_ALLOC_FAIL | 1 << EVENT_COPY,
            flags: EVENT_DESC_STATS,
            stats_offset: stats as u64,
            ..Default::default()
        };
        let mut request = IfqReg {
            rq_entries: entries,
            area_ptr: &raw mut area_reg as u64,
            region_ptr: &raw mut region_desc as u64,
            rx_buf_len: shape.buffer.unwrap_or(0),
            ..Default::default()
        };
        match shape.device {
            Some((index, queue)) => (request.if_idx, request.if_rxq) = (index, queue),
            None => request.flags = REG_NODEV,
        }
        if can.events {
            request.event_desc = &raw mut event_desc as u64;
        }
        // SAFETY: the request and the structures it points to are live,
        // exclusively ours, and laid out as the kernel expects. The kernel pins
        // the pages of area and refill ring for as long as it uses them.
        unsafe { register(ring.as_raw_fd(), REGISTER_IFQ, &raw mut request, 1)? };

        let memory = match ours {
            Some(region) => region.into_shared(),
            None => MappedMemory::new(ring, region_desc.mmap_offset, size)?,
        };
        let stats = can.events.then_some(stats);
        let refill = RefillRing::new(memory, &request.offsets, request.rq_entries, stats)?;
        let queue = Queue {
            reader: Reader { area: area.len(), token: area_reg.rq_area_token },
            refill: Mutex::new(refill),
            area,
            no_device: shape.device.is_none(),
            flush: can.flush,
        };
        Ok((queue, request.zcrx_id))
    }

    /// Returns the bytes of a piece, or `None` if it does not lie within the area or the CPU cannot
    /// read the area.
    ///
    /// # Safety
    ///
    /// The kernel has lent the piece to the caller, and does not get it back while the bytes are in
    /// use.
    #[inline]
    pub(super) unsafe fn bytes(&self, piece: Piece) -> Option<&[u8]> {
        match &self.area {
            Area::Memory(region) => {
                let end = piece.at.checked_add(piece.len)?;
                let within = end <= region.len();
                // SAFETY: the piece lies within the mapping, and by the caller's
                // promise no one writes to it.
                within.then(|| unsafe {
                    slice::from_raw_parts(region.start().add(piece.at).as_ptr(), piece.len)
                })
            }
            // SAFETY: by the caller's promise no one writes to the piece.
            Area::Dmabuf(memory) => unsafe { memory.view(piece.at, piece.len) },
        }
    }

    /// Makes what a device wrote visible to the CPU; to be called before and after reading. Does
    /// nothing for an area that is not a dmabuf.
    pub(super) fn sync(&self, begin: bool) -> io::Result<()> {
        match &self.area {
            Area::Memory(_) => Ok(()),
            Area::Dmabuf(memory) if begin => memory.begin_read(),
            Area::Dmabuf(memory) => memory.end_read(),
        }
    }

    /// Publishes as many entries to the kernel as there is room for; returns how many. If not
    /// `blocking`, publishes none while another ring that shares the queue does the same.
    pub(super) fn give(&self, entries: &[RefillEntry], blocking: bool) -> usize {
        let refill = if blocking {
            Some(self.refill.lock().unwrap_or_else(PoisonError::into_inner))
        } else {
            self.refill.try_lock().ok()
        };
        refill.map_or(0, |mut refill| refill.give(entries))
    }

    /// Entries in the refill ring that the kernel has not taken.
    #[cfg(test)]
    pub(super) fn waiting(&self) -> usize {
        self.refill.lock().unwrap_or_else(PoisonError::into_inner).waiting()
    }

    /// Number of fragments that the kernel has copied, and their bytes; `None` if it does not count
    /// them (before Linux 7.2).
    pub(super) fn copied(&self) -> Option<(u64, u64)> {
        self.refill.lock().unwrap_or_else(PoisonError::into_inner).copied()
    }
}

/// Returns the offset of the statistics of a refill ring with this many entries, and the bytes of
/// the whole region. The kernel reports only afterwards where the entries begin; a page is more
/// than any header has taken, and the kernel refuses a region that is too small.
fn places(can: &Abilities, entries: u32, page: usize) -> (usize, usize) {
    let header = can.header.max(page).next_multiple_of(page);
    let entries = entries as usize * size_of::<RefillEntry>();
    let (size, alignment) = can.stats.map_or((0, 0), |s| (s.size as usize, s.alignment as usize));
    let stats = (header + entries).next_multiple_of(alignment.max(align_of::<u64>()));
    (stats, (stats + size.max(STATS)).next_multiple_of(page))
}

/// Makes the kernel take all entries of the refill ring of a ring's queue.
pub(super) fn flush(ring: BorrowedFd, id: u32) -> io::Result<()> {
    control(ring, id, CTRL_FLUSH, 0).map(drop)
}

/// Lets an event that has fired fire again. EINVAL: it has not fired.
pub(super) fn arm_event(ring: BorrowedFd, id: u32, event: u32) -> io::Result<()> {
    control(ring, id, CTRL_ARM_EVENT, event).map(drop)
}

/// Returns a descriptor by which other rings of this process can import the queue.
pub(super) fn export(ring: BorrowedFd, id: u32) -> io::Result<OwnedFd> {
    let fd = control(ring, id, CTRL_EXPORT, 0)?;
    let fd = i32::try_from(fd).map_err(|_| io::ErrorKind::InvalidData)?;
    // SAFETY: the kernel has just made this descriptor; it has no other owner.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Imports an exported queue into a ring; returns its id there.
pub(super) fn import(ring: BorrowedFd, exported: BorrowedFd) -> io::Result<u32> {
    let mut request =
        IfqReg { if_idx: exported.as_raw_fd() as u32, flags: REG_IMPORT, ..Default::default() };
    // SAFETY: the request is live and ours, and points to nothing.
    unsafe { register(ring.as_raw_fd(), REGISTER_IFQ, &raw mut request, 1)? };
    Ok(request.zcrx_id)
}

fn control(ring: BorrowedFd, zcrx_id: u32, op: u32, argument: u32) -> io::Result<u32> {
    let mut request = Ctrl { zcrx_id, op, argument, ..Default::default() };
    // SAFETY: the request is live and ours, and points to nothing.
    unsafe { register(ring.as_raw_fd(), REGISTER_CTRL, &raw mut request, 0)? };
    Ok(request.argument)
}

/// io_uring_register(2).
///
/// # Safety
///
/// `argument` points nowhere, or to the request's structure, in which every pointer is valid for
/// how the request uses it.
pub(super) unsafe fn register<T>(
    ring: i32,
    request: libc::c_long,
    argument: *mut T,
    count: u32,
) -> io::Result<usize> {
    // SAFETY: by the caller's promise.
    check(unsafe { libc::syscall(libc::SYS_io_uring_register, ring, request, argument, count) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytepath_testing::skip;

    #[test]
    fn statistics_are_where_and_as_large_as_the_kernel_asks() {
        let can = |stats| Abilities { header: 128, stats, ..Abilities::default() };
        let of = |size, alignment| can(Some(StatsShape { size, alignment }));
        assert_eq!(places(&can(None), 1, 4096), (4096 + 16, 8192), "struct zcrx_stats");
        assert_eq!(places(&of(16, 64), 1, 4096), (4096 + 64, 8192));
        assert_eq!(places(&of(8192, 4096), 1, 4096), (8192, 16384));
        assert_eq!(places(&of(0, 0), 256, 4096), (8192, 12288), "an answer of zeros");
    }

    #[test]
    fn a_kernel_with_events_answers_how_large_its_statistics_are() {
        match abilities() {
            Ok(Abilities { events: true, stats, .. }) => {
                let StatsShape { size, alignment } = stats.unwrap();
                assert!(size as usize >= STATS && alignment >= 8, "{size} {alignment}");
            }
            Ok(can) => skip!("{can:?}"),
            Err(e) => skip!("IORING_REGISTER_QUERY: {e}"),
        }
    }
}
