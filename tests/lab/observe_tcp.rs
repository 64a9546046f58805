//! What `bytepath observe` reports of a program's TCP connections over a bad wire: two hosts
//! (network namespaces) with a tap each, and a thread that carries frames between them and drops
//! some. Needs root, unshare(1), nsenter(1), /dev/net/tun and iperf3; else it is skipped.

use crate::observe::{parse, text, wait_for, works};
use crate::places::Place;
use bytepath::record::{Connection, Ending, Observation};
use bytepath::sys::packet;
use bytepath::sys::tap::{self, Tap};
use bytepath_testing::{shared, skip};
use std::os::fd::{AsFd, OwnedFd};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

#[test]
fn reports_retransmissions_of_a_lossy_link_first() {
    let folder = tempfile::tempdir().unwrap();
    // One in a hundred full frames from the client is dropped.
    let Some(wire) = Wire::new(folder.path(), 100) else { return };
    let mut server = wire.server();
    let out = folder.path().join("observation.json");
    let program = wire
        .client
        .command(env!("CARGO_BIN_EXE_bytepath"))
        .args(["observe", "--sample", "none", "--json", "--out", out.to_str().unwrap(), "--"])
        .args(["iperf3", "-c", SERVER, "-n", "16M", "-J"])
        .output()
        .unwrap();
    server.kill().unwrap();
    server.wait().unwrap();
    assert!(program.status.success(), "{}{}", text(&program.stdout), text(&program.stderr));
    let seen = parse(&std::fs::read(&out).unwrap());
    let stream = stream(&seen);
    let lost = wire.lost.load(Ordering::Relaxed);
    println!("{lost} frames were lost; {stream:#?}; {:#?}", seen.limits);
    assert!(lost > 50, "the wire has lost {lost} frames");
    // iperf3's server does not wait for the last bytes.
    assert!(stream.retransmits >= lost / 2, "{stream:?}");
    assert!(stream.bytes_acked > 8 << 20 && stream.closed, "{stream:?}");
    assert!(stream.bytes_retransmitted >= stream.retransmits * 1000, "{stream:?}");
    assert!(stream.rtt > 0.0 && stream.busy > 0.0 && stream.min_rtt.is_some(), "{stream:?}");
    // iperf3 reads the same counter, before the last segments are acknowledged.
    let itself: serde_json::Value = serde_json::from_slice(&program.stdout).unwrap();
    let itself = itself["end"]["sum_sent"]["retransmits"].as_u64().unwrap();
    assert!(itself <= stream.retransmits && itself > 0, "iperf3 says {itself}: {stream:?}");
    let counters = &seen.tcp.as_ref().unwrap().counters;
    assert!(counters["RetransSegs"] >= stream.retransmits, "{counters:?}");
    assert!(seen.limits[0].starts_with("Retransmitted "), "{:#?}", seen.limits);
}

#[test]
fn sender_waits_for_a_small_receive_buffer() {
    let _shared = shared();
    let folder = tempfile::tempdir().unwrap();
    let Some(wire) = Wire::new(folder.path(), u64::MAX) else { return };
    let small = "echo 4096 4096 4096 > /proc/sys/net/ipv4/tcp_rmem";
    assert!(wire.server.command("sh").args(["-c", small]).status().unwrap().success());
    let out = folder.path().join("report");
    let observe = || {
        let mut server = wire.server();
        // The program itself enters the namespace, and is followed into it.
        let program = Command::new(env!("CARGO_BIN_EXE_bytepath"))
            .args(["observe", "--sample", "none", "--out", out.to_str().unwrap(), "--", "nsenter"])
            .arg(format!("--target={}", wire.client.pid()))
            .args(["--net", "iperf3", "-c", SERVER, "-n", "16M"])
            .output()
            .unwrap();
        server.kill().unwrap();
        server.wait().unwrap();
        assert!(program.status.success(), "{}{}", text(&program.stdout), text(&program.stderr));
        std::fs::read_to_string(&out).unwrap()
    };
    // On a busy machine a stream of a second may end before it is followed, which is reported.
    let is_followed = |report: &String| !report.contains("have no figures of TCP");
    let report = (0..3).map(|_| observe()).find(is_followed).expect("it is followed once in three");
    let words = report.split_whitespace().collect::<Vec<_>>().join(" ");
    let heading = "What limited it";
    let waits = words.split_once(heading).unwrap_or_else(|| panic!("{report}")).1;
    // On a busy machine segments may be late and retransmitted, which is reported first.
    let window = "% of the time with data in flight waiting for the receiver's window";
    let before = waits.split_once(window).unwrap_or_else(|| panic!("{report}")).0;
    let share = before.rsplit(' ').next().unwrap();
    println!("{share}% of the time with data in flight");
    assert!(share.parse::<f64>().unwrap() > 50.0, "{report}");
    assert!(report.contains("TCP connections, by the kernel's figures"), "{report}");
}

