//! Counters of performance-monitoring units that do not sample: the events in
//! `/sys/bus/event_source/devices/UNIT`
//! (Documentation/ABI/testing/sysfs-bus-event_source-devices-events), opened by perf_event_open(2)
//! on the CPUs of the unit's `cpumask`.

use super::attribute;
use super::perf::{Count, Event};
use std::io;
use std::path::Path;

/// An event that a unit offers.
#[derive(Clone, Debug, PartialEq)]
pub struct Offered {
    /// Name of the unit: "power", "cstate_core".
    pub unit: String,
    /// Name of the event: "energy-pkg", "c6-residency".
    pub name: String,
    /// Value of one count, in [`Offered::measure`]s; 1 if the unit does not state it.
    pub scale: f64,
    /// Unit of measurement: "Joules"; empty if the performance-monitoring unit does not state it.
    pub measure: String,
    /// CPUs on which to count it, one per package or core; empty if the unit does not specify any.
    pub cpus: Vec<u32>,
}

/// Returns the units of a numbered kind: "dsa0", "dsa2".
pub fn units(sys: &Path, kind: &str) -> Vec<String> {
    let is_one = |name: &String| {
        let number = name.strip_prefix(kind).unwrap_or_default();
        !number.is_empty() && number.bytes().all(|digit| digit.is_ascii_digit())
    };
    attribute::names(&sys.join("bus/event_source/devices")).into_iter().filter(is_one).collect()
}

/// Returns every event that a unit below `sys` offers; empty if there is no such unit.
pub fn offered(sys: &Path, unit: &str) -> Vec<Offered> {
    let folder = sys.join("bus/event_source/devices").join(unit);
    let events = folder.join("events");
    let cpus = attribute::text(&folder.join("cpumask")).map(|text| attribute::list(&text));
    let cpus = cpus.unwrap_or_default();
    let names = attribute::names(&events);
    let of = |name: &String| Offered {
        unit: unit.to_owned(),
        name: name.clone(),
        scale: attribute::text(&events.join(format!("{name}.scale")))
            .and_then(|text| text.parse().ok())
            .filter(|scale: &f64| scale.is_finite() && *scale > 0.0)
            .unwrap_or(1.0),
        measure: attribute::text(&events.join(format!("{name}.unit"))).unwrap_or_default(),
        cpus: cpus.clone(),
    };
    names.iter().filter(|name| !name.contains('.')).map(of).collect()
}

impl Offered {
    /// Starts counting on a CPU. EACCES: not allowed for this user (kernel.perf_event_paranoid may
    /// be at most 0 for events of a whole CPU). ENODEV, ENOENT: not on this CPU.
    pub fn open(&self, cpu: u32, sys: &Path) -> io::Result<Count> {
        let event = Event::parse(&format!("{}/{}/", self.unit, self.name), sys)
            .map_err(|e| io::Error::new(io::ErrorKind::InvalidData, e.to_string()))?;
        Count::open(&event, cpu)
    }
}
