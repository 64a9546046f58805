//! NIC settings required before it writes payload into our memory, so that flows, and
//! nothing else, arrive on dedicated receive queues: what `zcrx` and `devmem` both require
//! (Documentation/networking/devmem.rst, "NIC Setup",
//! Documentation/networking/iou-zcrx.rst, "Setup NIC").

use super::Wire;
use crate::workload::HalfConfig;
use bytepath_record::{
    Channels, DeviceName, Fault, FlowRule, OptionKind, OptionSpec, Options, Ports, Rings, Setting,
    Split, Support, WantedSetting, Word,
};

/// How many receive queues of a NIC flows are spread over: those that cross it take them in turn.
pub(super) const QUEUES: OptionSpec = OptionSpec::new("queues", OptionKind::Count(1, 64), "1")
    .help(
        "number of receive queues, starting at that one, to spread flows over (above 200 Gbit/s)",
    );

/// Refuses queues that no flow of a job would come by.
pub(super) fn each_has_a_flow(job: &HalfConfig) -> Support {
    let (queues, adapters) = (number_of(&job.options), job.adapters);
    let over = if adapters > 1 { &format!(" over {adapters} adapters") } else { "" };
    super::refuse_if(
        queues > job.flows / adapters,
        format!("{queues} receive queues are more than there are flows ({}{over})", job.flows),
        "choose fewer queues, or more flows",
    )
}

/// The receive queue of a flow, of a device with this many queues: flows take the adapters in turn,
/// and those of each its queues.
pub(super) fn queue_of(job: &HalfConfig, flow: u32, of: u32) -> u32 {
    let count = number_of(&job.options);
    first(&job.options, count, of) + turn(flow, job.adapters) % count
}

/// How many flows cross the adapter of a flow before it.
fn turn(flow: u32, adapters: u32) -> u32 {
    flow / adapters
}

/// How many receive queues the flows of a job are spread over, those of all adapters: two flows come
/// by the same one if their numbers are equal modulo this.
pub(super) fn number_of_all(job: &HalfConfig) -> u32 {
    job.adapters * number_of(&job.options)
}

/// How many receive queues of a NIC options request.
pub(super) fn number_of(options: &Options) -> u32 {
    options.number(QUEUES.name).map_or(1, |queues| queues as u32)
}

/// The first of this many queues: the one of the option `queue`, or else they are the last.
fn first(options: &Options, count: u32, of: u32) -> u32 {
    options.number("queue").map_or(of.saturating_sub(count), |queue| queue as u32)
}

/// Receive queues of a device that flows have to themselves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OwnQueues {
    pub first: u32,
    /// How many there are, at least one.
    pub count: u32,
}

/// The settings of a receiver's device, in the order in which they have to be
/// made.
pub(super) fn own_queues(
    path: &str,
    options: &Options,
    wire: &Wire,
) -> Result<Vec<Setting>, Fault> {
    let count = number_of(options);
    // One queue is left for everything else.
    let has = if count > 1 { wire.queues.max(count + 1) } else { wire.queues };
    let (first, asked) = (first(options, count, has), options.number("queue").is_some());
    if first + count > has || has == count || (first == 0 && !asked) {
        let queues = match count {
            1 => format!("queue {first}"),
            _ => format!("queues {first} to {}", first + count - 1),
        };
        let text =
            format!("{queues} of the {has} of {} cannot be dedicated to {path}", wire.device);
        return Err(Fault::usage(text).remedy(format!(
            "choose a queue that the device has beside one for everything else, or give it more: \
             ethtool -L {} combined N",
            wire.device
        )));
    }
    let more = (has > wire.queues).then(|| channels(wire.device, has)).transpose()?;
    let rest = header_split(wire)?.into_iter().chain(steering(OwnQueues { first, count }, wire)?);
    Ok(more.into_iter().chain(rest).collect())
}

