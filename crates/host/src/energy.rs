//! What a host has to measure energy and clocks: the sources of the meters `power` and
//! `frequency`.

use bytepath_sys::{hwmon, pmu, powercap};
use std::fs::File;
use std::path::Path;

/// Facts of the sources that are there: names of RAPL's zones, events of perf's PMU
/// `power`, sensors that show the whole machine.
pub(crate) fn settings(sys: &Path) -> Vec<(String, String)> {
    let mut all = Vec::new();
    let mut keep = |name: &str, values: Vec<String>| {
        if !values.is_empty() {
            all.push((name.to_owned(), values.join(", ")));
        }
    };
    let zones = powercap::zones(sys);
    let denied = |zone: &&powercap::Zone| File::open(zone.energy()).is_err();
    keep("power.rapl.denied", zones.iter().filter(denied).map(|zone| zone.name.clone()).collect());
    keep("power.rapl", zones.into_iter().map(|zone| zone.name).collect());
    let events = pmu::offered(sys, "power");
    keep("power.perf", events.into_iter().map(|event| event.name).collect());
    let clock = pmu::offered(sys, "msr").into_iter().filter(|event| event.name == "aperf");
    keep("perf.aperf", clock.map(|event| event.name).collect());
    keep("power.hwmon", hwmon::whole(sys).iter().map(hwmon::Sensor::name).collect());
    all
}
