//! Memory as a dmabuf: a descriptor by which devices can refer to memory, wherever it is
//! (Documentation/driver-api/dma-buf.rst, include/uapi/linux/dma-buf.h). A [`Provider`] allocates
//! it.

mod gpu;
mod heap;
mod udmabuf;

use super::cuda::Gpu;
use super::ioctl;
use super::memory::{MappedMemory, READ_WRITE};
use std::fmt::Debug;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::slice;

pub use udmabuf::pages;
pub(super) use udmabuf::sealed;

/// A provider of dmabufs.
pub struct Provider {
    /// Its name, as the user types it.
    pub name: &'static str,
    /// Allocates at least this many bytes, zeroed or not, rounded up to the provider's granularity.
    /// Errors without a number contain a text about what is missing.
    pub allocate: fn(usize, Place) -> io::Result<Box<dyn Memory>>,
}

/// Where to allocate memory; anywhere by default.
#[derive(Clone, Copy, Debug, Default)]
pub struct Place {
    /// The NUMA node, for huge pages.
    pub node: Option<u32>,
    /// The GPU, for GPU memory; the first by default.
    pub gpu: Option<&'static Gpu>,
}

/// Memory that is also a dmabuf.
pub trait Memory: Debug + Send + Sync {
    fn fd(&self) -> BorrowedFd<'_>;

    /// Its size in bytes.
    fn size(&self) -> usize;

    /// Whether the CPU can access it.
    fn is_visible(&self) -> bool {
        false
    }

    /// Returns bytes of it; `None` if the CPU cannot access them, or the range extends beyond the
    /// memory. Between [`Memory::begin_read`] and [`Memory::end_read`] they include what a device
    /// has written.
    ///
    /// # Safety
    ///
    /// Neither a device nor anyone else writes to the range while the bytes are borrowed.
    unsafe fn view(&self, _offset: usize, _len: usize) -> Option<&[u8]> {
        None
    }

    /// Copies bytes out of it. EINVAL: the range extends beyond the memory.
    fn read(&self, offset: usize, into: &mut [u8]) -> io::Result<()>;

    /// Copies bytes into it. EINVAL: the range extends beyond the memory.
    fn write(&mut self, offset: usize, from: &[u8]) -> io::Result<()>;

    /// Makes what a device has written visible to the CPU, before it reads (`DMA_BUF_IOCTL_SYNC`).
    /// Does nothing for memory without a view.
    fn begin_read(&self) -> io::Result<()> {
        Ok(())
    }

    /// Ends what [`Memory::begin_read`] began, after the CPU has read.
    fn end_read(&self) -> io::Result<()> {
        Ok(())
    }
}

/// Every provider; the first is the default.
pub static PROVIDERS: &[Provider] = &[
    Provider { name: "udmabuf", allocate: |len, _| pages(len) },
    Provider { name: "udmabuf-huge", allocate: |len, at| udmabuf::huge_pages(len, at.node) },
    Provider { name: "heap", allocate: |len, _| heap::allocate(len) },
    Provider { name: "gpu", allocate: |len, at| gpu::allocate(len, at.gpu) },
];

/// A mapped dmabuf.
#[derive(Debug)]
struct Mapped {
    fd: OwnedFd,
    /// Devices keep the memory alive through the dmabuf, not through this mapping.
    memory: MappedMemory,
}

impl Mapped {
    /// Maps a dmabuf of this size and touches every page of it.
    fn new(fd: OwnedFd, size: usize) -> io::Result<Self> {
        let memory = MappedMemory::on_demand(&fd, size, READ_WRITE)?;
        for offset in (0..size).step_by(rustix::param::page_size()) {
            // SAFETY: the offset lies within the mapping, which is readable.
            unsafe { memory.start().as_ptr().add(offset).read_volatile() };
        }
        Ok(Mapped { fd, memory })
    }

    fn sync(&self, mut flags: u64) -> io::Result<()> {
        /// `DMA_BUF_IOCTL_SYNC`, `_IOW('b', 0, struct dma_buf_sync)`.
        const DMA_BUF_IOCTL_SYNC: u32 = 0x4008_6200;
        loop {
            // SAFETY: the request reads one `struct dma_buf_sync`, a u64, which is live.
            match unsafe { ioctl(&self.fd, DMA_BUF_IOCTL_SYNC, &raw mut flags) } {
                // The call may wait for fences of a device (dma-buf.h).
                Err(e) if matches!(e.raw_os_error(), Some(libc::EINTR | libc::EAGAIN)) => {}
                result => return result.map(drop),
            }
        }
    }
}

/// `DMA_BUF_SYNC_READ`, `DMA_BUF_SYNC_WRITE`, `DMA_BUF_SYNC_END`; a start is 0.
const READ: u64 = 1;
const WRITE: u64 = 2;
const END: u64 = 4;

impl Memory for Mapped {
    fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    fn size(&self) -> usize {
        self.memory.len()
    }

    fn is_visible(&self) -> bool {
        true
    }

    unsafe fn view(&self, offset: usize, len: usize) -> Option<&[u8]> {
        within(self.size(), offset, len).ok()?;
        // SAFETY: the range lies within the mapping, which is readable and lives
        // as long as `self`; by the caller's promise nothing writes to it, and
        // every bit pattern of a byte is valid.
        Some(unsafe { slice::from_raw_parts(self.memory.start().as_ptr().add(offset), len) })
    }

