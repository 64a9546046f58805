//! Rules for copies by Intel's Data Streaming Accelerator (DSA): what is missing, according to
//! `/sys/bus/pci`, `/sys/bus/dsa` (Documentation/ABI/stable/sysfs-driver-dma-idxd) and the flags of
//! the processor.

use super::findings::Findings;
use bytepath_record::Finding;
use bytepath_sys::Roots;
use bytepath_sys::attribute::{names, text as read};
use std::path::Path;

/// PCI device ids of DSA (drivers/dma/idxd/init.c, include/linux/pci_ids.h).
const DEVICES: [&str; 3] = ["0x0b25", "0x11fb", "0x1212"];

/// Returns findings about the DSA of a host; empty if it has none.
pub fn examine_dsa(roots: &Roots) -> Vec<Finding> {
    let mut all = Findings::default();
    let pci = roots.sys.join("bus/pci/devices");
    let is_ours = |address: &String| {
        let read = |file: &str| word(&pci, address, file);
        read("vendor") == "0x8086" && DEVICES.contains(&read("device").as_str())
    };
    let bus = roots.sys.join("bus/dsa/devices");
    let devices = named(&bus, "dsa");
    let unbound = names(&pci).into_iter().find(is_ours).filter(|_| devices.is_empty());
    if let Some(address) = unbound {
        all.note(
            format!("the DSA {address} has no driver"),
            "it cannot be used for copies",
            "modprobe idxd",
        );
    }
    for device in &devices {
        examine(roots, &bus, device, &mut all);
    }
    if !devices.is_empty() {
        all.note(
            "the firmware settings for DSA are not visible from here",
            "published runs used cache entries for non-atomics 120, for atomics 8, CTAG entry \
             avail mask 255, VT-d and ENQCMD on",
            "look in the firmware setup: Uncore Dfx Configuration, IIO Configuration",
        );
    }
    all.0
}

fn examine(roots: &Roots, bus: &Path, name: &str, all: &mut Findings) {
    let word = |part: &str, file: &str| word(bus, part, file);
    let number = name.trim_start_matches("dsa");
    if word(name, "pasid_enabled") != "1" {
        all.note(
            format!("{name} shares no address space with programs (pasid_enabled is not 1)"),
            "its work queues cannot be enabled for programs",
            "boot with intel_iommu=on,sm_on, and VT-d on in the firmware",
        );
    }
    // Engines and queues are siblings of their device on the bus, and children in its folder.
    let parts = |kind: &str| named(bus, &format!("{kind}{number}."));
    if parts("engine").iter().all(|engine| word(engine, "group_id").starts_with('-')) {
        all.note(
            format!("no engine of {name} is in a group"),
            "nothing processes its queues",
            &format!("echo 0 > /sys/bus/dsa/devices/engine{number}.0/group_id"),
        );
    }
    let is_usable =
        |queue: &String| word(queue, "state") == "enabled" && word(queue, "type") == "user";
    let usable: Vec<String> = parts("wq").into_iter().filter(is_usable).collect();
    if usable.is_empty() {
        all.note(
            format!("no work queue of {name} is enabled for programs"),
            "it cannot be used for copies",
            "docs/reference/paths/copy.md has the commands",
        );
    }
    let flags = read(&roots.proc.join("cpuinfo")).unwrap_or_default();
    let has = |flag: &str| {
        flags.lines().any(|line| {
            line.starts_with("flags") && line.split_whitespace().any(|word| word == flag)
        })
    };
    for queue in usable {
        let shared = word(&queue, "mode") == "shared";
        let instruction = if shared { "enqcmd" } else { "movdir64b" };
        if !has(instruction) {
            all.note(
                format!("the processor does not show {instruction}, which {queue} requires"),
                "nothing can be submitted to it; whether the firmware hides the instruction \
                 is not visible from here",
                "make the queue dedicated, or enable ENQCMD in the firmware",
            );
        }
    }
}

/// Returns the devices on a bus whose names have this prefix.
fn named(bus: &Path, prefix: &str) -> Vec<String> {
    names(bus).into_iter().filter(|name| name.starts_with(prefix)).collect()
}

fn word(bus: &Path, device: &str, file: &str) -> String {
    read(&bus.join(device).join(file)).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    /// A made-up tree: no machine with a DSA was recorded.
    struct Made(tempfile::TempDir);

    impl Made {
        fn new(files: &[(&str, &str)]) -> Made {
            let made = Made(tempfile::tempdir().unwrap());
            files.iter().for_each(|(file, text)| made.set(file, text));
            made
        }

        fn set(&self, file: &str, text: &str) {
            let path = self.0.path().join(file);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, format!("{text}\n")).unwrap();
        }

        fn said(&self) -> Vec<String> {
            let (proc, sys) = (self.0.path().join("proc"), self.0.path().join("sys"));
            let found = examine_dsa(&Roots { proc, sys, nics: None });
            found.into_iter().map(|finding| finding.what).collect()
        }
    }

    const PCI: [(&str, &str); 2] = [
        ("sys/bus/pci/devices/0000:6a:01.0/vendor", "0x8086"),
        ("sys/bus/pci/devices/0000:6a:01.0/device", "0x0b25"),
    ];

    #[test]
    fn reports_dsa_without_a_driver() {
        assert!(Made::new(&[]).said().is_empty());
        assert_eq!(Made::new(&PCI).said(), ["the DSA 0000:6a:01.0 has no driver"]);
    }

    #[test]
    fn reports_each_missing_step_of_dsa() {
        let made = Made::new(&PCI);
        let bus = "sys/bus/dsa/devices";
        made.set(&format!("{bus}/dsa0/pasid_enabled"), "0");
        made.set(&format!("{bus}/engine0.0/group_id"), "-1");
        made.set(&format!("{bus}/wq0.0/state"), "disabled");
        made.set("proc/cpuinfo", "flags : fpu sse2");
        let firmware = "the firmware settings for DSA are not visible from here";
        assert_eq!(
            made.said(),
            [
                "dsa0 shares no address space with programs (pasid_enabled is not 1)",
                "no engine of dsa0 is in a group",
                "no work queue of dsa0 is enabled for programs",
                firmware,
            ]
        );
        made.set(&format!("{bus}/dsa0/pasid_enabled"), "1");
        made.set(&format!("{bus}/engine0.0/group_id"), "0");
        made.set(&format!("{bus}/wq0.0/state"), "enabled");
        made.set(&format!("{bus}/wq0.0/type"), "user");
        made.set(&format!("{bus}/wq0.0/mode"), "dedicated");
        assert_eq!(
            made.said(),
            ["the processor does not show movdir64b, which wq0.0 requires", firmware]
        );
        made.set("proc/cpuinfo", "flags : fpu movdir64b");
        assert_eq!(made.said(), [firmware]);
        made.set(&format!("{bus}/wq0.0/mode"), "shared");
        assert_eq!(
            made.said(),
            ["the processor does not show enqcmd, which wq0.0 requires", firmware]
        );
    }
}