/// What gives a device so many queues.
pub fn channels(device: &str, count: u32) -> Result<Setting, Fault> {
    let channels = Channels { combined: Some(count), ..Channels::default() };
    Setting::Channels { device: DeviceName::new(device)?, channels }.checked()
}

/// What has a device put headers into buffers of their own, of packets of any size.
pub fn header_split(wire: &Wire) -> Result<Vec<Setting>, Fault> {
    let device = DeviceName::new(wire.device)?;
    let split = Rings { tcp_data_split: Some(Split::On), ..Rings::default() };
    let any_size = Rings { hds_thresh: Some(0), ..Rings::default() };
    let rings = [split, any_size].map(|rings| Setting::Rings { device: device.clone(), rings });
    rings.into_iter().map(Setting::checked).collect()
}

/// A setting of a NIC as it is wanted: a driver without a threshold of header split (mlx5, gve)
/// splits packets of any size, and refuses one.
pub fn wanted(setting: Setting) -> WantedSetting {
    let is_threshold = |rings: &Rings| {
        rings.hds_thresh.is_some() && Rings { hds_thresh: None, ..*rings } == Rings::default()
    };
    let optional = matches!(&setting, Setting::Rings { rings, .. } if is_threshold(rings));
    WantedSetting { optional, ..WantedSetting::from(setting) }
}

/// What sends flows, and nothing else, to receive queues of a device: also for a path
/// that can do without, so that it is compared over the same queues. Several queues take flows
/// that are distinguished by their ports: [`spread_ports`].
pub fn steering(queues: OwnQueues, wire: &Wire) -> Result<Vec<Setting>, Fault> {
    let device = DeviceName::new(wire.device)?;
    let feature = Word::new("rx-ntuple-filter")?;
    let OwnQueues { first, count } = queues;
    let all = FlowRule {
        source: Some(wire.peer),
        destination: Some(wire.own),
        source_port: wire.port.filter(|_| wire.connects),
        destination_port: wire.port.filter(|_| !wire.connects),
        ipv6: wire.own.is_ipv6(),
        queue: first,
    };
    let of_flow = |flow: u32| {
        let port = SPREAD + flow as u16;
        let (source_port, destination_port) = match wire.connects {
            false => (Some(port), all.destination_port),
            true => (all.source_port, Some(port)),
        };
        let queue = first + turn(flow, wire.adapters) % count;
        FlowRule { source_port, destination_port, queue, ..all.clone() }
    };
    let rules: Vec<FlowRule> = match count {
        1 => vec![all.clone()],
        _ => (wire.adapter..wire.flows).step_by(wire.adapters as usize).map(of_flow).collect(),
    };
    let spread = match first {
        0 => Setting::Spread {
            device: device.clone(),
            queues: wire.queues.max(count + 1) - count,
            start: count,
        },
        _ => Setting::Spread { device: device.clone(), queues: first, start: 0 },
    };
    let table = [spread, Setting::Feature { device: device.clone(), feature, on: true }];
    let rules = rules.into_iter().map(|rule| Setting::Flow { device: device.clone(), rule });
    table.into_iter().chain(rules).map(Setting::checked).collect()
}

/// What to expect where flows have the first receive queue of a NIC to themselves: what a NIC has no
/// hash of, such as ARP, does not go by the table, and comes by that queue on many.
pub fn warn_of_first_queue<'s>(settings: impl IntoIterator<Item = &'s Setting>) -> Option<String> {
    settings.into_iter().find_map(|setting| match setting {
        Setting::Flow { device, rule } if rule.queue == 0 => Some(format!(
            "receive queue 0 of {device} belongs to the flows: what the NIC does not spread (ARP, \
             other protocols than IP) may come by it, and is lost if it is put into their memory"
        )),
        _ => None,
    })
}

/// The ports that flows connect from, in their order, where they are spread over several
/// queues.
pub fn spread_ports(flows: u32) -> Ports {
    Ports { low: SPREAD, high: SPREAD + flows.saturating_sub(1) as u16 }
}

