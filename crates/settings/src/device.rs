//! Settings of network devices made by netlink and ioctl.

use super::access::{Access, Nic, parts_of};
use super::files;
use super::journal::Change;
use super::qdisc::{defaults, irreplaceable, root_text, set_root};
use super::queues;
use bytepath_record::{
    DeviceName, Fault, FlowRule, PacketLimits, Setting, SettingValue, TapFlags, Word, joined,
};
use bytepath_sys::ethtool::{Channels, Coalescing, DataSplit, Rings};
use bytepath_sys::flow_steering::{self as steering, Rule};
use bytepath_sys::netlink::{Limits, NapiTiming, Netlink};
use bytepath_sys::tap;
use std::collections::{BTreeMap, BTreeSet};
use std::io;

pub(super) fn feature<'s>(device: &'s DeviceName, feature: &'s Word, on: bool) -> Access<'s> {
    let read = move |nic: &mut Nic| {
        let features = nic.query(Netlink::features)?;
        let has = |names: &[String]| names.iter().any(|name| name == feature.as_str());
        let is_on = has(&features.active);
        // A missing feature does not count as off.
        if !has(&features.known) {
            let text = format!("this kernel has no offload feature {feature}");
            return Err(Fault::unsupported(text).remedy(format!(
                "`ethtool -k {device}` lists the features; write tx-tcp-segmentation for tso, \
                 and so on"
            )));
        }
        if on && !is_on && !has(&features.changeable) {
            let text = format!("{device} has no {feature} that can be enabled");
            return Err(
                Fault::unsupported(text).remedy(format!("`ethtool -k {device}` shows what it has"))
            );
        }
        Ok(SettingValue::one(feature.as_str(), flag(is_on)))
    };
    let goal = move |_: &SettingValue| Ok(SettingValue::one(feature.as_str(), flag(on)));
    let write = move |nic: &mut Nic, to: &SettingValue| {
        let on = switch(to, feature.as_str()) == Some(true);
        nic.netlink.set_features(nic.link.index, &[(feature.as_str(), on)])
    };
    Access::calls(device, read, goal, write)
}

pub(super) fn rings<'s>(setting: &'s Setting, device: &'s DeviceName) -> Access<'s> {
    const SPLITS: [(DataSplit, &str); 3] =
        [(DataSplit::Enabled, "on"), (DataSplit::Disabled, "off"), (DataSplit::Unknown, "auto")];
    let read = |nic: &mut Nic| {
        let rings = nic.query(Netlink::rings)?;
        let mut parts = value([
            ("rx", rings.rx),
            ("tx", rings.tx),
            ("rx-buf-len", rings.rx_buf_len),
            ("hds-thresh", rings.hds_thresh),
        ]);
        let text = |is: DataSplit| SPLITS.iter().find(|(split, _)| *split == is);
        let split = rings.tcp_data_split.and_then(text);
        parts.0.extend(split.map(|(_, text)| ("tcp-data-split".into(), (*text).into())));
        Ok(parts)
    };
    let write = |nic: &mut Nic, to: &SettingValue| {
        let split = to.get("tcp-data-split");
        let split = split.and_then(|text| SPLITS.iter().find(|(_, known)| *known == text));
        let rings = Rings {
            rx: number(to, "rx"),
            tx: number(to, "tx"),
            rx_buf_len: number(to, "rx-buf-len"),
            tcp_data_split: split.map(|(split, _)| *split),
            hds_thresh: number(to, "hds-thresh"),
            ..Rings::default()
        };
        nic.netlink.set_rings(nic.link.index, &rings)
    };
    Access::parts(setting, device, read, write)
}

