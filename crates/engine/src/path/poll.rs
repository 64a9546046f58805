//! `poll`: an event loop by poll(2), which checks every socket whenever one is ready.

use super::event_loop::{self, OPTIMISTIC, Readiness, Ready, ReadyLoop, Sockets, THREADS, Watched};
use super::{DataPath, HalfPath, Opened};
use crate::connection::Connection;
use crate::workload::{Call, EventLoop, Group, HalfConfig, Recorder};
use bytepath_record::OptionSpec;
use bytepath_sys::poll_set::{self, PollSet};
use std::io;
use std::sync::Arc;
use std::time::Duration;

pub(super) static PATH: DataPath = DataPath {
    name: "poll",
    summary: "an event loop: many connections a thread, by poll, send and recv",
    tx: Some(HalfPath::tx(event_loop::check, event_loop::open_half).with_options(OPTIONS)),
    rx: Some(HalfPath::rx(event_loop::check, event_loop::open_half).with_options(OPTIONS)),
    event_loop: Some(open),
    ..DataPath::EMPTY
};

const OPTIONS: &[OptionSpec] = &[THREADS, OPTIMISTIC];

fn open(
    jobs: [&HalfConfig; 2],
    connections: &[Arc<dyn Connection>],
    group: &Group,
) -> Opened<dyn EventLoop> {
    let sockets = Sockets::nonblocking(jobs[0], event_loop::sockets(connections)?)?;
    let mut set = PollSet::new(sockets.lasting.iter().map(|flow| flow.fd()));
    set.reserve(sockets.places());
    let poll = Poll { set, found: Vec::with_capacity(sockets.places()) };
    Ok(Box::new(ReadyLoop::open(jobs, sockets, poll, group)?))
}

const WAIT: Call = Call(2, "poll");

struct Poll {
    set: PollSet,
    /// Result of the last wait, with room for all sockets.
    found: Vec<Ready>,
}

fn flags(on: &Watched, room: bool) -> poll_set::Ready {
    let mut flags = poll_set::Ready::empty();
    flags.set(poll_set::Ready::IN, on.input);
    flags.set(poll_set::Ready::OUT, room);
    flags
}

impl Readiness for Poll {
    fn watch(&mut self, on: &Watched, room: bool) -> io::Result<()> {
        self.set.put(on.place, on.socket, flags(on, room));
        Ok(())
    }

    fn release(&mut self, place: usize) {
        self.set.wait_for(place, poll_set::Ready::empty());
    }

    fn wait(&mut self, limit: Option<Duration>, recorder: &mut Recorder) -> io::Result<usize> {
        self.found.clear();
        let ready = recorder.timed_with(WAIT, || self.set.wait(limit), |_| 0)?;
        if ready > 0 {
            let last = poll_set::Ready::HUP | poll_set::Ready::ERR;
            self.found.extend(self.set.ready().map(|(place, ready)| Ready {
                place,
                input: ready.contains(poll_set::Ready::IN),
                room: ready.contains(poll_set::Ready::OUT),
                last: ready.intersects(last),
            }));
        }
        Ok(self.found.len())
    }

    fn event(&mut self, number: usize) -> Ready {
        self.found[number]
    }

    fn want_room(&mut self, on: &Watched, wanted: bool, _: bool) -> io::Result<()> {
        self.set.wait_for(on.place, flags(on, wanted));
        Ok(())
    }

    fn forget(&mut self, on: &Watched) -> io::Result<()> {
        self.set.wait_for(on.place, poll_set::Ready::empty());
        Ok(())
    }

    fn reports_once(&self) -> bool {
        false
    }

    fn memory(&self) -> usize {
        self.found.capacity() * size_of::<Ready>() + self.set.memory()
    }
}
