//! What limited an observed program, in words: the CPUs, then its TCP connections.

use super::figures::{bytes, number, percent, plural};
use bytepath_record::{Connection, Observation, ObservedTcp, ThreadTime, Traffic, unit::GIB};

/// Share of retransmitted bytes above which they are listed first: TCP halves its window at a
/// single loss, so even a small share matters.
const MUCH: f64 = 0.001;
/// Share of the time above which a limit gets a sentence.
const WORTH: f64 = 0.05;
/// Share of the time without data in flight above which the program is the limit.
const IDLE: f64 = 0.5;
/// Share of retransmitted segments that arrived twice above which this is mentioned.
const NEEDLESS: f64 = 0.1;
/// The same share above which little was actually lost.
const MOSTLY: f64 = 0.5;
/// Share of the time that a thread was runnable without a CPU above which other threads are the
/// limit, and share of the time on a CPU above which the CPU is.
const QUEUED: f64 = 0.2;
const WHOLE: f64 = 0.9;
/// Bytes per call below which a CPU-limited thread should move more at once, and the number of
/// calls above which this gets a sentence.
const SMALL: f64 = 16384.0;
const MANY: u64 = 1000;

/// Counters of a namespace that indicate problems, with their meaning.
const TROUBLE: &[(&str, &str)] = &[
    (
        "ListenOverflows",
        "connections that found the accept queue full: accept() is too slow, or \
      listen()'s backlog or net.core.somaxconn too small",
    ),
    (
        "SyncookiesSent",
        "connection requests answered by a cookie because too many were half open: \
      net.ipv4.tcp_max_syn_backlog or net.core.somaxconn is too small",
    ),
    (
        "TCPTimeWaitOverflow",
        "connections that left no TIME-WAIT behind because there were too many: \
      net.ipv4.tcp_max_tw_buckets is too small",
    ),
    (
        "TCPBacklogDrop",
        "packets dropped because a socket's backlog was full while its owner held \
      the lock: a larger net.core.rmem_max or receive buffer helps",
    ),
    (
        "PruneCalled",
        "times that a receive buffer was over its limit: the program reads too \
      slowly, or net.ipv4.tcp_rmem is too small",
    ),
    ("TCPRcvCollapsed", "packets merged in a receive buffer to make room, which costs CPU time"),
    ("RcvPruned", "packets dropped for lack of room in a receive buffer"),
    ("OfoPruned", "packets that arrived out of order dropped for lack of room"),
    ("TCPRcvQDrop", "packets dropped because a receive queue was full"),
    ("TCPZeroWindowDrop", "packets dropped because the window was closed"),
    ("TCPMemoryPressures", "times that TCP ran short of memory (net.ipv4.tcp_mem)"),
    ("TCPWqueueTooBig", "times that a send queue grew too large"),
    ("TCPAbortOnMemory", "connections ended for lack of memory"),
];

/// Returns sentences, the most important first; empty if no limit was found.
pub fn limits(observation: &Observation) -> Vec<String> {
    let Observation { seconds, .. } = *observation;
    let times = observation.threads.iter().filter_map(|thread| thread.time.as_ref());
    let most = times.max_by(|a, b| (a.run + a.wait).total_cmp(&(b.run + b.wait)));
    let of_cpu = most.and_then(|thread| cpu(thread, seconds));
    let calls = of_cpu.as_ref().and_then(|_| small_calls(observation));
    // If a CPU was lacking, idle connections do not show that there was nothing to send.
    let tcp = observation.tcp.as_ref().map(|tcp| sentences(tcp, seconds, of_cpu.is_none()));
    let Tcp { much_lost, rest } = tcp.unwrap_or_default();
    much_lost.into_iter().chain(of_cpu).chain(calls).chain(rest).collect()
}

/// Returns a sentence if the thread that most needed a CPU was short of one, or used one fully.
fn cpu(thread: &ThreadTime, seconds: f64) -> Option<String> {
    let ThreadTime { name, run, wait, .. } = thread;
    let part = |time: f64| percent(time / seconds);
    if *wait >= QUEUED * seconds {
        return Some(format!(
            "CPU: {name} was ready and had no CPU {} of the time ({} of {} s): other threads ran there, \
             its own, its peer's or of other programs, or a quota of its control group was used up. It \
             ran for {}.",
            part(*wait),
            number(*wait, 2),
            number(seconds, 2),
            part(*run)
        ));
    }
    (*run >= WHOLE * seconds)
        .then(|| format!("CPU: {name} ran {} of the time, so one CPU is the limit.", part(*run)))
}