/// Removing a queue loses the choice of CPUs that serve it, and reallocating an interrupt loses its
/// affinity; neither comes back by itself.
pub(super) fn channels<'s>(setting: &'s Setting, device: &'s DeviceName) -> Access<'s> {
    let read = |nic: &mut Nic| {
        let c = nic.query(Netlink::channels)?;
        let mut parts = value([("rx", c.rx), ("tx", c.tx), ("combined", c.combined)]);
        parts.0.extend(queues::steering(nic.roots, nic.name).0);
        Ok(parts)
    };
    let write = |nic: &mut Nic, to: &SettingValue| {
        let (rx, tx, combined) = (number(to, "rx"), number(to, "tx"), number(to, "combined"));
        let channels = Channels { rx, tx, combined, ..Channels::default() };
        if rx.or(tx).or(combined).is_some() {
            nic.netlink.set_channels(nic.link.index, &channels)?;
        }
        queues::steer(nic.roots, nic.name, to)
    };
    Access {
        reads_sysfs: true,
        follows: follows_renewal,
        goes_along: queues::is_served,
        ..Access::parts(setting, device, read, write)
    }
}

/// An interrupt that was reallocated by a change of queues is reallocated again on restoration, so
/// an affinity set meanwhile (by irqbalance) is lost in any case.
pub(super) fn follows_renewal(_: &Change, name: &str, [was, set, _]: [&str; 3]) -> bool {
    queues::is_interrupt(name) && was != set
}

pub(super) fn coalescing<'s>(setting: &'s Setting, device: &'s DeviceName) -> Access<'s> {
    let read = |nic: &mut Nic| {
        let c = nic.query(Netlink::coalescing)?;
        let mut parts = value([
            ("rx-usecs", c.rx_usecs),
            ("rx-frames", c.rx_frames),
            ("tx-usecs", c.tx_usecs),
            ("tx-frames", c.tx_frames),
        ]);
        for (name, on) in [("adaptive-rx", c.adaptive_rx), ("adaptive-tx", c.adaptive_tx)] {
            parts.0.extend(on.map(|on| (name.to_owned(), flag(on).to_owned())));
        }
        Ok(parts)
    };
    let write = |nic: &mut Nic, to: &SettingValue| {
        let coalescing = Coalescing {
            rx_usecs: number(to, "rx-usecs"),
            rx_frames: number(to, "rx-frames"),
            tx_usecs: number(to, "tx-usecs"),
            tx_frames: number(to, "tx-frames"),
            adaptive_rx: switch(to, "adaptive-rx"),
            adaptive_tx: switch(to, "adaptive-tx"),
        };
        nic.netlink.set_coalescing(nic.link.index, &coalescing)
    };
    Access {
        // With adaptive coalescing the driver changes these values by itself.
        follows: |change, name, _| match name {
            "rx-usecs" | "rx-frames" => switch(&change.set, "adaptive-rx") == Some(true),
            "tx-usecs" | "tx-frames" => switch(&change.set, "adaptive-tx") == Some(true),
            _ => false,
        },
        ..Access::parts(setting, device, read, write)
    }
}

/// Parts are named by the index of the NAPI instance within the device: `0 defer-hard-irqs`. An
/// instance that comes back with its queue has its former number and values.
pub(super) fn napi<'s>(setting: &'s Setting, device: &'s DeviceName) -> Access<'s> {
    let read = |nic: &mut Nic| {
        let mut napis = nic.query(Netlink::napis)?;
        napis.sort_by_key(|napi| napi.id);
        let mut parts = SettingValue::default();
        for (at, timing) in napis.iter().map(|napi| napi.timing).enumerate() {
            let NapiTiming { defer_hard_irqs, gro_flush_timeout, irq_suspend_timeout, threaded } =
                timing;
            let of_instance = value([
                ("defer-hard-irqs", defer_hard_irqs),
                ("gro-flush-timeout", gro_flush_timeout),
                ("irq-suspend-timeout", irq_suspend_timeout),
                ("threaded", threaded),
            ]);
            let named =
                of_instance.0.into_iter().map(|(name, text)| (format!("{at} {name}"), text));
            parts.0.extend(named);
        }
        Ok(parts)
    };
    let goal = move |before: &SettingValue| {
        let numbers = before.0.keys().filter_map(|name| name.split(' ').next());
        let instances: BTreeSet<&str> = numbers.collect();
        if instances.is_empty() {
            let text = format!("{device} has no polling instance that can be set");
            return Err(Fault::unsupported(text).remedy(
                "bring it up; boot Linux 6.13 or later; a veth has one with gro=on alone",
            ));
        }
        let wanted = |at| {
            let parts = setting.parts().into_iter();
            parts.map(move |(name, text)| (format!("{at} {name}"), text))
        };
        Ok(SettingValue(instances.into_iter().flat_map(wanted).collect()))
    };
    let write = |nic: &mut Nic, to: &SettingValue| {
        let mut napis = nic.netlink.napis(nic.link.index)?;
        napis.sort_by_key(|napi| napi.id);
        for (at, napi) in napis.iter().enumerate() {
            let part = |name: &str| number(to, &format!("{at} {name}"));
            let timing = NapiTiming {
                defer_hard_irqs: part("defer-hard-irqs"),
                gro_flush_timeout: part("gro-flush-timeout"),
                irq_suspend_timeout: part("irq-suspend-timeout"),
                threaded: part("threaded"),
            };
            nic.netlink.set_napi(napi.id, &timing)?;
        }
        Ok(())
    };
    Access::calls(device, read, goal, write)
}

