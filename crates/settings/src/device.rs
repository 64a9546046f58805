//! Settings of network devices that are made by netlink and ioctl.

use super::missing;
use bytepath_record::{
    DeviceName, Fault, FaultKind, FlowRule, PacketLimits, Setting, SettingValue, TapFlags,
};
use bytepath_sys::ethtool::{Channels, Coalescing, DataSplit, Rings};
use bytepath_sys::flow_steering::{self as steering, Rule};
use bytepath_sys::netlink::{Limits, Netlink};
use bytepath_sys::qdisc::{Qdisc, ROOT};
use bytepath_sys::tap;
use std::collections::BTreeMap;
use std::io;

/// What a device says of a setting; none if the device is not there.
pub(super) fn read(
    netlink: &mut Netlink,
    setting: &Setting,
    tap_flags: Option<u32>,
) -> Result<Option<SettingValue>, Fault> {
    let Some(device) = setting.device() else { return Ok(None) };
    let fault = |e: &io::Error| match e.kind() {
        io::ErrorKind::Unsupported => {
            let text = format!("the driver of {device} does not support this ({e})");
            Fault::new(FaultKind::Unsupported, text)
        }
        _ => Fault::system(format!("cannot query {device}"), e),
    };
    let Some(link) = netlink.link(device.as_str()).map_err(|e| fault(&e))? else {
        return Ok(None);
    };
    let value = match setting {
        Setting::Feature { feature, on: wanted, .. } => {
            let features = netlink.features(link.index).map_err(|e| fault(&e))?;
            let has = |names: &[String]| names.iter().any(|name| name == feature.as_str());
            let on = has(&features.active);
            // What does not exist is not off.
            if !has(&features.known) {
                let text = format!("this kernel has no offload feature {feature}");
                return Err(Fault::new(FaultKind::Unsupported, text).remedy(format!(
                    "`ethtool -k {device}` lists the features; write tx-tcp-segmentation for tso, \
                     and so on"
                )));
            }
            if *wanted && !on && !has(&features.changeable) {
                let text = format!("{device} has no {feature} that can be enabled");
                return Err(Fault::new(FaultKind::Unsupported, text)
                    .remedy(format!("`ethtool -k {device}` shows what it has")));
            }
            SettingValue::one(feature.as_str(), flag(on))
        }
        Setting::Rings { .. } => rings_value(&netlink.rings(link.index).map_err(|e| fault(&e))?),
        Setting::Channels { .. } => {
            let c = netlink.channels(link.index).map_err(|e| fault(&e))?;
            value([("rx", c.rx), ("tx", c.tx), ("combined", c.combined)])
        }
        Setting::Coalescing { .. } => {
            coalescing_value(&netlink.coalescing(link.index).map_err(|e| fault(&e))?)
        }
        Setting::Spread { .. } => {
            let table = steering::indirection(device.as_str()).map_err(|e| fault(&e))?;
            let words: Vec<String> = table.iter().map(u32::to_string).collect();
            SettingValue::one("table", words.join(" "))
        }
        Setting::Flow { rule, .. } => {
            let location = find_rule(device, rule).map_err(|e| fault(&e))?;
            let text = location.map_or("absent".into(), |at| format!("at location {at}"));
            SettingValue::one("rule", text)
        }
        Setting::PacketLimits { .. } => {
            let l = link.limits;
            value([
                ("gso", l.gso),
                ("gro", l.gro),
                ("gso-ipv4", l.gso_ipv4),
                ("gro-ipv4", l.gro_ipv4),
            ])
        }
        Setting::Qdisc { .. } => {
            let all = netlink.qdiscs(link.index).map_err(|e| fault(&e))?;
            let root = all.iter().find(|qdisc| qdisc.parent == ROOT);
            let text = root.map_or("none".into(), |root| qdisc_text(root, &all));
            SettingValue::one("root", text)
        }
        Setting::TapFlags { .. } => {
            let bits = tap_flags.filter(|bits| bits & tap::TAP != 0).ok_or_else(|| {
                Fault::new(FaultKind::Unsupported, format!("{device} is not a tap device"))
            })?;
            let each = TAP_FLAGS.iter();
            let texts = each.map(|(name, bit)| ((*name).to_owned(), flag(bits & bit != 0).into()));
            SettingValue(texts.collect())
        }
        _ => return Ok(None),
    };
    Ok(Some(value))
}

