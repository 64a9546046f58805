//! Host memory from the kernel's system heap (include/uapi/linux/dma-heap.h,
//! `CONFIG_DMABUF_HEAPS_SYSTEM`): contiguous pieces of up to 1 MiB if available, so fewer entries
//! for the IOMMU than a memory file needs.

use super::{Mapped, Memory, round_up};
use crate::ioctl;
use std::fs::OpenOptions;
use std::io;
use std::os::fd::{FromRawFd, OwnedFd};

const DEVICE: &str = "/dev/dma_heap/system";

/// `struct dma_heap_allocation_data`.
#[repr(C)]
struct Allocation {
    len: u64,
    fd: u32,
    fd_flags: u32,
    heap_flags: u64,
}

/// `DMA_HEAP_IOCTL_ALLOC`, `_IOWR('H', 0x0, struct dma_heap_allocation_data)`.
const DMA_HEAP_IOCTL_ALLOC: u32 = 0xc018_4800;

/// Allocates a dmabuf. ENOENT: the kernel has no system heap; EACCES: this user may not open it.
pub(super) fn allocate(len: usize) -> io::Result<Box<dyn Memory>> {
    let heap = OpenOptions::new().read(true).open(DEVICE)?;
    let size = round_up(len, rustix::param::page_size())?;
    let mut allocation = Allocation {
        len: size as u64,
        fd: 0,
        fd_flags: (libc::O_RDWR | libc::O_CLOEXEC) as u32,
        heap_flags: 0,
    };
    // SAFETY: the request reads and writes one `struct
    // dma_heap_allocation_data`, which is live and exclusively ours.
    unsafe { ioctl(&heap, DMA_HEAP_IOCTL_ALLOC, &raw mut allocation) }?;
    // SAFETY: the kernel has just made this descriptor; it has no other owner.
    let dmabuf = unsafe { OwnedFd::from_raw_fd(allocation.fd as i32) };
    Ok(Box::new(Mapped::new(dmabuf, size)?))
}