pub(super) fn spread(device: &DeviceName, queues: u32, start: u32) -> Access<'_> {
    let read = |nic: &mut Nic| {
        let name = nic.name;
        let table = nic.query(|_, _| steering::indirection(name))?;
        Ok(SettingValue::one("table", joined(table, " ")))
    };
    let goal = move |before: &SettingValue| {
        let length = before.get("table").unwrap_or_default().split_whitespace().count();
        let table = (0..length as u64).map(|at| u64::from(start) + at % u64::from(queues));
        Ok(SettingValue::one("table", joined(table, " ")))
    };
    let write =
        |nic: &mut Nic, to: &SettingValue| set_table(nic, to.get("table").unwrap_or_default());
    Access::calls(device, read, goal, write)
}

pub(super) fn flow<'s>(device: &'s DeviceName, rule: &'s FlowRule) -> Access<'s> {
    let read = |nic: &mut Nic| {
        let name = nic.name;
        let location = nic.query(|_, _| find_rule(name, rule))?;
        let text = location.map_or("absent".into(), |at| format!("at location {at}"));
        Ok(SettingValue::one("rule", text))
    };
    let goal = |_: &SettingValue| Ok(SettingValue::one("rule", PRESENT));
    let write = |nic: &mut Nic, to: &SettingValue| match to.get("rule") {
        Some(PRESENT) => insert(nic.name, rule),
        _ => delete(nic.name, rule),
    };
    Access {
        // The device chooses the location of the rule.
        same: |a, b| {
            a == b || [(a, b), (b, a)].iter().any(|(a, b)| *a == PRESENT && *b != "absent")
        },
        ..Access::calls(device, read, goal, write)
    }
}

pub(super) fn packet_limits<'s>(device: &'s DeviceName, wanted: &'s PacketLimits) -> Access<'s> {
    let read = |nic: &mut Nic| {
        let l = nic.link.limits;
        Ok(value([
            ("gso", l.gso),
            ("gro", l.gro),
            ("gso-ipv4", l.gso_ipv4),
            ("gro-ipv4", l.gro_ipv4),
        ]))
    };
    let write = |nic: &mut Nic, to: &SettingValue| {
        nic.netlink.set_limits(nic.link.index, &limits(|name| number(to, name)))
    };
    Access::calls(device, read, |_| Ok(limits_goal(wanted)), write)
}

pub(super) fn qdisc<'s>(device: &'s DeviceName, discipline: &'s Word) -> Access<'s> {
    let read = |nic: &mut Nic| Ok(SettingValue::one("root", nic.query(root_text)?));
    let goal = |before: &SettingValue| match irreplaceable(before.get("root").unwrap_or_default()) {
        Some(why) => Err(Fault::unsupported(why).remedy(
            "of a device that a testbed sets up, the link sets it: --link nic:qdisc=pfifo",
        )),
        None => Ok(SettingValue::one("root", discipline.as_str())),
    };
    let write = |nic: &mut Nic, to: &SettingValue| {
        set_root(nic.netlink, nic.link.index, to.get("root").unwrap_or_default())
    };
    Access { same: same_root, ..Access::calls(device, read, goal, write) }
}

