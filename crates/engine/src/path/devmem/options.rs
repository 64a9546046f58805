//! Options of both halves.

use super::gpu;
use crate::connection::Flow;
use crate::path::busy_poll;
use crate::path::nic::QUEUES;
use crate::path::refuse_if;
use crate::path::zerocopy_send::WINDOW;
use crate::workload::HalfConfig;
use bytepath_record::{Fault, OptionKind, OptionSpec, Options, Support};
use bytepath_sys as sys;

/// Provider of the dmabuf's memory: a name in `sys::dmabuf::PROVIDERS`.
pub(super) const MEMORY: OptionSpec = OptionSpec::new(
    "memory",
    OptionKind::Choice(&["udmabuf", "udmabuf-huge", "heap", "gpu"]),
    "udmabuf",
)
.help("memory of the dmabuf: host memory, huge pages, the system heap, a GPU");

pub(super) const DEVICE: OptionSpec = OptionSpec::new("device", OptionKind::Name, "auto")
    .help("network device to bind to (auto: the one with the flow's address)");

pub(super) const RECEIVER_OPTIONS: &[OptionSpec] = &[
    MEMORY,
    gpu::OPTION,
    DEVICE,
    OptionSpec::new("queue", OptionKind::WordCount("auto", 0, 65_535), "auto")
        .help("receive queue to bind, to which the flows are steered (auto: the last; 0 takes what is not spread, too)"),
    QUEUES,
    OptionSpec::new("area", OptionKind::Size(64 << 10, 64 << 30), "64M")
        .help("bytes of the dmabuf, for all flows of the queue ('bytepath size' computes it)"),
    OptionSpec::new("rx-page-size", OptionKind::AutoSize(4096, 1 << 30), "auto")
        .help("bytes of one buffer, a power of two (Linux 7.3; auto: a page)"),
    OptionSpec::new("recycle-batch", OptionKind::WordCount("each", 1, 65_536), "each")
        .help("fragments to gather before they are returned (each: after every call)"),
    OptionSpec::new("wait", OptionKind::Choice(&["block", "epoll"]), "block")
        .help("sleep in recvmsg, or in epoll_wait before each"),
    busy_poll::MICROSECONDS,
    busy_poll::PREFER,
    busy_poll::BUDGET,
];

pub(super) const SENDER_OPTIONS: &[OptionSpec] = &[
    MEMORY,
    gpu::OPTION,
    DEVICE,
    OptionSpec::new("reap", OptionKind::Count(1, WINDOW as u64), "16")
        .help("sends between checks of the error queue"),
];

/// Returns the provider that options name.
pub(super) fn memory(options: &Options) -> &str {
    match options.word(MEMORY.name) {
        "" => MEMORY.default,
        name => name,
    }
}

/// Refuses a named device if flows cross several adapters.
pub(super) fn device_of_each(job: &HalfConfig) -> Support {
    let name = job.options.word(DEVICE.name);
    refuse_if(
        job.adapters > 1 && !is_auto(name),
        format!("device={name} is one, and flows cross {} adapters", job.adapters),
        "leave device at auto: each flow takes the device that it crosses",
    )
}

pub(super) fn is_auto(name: &str) -> bool {
    matches!(name, "" | "auto")
}

/// Returns the device that options name, or else the one that carries the flow.
pub(super) fn device(options: &Options, flow: &Flow) -> Result<String, Fault> {
    match options.word(DEVICE.name) {
        name if is_auto(name) => sys::device::of_address(flow.local_address()?),
        name => return Ok(name.to_owned()),
    }
    .map_err(|e| {
        flow.fault("finding the device of the connection", &e)
            .remedy(format!("name it: {}=DEV", DEVICE.name))
    })
}
