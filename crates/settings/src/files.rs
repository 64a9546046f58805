//! Settings that are files below `/proc` and `/sys`: the path of each, its new value, and when two
//! texts mean the same.

use super::access::{Access, Knob, Means, Switch, no_device};
use super::side_effects::refusal;
use bytepath_record::{Cpus, DeviceName, IdleChoice, NumaNode, Setting, SysctlName, Word};
use bytepath_sys::Roots;
use bytepath_sys::attribute::{self, names};
use std::collections::BTreeSet;
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

/// Longest text that is read from or written to such a file.
const LONGEST: usize = 64 << 10;

/// A parameter below `/proc/sys`.
pub(super) fn sysctl<'s>(name: &'s SysctlName, value: &'s str) -> Access<'s> {
    let knobs = move |roots: &Roots| {
        let path = name.path().fold(roots.proc.join("sys"), |path, part| path.join(part));
        // The default becomes allowed for everyone, and stays allowed
        // (tcp_set_default_congestion_control, net/ipv4/tcp_cong.c).
        let allowed = path.with_file_name("tcp_allowed_congestion_control");
        let allowed = (name.as_str() == "net.ipv4.tcp_congestion_control")
            .then(|| Knob::beside("value allowed".into(), allowed));
        let own = Knob::new("value".into(), path, value.to_owned());
        std::iter::once(own).chain(allowed).collect()
    };
    let is_mask = name.as_str().ends_with("_mask") || name.as_str().ends_with("_bitmap");
    let same: fn(&str, &str) -> bool =
        if is_mask { |a, b| same_cpus(a, b, Cpus::from_mask) } else { same_words };
    let missing = format!("this kernel has no sysctl {name}");
    Access {
        same,
        refusal: refusal(name),
        shortfall: "ask for a value that the kernel keeps as it is",
        ..files(knobs, missing)
    }
}

/// The MTU of a device. It also changes the device's IPv6 MTU (addrconf_notify,
/// net/ipv6/addrconf.c) and the MTUs of its upper devices (VLANs, macvlans, bridges). These files
/// are not visible in any other network namespace.
pub(super) fn mtu(device: &DeviceName, bytes: u32) -> Access<'_> {
    let knobs = move |roots: &Roots| {
        let own = Knob::new("mtu".into(), net(roots, device, "mtu"), bytes.to_string());
        let mut all = vec![own];
        follow_mtu(roots, device.as_str(), "mtu", &mut all);
        all
    };
    files(knobs, no_device(device))
}

/// Adds the files that follow a device's MTU; `part` names it. A device precedes its upper devices.
fn follow_mtu(roots: &Roots, device: &str, part: &str, all: &mut Vec<Knob>) {
    let path = roots.proc.join("sys/net/ipv6/conf").join(device).join("mtu");
    all.push(Knob::beside(format!("{part} ipv6/mtu"), path));
    let devices = roots.sys.join("class/net");
    for upper in names(&devices.join(device)) {
        let Some(upper) = upper.strip_prefix("upper_") else { continue };
        let part = format!("{part} {upper}");
        all.push(Knob::beside(part.clone(), devices.join(upper).join("mtu")));
        follow_mtu(roots, upper, &part, all);
    }
}

/// A file of a network device, which is also the name of the value.
pub(super) fn attribute<'s>(device: &'s DeviceName, file: &'s str, goal: String) -> Access<'s> {
    one(file, move |roots| net(roots, device, file), goal, no_device(device))
}

pub(super) fn irq(irq: u32, cpus: &Cpus) -> Access<'_> {
    let path = move |roots: &Roots| roots.proc.join(format!("irq/{irq}/smp_affinity_list"));
    let access = one("cpus", path, cpus.to_string(), format!("there is no interrupt {irq}"));
    Access { same: |a, b| same_cpus(a, b, |text| text.parse().ok()), ..access }
}

/// RPS or XPS, of one queue or all.
pub(super) fn steering<'s>(
    device: &'s DeviceName,
    direction: &'s str,
    kind: &'s str,
    queue: Option<u32>,
    cpus: &'s Cpus,
) -> Access<'s> {
    let knobs = move |roots: &Roots| {
        let folder = net(roots, device, "queues");
        let all = || numbered(&folder, &format!("{direction}-"));
        let numbers = queue.map_or_else(all, |queue| vec![queue]);
        let knob = |queue: u32| {
            let name = format!("{direction}-{queue}");
            let path = folder.join(&name).join(format!("{kind}_cpus"));
            Knob::new(name, path, cpus.mask())
        };
        numbers.into_iter().map(knob).collect()
    };
    let access = files(knobs, format!("there is no device {device} with such a queue"));
    Access { same: |a, b| same_cpus(a, b, Cpus::from_mask), ..access }
}

