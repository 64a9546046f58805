//! `epoll`: an event loop by epoll_wait(2), send(2) and recv(2), as in most servers.

use super::busy_poll::{self, BusyPoll, Waiter};
use super::event_loop::{self, OPTIMISTIC, THREADS};
use super::event_loop::{Readiness, Ready, ReadyLoop, Sockets, Watched};
use super::{DataPath, HalfPath, Opened};
use crate::connection::{Connection, Flow};
use crate::workload::{Call, EventLoop, Group, HalfConfig, Recorder};
use bytepath_record::{Facts, Fault, OptionKind, OptionSpec, Support};
use rustix::event::Timespec;
use rustix::event::epoll::{self, CreateFlags, Event, EventData, EventFlags};
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

pub(super) static PATH: DataPath = DataPath {
    name: "epoll",
    summary: "an event loop: many connections a thread, by epoll_wait, send and recv",
    attempt: |_| vec![busy_poll::epoll_attempt()],
    tx: Some(HalfPath::tx(check, event_loop::open_half).with_options(OPTIONS)),
    rx: Some(HalfPath::rx(check, event_loop::open_half).with_options(OPTIONS)),
    event_loop: Some(open),
    ..DataPath::EMPTY
};

const OPTIONS: &[OptionSpec] = &[
    THREADS,
    OptionSpec::new("trigger", OptionKind::Choice(&["level", "edge", "oneshot"]), "level").help(
        "what is reported: what is ready, what became ready, or each socket once until renewed",
    ),
    OPTIMISTIC,
    OptionSpec::new("events", OptionKind::Count(1, 4096), "256").help("most events of a wait"),
    busy_poll::MICROSECONDS,
    busy_poll::PREFER,
    busy_poll::BUDGET,
];

fn check(job: &HalfConfig, facts: &Facts) -> Support {
    event_loop::check(job, facts).and(busy_poll::support(job, facts, Waiter::Epoll))
}

fn open(
    jobs: [&HalfConfig; 2],
    connections: &[Arc<dyn Connection>],
    group: &Group,
) -> Opened<dyn EventLoop> {
    let sockets = Sockets::nonblocking(jobs[0], event_loop::sockets(connections)?)?;
    let epoll = Epoll::of(&sockets.lasting, jobs[0])?;
    Ok(Box::new(ReadyLoop::open(jobs, sockets, epoll, group)?))
}

const WAIT: Call = Call(2, "epoll_wait");

struct Epoll {
    fd: OwnedFd,
    trigger: Trigger,
    events: Vec<Event>,
    /// The socket whose event is being handled, and which is rearmed afterwards.
    current: Option<usize>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Trigger {
    Level,
    Edge,
    Oneshot,
}

impl Epoll {
    fn of(flows: &[Arc<Flow>], job: &HalfConfig) -> Result<Epoll, Fault> {
        let trigger = match job.options.word("trigger") {
            "edge" => Trigger::Edge,
            "oneshot" => Trigger::Oneshot,
            _ => Trigger::Level,
        };
        let fd = epoll::create(CreateFlags::CLOEXEC);
        let fd = fd.map_err(|e| Fault::system("epoll_create", &e.into()))?;
        if let Some(polling) = BusyPoll::of(&job.options) {
            polling.set_on_epoll(&fd)?;
        }
        let empty = Event { flags: EventFlags::empty(), data: EventData::new_u64(0) };
        let most = job.options.number("events").unwrap_or(1) as usize;
        let epoll = Epoll { fd, trigger, events: vec![empty; most], current: None };
        for (place, flow) in flows.iter().enumerate() {
            let (data, flags) = (EventData::new_u64(place as u64), epoll.interest(true, false));
            epoll::add(&epoll.fd, flow.fd(), data, flags).map_err(|e| {
                flow.fault("epoll_ctl", &e.into())
                    .remedy("raise sysctl fs.epoll.max_user_watches, or choose fewer flows")
            })?;
        }
        Ok(epoll)
    }

    fn interest(&self, input: bool, room: bool) -> EventFlags {
        let mut flags = EventFlags::empty();
        flags.set(EventFlags::IN | EventFlags::RDHUP, input);
        flags.set(EventFlags::OUT, room);
        match self.trigger {
            Trigger::Level => flags,
            Trigger::Edge => flags | EventFlags::OUT | EventFlags::ET,
            Trigger::Oneshot => flags | EventFlags::ONESHOT,
        }
    }

    fn modify(&self, on: &Watched, room: bool) -> io::Result<()> {
        let data = EventData::new_u64(on.place as u64);
        Ok(epoll::modify(&self.fd, on.socket, data, self.interest(on.input, room))?)
    }
}

impl Readiness for Epoll {
    fn watch(&mut self, on: &Watched, room: bool) -> io::Result<()> {
        let data = EventData::new_u64(on.place as u64);
        Ok(epoll::add(&self.fd, on.socket, data, self.interest(on.input, room))?)
    }

    /// The kernel removes a socket when its last file descriptor is closed (epoll(7)).
    fn release(&mut self, _: usize) {
        self.current = None;
    }

    #[inline]
    fn wait(&mut self, limit: Option<Duration>, recorder: &mut Recorder) -> io::Result<usize> {
        let limit = limit.map(|time| Timespec {
            tv_sec: time.as_secs() as i64,
            tv_nsec: time.subsec_nanos().into(),
        });
        let (fd, events) = (&self.fd, &mut self.events[..]);
        let wait = || epoll::wait(fd, events, limit.as_ref());
        Ok(recorder.timed_with(WAIT, wait, |_| 0)?)
    }

    #[inline]
    fn event(&mut self, number: usize) -> Ready {
        let Event { flags, data, .. } = self.events[number];
        self.current = Some(data.u64() as usize);
        let last = EventFlags::RDHUP | EventFlags::HUP | EventFlags::ERR;
        Ready {
            place: data.u64() as usize,
            input: flags.contains(EventFlags::IN),
            room: flags.contains(EventFlags::OUT),
            last: flags.intersects(last),
        }
    }

    fn want_room(&mut self, on: &Watched, wanted: bool, tried: bool) -> io::Result<()> {
        match self.trigger {
            Trigger::Level => self.modify(on, wanted),
            // Makes the kernel report again what is already there.
            Trigger::Edge if wanted && !tried => self.modify(on, wanted),
            Trigger::Oneshot if self.current != Some(on.place) => self.modify(on, wanted),
            Trigger::Edge | Trigger::Oneshot => Ok(()),
        }
    }

    fn repeat(&mut self, on: &Watched, room: bool) -> io::Result<()> {
        match self.trigger {
            Trigger::Edge => self.modify(on, room),
            // Level-triggered events persist; oneshot events are reported again when rearmed.
            Trigger::Level | Trigger::Oneshot => Ok(()),
        }
    }

    #[inline]
    fn rearm(&mut self, on: &Watched, room: bool) -> io::Result<()> {
        self.current = None;
        match self.trigger {
            Trigger::Oneshot => self.modify(on, room),
            Trigger::Level | Trigger::Edge => Ok(()),
        }
    }

    fn forget(&mut self, on: &Watched) -> io::Result<()> {
        Ok(epoll::delete(&self.fd, on.socket)?)
    }

    fn reports_once(&self) -> bool {
        self.trigger == Trigger::Edge
    }

    fn memory(&self) -> usize {
        size_of_val(&self.events[..])
    }
}
