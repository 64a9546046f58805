//! Requests and responses between two agents in this process: what is counted, what a client times
//! and from when, and how overload ends.

use crate::threads::{InProcess, MadeUp, Silent, made_up, socket};
use bytepath::connection::{Connection, KERNEL_TCP, KERNEL_UDP, Transport};
use bytepath::path::{self, DataPath};
use bytepath::record::{
    CallRow, Cell, Fault, Role, RoleRecord, Schedule, Scope, Trial, TrialStatus, Unit, Work,
};
use bytepath::spec::{self, CellRequest};
use bytepath::study::{Laboratory, Plan, path_spec, run_study};
use bytepath::workload::{Account, Group, HalfConfig, Phase, Recorder, Rx, Tx};
use bytepath::{meter, sys};
use bytepath_testing::{alone, shared};
use std::sync::LazyLock;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

#[test]
fn both_ends_count_the_same_exchanges_and_each_has_its_latency() {
    let _shared = shared();
    for workload in ["rr:request=100,response=300", "rr:request=7,response=13,outstanding=16"] {
        let trial = run("plain", workload, "flows=2,touch=verify", 0.2).unwrap();
        assert_eq!(trial.status, TrialStatus::Measured, "{workload}");
        assert_eq!((trial.work, trial.label.as_str()), (Work::Exchanges, "copied"));
        let [client, server] = trial.roles.as_slice() else { panic!("two roles") };
        let each = if workload.contains("100") { 400 } else { 20 };
        assert_eq!(client.total_bytes, server.total_bytes);
        assert_eq!(client.total_bytes % each, 0, "{workload}: an exchange was cut");
        assert!(trial.count > 0 && trial.count <= client.total_bytes / each);
        assert!(server.count > 0 && server.count <= server.total_bytes / each);
        assert_eq!((client.count, client.window), (trial.count, trial.window));
        let latency = trial.latency.as_ref().unwrap();
        assert_eq!(latency.count(), trial.count, "{workload}");
        assert!(latency.max().unwrap() < trial.window + 0.1);
        for role in [client, server] {
            let calls = |of: &[CallRow]| of.iter().map(|call| call.calls).sum::<u64>();
            let by_thread: Vec<u64> =
                role.calls_by_thread.iter().map(|of| calls(&of.calls)).collect();
            assert_eq!(by_thread.len(), 2, "{workload}: {by_thread:?}");
            assert_eq!(by_thread.iter().sum::<u64>(), calls(&role.calls), "{workload}");
            assert_eq!(role.ledger.delivered, role.total_bytes);
            assert!(role.ledger.evidence.iter().any(|e| e.came_in));
        }
    }
}

#[test]
fn datagrams_are_exchanged_by_every_way_to_wait_for_them() {
    for (path, workload) in [
        ("socket", "rr"),
        ("socket:wait=epoll", "rr:request=1400,response=9000"),
        ("socket:wait=spin", "rr:outstanding=8"),
        ("socket", "rr:rate=2000,outstanding=16"),
    ] {
        datagrams(path, workload);
    }
}

#[test]
fn datagrams_are_exchanged_by_io_uring() {
    let Some(_) = crate::uring::path_for("uring", Role::Receiver, &[]) else { return };
    datagrams("uring", "rr:request=1,response=65507");
    datagrams("uring", "rr:outstanding=8");
}

/// Runs a trial of datagrams, none of which is lost.
fn datagrams(path: &str, workload: &str) {
    let _shared = shared();
    let tx = path.split(':').next().unwrap();
    let trial = run_paths([tx, path], workload, "protocol=udp,flows=2", 0.2).unwrap();
    assert_eq!(trial.status, TrialStatus::Measured, "{path} {workload}");
    let [client, server] = trial.roles.as_slice() else { panic!("two roles") };
    assert_eq!(client.total_bytes, server.total_bytes, "{path} {workload}");
    assert_eq!(trial.latency.unwrap().count(), trial.count);
    assert!(trial.count > 0 && client.witness.is_none());
    assert_eq!(trial.label, "copied");
}

#[test]
fn a_lost_datagram_fails_the_trial_by_name() {
    let _shared = shared();
    let trial = run("loses", "rr", "protocol=udp", 0.2).unwrap();
    let TrialStatus::Failed { fault } = trial.status else { panic!("it was measured") };
    assert!(fault.message.contains("a datagram did not arrive"), "{fault}");
    assert!(fault.remedy.unwrap().contains("or TCP"));
}

