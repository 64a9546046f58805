//! Busy polling: before it sleeps, a wait polls the device queue (NAPI instance) that its sockets
//! receive from. A receiving call does so according to socket options (socket(7)), epoll_wait(2) to
//! those of the instance (ioctl_eventpoll(2)), io_uring_enter(2) to those of the ring
//! (io_uring_register_napi(3)).

use super::common::{refuse_if, tried};
use super::ring;
use crate::connection::{Connection, Flow};
use crate::workload::HalfConfig;
use bytepath_record::{Attempt, Facts, Fault, OptionKind, OptionSpec, Options, Support};
use bytepath_sys::{eventpoll, tcp, uring};
use rustix::net::{AddressFamily, SocketType};
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

pub(super) const MICROSECONDS: OptionSpec =
    OptionSpec::new("busy-poll", OptionKind::Count(0, 1_000_000), "0").help(
        "microseconds for which a wait polls the device before it sleeps (epoll, rings: Linux 6.9)",
    );

pub(super) const PREFER: OptionSpec =
    OptionSpec::new("prefer-busy-poll", OptionKind::Flag, "off").help(
        "whether the device's interrupts stay off as long as it is polled (of a receiving call: Linux \
         5.11, CAP_NET_ADMIN)",
    );

/// Option of receiving calls and of epoll; for rings, the kernel's default applies.
pub(super) const BUDGET: OptionSpec = OptionSpec::new(
    "busy-poll-budget",
    OptionKind::WordCount("auto", 1, 65_535),
    "auto",
)
.help(
    "most packets of a poll (auto: the kernel's 8; of a receiving call: Linux 5.11, CAP_NET_ADMIN)",
);

/// Option of rings.
pub(super) const TRACKING: OptionSpec =
    OptionSpec::new("napi-tracking", OptionKind::Choice(&["dynamic", "static"]), "dynamic").help(
        "queues that are polled: those that waiting operations are found at, or those known at the \
         start (static: Linux 6.13)",
    );

/// Names of the attempts, as in [`Facts`].
const SOCKET: &str = "socket.busy-poll";
const SOCKET_PREFER: &str = "socket.prefer-busy-poll";
const SOCKET_BUDGET: &str = "socket.busy-poll-budget";
const EPOLL: &str = "epoll.busy-poll";
const RING: &str = "io_uring.napi";
const RING_STATIC: &str = "io_uring.napi-static";

/// How a wait polls, and for how long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct BusyPoll {
    microseconds: u32,
    prefer: bool,
    /// Packets per poll; 0 means the kernel's default.
    budget: u16,
    /// Whether a ring polls only the queues known at the start.
    is_static: bool,
}

impl BusyPoll {
    /// Reads the options; `None` if busy polling is off.
    pub(super) fn of(options: &Options) -> Option<BusyPoll> {
        let microseconds = options.number(MICROSECONDS.name).filter(|n| *n > 0)?;
        let budget = options.number(BUDGET.name).unwrap_or(0);
        Some(BusyPoll {
            microseconds: microseconds.try_into().unwrap_or(u32::MAX),
            prefer: options.flag(PREFER.name),
            budget: budget.try_into().unwrap_or(u16::MAX),
            is_static: options.word(TRACKING.name) == "static",
        })
    }

    /// Makes receiving calls on this socket poll.
    pub(super) fn set_on_socket(self, flow: &Flow) -> Result<(), Fault> {
        let microseconds = self.microseconds.try_into().unwrap_or(i32::MAX);
        let options = [
            (true, libc::SO_BUSY_POLL, microseconds, "SO_BUSY_POLL"),
            (self.prefer, libc::SO_PREFER_BUSY_POLL, 1, "SO_PREFER_BUSY_POLL"),
            (self.budget > 0, libc::SO_BUSY_POLL_BUDGET, self.budget.into(), "SO_BUSY_POLL_BUDGET"),
        ];
        for (_, option, value, name) in options.into_iter().filter(|(is_asked, ..)| *is_asked) {
            tcp::set_int(flow.fd(), libc::SOL_SOCKET, option, value)
                .map_err(|e| flow.fault(name, &e).remedy(PRIVILEGE))?;
        }
        Ok(())
    }

    /// Makes waits on this epoll instance poll.
    pub(super) fn set_on_epoll(self, instance: impl AsFd) -> Result<(), Fault> {
        let set = eventpoll::set_busy_poll(instance, self.microseconds, self.budget, self.prefer);
        set.map_err(|e| {
            let fault = Fault::system("busy polling by epoll", &e);
            match e.raw_os_error() {
                Some(libc::EPERM) => fault
                    .remedy("run with CAP_NET_ADMIN, or choose a busy-poll-budget of at most 64"),
                _ => fault,
            }
        })
    }

