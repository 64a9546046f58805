//! NIC settings required before a NIC writes payload into our memory, so that flows, and nothing
//! else, arrive on dedicated receive queues: what `zcrx` and `devmem` both require
//! (Documentation/networking/devmem.rst, "NIC Setup", Documentation/networking/iou-zcrx.rst, "Setup
//! NIC").

use super::FlowNic;
use crate::workload::HalfConfig;
use bytepath_record::{
    Channels, DeviceName, Fault, FlowRule, OptionKind, OptionSpec, Options, Ports, Rings, Setting,
    Split, Support, WantedSetting, Word,
};

/// How many receive queues of a NIC its flows are spread over, round-robin.
pub(super) const QUEUES: OptionSpec = OptionSpec::new("queues", OptionKind::Count(1, 64), "1")
    .help(
        "number of receive queues, starting at that one, to spread flows over (above 200 Gbit/s)",
    );

/// Refuses more queues than flows, since some would receive none.
pub(super) fn each_has_a_flow(job: &HalfConfig) -> Support {
    let (queues, adapters) = (number_of(&job.options), job.adapters);
    let over = if adapters > 1 { &format!(" over {adapters} adapters") } else { "" };
    super::refuse_if(
        queues > job.flows / adapters,
        format!("{queues} receive queues are more than there are flows ({}{over})", job.flows),
        "choose fewer queues, or more flows",
    )
}

/// Returns the receive queue of a flow on a device with `of` queues: flows are distributed over the
/// adapters round-robin, and over each adapter's queues likewise.
pub(super) fn queue_of(job: &HalfConfig, flow: u32, of: u32) -> u32 {
    let count = number_of(&job.options);
    first(&job.options, count, of) + rank_on_adapter(flow, job.adapters) % count
}

/// Returns how many earlier flows use the same adapter.
fn rank_on_adapter(flow: u32, adapters: u32) -> u32 {
    flow / adapters
}

/// Returns the number of receive queues of all adapters together: two flows use the same queue if
/// their indices are equal modulo this number.
pub(super) fn number_of_all(job: &HalfConfig) -> u32 {
    job.adapters * number_of(&job.options)
}

/// Returns the number of receive queues per NIC that the options request.
pub(super) fn number_of(options: &Options) -> u32 {
    options.number(QUEUES.name).map_or(1, |queues| queues as u32)
}

/// Returns the first of the dedicated queues: that of the option `queue`, else they are the last
/// ones.
fn first(options: &Options, count: u32, of: u32) -> u32 {
    options.number("queue").map_or(of.saturating_sub(count), |queue| queue as u32)
}

/// Receive queues of a device that are dedicated to flows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OwnQueues {
    pub first: u32,
    /// Number of queues, at least one.
    pub count: u32,
}

/// Returns the settings of a receiver's device, in the order in which they must be made.
pub(super) fn own_queues(
    path: &str,
    options: &Options,
    wire: &FlowNic,
) -> Result<Vec<Setting>, Fault> {
    let count = number_of(options);
    // One more queue, for all other traffic.
    let has = if count > 1 { wire.queues.max(count + 1) } else { wire.queues };
    let (first, asked) = (first(options, count, has), options.number("queue").is_some());
    if first + count > has || has == count || (first == 0 && !asked) {
        let queues = match count {
            1 => format!("queue {first}"),
            _ => format!("queues {first} to {}", first + count - 1),
        };
        let text =
            format!("{queues} of the {has} of {} cannot be dedicated to {path}", wire.device);
        let more = match wire.given {
            true => format!("set more: channels {} combined=N", wire.device),
            false => format!("give it more: ethtool -L {} combined N", wire.device),
        };
        let remedy = "choose a queue that the device has beside one for everything else";
        return Err(Fault::usage(text).remedy(format!("{remedy}, or {more}")));
    }
    let more = (has > wire.queues).then(|| channels(wire.device, has)).transpose()?;
    let rest = header_split(wire)?.into_iter().chain(steering(OwnQueues { first, count }, wire)?);
    Ok(more.into_iter().chain(rest).collect())
}