pub(super) fn governor<'s>(cpus: &'s Option<Cpus>, governor: &'s Word) -> Access<'s> {
    let knobs = |roots: &Roots| {
        let knobs = |cpu: u32| {
            let folder = cpu_folder(roots, cpu).join("cpufreq");
            let path = folder.join("scaling_governor");
            // The governor `performance` changes it (drivers/cpufreq/intel_pstate.c, amd-pstate.c).
            const PREFERENCE: &str = "energy_performance_preference";
            let preference = format!("cpu{cpu} {PREFERENCE}");
            [
                Knob::new(format!("cpu{cpu}"), path, governor.to_string()),
                Knob::beside(preference, folder.join(PREFERENCE)),
            ]
        };
        cpu_numbers(roots, cpus).into_iter().flat_map(knobs).collect()
    };
    let access = files(knobs, "no CPU's clock can be set (there is no cpufreq)".into());
    Access { remedy: "a hypervisor withholds it; set it on the host", ..access }
}

pub(super) fn idle_states<'s>(cpus: &'s Option<Cpus>, choice: &'s IdleChoice) -> Access<'s> {
    let knobs = |roots: &Roots| {
        let each = cpu_numbers(roots, cpus).into_iter();
        each.flat_map(|cpu| idle_states_of(roots, cpu, choice)).collect()
    };
    files(knobs, "no CPU has such an idle state".into())
}

/// A node that is named by its device must be resolved to its number first.
pub(super) fn huge_pages(size: u64, node: &Option<NumaNode>, count: u64) -> Access<'_> {
    let path = move |roots: &Roots| {
        let folder = match node {
            Some(node) => roots.sys.join(format!("devices/system/node/node{node}/hugepages")),
            None => roots.sys.join("kernel/mm/hugepages"),
        };
        folder.join(format!("hugepages-{}kB/nr_hugepages", size >> 10))
    };
    Access {
        shortfall: "memory is fragmented: choose fewer, or reserve them at boot (hugepages=N)",
        // The kernel may find fewer than requested, which shows only when they are counted.
        follows: |change, _, texts| match texts.map(|text| text.trim().parse::<u64>().ok()) {
            [Some(was), Some(set), Some(now)] if !change.verified => {
                (was.min(set)..=was.max(set)).contains(&now)
            }
            _ => false,
        },
        ..one("pages", path, count.to_string(), String::new())
    }
}

/// An attribute of a part of DSA. The attribute `state` is read from one file and changed through
/// others: the driver's `bind` and `unbind`.
pub(super) fn dsa<'s>(
    setting: &'s Setting,
    part: &'s Word,
    attribute: &'s Word,
    value: &'s Word,
) -> Access<'s> {
    let bind = |file: &Path, text: &str| {
        let part = file.parent().and_then(Path::file_name).unwrap_or_default();
        let part = part.to_string_lossy().into_owned();
        let kernels = attribute::text(&file.with_file_name("type")).as_deref() == Some("kernel");
        let driver = match part.starts_with("wq") {
            true if kernels => "dmaengine",
            true => "user",
            false => "idxd",
        };
        let action = if text.trim() == "enabled" { "bind" } else { "unbind" };
        // From bus/dsa/devices/PART/state.
        let bus = file.ancestors().nth(3).unwrap_or(file);
        (bus.join("drivers").join(driver).join(action), part)
    };
    let is_state = attribute.as_str() == "state";
    let forgets = is_state && part.as_str().starts_with("dsa") && value.as_str() == "disabled";
    let knobs = move |roots: &Roots| {
        // An invalid request must not lead to any path.
        if setting.clone().checked().is_err() {
            return Vec::new();
        }
        let devices = roots.sys.join("bus/dsa/devices");
        let path = devices.join(part.as_str()).join(attribute.as_str());
        let knob = Knob::new(attribute.to_string(), path, value.to_string());
        let mut knobs = vec![Knob { switch: is_state.then_some(bind), ..knob }];
        if forgets {
            knobs.extend(forgotten(&devices, part.as_str(), bind));
        }
        knobs
    };
    Access {
        remedy: "bytepath doctor lists what is missing",
        ..files(knobs, format!("there is no {attribute} of {part}"))
    }
}

