//! What GPUs do while bytes flow, by NVIDIA's management library: power, PCIe, how busy they are,
//! and their clocks.
//!
//! A look takes about 40 ms, because PCIe is watched for 20 ms in each direction. So a thread of
//! the meter's own looks, and sleeps in between; its looks are means over what NVML says of
//! itself, and the energy is the GPU's own counter where it has one.

use super::{Context, Meter, Output, Prepared, Reach, Running, TICK};
use bytepath_record::{Attempt, Facts, Outcome, Support};
use bytepath_record::{Fault, FaultKind, Scope, Unit};
use bytepath_sys::Roots;
use bytepath_sys::nvml::{self, Look};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread::JoinHandle;
use std::time::Instant;

/// The meter `nvml`.
pub(crate) struct Nvml;

/// What is tried: to load the library and to find a GPU.
const ATTEMPT: &str = "nvml.gpu";

impl Meter for Nvml {
    fn name(&self) -> &'static str {
        "nvml"
    }

    fn summary(&self) -> &'static str {
        "NVIDIA GPUs: power, energy, PCIe throughput, utilisation, clocks (NVML)"
    }

    fn reach(&self) -> Reach {
        Reach::Machine
    }

    /// Few machines have a GPU, and its driver takes time to wake.
    fn usual(&self) -> bool {
        false
    }

    fn attempt(&self, _: &Roots) -> Option<Attempt> {
        let outcome = match nvml::open() {
            Ok(nvml) => Outcome::Works(nvml.names().collect::<Vec<_>>().join(", ")),
            Err(e) => Outcome::Missing(e.to_string()),
        };
        Some(Attempt { name: ATTEMPT.to_owned(), outcome })
    }

    fn probe(&self, facts: &Facts) -> Support {
        facts.require(ATTEMPT, REMEDY)
    }

    /// Loading the library takes too long for the start of a window.
    fn prepare(&self, _: &Context) -> Result<Option<Box<dyn Prepared>>, Fault> {
        let nvml = nvml::open()
            .map_err(|e| Fault::new(FaultKind::Unsupported, format!("nvml: {e}")).remedy(REMEDY))?;
        Ok(Some(Box::new(Ready(Arc::new(nvml)))))
    }

    fn start(&self, context: &Context) -> Result<Box<dyn Running>, Fault> {
        match self.prepare(context)? {
            Some(ready) => ready.start(),
            None => Err(Fault::new(FaultKind::Unsupported, "nvml: there is no GPU")),
        }
    }
}

/// What helps where there is no GPU.
const REMEDY: &str = "install NVIDIA's driver on a machine with a GPU, or leave out the meter nvml";

struct Ready(Arc<nvml::Nvml>);

impl Prepared for Ready {
    fn start(self: Box<Self>) -> Result<Box<dyn Running>, Fault> {
        let nvml = self.0;
        let gpus = nvml.names().count();
        let before = (0..gpus).map(|gpu| nvml.joules(gpu)).collect();
        let begin = Instant::now();
        let ends = Arc::new(AtomicBool::new(false));
        let (watched, ended) = (nvml.clone(), ends.clone());
        let look = move || {
            let mut looks = vec![Vec::new(); gpus];
            while !ended.load(Relaxed) {
                for (gpu, looks) in looks.iter_mut().enumerate() {
                    looks.push(watched.look(gpu));
                }
                std::thread::park_timeout(TICK);
            }
            looks
        };
        let thread = std::thread::Builder::new().name("nvml".into()).spawn(look);
        let thread = thread.map_err(|e| Fault::system("nvml: the polling thread", &e))?;
        Ok(Box::new(Window { nvml, before, begin, ends, thread }))
    }
}

struct Window {
    nvml: Arc<nvml::Nvml>,
    before: Vec<Option<f64>>,
    begin: Instant,
    ends: Arc<AtomicBool>,
    thread: JoinHandle<Vec<Vec<Look>>>,
}

impl Running for Window {
    fn stop(self: Box<Self>) -> Result<Output, Fault> {
        let Window { nvml, before, begin, ends, thread } = *self;
        let joules: Vec<Option<f64>> = (0..before.len()).map(|gpu| nvml.joules(gpu)).collect();
        let seconds = begin.elapsed().as_secs_f64();
        ends.store(true, Relaxed);
        thread.thread().unpark();
        let ended = || Fault::new(FaultKind::System, "nvml: the polling thread ended early");
        let looks = thread.join().map_err(|_| ended())?;
        let mut output = Output::default();
        for (gpu, looks) in looks.iter().enumerate() {
            let counted = before[gpu].zip(joules[gpu]).map(|(before, after)| after - before);
            enter(&mut output, gpu, looks, counted.filter(|joules| *joules >= 0.0), seconds);
        }
        Ok(output)
    }
}

/// The readings of a GPU over a window of this many seconds.
fn enter(output: &mut Output, gpu: usize, looks: &[Look], joules: Option<f64>, seconds: f64) {
    let mean = |of: &dyn Fn(&Look) -> Option<f64>| -> Option<f64> {
        let said: Vec<f64> = looks.iter().filter_map(of).collect();
        (!said.is_empty()).then(|| said.iter().sum::<f64>() / said.len() as f64)
    };
    let watts = mean(&|look| look.watts);
    let joules = joules.or(watts.map(|watts| watts * seconds));
    if let Some(joules) = joules {
        output.add(&format!("nvml.{gpu}.energy"), Unit::Joules, joules, &Scope::Machine);
    }
    for (name, unit, value) in [
        ("watts", Unit::Watts, watts),
        ("pcie.sent", Unit::BytesPerSecond, mean(&|look| look.pcie[0])),
        ("pcie.received", Unit::BytesPerSecond, mean(&|look| look.pcie[1])),
        ("busy", Unit::Ratio, mean(&|look| look.busy[0])),
        ("memory.busy", Unit::Ratio, mean(&|look| look.busy[1])),
        ("clock", Unit::Hertz, mean(&|look| look.clocks[0])),
        ("memory.clock", Unit::Hertz, mean(&|look| look.clocks[1])),
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
    fn looks_are_means_and_energy_is_counted_where_it_can_be() {
        let look = |watts: f64, sent: Option<f64>| Look {
            watts: Some(watts),
            pcie: [sent, None],
            ..Look::default()
        };
        let looks = [look(100.0, Some(2e9)), look(200.0, None)];
        let said = |joules| {
            let mut output = Output::default();
            enter(&mut output, 1, &looks, joules, 2.0);
            let reading = |r: &bytepath_record::Reading| (r.metric.clone(), r.value);
            output.readings.iter().map(reading).collect::<Vec<_>>()
        };
        let named = |all: &[(&str, f64)]| -> Vec<(String, f64)> {
            all.iter().map(|(name, value)| ((*name).to_owned(), *value)).collect()
        };
        let levels = [("nvml.1.watts", 150.0), ("nvml.1.pcie.sent", 2e9)];
        let counted = [&[("nvml.1.energy", 290.0)][..], &levels].concat();
        assert_eq!(said(Some(290.0)), named(&counted));
        let from_power = [&[("nvml.1.energy", 300.0)][..], &levels].concat();
        assert_eq!(said(None), named(&from_power), "before Volta nothing is counted");
    }
}