const CLIENT: &str = "10.9.0.1";
const SERVER: &str = "10.9.0.2";

/// The data connection: iperf3 has another one for control.
fn stream(seen: &Observation) -> &Connection {
    assert_eq!(seen.ending, Ending::Code(0));
    let tcp = seen.tcp.as_ref().unwrap_or_else(|| panic!("{:#?}", seen.absent));
    assert_eq!(tcp.connections.len(), 2, "{tcp:#?}");
    let stream = &tcp.connections[0];
    let socket = seen.sockets.iter().find(|socket| socket.inode == stream.inode).unwrap();
    assert_eq!(
        (socket.local.as_ref(), socket.remote.as_ref()),
        (Some(&stream.local), Some(&stream.remote))
    );
    assert!(stream.remote.starts_with(SERVER), "{stream:?}");
    stream
}

/// Two hosts, and the wire that joins them.
struct Wire {
    client: Place,
    server: Place,
    /// Frames lost so far.
    lost: Arc<AtomicU64>,
    over: Arc<AtomicBool>,
    carriers: Vec<JoinHandle<()>>,
}

impl Wire {
    /// Makes a wire that drops one in `one_of` full frames from the client. Returns `None`, with
    /// the reason printed, if it cannot be made.
    fn new(folder: &std::path::Path, one_of: u64) -> Option<Wire> {
        if !rustix::process::geteuid().is_root() {
            skip!("not root");
            return None;
        }
        if Command::new("iperf3").arg("-v").output().is_err() || !works() {
            skip!("no iperf3, or nothing that counts");
            return None;
        }
        let hosts = [Place::new(folder, "client"), Place::new(folder, "server")];
        let mut taps = Vec::new();
        for (place, address) in hosts.iter().zip([CLIENT, SERVER]) {
            let made = place.within(|netlink| {
                let mut queues = tap::make(&Tap::new("wire", 0, 1, 0)?)?;
                let index = netlink.link("wire")?.unwrap().index;
                netlink.add_address(index, address.parse().unwrap(), 24)?;
                netlink.set_up(index)?;
                Ok::<OwnedFd, std::io::Error>(queues.remove(0))
            });
            match made {
                Ok(queue) => taps.push(Arc::new(queue)),
                Err(e) => {
                    skip!("no tap: {e}");
                    return None;
                }
            }
        }
        let (lost, over) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicBool::new(false)));
        let carriers = [(0, 1, one_of), (1, 0, u64::MAX)].map(|(from, to, one_of)| {
            let (from, to) = (Arc::clone(&taps[from]), Arc::clone(&taps[to]));
            let (lost, over) = (Arc::clone(&lost), Arc::clone(&over));
            std::thread::spawn(move || carry(&from, &to, one_of, &lost, &over))
        });
        let [client, server] = hosts;
        Some(Wire { client, server, lost, over, carriers: carriers.into() })
    }

    /// A server for one test, already listening.
    fn server(&self) -> Child {
        let mut server = self.server.command("iperf3");
        let mut server =
            server.args(["-s", "-1", "--forceflush"]).stdout(Stdio::piped()).spawn().unwrap();
        wait_for(server.stdout.as_mut().unwrap(), "listening");
        server
    }
}

impl Drop for Wire {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Relaxed);
        for carrier in self.carriers.drain(..) {
            let carried = carrier.join();
            assert!(carried.is_ok() || std::thread::panicking());
        }
    }
}

fn carry(from: &OwnedFd, to: &OwnedFd, one_of: u64, lost: &AtomicU64, over: &AtomicBool) {
    let (mut room, mut full) = (vec![0; 64 << 10], 0);
    while !over.load(Ordering::Relaxed) {
        match packet::read(from.as_fd(), &mut room).unwrap() {
            Some(length) => {
                full += u64::from(length > 1000);
                if length > 1000 && full.is_multiple_of(one_of) {
                    lost.fetch_add(1, Ordering::Relaxed);
                } else {
                    // If the other side is not up yet, the frame is lost like any other.
                    let _ = rustix::io::write(to, &room[..length]);
                }
            }
            None => _ = packet::wait_readable(from.as_fd(), Duration::from_millis(20)).unwrap(),
        }
    }
}
