//! `devmem`: TCP payload in memory of a device. The NIC reads it from and
//! writes it to a dmabuf, and the application handles tokens instead of bytes
//! (Documentation/networking/devmem.rst; `docs/devmem.md`).

mod area;
mod receive;
mod send;
mod support;

use super::nic::{QUEUES, each_has_a_flow, own_queues};
use super::{DataPath, HalfPath};
use crate::connection::{Connection, Flow};
use crate::workload::{Group, Job, Rx, Tx};
use area::{Areas, Place};
use bytepath_record::{Facts, Fault, OptionKind, OptionSpec, Options, Role, Support};
use bytepath_sys as sys;
use receive::{Live, Receiving};

pub(super) static PATH: DataPath = DataPath {
    name: "devmem",
    summary: "devmem TCP: the NIC moves payload from and to a dmabuf, by reference",
    attempt: support::attempts,
    uses_io_uring: false,
    tx: Some(HalfPath { options: SENDER_OPTIONS, ..HalfPath::new(check_tx, open_tx) }),
    rx: Some(HalfPath {
        options: RECEIVER_OPTIONS,
        prepare: |options, wire| own_queues("devmem", options, wire),
        ..HalfPath::new(check_rx, open_rx)
    }),
};

/// Where the dmabuf's memory is: names of `sys::dmabuf::PROVIDERS`.
const MEMORY: OptionSpec = OptionSpec {
    name: "memory",
    kind: OptionKind::Choice(&["udmabuf", "udmabuf-huge", "heap", "gpu"]),
    default: "udmabuf",
    help: "memory of the dmabuf: host memory, huge pages, the system heap, the first GPU",
};

const DEVICE: OptionSpec = OptionSpec {
    name: "device",
    kind: OptionKind::Name,
    default: "auto",
    help: "network device to bind to (auto: the one with the flow's address)",
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
    QUEUES,
    OptionSpec {
        name: "area",
        kind: OptionKind::Size(64 << 10, 64 << 30),
        default: "64M",
        help: "bytes of the dmabuf, for all flows of the queue ('bytepath size' computes it)",
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
        help: "fragments to gather before they are returned (each: after every call)",
    },
];

const SENDER_OPTIONS: &[OptionSpec] = &[
    MEMORY,
    DEVICE,
    OptionSpec {
        name: "reap",
        kind: OptionKind::Count(1, super::zerocopy_send::WINDOW as u64),
        default: "16",
        help: "sends between checks of the error queue",
    },
];

fn check_tx(job: &Job, facts: &Facts) -> Support {
    super::fits(send::sendable(job)).and(support::support(
        Role::Sender,
        memory(&job.options),
        facts,
    ))
}

fn open_tx(job: &Job, connection: &dyn Connection, _: &Group) -> Result<Box<dyn Tx>, Fault> {
    send::open(job, connection.kernel()?)
}

fn check_rx(job: &Job, facts: &Facts) -> Support {
    super::fits(area::page_size(&job.options))
        .and(each_has_a_flow(job))
        .and(super::reads_into_kernel_memory(job, PATH.name))
        .and(support::support(Role::Receiver, memory(&job.options), facts))
}

fn open_rx(job: &Job, connection: &dyn Connection, group: &Group) -> Result<Box<dyn Rx>, Fault> {
    let flow = connection.kernel()?;
    let place = Place::of(&job.options, &flow)?;
    let area = group.share(|| Ok(Areas::default()))?.of(&place)?;
    Ok(Box::new(Receiving::new(Live(flow), area, job)?))
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
        "" | "auto" => sys::device::of_address(flow.local_address()?),
        name => return Ok(name.to_owned()),
    }
    .map_err(|e| {
        flow.fault("finding the device of the connection", &e)
            .remedy(format!("name it: {}=DEV", DEVICE.name))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::path::Wire;
    use bytepath_record::OptionValue;
    use std::net::IpAddr;

    fn wire(driver: &'static str, queues: u32) -> Wire<'static> {
        Wire {
            device: "eth1",
            driver,
            queues,
            own: "10.0.0.2".parse().unwrap(),
            peer: "10.0.0.1".parse().unwrap(),
            port: Some(5201),
            flows: 1,
            connects: false,
        }
    }

    fn typed(queue: Option<u64>, wire: &Wire) -> Result<Vec<String>, Fault> {
        let mut options = Options::default();
        let queue = queue.map(OptionValue::Number);
        options.0.extend(queue.map(|queue| ("queue".to_owned(), queue)));
        let settings = (PATH.rx.unwrap().prepare)(&options, wire)?;
        Ok(settings.iter().map(ToString::to_string).collect())
    }

    #[test]
    fn the_queue_is_set_apart_and_the_flow_is_steered_to_it() {
        let v6 = Wire {
            own: "fd00::2".parse::<IpAddr>().unwrap(),
            peer: "fd00::1".parse().unwrap(),
            port: None,
            ..wire("gve", 4)
        };
        let steered = "flow eth1 src=10.0.0.1 dst=10.0.0.2 dst-port=5201";
        for (wire, queue, expected) in [
            (
                wire("mlx5_core", 16),
                None,
                vec![
                    "feature eth1 rx-gro-hw=on".to_owned(),
                    "rings eth1 tcp-data-split=on".into(),
                    "spread eth1 queues=15".into(),
                    "feature eth1 rx-ntuple-filter=on".into(),
                    format!("{steered} queue=15"),
                ],
            ),
            (
                wire("bnxt_en", 16),
                Some(3),
                vec![
                    "rings eth1 tcp-data-split=on hds-thresh=0".into(),
                    "spread eth1 queues=3".into(),
                    "feature eth1 rx-ntuple-filter=on".into(),
                    format!("{steered} queue=3"),
                ],
            ),
            (
                v6,
                None,
                vec![
                    "rings eth1 tcp-data-split=on".into(),
                    "spread eth1 queues=3".into(),
                    "feature eth1 rx-ntuple-filter=on".into(),
                    "flow eth1 src=fd00::1 dst=fd00::2 queue=3".into(),
                ],
            ),
        ] {
            assert_eq!(typed(queue, &wire).unwrap(), expected, "{wire:?}");
        }
    }

    #[test]
    fn a_queue_that_cannot_be_set_apart_is_refused() {
        for (queue, queues) in [(None, 1), (None, 0), (Some(0), 8), (Some(8), 8)] {
            let fault = typed(queue, &wire("gve", queues)).unwrap_err();
            assert!(fault.remedy.unwrap().contains("ethtool -L eth1"), "{queue:?} of {queues}");
        }
    }
}