/// Suggests larger messages if most bytes are moved by small calls.
fn small_calls(observation: &Observation) -> Option<String> {
    let Observation { sent, received, .. } = observation;
    let moved = |(_, traffic): &(&str, &Traffic)| traffic.ledger.delivered;
    let (what, traffic) = [("received", received), ("sent", sent)].into_iter().max_by_key(moved)?;
    let (bytes_moved, calls) = traffic.ways.iter().fold((0, 0_u64), |(bytes, calls), way| {
        (way.bytes.saturating_add(bytes), way.calls.saturating_add(calls))
    });
    let each = bytes_moved as f64 / calls as f64;
    let used = observation.used?;
    let both = sent.ledger.delivered.saturating_add(received.ledger.delivered);
    let cost = (used.user + used.system) / (both as f64 / GIB);
    (calls >= MANY && each < SMALL).then(|| {
        format!(
            "Calls: {} {what} {} each on average, {} CPU-s per GiB sent and received; a call, and \
             often a packet, costs as much however little it carries, so larger ones save CPU time: \
             try 64 KiB.",
            grouped(calls),
            bytes(each),
            number(cost, 2)
        )
    })
}

/// What TCP waited for.
#[derive(Default)]
struct Tcp {
    /// Retransmissions, if there are many: nothing matters more.
    much_lost: Option<String>,
    rest: Vec<String>,
}

fn sentences(tcp: &ObservedTcp, seconds: f64, sets_the_pace: bool) -> Tcp {
    let all = tcp.connections.as_slice();
    let largest = |c: &&Connection| c.bytes_acked.saturating_add(c.bytes_received);
    let Some(busiest) = all.iter().max_by_key(largest) else {
        return Tcp::default();
    };
    let (lost, is_much) = retransmitted(all);
    let (much_lost, lost) = if is_much { (lost, None) } else { (None, lost) };
    let mut rest = busy_time(all);
    rest.extend(idle(busiest, seconds).filter(|_| sets_the_pace));
    rest.extend(lost);
    rest.extend(disordered(all));
    rest.extend(TROUBLE.iter().filter_map(|(name, meaning)| {
        let count = grouped(*tcp.counters.get(*name).filter(|count| **count > 0)?);
        Some(format!(
            "Counted in the network namespace, of all programs there: {count} {meaning} ({name})."
        ))
    }));
    Tcp { much_lost, rest }
}

/// Describes retransmissions, and returns whether there are many.
fn retransmitted(all: &[Connection]) -> (Option<String>, bool) {
    let sum = |of: fn(&Connection) -> u64| all.iter().map(of).fold(0, u64::saturating_add);
    let segments = sum(|c| c.retransmits);
    if segments == 0 {
        return (None, false);
    }
    let share = |lost: u64, of: u64| if of == 0 { 0.0 } else { lost as f64 / of as f64 };
    let part = share(sum(|c| c.bytes_retransmitted), sum(|c| c.bytes_sent));
    let affected = all.iter().filter(|c| c.retransmits > 0).count();
    let timeouts = sum(|c| c.timeouts);
    let unit = if segments == 1 { "segment" } else { "segments" };
    let mut text =
        format!("Retransmitted {} {unit}, {} of the bytes sent", grouped(segments), percent(part));
    if all.len() > 1 {
        text += &format!(", on {affected} of {}", plural(all.len() as u64, "connection"));
    }
    if timeouts > 0 {
        text += &format!("; {}", plural(timeouts, "timeout"));
    }
    text += ": packets are lost or late on the way to the peer.";
    let needless = sum(|c| c.duplicates);
    if share(needless, segments) >= NEEDLESS {
        text +=
            &format!(" {} arrived twice: late or out of order, and not lost.", grouped(needless));
    }
    // Segments that arrived twice were not lost.
    let is_lost = share(needless, segments) < MOSTLY;
    (Some(text), part >= MUCH && is_lost || timeouts > 0)
}