/// The setting that gives a device `count` combined channels.
pub fn channels(device: &str, count: u32) -> Result<Setting, Fault> {
    let channels = Channels { combined: Some(count), ..Channels::default() };
    Setting::Channels { device: DeviceName::new(device)?, channels }.checked()
}

/// The settings that make a device put headers into separate buffers, for packets of any size.
pub fn header_split(wire: &FlowNic) -> Result<Vec<Setting>, Fault> {
    let device = DeviceName::new(wire.device)?;
    let split = Rings { tcp_data_split: Some(Split::On), ..Rings::default() };
    let any_size = Rings { hds_thresh: Some(0), ..Rings::default() };
    let rings = [split, any_size].map(|rings| Setting::Rings { device: device.clone(), rings });
    rings.into_iter().map(Setting::checked).collect()
}

/// Turns a NIC setting into a requested one. A threshold of header split is optional: a driver
/// without one (mlx5, gve) splits packets of any size, and refuses to set it.
pub fn to_requested(setting: Setting) -> WantedSetting {
    let is_threshold = |rings: &Rings| {
        rings.hds_thresh.is_some() && Rings { hds_thresh: None, ..*rings } == Rings::default()
    };
    let optional = matches!(&setting, Setting::Rings { rings, .. } if is_threshold(rings));
    WantedSetting { optional, ..WantedSetting::from(setting) }
}

/// The settings that steer flows, and nothing else, to receive queues of a device. Also used for a
/// path that does not need them, so that it is compared over the same queues. If there are several
/// queues, flows are distinguished by their ports: [`spread_ports`].
pub fn steering(queues: OwnQueues, wire: &FlowNic) -> Result<Vec<Setting>, Fault> {
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
        let queue = first + rank_on_adapter(flow, wire.adapters) % count;
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

/// Returns a warning if flows have the first receive queue of a NIC to themselves: packets without
/// an RSS hash, such as ARP, bypass the indirection table, and on many NICs arrive on that queue.
pub fn warn_of_first_queue<'s>(settings: impl IntoIterator<Item = &'s Setting>) -> Option<String> {
    settings.into_iter().find_map(|setting| match setting {
        Setting::Flow { device, rule } if rule.queue == 0 => Some(format!(
            "receive queue 0 of {device} belongs to the flows: what the NIC does not spread (ARP, \
             other protocols than IP) may come by it, and is lost if it is put into their memory"
        )),
        _ => None,
    })
}

/// The ports that flows connect from, in flow order, if they are spread over several queues.
pub fn spread_ports(flows: u32) -> Ports {
    Ports { low: SPREAD, high: SPREAD + flows.saturating_sub(1) as u16 }
}

/// The ports that a receiver listens on if a rule matches that port: always the same one if it is
/// free, so that all trials have the same settings.
pub const STEERED_PORTS: Ports = Ports { low: SPREAD - 100, high: SPREAD - 1 };

/// First port that flows connect from: below the ephemeral range (`ip_local_port_range`).
const SPREAD: u16 = 21_000;

#[cfg(test)]
mod tests {
    use super::*;
    use bytepath_record::{Cell, Half, OptionValue, Role};
    use std::collections::BTreeMap;

    /// A receiver's configuration with this many flows, adapters, and queues per adapter.
    fn job(flows: u32, adapters: u32, queues: u64) -> HalfConfig {
        let mut cell = Cell::new("a", Half::plain("socket"), Half::plain("zcrx"));
        (cell.stream.flows, cell.link.adapters) = (flows, adapters);
        cell.rx.options.0.insert(QUEUES.name.into(), OptionValue::Number(queues));
        HalfConfig::stream(&cell, Role::Receiver)
    }

    /// Returns the queue of each flow according to the rules of an adapter with this many queues.
    fn steered(job: &HalfConfig, adapter: u32, queues: u32) -> BTreeMap<u32, u32> {
        let wire = FlowNic {
            device: "eth1",
            queues,
            given: false,
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
