//! Traffic between processor and memory, by the processor's own counters: the memory controllers
//! (`uncore_imc_N`, Documentation/admin-guide/perf/ and arch/x86/events/intel/uncore_snbep.c), and
//! what each last-level cache transfers from memory (memory bandwidth monitoring,
//! Documentation/filesystems/resctrl.rst). Both count the traffic of the whole machine.

use super::{Context, Meter, Output, Prepared, Running, at_stop, attempted};
use bytepath_record::{Facts, Fault, Scope, Unit, joined};
use bytepath_sys::attribute::{self, Number};
use bytepath_sys::perf::Count;
use bytepath_sys::pmu::{self, Offered};
use std::collections::BTreeMap;
use std::path::Path;

pub(crate) static METER: Meter = Meter {
    name: "memory",
    summary: "bytes between processor and memory, by memory controllers and resctrl",
    usual: false,
    attempt: |roots| {
        let found =
            open(&roots.sys).and_then(|all| if all.is_empty() { Err(none()) } else { Ok(all) });
        let names = |all: Vec<Counter>| {
            let metrics: BTreeMap<_, ()> = all.iter().map(|counter| (counter.metric, ())).collect();
            joined(metrics.keys(), ", ")
        };
        attempted(ATTEMPT, found.map(names))
    },
    probe: |facts: &Facts| facts.require(ATTEMPT, REMEDY),
    prepare,
    start: |context| match prepare(context)? {
        Some(ready) => ready(),
        None => (Meter::BASE.start)(context),
    },
    ..Meter::BASE
};

/// Name of the attempt, as in [`Facts`].
const ATTEMPT: &str = "memory.counters";

const REMEDY: &str = "outside a virtual machine: modprobe intel_uncore; mount -t resctrl resctrl \
                      /sys/fs/resctrl, on a processor with cqm_mbm_total in /proc/cpuinfo; as root";

/// PMUs of memory controllers and their events for reads and writes. The first kind that offers
/// them is used; a server also has the other one, which would count the same traffic twice.
const CONTROLLERS: [(&str, [&str; 2]); 2] = [
    ("uncore_imc_", ["cas_count_read", "cas_count_write"]),
    ("uncore_imc_free_running_", ["data_read", "data_write"]),
];

/// The metrics of these events.
const CONTROLLER_METRICS: [&str; 2] = ["memory.controller.read", "memory.controller.written"];

/// The monitoring files of a last-level cache, and their metrics.
const MONITORED: [(&str, &str); 2] =
    [("mbm_total_bytes", "memory.monitored.total"), ("mbm_local_bytes", "memory.monitored.local")];

/// A counter of bytes.
struct Counter {
    metric: &'static str,
    /// Name for error messages.
    name: String,
    source: Source,
}

enum Source {
    /// A count, and the number of bytes per count.
    Perf(Count, f64),
    File(Number),
}

impl Counter {
    fn read(&self) -> Result<f64, Fault> {
        let bytes = match &self.source {
            Source::Perf(count, each) => count.read().map(|count| count as f64 * each),
            Source::File(number) => number.read().map(|bytes| bytes as f64),
        };
        bytes.map_err(|e| Fault::system(format_args!("memory: {}", self.name), &e))
    }

    /// Returns the bytes since the reading `before`.
    fn since(&self, before: f64) -> Result<f64, Fault> {
        let now = self.read()?;
        if now < before {
            let text = format!("memory: {} went back from {before} to {now}", self.name);
            return Err(Fault::failed(text)
                .remedy("remove no monitoring group (resctrl's mon_groups) while a study runs"));
        }
        Ok(now - before)
    }
}

fn none() -> Fault {
    Fault::unsupported(
        "no uncore_imc unit in /sys/bus/event_source/devices counts reads and writes, and \
         /sys/fs/resctrl/mon_data has no mbm_total_bytes",
    )
}

fn open(sys: &Path) -> Result<Vec<Counter>, Fault> {
    let mut all = controllers(sys)?;
    all.extend(monitored(sys));
    Ok(all)
}

/// Returns the counters of the memory controllers of the first kind present.
fn controllers(sys: &Path) -> Result<Vec<Counter>, Fault> {
    for (kind, events) in CONTROLLERS {
        let offered = pmu::units(sys, kind).into_iter().flat_map(|unit| pmu::offered(sys, &unit));
        let metric = |event: &Offered| {
            let at = events.iter().position(|name| *name == event.name)?;
            Some(CONTROLLER_METRICS[at])
        };
        let mut all = Vec::new();
        for (event, metric) in offered.filter_map(|event| metric(&event).map(|m| (event, m))) {
            let cpus = if event.cpus.is_empty() { vec![0] } else { event.cpus.clone() };
            for cpu in cpus {
                all.push(controller(&event, metric, cpu, sys)?);
            }
        }
        if !all.is_empty() {
            return Ok(all);
        }
    }
    Ok(Vec::new())
}

fn controller(
    event: &Offered,
    metric: &'static str,
    cpu: u32,
    sys: &Path,
) -> Result<Counter, Fault> {
    let name = format!("{}/{}/ on CPU {cpu}", event.unit, event.name);
    if event.measure != "MiB" {
        let measure = &event.measure;
        return Err(Fault::unsupported(format!("memory: {name} counts '{measure}', not MiB"))
            .remedy("report it with the processor's model"));
    }
    let count = event.open(cpu, sys).map_err(|e| {
        Fault::system(format!("memory: perf refuses {name}"), &e)
            .remedy("sysctl -w kernel.perf_event_paranoid=0, or run as root")
    })?;
    Ok(Counter { metric, name, source: Source::Perf(count, event.scale * f64::from(1 << 20)) })
}

/// Returns the counters that last-level caches are monitored with. A file without a number
/// ("Unavailable", "Error") belongs to a cache that is not monitored.
fn monitored(sys: &Path) -> Vec<Counter> {
    let folder = sys.join("fs/resctrl/mon_data");
    let caches = attribute::names(&folder).into_iter().filter(|name| name.starts_with("mon_L3_"));
    let of = |cache: String| {
        let folder = folder.clone();
        MONITORED.into_iter().filter_map(move |(file, metric)| {
            let number = Number::open(folder.join(&cache).join(file)).ok()?;
            number.read().ok()?;
            Some(Counter { metric, name: format!("{cache}/{file}"), source: Source::File(number) })
        })
    };
    caches.flat_map(of).collect()
}

fn prepare(context: &Context) -> Result<Option<Prepared>, Fault> {
    let counters = open(&context.roots.sys)?;
    if counters.is_empty() {
        return Ok(None);
    }
    Ok(Some(Box::new(move || begin(counters))))
}

fn begin(counters: Vec<Counter>) -> Result<Box<dyn Running>, Fault> {
    let before = counters.iter().map(Counter::read).collect::<Result<Vec<f64>, Fault>>()?;
    at_stop(move || {
        let mut sums: BTreeMap<&str, f64> = BTreeMap::new();
        for (counter, before) in counters.iter().zip(before) {
            *sums.entry(counter.metric).or_default() += counter.since(before)?;
        }
        let mut output = Output::default();
        for (metric, bytes) in sums {
            output.add(metric, Unit::Bytes, bytes, &Scope::Machine);
        }
        Ok(output)
    })
}
