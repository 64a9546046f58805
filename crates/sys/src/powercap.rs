//! Energy counters of the processor (RAPL) in the powercap class:
//! `/sys/class/powercap/intel-rapl:*` (Documentation/power/powercap/powercap.rst,
//! drivers/powercap/intel_rapl_common.c). The same driver covers AMD processors.

use super::attribute;
use std::path::{Path, PathBuf};

/// A zone: one energy counter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Zone {
    /// Its name, preceded by its parent's if it has one: "package-0", "package-0/dram", "psys".
    pub name: String,
    pub folder: PathBuf,
    /// Last value of the counter before it wraps to 0, in microjoules.
    pub range: u64,
}

impl Zone {
    /// Path of the counter, in microjoules. Since Linux 5.10 only root may read it.
    pub fn energy(&self) -> PathBuf {
        self.folder.join("energy_uj")
    }
}

/// Returns every zone below `sys`, each counter once: a zone that two drivers show under the same
/// name (`intel-rapl:0` through a CPU register, `intel-rapl-mmio:0` through memory) is the same
/// counter; the first by name is used, which is the register.
pub fn zones(sys: &Path) -> Vec<Zone> {
    let class = sys.join("class/powercap");
    let folders = attribute::names(&class);
    let name = |folder: &str| attribute::text(&class.join(folder).join("name"));
    let mut zones: Vec<Zone> = Vec::new();
    for folder in folders.iter().filter(|folder| folder.contains(':')) {
        let range = attribute::text(&class.join(folder).join("max_energy_range_uj"));
        let Some((own, range)) = name(folder).zip(range.and_then(|text| text.parse().ok())) else {
            continue;
        };
        // "intel-rapl:0:1" is a part of "intel-rapl:0"; "intel-rapl" alone is not a zone.
        let parent = folder.rsplit_once(':').filter(|(parent, _)| parent.contains(':'));
        let name = match parent.and_then(|(parent, _)| name(parent)) {
            Some(parent) => format!("{parent}/{own}"),
            None => own,
        };
        if !zones.iter().any(|known| known.name == name) {
            zones.push(Zone { name, folder: class.join(folder), range });
        }
    }
    zones
}

/// Returns the microjoules between two readings of a counter that wraps at most once in between.
pub fn gained(before: u64, after: u64, range: u64) -> u64 {
    match after.checked_sub(before) {
        Some(gained) => gained,
        None => range.saturating_sub(before).saturating_add(after).saturating_add(1),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_counter_that_wrapped() {
        assert_eq!(gained(10, 25, 99), 15);
        assert_eq!(gained(95, 4, 99), 9);
        assert_eq!(gained(200, 4, 99), 5, "a nonsense range is not believed");
        assert_eq!(gained(u64::MAX, 0, u64::MAX), 1);
    }
}
