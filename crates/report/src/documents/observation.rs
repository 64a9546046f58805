//! The report on an observation of a program.

use crate::document::{Block, Column, Document, Figure, Mark, Media, Scale, Section, Table};
use crate::wording::figures::{
    NONE, amount, bytes, cost, milliseconds, number, percent, plural, rate,
};
use bytepath_record::{
    Connection, CopyCount, Counter, CpuSource, Ending, Evidence, Manner, Observation, ObservedCall,
    ObservedSocket, ObservedThread, Scope, ThreadTime, Traffic, Work, joined, unit::GIB,
};
use std::cmp::Reverse;
use std::collections::BTreeMap;

/// Most threads, calls per thread and sockets shown without `--details`.
const THREADS: usize = 8;
const CALLS: usize = 12;
const SOCKETS: usize = 10;

/// Shows everything that was observed: all columns if `details`, otherwise the largest parts.
pub fn observation(observed: &Observation, details: bool) -> Document {
    let mut document = Document::default();
    let page = &mut document;
    heading(page, observed);
    // A page begins with these.
    let mut limits = Section::new("", "What limited it").on(Media::PLAIN);
    observed.limits.iter().for_each(|text| limits.text("  ", text));
    page.push([limits]);
    sockets(page, observed, details);
    connections(page, observed, details);
    ledger(page, observed);
    time(page, observed, details);
    machine(page, observed);
    calls(page, observed, details);
    remarks(page, observed);
    page.sections.iter_mut().for_each(|section| section.detail = details);
    document
}

/// Returns the command line, shortened if it is long.
pub(crate) fn command(observed: &Observation) -> String {
    let line = observed.command.join(" ");
    let left_out = line.chars().count().saturating_sub(LONGEST_COMMAND);
    match left_out {
        0 => line,
        _ => {
            let begin: String = line.chars().take(LONGEST_COMMAND).collect();
            format!("{begin} [... {left_out} characters]")
        }
    }
}

/// Most characters of a command line that are shown.
const LONGEST_COMMAND: usize = 1000;

fn heading(page: &mut Document, observed: &Observation) {
    page.heading(format!("bytepath observe: {}", command(observed)));
    let ending = match observed.ending {
        Ending::Code(code) => format!("exit code {code}"),
        Ending::Signal(signal) => format!("ended by signal {signal}"),
        Ending::Running => "still running".into(),
        Ending::Gone => "ended".into(),
    };
    let counter = match observed.counter {
        Some(Counter::TaskStorage) => "counted in the kernel (BPF, typed tracepoints)",
        None => "not counted",
    };
    let threads = observed.threads.iter().map(|thread| 1 + thread.joined).sum();
    let threads = plural(threads, "thread");
    let (pid, seconds) = (observed.pid, number(observed.seconds, 2));
    let text = format!("process {pid}, {seconds} s, {ending}; {threads}; system calls {counter}");
    page.text("  ", text);
}

fn connections(page: &mut Document, observed: &Observation, details: bool) {
    let Some(tcp) = observed.tcp.as_ref().filter(|tcp| !tcp.connections.is_empty()) else { return };
    page.heading("TCP connections, by the kernel's figures (TCP_INFO)");
    let of_busy = |part: f64, c: &Connection| (c.busy > 0.0).then(|| part / c.busy);
    let most = if details { tcp.connections.len() } else { SOCKETS };
    let connections = tcp
        .connections
        .iter()
        .take(most)
        .map(|c| (c, of_busy(c.window_limited, c), of_busy(c.buffer_limited, c)));
    page.add(Table::of(
        connections,
        [
            (Column::words("own address", 0, Some(15)), |(c, ..)| c.local.clone()),
            (Column::words("peer", 0, Some(15)), |(c, ..)| c.remote.clone()),
            (Column::number("segments", "sent", 0), |(c, ..)| amount(c.segments_sent as f64)),
            (Column::number("segments", "again", 0), |(c, ..)| amount(c.retransmits as f64)),
            (Column::number("ms", "rtt", 0), |(c, ..)| number(c.rtt * 1e3, 3)),
            (Column::number("ms", "least", 1), |(c, ..)| number(c.min_rtt.map(|rtt| rtt * 1e3), 3)),
            (Column::number("s", "busy", 0), |(c, ..)| number(c.busy, 2)),
            (Column::number("of it limited by", "window", 0), |(_, window, _)| percent(*window)),
            (Column::number("of it limited by", "buffer", 0), |(.., buffer)| percent(*buffer)),
            (Column::number("", "cwnd", 2), |(c, ..)| c.cwnd.to_string()),
            (Column::number("Gbit/s", "last", 3), |(c, ..)| rate(Work::Bytes, c.delivery_rate)),
        ],
    ));
    more(page, tcp.connections.len(), most, "connection");
}