#[test]
fn refuses_unsupported_datagram_requests_before_the_study() {
    for (path, workload, more, what) in [
        ("plain", "rr:request=64K", "", "does not fit into a datagram"),
        ("plain", "rr", ",congestion=reno", "no congestion control"),
        ("plain", "stream", "", "UDP carries no stream"),
        ("splice", "rr", "", "'splice' does not speak UDP"),
        ("socket:notsent-lowat=1M", "rr", "", "no meaning with UDP"),
    ] {
        let stream = format!("protocol=udp{more}");
        let fault = run_paths([path, "plain"], workload, &stream, 0.1).unwrap_err();
        assert!(fault.to_string().contains(what), "{path} {workload}: {fault}");
    }
}

#[test]
fn the_throughput_of_exchanges_is_a_number_of_them() {
    let _shared = shared();
    let trial = run("plain", "rr:outstanding=4", "flows=2", 0.4).unwrap();
    for (role, flow) in Role::ALL.into_iter().flat_map(|role| [(role, 0), (role, 1)]) {
        let scope = Scope::Flow(role, flow);
        let series = trial.series.iter().find(|s| s.metric == "throughput" && s.scope == scope);
        assert_eq!(series.unwrap().unit, Unit::PerSecond);
    }
    let of = |flow| trial.reading("throughput.flow", &Scope::Flow(Role::Sender, flow)).unwrap();
    let (sum, rate) = (of(0) + of(1), trial.rate().unwrap());
    assert!((sum / rate - 1.0).abs() < 0.5, "{sum} by the meter, {rate} by the client");
}

#[test]
fn event_loops_exchange_with_each_other_and_with_threads() {
    let mut ends = vec![
        ["epoll", "epoll:threads=2"],
        ["epoll:threads=4,trigger=edge", "poll"],
        ["poll:threads=2", "epoll:trigger=oneshot,optimistic=off"],
        ["plain", "epoll:trigger=edge"],
        ["epoll", "plain"],
    ];
    if crate::uring::path_for("uring-loop", Role::Receiver, &[]).is_some() {
        ends.extend([
            ["uring-loop", "uring-loop:threads=2"],
            ["plain", "uring-loop:buffers=1"],
            ["uring-loop:threads=3", "epoll"],
        ]);
    }
    for ends in ends {
        for workload in [
            "rr:request=100,response=30000",
            "rr:request=7,response=13,outstanding=16",
            "rr:rate=5000,outstanding=4,arrivals=poisson",
        ] {
            exchange(ends, workload);
        }
    }
}

/// No message carries its size: ends that differ in one would count different numbers of messages.
#[test]
fn messages_of_several_sizes_are_whole_at_both_ends() {
    let mut ends = vec![["epoll:threads=2", "poll"], ["poll", "epoll:threads=3,trigger=edge"]];
    if crate::uring::path_for("uring-loop", Role::Receiver, &[]).is_some() {
        ends.extend([["epoll", "uring-loop:threads=2"], ["uring-loop", "epoll"]]);
    }
    for ends in ends {
        for workload in [
            "rr:request=64@3+4K@1,response=1@1+100@5+40K@2",
            "rr:request=1@1+2@1+3@1,outstanding=16",
            "rr:response=64@90+16K@9+256K@1,rate=2000,outstanding=4",
        ] {
            exchange(ends, workload);
        }
    }
    refused(&[
        ("socket", "rr:request=64@1+65@1", "'socket' sends and receives messages of one size"),
        ("epoll", "rr:request=1M,response=64@1+1M@1,outstanding=8", "both ends may wait"),
    ]);
    let fault = run_paths(["epoll", "socket"], "rr:response=64@1+65@1", "", 0.1).unwrap_err();
    assert!(fault.to_string().contains("choose event loops for both ends"), "{fault}");
}