/// A request is a name only and matches any options.
fn same_root(a: &str, b: &str) -> bool {
    let is_kind_of = |name: &str, root: &str| {
        !name.contains(' ') && root.split(' ').next() == Some(name) && name != "none"
    };
    a == b || is_kind_of(a, b) || is_kind_of(b, a) || defaults(a, b)
}

pub(super) fn tap_flags<'s>(
    setting: &'s Setting,
    device: &'s DeviceName,
    flags: &'s TapFlags,
) -> Access<'s> {
    let read = |nic: &mut Nic| {
        let bits = present_tap_flags(nic).filter(|bits| bits & tap::TAP != 0);
        let bits =
            bits.ok_or_else(|| Fault::unsupported(format!("{} is not a tap device", nic.name)))?;
        let each = TAP_FLAGS.iter();
        let texts = each.map(|(name, bit)| ((*name).to_owned(), flag(bits & bit != 0).into()));
        Ok(SettingValue(texts.collect()))
    };
    let write = |nic: &mut Nic, to: &SettingValue| {
        let mut bits = present_tap_flags(nic).ok_or(io::ErrorKind::NotFound)?;
        for (name, bit) in TAP_FLAGS {
            match switch(to, name) {
                Some(true) => bits |= bit,
                Some(false) => bits &= !bit,
                None => {}
            }
        }
        tap::set_flags(nic.name, bits)
    };
    let goal = |_: &SettingValue| check_tap(flags).map(|()| parts_of(setting));
    Access { reads_sysfs: true, ..Access::calls(device, read, goal, write) }
}

fn present_tap_flags(nic: &Nic) -> Option<u32> {
    let path = nic.roots.sys.join("class/net").join(nic.name).join("tun_flags");
    u32::from_str_radix(files::read(&path).ok()?.trim().strip_prefix("0x")?, 16).ok()
}

/// The required rule, at any location.
const PRESENT: &str = "present";

const TAP_FLAGS: &[(&str, u32)] =
    &[("vnet-hdr", tap::VNET_HDR), ("napi", tap::NAPI), ("backpressure", tap::BACKPRESSURE)];

pub(super) fn flag(on: bool) -> &'static str {
    if on { "on" } else { "off" }
}

fn number(parts: &SettingValue, name: &str) -> Option<u32> {
    parts.get(name)?.parse().ok()
}

fn switch(parts: &SettingValue, name: &str) -> Option<bool> {
    parts.get(name).map(|text| text == "on")
}

fn value<const N: usize>(parts: [(&str, Option<u32>); N]) -> SettingValue {
    let known = parts.into_iter().filter_map(|(name, n)| Some((name.to_owned(), n?.to_string())));
    SettingValue(known.collect::<BTreeMap<_, _>>())
}

/// Builds the limits from sizes by name.
pub(super) fn limits(size: impl Fn(&str) -> Option<u32>) -> Limits {
    let (gso_ipv4, gro_ipv4) = (size("gso-ipv4"), size("gro-ipv4"));
    Limits { gso: size("gso"), gro: size("gro"), gso_ipv4, gro_ipv4 }
}

/// Up to 65536 the IPv6 limit also sets the IPv4 one (`netif_set_gso_max_size` and
/// `netif_set_gro_max_size`, net/core/dev.c).
fn limits_goal(limits: &PacketLimits) -> SettingValue {
    const LEGACY: u32 = 65536;
    let follows = |six: Option<u32>, four: Option<u32>| four.or(six.filter(|n| *n <= LEGACY));
    value([
        ("gso", limits.gso),
        ("gro", limits.gro),
        ("gso-ipv4", follows(limits.gso, limits.gso_ipv4)),
        ("gro-ipv4", follows(limits.gro, limits.gro_ipv4)),
    ])
}

fn check_tap(flags: &TapFlags) -> Result<(), Fault> {
    if flags.backpressure == Some(true) {
        let known =
            tap::known_flags().map_err(|e| Fault::system("cannot open /dev/net/tun", &e))?;
        if known & tap::BACKPRESSURE == 0 {
            let text = "this kernel's tap devices have no back-pressure flag";
            return Err(Fault::unsupported(text).remedy("Linux 7.3 has it"));
        }
    }
    Ok(())
}