fn sockets(page: &mut Document, observed: &Observation, details: bool) {
    if observed.sockets.is_empty() {
        return;
    }
    page.heading("Sockets");
    let most = if details { observed.sockets.len() } else { SOCKETS };
    let mut sockets = observed.sockets.iter().take(most).cloned().collect::<Vec<_>>();
    let rest: Vec<&ObservedSocket> = observed.sockets.iter().skip(most).collect();
    if !rest.is_empty() {
        let sum = |of: fn(&ObservedSocket) -> u64| {
            rest.iter().fold(0u64, |sum, socket| sum.saturating_add(of(socket)))
        };
        sockets.push(ObservedSocket {
            kind: plural(rest.len() as u64, "other"),
            sent: sum(|s| s.sent),
            received: sum(|s| s.received),
            send_calls: sum(|s| s.send_calls),
            receive_calls: sum(|s| s.receive_calls),
            ..ObservedSocket::default()
        });
    }
    let per_second = |bytes: u64| (observed.seconds > 0.0).then(|| bytes as f64 / observed.seconds);
    let sockets = sockets.iter().map(|s| (s, per_second(s.sent), per_second(s.received)));
    let unit = Work::Bytes.terms().rate_unit;
    page.add(Table::of(
        sockets,
        [
            (Column::words("socket", 0, None), |(s, ..)| s.kind.clone()),
            (Column::words("own address", 3, Some(15)), |(s, ..)| address(&s.local)),
            (Column::words("peer", 2, Some(15)), |(s, ..)| address(&s.remote)),
            (Column::number("", "process", 4), |(s, ..)| match s.pid {
                0 => NONE.to_owned(),
                pid => pid.to_string(),
            }),
            (Column::number("sent", "bytes", 0), |(s, ..)| bytes(s.sent as f64)),
            (Column::number("sent", unit, 0), |(_, sent, _)| rate(Work::Bytes, *sent)),
            (Column::number("sent", "calls", 1), |(s, ..)| amount(s.send_calls as f64)),
            (Column::number("received", "bytes", 0), |(s, ..)| bytes(s.received as f64)),
            (Column::number("received", unit, 0), |(.., received)| rate(Work::Bytes, *received)),
            (Column::number("received", "calls", 1), |(s, ..)| amount(s.receive_calls as f64)),
        ],
    ));
}

fn address(of: &Option<String>) -> String {
    of.clone().unwrap_or_else(|| NONE.to_owned())
}

fn ledger(page: &mut Document, observed: &Observation) {
    if observed.counter.is_none() {
        return;
    }
    page.heading("Ledger: how bytes passed between program and kernel");
    for (lead, traffic) in [("  sent      ", &observed.sent), ("  received  ", &observed.received)]
    {
        page.text(lead, direction(traffic));
        let evidence = traffic.ledger.evidence.iter();
        evidence.for_each(|one| page.text("              ", entry(one)));
    }
    let copies = match &observed.copies {
        CopyCount::Counted { to_program, from_program } => format!(
            "{} from the program, {} to it, counted in the kernel as it copied them",
            bytes(*from_program as f64),
            bytes(*to_program as f64)
        ),
        CopyCount::Estimated { low, high, basis } => {
            format!("{} to {} ({basis})", bytes(*low), bytes(*high))
        }
        CopyCount::Unknown => "not measured (see below)".into(),
    };
    page.text("  copies    ", copies);
    if let Some(disagreement) = &observed.disagreement {
        page.text("  DISAGREE  ", disagreement);
    }
}

/// Returns how many bytes were moved in one direction, and how.
pub(crate) fn direction(traffic: &Traffic) -> String {
    let ledger = &traffic.ledger;
    if ledger.delivered == 0 {
        return "nothing".into();
    }
    let parts = [
        (ledger.copied, Manner::Copied),
        (ledger.not_copied, Manner::NotCopied),
        (ledger.discarded, Manner::Discarded),
        (ledger.unknown, Manner::Unknown),
    ];
    let share = |part: u64| percent(part as f64 / ledger.delivered as f64);
    let parts = parts.into_iter().filter(|(part, _)| *part > 0);
    let parts = parts.map(|(part, manner)| format!("{} {}", share(part), manner.words()));
    let parts = joined(parts, ", ");
    format!("{}: {} ({parts})", bytes(ledger.delivered as f64), traffic.label)
}

