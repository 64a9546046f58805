//! The sizes that follow from a cell's options, made consistent.

use crate::path::nic;
use crate::workload::HalfConfig;
use bytepath_record::{Fault, Options};
use bytepath_sys::memory::HUGE_PAGE;

/// Parameters of a receiver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Plan {
    /// Size of the area in bytes.
    pub area: usize,
    /// Kind of memory it consists of.
    pub memory: Memory,
    /// Bytes of a buffer, or `None` if it is a page.
    pub buffer: Option<u32>,
    /// Entries of the refill ring.
    pub entries: u32,
    /// Whether the refill ring is in kernel memory.
    pub kernel_ring: bool,
    /// Number of buffers that are returned together.
    pub batch: usize,
    /// Entries of the completion queue.
    pub completions: u32,
    /// Whether a device may be used.
    pub device: bool,
    /// Number of queues that the flows are spread over, on all adapters together.
    pub queues: u32,
    /// Whether flows share a queue even without a device.
    pub share: bool,
    /// Maximum number of bytes that one call delivers.
    pub read_size: usize,
}

/// Kinds of memory of an area.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Memory {
    /// Ordinary pages.
    Normal,
    /// Reserved huge pages.
    Huge,
    /// A dmabuf of host memory.
    Dmabuf,
}

impl Memory {
    /// Returns the memory that the options request.
    pub(super) fn of(options: &Options) -> Memory {
        match options.word("memory") {
            "huge" => Memory::Huge,
            "dmabuf" => Memory::Dmabuf,
            _ => Memory::Normal,
        }
    }
}

/// Maximum number of entries of a refill ring (`IO_RQ_MAX_ENTRIES`, io_uring/zcrx.c).
const MOST_ENTRIES: u64 = 32768;

impl Plan {
    /// The plan for this configuration, on a machine with this page size in bytes.
    pub(super) fn of(job: &HalfConfig, page: u64) -> Result<Plan, Fault> {
        let (options, read_size) = (&job.options, job.read_size);
        if read_size == 0 {
            return Err(Fault::usage("a read size of 0 bytes delivers nothing"));
        }
        let memory = Memory::of(options);
        let buffer = options.number("rx-buf-len").filter(|bytes| *bytes != page);
        if let Some(bytes) = buffer
            && (!bytes.is_power_of_two() || bytes < page)
        {
            let text = format!("rx-buf-len={bytes} is not a power of two of at least {page} bytes");
            return Err(Fault::usage(text).remedy("choose 8K, 16K, 32K ..., or auto"));
        }
        let unit = if memory == Memory::Huge { HUGE_PAGE as u64 } else { page };
        let unit = unit.max(buffer.unwrap_or(page));
        let asked = options.number("area").unwrap_or(0).max(1);
        let area = asked.checked_next_multiple_of(unit).and_then(|area| usize::try_from(area).ok());
        let area = area.ok_or_else(|| {
            Fault::usage(format!("an area of {asked} bytes does not fit"))
                .remedy("choose a smaller one; 64M is usual for one queue")
        })?;
        let buffers = area as u64 / buffer.unwrap_or(page);
        let entries = options.number("rq").unwrap_or_else(|| buffers.next_power_of_two());
        let completions = options
            .number("completions")
            .unwrap_or_else(|| (2 * buffers).next_power_of_two().clamp(1024, MOST_ENTRIES));
        let batch = options.number("recycle").unwrap_or(1).min(buffers / 4).max(1);
        Ok(Plan {
            area,
            memory,
            buffer: buffer.map(|bytes| bytes.min(1 << 30) as u32),
            entries: entries.min(MOST_ENTRIES) as u32,
            kernel_ring: options.word("rq-memory") == "kernel",
            batch: batch as usize,
            completions: completions.min(65536) as u32,
            device: options.word("device") != "none",
            queues: nic::number_of_all(job),
            share: options.flag("share"),
            read_size: read_size as usize,
        })
    }
}

/// Returns the receive queue of a flow. Errors if the NIC, which has `queues` queues, lacks it.
pub(super) fn queue_of(job: &HalfConfig, flow: u32, queues: u32) -> Result<u32, Fault> {
    let queue = nic::queue_of(job, flow, queues);
    if queue < queues {
        return Ok(queue);
    }
    let text = format!("the device has {queues} receive queues, and no queue {queue}");
    Err(Fault::usage(text).remedy("queues are counted from 0"))
}

#[cfg(test)]
mod tests {
    use super::super::job;
    use super::*;
    use bytepath_record::Support;

    fn plan(set: &[(&str, &str)]) -> Result<Plan, Fault> {
        Plan::of(&job(set), 4096)
    }

    #[test]
    fn sizes_fit_each_other() {
        let usual = plan(&[]).unwrap();
        assert_eq!((usual.area, usual.entries, usual.completions), (64 << 20, 16384, 32768));
        assert_eq!((usual.batch, usual.buffer, usual.kernel_ring), (64, None, false));
        let tiny = plan(&[("area", "64K"), ("completions", "4"), ("rq", "2")]).unwrap();
        assert_eq!((tiny.area, tiny.batch), (64 << 10, 4), "a quarter of 16 buffers");
        assert_eq!((tiny.entries, tiny.completions), (2, 4));
        let odd = plan(&[("area", "70000")]).unwrap();
        assert_eq!((odd.area, odd.entries), (18 * 4096, 32));
        let huge = plan(&[("area", "3M"), ("memory", "huge")]).unwrap();
        assert_eq!((huge.area, huge.memory), (4 << 20, Memory::Huge));
        let large = plan(&[("rx-buf-len", "32K"), ("area", "100K")]).unwrap();
        assert_eq!((large.area, large.buffer, large.entries), (128 << 10, Some(32768), 4));
        assert_eq!(large.batch, 1);
        let vast = plan(&[("area", "64G")]).unwrap();
        assert_eq!((vast.entries, vast.completions), (32768, 32768));
        assert_eq!(plan(&[("rx-buf-len", "4096")]).unwrap().buffer, None, "that is a page");
    }

    #[test]
    fn refuses_impossible_values() {
        let fault = plan(&[("rx-buf-len", "12K")]).unwrap_err();
        assert!(fault.message.contains("power of two") && fault.remedy.is_some(), "{fault:?}");
        let of = |set, flow, queues| queue_of(&job(set), flow, queues);
        assert_eq!(of(&[], 5, 8).unwrap(), 7);
        assert_eq!(of(&[("queue", "2")], 0, 8).unwrap(), 2);
        assert_eq!([0, 1, 2].map(|flow| of(&[("queues", "2")], flow, 8).unwrap()), [6, 7, 6]);
        let fault = of(&[("queue", "8")], 0, 8).unwrap_err();
        assert!(fault.message.contains("has 8 receive queues"), "{fault:?}");
        assert!(of(&[], 0, 0).is_err(), "a device without queues has none");
        let refused = nic::each_has_a_flow(&job(&[("queues", "2")]));
        assert!(matches!(refused, Support::No { reason, .. } if reason.contains("flows (1)")));
    }
}
