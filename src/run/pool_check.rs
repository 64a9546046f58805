//! The simulation of a buffer pool beside a real one: packets at a steady rate over the
//! testbed's link into a ring of buffers of fixed number, and a program that keeps what
//! it reads.
//!
//! What is real: the packets, the kernel that takes a buffer for each or drops it, and
//! the program's reading, keeping and giving back. What is not a card's page pool: the
//! buffers are those of a packet socket (TPACKET_V2), and a packet without one is
//! dropped where a card's driver would have copied or dropped it.

use super::Laboratory;
use super::remote::{PROMPT, Remotes, unexpected};
use super::trial::set_up_link;
use crate::record::wire::{Reply, Request};
use crate::record::{Cell, Fault, FaultKind, Half, LinkSettings, PoolRun, PoolSeen, Role, unit};
use crate::sys::netlink::Netlink;
use crate::sys::packet::{PacketRing, PacketSender};
use std::collections::VecDeque;
use std::io;
use std::time::{Duration, Instant};

/// An ethertype that IEEE 802 sets aside for experiments.
const PROTOCOL: u16 = 0x88b5;

/// How often the program looks at its ring.
const LOOK: Duration = Duration::from_micros(500);

/// Steps of [`PoolSeen::course`].
const STEPS: u32 = 60;

/// Most packets that are sent in one go, to make up for time that the sender did not
/// get: more would not fit the queues in between (`net.core.netdev_max_backlog`).
const BURST: u64 = 128;

/// How long the first packet may take to come.
const PATIENCE: Duration = Duration::from_secs(5);

/// Runs pools one after the other, each with packets at this rate a second.
pub fn pool_check(
    laboratory: &Laboratory,
    rate: f64,
    runs: &[PoolRun],
) -> Result<Vec<PoolSeen>, Fault> {
    let mut remotes = Remotes::raise(laboratory, None)?;
    let half = Half::plain("socket");
    // Packets of another protocol than IP pass everything that a link could merge or steer.
    let link =
        LinkSettings { threaded_napi: false, gro: false, wmem: None, ..LinkSettings::default() };
    set_up_link(&mut remotes, &Cell { link, ..Cell::new("pool", half.clone(), half) })?;
    runs.iter().map(|run| one(&mut remotes, rate, *run)).collect()
}

fn one(remotes: &mut Remotes, rate: f64, run: PoolRun) -> Result<PoolSeen, Fault> {
    let device = |remotes: &Remotes, role| {
        remotes.device(role).ok_or_else(|| {
            Fault::new(FaultKind::Unsupported, "this testbed's link has no device of its own")
        })
    };
    let (from, to) = (device(remotes, Role::Sender)?, device(remotes, Role::Receiver)?);
    let seconds = run.seconds;
    remotes.send(Role::Receiver, &Request::Pool { device: to, run })?;
    // The sender goes on a little longer: both begin when they are asked.
    let seconds = seconds + 0.5;
    remotes.send(Role::Sender, &Request::Flood { device: from, rate, seconds })?;
    let patience = Duration::try_from_secs_f64(seconds).unwrap_or_default() + PATIENCE + PROMPT;
    let seen = match remotes.await_reply(Role::Receiver, patience)? {
        Reply::Pool(seen) => seen,
        other => return Err(unexpected(Role::Receiver, &other)),
    };
    match remotes.await_reply(Role::Sender, patience)? {
        Reply::Done => Ok(seen),
        other => Err(unexpected(Role::Sender, &other)),
    }
}

