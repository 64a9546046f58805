//! Which CPUs serve a device's queues: RPS, RFS and XPS of each, and the affinity of its
//! interrupts. A queue's settings are lost when the queue is removed, and many drivers reallocate
//! all interrupts when the number of queues changes.

use super::files::{may_write, read, write};
use bytepath_record::SettingValue;
use bytepath_sys::Roots;
use bytepath_sys::attribute::names;
use bytepath_sys::device::interrupts_in;
use std::io;
use std::path::{Path, PathBuf};

/// Returns all current values by name.
pub(super) fn steering(roots: &Roots, device: &str) -> SettingValue {
    SettingValue(files(roots, device).into_iter().map(|(name, _, text)| (name, text)).collect())
}

/// Writes the values in `to` to the existing queues and interrupts that have others.
pub(super) fn steer(roots: &Roots, device: &str, to: &SettingValue) -> io::Result<()> {
    for (name, path, now) in files(roots, device) {
        if let Some(text) = to.get(&name).filter(|text| *text != now) {
            write(&path, text)?;
        }
    }
    Ok(())
}

/// True if a part is a file of a queue or the affinity of an interrupt.
pub(super) fn is_served(name: &str) -> bool {
    name.starts_with(QUEUES) || is_interrupt(name)
}

/// True if a part is the affinity of an interrupt.
pub(super) fn is_interrupt(name: &str) -> bool {
    name.starts_with(INTERRUPT)
}

/// Prefix of the parts that are files of a queue.
const QUEUES: &str = "queues ";

/// Prefix of the parts that are interrupts. The index among the device's interrupts follows, since
/// the number changes when the interrupt is reallocated.
const INTERRUPT: &str = "interrupt ";

/// Returns name, path and text of each file.
fn files(roots: &Roots, device: &str) -> Vec<(String, PathBuf, String)> {
    const FILES: [&str; 4] = ["rps_cpus", "rps_flow_cnt", "xps_cpus", "xps_rxqs"];
    let folder = roots.sys.join("class/net").join(device);
    let queues = folder.join("queues");
    let of_queue = |queue: &String| {
        let folder = queues.join(queue);
        FILES.map(|file| (format!("{QUEUES}{queue}/{file}"), folder.join(file)))
    };
    let interrupts = interrupts_in(&["device", "device/.."].map(|of| folder.join(of)));
    let interrupts = (0..).zip(interrupts).map(|(place, irq): (u32, u32)| {
        let path = roots.proc.join(format!("irq/{irq}/smp_affinity_list"));
        (format!("{INTERRUPT}{place}"), path)
    });
    let all = names(&queues).iter().flat_map(of_queue).chain(interrupts).collect::<Vec<_>>();
    // A container may see interrupts but be unable to move them; leave those out.
    let is_fixed = |name: &str, path: &Path| is_interrupt(name) && may_write(path).is_err();
    let known = all.into_iter().filter_map(|(name, path)| {
        let text = read(&path).ok().filter(|_| !is_fixed(&name, &path))?;
        Some((name, path, text))
    });
    known.collect()
}