/// The value the device should have. The fault shows why it cannot, or why what is there
/// could not be restored.
pub(super) fn goal(setting: &Setting, before: &SettingValue) -> Result<SettingValue, Fault> {
    Ok(match setting {
        Setting::Feature { feature, on, .. } => SettingValue::one(feature.as_str(), flag(*on)),
        Setting::Rings { .. } | Setting::Channels { .. } | Setting::Coalescing { .. } => {
            parts(setting)
        }
        Setting::Spread { queues, .. } => {
            let length = before.get("table").unwrap_or_default().split_whitespace().count();
            let table = (0..length as u64).map(|at| (at % u64::from(*queues)).to_string());
            SettingValue::one("table", table.collect::<Vec<_>>().join(" "))
        }
        Setting::Flow { .. } => SettingValue::one("rule", PRESENT),
        Setting::PacketLimits { limits, .. } => limits_goal(limits),
        Setting::Qdisc { discipline, .. } => {
            let root = before.get("root").unwrap_or_default();
            if let Some(why) = irreplaceable(root) {
                return Err(Fault::new(FaultKind::Unsupported, why));
            }
            SettingValue::one("root", discipline.as_str())
        }
        Setting::TapFlags { flags, .. } => {
            check_tap(flags)?;
            parts(setting)
        }
        _ => SettingValue::default(),
    })
}

/// Changes the named parts of a setting to these texts.
pub(super) fn write(
    netlink: &mut Netlink,
    setting: &Setting,
    to: &SettingValue,
    tap_flags: Option<u32>,
) -> Result<(), Fault> {
    let fault = |e: &io::Error| Fault::system(format!("the kernel refused {to}"), e);
    let Some(device) = setting.device() else { return Ok(()) };
    let link = netlink.link(device.as_str()).map_err(|e| fault(&e))?;
    let index = link.ok_or_else(|| missing(setting))?.index;
    let number = |name: &str| to.get(name).and_then(|text| text.parse::<u32>().ok());
    let on = |name: &str| to.get(name).map(|text| text == "on");
    let done = match setting {
        Setting::Feature { feature, .. } => {
            netlink.set_features(index, &[(feature.as_str(), on(feature.as_str()) == Some(true))])
        }
        Setting::Rings { .. } => {
            let split = |text: &str| match text {
                "on" => DataSplit::Enabled,
                "off" => DataSplit::Disabled,
                _ => DataSplit::Unknown,
            };
            let rings = Rings {
                rx: number("rx"),
                tx: number("tx"),
                rx_buf_len: number("rx-buf-len"),
                tcp_data_split: to.get("tcp-data-split").map(split),
                hds_thresh: number("hds-thresh"),
                ..Rings::default()
            };
            netlink.set_rings(index, &rings)
        }
        Setting::Channels { .. } => {
            let (rx, tx, combined) = (number("rx"), number("tx"), number("combined"));
            netlink.set_channels(index, &Channels { rx, tx, combined, ..Channels::default() })
        }
        Setting::Coalescing { .. } => {
            let coalescing = Coalescing {
                rx_usecs: number("rx-usecs"),
                rx_frames: number("rx-frames"),
                tx_usecs: number("tx-usecs"),
                tx_frames: number("tx-frames"),
                adaptive_rx: on("adaptive-rx"),
                adaptive_tx: on("adaptive-tx"),
            };
            netlink.set_coalescing(index, &coalescing)
        }
        Setting::Spread { .. } => set_table(device, to.get("table").unwrap_or_default()),
        Setting::Flow { rule, .. } => match to.get("rule") {
            Some(PRESENT) => insert(device, rule),
            _ => delete(device, rule),
        },
        Setting::PacketLimits { .. } => {
            let limits = Limits {
                gso: number("gso"),
                gro: number("gro"),
                gso_ipv4: number("gso-ipv4"),
                gro_ipv4: number("gro-ipv4"),
            };
            netlink.set_limits(index, &limits)
        }
        Setting::Qdisc { .. } => set_root(netlink, index, to.get("root").unwrap_or_default()),
        Setting::TapFlags { .. } => {
            let mut bits = tap_flags.ok_or_else(|| missing(setting))?;
            for (name, bit) in TAP_FLAGS {
                match on(name) {
                    Some(true) => bits |= bit,
                    Some(false) => bits &= !bit,
                    None => {}
                }
            }
            tap::set_flags(device.as_str(), bits)
        }
        _ => Ok(()),
    };
    done.map_err(|e| fault(&e))
}

