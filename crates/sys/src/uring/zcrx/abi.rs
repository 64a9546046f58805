//! The interface to the kernel: structures and numbers of include/uapi/linux/io_uring/zcrx.h and
//! include/uapi/linux/io_uring/query.h (Linux 7.3; in include/uapi/linux/io_uring.h up to 6.18).
//!
//! The structures are defined here because the kernel writes into all of them, and later kernels
//! gave meaning to reserved fields. Fields that an older kernel does not know must be zero.

/// `IORING_REGISTER_ZCRX_IFQ` (Linux 6.15).
pub(super) const REGISTER_IFQ: libc::c_long = 32;
/// `IORING_REGISTER_QUERY` (Linux 6.19); needs no ring.
pub(super) const REGISTER_QUERY: libc::c_long = 35;
/// `IORING_REGISTER_ZCRX_CTRL` (Linux 6.19).
pub(super) const REGISTER_CTRL: libc::c_long = 36;

/// `IORING_MEM_REGION_TYPE_USER`: the refill ring is in our memory.
pub(super) const REGION_OF_USER: u32 = 1;
/// `IORING_ZCRX_AREA_DMABUF` (Linux 6.16).
pub(super) const AREA_DMABUF: u32 = 1;
/// `ZCRX_REG_IMPORT` (Linux 6.19).
pub(super) const REG_IMPORT: u32 = 1;
/// `ZCRX_REG_NODEV` (Linux 7.1).
pub(super) const REG_NODEV: u32 = 2;

/// `ZCRX_FEATURE_RX_PAGE_SIZE`: buffers may be larger than a page (Linux 7.0).
pub(super) const FEATURE_BUFFER_SIZE: u32 = 1;
/// `ZCRX_FEATURE_EVENT`: events and statistics (Linux 7.2).
pub(super) const FEATURE_EVENTS: u32 = 2;

/// `ZCRX_CTRL_FLUSH_RQ`: take the refill ring's entries now.
pub(super) const CTRL_FLUSH: u32 = 0;
/// `ZCRX_CTRL_EXPORT`: a descriptor by which another ring imports the queue.
pub(super) const CTRL_EXPORT: u32 = 1;
/// `ZCRX_CTRL_ARM_EVENT`: let an event that has fired fire again.
pub(super) const CTRL_ARM_EVENT: u32 = 2;

/// `ZCRX_EVENT_ALLOC_FAIL`: the NIC's page pool found no buffer.
pub(super) const EVENT_ALLOC_FAIL: u32 = 0;
/// `ZCRX_EVENT_COPY`: a fragment was copied.
pub(super) const EVENT_COPY: u32 = 1;
/// `ZCRX_EVENT_DESC_FLAG_STATS`: `stats_offset` is valid.
pub(super) const EVENT_DESC_STATS: u32 = 1;

/// `IO_URING_QUERY_ZCRX`.
pub(super) const QUERY_ZCRX: u32 = 1;

/// `IO_URING_QUERY_ZCRX_EVENT`.
pub(super) const QUERY_ZCRX_EVENT: u32 = 3;

/// The lowest of the bits of an offset that hold the number of the area.
pub(super) const AREA_SHIFT: u32 = 48;

/// `struct io_uring_region_desc`.
#[repr(C)]
#[derive(Default)]
pub(super) struct RegionDesc {
    pub user_addr: u64,
    pub size: u64,
    pub flags: u32,
    pub id: u32,
    pub mmap_offset: u64,
    pub reserved: [u64; 4],
}

/// `struct io_uring_zcrx_area_reg`.
#[repr(C)]
#[derive(Default)]
pub(super) struct AreaReg {
    pub addr: u64,
    pub len: u64,
    pub rq_area_token: u64,
    pub flags: u32,
    pub dmabuf_fd: u32,
    pub reserved: [u64; 2],
}

