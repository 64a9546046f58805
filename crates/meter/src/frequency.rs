//! Clock frequency of each CPU: by hardware counters if perf's PMU `msr` has them, and as reported
//! by cpufreq.
//!
//! `frequency.busy` is the mean clock over the time in which the CPU did not sleep: APERF over
//! MPERF, times the rate of the time-stamp counter (the hardware counts both only in C0; Intel SDM
//! 14.2, AMD APM 17.3). `frequency.shown` is the mean of cpufreq's `scaling_cur_freq` at both edges
//! of the window: on x86 with counters that is the mean of about the last tick, elsewhere the
//! requested frequency. Throttling of a CPU is counted by the meter `steady`, because it
//! invalidates a trial.

use super::shared_source::SharedSource;
use super::{Context, Meter, Output, at_stop};
use bytepath_record::{Facts, Scope, Support, Unit};
use bytepath_sys::attribute::{self, Number};
use bytepath_sys::perf::Count;
use bytepath_sys::pmu::{self, Offered};
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

/// Clock frequency, by CPU.
pub(crate) static METER: Meter = Meter {
    name: "frequency",
    summary: "clock of each CPU while it was awake (APERF, MPERF) and as cpufreq shows it",
    probe,
    prepare: |context| {
        sources(context);
        Ok(None)
    },
    start: |context| {
        let sources = sources(context);
        let start = Snapshot::take(&sources);
        at_stop(move || Ok(readings(&sources, &start, &Snapshot::take(&sources))))
    },
    ..Meter::BASE
};

fn probe(facts: &Facts) -> Support {
    let known = |name| facts.settings.contains_key(name);
    Support::when(
        known("cpufreq.governor") || known("perf.aperf"),
        "no cpufreq driver and no APERF counter, as in most virtual machines",
        "measure on bare metal",
    )
}

/// Opens the sources once; they stay open.
fn sources(context: &Context) -> Arc<Sources> {
    static SOURCES: SharedSource<Arc<Sources>> = SharedSource::new();
    SOURCES.get(&context.roots.sys, |sys| Arc::new(Sources::open(sys)))
}

#[derive(Default)]
struct Sources {
    shown: Vec<(u32, Number)>,
    /// tsc, aperf and mperf of a CPU.
    counted: Vec<[Count; 3]>,
}

impl Sources {
    fn open(sys: &Path) -> Sources {
        let folder = sys.join("devices/system/cpu");
        let online = attribute::text(&folder.join("online")).map(|text| attribute::list(&text));
        let offered = pmu::offered(sys, "msr");
        let event = |name: &str| offered.iter().find(|event| event.name == name);
        let events = ["tsc", "aperf", "mperf"].map(event);
        let mut sources = Sources::default();
        for cpu in online.unwrap_or_default() {
            let path = folder.join(format!("cpu{cpu}/cpufreq/scaling_cur_freq"));
            sources.shown.extend(Number::open(path).ok().map(|number| (cpu, number)));
            let open = |event: Option<&Offered>| event?.open(cpu, sys).ok();
            // perf may not be allowed for this user; then only cpufreq's figure remains.
            if let [Some(tsc), Some(aperf), Some(mperf)] = events.map(open) {
                sources.counted.push([tsc, aperf, mperf]);
            }
        }
        sources
    }
}

/// All sources at one moment.
struct Snapshot {
    at: Instant,
    shown: Vec<Option<i64>>,
    counted: Vec<Option<[u64; 3]>>,
}

impl Snapshot {
    fn take(sources: &Sources) -> Snapshot {
        let count = |[tsc, aperf, mperf]: &[Count; 3]| {
            Some([tsc.read().ok()?, aperf.read().ok()?, mperf.read().ok()?])
        };
        Snapshot {
            at: Instant::now(),
            // A CPU that went offline has no frequency.
            shown: sources.shown.iter().map(|(_, number)| number.read().ok()).collect(),
            counted: sources.counted.iter().map(count).collect(),
        }
    }
}

fn readings(sources: &Sources, start: &Snapshot, end: &Snapshot) -> Output {
    let seconds = (end.at - start.at).as_secs_f64();
    let mut output = Output::default();
    let shown = start.shown.iter().zip(&end.shown);
    for ((cpu, _), (before, after)) in sources.shown.iter().zip(shown) {
        if let (Some(before), Some(after)) = (before, after) {
            let hertz = (*before as f64 + *after as f64) / 2.0 * 1e3;
            output.level("frequency.shown", Unit::Hertz, hertz, &Scope::Cpu(*cpu));
        }
    }
    let counted = start.counted.iter().zip(&end.counted);
    for ([tsc, ..], (before, after)) in sources.counted.iter().zip(counted) {
        if let (Some(before), Some(after)) = (before, after)
            && let Some(hertz) = busy(*before, *after, seconds)
        {
            output.level("frequency.busy", Unit::Hertz, hertz, &Scope::Cpu(tsc.cpu));
        }
    }
    output
}

/// Returns the mean clock while awake in Hz; `None` if the CPU slept all the time.
fn busy(before: [u64; 3], after: [u64; 3], seconds: f64) -> Option<f64> {
    let gained = |index: usize| after[index].saturating_sub(before[index]) as f64;
    let [tsc, aperf, mperf] = std::array::from_fn(gained);
    (mperf > 0.0 && seconds > 0.0).then(|| tsc / seconds * aperf / mperf)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_clock_while_awake() {
        // 2 s of a 2 GHz counter, awake for half of it, at 3 GHz.
        let hertz = busy([100, 0, 0], [4_000_000_100, 3_000_000_000, 2_000_000_000], 2.0);
        assert!((hertz.unwrap() - 3e9).abs() < 1.0);
        assert_eq!(busy([0, 5, 5], [100, 5, 5], 1.0), None, "asleep all the time");
    }
}