/// Returns what the kernel resets when a DSA device is disabled (`idxd_device_clear_state` and
/// `idxd_wq_disable_cleanup`, drivers/dma/idxd/device.c). The names sort in the order of
/// restoration: the configuration, then the device itself (`state`), then its queues.
fn forgotten(devices: &Path, device: &str, bind: Switch) -> Vec<Knob> {
    let number = device.trim_start_matches("dsa");
    let mut all = Vec::new();
    for part in names(devices) {
        let kind = part.split_once('.').and_then(|(kind, _)| kind.strip_suffix(number));
        let Some((_, config)) = FORGOTTEN.iter().find(|(name, _)| kind == Some(*name)) else {
            continue;
        };
        let folder = devices.join(&part);
        let beside = |name: &&str| Knob::beside(format!("config {part}/{name}"), folder.join(name));
        all.extend(config.iter().map(beside));
        if kind == Some("wq") {
            let knob = Knob::beside(format!("{part} state"), folder.join("state"));
            all.push(Knob { switch: Some(bind), ..knob });
        }
    }
    all
}

/// Kinds of parts of a DSA device, and their configurable attributes.
const FORGOTTEN: [(&str, &[&str]); 3] = [
    ("engine", &["group_id"]),
    ("group", &["traffic_class_a", "traffic_class_b"]),
    (
        "wq",
        &[
            "block_on_fault",
            "driver_name",
            "group_id",
            "max_batch_size",
            "max_transfer_size",
            "mode",
            "name",
            "priority",
            "size",
            "threshold",
            "type",
        ],
    ),
];

/// A setting made of those of these files that exist, in a fixed order.
///
/// Every path is built from names that were validated when the setting was parsed; a name in a
/// journal only selects among them.
fn files<'s>(knobs: impl Fn(&Roots) -> Vec<Knob> + 's, missing: String) -> Access<'s> {
    let existing =
        move |roots: &Roots| knobs(roots).into_iter().filter(|knob| knob.path.exists()).collect();
    let same = |a: &str, b: &str| a.split_whitespace().eq(b.split_whitespace());
    Access::new(Means::Files(Box::new(existing)), same, missing)
}

fn one<'s>(
    name: &'s str,
    path: impl Fn(&Roots) -> PathBuf + 's,
    goal: String,
    missing: String,
) -> Access<'s> {
    files(move |roots| vec![Knob::new(name.into(), path(roots), goal.clone())], missing)
}

fn same_cpus(a: &str, b: &str, parse: fn(&str) -> Option<Cpus>) -> bool {
    match (parse(a), parse(b)) {
        (Some(a), Some(b)) => a == b,
        _ => a.trim() == b.trim(),
    }
}

/// True if the kernel parses two texts as the same value: numbers in any base (`0x5`, `07`;
/// `_parse_integer`, lib/kstrtox.c), ranges in any order (`5,3,4`; lib/bitmap.c and
/// `proc_do_large_bitmap`).
fn same_words(a: &str, b: &str) -> bool {
    let words = |text: &str| text.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
    let (a, b) = (words(a), words(b));
    a.len() == b.len() && a.iter().zip(&b).all(|(a, b)| a == b || same_word(a, b))
}

fn same_word(a: &str, b: &str) -> bool {
    let is_list = |text: &str| text.trim_start_matches('-').contains([',', '-']);
    match (number(a), number(b)) {
        (Some(a), Some(b)) => a == b,
        _ if is_list(a) || is_list(b) => ranges(a).is_some_and(|a| Some(a) == ranges(b)),
        _ => false,
    }
}

/// Parses an integer as the kernel does: `0x` begins a hexadecimal one, `0` an octal one.
fn number(text: &str) -> Option<i128> {
    let digits = text.strip_prefix('-').unwrap_or(text);
    let hexadecimal = digits.strip_prefix("0x").or(digits.strip_prefix("0X"));
    let value = match (hexadecimal, digits.strip_prefix('0')) {
        (Some(rest), _) => i128::from(u64::from_str_radix(rest, 16).ok()?),
        (None, Some(rest)) if !rest.is_empty() => i128::from(u64::from_str_radix(rest, 8).ok()?),
        _ => i128::from(digits.parse::<u64>().ok()?),
    };
    match digits.len() < text.len() {
        // What the kernel makes of a time below a tick is not what it prints of none.
        true if value == 0 => None,
        true => Some(-value),
        false => Some(value),
    }
}

