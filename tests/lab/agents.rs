//! Agents that run as threads of the test, which acts as their controller.

use bytepath::record::Cell;
use bytepath::record::wire::{Accept, Call, Connect, Listen, Request, Start, Token};
use bytepath::study::agent;
use bytepath::{meter, path};
use std::io::{BufRead, BufReader, PipeReader, PipeWriter, Write};
use std::net::IpAddr;
use std::thread::JoinHandle;

/// An agent that runs as a thread, with its pipes.
pub struct Agent {
    pub to_agent: PipeWriter,
    from_agent: BufReader<PipeReader>,
    pub thread: JoinHandle<std::io::Result<()>>,
}

impl Agent {
    pub fn start() -> Agent {
        let (requests, to_agent) = std::io::pipe().unwrap();
        let (from_agent, replies) = std::io::pipe().unwrap();
        let serve = move || agent::serve(requests, replies, path::CATALOG, meter::CATALOG);
        let mut from_agent = BufReader::new(from_agent);
        let thread = std::thread::spawn(serve);
        from_agent.read_line(&mut String::new()).unwrap();
        Agent { to_agent, from_agent, thread }
    }

    pub fn send<C: Call>(&mut self, call: C) {
        let request: Request = call.into();
        writeln!(self.to_agent, "{}", serde_json::to_string(&request).unwrap()).unwrap();
    }

    pub fn call<C: Call>(&mut self, call: C) -> C::Reply {
        self.send(call);
        let mut line = String::new();
        self.from_agent.read_line(&mut line).unwrap();
        C::receive(serde_json::from_str(&line).unwrap()).expect("the reply of this call")
    }

    /// Lets the bytes flow, without meters.
    pub fn begin(&mut self) {
        self.call(Start { meters: Vec::new(), alone: false, qemu: None });
    }
}

/// Connects both ends of a cell; the receiver listens at `address`.
pub fn connect(sender: &mut Agent, receiver: &mut Agent, cell: Cell, address: IpAddr) {
    let (cell, devices, token) = (Box::new(cell), Vec::new(), Token("0".repeat(32)));
    let (ports, secret) = (None, None);
    let peer = receiver.call(Listen {
        cell: cell.clone(),
        address,
        devices: devices.clone(),
        token: token.clone(),
        ports,
        secret: secret.clone(),
    });
    sender.call(Connect { cell, peers: vec![peer], devices, token, ports, secret });
    receiver.call(Accept {});
}