/// Runs a trial of six connections, in which nothing is lost and no connection is idle.
fn exchange(ends: [&str; 2], workload: &str) {
    let _shared = shared();
    let trial = run_paths(ends, workload, "flows=6", 0.2).unwrap();
    assert_eq!(trial.status, TrialStatus::Measured, "{ends:?} {workload}");
    let [client, server] = trial.roles.as_slice() else { panic!("two roles") };
    assert_eq!(client.total_bytes, server.total_bytes, "{ends:?} {workload}");
    assert_eq!(trial.label, "copied");
    assert_eq!(trial.latency.as_ref().unwrap().count(), trial.count, "{ends:?} {workload}");
    for role in Role::ALL {
        let of = |metric: &str| trial.reading(metric, &Scope::Role(role));
        let fairness = of("connections.fairness").unwrap();
        let sum: f64 = of("connections.least").unwrap() + of("connections.most").unwrap();
        assert!((0.2..=1.0).contains(&fairness) && sum > 0.0, "{ends:?} {workload}: {fairness}");
        let is_loop = ends[role as usize] != "plain";
        assert_eq!(of("loop.connections"), is_loop.then_some(6.0), "{ends:?} {workload}");
    }
}

#[test]
fn event_loops_stream_to_each_other_and_to_and_from_threads() {
    let mut ends = vec![
        ["epoll", "epoll:threads=2"],
        ["epoll:threads=4,trigger=edge", "poll"],
        ["poll:threads=2", "epoll:trigger=oneshot,optimistic=off"],
        ["epoll:trigger=oneshot", "epoll:trigger=edge,optimistic=on"],
        ["plain", "epoll"],
        ["splice", "poll"],
        ["epoll", "tcp-zerocopy-receive"],
        ["epoll:threads=3", "plain"],
    ];
    if crate::uring::path_for("uring-loop", Role::Receiver, &[]).is_some() {
        ends.extend([
            ["uring-loop", "uring-loop:threads=2"],
            ["plain", "uring-loop:buffers=1"],
            ["uring-loop:threads=3,sqpoll=on", "epoll"],
            ["epoll", "uring-loop:bundle=on,incremental=on"],
        ]);
    }
    for ends in ends {
        for stream in ["flows=6", "flows=6,message-size=1000,read-size=64K"] {
            stream_over(ends, stream);
        }
    }
    stream_over(["epoll", "poll"], "flows=6,read-size=64K,read-memory=1M");
}

/// Runs a trial of six connections, over which everything sent arrives.
fn stream_over(ends: [&str; 2], stream: &str) {
    let _shared = shared();
    let trial = run_paths(ends, "stream", stream, 0.2).unwrap();
    assert_eq!(trial.status, TrialStatus::Measured, "{ends:?} {stream}");
    let [sender, receiver] = trial.roles.as_slice() else { panic!("two roles") };
    assert_eq!(sender.total_bytes, receiver.total_bytes, "{ends:?} {stream}");
    assert!(trial.count > 0 && trial.count < receiver.total_bytes, "{ends:?} {stream}");
    for (role, record) in Role::ALL.into_iter().zip([sender, receiver]) {
        assert_eq!(record.ledger.delivered, record.total_bytes, "{ends:?} {stream}");
        let of = |metric: &str| trial.reading(metric, &Scope::Role(role));
        let (least, most) = (of("connections.least").unwrap(), of("connections.most").unwrap());
        let fairness = of("connections.fairness").unwrap();
        assert!((0.16..=1.0).contains(&fairness), "{ends:?} {stream}: {fairness}");
        assert!(least <= most && 6.0 * most >= record.count as f64, "{ends:?} {stream}");
        assert!(6.0 * least <= record.count as f64, "{ends:?} {stream}");
        let is_loop =
            ["epoll", "poll", "uring-loop"].iter().any(|l| ends[role as usize].starts_with(l));
        assert_eq!(of("loop.connections"), is_loop.then_some(6.0), "{ends:?} {stream}");
        if is_loop {
            assert_eq!(record.ledger.copied, record.total_bytes, "{ends:?} {stream}");
        }
    }
}