/// Parses a list like `5,3-4` of numbers below 65536.
fn ranges(text: &str) -> Option<BTreeSet<u16>> {
    let mut all = BTreeSet::new();
    for part in text.split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        all.extend(first.parse::<u16>().ok()?..=last.parse().ok()?);
    }
    Some(all)
}

/// Reads a file's text unchanged.
pub(super) fn read(path: &Path) -> io::Result<String> {
    let mut bytes = Vec::new();
    File::open(path)?.take(LONGEST as u64).read_to_end(&mut bytes)?;
    String::from_utf8(bytes).map_err(|e| io::Error::new(io::ErrorKind::InvalidData, e))
}

/// Whether this process may write a file. Some parameters of the whole machine are
/// shown in every network namespace, but can be written in the first one alone.
pub(super) fn may_write(path: &Path) -> io::Result<()> {
    Ok(rustix::fs::access(path, rustix::fs::Access::WRITE_OK)?)
}

/// Writes a file that is there, in one call, as the kernel wants it.
pub(super) fn write(path: &Path, text: &str) -> io::Result<()> {
    if text.len() > LONGEST || text.contains('\0') {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "that is not a setting"));
    }
    let mut file = OpenOptions::new().write(true).truncate(true).open(path)?;
    file.write_all(text.as_bytes())
}

fn net(roots: &Roots, device: &DeviceName, attribute: &str) -> PathBuf {
    roots.sys.join("class/net").join(device.as_str()).join(attribute)
}

fn cpu_folder(roots: &Roots, cpu: u32) -> PathBuf {
    roots.sys.join(format!("devices/system/cpu/cpu{cpu}"))
}

/// The CPUs requested, or all that the host shows.
fn cpu_numbers(roots: &Roots, cpus: &Option<Cpus>) -> Vec<u32> {
    match cpus {
        Some(cpus) => cpus.iter().collect(),
        None => numbered(&roots.sys.join("devices/system/cpu"), "cpu"),
    }
}

/// The idle states of a CPU to be disabled.
fn idle_states_of(roots: &Roots, cpu: u32, choice: &IdleChoice) -> Vec<Knob> {
    let folder = cpu_folder(roots, cpu).join("cpuidle");
    let chosen = |state: &u32| {
        let folder = folder.join(format!("state{state}"));
        match choice {
            IdleChoice::SlowerThan(us) => {
                let latency = read(&folder.join("latency")).ok();
                let latency = latency.and_then(|text| text.trim().parse::<u64>().ok());
                latency.is_some_and(|latency| latency > u64::from(*us))
            }
            IdleChoice::Named(name) => {
                read(&folder.join("name")).is_ok_and(|text| text.trim() == name.as_str())
            }
        }
    };
    let knob = |state: u32| {
        let path = folder.join(format!("state{state}/disable"));
        Knob::new(format!("cpu{cpu}.state{state}"), path, "1".into())
    };
    numbered(&folder, "state").into_iter().filter(chosen).map(knob).collect()
}

/// The numbers of a folder's entries `PREFIXn`, ascending.
fn numbered(folder: &Path, prefix: &str) -> Vec<u32> {
    let number = |name: &String| name.strip_prefix(prefix)?.parse().ok();
    let mut numbers: Vec<u32> = names(folder).iter().filter_map(number).collect();
    numbers.sort_unstable();
    numbers
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_kernel_only_writes_otherwise_is_the_same() {
        for (asked, made) in [
            ("0x5", "5"),
            ("07", "7\n"),
            ("010", "8"),
            ("-0x1", "-1"),
            ("5,3,4", "3-5\n"),
            ("9,1-2,2-4", "1-4,9"),
            ("4096 0x20000 6291456", "4096\t131072\t6291456\n"),
            ("18446744073709551615", "0xffffffffffffffff"),
        ] {
            assert!(same_words(asked, made) && same_words(made, asked), "{asked}: {made}");
        }
        for (asked, made) in [
            ("1001", "1004"),
            ("010", "10"),
            ("08", "8"),
            ("4096 65536", "4096 65536 33554432"),
            ("5,3", "3-5"),
            ("1-2", "-1"),
            ("0", "-0"),
            ("reno", "cubic"),
            ("0-99999", "0-99998"),
            ("", "0"),
        ] {
            assert!(!same_words(asked, made) && !same_words(made, asked), "{asked}: {made}");
        }
    }
}
