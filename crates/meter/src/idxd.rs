//! Bytes moved by the engines of a DSA, from the device's own counters, which perf offers as one
//! PMU per device (drivers/dma/idxd/perfmon.c): events 1 and 2 of category 1, as published work
//! uses them, each count 32 bytes. The counts of a copy engine in this process are `copy.*`; these
//! are the hardware's, for all programs.

use super::{Context, Meter, Output, Prepared, Running, at_stop};
use bytepath_record::{Facts, Fault, Scope, Support, Unit};
use bytepath_sys::attribute;
use bytepath_sys::perf::{Count, Event};
use bytepath_sys::pmu;
use std::path::Path;

pub(crate) static METER: Meter = Meter {
    name: "idxd",
    summary: "bytes that the engines of a DSA moved, by the device's own counters",
    usual: false,
    probe,
    prepare,
    start: |context| match prepare(context)? {
        Some(ready) => ready(),
        None => (Meter::BASE.start)(context),
    },
    ..Meter::BASE
};

/// The events of each PMU, with the suffixes of their metrics.
const EVENTS: [(&str, &str); 2] =
    [("event-1", "event=0x1,event_category=0x1"), ("event-2", "event=0x2,event_category=0x1")];

/// Bytes per count.
const BYTES: f64 = 32.0;

fn probe(facts: &Facts) -> Support {
    Support::when(
        facts.settings.contains_key("perf.dsa"),
        "there is no unit of a DSA in /sys/bus/event_source/devices",
        "modprobe idxd, on a machine with a DSA and a kernel with CONFIG_INTEL_IDXD_PERFMON",
    )
}

fn prepare(context: &Context) -> Result<Option<Prepared>, Fault> {
    let counters = open(&context.roots.sys)?;
    if counters.is_empty() {
        return Ok(None);
    }
    Ok(Some(Box::new(move || begin(counters))))
}

/// A counter and its metric.
type Counter = (String, Count);

fn open(sys: &Path) -> Result<Vec<Counter>, Fault> {
    let mut counters = Vec::new();
    for unit in pmu::units(sys, "dsa") {
        let mask = sys.join("bus/event_source/devices").join(&unit).join("cpumask");
        let cpus = attribute::text(&mask).map(|text| attribute::list(&text)).unwrap_or_default();
        let cpu = cpus.first().copied().unwrap_or(0);
        for (end, terms) in EVENTS {
            let name = format!("{unit}/{terms}/");
            let event = Event::parse(&name, sys)
                .map_err(|e| Fault::unsupported(format!("idxd: {name}: {e}")))?;
            let count = Count::open(&event, cpu).map_err(|e| {
                Fault::system(format!("idxd: perf refuses {name} on CPU {cpu}"), &e)
                    .remedy("sysctl -w kernel.perf_event_paranoid=0, or run as root")
            })?;
            counters.push((format!("idxd.{unit}.{end}"), count));
        }
    }
    Ok(counters)
}

fn begin(counters: Vec<Counter>) -> Result<Box<dyn Running>, Fault> {
    let read = |(metric, count): &Counter| {
        count.read().map_err(|e| Fault::system(format_args!("idxd: {metric}"), &e))
    };
    let before = counters.iter().map(read).collect::<Result<Vec<u64>, Fault>>()?;
    at_stop(move || {
        let mut output = Output::default();
        for (counter, before) in counters.iter().zip(before) {
            let gained = read(counter)?.saturating_sub(before) as f64;
            output.add(&counter.0, Unit::Bytes, gained * BYTES, &Scope::Machine);
        }
        Ok(output)
    })
}