#[test]
fn event_loops_stream_both_ways_at_once() {
    let _shared = shared();
    let mut ends = vec![
        ["epoll", "epoll:threads=2"],
        ["epoll:threads=3,trigger=edge,optimistic=on", "poll"],
        ["poll:threads=2", "epoll:trigger=oneshot,optimistic=off"],
    ];
    if crate::uring::path_for("uring-loop", Role::Receiver, &[]).is_some() {
        ends.extend([
            ["uring-loop:threads=2", "epoll:trigger=edge"],
            ["epoll", "uring-loop:buffers=2"],
            ["uring-loop:sqpoll=on", "uring-loop:bundle=on,incremental=on"],
        ]);
    }
    for ends in ends {
        let trial = run_paths(ends, "stream:direction=both", "flows=6", 0.2).unwrap();
        assert_eq!(trial.status, TrialStatus::Measured, "{ends:?}");
        assert_eq!((trial.work, trial.label.as_str()), (Work::Bytes, "copied"));
        let [sender, receiver] = trial.roles.as_slice() else { panic!("two roles") };
        let [forward, reverse] = [false, true].map(|came_in| {
            let bytes = |record: &RoleRecord, came_in| {
                let entries = record.ledger.evidence.iter().filter(|e| e.came_in == came_in);
                entries.map(|e| e.bytes).sum::<u64>()
            };
            let [sent, arrived] = [bytes(sender, came_in), bytes(receiver, !came_in)];
            assert_eq!(sent, arrived, "{ends:?}");
            sent
        });
        assert!(forward > 0 && reverse > 0, "{ends:?}: {forward} and {reverse} bytes");
        assert_eq!([sender, receiver].map(|r| r.total_bytes), [forward + reverse; 2], "{ends:?}");
        let of = |metric, role| trial.reading(metric, &Scope::Role(role)).unwrap();
        let ways =
            [of("throughput.forward", Role::Receiver), of("throughput.reverse", Role::Sender)];
        assert!(ways.iter().all(|rate| *rate > 0.0), "{ends:?}: {ways:?}");
        let sum: f64 = ways.iter().sum();
        assert!((trial.rate().unwrap() / sum - 1.0).abs() < 1e-3, "{ends:?}: {ways:?}");
    }
}

#[test]
fn incast_goes_in_rounds_and_times_these() {
    let _shared = shared();
    let mut ends = vec![
        ["epoll:threads=2", "epoll"],
        ["poll:threads=2,optimistic=off", "epoll:threads=3"],
        ["epoll:threads=2,trigger=edge", "plain"],
    ];
    if crate::uring::path_for("uring-loop", Role::Receiver, &[]).is_some() {
        ends.push(["uring-loop:threads=2", "uring-loop"]);
    }
    for ends in ends {
        let trial = run_paths(ends, "rr:incast=on,response=64K", "flows=6", 0.2).unwrap();
        assert_eq!(trial.status, TrialStatus::Measured, "{ends:?}");
        let [client, server] = trial.roles.as_slice() else { panic!("two roles") };
        assert_eq!(client.total_bytes, server.total_bytes, "{ends:?}");
        // Two threads with three connections each: no round was cut.
        assert_eq!(client.total_bytes % (3 * (64 + (64 << 10))), 0, "{ends:?}");
        let (rounds, exchanges) = (trial.latency.as_ref().unwrap().count(), trial.count);
        // Rounds at the edges of the window are only partly within it.
        let apart = exchanges.abs_diff(3 * rounds);
        assert!(
            rounds > 0 && apart <= 2 * 2 * 3,
            "{ends:?}: {rounds} rounds, {exchanges} exchanges"
        );
        let fairness = trial.reading("connections.fairness", &Scope::Role(Role::Sender)).unwrap();
        assert!(fairness > 0.3, "{ends:?}: {fairness}");
    }
    let idle = run_paths(["epoll", "epoll"], "rr:incast=on,idle=4", "flows=6", 0.2).unwrap();
    assert_eq!(idle.roles[0].total_bytes % (2 * 128), 0);
    refused(&[
        ("socket", "rr:incast=on", "choose an event loop for the client"),
        ("epoll", "rr:incast=on,rate=1000", "leave rate out"),
        ("epoll", "rr:incast=on,outstanding=2", "leave outstanding at 1"),
    ]);
}

#[test]
fn users_think_between_a_response_and_a_request() {
    let _shared = shared();
    for arrivals in ["even", "poisson"] {
        let workload = format!("rr:think=20ms,arrivals={arrivals}");
        let trial = run_paths(["epoll:threads=2", "epoll"], &workload, "flows=100", 0.5).unwrap();
        assert_eq!(trial.status, TrialStatus::Measured, "{arrivals}");
        // Each of 100 users sends 50 times a second at most, on average.
        let rate = trial.rate().unwrap();
        assert!(rate > 1000.0 && rate < 1.2 * 5000.0, "{arrivals}: {rate}");
    }
    refused(&[
        ("socket", "rr:think=20ms", "choose an event loop for the client"),
        ("epoll", "rr:think=20ms,rate=1000", "leave think at 0ms"),
        ("epoll", "rr:think=20ms,incast=on", "leave think at 0ms"),
    ]);
}

