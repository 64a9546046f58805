//! Registering a receive queue of a network device for zero-copy receive.
//! `IORING_REGISTER_ZCRX_IFQ`, include/uapi/linux/io_uring.h,
//! Documentation/networking/iou-zcrx.rst.
//!
//! The structures are our own: the kernel writes into all of them, and later
//! kernels gave meaning to what had been reserved.

use crate::sys::check;
use crate::sys::memory::Region;
use io_uring::{IoUring, cqueue, squeue};
use std::io;
use std::os::fd::AsRawFd;

const REGISTER_ZCRX_IFQ: libc::c_long = 32;
/// `IORING_MEM_REGION_TYPE_USER`: the refill ring lies in memory of ours.
const REGION_OF_USER: u32 = 1;
/// Bytes of a refill ring entry, `struct io_uring_zcrx_rqe`.
const REFILL_ENTRY: usize = 16;
/// Entries of the refill ring, and pages of the area, of an attempt.
const ENTRIES: u32 = 64;

/// `struct io_uring_region_desc`.
#[repr(C)]
#[derive(Default)]
struct RegionDesc {
    user_addr: u64,
    size: u64,
    flags: u32,
    id: u32,
    mmap_offset: u64,
    reserved: [u64; 4],
}

/// `struct io_uring_zcrx_area_reg`.
#[repr(C)]
#[derive(Default)]
struct AreaReg {
    addr: u64,
    len: u64,
    rq_area_token: u64,
    flags: u32,
    dmabuf_fd: u32,
    reserved: [u64; 2],
}

/// `struct io_uring_zcrx_offsets`.
#[repr(C)]
#[derive(Default)]
struct Offsets {
    head: u32,
    tail: u32,
    rqes: u32,
    reserved: u32,
    reserved_too: [u64; 2],
}

/// `struct io_uring_zcrx_ifq_reg`.
#[repr(C)]
#[derive(Default)]
struct IfqReg {
    if_idx: u32,
    if_rxq: u32,
    rq_entries: u32,
    flags: u32,
    area_ptr: u64,
    region_ptr: u64,
    offsets: Offsets,
    zcrx_id: u32,
    /// Reserved up to Linux 6.19.
    rx_buf_len: u32,
    reserved: [u64; 3],
}

const _: () = {
    assert!(size_of::<RegionDesc>() == 64);
    assert!(size_of::<AreaReg>() == 48);
    assert!(size_of::<Offsets>() == 32);
    assert!(size_of::<IfqReg>() == 96);
};

/// Whether the kernel knows the request at all: it is made with an argument
/// that cannot be read, which a kernel that has zcrx finds out last. EINVAL: the request
/// is unknown (before Linux 6.15); EOPNOTSUPP: built without
/// `CONFIG_IO_URING_ZCRX`; EPERM: `CAP_NET_ADMIN` in the initial user
/// namespace is missing.
pub fn zcrx_in_kernel() -> io::Result<()> {
    let ring = ring()?;
    // A null pointer would be refused as invalid before the kernel looks further.
    let nowhere = std::ptr::without_provenance_mut(1);
    // SAFETY: nothing can be mapped at address 1, so the kernel answers EFAULT
    // at the latest when it reads the request.
    match unsafe { register(&ring, nowhere) } {
        Err(e) if e.raw_os_error() == Some(libc::EFAULT) => Ok(()),
        other => other,
    }
}

/// Registers a receive queue of the device with this index, with an area of
/// 64 pages, and takes it back at once. The device restarts the queue for
/// it: not for a device that is in use. EOPNOTSUPP: the driver
/// cannot hand a queue's memory over; EINVAL: it could, but is set up otherwise
/// (header split off, XDP attached); ENODEV: no such device.
pub fn register_zcrx_queue(device: u32, queue: u32) -> io::Result<()> {
    let page = rustix::param::page_size();
    // The regions are declared before the ring, so they are freed after it.
    let area = Region::new(ENTRIES as usize * page, false)?;
    let refill = Region::new(ENTRIES as usize * REFILL_ENTRY + page, false)?;
    let ring = ring()?;
    let mut area_reg =
        AreaReg { addr: area.as_ptr() as u64, len: area.len() as u64, ..Default::default() };
    let mut region_desc = RegionDesc {
        user_addr: refill.as_ptr() as u64,
        size: refill.len().next_multiple_of(page) as u64,
        flags: REGION_OF_USER,
        ..Default::default()
    };
    let mut request = IfqReg {
        if_idx: device,
        if_rxq: queue,
        rq_entries: ENTRIES,
        area_ptr: &raw mut area_reg as u64,
        region_ptr: &raw mut region_desc as u64,
        ..Default::default()
    };
    // SAFETY: the request and the two structures it points to are live,
    // exclusively ours, and laid out as the kernel expects. The kernel pins the
    // pages of both regions for as long as it uses them, and we never look at
    // what it writes there.
    unsafe { register(&ring, &mut request) }
}

/// zcrx asks for deferred task work and completions of 32 bytes.
fn ring() -> io::Result<IoUring<squeue::Entry, cqueue::Entry32>> {
    IoUring::builder().setup_single_issuer().setup_defer_taskrun().build(4)
}

/// # Safety
///
/// `request` points nowhere, or to a request of which every pointer is valid
/// for writing.
unsafe fn register(
    ring: &IoUring<squeue::Entry, cqueue::Entry32>,
    request: *mut IfqReg,
) -> io::Result<()> {
    let fd = ring.as_raw_fd();
    // SAFETY: by the caller's promise.
    check(unsafe { libc::syscall(libc::SYS_io_uring_register, fd, REGISTER_ZCRX_IFQ, request, 1) })
        .map(drop)
}