/// `struct io_uring_zcrx_offsets`: where the parts of the refill ring lie in
/// its region. They differ between kernels.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Offsets {
    pub head: u32,
    pub tail: u32,
    pub rqes: u32,
    pub reserved: u32,
    pub reserved_too: [u64; 2],
}

/// `struct io_uring_zcrx_ifq_reg`.
#[repr(C)]
#[derive(Default)]
pub(super) struct IfqReg {
    pub if_idx: u32,
    pub if_rxq: u32,
    pub rq_entries: u32,
    pub flags: u32,
    pub area_ptr: u64,
    pub region_ptr: u64,
    pub offsets: Offsets,
    pub zcrx_id: u32,
    /// Reserved before Linux 7.0.
    pub rx_buf_len: u32,
    /// Reserved before Linux 7.2.
    pub event_desc: u64,
    pub reserved: [u64; 2],
}

/// `struct zcrx_event_desc` (Linux 7.2).
#[repr(C)]
#[derive(Default)]
pub(super) struct EventDesc {
    pub user_data: u64,
    pub type_mask: u32,
    pub flags: u32,
    pub stats_offset: u64,
    pub reserved: [u64; 9],
}

/// `struct zcrx_ctrl`: `argument` is the descriptor that `CTRL_EXPORT` returns, or the event of
/// `CTRL_ARM_EVENT`.
#[repr(C)]
#[derive(Default)]
pub(super) struct Ctrl {
    pub zcrx_id: u32,
    pub op: u32,
    pub reserved: [u64; 2],
    pub argument: u32,
    pub reserved_too: [u32; 11],
}

/// `struct io_uring_zcrx_rqe`: a piece of the area that is returned.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RefillEntry {
    /// Its start, with the area's token in the upper bits.
    pub off: u64,
    /// Its length in bytes.
    pub len: u32,
    pub(super) pad: u32,
}

/// `struct io_uring_query_hdr`.
#[repr(C)]
#[derive(Default)]
pub(super) struct QueryHeader {
    pub next_entry: u64,
    pub query_data: u64,
    pub query_op: u32,
    pub size: u32,
    pub result: i32,
    pub reserved: [u32; 3],
}

/// `struct io_uring_query_zcrx`.
#[repr(C)]
#[derive(Default)]
pub(super) struct QueryZcrx {
    pub register_flags: u64,
    pub area_flags: u64,
    pub nr_ctrl_opcodes: u32,
    pub features: u32,
    pub rq_hdr_size: u32,
    pub rq_hdr_alignment: u32,
    pub reserved: u64,
}

/// `struct io_uring_query_zcrx_event`.
#[repr(C)]
#[derive(Default)]
pub(super) struct QueryZcrxEvent {
    pub event_flags: u32,
    pub stats_size: u32,
    pub stats_off_alignment: u32,
    pub reserved: u32,
    pub reserved_too: [u64; 4],
}

/// Bytes of `struct zcrx_stats`: `copy_count` and `copy_bytes`, 8 bytes each.
pub(super) const STATS: usize = 16;

const _: () = {
    assert!(size_of::<RegionDesc>() == 64);
    assert!(size_of::<AreaReg>() == 48);
    assert!(size_of::<Offsets>() == 32);
    assert!(size_of::<IfqReg>() == 96);
    assert!(std::mem::offset_of!(IfqReg, zcrx_id) == 64);
    assert!(std::mem::offset_of!(IfqReg, event_desc) == 72);
    assert!(size_of::<EventDesc>() == 96);
    assert!(std::mem::offset_of!(EventDesc, stats_offset) == 16);
    assert!(size_of::<Ctrl>() == 72);
    assert!(std::mem::offset_of!(Ctrl, argument) == 24);
    assert!(size_of::<RefillEntry>() == 16);
    assert!(size_of::<QueryHeader>() == 40);
    assert!(size_of::<QueryZcrx>() == 40);
    assert!(size_of::<QueryZcrxEvent>() == 48);
};