/// Checks that each client and workload is refused with these words.
fn refused(all: &[(&str, &str, &str)]) {
    for (client, workload, what) in all {
        let fault = run_paths([*client, "epoll"], workload, "flows=6", 0.1).unwrap_err();
        assert!(fault.to_string().contains(what), "{client} {workload}: {fault}");
    }
}

#[test]
fn idle_connections_exchange_nothing_and_take_part_in_nothing() {
    let _shared = shared();
    for workload in ["rr:idle=40", "rr:idle=40,rate=5000,outstanding=2"] {
        let trial = run_paths(["epoll:threads=3", "poll"], workload, "flows=50", 0.2).unwrap();
        assert_eq!(trial.status, TrialStatus::Measured, "{workload}");
        let of = |metric: &str| trial.reading(metric, &Scope::Role(Role::Receiver)).unwrap();
        assert_eq!(of("loop.connections"), 50.0);
        // Counted over all 50 it would be at most 0.2.
        assert!(of("connections.fairness") > 0.2, "{workload}: {}", of("connections.fairness"));
    }
}

#[test]
fn refuses_loops_where_there_are_no_many_connections_and_more_than_there_are_ports() {
    let fault = run_paths(["epoll"; 2], "packets", "", 0.1).unwrap_err().to_string();
    assert!(fault.contains("'epoll' is an event loop") && fault.contains("workload rr"), "{fault}");
    let load =
        run_paths(["socket", "epoll"], "stream:load=trickle", "", 0.1).unwrap_err().to_string();
    run_paths(["epoll", "socket"], "stream:load=trickle", "", 0.1).unwrap();
    assert!(load.contains("thread for each flow") && load.contains("leave load at none"), "{load}");
    for ends in [["epoll", "socket"], ["socket", "epoll"], ["socket", "socket"]] {
        let fault = run_paths(ends, "stream:direction=both", "", 0.1).unwrap_err().to_string();
        assert!(
            fault.contains("'socket' moves bytes one way") && fault.contains("epoll+epoll"),
            "{fault}"
        );
    }
    let fault = run_paths(["epoll"; 2], "rr", "protocol=udp", 0.1).unwrap_err().to_string();
    assert!(fault.contains("'epoll' does not speak UDP"), "{fault}");
    let fault = run_paths(["epoll"; 2], "rr", "flows=60000", 0.1).unwrap_err().to_string();
    assert!(
        fault.contains("ip_local_port_range")
            || fault.contains(" files, and this process may have "),
        "{fault}"
    );
}

#[test]
fn an_overload_is_timed_from_when_requests_were_due_and_ends() {
    let _shared = shared();
    for arrivals in ["even", "poisson"] {
        let workload = format!("rr:rate=100000000,outstanding=4,arrivals={arrivals}");
        let trial = run("plain", &workload, "", 0.3).unwrap();
        assert_eq!(trial.status, TrialStatus::Measured);
        let latency = trial.latency.as_ref().unwrap();
        assert_eq!(latency.count(), trial.count);
        // A request due at the start waits as long as the client is behind.
        let max = latency.max().unwrap();
        assert!(max > 0.5 * trial.window, "{arrivals}: {max} s");
    }
}

#[test]
fn a_client_and_a_server_that_would_wait_for_each_other_are_refused() {
    let workload = "rr:request=1M,response=1M,outstanding=8";
    let fault = run("plain", workload, "", 0.1).unwrap_err();
    assert!(fault.message.contains("both ends may wait"), "{fault}");
    assert!(fault.to_string().contains("outstanding=1"), "{fault}");
}

mod timing {
    use super::*;
    use bytepath::record::Percentile;

    #[test]
    #[ignore = "timing"]
    fn an_open_loop_delivers_its_rate() {
        let _alone = alone();
        for workload in
            ["rr:rate=500,outstanding=16", "rr:rate=500,outstanding=16,arrivals=poisson"]
        {
            let trial = run("plain", workload, "flows=2", 2.0).unwrap();
            let rate = trial.rate().unwrap();
            assert!((rate / 500.0 - 1.0).abs() < 0.1, "{workload}: {rate}");
        }
    }