    /// Makes waits of a ring poll; `register` passes the settings to the kernel.
    pub(super) fn set_on_ring(
        self,
        sockets: &[BorrowedFd],
        register: impl FnOnce(&uring::BusyPoll) -> io::Result<()>,
    ) -> Result<(), Fault> {
        let queues = self.is_static.then(|| queues(sockets));
        let (microseconds, prefer) = (self.microseconds, self.prefer);
        register(&uring::BusyPoll { microseconds, prefer, queues })
            .map_err(|e| ring::fault("busy polling by io_uring", &e))
    }
}

/// What a half waits with, which therefore polls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Waiter {
    /// A call that receives.
    Call,
    Epoll,
    Ring,
}

/// Returns whether a host with these facts can poll as requested.
pub(super) fn support(job: &HalfConfig, facts: &Facts, waiter: Waiter) -> Support {
    let options = &job.options;
    let Some(asked) = BusyPoll::of(options) else { return has_effect(options) };
    let require = |is_asked, attempt, remedy: &str| match is_asked {
        true => facts.require(attempt, remedy),
        false => Support::Yes,
    };
    match waiter {
        Waiter::Call => require(true, SOCKET, PRIVILEGE)
            .and(require(asked.prefer, SOCKET_PREFER, PRIVILEGE))
            .and(require(asked.budget > 0, SOCKET_BUDGET, PRIVILEGE)),
        Waiter::Epoll => require(true, EPOLL, SINCE),
        Waiter::Ring => {
            let later = "napi-tracking=static polls no queue of connections that come later";
            require(true, RING, SINCE)
                .and(refuse_if(asked.is_static && job.passing.is_some(), later, DYNAMIC))
                .and(require(asked.is_static, RING_STATIC, SINCE_STATIC))
        }
    }
}

const DYNAMIC: &str = "leave napi-tracking at dynamic";

const SINCE_STATIC: &str = "boot Linux 6.13 or later, or leave napi-tracking at dynamic";

const PRIVILEGE: &str = "run as root, not in a user namespace (CAP_NET_ADMIN), on a kernel built with \
     CONFIG_NET_RX_BUSY_POLL (prefer-busy-poll and busy-poll-budget: Linux 5.11 or later), or leave the option \
     at its default";

const SINCE: &str =
    "boot Linux 6.9 or later, built with CONFIG_NET_RX_BUSY_POLL, or leave busy-poll at 0";

/// Refuses options of busy polling while it is off.
fn has_effect(options: &Options) -> Support {
    let idle = [
        (options.flag(PREFER.name), PREFER.name),
        (options.number(BUDGET.name).is_some(), BUDGET.name),
        (options.word(TRACKING.name) == "static", TRACKING.name),
    ];
    let refuse = |(is_set, name)| {
        let without = format!("{name} has no effect without busy-poll");
        refuse_if(is_set, without, "choose a busy-poll, such as 50")
    };
    idle.into_iter().map(refuse).fold(Support::Yes, Support::and)
}

/// Tries the socket options.
pub(super) fn socket_attempts() -> Vec<Attempt> {
    let set = |option, value| {
        let socket = rustix::net::socket(AddressFamily::INET, SocketType::STREAM, None)?;
        tcp::set_int(socket.as_fd(), libc::SOL_SOCKET, option, value).map(|()| String::new())
    };
    vec![
        tried(SOCKET, set(libc::SO_BUSY_POLL, 1)),
        tried(SOCKET_PREFER, set(libc::SO_PREFER_BUSY_POLL, 1)),
        tried(SOCKET_BUDGET, set(libc::SO_BUSY_POLL_BUDGET, 64)),
    ]
}

/// Tries busy polling by epoll.
pub(super) fn epoll_attempt() -> Attempt {
    tried(EPOLL, eventpoll::try_busy_poll().map(|()| String::new()))
}

/// Tries busy polling by a ring. Empty if rings cannot be created.
pub(super) fn ring_attempts() -> Vec<Attempt> {
    let is_there = |track| uring::try_busy_poll(track).map(|()| String::new());
    match uring::features() {
        Ok(_) => vec![tried(RING, is_there(false)), tried(RING_STATIC, is_there(true))],
        Err(_) => Vec::new(),
    }
}

/// A ring that polls fixed queues: the queues, and its connections.
pub struct FixedQueues {
    queues: Vec<u32>,
    connections: Vec<Arc<dyn Connection>>,
}