fn entry(evidence: &Evidence) -> String {
    format!(
        "{} {} in {} calls: {}",
        bytes(evidence.bytes as f64),
        evidence.manner.words(),
        amount(evidence.events as f64),
        evidence.source
    )
}

fn time(page: &mut Document, observed: &Observation, details: bool) {
    let Some(used) = observed.used else { return };
    page.heading("CPU time of the program");
    let moved =
        observed.sent.ledger.delivered.saturating_add(observed.received.ledger.delivered) as f64;
    let per_gib = (moved > 0.0).then(|| (used.user + used.system) / (moved / GIB));
    let source = match used.source {
        CpuSource::Wait => "including children it waited for, by wait4",
        CpuSource::Threads => "the sum of its threads",
    };
    let mut text = format!(
        "{} s user, {} s system: {} of one CPU; {source}",
        number(used.user, 3),
        number(used.system, 3),
        percent((used.user + used.system) / observed.seconds.max(f64::MIN_POSITIVE)),
    );
    if let Some(per_gib) = per_gib {
        let per_gib = cost(Work::Bytes.terms().cost, per_gib);
        text += &format!("; {per_gib} CPU s per GiB sent and received");
    }
    page.text("  ", text);
    let times = observed.threads.iter().filter_map(|thread| Some((thread, thread.time.as_ref()?)));
    let mut threads: Vec<(&ObservedThread, &ThreadTime)> = times.collect();
    threads.sort_by(|a, b| b.1.run.total_cmp(&a.1.run));
    let most = if details { threads.len() } else { THREADS };
    page.add(Table::of(
        threads.iter().take(most),
        [
            (Column::words("thread", 0, Some(12)), |(thread, _)| thread.name.clone()),
            (Column::number("", "id", 0), |(thread, _)| thread.tid.to_string()),
            (Column::number("", "process", 1), |(thread, _)| thread.pid.to_string()),
            (Column::number("seconds", "run", 0), |(_, time)| number(time.run, 3)),
            (Column::number("seconds", "user", 0), |(_, time)| number(time.user, 3)),
            (Column::number("seconds", "system", 0), |(_, time)| number(time.system, 3)),
            (Column::number("seconds", "run delay", 2), |(_, time)| number(time.wait, 3)),
            (Column::number("switches", "own", 3), |(_, time)| amount(time.voluntary as f64)),
            (Column::number("switches", "forced", 3), |(_, time)| amount(time.involuntary as f64)),
            (Column::words("", 4, None), |(thread, _)| {
                let state = if thread.ended { "ended" } else { "runs" };
                match thread.joined {
                    0 => state.to_owned(),
                    others => format!("{state}, with {others} more"),
                }
            }),
        ],
    ));
    more(page, threads.len(), most, "thread");
}

fn machine(page: &mut Document, observed: &Observation) {
    let mut cpus: BTreeMap<u32, BTreeMap<&str, f64>> = BTreeMap::new();
    // If there are several readings of a kind, the first counts.
    for reading in observed.machine.iter().rev() {
        if let Scope::Cpu(cpu) = reading.scope {
            cpus.entry(cpu).or_default().insert(&reading.metric, reading.value);
        }
    }
    let kinds = ["busy", "user", "system", "softirq", "irq", "iowait", "idle", "steal"];
    let columns = kinds.map(|kind| Column::number("", kind, 0));
    let columns = [Column::words("CPU", 0, None)].into_iter().chain(columns);
    let rows = cpus.iter().map(|(cpu, seconds)| {
        let seconds = |kind| number(seconds.get(&*format!("cpu.{kind}")).copied(), 2);
        [cpu.to_string()].into_iter().chain(kinds.map(seconds))
    });
    page.push([Section::new("", "CPUs of the machine, seconds").with(Table::rows(columns, rows))]);
}

fn calls(page: &mut Document, observed: &Observation, details: bool) {
    // Rows of the same thread are adjacent.
    let threads = observed.calls.chunk_by(|a, b| a.tid == b.tid);
    // Not sorted by duration: the longest are threads that only wait.
    let count = |rows: &[ObservedCall]| rows.iter().map(|call| call.row.calls).sum::<u64>();
    let mut threads: Vec<(&[ObservedCall], u64)> =
        threads.map(|rows| (rows, count(rows))).collect();
    threads.sort_by_key(|(rows, count)| (Reverse(*count), rows[0].tid));
    let most = if details { threads.len() } else { THREADS };
    for (rows, count) in threads.iter().take(most) {
        thread_calls(page, observed, *count, rows, details);
    }
    more(page, threads.len(), most, "thread");
}

