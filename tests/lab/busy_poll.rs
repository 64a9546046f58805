//! Busy polling over a link with a queue to poll and over one without: the kernel counts what it
//! received by busy polling.

use crate::placement::laboratory;
use bytepath::record::{Cell, Role, Schedule, Scope, Trial};
use bytepath::spec::{self, CellRequest};
use bytepath::study::{OpenTestbed, path_spec};
use bytepath::sys::lasting_namespace::within;
use bytepath::sys::netlink::Netlink;
use bytepath::{meter, path, sys};
use bytepath_testing::{shared, skip};
use std::fs::{self, File};
use std::os::fd::AsFd;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

/// Every way to wait for requests. With the plain exchange both ends receive, so both poll; with
/// event loops only the second half, the server, does.
const WAYS: [&str; 8] = [
    "socket+socket:busy-poll=5000",
    "socket+socket:wait=spin,busy-poll=5000",
    "socket+socket:wait=epoll,busy-poll=5000",
    "socket+socket:busy-poll=5000,prefer-busy-poll=on,busy-poll-budget=16",
    "uring+uring:busy-poll=5000",
    "uring+uring:busy-poll=5000,napi-tracking=static",
    "epoll+epoll:busy-poll=5000,busy-poll-budget=16",
    "epoll+uring-loop:busy-poll=5000,prefer-busy-poll=on,napi-tracking=static",
];

#[test]
fn a_queue_is_polled_by_every_way_to_wait() {
    let _shared = shared();
    for path in WAYS {
        let Some(trial) = run(path, "wire:threaded-napi=off") else { return };
        assert!(polled(&trial) > 0.0, "{path}: nothing was received by polling");
        assert_eq!(unpolled(&trial), None, "{path}");
        let by_client = polled_by(&trial, Role::Sender);
        assert_eq!(
            by_client > 0.0,
            !path.starts_with("epoll+"),
            "{path}: {by_client} by the client"
        );
    }
    let Some(trial) = run("socket", "wire:threaded-napi=off") else { return };
    assert_eq!(polled(&trial), 0.0, "nobody polls unless asked to");
}

/// The receiver's device gets a new queue while requests arrive by it: GRO is turned off and on.
#[test]
fn a_queue_that_changes_is_named_where_the_list_is_fixed() {
    let _shared = shared();
    for path in WAYS.into_iter().filter(|way| way.contains("uring")) {
        let Some(trial) = run_while(path, "wire:threaded-napi=off", renew_queue) else { return };
        let note =
            note_of_server(&trial, "1 of 1 connections receive from a queue that was not known");
        assert_eq!(note.is_some(), path.contains("static"), "{path}: {note:?}");
        let warned =
            trial.warnings.iter().any(|warning| warning.contains("queue that was not known"));
        assert_eq!(warned, note.is_some(), "{path}: {:?}", trial.warnings);
        assert_eq!(unpolled(&trial), None, "{path}");
    }
}

/// Moves reception in the network namespace of `process` to a new queue, once packets flow.
fn renew_queue(process: u32) {
    let begun = Instant::now();
    let (name, packets) = loop {
        let table = fs::read_to_string(format!("/proc/{process}/net/dev")).unwrap();
        let mut devices = table.lines().skip(2).map(|line| line.split_once(':').unwrap());
        let (name, counts) = devices.find(|(name, _)| name.trim() != "lo").unwrap();
        let packets: u64 = counts.split_whitespace().nth(1).unwrap().parse().unwrap();
        if packets > 50 || begun.elapsed() > Duration::from_secs(10) {
            break (name.trim().to_owned(), packets);
        }
        std::thread::sleep(Duration::from_millis(1));
    };
    assert!(packets > 50, "{name}: only {packets} packets came");
    let namespace = File::open(format!("/proc/{process}/ns/net")).unwrap();
    let renew = || {
        let mut netlink = Netlink::new();
        let index = netlink.link(&name).unwrap().unwrap().index;
        for on in [false, true] {
            netlink.set_features(index, &[("rx-gro", on)]).unwrap();
        }
    };
    within(namespace.as_fd(), renew).unwrap();
}

#[test]
fn a_link_without_a_queue_is_named() {
    let _shared = shared();
    for path in WAYS {
        let Some(trial) = run(path, "wire:gro=off,threaded-napi=off") else { return };
        assert_eq!(polled(&trial), 0.0, "{path}");
        let note = unpolled(&trial).unwrap_or_else(|| panic!("{path}: no note"));
        assert!(note.contains("for 1 of 1 connections"), "{path}: {note}");
    }
}

/// Packets that the server's host received by busy polling.
fn polled(trial: &Trial) -> f64 {
    polled_by(trial, Role::Receiver)
}

fn polled_by(trial: &Trial, role: Role) -> f64 {
    let scope = Scope::Role(role);
    trial.reading("tcp-stack.BusyPollRxPackets", &scope).expect("the kernel counts them")
}

/// Returns the server's note that there was nothing to poll.
fn unpolled(trial: &Trial) -> Option<&str> {
    note_of_server(trial, "busy-poll polled nothing")
}

/// Returns the server's note that contains `words`.
fn note_of_server<'t>(trial: &'t Trial, words: &str) -> Option<&'t str> {
    let server = trial.roles.iter().find(|role| role.role == Role::Receiver).unwrap();
    server.notes.iter().map(String::as_str).find(|note| note.contains(words))
}

/// Runs a trial of requests with pauses in which the server waits. Returns `None`, with the reason
/// printed, if this host cannot run it.
fn run(path: &str, link: &str) -> Option<Trial> {
    run_while(path, link, |_| ())
}

/// Like [`run`], doing `work` meanwhile with a process in the server's network namespace.
fn run_while(path: &str, link: &str, work: impl FnOnce(u32) + Send) -> Option<Trial> {
    if !sys::namespace::privileged() {
        skip!("prefer-busy-poll and busy-poll-budget: not as root");
        return None;
    }
    if sys::thread::allowed().unwrap().len() < 2 {
        skip!("who polls needs a CPU of its own");
        return None;
    }
    let cores = spec::parse_cores("two-cores", sys::thread::allowed().unwrap()).unwrap();
    let (paths, workload) = ([path.to_owned()], "rr:rate=1000");
    let ask = CellRequest { workload, link, ..CellRequest::of(&paths, &cores) };
    let (cells, _) = spec::cells(&ask, &path_spec(path::CATALOG, path::PAIRS)).unwrap();
    let cell: Cell = cells.into_iter().find(|cell| !cell.null).unwrap();
    let stop = AtomicBool::new(false);
    let laboratory = laboratory(&stop);
    let mut stand = match OpenTestbed::raise(&laboratory, &cell) {
        Ok(stand) => stand,
        Err(fault) => {
            skip!("{path}: {fault}");
            return None;
        }
    };
    let meters: Vec<_> = meter::regular().filter(|meter| meter.name == "tcp-stack").collect();
    let server = stand.pid(Role::Receiver);
    let trial = std::thread::scope(|scope| {
        scope.spawn(move || work(server));
        stand.run(&cell, &meters, &Schedule::trials(1, 0.1, 0.3), None)
    });
    Some(trial.unwrap_or_else(|fault| panic!("{path} on {link}: {fault}")))
}
