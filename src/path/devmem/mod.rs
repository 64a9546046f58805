//! `devmem`: TCP payload in memory of a device. The NIC reads it from and
//! writes it to a dmabuf, and the application handles tokens instead of bytes
//! (Documentation/networking/devmem.rst; `docs/devmem.md`).

mod area;
mod preparation;
mod receive;
#[cfg(test)]
mod receive_tests;
mod send;
mod support;

use super::{DataPath, Endpoint, Flow, Wire};
use crate::record::{
    Attempt, Cell, Facts, Fault, OptionKind, OptionSpec, Options, Role, Setting, Support,
};
use crate::sys;
use area::{Area, Place};
use receive::{Live, Receiving};

/// The path.
pub struct Devmem;

/// Where the dmabuf's memory is: names of `sys::dmabuf::PROVIDERS`.
const MEMORY: OptionSpec = OptionSpec {
    name: "memory",
    kind: OptionKind::Choice(&["udmabuf", "udmabuf-huge", "heap", "gpu"]),
    default: "udmabuf",
    help: "where the dmabuf is: host memory, huge pages of it, the system heap, the first GPU",
};

const DEVICE: OptionSpec = OptionSpec {
    name: "device",
    kind: OptionKind::Name,
    default: "auto",
    help: "network device to bind to (auto: the one that has the flow's address)",
};

const RECEIVER_OPTIONS: &[OptionSpec] = &[
    MEMORY,
    DEVICE,
    OptionSpec {
        name: "queue",
        kind: OptionKind::AutoCount(0, 65_535),
        default: "auto",
        help: "receive queue to bind, to which the flows are steered (auto: the last)",
    },
    OptionSpec {
        name: "area",
        kind: OptionKind::Size(64 << 10, 64 << 30),
        default: "64M",
        help: "bytes of the dmabuf, for all flows of the queue ('bytepath plan' sizes it)",
    },
    OptionSpec {
        name: "rx-page-size",
        kind: OptionKind::AutoSize(4096, 1 << 30),
        default: "auto",
        help: "bytes of one buffer, a power of two (Linux 7.3; auto: a page)",
    },
    OptionSpec {
        name: "recycle-batch",
        kind: OptionKind::WordCount("each", 1, 65_536),
        default: "each",
        help: "fragments to gather before they are given back (each: after every call)",
    },
];

const SENDER_OPTIONS: &[OptionSpec] = &[
    MEMORY,
    DEVICE,
    OptionSpec {
        name: "reap",
        kind: OptionKind::Count(1, super::zerocopy_send::WINDOW as u64),
        default: "16",
        help: "sends between two looks at the error queue",
    },
];

impl DataPath for Devmem {
    fn name(&self) -> &'static str {
        "devmem"
    }

    fn summary(&self) -> &'static str {
        "devmem TCP: the NIC moves payload from and to a dmabuf, by reference"
    }

    fn roles(&self) -> &'static [Role] {
        &[Role::Sender, Role::Receiver]
    }

    fn options(&self, role: Role) -> &'static [OptionSpec] {
        match role {
            Role::Sender => SENDER_OPTIONS,
            Role::Receiver => RECEIVER_OPTIONS,
        }
    }

    fn attempt(&self, device: Option<&str>) -> Vec<Attempt> {
        support::attempts(device)
    }

    fn probe(&self, role: Role, facts: &Facts) -> Support {
        support::support(role, MEMORY.default, facts)
    }

    fn probe_with(&self, role: Role, options: &Options, facts: &Facts) -> Support {
        support::support(role, memory(options), facts)
    }

    fn preparation(
        &self,
        role: Role,
        options: &Options,
        wire: &Wire,
    ) -> Result<Vec<Setting>, Fault> {
        preparation::settings(role, options, wire)
    }

    fn open(&self, role: Role, cell: &Cell, flow: Flow) -> Result<Box<dyn Endpoint>, Fault> {
        match role {
            Role::Sender => send::open(cell, flow),
            Role::Receiver => {
                let area = Area::of(&Place::of(&cell.rx.options, &flow)?)?;
                Ok(Box::new(Receiving::new(Live(flow), area, cell)?))
            }
        }
    }
}

/// The provider that options name.
fn memory(options: &Options) -> &str {
    match options.word(MEMORY.name) {
        "" => MEMORY.default,
        name => name,
    }
}

/// The device that options name, or that carries the flow.
fn device(options: &Options, flow: &Flow) -> Result<String, Fault> {
    match options.word(DEVICE.name) {
        "" | "auto" => flow.socket.local_addr().and_then(|address| {
            let ip = address.ip().to_canonical();
            sys::device::of_address(ip)
        }),
        name => return Ok(name.to_owned()),
    }
    .map_err(|e| {
        flow.fault("finding the device of the connection", &e)
            .remedy(format!("name it: {}=DEV", DEVICE.name))
    })
}
