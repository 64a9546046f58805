//! A device that is lent to a testbed: moved into a network namespace of its own, or of the other
//! devices of its end, and returned as it was. The namespace is bound to a file next to the
//! journal, so after a crash the device is still there and can be returned.
//!
//! A move flushes addresses, routes, the qdisc and the sysctls of a device
//! (net/core/dev.c, `dev_change_net_namespace`). A device with an address or a route is in
//! use and is refused; the rest is restored, and so is what setting up a link changes: MTU,
//! offloads, their limits, threaded NAPI, RPS.
//!
//! A device left in a hidden namespace is lost to its owner. So the device is returned first, and
//! whatever cannot be restored is reported afterwards.

use super::access::no_device;
use super::device::{flag, limits};
use super::place::StateFolder;
use super::qdisc::{defaults, irreplaceable, is_kernels_own, root_text, set_root};
use super::side_effects::finer;
use bytepath_record::{DeviceName, Fault, Setting, SettingValue, joined};
use bytepath_sys::attribute::names;
use bytepath_sys::device as kernel;
use bytepath_sys::lasting_namespace::{self as lasting, within};
use bytepath_sys::netlink::{Limits, Link, Netlink};
use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::net::IpAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};

/// Where a device is.
const PLACE: &str = Setting::PLACE;
const HERE: &str = "here";
/// The device is here, but its target namespace still exists.
const BETWEEN: &str = "here, with a namespace made for it";
/// Value of every part while the device is on loan.
const LENT: &str = "lent";

/// Parts that move with the device, unchanged unless a link was set up.
const TUNING: &[&str] = &["mtu", "features", "limits", "threaded", "rps"];
/// Parts that a move discards.
const LOST: &[&str] = &["up", "qdisc", "sysctls", NO_DEFAULTS];

/// The part with the sysctls whose folder has no `default` to compare with: those of `neigh`, in
/// any network namespace but the initial one. All of them are kept.
const NO_DEFAULTS: &str = "sysctls without defaults";

/// Folders of per-device sysctls below `/proc/sys/net`.
const SYSCTLS: &[&str] = &["ipv4/conf", "ipv6/conf", "ipv4/neigh", "ipv6/neigh"];

/// Returns the network namespace of a device that is currently lent.
pub fn namespace_of(device: &DeviceName) -> Result<Option<OwnedFd>, Fault> {
    let file = file(device);
    let fault = |e: io::Error| Fault::system(format!("cannot open {}", file.display()), &e);
    let Some(namespace) = lasting::open(&file).map_err(fault)? else { return Ok(None) };
    let here = find(&mut Netlink::new(), device)?;
    Ok(Some(namespace).filter(|_| here.is_none()))
}

/// Reads the parts of a device that a link may change. Call it in the device's network namespace.
pub fn tuning(netlink: &mut Netlink, device: &DeviceName) -> Result<SettingValue, Fault> {
    let link = present(netlink, device)?;
    let features = netlink.features(link.index).map_err(|e| asking(device, &e))?;
    let mut switches: Vec<String> = features
        .changeable
        .iter()
        .map(|name| format!("{name}={}", flag(features.active.contains(name))))
        .collect();
    switches.sort();
    let Limits { gso, gro, gso_ipv4, gro_ipv4 } = link.limits;
    let limits = [("gso", gso), ("gro", gro), ("gso-ipv4", gso_ipv4), ("gro-ipv4", gro_ipv4)];
    let limits = limits.iter().filter_map(|(name, size)| Some(format!("{name}={}", (*size)?)));
    let mut parts = BTreeMap::from([
        ("mtu".to_owned(), link.mtu.to_string()),
        ("features".to_owned(), switches.join(" ")),
        ("limits".to_owned(), joined(limits, " ")),
    ]);
    let folder = folder(device);
    if let Ok(text) = fs::read_to_string(folder.join("threaded")) {
        parts.insert("threaded".into(), text.trim().to_owned());
    }
    let masks = steering(&folder);
    if !masks.is_empty() {
        parts.insert("rps".into(), masks.join(" "));
    }
    Ok(SettingValue(parts))
}

