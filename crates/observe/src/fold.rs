//! Shortens the observation of a program with very many threads.

use bytepath_record::{CallRow, Observation, ObservedCall, ObservedThread};
use std::collections::{HashMap, HashSet};

/// Number of threads that keep their own rows: those that ran longest.
const APART: usize = 1000;

/// Merges all but the `APART` threads that ran longest, by name, and adds up their times and
/// calls. Figures of the whole program do not change.
pub fn fold(observation: &mut Observation) {
    fold_beyond(observation, APART);
}

fn fold_beyond(observation: &mut Observation, apart: usize) {
    let Observation { threads, calls, warnings, .. } = observation;
    if threads.len() <= apart {
        return;
    }
    let all = threads.len();
    let run = |thread: &ObservedThread| thread.time.as_ref().map_or(0.0, |time| time.run);
    let mut by_time: Vec<&ObservedThread> = threads.iter().collect();
    by_time.sort_by(|a, b| run(b).total_cmp(&run(a)));
    let kept: HashSet<u32> = by_time.iter().take(apart).map(|thread| thread.tid).collect();
    let mut first_of: HashMap<String, usize> = HashMap::new();
    let mut moved: HashMap<u32, u32> = HashMap::new();
    let mut shown: Vec<ObservedThread> = Vec::new();
    for thread in std::mem::take(threads) {
        match first_of.get(&thread.name) {
            _ if kept.contains(&thread.tid) => shown.push(thread),
            None => {
                first_of.insert(thread.name.clone(), shown.len());
                shown.push(thread);
            }
            Some(at) => {
                moved.insert(thread.tid, shown[*at].tid);
                join(&mut shown[*at], thread);
            }
        }
    }
    *threads = shown;
    join_calls(calls, &moved);
    warnings.push(format!(
        "of {all} threads the {apart} that ran longest are apart, and the others joined, those of \
         one name to one"
    ));
}

/// Merges a thread into another of its name.
fn join(thread: &mut ObservedThread, other: ObservedThread) {
    thread.joined += 1;
    thread.ended &= other.ended;
    let Some(time) = other.time else { return };
    match &mut thread.time {
        Some(sum) => {
            sum.run += time.run;
            sum.wait += time.wait;
            sum.user += time.user;
            sum.system += time.system;
            sum.voluntary += time.voluntary;
            sum.involuntary += time.involuntary;
        }
        none => *none = Some(time),
    }
}

/// Assigns each call to the thread into which its own was merged.
fn join_calls(calls: &mut Vec<ObservedCall>, moved: &HashMap<u32, u32>) {
    let mut rows: HashMap<(u32, u32), usize> = HashMap::new();
    let mut joined: Vec<ObservedCall> = Vec::new();
    for call in std::mem::take(calls) {
        let tid = moved.get(&call.tid).copied().unwrap_or(call.tid);
        match rows.get(&(tid, call.number)) {
            Some(at) => {
                let into = &mut joined[*at];
                add(&mut into.row, &call.row);
                for (sum, count) in into.histogram.iter_mut().zip(&call.histogram) {
                    *sum += count;
                }
            }
            None => {
                rows.insert((tid, call.number), joined.len());
                joined.push(ObservedCall { tid, ..call });
            }
        }
    }
    // Rows of a thread are adjacent, the longest time first.
    joined.sort_by(|a, b| a.tid.cmp(&b.tid).then(b.row.total.total_cmp(&a.row.total)));
    *calls = joined;
}

