//! The kernel's figures for each connection: `TCP_INFO`.

use super::{Context, Meter, Output, Reach, Running, at_stop};
use bytepath_record::{Fault, Reading, Scope, Unit};
use bytepath_sys::tcp::{self, TcpInfo};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

/// Most flows with individual readings. With more, a role has the sums, the means of levels, and
/// the smallest round-trip time: hundreds of connections would take a megabyte per trial.
const MOST_FLOWS: usize = 64;

/// Retransmissions, windows, round-trip times and limits of every flow. Counters and times cover
/// the window; levels (`cwnd`, `snd_mss`, `rcv_mss`, `rtt`, `min_rtt`, `delivery_rate`) are those
/// at its end. What limits a sender shows in `tcp.rwnd_limited` (the receiver is slow) and
/// `tcp.sndbuf_limited` (the send buffer is small), both within `tcp.busy`.
pub(crate) static METER: Meter = Meter {
    name: "tcp-info",
    summary: "retransmissions, window, round-trip time, delivery rate, limits by flow (TCP_INFO)",
    reach: Reach::Agent,
    start,
    ..Meter::BASE
};

fn start(context: &Context) -> Result<Box<dyn Running>, Fault> {
    let (role, flows) = (context.role, Arc::clone(&context.flows));
    let before = read_all(&flows)?;
    at_stop(move || {
        let after = read_all(&flows)?;
        let mut output = Output::default();
        for (flow, (before, after)) in (0..).zip(before.iter().zip(&after)) {
            enter(&mut output, before, after, &Scope::Flow(role, flow));
        }
        if flows.len() > MOST_FLOWS {
            output.readings = combine_flows(output.readings, &Scope::Role(role));
        }
        Ok(output)
    })
}

/// Combines the readings of all flows into one per metric.
fn combine_flows(readings: Vec<Reading>, scope: &Scope) -> Vec<Reading> {
    let of_end = |one| Reading { scope: scope.clone(), ..one };
    Reading::combined(readings.into_iter().map(of_end))
}

fn read_all(flows: &[OwnedFd]) -> Result<Vec<TcpInfo>, Fault> {
    flows
        .iter()
        .enumerate()
        .map(|(flow, socket)| {
            tcp::info(socket.as_fd())
                .map_err(|e| Fault::system(format_args!("tcp-info: TCP_INFO of flow {flow}"), &e))
        })
        .collect()
}

fn enter(output: &mut Output, before: &TcpInfo, after: &TcpInfo, scope: &Scope) {
    let gained = |from: u64, to: u64| to.saturating_sub(from) as f64;
    let passed = |from: f64, to: f64| (to - from).max(0.0);
    let lost = gained(before.retransmits, after.retransmits);
    for (metric, unit, value) in [
        ("tcp.retransmits", Unit::Count, lost),
        ("tcp.rwnd_limited", Unit::Seconds, passed(before.rwnd_limited, after.rwnd_limited)),
        ("tcp.sndbuf_limited", Unit::Seconds, passed(before.sndbuf_limited, after.sndbuf_limited)),
        ("tcp.busy", Unit::Seconds, passed(before.busy, after.busy)),
        ("tcp.bytes_received", Unit::Bytes, gained(before.bytes_received, after.bytes_received)),
        ("tcp.bytes_acked", Unit::Bytes, gained(before.bytes_acked, after.bytes_acked)),
    ] {
        output.add(metric, unit, value, scope);
    }
    for (metric, unit, value) in [
        ("tcp.cwnd", Unit::Count, after.cwnd as f64),
        ("tcp.snd_mss", Unit::Bytes, after.snd_mss as f64),
        ("tcp.rcv_mss", Unit::Bytes, after.rcv_mss as f64),
        ("tcp.rtt", Unit::Seconds, after.rtt),
        ("tcp.delivery_rate", Unit::BytesPerSecond, after.delivery_rate),
    ] {
        output.level(metric, unit, value, scope);
    }
    if let Some(least) = after.min_rtt {
        let least = Reading::min("tcp.min_rtt", Unit::Seconds, least, scope.clone());
        output.readings.push(least);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytepath_record::Role;

    fn value(output: &Output, metric: &str) -> Option<f64> {
        output.readings.iter().find(|r| r.metric == metric).map(|r| r.value)
    }

    #[test]
    fn counters_are_differences_and_levels_are_not() {
        let before = TcpInfo {
            retransmits: 3,
            bytes_acked: 1000,
            busy: 1.0,
            rwnd_limited: 0.25,
            cwnd: 10,
            rtt: 0.5,
            ..TcpInfo::default()
        };
        let after = TcpInfo {
            retransmits: 5,
            bytes_acked: 5000,
            busy: 4.0,
            rwnd_limited: 1.0,
            cwnd: 40,
            rtt: 0.125,
            min_rtt: Some(0.0625),
            ..TcpInfo::default()
        };
        let mut output = Output::default();
        enter(&mut output, &before, &after, &Scope::Flow(Role::Sender, 0));
        for (metric, expected) in [
            ("tcp.retransmits", 2.0),
            ("tcp.bytes_acked", 4000.0),
            ("tcp.busy", 3.0),
            ("tcp.rwnd_limited", 0.75),
            ("tcp.cwnd", 40.0),
            ("tcp.rtt", 0.125),
            ("tcp.min_rtt", 0.0625),
        ] {
            assert_eq!(value(&output, metric), Some(expected), "{metric}");
        }
    }

    #[test]
    fn many_flows_have_one_reading_of_each_metric() {
        let mut output = Output::default();
        for (flow, (lost, cwnd, min_rtt)) in
            (0..).zip([(2, 10, None), (3, 40, Some(0.5)), (0, 40, Some(0.25))])
        {
            let after = TcpInfo { retransmits: lost, cwnd, min_rtt, ..TcpInfo::default() };
            enter(&mut output, &TcpInfo::default(), &after, &Scope::Flow(Role::Sender, flow));
        }
        output.readings = combine_flows(output.readings, &Scope::Role(Role::Sender));
        assert_eq!(output.readings.len(), 12);
        assert!(output.readings.iter().all(|r| r.scope == Scope::Role(Role::Sender)));
        for (metric, expected) in
            [("tcp.retransmits", 5.0), ("tcp.cwnd", 30.0), ("tcp.min_rtt", 0.25)]
        {
            assert_eq!(value(&output, metric), Some(expected), "{metric}");
        }
    }

    #[test]
    fn leaves_out_unmeasured_min_rtt() {
        let unmeasured = TcpInfo::default();
        let mut output = Output::default();
        enter(&mut output, &unmeasured, &unmeasured, &Scope::Flow(Role::Receiver, 0));
        assert_eq!(value(&output, "tcp.min_rtt"), None);
    }
}