/// Restores those parts of a device's tuning that differ. Call it in the device's network
/// namespace. Tries every part, even if others fail.
pub fn tune(netlink: &mut Netlink, device: &DeviceName, to: &SettingValue) -> Result<(), Fault> {
    let now = tuning(netlink, device)?;
    let index = present(netlink, device)?.index;
    let differs = |name: &str| to.get(name).filter(|text| now.get(name) != Some(*text));
    let mut faults = Faults::default();
    let mut part = |what: &str, done: io::Result<()>| {
        faults.add(done.map_err(|e| Fault::system(format!("{device}: {what}"), &e)));
    };
    let folder = folder(device);
    // Threads go before the NAPI instances do that they are of.
    if let Some(text) = differs("threaded") {
        part("threaded NAPI", fs::write(folder.join("threaded"), text));
    }
    for (queue, mask) in differs("rps").unwrap_or_default().split(' ').filter_map(pair) {
        // A name from a journal must not lead to another folder.
        let queue: u32 = queue.strip_prefix("rx-").and_then(|n| n.parse().ok()).unwrap_or(0);
        let path = folder.join(format!("queues/rx-{queue}"));
        // The queues may differ after the device was brought up or its channels changed.
        if path.exists() {
            part(&format!("RPS of rx-{queue}"), fs::write(path.join("rps_cpus"), mask));
        }
    }
    if let Some(text) = differs("features") {
        // A driver may refuse a whole request for one feature that needs no change.
        let is: Vec<&str> = now.get("features").unwrap_or_default().split(' ').collect();
        let wanted = text.split(' ').filter(|switch| !is.contains(switch)).filter_map(pair);
        let wanted: Vec<(&str, bool)> = wanted.map(|(name, state)| (name, state == "on")).collect();
        part("offload features", netlink.set_features(index, &wanted));
    }
    if let Some(text) = differs("limits") {
        let sizes: BTreeMap<&str, &str> = text.split(' ').filter_map(pair).collect();
        let limits = limits(|name| sizes.get(name)?.parse().ok());
        part("limits of GSO and GRO", netlink.set_limits(index, &limits));
    }
    if let Some(mtu) = differs("mtu").and_then(|text| text.parse().ok()) {
        part("MTU", netlink.set_mtu(index, mtu));
    }
    faults.first()
}

/// Failures of parts, collected while the rest is tried.
#[derive(Default)]
struct Faults(Vec<Fault>);

impl Faults {
    fn add(&mut self, result: Result<(), Fault>) {
        self.0.extend(result.err());
    }

    /// Errors with the first fault, with the messages of the others appended.
    fn first(self) -> Result<(), Fault> {
        let mut faults = self.0.into_iter();
        let Some(mut first) = faults.next() else { return Ok(()) };
        faults.for_each(|fault| first.message.push_str(&format!("; {}", fault.message)));
        Err(first)
    }
}

/// Returns the state of a device, or `None` if it does not exist. Releases a namespace that has
/// lost its device.
pub(super) fn read(
    netlink: &mut Netlink,
    device: &DeviceName,
) -> Result<Option<SettingValue>, Fault> {
    let file = file(device);
    let opening = |e: io::Error| Fault::system(format!("cannot open {}", file.display()), &e);
    let namespace = lasting::open(&file).map_err(opening)?;
    let Some(link) = find(netlink, device)? else {
        let Some(namespace) = namespace else {
            // A mount is visible only in the mount namespace it was made in.
            if !file.exists() {
                return Ok(None);
            }
            let text = format!("{device} is gone, and {} holds no namespace here", file.display());
            return Err(Fault::failed(text).remedy(
                "`bytepath restore` where the study ran, in its mount namespace; if the device is \
                 no more, remove the file",
            ));
        };
        let there = within(namespace.as_fd(), || find(&mut Netlink::new(), device));
        if there.map_err(|e| asking(device, &e))??.is_none() {
            lasting::release(&file).map_err(opening)?;
            return Ok(None);
        }
        let parts = TUNING.iter().chain(LOST).chain([&PLACE]);
        return Ok(Some(SettingValue(parts.map(|p| ((*p).into(), LENT.into())).collect())));
    };
    let mut parts = tuning(netlink, device)?.0;
    let place = if namespace.is_some() { BETWEEN } else { HERE };
    parts.extend([
        (PLACE.to_owned(), place.to_owned()),
        ("up".to_owned(), flag(link.up).to_owned()),
        ("qdisc".to_owned(), root_text(netlink, link.index).map_err(|e| asking(device, &e))?),
        ("sysctls".to_owned(), sysctls(device, true).join("\n")),
        (NO_DEFAULTS.to_owned(), sysctls(device, false).join("\n")),
    ]);
    Ok(Some(SettingValue(parts)))
}