/// Sets the RSS indirection table. If it is the driver's default, hands it back to the driver, so
/// that it follows the number of queues again.
fn set_table(nic: &mut Nic, text: &str) -> io::Result<()> {
    let device = nic.name;
    let numbers: Result<Vec<u32>, _> = text.split(' ').map(str::parse).collect();
    let table = numbers.map_err(|e| io::Error::new(io::ErrorKind::InvalidInput, e))?;
    let queues = steering::receive_queues(device).unwrap_or(0);
    if may_be_the_drivers(&table, queues) && steering::set_indirection(device, &[]).is_ok() {
        if steering::indirection(device)? == table {
            return Ok(());
        }
        // The kernel reset it by its own rule. Some drivers use another rule, which they apply when
        // their number of queues changes.
        if queues > 1
            && change_queues_and_back(nic).is_ok()
            && steering::indirection(device)? == table
        {
            return Ok(());
        }
    }
    steering::set_indirection(device, &table)
}

/// True if a table spreads over all queues in turn or in blocks, as drivers' defaults do.
fn may_be_the_drivers(table: &[u32], queues: u64) -> bool {
    let in_turn = |(at, queue): (u64, &u32)| queues > 0 && u64::from(*queue) == at % queues;
    let has_all = queues > 0 && (0..queues).all(|queue| table.contains(&(queue as u32)));
    (0..).zip(table).all(in_turn) || (has_all && table.is_sorted())
}

/// Makes the driver recreate its per-queue state. The CPUs that serve the queues are kept.
fn change_queues_and_back(nic: &mut Nic) -> io::Result<()> {
    let (netlink, index) = (&mut *nic.netlink, nic.link.index);
    let now = netlink.channels(index)?.combined;
    let steering = queues::steering(nic.roots, nic.name);
    netlink.set_channels(index, &Channels { combined: Some(1), ..Channels::default() })?;
    netlink.set_channels(index, &Channels { combined: now, ..Channels::default() })?;
    queues::steer(nic.roots, nic.name, &steering)
}

fn kernel_rule(rule: &FlowRule) -> Rule {
    Rule {
        ipv6: rule.ipv6,
        source: rule.source,
        destination: rule.destination,
        source_port: rule.source_port,
        destination_port: rule.destination_port,
        queue: rule.queue.into(),
    }
}

/// Returns the location of exactly this rule, or `None` if the device does not have it.
fn find_rule(device: &str, rule: &FlowRule) -> io::Result<Option<u32>> {
    let wanted = kernel_rule(rule);
    for location in steering::rules(device)?.locations {
        // A rule that has disappeared meanwhile is not ours.
        if let Ok(Some(found)) = steering::rule(device, location)
            && found == wanted
        {
            return Ok(Some(location));
        }
    }
    Ok(None)
}

/// Inserts the rule where the driver chooses, or in the last free location.
fn insert(device: &str, rule: &FlowRule) -> io::Result<()> {
    let table = steering::rules(device)?;
    let free = || (0..table.size).rev().find(|at| table.locations.binary_search(at).is_err());
    let location = if table.chooses { None } else { free() };
    if location.is_none() && !table.chooses {
        return Err(io::Error::other("the device's flow rule table is full"));
    }
    steering::insert_rule(device, &kernel_rule(rule), location).map(drop)
}

fn delete(device: &str, rule: &FlowRule) -> io::Result<()> {
    match find_rule(device, rule)? {
        Some(location) => steering::delete_rule(device, location),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_drivers_own_table_has_all_queues_in_turn_or_in_blocks() {
        for (table, queues, own) in [
            (&[0, 1, 2, 0, 1, 2][..], 3, true),
            (&[0, 0, 1, 1, 2, 2], 3, true),
            (&[0, 0, 0, 1, 1, 1], 3, false),
            (&[0, 0, 0, 0], 1, true),
            (&[0, 0, 0, 0], 2, false),
            (&[1, 0, 2, 1], 3, false),
            (&[0, 1], 0, false),
        ] {
            assert_eq!(may_be_the_drivers(table, queues), own, "{table:?} of {queues}");
        }
    }
}