/// Returns how the time with data in flight was spent.
fn busy_time(all: &[Connection]) -> Vec<String> {
    let sum = |of: fn(&Connection) -> f64| all.iter().map(of).sum::<f64>();
    let busy = sum(|c| c.busy);
    if busy <= 0.0 {
        return Vec::new();
    }
    let (window, buffer) = (sum(|c| c.window_limited), sum(|c| c.buffer_limited));
    let rest = (busy - window - buffer).max(0.0);
    let most = all.iter().max_by(|a, b| a.busy.total_cmp(&b.busy));
    let path = most.map(path).unwrap_or_default();
    let path = format!(
        "limited by neither end's window or buffer, but by the path, its congestion window or the \
         CPUs{path}"
    );
    let mut parts = vec![
        (
            window,
            "waiting for the receiver's window: the peer reads too slowly, or its receive \
             buffer (SO_RCVBUF, net.ipv4.tcp_rmem) is too small",
        ),
        (
            buffer,
            "with a full send buffer: SO_SNDBUF or net.ipv4.tcp_wmem is too small for \
             this rate and round-trip time",
        ),
        (rest, path.as_str()),
    ];
    parts.retain(|(time, _)| time / busy >= WORTH);
    parts.sort_by(|a, b| b.0.total_cmp(&a.0));
    let sentence = |(time, words)| {
        format!("{} of the time with data in flight {words}.", percent(time / busy))
    };
    parts.into_iter().map(sentence).collect()
}

/// Returns the figures of the connection that was busy longest.
fn path(of: &Connection) -> String {
    let milliseconds = |seconds: f64| format!("{} ms", number(seconds * 1e3, 3));
    let mut figures = vec![format!("round-trip time {}", milliseconds(of.rtt))];
    figures.extend(of.min_rtt.map(|least| format!("minimum {}", milliseconds(least))));
    let window = of.cwnd.saturating_mul(of.mss);
    figures.push(format!("window {} ({})", plural(of.cwnd, "segment"), bytes(window as f64)));
    figures.extend(Some(&of.congestion).filter(|name| !name.is_empty()).cloned());
    format!(" ({} when last seen)", figures.join(", "))
}

/// Returns a sentence if the program mostly had nothing to send.
fn idle(busiest: &Connection, seconds: f64) -> Option<String> {
    let idle = 1.0 - busiest.busy / seconds;
    // A connection that only received was never busy: its peer sets the pace.
    (busiest.bytes_acked > busiest.bytes_received && idle >= IDLE).then(|| {
        format!(
            "Nothing to send for {} of the {} s, on the connection that moved most: the program \
             itself sets the pace.",
            percent(idle),
            number(seconds, 1)
        )
    })
}

fn disordered(all: &[Connection]) -> Option<String> {
    let count = all.iter().map(|c| c.out_of_order).fold(0, u64::saturating_add);
    (count > 0).then(|| {
        format!(
            "{} segments arrived out of order: packets are lost or overtake each other on the \
             way from the peer.",
            grouped(count)
        )
    })
}

