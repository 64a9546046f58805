//! What the meters of both agents saw of one window, and how the windows of a
//! sliced trial add up.

use super::clocks::Apart;
use bytepath_record::{Aggregation, Reading, Series, ThreadTime, TimeSpan};

/// What was seen, by both agents.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Seen {
    pub readings: Vec<Reading>,
    pub series: Vec<Series>,
    /// Thread times, in the order of `Role::ALL`.
    pub threads: [Vec<ThreadTime>; 2],
    /// What the reader should know.
    pub warnings: Vec<String>,
    /// When the window was open.
    pub spans: Vec<TimeSpan>,
    /// How far the windows of both ends were apart.
    pub apart: Apart,
}

impl Seen {
    /// All windows of a trial as one: readings make up one as their meters say,
    /// courses over time follow each other. (Latency needs none of this: its
    /// histogram continues from window to window in the engine.)
    pub(crate) fn together(windows: Vec<Seen>) -> Seen {
        let count = windows.len().max(1) as f64;
        let mut sum = Seen::default();
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

    fn window(busy: f64, rtt: f64, warning: &str) -> Seen {
        let cpu = || Scope::Cpu(0);
        Seen {
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
    fn readings_add_up_as_they_say() {
        let seen =
            Seen::together(vec![window(0.2, 4.0, "CPU 0 1 %"), window(0.1, 2.0, "CPU 1 3 %")]);
        let values: Vec<f64> = seen.readings.iter().map(|r| r.value).collect();
        assert!((values[0] - 0.3).abs() < 1e-12 && values[1..] == [3.0, 1.0], "{values:?}");
        assert_eq!(seen.warnings, ["CPU 0 1 %"]);
        assert_eq!(Seen::together(Vec::new()), Seen::default());
    }
}