/// Returns the value of a lent device. The fault names what the device is in use for, or what could
/// not be restored.
pub(super) fn goal(
    netlink: &mut Netlink,
    device: &DeviceName,
    before: &SettingValue,
) -> Result<SettingValue, Fault> {
    let no = |text: String, remedy: String| Err(Fault::unsupported(text).remedy(remedy));
    match before.get(PLACE) {
        Some(HERE) => {}
        Some(BETWEEN) => {
            let file = file(device);
            let (text, path) = (format!("{device} has a namespace already"), file.display());
            return no(text, format!("umount {path} && rm {path}"));
        }
        _ => return no(format!("{device} is already lent"), "bytepath restore".into()),
    }
    let link = present(netlink, device)?;
    if device.as_str() == "lo" {
        return no("the loopback device cannot be lent".into(), "name a NIC's port".into());
    }
    let features = netlink.features(link.index).map_err(|e| asking(device, &e))?;
    // Up to Linux 6.11 this was a feature.
    if link.immovable || features.active.iter().any(|name| name == "netns-local") {
        return no(
            format!("{device} (a {}) cannot leave its network namespace", link.kind),
            "name the port below it; or measure it where it is, by --sender and --receiver".into(),
        );
    }
    if link.master != 0 {
        let master = kernel::name(link.master).unwrap_or_else(|_| "another device".into());
        return no(
            format!("{device} is a port of {master}"),
            format!("take it out first: ip link set dev {device} nomaster"),
        );
    }
    let upon = netlink.devices_upon(link.index).map_err(|e| asking(device, &e))?;
    if !upon.is_empty() {
        let text = format!("{} is stacked on {device}", upon.join(", "));
        return no(text, "remove what is stacked on it, or choose another device".into());
    }
    if let Some(why) = before.get("qdisc").filter(|text| *text != "none").and_then(irreplaceable) {
        return no(format!("{device}: {why}"), "remove it first: tc qdisc del ... root".into());
    }
    let addresses = netlink.addresses(link.index).map_err(|e| asking(device, &e))?;
    let routes = netlink.routes(link.index).map_err(|e| asking(device, &e))?;
    if let Some((text, remedy)) = in_use(device, &addresses, &routes) {
        return no(text, remedy);
    }
    Ok(SettingValue(before.0.keys().map(|name| (name.clone(), LENT.to_owned())).collect()))
}

/// Lends the device, or returns it and restores these parts.
pub(super) fn write(
    netlink: &mut Netlink,
    device: &DeviceName,
    beside: Option<&DeviceName>,
    to: &SettingValue,
) -> Result<(), Fault> {
    match to.get(PLACE) {
        Some(LENT) => lend(netlink, device, beside),
        _ => bring_back(netlink, device, to),
    }
}

/// True if two texts of a part mean the same. A device that is down keeps the kernel's own qdisc if
/// it was ever up; a move removes that, and bringing the device up adds it again. RPS masks of
/// queues that no longer exist are ignored.
pub(super) fn same(a: &str, b: &str) -> bool {
    a == b || defaults(a, b) || (!is_set_up(a) && !is_set_up(b)) || agree_on_rps(a, b)
}

/// True if both are RPS masks that agree on the queues they have in common.
fn agree_on_rps(a: &str, b: &str) -> bool {
    let (Some(a), Some(b)) = (masks(a), masks(b)) else { return false };
    a.iter().all(|(queue, mask)| b.get(queue).is_none_or(|other| other == mask))
}