impl FixedQueues {
    /// For a ring that has just been opened over these connections; `None` if it tracks queues
    /// dynamically.
    pub fn of(options: &Options, connections: &[Arc<dyn Connection>]) -> Option<FixedQueues> {
        let queues = BusyPoll::of(options)?.is_static.then(|| queues(&sockets(connections)))?;
        Some(FixedQueues { queues, connections: connections.to_vec() })
    }

    /// Returns a note for the reader if connections of such rings now receive from a queue that
    /// their ring does not poll, or `None` if there is no such connection.
    pub fn unpolled_note(rings: &[FixedQueues]) -> Option<String> {
        describe_unpolled(rings.iter().map(|ring| {
            let now = sockets(&ring.connections).into_iter().map(queue).collect();
            (&ring.queues[..], now)
        }))
    }
}

/// Like [`FixedQueues::unpolled_note`], given the queues that each ring polls and, if known, the
/// queue from which each of its connections now receives.
fn describe_unpolled<'q>(
    rings: impl Iterator<Item = (&'q [u32], Vec<Option<u32>>)>,
) -> Option<String> {
    let (mut left, mut all) = (0, 0);
    for (polled, now) in rings {
        all += now.len();
        left += now.iter().flatten().filter(|queue| !polled.contains(queue)).count();
    }
    (left > 0).then(|| {
        format!(
            "{left} of {all} connections receive from a queue that was not known at the start, which \
             napi-tracking=static does not poll: leave it at dynamic, or keep the device and what \
             steers to its queues as they are"
        )
    })
}

/// Returns a note for the reader if polling was requested but some connections have no queue to
/// poll. `None` if every connection has one.
pub fn unpolled(options: &Options, connections: &[Arc<dyn Connection>]) -> Option<String> {
    BusyPoll::of(options)?;
    let sockets = sockets(connections);
    let without = sockets.iter().filter(|socket| queue(**socket).is_none()).count();
    (without > 0).then(|| {
        format!(
            "busy-poll polled nothing for {without} of {} connections: no queue is known that they \
             receive from (SO_INCOMING_NAPI_ID is 0), as over the loopback device, or a veth pair \
             without GRO",
            sockets.len()
        )
    })
}

fn sockets(connections: &[Arc<dyn Connection>]) -> Vec<BorrowedFd<'_>> {
    connections.iter().filter_map(|one| one.socket()).collect()
}

/// Returns the queues that these sockets have last received from, as far as they can be polled.
fn queues(sockets: &[BorrowedFd]) -> Vec<u32> {
    let mut all: Vec<u32> = sockets.iter().filter_map(|socket| queue(*socket)).collect();
    all.sort_unstable();
    all.dedup();
    all
}