/// Whether two texts of a device's setting mean the same. What we request says
/// less than what is there then: a rule's place and a discipline's options are
/// not for us to choose.
pub(super) fn same(setting: &Setting, a: &str, b: &str) -> bool {
    let asked = |asked: &str, found: &str| match setting {
        Setting::Flow { .. } => asked == PRESENT && found != "absent",
        Setting::Qdisc { .. } => {
            !asked.contains(' ') && found.split(' ').next() == Some(asked) && asked != "none"
        }
        _ => false,
    };
    a == b
        || asked(a, b)
        || asked(b, a)
        || matches!(setting, Setting::Qdisc { .. }) && defaults(a, b)
}

/// The required rule: wherever the device puts it.
const PRESENT: &str = "present";

const TAP_FLAGS: &[(&str, u32)] =
    &[("vnet-hdr", tap::VNET_HDR), ("napi", tap::NAPI), ("backpressure", tap::BACKPRESSURE)];

fn flag(on: bool) -> &'static str {
    if on { "on" } else { "off" }
}

fn value<const N: usize>(parts: [(&str, Option<u32>); N]) -> SettingValue {
    let known = parts.into_iter().filter_map(|(name, n)| Some((name.to_owned(), n?.to_string())));
    SettingValue(known.collect::<BTreeMap<_, _>>())
}

fn rings_value(rings: &Rings) -> SettingValue {
    let mut found = value([
        ("rx", rings.rx),
        ("tx", rings.tx),
        ("rx-buf-len", rings.rx_buf_len),
        ("hds-thresh", rings.hds_thresh),
    ]);
    if let Some(split) = rings.tcp_data_split {
        let text = match split {
            DataSplit::Enabled => "on",
            DataSplit::Disabled => "off",
            DataSplit::Unknown => "auto",
        };
        found.0.insert("tcp-data-split".into(), text.into());
    }
    found
}

fn coalescing_value(c: &Coalescing) -> SettingValue {
    let mut found = value([
        ("rx-usecs", c.rx_usecs),
        ("rx-frames", c.rx_frames),
        ("tx-usecs", c.tx_usecs),
        ("tx-frames", c.tx_frames),
    ]);
    for (name, on) in [("adaptive-rx", c.adaptive_rx), ("adaptive-tx", c.adaptive_tx)] {
        found.0.extend(on.map(|on| (name.to_owned(), flag(on).to_owned())));
    }
    found
}

/// `netif_set_gso_max_size` and its twin (net/core/dev.c): up to 65536 the limit
/// of IPv6 sets the one of IPv4.
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
            return Err(Fault::new(FaultKind::Unsupported, text).remedy("Linux 7.3 has it"));
        }
    }
    Ok(())
}

fn parts(setting: &Setting) -> SettingValue {
    let parts = setting.parts().into_iter();
    SettingValue(parts.map(|(name, text)| (name.to_owned(), text)).collect())
}