/// The ports that a receiver listens on if a rule steers what goes there: always the same if it
/// is free, so that trials are set alike.
pub const STEERED_PORTS: Ports = Ports { low: SPREAD - 100, high: SPREAD - 1 };

/// The first of them: below those that kernels give to others (`ip_local_port_range`).
const SPREAD: u16 = 21_000;

#[cfg(test)]
mod tests {
    use super::*;
    use bytepath_record::{Cell, Half, OptionValue, Role};
    use std::collections::BTreeMap;

    /// A receiver's job of so many flows, over so many adapters to so many queues of each.
    fn job(flows: u32, adapters: u32, queues: u64) -> HalfConfig {
        let mut cell = Cell::new("a", Half::plain("socket"), Half::plain("zcrx"));
        (cell.stream.flows, cell.link.adapters) = (flows, adapters);
        cell.rx.options.0.insert(QUEUES.name.into(), OptionValue::Number(queues));
        HalfConfig::stream(&cell, Role::Receiver)
    }

    /// The queue of each flow by the rules of an adapter, which has so many.
    fn steered(job: &HalfConfig, adapter: u32, queues: u32) -> BTreeMap<u32, u32> {
        let wire = Wire {
            device: "eth1",
            queues,
            own: [10, 0, adapter as u8, 2].into(),
            peer: [10, 0, adapter as u8, 1].into(),
            port: Some(20_900),
            flows: job.flows,
            adapter,
            adapters: job.adapters,
            connects: false,
        };
        let settings = own_queues("zcrx", &job.options, &wire).unwrap();
        let rules = settings.into_iter().filter_map(|setting| match setting {
            Setting::Flow { rule, .. } => Some(rule),
            _ => None,
        });
        rules.map(|rule| (u32::from(rule.source_port.unwrap() - SPREAD), rule.queue)).collect()
    }

    #[test]
    fn flows_take_adapters_in_turn_and_those_of_each_its_queues() {
        let eight = job(8, 2, 2);
        assert_eq!(steered(&eight, 0, 8), [(0, 6), (2, 7), (4, 6), (6, 7)].into());
        assert_eq!(steered(&eight, 1, 4), [(1, 2), (3, 3), (5, 2), (7, 3)].into());
    }

    #[test]
    fn a_flow_receives_from_the_queue_that_its_rule_names_and_shares_it_with_no_other_nic() {
        for (flows, adapters, queues) in [(8, 2, 2), (7, 3, 2), (9, 2, 3), (4, 1, 2), (6, 2, 1)] {
            let job = job(flows, adapters, queues);
            let of = |adapter| 8 + adapter;
            let place = |flow: u32| {
                let adapter = flow % adapters;
                (adapter, queue_of(&job, flow, of(adapter)))
            };
            for adapter in (0..adapters).filter(|_| queues > 1) {
                let rules = steered(&job, adapter, of(adapter));
                let flows = (0..flows).filter(|flow| flow % adapters == adapter);
                assert_eq!(rules, flows.map(|flow| (flow, place(flow).1)).collect());
            }
            let all = number_of_all(&job);
            for one in 0..flows {
                for other in 0..flows {
                    assert_eq!(one % all == other % all, place(one) == place(other), "{job:?}");
                }
            }
        }
    }

    #[test]
    fn queues_that_no_flow_over_an_adapter_comes_by_are_refused() {
        assert_eq!(each_has_a_flow(&job(4, 2, 2)), Support::Yes);
        for (job, words) in [
            (job(3, 2, 2), "more than there are flows (3 over 2 adapters)"),
            (job(1, 1, 2), "more than there are flows (1)"),
        ] {
            let Support::No { reason, .. } = each_has_a_flow(&job) else { panic!("{words}") };
            assert!(reason.contains(words), "{reason}");
        }
    }
}