/// Returns the queue that a socket last received from, if it can be polled.
fn queue(socket: BorrowedFd) -> Option<u32> {
    tcp::incoming_napi(socket).ok().flatten()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::Passing;
    use bytepath_record::{Cell, Half, Outcome, Role};

    const ALL: [OptionSpec; 4] = [MICROSECONDS, PREFER, BUDGET, TRACKING];

    fn options(given: &[(&str, &str)]) -> Options {
        let value = |spec: &OptionSpec| {
            let typed = given.iter().find(|(name, _)| *name == spec.name);
            spec.kind.parse(typed.map_or(spec.default, |(_, value)| value)).unwrap()
        };
        Options(ALL.iter().map(|spec| (spec.name.to_owned(), value(spec))).collect())
    }

    /// Returns the refusal of a host that lacks one feature.
    fn refusal(given: &[(&str, &str)], waiter: Waiter, lacks: &str) -> String {
        refusal_of(given, waiter, lacks, None)
    }

    fn refusal_of(
        given: &[(&str, &str)],
        waiter: Waiter,
        lacks: &str,
        passing: Option<Passing>,
    ) -> String {
        let attempts = [SOCKET, SOCKET_PREFER, SOCKET_BUDGET, EPOLL, RING, RING_STATIC];
        let attempt = |name: &str| Attempt {
            name: name.into(),
            outcome: match name == lacks {
                true => Outcome::Errno(libc::EPERM),
                false => Outcome::Works(String::new()),
            },
        };
        let attempts = attempts.into_iter().map(attempt).collect();
        let facts = Facts { attempts, ..Facts::default() };
        let cell = Cell::new("test", Half::plain("socket"), Half::plain("socket"));
        let job = HalfConfig {
            options: options(given),
            passing,
            ..HalfConfig::stream(&cell, Role::Receiver)
        };
        match support(&job, &facts, waiter) {
            Support::Yes => String::new(),
            Support::No { reason, remedy } => format!("{reason} ({remedy})"),
        }
    }

    #[test]
    fn each_waiter_requires_what_is_asked_of_it() {
        let plain = ("busy-poll", "50");
        let prefer = ("prefer-busy-poll", "on");
        for (given, waiter, lacks) in [
            (&[plain][..], Waiter::Call, SOCKET),
            (&[plain, prefer], Waiter::Call, SOCKET_PREFER),
            (&[plain, ("busy-poll-budget", "16")], Waiter::Call, SOCKET_BUDGET),
            (&[plain, prefer], Waiter::Epoll, EPOLL),
            (&[plain], Waiter::Ring, RING),
            (&[plain, ("napi-tracking", "static")], Waiter::Ring, RING_STATIC),
        ] {
            let refused = refusal(given, waiter, lacks);
            assert!(refused.starts_with(lacks) && refused.ends_with(')'), "{given:?}: {refused}");
            assert_eq!(refusal(given, waiter, ""), "", "{given:?}");
            assert_eq!(refusal(&[], waiter, lacks), "", "nothing polls, so nothing is needed");
        }
        assert_eq!(refusal(&[plain], Waiter::Call, SOCKET_PREFER), "", "it was not asked for");
        let privileged = refusal(&[plain, prefer], Waiter::Call, SOCKET_PREFER);
        assert!(privileged.contains("Operation not permitted"), "{privileged}");
        assert!(privileged.contains("CAP_NET_ADMIN"), "{privileged}");
    }

    #[test]
    fn a_static_list_has_no_queue_of_connections_that_come_later() {
        let given = |tracking| [("busy-poll", "50"), ("napi-tracking", tracking)];
        let cell = Cell::new("test", Half::plain("epoll"), Half::plain("uring-loop"));
        let refused =
            |tracking| refusal_of(&given(tracking), Waiter::Ring, "", Some(Passing::of(&cell)));
        assert!(refused("static").starts_with("napi-tracking=static polls no queue"));
        assert_eq!(refused("dynamic"), "");
    }

    #[test]
    fn how_to_poll_has_no_effect_where_nothing_polls() {
        for given in
            [("prefer-busy-poll", "on"), ("busy-poll-budget", "8"), ("napi-tracking", "static")]
        {
            let refused = refusal(&[given], Waiter::Ring, "");
            let expected = format!("{} has no effect without busy-poll", given.0);
            assert!(refused.starts_with(&expected), "{refused}");
        }
    }

    #[test]
    fn a_ring_does_not_poll_queues_that_were_not_known_at_the_start() {
        let left = |rings: &[(&[u32], &[Option<u32>])]| {
            describe_unpolled(rings.iter().map(|(polled, now)| (*polled, now.to_vec())))
        };
        // Another connection of the ring may have received from it earlier.
        assert_eq!(left(&[(&[7, 8], &[Some(8), Some(8)]), (&[9], &[Some(9)])]), None);
        assert_eq!(left(&[(&[7], &[Some(7), None])]), None, "no queue at the start, and none now");
        let note = left(&[(&[], &[Some(7)]), (&[8], &[Some(8), Some(9)])]).unwrap();
        assert!(note.starts_with("2 of 3 connections receive from a queue that was not"), "{note}");
        let note = left(&[(&[8], &[Some(8)]), (&[9], &[Some(8)])]).unwrap();
        assert!(note.starts_with("1 of 2 "), "it is another ring that polls it: {note}");
    }

    #[test]
    fn only_a_ring_that_polls_a_static_list_has_fixed_queues() {
        let (socket, _peer) = tcp::loopback_pair().unwrap();
        let connections: Vec<Arc<dyn Connection>> = vec![Arc::new(Flow::tcp(socket, 0))];
        let of = |given: &[(&str, &str)]| FixedQueues::of(&options(given), &connections);
        assert!(of(&[("napi-tracking", "static")]).is_none(), "it does not poll");
        assert!(of(&[("busy-poll", "50")]).is_none(), "it finds them by itself");
        let ring = of(&[("busy-poll", "50"), ("napi-tracking", "static")]).unwrap();
        assert!(ring.queues.is_empty() && ring.connections.len() == 1, "loopback has none");
        assert_eq!(FixedQueues::unpolled_note(&[ring]), None);
    }

    #[test]
    fn loopback_has_no_queue_to_poll_and_is_named() {
        let (socket, _peer) = tcp::loopback_pair().unwrap();
        let connections: Vec<Arc<dyn Connection>> = vec![Arc::new(Flow::tcp(socket, 0))];
        let note = unpolled(&options(&[("busy-poll", "50")]), &connections).unwrap();
        assert!(note.contains("for 1 of 1 connections"), "{note}");
        assert_eq!(unpolled(&options(&[]), &connections), None, "nothing was asked for");
    }
}
