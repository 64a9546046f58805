//! Settings that are files below `/proc` and `/sys`: where each is, its new
//! value, and when two texts mean the same.

use bytepath_record::{Cpus, DeviceName, IdleChoice, Setting};
use bytepath_sys::Roots;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

/// A file of a setting.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Knob {
    /// Its name among the setting's values: `cpu3`, `rx-0`.
    pub name: String,
    pub path: PathBuf,
    /// The value it should have.
    pub goal: String,
}

/// Longest text that is read from or written to such a file.
const LONGEST: usize = 64 << 10;

/// The files that a setting is made of, in a fixed order. None: it is not made of
/// files. Empty: what it is about is not there.
///
/// Every path is put together here, of names that were checked when the setting
/// was made; a name in a journal only chooses among them.
pub(super) fn knobs(roots: &Roots, setting: &Setting) -> Option<Vec<Knob>> {
    let one = |name: &str, path: PathBuf, goal: String| {
        let knob = Knob { name: name.to_owned(), path, goal };
        if knob.path.exists() { vec![knob] } else { Vec::new() }
    };
    Some(match setting {
        Setting::Sysctl { name, value } => {
            let path = name.path().fold(roots.proc.join("sys"), |path, part| path.join(part));
            one("value", path, value.clone())
        }
        Setting::Mtu { device, bytes } => one("mtu", net(roots, device, "mtu"), bytes.to_string()),
        Setting::ThreadedNapi { device, on } => {
            one("threaded", net(roots, device, "threaded"), u8::from(*on).to_string())
        }
        Setting::IrqAffinity { irq, cpus } => {
            let path = roots.proc.join("irq").join(irq.to_string()).join("smp_affinity_list");
            one("cpus", path, cpus.to_string())
        }
        Setting::Rps { device, queue, cpus } => {
            queues(roots, device, ("rx", "rps_cpus"), *queue, cpus)
        }
        Setting::Xps { device, queue, cpus } => {
            queues(roots, device, ("tx", "xps_cpus"), *queue, cpus)
        }
        Setting::Governor { cpus, governor } => {
            let knob = |cpu: u32| Knob {
                name: format!("cpu{cpu}"),
                path: cpu_folder(roots, cpu).join("cpufreq/scaling_governor"),
                goal: governor.to_string(),
            };
            existing(cpu_numbers(roots, cpus).into_iter().map(knob))
        }
        Setting::IdleStates { cpus, disable } => {
            let each = cpu_numbers(roots, cpus).into_iter();
            existing(each.flat_map(|cpu| idle_states(roots, cpu, disable)))
        }
        Setting::HugePages { size, node, count } => {
            let folder = match node {
                Some(node) => roots.sys.join(format!("devices/system/node/node{node}/hugepages")),
                None => roots.sys.join("kernel/mm/hugepages"),
            };
            let path = folder.join(format!("hugepages-{}kB/nr_hugepages", size >> 10));
            one("pages", path, count.to_string())
        }
        Setting::Dsa { part, attribute, value } if setting.is_of_dsa() => {
            let path = roots.sys.join("bus/dsa/devices").join(part.as_str());
            one(attribute.as_str(), path.join(attribute.as_str()), value.to_string())
        }
        Setting::Dsa { .. } => Vec::new(),
        _ => return None,
    })
}

/// The file that is written so that a knob says `text`, and what is written. The state of a
/// part of DSA is read in one place and changed in another one: by its driver.
pub(super) fn written(
    roots: &Roots,
    setting: &Setting,
    knob: &Knob,
    text: &str,
) -> (PathBuf, String) {
    match setting {
        Setting::Dsa { part, .. } if knob.name == "state" => {
            let driver = if part.as_str().starts_with("wq") { "user" } else { "idxd" };
            let file = if text.trim() == "enabled" { "bind" } else { "unbind" };
            (roots.sys.join("bus/dsa/drivers").join(driver).join(file), part.to_string())
        }
        _ => (knob.path.clone(), text.to_owned()),
    }
}

/// Whether two texts of a setting's file mean the same to the kernel.
pub(super) fn same(setting: &Setting, a: &str, b: &str) -> bool {
    match setting {
        Setting::Rps { .. } | Setting::Xps { .. } => {
            match (Cpus::from_mask(a), Cpus::from_mask(b)) {
                (Some(a), Some(b)) => a == b,
                _ => a.trim() == b.trim(),
            }
        }
        Setting::IrqAffinity { .. } => match (a.parse::<Cpus>(), b.parse::<Cpus>()) {
            (Ok(a), Ok(b)) => a == b,
            _ => a.trim() == b.trim(),
        },
        _ => a.split_whitespace().eq(b.split_whitespace()),
    }
}

/// What a file says, as it says it.
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

fn existing(knobs: impl Iterator<Item = Knob>) -> Vec<Knob> {
    knobs.filter(|knob| knob.path.exists()).collect()
}

/// The CPUs requested, or all that the host shows.
fn cpu_numbers(roots: &Roots, cpus: &Option<Cpus>) -> Vec<u32> {
    match cpus {
        Some(cpus) => cpus.iter().collect(),
        None => numbered(&roots.sys.join("devices/system/cpu"), "cpu"),
    }
}

/// The idle states of a CPU to be disabled.
fn idle_states(roots: &Roots, cpu: u32, choice: &IdleChoice) -> Vec<Knob> {
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
    let knob = |state: u32| Knob {
        name: format!("cpu{cpu}.state{state}"),
        path: folder.join(format!("state{state}/disable")),
        goal: "1".into(),
    };
    numbered(&folder, "state").into_iter().filter(chosen).map(knob).collect()
}

fn queues(
    roots: &Roots,
    device: &DeviceName,
    (direction, file): (&str, &str),
    queue: Option<u32>,
    cpus: &Cpus,
) -> Vec<Knob> {
    let folder = net(roots, device, "queues");
    let all = || numbered(&folder, &format!("{direction}-"));
    let numbers = queue.map_or_else(all, |queue| vec![queue]);
    existing(numbers.into_iter().map(|queue| Knob {
        name: format!("{direction}-{queue}"),
        path: folder.join(format!("{direction}-{queue}")).join(file),
        goal: cpus.mask(),
    }))
}

/// The numbers of a folder's entries `PREFIXn`, ascending.
fn numbered(folder: &Path, prefix: &str) -> Vec<u32> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let number = |name: String| name.strip_prefix(prefix)?.parse().ok();
    let mut numbers: Vec<u32> =
        entries.filter_map(|entry| number(entry.file_name().into_string().ok()?)).collect();
    numbers.sort_unstable();
    numbers
}
