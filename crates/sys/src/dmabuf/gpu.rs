//! Memory of a GPU as a dmabuf, through the CUDA driver that [`crate::cuda`] loads on first use.
//! The CPU cannot access it; the driver copies bytes in and out.

use super::{Memory, round_up};
use crate::cuda::{self, Allocation, Gpu};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// The driver maps memory of a GPU in pieces of this size.
const GRANULE: usize = 2 << 20;

/// Allocates memory of this GPU, or of the first in CUDA's list.
pub(super) fn allocate(len: usize, gpu: Option<&'static Gpu>) -> io::Result<Box<dyn Memory>> {
    let gpu = gpu.map_or_else(|| Ok(&cuda::gpus()?[0]), io::Result::Ok)?;
    let allocation = gpu.allocate(round_up(len, GRANULE)?)?;
    let dmabuf = allocation.export()?;
    Ok(Box::new(GpuMemory { dmabuf, allocation }))
}

#[derive(Debug)]
struct GpuMemory {
    dmabuf: OwnedFd,
    allocation: Allocation,
}

impl Memory for GpuMemory {
    fn fd(&self) -> BorrowedFd<'_> {
        self.dmabuf.as_fd()
    }

    fn size(&self) -> usize {
        self.allocation.size
    }

    fn read(&self, offset: usize, into: &mut [u8]) -> io::Result<()> {
        self.allocation.read(offset, into)
    }

    fn write(&mut self, offset: usize, from: &[u8]) -> io::Result<()> {
        self.allocation.write(offset, from)
    }
}