/// Parses RPS masks by queue; `None` for any other text.
fn masks(text: &str) -> Option<BTreeMap<&str, &str>> {
    text.split(' ').map(|word| pair(word).filter(|(queue, _)| queue.starts_with("rx-"))).collect()
}

/// True if a part of a returned device is only partly restored, so that we must finish the
/// restoration. The crash may have come at any step.
pub(super) fn is_on_the_way_back(name: &str, was: &str, now: &str) -> bool {
    match name {
        PLACE => now == BETWEEN,
        "up" => now == "off",
        "qdisc" => !is_set_up(now),
        "sysctls" => now.lines().all(|line| was.lines().any(|before| before == line)),
        // Nothing shows which of these are the kernel's own values and which someone's.
        NO_DEFAULTS => true,
        _ => false,
    }
}

/// Moves the device into a new namespace, or into that of another lent device.
fn lend(
    netlink: &mut Netlink,
    device: &DeviceName,
    beside: Option<&DeviceName>,
) -> Result<(), Fault> {
    let fault = |what: &str, e: &io::Error| {
        Fault::system(format!("{what} {device}"), e)
            .remedy("run as root, in the host's own namespaces, with a device that can be moved")
    };
    let file = file(device);
    let made = match beside {
        None => lasting::make(&file),
        Some(other) => {
            let namespace = namespace_of(other)?.ok_or_else(|| {
                Fault::failed(format!("{other} is not lent, whose namespace {device} joins"))
                    .remedy("run `bytepath restore`, and the study again")
            })?;
            lasting::tie(namespace.as_fd(), &file)
        }
    };
    made.map_err(|e| fault("making a network namespace for", &e))?;
    let made = lasting::open(&file).map_err(|e| fault("opening the namespace for", &e))?;
    let namespace =
        made.ok_or_else(|| Fault::failed(format!("the namespace for {device} is gone again")))?;
    // TCP metrics cached for a peer would carry over from one trial to the next.
    let forget = || fs::write("/proc/sys/net/ipv4/tcp_no_metrics_save", "1");
    within(namespace.as_fd(), forget)
        .and_then(|done| done)
        .map_err(|e| fault("setting up the namespace for", &e))?;
    let link = present(netlink, device)?;
    netlink.set_namespace(link.index, namespace.as_fd()).map_err(|e| fault("moving", &e))
}

fn bring_back(netlink: &mut Netlink, device: &DeviceName, to: &SettingValue) -> Result<(), Fault> {
    let file = file(device);
    let fault = |what: &str, e: &io::Error| Fault::system(format!("{what} {device}"), e);
    if let Some(namespace) = namespace_of(device)? {
        let home = lasting::own().map_err(|e| fault("opening the namespace to return", &e))?;
        let back = || -> Result<(), Fault> {
            let mut there = Netlink::new();
            // Before it moves: after a crash in between, its tuning could not be recognised as
            // ours. Failures here are retried after the move, and reported then.
            let _ = tune(&mut there, device, to);
            let index = present(&mut there, device)?.index;
            there.set_namespace(index, home.as_fd()).map_err(|e| {
                fault("bringing back", &e).remedy(
                    "if another device has taken the name, rename that one; then run `bytepath restore`",
                )
            })
        };
        within(namespace.as_fd(), back).map_err(|e| fault("entering the namespace of", &e))??;
    }
    let mut faults = Faults::default();
    faults.add(recover(netlink, device, to));
    faults.add(lasting::release(&file).map_err(|e| fault("releasing the namespace of", &e)));
    faults
        .first()
        .map_err(|fault| fault.context(format!("{device} is back, but not all of it as it was")))
}