/// Adds the calls of another row of the same name.
fn add(sum: &mut CallRow, other: &CallRow) {
    let (calls, mean) = ((sum.calls + other.calls) as f64, sum.total + other.total);
    let mean = mean / calls.max(1.0);
    // Squares about the common mean, from the deviation of each mean (Chan, Golub, LeVeque 1979).
    let squares = |row: &CallRow| {
        let count = row.calls as f64;
        let of_mean = row.stddev_percent / 100.0 * row.avg;
        count * (count - 1.0).max(0.0) * of_mean.powi(2) + count * (row.avg - mean).powi(2)
    };
    let variance = (squares(sum) + squares(other)) / (calls - 1.0).max(1.0);
    let deviation = (variance / calls.max(1.0)).sqrt();
    *sum = CallRow {
        name: std::mem::take(&mut sum.name),
        calls: sum.calls + other.calls,
        errors: sum.errors + other.errors,
        bytes: sum.bytes.saturating_add(other.bytes),
        total: sum.total + other.total,
        min: sum.min.min(other.min),
        avg: mean,
        max: sum.max.max(other.max),
        stddev_percent: if mean > 0.0 { deviation / mean * 100.0 } else { 0.0 },
    };
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytepath_record::{CopyCount, Ending, SCHEMA_VERSION, ThreadTime, Traffic};

    fn thread(tid: u32, name: &str, run: f64) -> ObservedThread {
        let time = ThreadTime {
            name: name.into(),
            tid,
            run,
            wait: 0.0,
            user: run,
            system: 0.0,
            voluntary: 1,
            involuntary: 0,
        };
        ObservedThread {
            tid,
            pid: tid,
            name: name.into(),
            ended: true,
            time: Some(time),
            ..ObservedThread::default()
        }
    }

    /// A thread's calls of these durations, in seconds.
    fn call(tid: u32, lengths: &[f64]) -> ObservedCall {
        let (count, total) = (lengths.len() as f64, lengths.iter().sum::<f64>());
        let avg = total / count;
        let squares: f64 = lengths.iter().map(|length| (length - avg).powi(2)).sum();
        let row = CallRow {
            name: "write".into(),
            calls: lengths.len() as u64,
            errors: 1,
            bytes: 10,
            total,
            min: lengths.iter().copied().fold(f64::INFINITY, f64::min),
            avg,
            max: lengths.iter().copied().fold(0.0, f64::max),
            stddev_percent: (squares / (count - 1.0) / count).sqrt() / avg * 100.0,
        };
        ObservedCall { tid, number: 1, row, histogram: vec![1, 2] }
    }

    #[test]
    fn threads_of_a_name_become_one() {
        let mut observation = Observation {
            schema: SCHEMA_VERSION,
            bytepath: String::new(),
            command: Vec::new(),
            pid: 1,
            started_ms: 0,
            seconds: 1.0,
            host: None,
            ending: Ending::Code(0),
            counter: None,
            threads: vec![
                thread(1, "main", 9.0),
                thread(2, "worker", 1.0),
                thread(3, "worker", 8.0),
                thread(4, "worker", 2.0),
                thread(5, "other", 0.5),
            ],
            calls: vec![call(1, &[1.0, 2.0]), call(2, &[1.0, 3.0]), call(4, &[2.0, 4.0, 6.0])],
            sockets: Vec::new(),
            sent: Traffic::default(),
            received: Traffic::default(),
            tcp: None,
            limits: Vec::new(),
            used: None,
            machine: Vec::new(),
            copies: CopyCount::Unknown,
            profile: None,
            disagreement: None,
            absent: Vec::new(),
            warnings: Vec::new(),
        };
        let whole = observation.clone();
        fold_beyond(&mut observation, 5);
        assert_eq!(observation, whole);
        fold_beyond(&mut observation, 2);
        let rows: Vec<_> = observation.threads.iter().map(|t| (t.tid, t.joined)).collect();
        assert_eq!(rows, [(1, 0), (2, 1), (3, 0), (5, 0)]);
        let time = observation.threads[1].time.as_ref().unwrap();
        assert_eq!((time.run, time.voluntary), (3.0, 2));
        let [own, joined] = &observation.calls[..] else { panic!("{:?}", observation.calls) };
        assert_eq!(own, &whole.calls[0]);
        let at_once = call(2, &[1.0, 3.0, 2.0, 4.0, 6.0]).row;
        assert_eq!((joined.tid, joined.row.calls, joined.row.errors), (2, 5, 2));
        assert!((joined.row.stddev_percent - at_once.stddev_percent).abs() < 1e-9);
        assert_eq!(joined.histogram, [2, 4]);
        assert_eq!(observation.warnings.len(), 1);
    }
}
