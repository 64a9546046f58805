//! Both ends of connections to a loop under test: over loopback or, for a loop over the user-space
//! TCP, over a veth pair in a network namespace that exists as long as they do.

use crate::connection::{Connection, Flow, KERNEL_TCP, Terms, USERSPACE_TCP};
use bytepath_record::wire::Token;
use bytepath_record::{Cell, Fault, LinkSettings, Options, Stream};
use bytepath_sys::lasting_namespace::inside;
use bytepath_sys::netlink::{Netlink, Veth};
use bytepath_sys::tcp;
use bytepath_testing::skip;
use std::io::{BufRead, BufReader};
use std::net::{IpAddr, TcpStream};
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;

/// Clients, the loop's ends of their connections in the same order, and the namespace, if there is
/// one.
pub(super) struct Ends {
    pub clients: Vec<TcpStream>,
    pub servers: Vec<Arc<dyn Connection>>,
    pub host: Option<Host>,
}

impl Ends {
    /// `None`, with the test skipped, if this host lacks what they need.
    pub(super) fn of(cell: &Cell, clients: usize) -> Option<Ends> {
        if cell.rx.path == "userspace-loop" {
            return Host::new().map(|host| host.connect(cell, clients));
        }
        let (clients, servers) = (0..clients as u32)
            .map(|index| {
                let (client, server) = tcp::loopback_pair().unwrap();
                size(&client, cell);
                size(&server, cell);
                (client, Arc::new(Flow::tcp(server, index)) as Arc<dyn Connection>)
            })
            .unzip();
        Some(Ends { clients, servers, host: None })
    }
}

/// Gives a socket the buffer sizes of the contract, if set.
fn size(socket: &TcpStream, cell: &Cell) {
    let Stream { send_buffer, receive_buffer, .. } = cell.stream;
    for (option, bytes) in [(libc::SO_SNDBUF, send_buffer), (libc::SO_RCVBUF, receive_buffer)] {
        if let Some(bytes) = bytes {
            tcp::set_int(socket.as_fd(), libc::SOL_SOCKET, option, bytes as i32).unwrap();
        }
    }
}

/// A network namespace with a link, kept alive by a process.
pub(super) struct Host(Child);

const ADDRESSES: [&str; 2] = ["198.18.7.1", "198.18.7.2"];
const DEVICES: [&str; 2] = ["theirs", "ours"];

impl Host {
    pub(super) fn new() -> Option<Host> {
        let mut command = Command::new("unshare");
        command.args(["--net", "sh", "-c", "echo ready; exec sleep 300"]);
        let started = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn();
        let mut child = started.map_err(|e| skip!("no unshare ({e})")).ok()?;
        let (mut line, output) = (String::new(), child.stdout.take().unwrap());
        BufReader::new(output).read_line(&mut line).unwrap();
        let host = Host(child);
        if line != "ready\n" {
            skip!("no network namespace");
            return None;
        }
        let [name, peer] = DEVICES.map(str::to_owned);
        let veth = Veth { name, peer, peer_process: None, mtu: None, queues: 1 };
        let join = || {
            let mut netlink = Netlink::new();
            netlink.create_veth(&veth)?;
            for (device, address) in DEVICES.into_iter().zip(ADDRESSES) {
                let index = netlink.link(device)?.unwrap().index;
                netlink.add_address(index, address.parse().unwrap(), 24)?;
                netlink.set_up(index)?;
            }
            Ok::<_, std::io::Error>(())
        };
        inside(&host.file(), join).unwrap().unwrap();
        Some(host)
    }

    fn file(&self) -> PathBuf {
        format!("/proc/{}/ns/net", self.0.id()).into()
    }

    fn connect(self, cell: &Cell, clients: usize) -> Ends {
        let mut contract = cell.stream.clone();
        contract.flows = clients as u32;
        let (link, token) = (LinkSettings::default(), token());
        let terms = |device| terms(&contract, &link, &cell.rx.options, device);
        let [theirs, ours] = DEVICES.map(terms);
        let address: IpAddr = ADDRESSES[1].parse().unwrap();
        let met = inside(&self.file(), || {
            let listener = (USERSPACE_TCP.listen)(address, &ours).unwrap();
            let flows = contract.flows;
            let clients =
                (KERNEL_TCP.connect)(&[listener.address], &theirs, &token, flows).unwrap();
            let socket = |client: &Arc<dyn Connection>| {
                let socket = client.kernel().unwrap().socket;
                TcpStream::from(socket.try_clone().unwrap())
            };
            (clients.iter().map(socket).collect(), listener.accept(&token, flows).unwrap())
        });
        let (clients, servers) = met.unwrap();
        Ends { clients, servers, host: Some(self) }
    }

    /// Returns the fault of connecting by the user-space stack to a port where nothing listens.
    pub(super) fn refuse(&self, cell: &Cell) -> Fault {
        let link = LinkSettings::default();
        let terms = terms(&cell.stream, &link, &cell.rx.options, DEVICES[1]);
        let nobody = (ADDRESSES[0].parse::<IpAddr>().unwrap(), 9).into();
        let connect = || (USERSPACE_TCP.connect)(&[nobody], &terms, &token(), 1).map(drop);
        inside(&self.file(), connect).unwrap().unwrap_err()
    }
}

fn token() -> Token {
    Token("7".repeat(32))
}

fn terms<'a>(
    contract: &'a Stream,
    link: &'a LinkSettings,
    options: &'a Options,
    device: &'a str,
) -> Terms<'a> {
    let device = Some(device);
    Terms { contract, link, device, ports: None, queues: &[], options, secret: None }
}

impl Drop for Host {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
