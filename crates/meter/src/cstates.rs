//! Residency of CPUs in idle states, from two sources that measure different things and have
//! different names.
//!
//! `cstate.C6` is what the *kernel requested*: cpuidle's own counters, as a fraction of the window.
//! The hardware may have stayed shallower than requested, because the other thread of the core was
//! busy or the firmware decided so. A phase still in progress is not in the counters, so at the
//! edges of a window a long sleep is missing, or one that began earlier is counted; the fractions
//! of a CPU with long sleeps may exceed one.
//!
//! `cstate.hw.core-c6` is what the *hardware did*: residency registers, through perf's PMUs
//! `cstate_core` and `cstate_pkg` (arch/x86/events/intel/cstate.c), as a fraction of the time-stamp
//! counter's progress. Virtual machines and AMD processors have none.

use super::shared_source::SharedSource;
use super::{Context, Meter, Output, at_stop};
use bytepath_record::{Facts, Fault, Scope, Support, Unit};
use bytepath_sys::cpuidle::{self, Counts, State};
use bytepath_sys::perf::Count;
use bytepath_sys::pmu::{self, Offered};
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

/// Residency of idle states, by CPU.
pub(crate) static METER: Meter = Meter {
    name: "cstates",
    summary: "share of each CPU's time in every idle state, as requested (cpuidle) and by the hardware (perf)",
    probe,
    prepare: |context| {
        sources(context);
        Ok(None)
    },
    start: |context| {
        let sources = sources(context);
        let start = Snapshot::take(&sources);
        at_stop(move || start.readings(&sources))
    },
    ..Meter::BASE
};

fn probe(facts: &Facts) -> Support {
    Support::when(
        facts.settings.contains_key("cpuidle.driver"),
        "no idle driver in /sys/devices/system/cpu/cpuidle",
        "boot without idle=poll and with CONFIG_CPU_IDLE; a virtual machine needs cpuidle-haltpoll",
    )
}

/// Finds and opens them once: it takes milliseconds on a large machine.
fn sources(context: &Context) -> Arc<Sources> {
    static SOURCES: SharedSource<Arc<Sources>> = SharedSource::new();
    SOURCES.get(&context.roots.sys, |sys| Arc::new(Sources::open(sys)))
}

/// Counters that stay open.
#[derive(Default)]
struct Sources {
    states: Vec<State>,
    residency: Vec<(String, Count)>,
    /// The time-stamp counter, on the CPUs of the residency counters.
    clock: Vec<Count>,
    /// Why the hardware reports no residency although it has the PMU.
    refused: Option<String>,
}

impl Sources {
    fn open(sys: &Path) -> Sources {
        let mut sources = Sources { states: cpuidle::states(sys), ..Sources::default() };
        let tsc = pmu::offered(sys, "msr").into_iter().find(|event| event.name == "tsc");
        for (unit, of) in [("cstate_core", "core"), ("cstate_pkg", "package")] {
            for event in pmu::offered(sys, unit) {
                let Some(state) = event.name.strip_suffix("-residency") else { continue };
                let name = format!("cstate.hw.{of}-{state}");
                if let Err(e) = sources.watch(&event, name, tsc.as_ref(), sys) {
                    sources.refused = Some(format!("{unit}/{}/: {e}", event.name));
                }
            }
        }
        sources
    }

    fn watch(
        &mut self,
        event: &Offered,
        name: String,
        tsc: Option<&Offered>,
        sys: &Path,
    ) -> std::io::Result<()> {
        for cpu in &event.cpus {
            let counter = event.open(*cpu, sys)?;
            if let Some(tsc) = tsc.filter(|_| !self.clock.iter().any(|clock| clock.cpu == *cpu)) {
                self.clock.push(tsc.open(*cpu, sys)?);
            }
            self.residency.push((name.clone(), counter));
        }
        Ok(())
    }
}