/// Sender: packets at a steady rate, for so many seconds.
pub(super) fn flood(device: &str, rate: f64, seconds: f64) -> Result<(), Fault> {
    let socket = PacketSender::new(index(device)?, PROTOCOL)
        .map_err(|e| raw(&format!("cannot send packets through {device}"), &e))?;
    let begin = Instant::now();
    let mut sent: u64 = 0;
    loop {
        let now = begin.elapsed().as_secs_f64();
        if now >= seconds {
            return Ok(());
        }
        let due = ((now * rate) as u64).saturating_sub(sent);
        for _ in 0..due.min(BURST) {
            match socket.send() {
                Err(e) if e.raw_os_error() != Some(libc::ENOBUFS) => {
                    return Err(raw(&format!("cannot send a packet through {device}"), &e));
                }
                _ => sent += 1,
            }
        }
        // What could not be sent in time is not made up for: the rate stays below
        // what was asked, and what came is counted at the other end.
        sent += due.saturating_sub(BURST);
        std::thread::sleep(LOOK);
    }
}

/// Receiver: a pool and the program that keeps what it reads.
pub(super) fn pool(device: &str, run: &PoolRun) -> Result<PoolSeen, Fault> {
    let what = format!("a ring of {} buffers at {device}", run.buffers);
    let failed = |e: &io::Error| raw(&what, e);
    let hold = Duration::try_from_secs_f64(run.hold);
    let length = Duration::try_from_secs_f64(run.seconds);
    let (Ok(hold), Ok(length)) = (hold, length) else {
        return Err(Fault::new(FaultKind::Usage, format!("{what}: not a length of time")));
    };
    let mut ring =
        PacketRing::new(index(device)?, PROTOCOL, run.buffers).map_err(|e| failed(&e))?;
    ring.wait(PATIENCE).map_err(|e| failed(&e))?;
    if !ring.has(1) {
        let text = format!("no packet came to {device} within {}", unit::seconds(PATIENCE));
        return Err(Fault::new(FaultKind::PeerLost, text));
    }
    let mut seen = PoolSeen { buffers: ring.frames(), ..PoolSeen::default() };
    let mut held: VecDeque<(Instant, u32)> = VecDeque::new();
    // Buffers whose time is over, not given back yet; and all that were given back.
    let (mut owed, mut returned) = (0u32, 0u64);
    let (read, batch) = (run.read.max(1), run.batch.max(1));
    let begin = Instant::now();
    loop {
        let now = Instant::now();
        while ring.take(read) {
            held.push_back((now + hold, read));
        }
        while let Some((_, count)) = held.front().copied().filter(|(until, _)| *until <= now) {
            held.pop_front();
            owed += count;
        }
        let whole = owed / batch * batch;
        ring.give_back(whole);
        (owed, returned) = (owed - whole, returned + u64::from(whole));
        let counts = ring.counts().map_err(|e| failed(&e))?;
        seen.packets += u64::from(counts.packets);
        seen.refused += u64::from(counts.dropped);
        let elapsed = now - begin;
        if counts.dropped > 0 {
            seen.first_refused.get_or_insert(elapsed.as_secs_f64());
        }
        let in_use = (seen.packets - seen.refused.min(seen.packets)).saturating_sub(returned);
        let step = elapsed.as_secs_f64() / run.seconds * f64::from(STEPS);
        while seen.course.len() <= step as usize && seen.course.len() < STEPS as usize {
            seen.course.push(u64::from(ring.frames()).saturating_sub(in_use));
        }
        if elapsed >= length {
            seen.seconds = elapsed.as_secs_f64();
            return Ok(seen);
        }
        std::thread::sleep(LOOK);
    }
}

fn index(device: &str) -> Result<u32, Fault> {
    let link = Netlink::new().link(device);
    let link = link.map_err(|e| Fault::system(format!("looking for {device}"), &e))?;
    let missing = || Fault::new(FaultKind::System, format!("there is no device {device}"));
    Ok(link.ok_or_else(missing)?.index)
}

fn raw(what: &str, error: &io::Error) -> Fault {
    let fault = Fault::system(what, error);
    match error.raw_os_error() {
        Some(libc::EAFNOSUPPORT) => fault.remedy("use a kernel with CONFIG_PACKET"),
        Some(libc::EPERM) => fault.remedy("run as root, or where user namespaces are allowed"),
        Some(libc::ENOMEM) => fault.remedy("plan a smaller pool"),
        _ => fault,
    }
}
