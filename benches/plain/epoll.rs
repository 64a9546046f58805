//! Requests and responses over many connections of one thread: epoll(7), level-triggered, send(2)
//! and recv(2).

use super::{Window, memory, prepared};
use anyhow::{Context, Result, ensure};
use rustix::event::epoll::{self, CreateFlags, Event, EventData, EventFlags};
use rustix::fd::{AsFd, OwnedFd};
use rustix::net::{RecvFlags, SendFlags, bind, connect, listen, recv, send};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::Duration;

/// Events per wait.
const EVENTS: usize = 256;

/// Most bytes per receive.
const ROOM: usize = 64 << 10;

/// Bytes of a message each way, and connections.
#[derive(Clone, Copy)]
pub struct Load {
    pub request: usize,
    pub response: usize,
    pub connections: usize,
}

/// Prints the port, and accepts that many connections.
pub fn accepted(congestion: &str, address: SocketAddr, load: Load) -> Result<Vec<TcpStream>> {
    let socket = prepared(congestion)?;
    bind(&socket, &address).context("bind")?;
    listen(&socket, load.connections as i32).context("listen")?;
    let listener = TcpListener::from(socket);
    println!("{}", listener.local_addr()?.port());
    let accept = |_| listener.accept().context("accept").map(|(stream, _)| stream);
    let streams = (0..load.connections).map(accept).collect::<Result<Vec<_>>>()?;
    streams.iter().try_for_each(set)?;
    Ok(streams)
}

/// Connects to a server that many times.
pub fn connected(congestion: &str, address: SocketAddr, load: Load) -> Result<Vec<TcpStream>> {
    let connected = |_| -> Result<TcpStream> {
        let socket = prepared(congestion)?;
        connect(&socket, &address).context("connect")?;
        Ok(socket.into())
    };
    let streams = (0..load.connections).map(connected).collect::<Result<Vec<_>>>()?;
    streams.iter().try_for_each(set)?;
    Ok(streams)
}

/// Small messages are sent at once; closing resets, so that neither end waits for the other's last
/// bytes.
fn set(stream: &TcpStream) -> Result<()> {
    stream.set_nodelay(true)?;
    Ok(rustix::net::sockopt::set_socket_linger(stream, Some(Duration::ZERO))?)
}

/// Answers requests until the first client has ended.
pub fn serve(streams: &[TcpStream], load: Load) -> Result<()> {
    let mut all = All::new(streams)?;
    let response = memory(load.response)?;
    loop {
        for ready in 0..all.wait()? {
            let (place, bytes) = all.receive(ready)?;
            if bytes == 0 {
                return Ok(());
            }
            for _ in 0..all.messages(place, bytes, load.request) {
                all.send(place, response)?;
            }
        }
    }
}

/// Sends the next request after each response; returns the number of responses, and the seconds.
pub fn request(streams: &[TcpStream], load: Load, window: &mut Window) -> Result<(u64, f64)> {
    let mut all = All::new(streams)?;
    let request = memory(load.request)?;
    for place in 0..load.connections {
        all.send(place, request)?;
    }
    loop {
        for ready in 0..all.wait()? {
            let (place, bytes) = all.receive(ready)?;
            ensure!(bytes > 0, "the server is gone");
            for _ in 0..all.messages(place, bytes, load.response) {
                if !window.count(1) {
                    return window.measured().context("no window");
                }
                all.send(place, request)?;
            }
        }
    }
}

/// All connections, with the bytes received of an incomplete message over each.
struct All<'a> {
    streams: &'a [TcpStream],
    came: Vec<usize>,
    epoll: OwnedFd,
    events: Vec<Event>,
    room: &'static mut [u8],
}

impl<'a> All<'a> {
    fn new(streams: &'a [TcpStream]) -> Result<All<'a>> {
        let epoll = epoll::create(CreateFlags::CLOEXEC)?;
        for (place, stream) in streams.iter().enumerate() {
            epoll::add(&epoll, stream, EventData::new_u64(place as u64), EventFlags::IN)?;
        }
        let empty = Event { flags: EventFlags::empty(), data: EventData::new_u64(0) };
        let came = vec![0; streams.len()];
        Ok(All { streams, came, epoll, events: vec![empty; EVENTS], room: memory(ROOM)? })
    }

    fn wait(&mut self) -> Result<usize> {
        Ok(epoll::wait(&self.epoll, &mut self.events[..], None)?)
    }

    /// Receives from a ready connection; returns its place and the number of bytes, 0 at its end.
    fn receive(&mut self, ready: usize) -> Result<(usize, usize)> {
        let place = { self.events[ready].data }.u64() as usize;
        let stream = self.streams[place].as_fd();
        match recv(stream, &mut *self.room, RecvFlags::DONTWAIT) {
            Ok((_, bytes)) => Ok((place, bytes)),
            Err(rustix::io::Errno::CONNRESET) => Ok((place, 0)),
            Err(e) => Err(e).context("recv"),
        }
    }

    /// Returns how many messages of this size these bytes complete.
    fn messages(&mut self, place: usize, bytes: usize, size: usize) -> usize {
        self.came[place] += bytes;
        let whole = self.came[place] / size;
        self.came[place] %= size;
        whole
    }

    /// Sends a message, for which there is room if each is answered before the next.
    fn send(&mut self, place: usize, message: &[u8]) -> Result<()> {
        let sent = send(&self.streams[place], message, SendFlags::NOSIGNAL);
        match sent {
            Err(rustix::io::Errno::PIPE | rustix::io::Errno::CONNRESET) => Ok(()),
            sent => {
                ensure!(sent.context("send")? == message.len(), "a message was cut");
                Ok(())
            }
        }
    }
}
