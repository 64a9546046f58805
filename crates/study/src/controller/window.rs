//! Meter results of one measurement window, and how to merge the windows of a sliced trial.

use super::clocks::Apart;
use bytepath_record::{Aggregation, Reading, Series, ThreadTime, TimeSpan};

/// Meter results of both agents.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct WindowResult {
    pub readings: Vec<Reading>,
    pub series: Vec<Series>,
    /// Thread times, in the order of `Role::ALL`.
    pub threads: [Vec<ThreadTime>; 2],
    /// Warnings for the report.
    pub warnings: Vec<String>,
    /// When the window was open.
    pub spans: Vec<TimeSpan>,
    /// How far the windows of both ends were apart.
    pub apart: Apart,
}

impl WindowResult {
    /// Merges all windows of a trial: readings are combined by their `Aggregation`, series
    /// are concatenated. (Latency needs none of this: its histogram continues from window to
    /// window in the engine.)
    pub(super) fn merge(windows: Vec<WindowResult>) -> WindowResult {
        let count = windows.len().max(1) as f64;
        let mut sum = WindowResult::default();
        for window in windows {
            sum.spans.extend(window.spans);
            sum.apart.add(window.apart);
            for reading in window.readings {
                add_reading(&mut sum.readings, reading);
            }
            for series in window.series {
                add_series(&mut sum.series, series);
            }
            for (all, some) in sum.threads.iter_mut().zip(window.threads) {
                some.into_iter().for_each(|thread| add_thread(all, thread));
            }
            for warning in window.warnings {
                let kind = without_digits(&warning);
                if !sum.warnings.iter().any(|known| without_digits(known) == kind) {
                    sum.warnings.push(warning);
                }
            }
        }
        let means = sum.readings.iter_mut().filter(|r| r.aggregation == Aggregation::Mean);
        means.for_each(|reading| reading.value /= count);
        sum
    }
}

fn add_reading(all: &mut Vec<Reading>, reading: Reading) {
    let same =
        |known: &&mut Reading| known.metric == reading.metric && known.scope == reading.scope;
    match all.iter_mut().find(same) {
        Some(known) if known.aggregation == Aggregation::Min => {
            known.value = known.value.min(reading.value);
        }
        Some(known) => known.value += reading.value,
        None => all.push(reading),
    }
}

fn add_series(all: &mut Vec<Series>, series: Series) {
    let same = |known: &&mut Series| {
        known.metric == series.metric && known.scope == series.scope && known.step == series.step
    };
    match all.iter_mut().find(same) {
        Some(known) => known.values.extend(series.values),
        None => all.push(series),
    }
}

fn add_thread(all: &mut Vec<ThreadTime>, thread: ThreadTime) {
    match all.iter_mut().find(|known| known.tid == thread.tid && known.name == thread.name) {
        Some(known) => {
            known.run += thread.run;
            known.wait += thread.wait;
            known.user += thread.user;
            known.system += thread.system;
            known.voluntary += thread.voluntary;
            known.involuntary += thread.involuntary;
        }
        None => all.push(thread),
    }
}

fn without_digits(text: &str) -> String {
    text.chars().filter(|c| !c.is_ascii_digit()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytepath_record::{Scope, Unit};

    fn window(busy: f64, rtt: f64, warning: &str) -> WindowResult {
        let cpu = || Scope::Cpu(0);
        WindowResult {
            readings: vec![
                Reading::sum("cpu.busy", Unit::Seconds, busy, cpu()),
                Reading::mean("tcp.rtt", Unit::Seconds, rtt, cpu()),
                Reading::min("tcp.min_rtt", Unit::Seconds, rtt / 2.0, cpu()),
            ],
            warnings: vec![warning.into()],
            ..Default::default()
        }
    }

    #[test]
    fn readings_merge_by_their_aggregation() {
        let merged =
            WindowResult::merge(vec![window(0.2, 4.0, "CPU 0 1 %"), window(0.1, 2.0, "CPU 1 3 %")]);
        let values: Vec<f64> = merged.readings.iter().map(|r| r.value).collect();
        assert!((values[0] - 0.3).abs() < 1e-12 && values[1..] == [3.0, 1.0], "{values:?}");
        assert_eq!(merged.warnings, ["CPU 0 1 %"]);
        assert_eq!(WindowResult::merge(Vec::new()), WindowResult::default());
    }
}