/// Adds the calls of one thread.
fn thread_calls(
    page: &mut Document,
    observed: &Observation,
    count: u64,
    rows: &[ObservedCall],
    details: bool,
) {
    let tid = rows[0].tid;
    let thread = observed.threads.iter().find(|thread| thread.tid == tid);
    let name = thread.map_or("", |thread| thread.name.as_str());
    let total = rows.iter().map(|call| call.row.total).sum();
    page.heading(format!(
        "System calls of {name} ({tid}): {} in {} ms",
        plural(count, "call"),
        milliseconds(total)
    ));
    let most = if details { rows.len() } else { CALLS };
    page.add(Table::of(
        rows.iter().take(most).map(|call| &call.row),
        [
            (Column::words("call", 0, None), |row| row.name.clone()),
            (Column::number("", "calls", 0), |row| row.calls.to_string()),
            (Column::number("", "errors", 0), |row| row.errors.to_string()),
            (Column::number("milliseconds", "total", 0), |row| milliseconds(row.total)),
            (Column::number("milliseconds", "min", 1), |row| milliseconds(row.min)),
            (Column::number("milliseconds", "avg", 0), |row| milliseconds(row.avg)),
            (Column::number("milliseconds", "max", 1), |row| milliseconds(row.max)),
            (Column::number("", "stddev", 2), |row| format!("{}%", number(row.stddev_percent, 2))),
            (Column::number("", "bytes", 0), |row| match row.bytes {
                0 => String::new(),
                bytes => bytes.to_string(),
            }),
        ],
    ));
    more(page, rows.len(), most, "call");
    if details {
        rows.iter().for_each(|call| histogram(page, call));
    }
}

/// Adds a row for each power of two: from, to, number of calls, and a bar.
fn histogram(page: &mut Document, call: &ObservedCall) {
    let most = call.histogram.iter().max().copied().unwrap_or(0);
    // A single call has no distribution.
    if call.row.calls < 2 || most == 0 {
        return;
    }
    let steps = call.histogram.iter().copied().enumerate();
    let steps: Vec<(usize, u64)> = steps.skip_while(|(_, count)| *count == 0).collect();
    let last = steps.iter().rposition(|(_, count)| *count > 0).map_or(0, |last| last + 1);
    let steps = &steps[..last];
    let bar = |count: u64| "#".repeat((count as f64 / most as f64 * BAR).ceil() as usize);
    let columns = [
        Column::number("", "from", 0),
        Column::number("", "to", 0),
        Column::number("", "calls", 0),
        Column::words("", 0, None).on(Media::PLAIN),
    ];
    let rows = steps.iter().map(|&(i, count)| {
        let [from, to] = [i, i + 1].map(|i| nanoseconds(i as i32));
        [from, to, count.to_string(), bar(count)]
    });
    let marks = steps.iter().map(|&(_, count)| {
        let mark = Mark::bar("system", (0.0, HISTOGRAM.1), (count as f64, HISTOGRAM.2));
        vec![mark.tip(plural(count, "call"))]
    });
    let scale = Scale::over([0.0, most as f64]);
    let caption = format!("{}: how long it took", call.row.name);
    let table = Table::rows(columns, rows);
    page.gap();
    page.add_on(Media::PLAIN, Block::Text("  ".into(), caption.clone()));
    page.add(Figure::rows(caption, table, (scale, HISTOGRAM.0), marks));
}

/// Longest bar in plain text, in columns.
const BAR: f64 = 40.0;

/// Pixels of a row with a bar: its height, beginning and end of the bar.
const HISTOGRAM: (f64, f64, f64) = (16.0, 2.0, 14.0);

/// Formats 2^i nanoseconds in the most readable unit.
fn nanoseconds(i: i32) -> String {
    let value = 2f64.powi(i);
    let (value, unit) = match value {
        v if v < 1e3 => (v, "ns"),
        v if v < 1e6 => (v / 1e3, "us"),
        v if v < 1e9 => (v / 1e6, "ms"),
        v => (v / 1e9, "s"),
    };
    format!("{} {unit}", number(value, usize::from(value < 10.0 && value.fract() != 0.0)))
}

fn remarks(page: &mut Document, observed: &Observation) {
    if !observed.absent.is_empty() {
        page.heading("Not measured");
        for absent in &observed.absent {
            let remedy = absent.remedy.as_ref().map(|r| format!(" ({r})")).unwrap_or_default();
            page.text(&format!("  {}: ", absent.what), format!("{}{remedy}", absent.reason));
        }
    }
    page.texts("Notes", "  ", &observed.warnings);
}

