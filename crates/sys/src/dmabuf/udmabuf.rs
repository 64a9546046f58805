//! Host memory as a dmabuf: a sealed memory file, passed to `/dev/udmabuf`
//! (include/uapi/linux/udmabuf.h, drivers/dma-buf/udmabuf.c). The largest buffer is set by
//! `/sys/module/udmabuf/parameters/size_limit_mb`, by default 64 MiB.

use super::{Mapped, Memory, round_up};
use crate::ioctl;
use crate::memory::{MappedMemory, READ_WRITE};
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, ftruncate, memfd_create};
use std::fs::OpenOptions;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

/// The character device that makes dmabufs from memory files (`CONFIG_UDMABUF`).
const DEVICE: &str = "/dev/udmabuf";

/// The size of a huge page that `MFD_HUGE_2MB` requests.
const HUGE: usize = 2 << 20;

/// Allocates ordinary pages. ENOENT: the kernel has no udmabuf; EACCES: this user may not open its
/// device; EINVAL: more than its limit; ENOMEM: no memory.
pub fn pages(len: usize) -> io::Result<Box<dyn Memory>> {
    allocate(len, None)
}

/// Allocates huge pages from the pool that the administrator has reserved, from `node` if given.
/// ENOMEM: there are too few.
pub(super) fn huge_pages(len: usize, node: Option<u32>) -> io::Result<Box<dyn Memory>> {
    allocate(len, Some(node))
}

/// Allocates huge pages, from a node if given, or ordinary ones if `huge` is `None`.
fn allocate(len: usize, huge: Option<Option<u32>>) -> io::Result<Box<dyn Memory>> {
    let device = OpenOptions::new().read(true).write(true).open(DEVICE)?;
    let granule = if huge.is_some() { HUGE } else { rustix::param::page_size() };
    let size = round_up(len, granule)?;
    let file = sealed(size as u64, huge.is_some())?;
    if let Some(node) = huge {
        // Udmabuf uses pages that already exist; others would be allocated near the calling CPU.
        MappedMemory::on_demand(&file, size, READ_WRITE)?.take_huge_pages(node)?;
    }
    let memfd = file.as_raw_fd() as u32;
    let mut create = Create { memfd, flags: CLOSE_ON_EXEC, offset: 0, size: size as u64 };
    // SAFETY: the request reads one `struct udmabuf_create`, which is live.
    let fd = unsafe { ioctl(&device, UDMABUF_CREATE, &raw mut create) }?;
    // SAFETY: the kernel has just returned this descriptor; it has no other owner.
    let dmabuf = unsafe { OwnedFd::from_raw_fd(fd as i32) };
    Ok(Box::new(Mapped::new(dmabuf, size)?))
}

/// Makes a memory file that cannot shrink, as udmabuf requires.
pub(crate) fn sealed(size: u64, huge: bool) -> io::Result<OwnedFd> {
    let mut flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    if huge {
        flags |= MemfdFlags::HUGETLB | MemfdFlags::HUGE_2MB;
    }
    let file = memfd_create("bytepath-dmabuf", flags)?;
    ftruncate(&file, size)?;
    fcntl_add_seals(&file, SealFlags::SHRINK)?;
    Ok(file)
}

/// `struct udmabuf_create`.
#[repr(C)]
struct Create {
    memfd: u32,
    flags: u32,
    offset: u64,
    size: u64,
}

/// `UDMABUF_CREATE`, `_IOW('u', 0x42, struct udmabuf_create)`.
const UDMABUF_CREATE: u32 = 0x4018_7542;
/// `UDMABUF_FLAGS_CLOEXEC`.
const CLOSE_ON_EXEC: u32 = 1;
