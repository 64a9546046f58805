//! The kernel's TCP: connected, blocking, with the contract's options set.

use super::transport::peer_of_flow;
use super::{Connected, Flow, Listener, Terms, Transport, hello, ports, tls};
use bytepath_record::wire::Token;
use bytepath_record::{Fault, Protocol, Role, Stream};
use bytepath_sys::tcp::{self, FlowOptions, Shutdown};
use bytepath_sys::{Roots, attribute};
use std::io::{self, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, sync_channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

pub const KERNEL_TCP: &Transport = &Transport {
    name: "the kernel's TCP",
    protocol: Protocol::Tcp,
    check: |_| Ok(()),
    listen,
    connect: |peers, terms, token, flows| {
        let connect = |index| connect(peer_of_flow(peers, index)?, terms, token, index);
        (0..flows).map(connect).collect()
    },
};

/// A connection that does not present the token in time is closed.
fn listen(address: IpAddr, terms: &Terms) -> Result<Listener, Fault> {
    let contract = terms.contract;
    let options = flow_options(contract);
    let open = |at| tcp::listen_at(at, contract.flows, &options);
    let listener = ports::at_free_port(address, terms.ports, open)
        .map_err(|e| socket_fault(&format!("listen at {address}"), contract, &e))?;
    let (tls, secret) = (contract.tls, terms.secret.cloned());
    let address = listener.local_addr().map_err(|e| Fault::system("cannot read the port", &e))?;
    let acceptor = Acceptor::start(listener, contract.flows)?;
    Ok(Listener::new(address, move |token, flows| {
        let shown = hello::accept_all(flows, |deadline| {
            let socket = acceptor.next(deadline)?;
            Ok(shown_index(&socket, token, deadline).map(|index| (index, socket)))
        })?;
        let encrypted = |(index, socket)| -> Connected {
            let flow = Flow::tcp(socket, index);
            Ok(Arc::new(tls::over(flow, tls, secret.as_ref(), Role::Receiver)?))
        };
        (0..).zip(shown).map(encrypted).collect()
    }))
}

fn connect(peer: SocketAddr, terms: &Terms, token: &Token, index: u32) -> Connected {
    let contract = terms.contract;
    let from = terms.ports.map(|ports| ports::of_flow(ports, index)).transpose()?;
    let mut socket = tcp::connect(peer, from, &flow_options(contract))
        .map_err(|e| socket_fault(&format!("connect to {peer}"), contract, &e))?;
    socket
        .write_all(&hello::of(token, index))
        .map_err(|e| Fault::system("cannot send the token to the receiver", &e))?;
    let flow = Flow::tcp(socket, index);
    Ok(Arc::new(tls::over(flow, contract.tls, terms.secret, Role::Sender)?))
}

/// A thread that accepts connections while the peer makes them: the kernel's queue holds no more
/// than `net.core.somaxconn`.
struct Acceptor {
    listener: TcpListener,
    accepted: Option<Receiver<io::Result<TcpStream>>>,
    thread: Option<JoinHandle<()>>,
}

impl Acceptor {
    fn start(listener: TcpListener, flows: u32) -> Result<Acceptor, Fault> {
        let own = listener.try_clone();
        let own = own.map_err(|e| Fault::system("cannot duplicate the listening socket", &e))?;
        let (queue, accepted) = sync_channel(flows as usize);
        let accept = move || loop {
            let socket = own.accept().map(|(socket, _)| socket);
            let is_over = socket.is_err();
            if queue.send(socket).is_err() || is_over {
                return;
            }
        };
        let thread = std::thread::Builder::new().name("accept".into()).spawn(accept);
        let thread = thread.map_err(|e| Fault::not_started("a thread", &e))?;
        Ok(Acceptor { listener, accepted: Some(accepted), thread: Some(thread) })
    }

    fn next(&self, deadline: Instant) -> Result<TcpStream, Fault> {
        let left = deadline.saturating_duration_since(Instant::now());
        match self.accepted.as_ref().map(|accepted| accepted.recv_timeout(left)) {
            Some(Ok(socket)) => socket.map_err(|e| Fault::system("cannot accept the peer", &e)),
            _ => Err(Fault::peer_lost("the peer did not connect in time")),
        }
    }
}

impl Drop for Acceptor {
    /// The port is free again when this returns.
    fn drop(&mut self) {
        drop(self.accepted.take());
        let _ = tcp::shutdown(self.listener.as_fd(), Shutdown::Both);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Options set on the sockets of a contract when they are created.
pub(crate) fn flow_options(contract: &Stream) -> FlowOptions {
    FlowOptions {
        send_buffer: contract.send_buffer,
        receive_buffer: contract.receive_buffer,
        congestion: Some(contract.congestion.clone()),
        ..FlowOptions::default()
    }
}

fn socket_fault(what: &str, contract: &Stream, error: &std::io::Error) -> Fault {
    let fault = ports::fault(format!("cannot {what}"), error);
    match error.raw_os_error() {
        Some(libc::ENOENT) => Fault::unsupported(format!(
            "this kernel has no congestion control '{}'",
            contract.congestion
        ))
        .remedy("sysctl net.ipv4.tcp_available_congestion_control lists what it has"),
        Some(libc::EPERM) => fault.remedy(format!(
            "congestion control '{}' needs CAP_NET_ADMIN{}",
            contract.congestion,
            allowed_congestion_controls()
        )),
        _ => fault,
    }
}

/// Describes the congestion controls that an unprivileged program may choose here; empty if
/// unknown.
fn allowed_congestion_controls() -> String {
    let allowed =
        attribute::text(&Roots::real().proc.join("sys/net/ipv4/tcp_allowed_congestion_control"));
    let first = allowed.as_deref().and_then(|all| all.split(' ').next());
    let named = allowed.as_deref().zip(first);
    named.map_or_else(String::new, |(all, first)| {
        format!(", or one of {all}: --stream congestion={first}")
    })
}

fn shown_index(mut socket: &TcpStream, token: &Token, deadline: Instant) -> Option<u32> {
    let left = deadline.saturating_duration_since(Instant::now()).max(Duration::from_millis(1));
    socket.set_read_timeout(Some(left)).ok()?;
    let mut shown = vec![0; hello::of(token, 0).len()];
    socket.read_exact(&mut shown).ok()?;
    socket.set_read_timeout(None).ok()?;
    hello::read(&shown, token)
}