/// Formats `6854` as `6,854`.
fn grouped(count: u64) -> String {
    match (count / 1000, count % 1000) {
        (0, rest) => rest.to_string(),
        (thousands, rest) => format!("{},{rest:03}", grouped(thousands)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytepath_record::{CpuSource, CpuTime, Ledger, ObservedThread, Way};

    fn connection() -> Connection {
        Connection {
            bytes_acked: 1_000_000_000,
            bytes_sent: 1_000_000_000,
            segments_sent: 690_000,
            busy: 10.0,
            rtt: 0.0102,
            min_rtt: Some(0.01),
            cwnd: 14,
            mss: 1448,
            congestion: "cubic".into(),
            ..Connection::default()
        }
    }

    fn limits_of(
        connections: &[Connection],
        seconds: f64,
        counters: &[(&str, u64)],
    ) -> Vec<String> {
        let counters = counters.iter().map(|(name, n)| ((*name).to_owned(), *n)).collect();
        let tcp = ObservedTcp { connections: connections.to_vec(), counters };
        let Tcp { much_lost, rest } = sentences(&tcp, seconds, true);
        much_lost.into_iter().chain(rest).collect()
    }

    #[test]
    fn retransmissions_come_first() {
        let lossy = Connection {
            retransmits: 6854,
            bytes_retransmitted: 9_000_000,
            timeouts: 1,
            ..connection()
        };
        let lines = limits_of(&[lossy, connection()], 10.0, &[]);
        assert_eq!(
            lines[0],
            "Retransmitted 6,854 segments, 0.4% of the bytes sent, on 1 of 2 connections; 1 \
             timeout: packets are lost or late on the way to the peer."
        );
        assert_eq!(
            lines[1],
            "100% of the time with data in flight limited by neither end's window or buffer, but by the \
             path, its congestion window or the CPUs (round-trip time 10.200 ms, minimum 10.000 ms, \
             window 14 segments (19.8 KiB), cubic when last seen)."
        );
        assert_eq!(lines.len(), 2);
    }

    #[test]
    fn few_retransmissions_come_after_busy_time() {
        let slow = Connection {
            retransmits: 20,
            bytes_retransmitted: 28_960,
            duplicates: 15,
            window_limited: 7.2,
            buffer_limited: 2.6,
            ..connection()
        };
        let lines = limits_of(&[slow], 10.0, &[]);
        assert!(
            lines[0].starts_with(
                "72% of the time with data in flight waiting for the receiver's window"
            )
        );
        assert!(
            lines[1].starts_with("26% of the time with data in flight with a full send buffer"),
            "{lines:?}"
        );
        assert!(lines[2].starts_with("Retransmitted 20 segments, <0.1% of the bytes"), "{lines:?}");
        assert!(lines[2].ends_with("15 arrived twice: late or out of order, and not lost."));
        assert_eq!(lines.len(), 3, "2 % of the time is not worth a sentence");
    }

    #[test]
    fn reports_idle_programs() {
        let lines = limits_of(&[connection()], 40.0, &[]);
        assert!(lines[1].starts_with("Nothing to send for 75% of the 40.0 s"), "{lines:?}");
        let receives = Connection {
            bytes_acked: 0,
            bytes_received: 5000,
            busy: 0.0,
            out_of_order: 1234,
            ..Connection::default()
        };
        let lines = limits_of(&[receives], 40.0, &[("TCPRcvCollapsed", 3), ("InSegs", 7)]);
        assert!(lines[0].starts_with("1,234 segments arrived out of order"), "{lines:?}");
        assert!(lines[1].contains("3 packets merged in a receive buffer"), "{lines:?}");
        assert_eq!(lines.len(), 2);
        assert!(limits_of(&[], 40.0, &[("TCPRcvCollapsed", 3)]).is_empty());
    }

    fn observed(run: f64, wait: f64, calls: u64) -> Observation {
        let way = Way { path: "socket".into(), bytes: calls * 1024, calls };
        let ledger = Ledger { delivered: way.bytes, copied: way.bytes, ..Ledger::default() };
        let time = ThreadTime {
            name: "iperf3".into(),
            tid: 1,
            run,
            wait,
            user: 0.0,
            system: 0.0,
            voluntary: 0,
            involuntary: 0,
        };
        let thread = ObservedThread { time: Some(time), ..ObservedThread::default() };
        Observation {
            seconds: 3.0,
            threads: vec![thread],
            sent: Traffic { ledger, ways: vec![way], ..Traffic::default() },
            used: Some(CpuTime { user: 0.25, system: 0.5, source: CpuSource::Threads }),
            tcp: Some(ObservedTcp { connections: vec![connection()], ..ObservedTcp::default() }),
            ..serde_json::from_str(MADE_UP).unwrap()
        }
    }

    const MADE_UP: &str = include_str!("../../../../tests/data/observations/made-up.json");

    #[test]
    fn a_lack_of_cpus_comes_first_and_is_no_pace_of_the_program() {
        let lines = limits(&Observation { seconds: 3.0, ..observed(0.76, 2.11, 98_304) });
        assert_eq!(
            lines[..2],
            [
                "CPU: iperf3 was ready and had no CPU 70% of the time (2.11 of 3.00 s): other threads \
                 ran there, its own, its peer's or of other programs, or a quota of its control group \
                 was used up. It ran for 25%.",
                "Calls: 98,304 sent 1 KiB each on average, 8.00 CPU-s per GiB sent and received; a \
                 call, and often a packet, costs as much however little it carries, so larger ones \
                 save CPU time: try 64 KiB.",
            ]
        );
        assert!(lines[2].starts_with("100% of the time with data in flight"), "{lines:?}");
        let lines = limits(&observed(2.9, 0.05, 10));
        assert_eq!(lines[0], "CPU: iperf3 ran 97% of the time, so one CPU is the limit.");
        assert!(!lines[1].starts_with("Calls"), "ten calls are not worth a sentence: {lines:?}");
        let lines = limits(&Observation { seconds: 40.0, ..observed(2.9, 0.05, 98_304) });
        assert!(lines[1].starts_with("Nothing to send for 75%"), "{lines:?}");
    }

    #[test]
    fn who_only_receives_sets_no_pace() {
        let data =
            Connection { bytes_acked: 0, bytes_received: 1 << 30, busy: 0.0, ..connection() };
        let control =
            Connection { bytes_acked: 300, bytes_received: 40, busy: 0.01, ..connection() };
        let lines = limits_of(&[control, data], 10.0, &[]);
        assert!(!lines.iter().any(|line| line.starts_with("Nothing to send")), "{lines:?}");
    }

    #[test]
    fn large_counts_are_grouped() {
        let texts = [0, 999, 1000, 1_234_567].map(grouped);
        assert_eq!(texts, ["0", "999", "1,000", "1,234,567"]);
    }
}