/// Restores a returned device: its tuning, and what the move discarded.
fn recover(netlink: &mut Netlink, device: &DeviceName, to: &SettingValue) -> Result<(), Fault> {
    let fault = |what: &str, e: &io::Error| Fault::system(format!("{what} {device}"), e);
    let index = present(netlink, device)?.index;
    let mut faults = Faults::default();
    faults.add(tune(netlink, device, to));
    let lines = ["sysctls", NO_DEFAULTS].map(|part| to.get(part).unwrap_or_default().lines());
    for line in lines.into_iter().flatten() {
        let Some((path, text)) = sysctl(device, line) else { continue };
        if fs::read_to_string(&path).is_ok_and(|now| now.trim() == text) {
            continue;
        }
        let done = fs::write(&path, text);
        faults.add(done.map_err(|e| fault(&format!("writing {line} of"), &e)));
    }
    faults.add(match to.get("up") {
        Some("on") => netlink.set_up(index).map_err(|e| fault("bringing up", &e)),
        Some(_) => netlink.set_down(index).map_err(|e| fault("taking down", &e)),
        None => Ok(()),
    });
    if let Some(text) = to.get("qdisc").filter(|text| is_set_up(text)) {
        let done = set_root(netlink, index, text);
        faults.add(done.map_err(|e| fault("queueing discipline of", &e)));
    }
    faults.first()
}

/// The value of a returned device, for a loan that no journal records.
pub(super) fn returned() -> SettingValue {
    SettingValue::one(PLACE, HERE)
}

/// Returns what a device is in use for, and the remedy; `None` if it is idle.
fn in_use(
    device: &DeviceName,
    addresses: &[(IpAddr, u8)],
    routes: &[(IpAddr, u8)],
) -> Option<(String, String)> {
    let other = "choose a port that nothing uses";
    if let Some((ip, prefix)) = addresses.first() {
        let text = format!("{device} has the address {ip}/{prefix}");
        let remedy = format!("{other}, or take its addresses away: ip addr flush dev {device}");
        return Some((text, remedy));
    }
    let (to, length) = routes.first()?;
    let family = if to.is_ipv6() { "-6 " } else { "" };
    let remedy =
        format!("{other}, or remove its routes: ip {family}route show table all dev {device}");
    Some((format!("the route to {to}/{length} uses {device}"), remedy))
}

/// True if this qdisc was set up explicitly; the kernel's own comes back by itself.
fn is_set_up(text: &str) -> bool {
    text != "none" && !is_kernels_own(text)
}

/// Returns the device's sysctls that differ from the default, as `ipv4/conf rp_filter=2`; or,
/// without `with_defaults`, all of those in folders that have no `default`.
fn sysctls(device: &DeviceName, with_defaults: bool) -> Vec<String> {
    let mut lines = Vec::new();
    for folder in SYSCTLS {
        let of = |device: &str| Path::new("/proc/sys/net").join(folder).join(device);
        if of("default").exists() != with_defaults {
            continue;
        }
        for name in names(&of(device.as_str())) {
            // IPv6 keeps the device's MTU among them; of two views the exact one is enough.
            if name == "mtu"
                || finer(folder.rsplit('/').next().unwrap_or_default(), &name).is_some()
            {
                continue;
            }
            let read = |device: &str| fs::read_to_string(of(device).join(&name)).ok();
            if let Some(own) =
                read(device.as_str()).filter(|own| read("default").as_ref() != Some(own))
            {
                lines.push(format!("{folder} {name}={}", own.trim()));
            }
        }
    }
    lines
}

/// Returns path and value of such a line; `None` if no device has such a sysctl.
fn sysctl<'a>(device: &DeviceName, line: &'a str) -> Option<(PathBuf, &'a str)> {
    let (folder, rest) = line.split_once(' ')?;
    let (name, text) = rest.split_once('=')?;
    let sound = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let known = SYSCTLS.contains(&folder) && !name.is_empty() && name.chars().all(sound);
    let folder = Path::new("/proc/sys/net").join(folder).join(device.as_str());
    known.then(|| (folder.join(name), text))
}

/// Returns the RPS mask of each queue: `rx-0=00000000`.
fn steering(device: &Path) -> Vec<String> {
    let mask = |queue: u32| -> Option<String> {
        let text = fs::read_to_string(device.join(format!("queues/rx-{queue}/rps_cpus"))).ok()?;
        Some(format!("rx-{queue}={}", text.trim()))
    };
    (0..).map_while(mask).collect()
}

