//! Activity of GPUs while bytes flow, from NVIDIA's management library: power, PCIe, utilisation,
//! and clocks.
//!
//! A snapshot takes about 40 ms, because PCIe is sampled for 20 ms in each direction. So a separate
//! thread takes them, and sleeps in between; readings are their means, and the energy is the GPU's
//! own counter if it has one.

use super::{Meter, Output, Running, TICK, at_stop};
use bytepath_record::{Attempt, Fault, Outcome, Scope, Unit, joined};
use bytepath_sys::nvml::{self, Snapshot};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Instant;

/// Not in every study: few machines have a GPU, and its driver takes time to wake up.
pub(crate) static METER: Meter = Meter {
    name: "nvml",
    summary: "NVIDIA GPUs: power, energy, PCIe throughput, utilisation, clocks (NVML)",
    usual: false,
    attempt: |_| Some(Attempt { name: ATTEMPT.to_owned(), outcome: attempt() }),
    probe: |facts| facts.require(ATTEMPT, REMEDY),
    // Loading the library takes too long for the start of a window.
    prepare: |_| {
        let nvml = open()?;
        Ok(Some(Box::new(|| start(nvml))))
    },
    start: |_| start(open()?),
    ..Meter::BASE
};

/// Name of the attempt, which loads the library and finds a GPU.
const ATTEMPT: &str = "nvml.gpu";
const REMEDY: &str = "install NVIDIA's driver on a machine with a GPU, or leave out the meter nvml";

fn attempt() -> Outcome {
    match nvml::open() {
        Ok(nvml) => Outcome::Works(joined(nvml.names(), ", ")),
        Err(e) => Outcome::Missing(e.to_string()),
    }
}

fn open() -> Result<Arc<nvml::Nvml>, Fault> {
    let fault = |e| Fault::unsupported(format!("nvml: {e}")).remedy(REMEDY);
    nvml::open().map(Arc::new).map_err(fault)
}

fn start(nvml: Arc<nvml::Nvml>) -> Result<Box<dyn Running>, Fault> {
    let gpus = nvml.names().count();
    let before: Vec<Option<f64>> = (0..gpus).map(|gpu| nvml.joules(gpu)).collect();
    let begin = Instant::now();
    let ends = Arc::new(AtomicBool::new(false));
    let (polled, ended) = (nvml.clone(), ends.clone());
    let poll = move || {
        let mut snapshots = vec![Vec::new(); gpus];
        while !ended.load(Relaxed) {
            for (gpu, snapshots) in snapshots.iter_mut().enumerate() {
                snapshots.push(polled.snapshot(gpu));
            }
            std::thread::park_timeout(TICK);
        }
        snapshots
    };
    let thread = std::thread::Builder::new().name("nvml".into()).spawn(poll);
    let thread = thread.map_err(|e| Fault::system("nvml: the polling thread", &e))?;
    at_stop(move || {
        let joules: Vec<Option<f64>> = (0..gpus).map(|gpu| nvml.joules(gpu)).collect();
        let seconds = begin.elapsed().as_secs_f64();
        ends.store(true, Relaxed);
        thread.thread().unpark();
        let ended = |_| Fault::failed("nvml: the polling thread ended early");
        let mut output = Output::default();
        for (gpu, snapshots) in thread.join().map_err(ended)?.iter().enumerate() {
            let counted = before[gpu].zip(joules[gpu]).map(|(before, after)| after - before);
            enter(&mut output, gpu, snapshots, counted.filter(|joules| *joules >= 0.0), seconds);
        }
        Ok(output)
    })
}

/// Adds the readings of a GPU over a window of this many seconds.
fn enter(
    output: &mut Output,
    gpu: usize,
    snapshots: &[Snapshot],
    joules: Option<f64>,
    seconds: f64,
) {
    let mean = |of: &dyn Fn(&Snapshot) -> Option<f64>| -> Option<f64> {
        let values: Vec<f64> = snapshots.iter().filter_map(of).collect();
        (!values.is_empty()).then(|| values.iter().sum::<f64>() / values.len() as f64)
    };
    let watts = mean(&|gpu| gpu.watts);
    let joules = joules.or(watts.map(|watts| watts * seconds));
    if let Some(joules) = joules {
        output.add(&format!("nvml.{gpu}.energy"), Unit::Joules, joules, &Scope::Machine);
    }
    for (name, unit, value) in [
        ("watts", Unit::Watts, watts),
        ("pcie.sent", Unit::BytesPerSecond, mean(&|gpu| gpu.pcie[0])),
        ("pcie.received", Unit::BytesPerSecond, mean(&|gpu| gpu.pcie[1])),
        ("busy", Unit::Ratio, mean(&|gpu| gpu.busy[0])),
        ("memory.busy", Unit::Ratio, mean(&|gpu| gpu.busy[1])),
        ("clock", Unit::Hertz, mean(&|gpu| gpu.clocks[0])),
        ("memory.clock", Unit::Hertz, mean(&|gpu| gpu.clocks[1])),
    ] {
        if let Some(value) = value {
            output.level(&format!("nvml.{gpu}.{name}"), unit, value, &Scope::Machine);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn averages_snapshots_and_prefers_counted_energy() {
        let snapshot = |watts: f64, sent: Option<f64>| Snapshot {
            watts: Some(watts),
            pcie: [sent, None],
            ..Snapshot::default()
        };
        let snapshots = [snapshot(100.0, Some(2e9)), snapshot(200.0, None)];
        let readings = |joules| {
            let mut output = Output::default();
            enter(&mut output, 1, &snapshots, joules, 2.0);
            let reading = |r: &bytepath_record::Reading| (r.metric.clone(), r.value);
            output.readings.iter().map(reading).collect::<Vec<_>>()
        };
        let named = |all: &[(&str, f64)]| -> Vec<(String, f64)> {
            all.iter().map(|(name, value)| ((*name).to_owned(), *value)).collect()
        };
        let levels = [("nvml.1.watts", 150.0), ("nvml.1.pcie.sent", 2e9)];
        let counted = [&[("nvml.1.energy", 290.0)][..], &levels].concat();
        assert_eq!(readings(Some(290.0)), named(&counted));
        let from_power = [&[("nvml.1.energy", 300.0)][..], &levels].concat();
        assert_eq!(readings(None), named(&from_power), "before Volta nothing is counted");
    }
}
