//! A connection for each request: epoll(7), level-triggered, on one thread at each end; the client
//! closes first. One additional connection lasts, and when it ends the server ends.

use super::epoll::Load;
use super::{Window, memory, prepared};
use anyhow::{Context, Result, bail, ensure};
use rustix::event::epoll::{self, CreateFlags, Event, EventData, EventFlags};
use rustix::fd::{AsFd, OwnedFd};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, accept_with, bind, connect,
    listen, recv, send, socket_with, sockopt,
};
use std::net::{SocketAddr, TcpListener, TcpStream};

/// Events per wait.
const EVENTS: usize = 256;

/// Most bytes per receive.
const ROOM: usize = 64 << 10;

/// The places of the listening socket, and of the connection that lasts.
const LISTENER: u64 = u64::MAX;
const LASTING: u64 = u64::MAX - 1;

/// The polled connections, by place.
struct Places {
    epoll: OwnedFd,
    all: Vec<Option<OwnedFd>>,
    /// Bytes received over each.
    came: Vec<usize>,
    room: &'static mut [u8],
}

impl Places {
    fn new(count: usize) -> Result<Places> {
        let all = (0..count).map(|_| None).collect();
        let epoll = epoll::create(CreateFlags::CLOEXEC)?;
        Ok(Places { epoll, all, came: vec![0; count], room: memory(ROOM)? })
    }

    fn watch(&self, socket: impl AsFd, place: u64, flags: EventFlags) -> Result<()> {
        epoll::add(&self.epoll, socket, EventData::new_u64(place), flags).context("epoll_ctl")
    }

    fn put(&mut self, place: usize, socket: OwnedFd, flags: EventFlags) -> Result<()> {
        self.watch(&socket, place as u64, flags)?;
        (self.all[place], self.came[place]) = (Some(socket), 0);
        Ok(())
    }

    fn wait(&self, events: &mut [Event]) -> Result<usize> {
        Ok(epoll::wait(&self.epoll, events, None)?)
    }

    fn socket(&self, place: usize) -> Result<&OwnedFd> {
        self.all[place].as_ref().context("an event of no connection")
    }

    /// Receives from a connection; returns the number of bytes.
    fn receive(&mut self, place: usize) -> Result<usize> {
        let socket = self.all[place].as_ref().context("an event of no connection")?;
        match recv(socket, &mut *self.room, RecvFlags::DONTWAIT) {
            Ok((_, bytes)) => {
                self.came[place] += bytes;
                Ok(bytes)
            }
            Err(Errno::CONNRESET) => Ok(0),
            Err(e) => Err(e).context("recv"),
        }
    }
}

fn no_events() -> Vec<Event> {
    vec![Event { flags: EventFlags::empty(), data: EventData::new_u64(0) }; EVENTS]
}

/// Prints the port, and answers connections until the one that lasts has ended.
pub fn serve(congestion: &str, address: SocketAddr, load: Load) -> Result<()> {
    let socket = prepared(congestion)?;
    bind(&socket, &address).context("bind")?;
    listen(&socket, load.connections as i32).context("listen")?;
    let listener = TcpListener::from(socket);
    println!("{}", listener.local_addr()?.port());
    let lasting = listener.accept().context("accept")?.0;
    listener.set_nonblocking(true)?;
    let mut places = Places::new(4 * load.connections + 64)?;
    let mut free: Vec<usize> = (0..places.all.len()).rev().collect();
    places.watch(&lasting, LASTING, EventFlags::IN)?;
    places.watch(&listener, LISTENER, EventFlags::IN)?;
    let (mut events, response) = (no_events(), memory(load.response)?);
    loop {
        let ready = places.wait(&mut events)?;
        for event in &events[..ready] {
            match { event.data }.u64() {
                LASTING => return Ok(()),
                LISTENER => accept_all(&listener, &mut places, &mut free)?,
                place => {
                    let place = place as usize;
                    if places.receive(place)? == 0 {
                        places.all[place] = None;
                        free.push(place);
                    } else if places.came[place] == load.request {
                        match send(places.socket(place)?, response, SendFlags::NOSIGNAL) {
                            // The client has ended, and so has the connection that lasts.
                            Err(Errno::PIPE | Errno::CONNRESET) => {}
                            sent => ensure!(sent? == load.response, "a response was cut"),
                        }
                    }
                }
            }
        }
    }
}

fn accept_all(listener: &TcpListener, places: &mut Places, free: &mut Vec<usize>) -> Result<()> {
    loop {
        match accept_with(listener, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK) {
            Ok(socket) => {
                let place = free.pop().context("too many connections")?;
                places.put(place, socket, EventFlags::IN)?;
            }
            Err(Errno::AGAIN) => return Ok(()),
            Err(e) => bail!("accept: {e}"),
        }
    }
}

/// Connects again after each response; returns the number of responses, and the seconds.
pub fn request(
    congestion: &str,
    peer: SocketAddr,
    load: Load,
    window: &mut Window,
) -> Result<(u64, f64)> {
    let lasting = TcpStream::connect(peer).context("connect")?;
    // Setting the value that is already set would cost each connection a call.
    let congestion = Some(congestion)
        .filter(|name| sockopt::tcp_congestion(&lasting).map_or(true, |usual| usual != *name));
    let mut places = Places::new(load.connections)?;
    let (mut events, request) = (no_events(), memory(load.request)?);
    for place in 0..load.connections {
        places.put(place, connecting(&peer, congestion)?, EventFlags::IN | EventFlags::OUT)?;
    }
    loop {
        let ready = places.wait(&mut events)?;
        for event in &events[..ready] {
            let Event { flags, data } = *event;
            let place = data.u64() as usize;
            if flags.contains(EventFlags::OUT) {
                let socket = places.socket(place)?;
                let sent = send(socket, request, SendFlags::NOSIGNAL).context("send")?;
                ensure!(sent == load.request, "a request was cut");
                epoll::modify(&places.epoll, socket, data, EventFlags::IN)?;
                continue;
            }
            ensure!(places.receive(place)? > 0, "the server is gone");
            if places.came[place] == load.response {
                if !window.count(1) {
                    return window.measured().context("no window");
                }
                places.all[place] = None;
                places.put(
                    place,
                    connecting(&peer, congestion)?,
                    EventFlags::IN | EventFlags::OUT,
                )?;
            }
        }
    }
}

/// A connection in the making.
fn connecting(peer: &SocketAddr, congestion: Option<&str>) -> Result<OwnedFd> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let family = if peer.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let socket = socket_with(family, SocketType::STREAM, flags, None)?;
    congestion.map_or(Ok(()), |name| sockopt::set_tcp_congestion(&socket, name))?;
    match connect(&socket, peer) {
        Ok(()) | Err(Errno::INPROGRESS) => Ok(socket),
        Err(e) => bail!("connect: {e}"),
    }
}