fn pair(text: &str) -> Option<(&str, &str)> {
    text.split_once('=')
}

fn folder(device: &DeviceName) -> PathBuf {
    Path::new("/sys/class/net").join(device.as_str())
}

fn file(device: &DeviceName) -> PathBuf {
    StateFolder::standard().lent(device)
}

/// Returns the device's link, or `None` if there is no such device here.
fn find(netlink: &mut Netlink, device: &DeviceName) -> Result<Option<Link>, Fault> {
    netlink.link(device.as_str()).map_err(|e| asking(device, &e))
}

fn present(netlink: &mut Netlink, device: &DeviceName) -> Result<Link, Fault> {
    find(netlink, device)?.ok_or_else(|| Fault::unsupported(no_device(device)))
}

fn asking(device: &DeviceName, error: &io::Error) -> Fault {
    Fault::system(format!("cannot query {device}"), error)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_on_its_way_back_is_ours_and_anything_else_is_not() {
        let two = "ipv4/conf rp_filter=2\nipv6/conf accept_ra=0";
        for (name, now, ours) in [
            ("sysctls", "", true),
            ("sysctls", "ipv6/conf accept_ra=0", true),
            ("sysctls", "ipv6/conf accept_ra=1", false),
            ("up", "off", true),
            ("up", "on", false),
            (PLACE, BETWEEN, true),
            (PLACE, HERE, false),
            ("qdisc", "none", true),
            ("qdisc", "noqueue handle=0:", true),
            ("qdisc", "htb handle=1:", false),
            (NO_DEFAULTS, "ipv4/neigh locktime=99", true),
            ("mtu", "9000", false),
        ] {
            assert_eq!(is_on_the_way_back(name, two, now), ours, "{name}: {now}");
        }
    }

    #[test]
    fn the_kernels_own_discipline_is_as_good_as_none() {
        assert!(same("mq handle=0:", "none") && same("none", "noqueue handle=0:"));
        assert!(!same("none", "htb handle=1:") && !same("mq handle=0:", "htb handle=1:"));
        assert!(!same("1500", "9000") && !same("on", "off") && !same("", "rx-0=1"));
    }

    #[test]
    fn masks_of_queues_that_are_gone_do_not_count() {
        assert!(same("rx-0=1 rx-1=0", "rx-0=1") && same("rx-0=1", "rx-0=1 rx-1=2"));
        assert!(!same("rx-0=1 rx-1=0", "rx-0=2") && !same("rx-0=1", "rx=1"));
    }

    #[test]
    fn a_journal_leads_to_no_other_sysctl() {
        let device = DeviceName::new("eth1").unwrap();
        let path = |line| sysctl(&device, line).map(|(path, _)| path);
        let fine = path("ipv4/conf rp_filter=2");
        assert_eq!(fine, Some("/proc/sys/net/ipv4/conf/eth1/rp_filter".into()));
        for line in ["ipv4/conf ../all/forwarding=1", "core rmem_max=1", "ipv4/conf =1", "x", ""] {
            assert_eq!(path(line), None, "{line}");
        }
    }

    #[test]
    fn what_a_device_is_in_use_for_is_named_with_the_remedy() {
        let device = DeviceName::new("eth1").unwrap();
        let address = [("192.0.2.7".parse().unwrap(), 24)];
        let route = [("203.0.113.0".parse().unwrap(), 24)];
        let (text, remedy) = in_use(&device, &address, &route).unwrap();
        assert_eq!(text, "eth1 has the address 192.0.2.7/24");
        assert!(remedy.ends_with(": ip addr flush dev eth1"), "{remedy}");
        let (text, remedy) = in_use(&device, &[], &route).unwrap();
        assert_eq!(text, "the route to 203.0.113.0/24 uses eth1");
        assert!(remedy.ends_with(": ip route show table all dev eth1"), "{remedy}");
        assert_eq!(in_use(&device, &[], &[]), None);
    }
}
