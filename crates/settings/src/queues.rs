//! Which CPUs serve the queues of a device: RPS, RFS and XPS of each, and the affinity of its interrupts.
//! That of a queue goes with it, and many drivers renew all interrupts when the number of queues changes.

use super::files::{may_write, read, write};
use bytepath_record::SettingValue;
use bytepath_sys::Roots;
use bytepath_sys::attribute::names;
use std::io;
use std::path::{Path, PathBuf};

/// All of it now, by name.
pub(super) fn steering(roots: &Roots, device: &str) -> SettingValue {
    SettingValue(files(roots, device).into_iter().map(|(name, _, text)| (name, text)).collect())
}

/// Gives the queues and interrupts that are there those of these texts that they lack.
pub(super) fn steer(roots: &Roots, device: &str, to: &SettingValue) -> io::Result<()> {
    for (name, path, now) in files(roots, device) {
        if let Some(text) = to.get(&name).filter(|text| *text != now) {
            write(&path, text)?;
        }
    }
    Ok(())
}

/// Whether a part is one of these.
pub(super) fn is_served(name: &str) -> bool {
    name.starts_with(QUEUES) || is_interrupt(name)
}

/// Whether a part is the affinity of an interrupt.
pub(super) fn is_interrupt(name: &str) -> bool {
    name.starts_with(INTERRUPT)
}

/// What the names of files of a queue begin with.
const QUEUES: &str = "queues ";

/// What the name of an interrupt begins with. Its place among those of the device follows: its number
/// is another one once it was renewed.
const INTERRUPT: &str = "interrupt ";

/// Name, file and text of each.
fn files(roots: &Roots, device: &str) -> Vec<(String, PathBuf, String)> {
    const FILES: [&str; 4] = ["rps_cpus", "rps_flow_cnt", "xps_cpus", "xps_rxqs"];
    let folder = roots.sys.join("class/net").join(device);
    let queues = folder.join("queues");
    let of_queue = |queue: &String| {
        let folder = queues.join(queue);
        FILES.map(|file| (format!("{QUEUES}{queue}/{file}"), folder.join(file)))
    };
    let interrupts = (0..).zip(interrupts(&folder)).map(|(place, irq): (u32, u32)| {
        let path = roots.proc.join(format!("irq/{irq}/smp_affinity_list"));
        (format!("{INTERRUPT}{place}"), path)
    });
    let all = names(&queues).iter().flat_map(of_queue).chain(interrupts).collect::<Vec<_>>();
    // A container may see interrupts and be unable to move them: those stay what they are.
    let is_fixed = |name: &str, path: &Path| is_interrupt(name) && may_write(path).is_err();
    let known = all.into_iter().filter_map(|(name, path)| {
        let text = read(&path).ok().filter(|_| !is_fixed(&name, &path))?;
        Some((name, path, text))
    });
    known.collect()
}

/// Numbers of the message-signalled interrupts of a device with this folder; those of a virtio device
/// are of the PCI device that it sits on.
fn interrupts(folder: &Path) -> Vec<u32> {
    let folders = ["device/msi_irqs", "device/../msi_irqs"].map(|path| folder.join(path));
    let found = folders.iter().map(|folder| names(folder)).find(|names| !names.is_empty());
    let mut all: Vec<u32> = found.iter().flatten().filter_map(|name| name.parse().ok()).collect();
    all.sort_unstable();
    all
}