/// All counters at the start of the window; `None` if a CPU is offline.
struct Snapshot {
    at: Instant,
    counts: Vec<Option<Counts>>,
    residency: Vec<Option<u64>>,
    clock: Vec<Option<u64>>,
}

impl Snapshot {
    fn take(sources: &Sources) -> Snapshot {
        Snapshot {
            at: Instant::now(),
            counts: sources.states.iter().map(|state| state.read().ok()).collect(),
            residency: sources.residency.iter().map(|(_, counter)| counter.read().ok()).collect(),
            clock: sources.clock.iter().map(|counter| counter.read().ok()).collect(),
        }
    }

    /// Returns the differences since the snapshot.
    fn readings(&self, sources: &Sources) -> Result<Output, Fault> {
        let wall = self.at.elapsed().as_secs_f64();
        let mut output = Output::default();
        let mut offline: Vec<u32> = Vec::new();
        for (state, before) in sources.states.iter().zip(&self.counts) {
            match (before, state.read()) {
                (Some(before), Ok(after)) => enter(&mut output, state, after.since(*before), wall),
                _ if offline.contains(&state.cpu) => {}
                _ => offline.push(state.cpu),
            }
        }
        for cpu in offline {
            output.warnings.push(format!("cstates: left out, not online throughout: CPU {cpu}"));
        }
        self.hardware(sources, &mut output)?;
        Ok(output)
    }

    fn hardware(&self, sources: &Sources, output: &mut Output) -> Result<(), Fault> {
        if let Some(refused) = &sources.refused {
            output.warnings.push(format!("cstates: no residency by the hardware: {refused}"));
        }
        let gained = |before: &Option<u64>, counter: &Count| -> Result<Option<u64>, Fault> {
            let after = counter.read();
            let after = after.map_err(|e| Fault::system("cstates: a perf counter", &e))?;
            Ok(before.map(|before| after.saturating_sub(before)))
        };
        for ((name, counter), before) in sources.residency.iter().zip(&self.residency) {
            let mut clocks = sources.clock.iter().zip(&self.clock);
            let (clock, clock_before) =
                clocks.find(|(clock, _)| clock.cpu == counter.cpu).ok_or_else(|| {
                    let text =
                        "cstates: perf's PMU msr has no tsc event to compare residencies with";
                    Fault::unsupported(text).remedy("disable this meter: --meters")
                })?;
            let (ticks, time) = (gained(before, counter)?, gained(clock_before, clock)?);
            if let Some((ticks, time)) = ticks.zip(time).filter(|(_, time)| *time > 0) {
                let share = ticks as f64 / time as f64;
                output.level(name, Unit::Ratio, share, &Scope::Cpu(counter.cpu));
            }
        }
        Ok(())
    }
}

fn enter(output: &mut Output, state: &State, counts: Counts, wall: f64) {
    let name = metric(&state.name);
    let scope = Scope::Cpu(state.cpu);
    let share = if wall > 0.0 { counts.time as f64 * 1e-6 / wall } else { 0.0 };
    output.level(&name, Unit::Ratio, share, &scope);
    output.add(&format!("{name}.entries"), Unit::Count, counts.usage as f64, &scope);
    for (what, count) in
        [("rejected", counts.rejected), ("above", counts.above), ("below", counts.below)]
    {
        // Most of them are zero on most machines, and there may be thousands.
        if count > 0 {
            output.add(&format!("{name}.{what}"), Unit::Count, count as f64, &scope);
        }
    }
}

/// Returns the name of a state's reading: "haltpoll idle" is "cstate.haltpoll-idle".
fn metric(state: &str) -> String {
    let plain = |c: char| if c.is_ascii_alphanumeric() || c == '_' { c } else { '-' };
    format!("cstate.{}", state.chars().map(plain).collect::<String>())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_states() {
        assert_eq!(metric("C1E"), "cstate.C1E");
        assert_eq!(metric("haltpoll idle"), "cstate.haltpoll-idle");
        assert_eq!(metric("cpu-sleep-0"), "cstate.cpu-sleep-0");
    }
}
