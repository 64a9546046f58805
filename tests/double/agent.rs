//! The agents of the testbed's tests, which execute one small command per line, and a controller to
//! be killed.

use bytepath::host::AgentPipe;
use bytepath::record::Role;
use bytepath::record::wire::LinkEnd;
use bytepath::sys::netlink::Netlink;
use bytepath::testbed::{self, Site};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};

const MIB: usize = 1 << 20;

/// Executes one command per line, until end of file.
pub fn agent() {
    let mut receiving = None;
    for line in std::io::stdin().lines() {
        let line = line.unwrap();
        let (verb, rest) = line.split_once(' ').unwrap_or((&line, ""));
        match verb {
            "pid" => say(std::process::id()),
            "who" => {
                let namespace = std::fs::read_link("/proc/self/ns/net").unwrap();
                say(format_args!("{}/{}", std::process::id(), namespace.display()));
            }
            "link" => {
                let end: LinkEnd = serde_json::from_str(rest).unwrap();
                let notes = bytepath::host::link_end(&end).map(|(_, notes)| notes);
                say(serde_json::to_string(&notes).unwrap());
            }
            "device" => say(describe(rest)),
            "counters" => say(counters(rest)),
            "listen" => {
                let address: IpAddr = rest.parse().unwrap();
                let listener = TcpListener::bind((address, 0)).unwrap();
                say(listener.local_addr().unwrap().port());
                receiving = Some(std::thread::spawn(move || {
                    let mut stream = listener.accept().unwrap().0;
                    std::io::copy(&mut stream, &mut std::io::sink()).unwrap()
                }));
            }
            "received" => say(receiving.take().unwrap().join().unwrap()),
            "send" => {
                let (peer, bytes) = rest.split_once(' ').unwrap();
                let peer: SocketAddr = peer.parse().unwrap();
                let mut stream = TcpStream::connect(peer).unwrap();
                let mut left: usize = bytes.parse().unwrap();
                let chunk = vec![7; MIB];
                while left > 0 {
                    let n = left.min(chunk.len());
                    stream.write_all(&chunk[..n]).unwrap();
                    left -= n;
                }
                say("sent");
            }
            _ => panic!("what is '{line}'?"),
        }
    }
}

/// Starts a testbed, prints who its agents are, and stays until it is killed or its test has ended.
pub fn controller() {
    let own = std::env::current_exe().unwrap();
    let mut raised = testbed::CATALOG[0].raise(&Site::of(&own)).unwrap();
    let mut pipes = Role::ALL.map(|role| raised.host(role).take_pipe());
    for AgentPipe { to_agent, from_agent } in &mut pipes {
        writeln!(to_agent, "who").unwrap();
        to_agent.flush().unwrap();
        let mut line = String::new();
        BufReader::new(from_agent).read_line(&mut line).unwrap();
        print!("{line}");
    }
    std::io::stdin().read_to_end(&mut Vec::new()).unwrap();
}

fn say(text: impl std::fmt::Display) {
    println!("{text}");
}

fn describe(device: &str) -> String {
    let mut netlink = Netlink::new();
    match netlink.link(device).unwrap() {
        None => "none".into(),
        Some(link) => match netlink.features(link.index) {
            Ok(features) => {
                let napis = netlink.napis(link.index);
                format!("{link:?} {:?} {napis:?}", features.active)
            }
            // The device was removed between the two queries.
            Err(_) if netlink.link(device).unwrap().is_none() => "none".into(),
            Err(error) => panic!("{device}: {error}"),
        },
    }
}

/// Packets and bytes that a device received, and packets that reached IP.
fn counters(device: &str) -> String {
    let text = std::fs::read_to_string("/proc/net/dev").unwrap();
    let line = text.lines().find_map(|l| l.trim().strip_prefix(&format!("{device}:"))).unwrap();
    let fields: Vec<&str> = line.split_whitespace().collect();
    let snmp = std::fs::read_to_string("/proc/net/snmp").unwrap();
    let to_ip = snmp.lines().filter(|l| l.starts_with("Ip: ")).nth(1).unwrap();
    // "Ip:" Forwarding DefaultTTL InReceives
    let to_ip = to_ip.split_whitespace().nth(3).unwrap();
    format!("{} {} {to_ip}", fields[1], fields[0])
}