    fn read(&self, offset: usize, into: &mut [u8]) -> io::Result<()> {
        within(self.size(), offset, into.len())?;
        self.begin_read()?;
        let from = self.memory.start();
        // SAFETY: the range lies within the mapping, which is readable. There is no
        // reference to its bytes, which a device may be writing to.
        unsafe { from.as_ptr().add(offset).copy_to(into.as_mut_ptr(), into.len()) };
        self.end_read()
    }

    fn write(&mut self, offset: usize, from: &[u8]) -> io::Result<()> {
        within(self.size(), offset, from.len())?;
        self.sync(WRITE)?;
        let to = self.memory.start();
        // SAFETY: the range lies within the mapping, which is writable, and
        // `&mut self` makes the access exclusive.
        unsafe { to.as_ptr().add(offset).copy_from(from.as_ptr(), from.len()) };
        self.sync(WRITE | END)
    }

    fn begin_read(&self) -> io::Result<()> {
        self.sync(READ)
    }

    fn end_read(&self) -> io::Result<()> {
        self.sync(READ | END)
    }
}

/// Errors with EINVAL if a range extends beyond memory of this size.
fn within(size: usize, offset: usize, len: usize) -> io::Result<()> {
    let fits = offset.checked_add(len).is_some_and(|end| end <= size);
    if fits { Ok(()) } else { Err(io::Error::from_raw_os_error(libc::EINVAL)) }
}

/// Rounds a size up to whole pages of `granule` bytes; ENOMEM if it is too large for that.
fn round_up(len: usize, granule: usize) -> io::Result<usize> {
    let too_large = || io::Error::from_raw_os_error(libc::ENOMEM);
    len.max(1).checked_next_multiple_of(granule).ok_or_else(too_large)
}

/// A memory file in place of a dmabuf: everything but the synchronisation is the same. A fake
/// device writes to the file.
#[derive(Debug)]
#[doc(hidden)]
pub struct FakeDmabuf {
    mapped: Mapped,
    /// Whether the CPU can access it.
    cpu_readable: bool,
}

impl FakeDmabuf {
    /// Makes one of this size; `cpu_readable` is whether the CPU can access it.
    pub fn new(size: usize, cpu_readable: bool) -> io::Result<Self> {
        let file = sealed(size as u64, false)?;
        Ok(FakeDmabuf { mapped: Mapped::new(file, size)?, cpu_readable })
    }

    /// The file, for the device's side.
    pub fn file(&self) -> io::Result<std::fs::File> {
        Ok(self.mapped.fd.try_clone()?.into())
    }
}

impl Memory for FakeDmabuf {
    fn fd(&self) -> BorrowedFd<'_> {
        self.mapped.fd()
    }

    fn size(&self) -> usize {
        self.mapped.size()
    }

    fn is_visible(&self) -> bool {
        self.cpu_readable
    }

    unsafe fn view(&self, offset: usize, len: usize) -> Option<&[u8]> {
        // SAFETY: the caller promises the same.
        unsafe { self.mapped.view(offset, len) }.filter(|_| self.cpu_readable)
    }

    fn read(&self, offset: usize, into: &mut [u8]) -> io::Result<()> {
        self.file()?.read_exact_at(into, offset as u64)
    }

    fn write(&mut self, offset: usize, from: &[u8]) -> io::Result<()> {
        self.file()?.write_all_at(from, offset as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytepath_testing::skip;

    fn mapped(size: usize) -> Mapped {
        FakeDmabuf::new(size, true).unwrap().mapped
    }

    #[test]
    fn nothing_beyond_the_end_can_be_reached() {
        let mut memory = mapped(8192);
        // SAFETY: only this thread has the memory.
        let view = |offset, len| unsafe { memory.view(offset, len) };
        assert_eq!(view(0, 8192).map(<[u8]>::len), Some(8192));
        assert_eq!(view(8192, 0), Some(&[][..]));
        for (offset, len) in [(0, 8193), (8192, 1), (1, 8192), (usize::MAX, 1), (1, usize::MAX)] {
            assert_eq!(view(offset, len), None, "{offset} + {len}");
        }
        let error = memory.read(8000, &mut [0; 200]).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::EINVAL));
        assert_eq!(memory.write(8000, &[0; 200]).unwrap_err().raw_os_error(), Some(libc::EINVAL));
    }

    #[test]
    fn what_is_not_a_dmabuf_cannot_be_synchronised() {
        let error = mapped(4096).begin_read().unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::ENOTTY));
    }

    #[test]
    fn sizes_are_whole_pages() {
        assert_eq!(round_up(0, 4096).unwrap(), 4096);
        assert_eq!(round_up(4097, 4096).unwrap(), 8192);
        assert!(round_up(usize::MAX, 4096).is_err());
    }

    #[test]
    fn every_provider_makes_memory_or_says_why_not() {
        for provider in PROVIDERS {
            match (provider.allocate)(1 << 20, Place::default()) {
                Ok(mut memory) => {
                    let bytes: Vec<u8> = (0..5000u32).map(|i| (i % 251) as u8).collect();
                    memory.write(4000, &bytes).unwrap();
                    let mut back = vec![0; bytes.len()];
                    memory.read(4000, &mut back).unwrap();
                    assert_eq!(back, bytes, "{}", provider.name);
                    assert!(memory.size() >= 1 << 20);
                }
                Err(e) => {
                    skip!("memory of {}: {e}", provider.name);
                    assert!(!e.to_string().is_empty());
                }
            }
        }
    }
}
