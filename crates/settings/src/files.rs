//! Settings that are files below `/proc` and `/sys`: where each is, its new
//! value, and when two texts mean the same.

use super::access::{Access, Knob, Means, no_device};
use bytepath_record::{Cpus, DeviceName, IdleChoice, Setting, SysctlName, Word};
use bytepath_sys::Roots;
use bytepath_sys::attribute::names;
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

/// Longest text that is read from or written to such a file.
const LONGEST: usize = 64 << 10;

/// A parameter below `/proc/sys`.
pub(super) fn sysctl<'s>(name: &'s SysctlName, value: &'s str) -> Access<'s> {
    let path =
        |roots: &Roots| name.path().fold(roots.proc.join("sys"), |path, part| path.join(part));
    one("value", path, value.to_owned(), format!("this kernel has no sysctl {name}"))
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
        let knob = |cpu: u32| {
            let path = cpu_folder(roots, cpu).join("cpufreq/scaling_governor");
            Knob::new(format!("cpu{cpu}"), path, governor.to_string())
        };
        cpu_numbers(roots, cpus).into_iter().map(knob).collect()
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

pub(super) fn huge_pages<'s>(size: u64, node: Option<u32>, count: u64) -> Access<'s> {
    let path = move |roots: &Roots| {
        let folder = match node {
            Some(node) => roots.sys.join(format!("devices/system/node/node{node}/hugepages")),
            None => roots.sys.join("kernel/mm/hugepages"),
        };
        folder.join(format!("hugepages-{}kB/nr_hugepages", size >> 10))
    };
    Access {
        shortfall: "memory is fragmented: choose fewer, or reserve them at boot (hugepages=N)",
        // The kernel may have found fewer than it was asked for; that is known only once they
        // are counted.
        follows: |change, _, texts| match texts.map(|text| text.trim().parse::<u64>().ok()) {
            [Some(was), Some(set), Some(now)] if !change.verified => {
                (was.min(set)..=was.max(set)).contains(&now)
            }
            _ => false,
        },
        ..one("pages", path, count.to_string(), String::new())
    }
}

/// An attribute of a part of DSA. Its state is read in one place and changed in another one:
/// by its driver.
pub(super) fn dsa<'s>(
    setting: &'s Setting,
    part: &'s Word,
    attribute: &'s Word,
    value: &'s Word,
) -> Access<'s> {
    let bind = |file: &Path, text: &str| {
        let part = file.parent().and_then(Path::file_name).unwrap_or_default();
        let part = part.to_string_lossy().into_owned();
        let driver = if part.starts_with("wq") { "user" } else { "idxd" };
        let action = if text.trim() == "enabled" { "bind" } else { "unbind" };
        // From bus/dsa/devices/PART/state.
        let bus = file.ancestors().nth(3).unwrap_or(file);
        (bus.join("drivers").join(driver).join(action), part)
    };
    let is_state = attribute.as_str() == "state";
    let knobs = move |roots: &Roots| {
        // Of a request that was not checked, nothing is to be found.
        if setting.clone().checked().is_err() {
            return Vec::new();
        }
        let folder = roots.sys.join("bus/dsa/devices").join(part.as_str());
        let path = folder.join(attribute.as_str());
        let knob = Knob::new(attribute.to_string(), path, value.to_string());
        vec![Knob { switch: is_state.then_some(bind), ..knob }]
    };
    Access {
        remedy: "bytepath doctor lists what is missing",
        ..files(knobs, format!("there is no {attribute} of {part}"))
    }
}

/// A setting that is made of those of these files that are there, in a fixed order.
///
/// Every path is put together of names that were checked when the setting was made; a name in
/// a journal only chooses among them.
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

/// The text of a file, as it is.
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
