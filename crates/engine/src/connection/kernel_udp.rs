//! The kernel's UDP: a connected socket for each flow. Nothing is retransmitted, not
//! even the hello; waiting for a lost datagram ends only when the connection is cut.

use super::transport::peer_of_flow;
use super::{Connected, Flow, Listener, Terms, Transport, hello, ports};
use bytepath_record::wire::Token;
use bytepath_record::{Fault, Protocol, Stream};
use bytepath_sys::tcp::{self, FlowOptions};
use socket2::{Domain, Socket, Type};
use std::io;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::os::fd::AsFd;
use std::sync::Arc;

pub const KERNEL_UDP: &Transport = &Transport {
    name: "the kernel's UDP",
    protocol: Protocol::Udp,
    check: |_| Ok(()),
    listen,
    connect: |peers, terms, token, flows| {
        let connect = |index| connect(peer_of_flow(peers, index)?, terms, token, index);
        (0..flows).map(connect).collect()
    },
};

fn listen(address: IpAddr, terms: &Terms) -> Result<Listener, Fault> {
    let contract = terms.contract.clone();
    // Bound exclusively at first, so that a port in use by another program is not taken for free.
    let alone = |at: SocketAddr| {
        let socket = open(at, &contract, false)?;
        socket.set_reuse_address(true)?;
        Ok(socket)
    };
    let socket: UdpSocket = ports::at_free_port(address, terms.ports, alone)
        .map_err(|e| ports::fault(format!("cannot open a UDP socket at {address}"), &e))?
        .into();
    let own = socket.local_addr().map_err(|e| Fault::system("cannot read the port", &e))?;
    Ok(Listener::new(own, move |token, flows| {
        let peers = hello::accept_all(flows, |deadline| {
            hello::wait(socket.as_fd(), deadline)?;
            let mut shown = [0; 64];
            let received = socket.recv_from(&mut shown);
            let (len, peer) = received.map_err(|e| Fault::system("cannot meet the peer", &e))?;
            Ok(hello::read(&shown[..len], token).map(|index| (index, peer)))
        })?;
        // Not before the last hello: a socket that is bound but not connected yet would receive
        // those of other flows.
        let accept = |(index, peer)| -> Connected {
            Ok(Arc::new(connected(bind(own, &contract)?, peer, index)?))
        };
        (0..).zip(peers).map(accept).collect()
    }))
}

fn connect(peer: SocketAddr, terms: &Terms, token: &Token, index: u32) -> Connected {
    let any = tcp::unspecified(peer.ip());
    let from = terms.ports.map_or(Ok(0), |ports| ports::of_flow(ports, index))?;
    let socket = bind((any, from).into(), terms.contract)?;
    let flow = connected(socket, peer, index)?;
    tcp::send(flow.fd(), &hello::of(token, index), 0)
        .map_err(|e| flow.fault("sending the token to the receiver", &e))?;
    Ok(Arc::new(flow))
}

/// Opens a socket at this address. There may be several: a datagram goes to the one that is
/// connected to its source.
fn bind(address: SocketAddr, contract: &Stream) -> Result<Socket, Fault> {
    open(address, contract, true)
        .map_err(|e| Fault::system(format!("cannot open a UDP socket at {address}"), &e))
}

fn open(address: SocketAddr, contract: &Stream, shared: bool) -> io::Result<Socket> {
    let socket = Socket::new(Domain::for_address(address), Type::DGRAM, None)?;
    socket.set_reuse_address(shared)?;
    let Stream { send_buffer, receive_buffer, .. } = *contract;
    let options = FlowOptions { send_buffer, receive_buffer, ..FlowOptions::default() };
    tcp::set_options(socket.as_fd(), &options)?;
    socket.bind(&address.into())?;
    Ok(socket)
}

fn connected(socket: Socket, peer: SocketAddr, index: u32) -> Result<Flow, Fault> {
    let connected = socket.connect(&peer.into());
    connected.map_err(|e| Fault::system(format!("cannot connect to {peer} by UDP"), &e))?;
    Ok(Flow { protocol: Protocol::Udp, ..Flow::tcp(socket, index) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::connection::Connection;
    use bytepath_record::{FaultKind, LinkSettings};
    use std::net::Ipv4Addr;

    fn pairs(flows: u32) -> Vec<(Arc<dyn Connection>, Arc<dyn Connection>)> {
        let (contract, link) = (Stream { flows, ..Stream::default() }, LinkSettings::default());
        let terms = Terms {
            contract: &contract,
            link: &link,
            device: None,
            ports: None,
            queues: &[],
            options: &Default::default(),
            secret: None,
        };
        let (token, wrong) = (Token("a".repeat(32)), Token("b".repeat(32)));
        let here = IpAddr::from(Ipv4Addr::LOCALHOST);
        let listener = listen(here, &terms).unwrap();
        let peer = listener.address;
        let _stranger = super::connect(peer, &terms, &wrong, 0).unwrap();
        let connect = |index| super::connect(peer, &terms, &token, index).unwrap();
        // In whichever order they arrive.
        let mut ours: Vec<_> = (0..flows).rev().map(connect).collect();
        ours.reverse();
        ours.into_iter().zip(listener.accept(&token, flows).unwrap()).collect()
    }

    #[test]
    fn each_flow_has_its_peer() {
        for (client, server) in pairs(3) {
            assert_eq!(client.index(), server.index());
            let sent = [client.index() as u8 + 1; 100];
            tcp::send(client.kernel().unwrap().fd(), &sent, 0).unwrap();
            let mut got = [0; 100];
            server.read_exact(&mut got).unwrap();
            assert_eq!(got, sent);
        }
    }

    #[test]
    fn only_an_empty_datagram_ends_a_stream() {
        let [(client, server), (_, other)] = pairs(2).try_into().ok().unwrap();
        client.end_stream().unwrap();
        let receive = |end: &Arc<dyn Connection>| {
            let flow = end.kernel().unwrap();
            assert_eq!(tcp::recv(flow.fd(), &mut [0; 8], 0).unwrap(), 0);
            flow.confirm_end()
        };
        receive(&server).unwrap();
        other.cut();
        let fault = receive(&other).unwrap_err();
        assert_eq!(fault.kind, FaultKind::PeerLost, "{fault}");
        assert!(fault.message.contains("did not arrive"), "{fault}");
    }
}