fn more(page: &mut Document, all: usize, most: usize, what: &str) {
    if all > most {
        let rest = plural((all - most) as u64, what);
        page.text("  ", format!("and {rest} more: --details lists all"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytepath_record::{Absent, CallRow, CpuTime, Ledger, SCHEMA_VERSION};

    #[expect(clippy::too_many_lines, reason = "one literal")]
    fn seen() -> Observation {
        let mut ledger = Ledger::default();
        ledger.enter(Manner::Copied, 3 << 30, 1000, "write calls");
        let call = |tid, name: &str, calls| ObservedCall {
            tid,
            number: 1,
            row: CallRow {
                name: name.into(),
                calls,
                errors: 2,
                bytes: 3 << 30,
                total: 0.5,
                min: 1e-6,
                avg: 0.5 / calls as f64,
                max: 0.01,
                stddev_percent: 0.31,
            },
            histogram: [vec![0; 10], vec![calls - 1, 1], vec![0; 28]].concat(),
        };
        let time = ThreadTime {
            name: "worker".into(),
            tid: 7,
            run: 0.75,
            wait: 0.1,
            user: 0.25,
            system: 0.5,
            voluntary: 3,
            involuntary: 4,
        };
        Observation {
            schema: SCHEMA_VERSION,
            bytepath: "0".into(),
            command: vec!["prog\x1b[2J".into(), "x".into()],
            pid: 7,
            started_ms: 0,
            seconds: 2.0,
            host: None,
            ending: Ending::Signal(15),
            counter: Some(Counter::TaskStorage),
            threads: vec![ObservedThread {
                tid: 7,
                pid: 7,
                parent: 0,
                name: "worker".into(),
                ended: true,
                time: Some(time),
                joined: 0,
            }],
            calls: vec![call(7, "write", 1000), call(7, "read", 5)],
            sockets: vec![ObservedSocket {
                inode: Some(1),
                kind: "tcp".into(),
                pid: 7,
                local: Some("127.0.0.1:1".into()),
                remote: Some("127.0.0.1:2".into()),
                sent: 3 << 30,
                received: 0,
                send_calls: 1000,
                receive_calls: 0,
            }],
            sent: Traffic { ledger, label: "copied".into(), ways: Vec::new() },
            received: Traffic::default(),
            tcp: None,
            limits: vec!["Retransmitted 5 segments.".into()],
            used: Some(CpuTime { user: 0.25, system: 0.5, source: CpuSource::Wait }),
            machine: Vec::new(),
            copies: CopyCount::Unknown,
            profile: None,
            disagreement: None,
            absent: vec![Absent {
                what: "copies".into(),
                reason: "refused".into(),
                remedy: Some("be root".into()),
            }],
            warnings: vec!["mind this".into()],
        }
    }

    fn printed(details: bool, width: usize) -> String {
        let mut out = Vec::new();
        let style = crate::Style { width, colour: false, details };
        observation(&seen(), details).write(&style, &mut out).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn prints_all_parts_of_an_observation() {
        let text = printed(false, 100);
        let flowing = text.split_whitespace().collect::<Vec<_>>().join(" ");
        for words in [
            "process 7, 2.00 s, ended by signal 15; 1 thread",
            "127.0.0.1:2",
            "12.88",
            "3 GiB: copied (100% copied)",
            "0.250 s user, 0.500 s system: 38% of one CPU",
            "0.250 CPU s per GiB",
            "System calls of worker (7): 1005 calls in 1000.000 ms",
            "copies: refused (be root)",
            "mind this",
            "What limited it Retransmitted 5 segments.",
        ] {
            assert!(flowing.contains(words), "no '{words}' in\n{text}");
        }
        assert!(!text.contains('\x1b'), "a name steers the terminal");
        assert!(!text.contains("how long it took"));
        assert!(
            printed(true, 100).contains("1.0 us  2.0 us    999  ####"),
            "{}",
            printed(true, 100)
        );
    }

    #[test]
    fn no_line_is_too_long() {
        for width in [60, 80, 100] {
            let text = printed(true, width);
            assert!(text.lines().all(|line| line.len() <= width), "{width}:\n{text}");
        }
    }

    #[test]
    fn histogram_steps_have_units() {
        let steps: Vec<String> = [0, 9, 10, 13, 20, 30, 39].map(nanoseconds).into();
        assert_eq!(steps, ["1 ns", "512 ns", "1.0 us", "8.2 us", "1.0 ms", "1.1 s", "550 s"]);
    }
}
