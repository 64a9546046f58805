//! `devmem`: TCP payload in memory of a device. The NIC reads it from a dmabuf or writes it there,
//! and the application handles tokens instead of bytes (Documentation/networking/devmem.rst;
//! `docs/reference/paths/devmem.md`).

mod area;
mod gpu;
mod options;
mod receive;
mod send;
mod support;

use super::busy_poll::{self, BusyPoll, Waiter};
use super::huge_pages::flows_over;
use super::nic::{self, each_has_a_flow, own_queues};
use super::{DataPath, Epoll, HalfPath, HugePages, Opened};
use crate::connection::Connection;
use crate::workload::{Group, HalfConfig, Rx};
use area::{AreaSpec, Areas};
use bytepath_record::{Facts, Role, Support};
use options::{RECEIVER_OPTIONS, SENDER_OPTIONS, memory};
use receive::{Live, Receiving};

pub(super) static PATH: DataPath = DataPath {
    name: "devmem",
    summary: "devmem TCP: the NIC moves payload from and to a dmabuf, by reference",
    attempt: support::attempts,
    tx: Some(
        HalfPath {
            huge_pages: |job, facts, adapter| {
                pages(job, facts, flows_over(job, adapter), job.message_size)
            },
            gpu: gpu::of,
            ..HalfPath::tx(check_tx, |job, connection, _| send::open(job, connection.kernel()?))
        }
        .with_options(SENDER_OPTIONS),
    ),
    rx: Some(HalfPath {
        nic_settings: |options, wire| own_queues("devmem", options, wire),
        huge_pages: |job, facts, _| {
            pages(job, facts, nic::number_of(&job.options), area::bytes(&job.options))
        },
        gpu: gpu::of,
        ..HalfPath::rx(check_rx, open_rx).with_options(RECEIVER_OPTIONS)
    }),
    ..DataPath::EMPTY
};

fn check_tx(job: &HalfConfig, facts: &Facts) -> Support {
    super::fits(send::sendable(job))
        .and(options::device_of_each(job))
        .and(gpu::fits(&job.options))
        .and(support::support(Role::Sender, &job.options, facts))
}

fn check_rx(job: &HalfConfig, facts: &Facts) -> Support {
    super::fits(area::page_size(&job.options))
        .and(options::device_of_each(job))
        .and(each_has_a_flow(job))
        .and(super::reads_into_kernel_memory(job, PATH.name))
        .and(busy_poll::support(job, facts, waiter(job)))
        .and(gpu::fits(&job.options))
        .and(support::support(Role::Receiver, &job.options, facts))
}

/// Returns the huge pages that areas over a device need, if they use any.
fn pages(job: &HalfConfig, facts: &Facts, areas: u32, bytes: u64) -> HugePages {
    match memory(&job.options) {
        "udmabuf-huge" => {
            let bytes = usize::try_from(bytes).unwrap_or(usize::MAX);
            HugePages::of(areas, bytes, facts.node_of_pages())
        }
        _ => HugePages::default(),
    }
}

/// Returns whether epoll or the receive itself waits.
fn waiter(job: &HalfConfig) -> Waiter {
    if job.options.word("wait") == "epoll" { Waiter::Epoll } else { Waiter::Call }
}

fn open_rx(job: &HalfConfig, connection: &dyn Connection, group: &Group) -> Opened<dyn Rx> {
    let flow = connection.kernel()?;
    let spec = AreaSpec::of(job, &flow)?;
    let area = group.share(|| Ok(Areas::default()))?.of(&spec)?;
    let polling = BusyPoll::of(&job.options);
    let epoll = match waiter(job) {
        Waiter::Epoll => Some(Epoll::of(&flow, polling)?),
        _ => polling.map_or(Ok(()), |polling| polling.set_on_socket(&flow)).map(|()| None)?,
    };
    Ok(Box::new(Receiving::new(Live { flow, epoll }, area, job)?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::path::FlowNic;
    use bytepath_record::{Fault, OptionValue, Options};
    use std::net::IpAddr;

    fn wire(queues: u32) -> FlowNic<'static> {
        FlowNic {
            device: "eth1",
            queues,
            given: false,
            own: "10.0.0.2".parse().unwrap(),
            peer: "10.0.0.1".parse().unwrap(),
            port: Some(5201),
            flows: 1,
            adapter: 0,
            adapters: 1,
            connects: false,
        }
    }

    fn typed(queue: Option<u64>, wire: &FlowNic) -> Result<Vec<String>, Fault> {
        let mut options = Options::default();
        let queue = queue.map(OptionValue::Number);
        options.0.extend(queue.map(|queue| ("queue".to_owned(), queue)));
        let settings = (PATH.rx.unwrap().nic_settings)(&options, wire)?;
        Ok(settings.iter().map(ToString::to_string).collect())
    }

    #[test]
    fn isolates_queue_and_steers_flow() {
        let v6 = FlowNic {
            own: "fd00::2".parse::<IpAddr>().unwrap(),
            peer: "fd00::1".parse().unwrap(),
            port: None,
            ..wire(4)
        };
        let steered = "flow eth1 src=10.0.0.1 dst=10.0.0.2 dst-port=5201";
        for (wire, queue, expected) in [
            (
                wire(16),
                None,
                vec![
                    "rings eth1 tcp-data-split=on".to_owned(),
                    "rings eth1 hds-thresh=0".into(),
                    "spread eth1 queues=15".into(),
                    "feature eth1 rx-ntuple-filter=on".into(),
                    format!("{steered} queue=15"),
                ],
            ),
            (
                wire(16),
                Some(3),
                vec![
                    "rings eth1 tcp-data-split=on".into(),
                    "rings eth1 hds-thresh=0".into(),
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
                    "rings eth1 hds-thresh=0".into(),
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
    fn a_device_by_name_is_refused_where_flows_cross_several() {
        use bytepath_record::{Cell, Half};
        let checks = |adapters: u32, device: &str| {
            let mut half = Half::plain("devmem");
            half.options.0.insert("device".into(), OptionValue::Word(device.into()));
            let mut cell = Cell::new("a", half.clone(), half);
            (cell.link.adapters, cell.stream.flows) = (adapters, adapters);
            [(Role::Sender, check_tx as fn(&_, &_) -> _), (Role::Receiver, check_rx)].map(
                |(role, check)| match check(&HalfConfig::stream(&cell, role), &Facts::default()) {
                    Support::No { reason, .. } => reason.contains("device=eth1 is one"),
                    Support::Yes => false,
                },
            )
        };
        assert_eq!(checks(2, "eth1"), [true, true]);
        assert_eq!([checks(1, "eth1"), checks(2, "auto")], [[false, false]; 2]);
    }

    #[test]
    fn refuses_unusable_queues() {
        for (queue, queues) in [(None, 1), (None, 0), (Some(0), 1), (Some(0), 0), (Some(8), 8)] {
            let fault = typed(queue, &wire(queues)).unwrap_err();
            assert!(fault.remedy.unwrap().contains("ethtool -L eth1"), "{queue:?} of {queues}");
        }
    }
}