/// Sets the table by which flows are spread. One that is the driver's own is
/// returned to the driver, so that it follows the number of queues again.
fn set_table(device: &DeviceName, text: &str) -> io::Result<()> {
    let numbers: Result<Vec<u32>, _> = text.split(' ').map(str::parse).collect();
    let table = numbers.map_err(|e| io::Error::new(io::ErrorKind::InvalidInput, e))?;
    let queues = steering::receive_queues(device.as_str()).unwrap_or(0);
    let own = |(at, queue): (u64, &u32)| queues > 0 && u64::from(*queue) == at % queues;
    if (0..).zip(&table).all(own) && steering::set_indirection(device.as_str(), &[]).is_ok() {
        let now = steering::indirection(device.as_str())?;
        if now == table {
            return Ok(());
        }
    }
    steering::set_indirection(device.as_str(), &table)
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

/// Where a device has exactly this rule.
fn find_rule(device: &DeviceName, rule: &FlowRule) -> io::Result<Option<u32>> {
    let wanted = kernel_rule(rule);
    for location in steering::rules(device.as_str())?.locations {
        // A rule that has disappeared meanwhile is not ours.
        if let Ok(Some(found)) = steering::rule(device.as_str(), location)
            && found == wanted
        {
            return Ok(Some(location));
        }
    }
    Ok(None)
}

/// Puts the rule where the driver likes, or after all others.
fn insert(device: &DeviceName, rule: &FlowRule) -> io::Result<()> {
    let table = steering::rules(device.as_str())?;
    let free = || (0..table.size).rev().find(|at| table.locations.binary_search(at).is_err());
    let location = if table.chooses { None } else { free() };
    if location.is_none() && !table.chooses {
        return Err(io::Error::other("the device's flow rule table is full"));
    }
    steering::insert_rule(device.as_str(), &kernel_rule(rule), location).map(drop)
}

fn delete(device: &DeviceName, rule: &FlowRule) -> io::Result<()> {
    match find_rule(device, rule)? {
        Some(location) => steering::delete_rule(device.as_str(), location),
        None => Ok(()),
    }
}

/// Disciplines without classes, filters or a state worth keeping: made again with
/// the options that they reported, they are what they were.
const CLASSLESS: &[&str] =
    &["pfifo", "bfifo", "pfifo_fast", "noqueue", "fq", "fq_codel", "codel", "sfq", "fq_pie", "pie"];

/// `fq_codel handle=8001: options=...`; a handle of 0 is the kernel's own.
pub(super) fn qdisc_text(root: &Qdisc, all: &[Qdisc]) -> String {
    let hex: String = root.options.iter().map(|byte| format!("{byte:02x}")).collect();
    let mut text = format!("{} handle={:x}:", root.kind, root.handle >> 16);
    if all.iter().any(|qdisc| qdisc.parent != ROOT && qdisc.handle != 0) {
        text.push_str(" with-children");
    }
    if !hex.is_empty() {
        text.push_str(&format!(" options={hex}"));
    }
    text
}

/// Why a discipline could not be restored; none if it could.
pub(super) fn irreplaceable(root: &str) -> Option<String> {
    let kind = root.split(' ').next().unwrap_or_default();
    let own = root.split(' ').any(|word| word == "handle=0:");
    if kind == "none" {
        return Some("the device is down, and gets its queueing discipline when it is up".into());
    }
    if root.split(' ').any(|word| word == "with-children") {
        return Some(format!("{kind} has child disciplines that could not be restored"));
    }
    (!own && !CLASSLESS.contains(&kind))
        .then(|| format!("{kind} was set up there by someone else and could not be restored"))
}

/// One of the two is the kernel's own (handle 0) and the other is not, and they
/// are alike except for that: where the kernel's default has changed since, what it
/// had put there can only be restored by name.
pub(super) fn defaults(a: &str, b: &str) -> bool {
    let own = |text: &str| text.split(' ').any(|word| word == "handle=0:");
    let rest = |text: &str| -> Vec<String> {
        text.split(' ').filter(|word| !word.starts_with("handle=")).map(str::to_owned).collect()
    };
    a.contains(' ') && b.contains(' ') && (own(a) || own(b)) && rest(a) == rest(b)
}

pub(super) fn set_root(netlink: &mut Netlink, index: u32, text: &str) -> io::Result<()> {
    let kind = text.split(' ').next().unwrap_or_default();
    let word = |name: &str| text.split(' ').find_map(|word| word.strip_prefix(name));
    let Some(handle) = word("handle=") else {
        return netlink.replace_root_qdisc(index, kind, 0, &[]);
    };
    let handle = u32::from_str_radix(handle.trim_end_matches(':'), 16).unwrap_or(0) << 16;
    let options = unhex(word("options=").unwrap_or_default());
    if handle == 0 {
        // The kernel's own comes back by itself; whether it is the same is checked.
        let _ = netlink.delete_root_qdisc(index);
        let all = netlink.qdiscs(index)?;
        let root = all.iter().find(|qdisc| qdisc.parent == ROOT);
        if root.is_some_and(|root| root.kind == kind && root.options == options) {
            return Ok(());
        }
    }
    netlink.replace_root_qdisc(index, kind, handle, &options)
}

fn unhex(text: &str) -> Vec<u8> {
    let digits: Vec<u32> = text.chars().filter_map(|c| c.to_digit(16)).collect();
    digits.chunks_exact(2).map(|pair| (pair[0] << 4 | pair[1]) as u8).collect()
}