    /// A server that stalls for 50 ms at 1000 requests a second delays about 50 of them, not just
    /// the one that a closed loop would have in flight.
    #[test]
    #[ignore = "timing"]
    fn a_stall_is_seen_by_every_request_that_was_due() {
        let _alone = alone();
        let p99 = |workload: &str| {
            let trial = run("stalls", workload, "", 1.0).unwrap();
            trial.latency.unwrap().percentile(Percentile::P99).unwrap()
        };
        for outstanding in [1, 64] {
            let open = p99(&format!("rr:rate=1000,outstanding={outstanding}"));
            assert!((0.03..0.06).contains(&open), "outstanding {outstanding}: p99 {open} s");
        }
        let closed = p99("rr");
        assert!(closed < 0.03, "a closed loop leaves it out: {closed} s");
    }
}

/// Runs one cell, its path and workload in the notation of the command line; returns its trial.
fn run(path: &str, workload: &str, stream: &str, window: f64) -> Result<Trial, Fault> {
    run_paths([path, path], workload, stream, window)
}

/// Like [`run`], with a path for each direction.
fn run_paths(
    [tx, rx]: [&str; 2],
    workload: &str,
    stream: &str,
    window: f64,
) -> Result<Trial, Fault> {
    let folder = tempfile::tempdir().unwrap();
    let paths = [format!("{tx}+{rx}")];
    let cores = spec::parse_cores("none", sys::thread::allowed().unwrap()).unwrap();
    let ask = CellRequest { workload, stream, ..CellRequest::of(&paths, &cores) };
    let (cells, baseline) = spec::cells(&ask, &path_spec(&PATHS, &[])).unwrap();
    let cells: Vec<Cell> = cells.into_iter().filter(|cell| !cell.null).collect();
    let schedule = Schedule { seed: 7, ..Schedule::trials(1, 0.05, window) };
    let plan = Plan {
        meters: vec!["throughput".into(), "syscalls".into()],
        testbed: "in-process".into(),
        ..Plan::bare(cells, baseline, schedule, folder.path())
    };
    let stop = AtomicBool::new(false);
    let program = "no program is started".into();
    let (paths, meters) = (PATHS.as_slice(), meter::CATALOG);
    let testbed = &InProcess { paths, meters };
    let laboratory = Laboratory { paths, meters, testbed, program, stop: &stop };
    let (study, ended) = run_study(&laboratory, &plan, &mut Silent);
    ended?;
    Ok(study.expect("it ran").trials.into_iter().next().expect("one cell, one block"))
}

/// Plain sockets; the name gives what goes wrong at the server, once.
struct Sockets(&'static str);

static PATHS: LazyLock<Vec<&'static DataPath>> = LazyLock::new(|| {
    let made_up: &[&'static DataPath] = made_up![Sockets: "plain", "stalls", "loses"];
    [made_up, path::CATALOG].concat()
});

/// How long the server stalls, once.
const STALL: Duration = Duration::from_millis(50);

impl MadeUp for Sockets {
    const TRANSPORTS: &'static [&'static Transport] = &[KERNEL_TCP, KERNEL_UDP];

    fn open_tx(
        &self,
        job: &HalfConfig,
        connection: &dyn Connection,
        group: &Group,
    ) -> Result<Box<dyn Tx>, Fault> {
        (socket().tx.unwrap().open)(job, connection, group)
    }

    fn open_rx(
        &self,
        job: &HalfConfig,
        connection: &dyn Connection,
        group: &Group,
    ) -> Result<Box<dyn Rx>, Fault> {
        let rx = (socket().rx.unwrap().open)(job, connection, group)?;
        let goes_wrong = self.0 != "plain" && job.role == Role::Receiver;
        Ok(if goes_wrong { Box::new(GoingWrong { rx, next: self.0 }) } else { rx })
    }
}

struct GoingWrong {
    rx: Box<dyn Rx>,
    next: &'static str,
}

impl Rx for GoingWrong {
    fn receive(&mut self, recorder: &mut Recorder) -> Result<bool, Fault> {
        if recorder.phase() != Phase::Window {
            return self.rx.receive(recorder);
        }
        match std::mem::take(&mut self.next) {
            // It does not read for a while.
            "stalls" => std::thread::sleep(STALL),
            // Its first read in the window is not counted.
            "loses" => return self.rx.receive(&mut recorder.companion()),
            _ => {}
        }
        self.rx.receive(recorder)
    }

    fn account(&mut self, recorder: &mut Recorder) -> Result<Account, Fault> {
        self.rx.account(recorder)
    }
}
