//! All paths and named pairs, and how the ends of a cell connect.

use super::half::DataPath;
use super::{
    af_xdp, devmem, discard, epoll, msg_zerocopy, packet, packet_ring, pktgen, poll, sendfile,
    socket, splice, tap, tcp_zerocopy_receive, udp_gso, uring, uring_loop, uring_zc, userspace,
    userspace_loop, vhost, xdp, zcrx,
};
use crate::connection::{KERNEL_TCP, Transport};
use crate::workload::{self, Direction, Workload};
#[cfg(test)]
use bytepath_record::Options;
use bytepath_record::{Cell, Fault, Half, Role};
use schemars::JsonSchema;
use serde::Serialize;

/// Every data path, in the order of tables.
pub static CATALOG: &[&DataPath] = &[
    &socket::PATH,
    &sendfile::PATH,
    &splice::PATH,
    &msg_zerocopy::PATH,
    &tcp_zerocopy_receive::PATH,
    &uring::PATH,
    &uring_zc::PATH,
    &zcrx::PATH,
    &devmem::PATH,
    &discard::PATH,
    &userspace::PATH,
    &packet::PATH,
    &packet_ring::PATH,
    &tap::PATH,
    &vhost::PATH,
    &pktgen::PATH,
    &af_xdp::PATH,
    &xdp::LIVE,
    &xdp::DROP,
    &udp_gso::PATH,
    &epoll::PATH,
    &uring_loop::PATH,
    &poll::PATH,
    &userspace_loop::PATH,
];

/// A named combination of a sender's and a receiver's half.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Pair {
    /// Name, as the user types it.
    pub name: &'static str,
    pub tx: &'static str,
    pub rx: &'static str,
}

/// The named pairs, in the order of tables. `TX+RX` selects any other combination.
pub static PAIRS: &[Pair] = &[
    Pair { name: "socket", tx: "socket", rx: "socket" },
    Pair { name: "sendfile", tx: "sendfile", rx: "socket" },
    Pair { name: "splice", tx: "splice", rx: "tcp-zerocopy-receive" },
    Pair { name: "msg-zerocopy", tx: "msg-zerocopy", rx: "tcp-zerocopy-receive" },
    Pair { name: "uring", tx: "uring", rx: "uring" },
    Pair { name: "uring-zc", tx: "uring-zc", rx: "uring" },
    Pair { name: "zcrx", tx: "uring-zc", rx: "zcrx" },
    Pair { name: "devmem", tx: "devmem", rx: "devmem" },
];

/// Default paths of a study of frames: over a tap, and over other links.
pub static TAP_PAIRS: &[&str] = &["packet+tap", "packet+vhost"];
pub static FRAME_PAIRS: &[&str] =
    &["packet+packet", "packet-ring+packet-ring", "af-xdp+af-xdp", "packet+xdp-drop"];

/// Returns the entry of a catalogue with this name.
pub fn find<'a>(catalog: &[&'a DataPath], name: &str) -> Option<&'a DataPath> {
    catalog.iter().copied().find(|path| path.name == name)
}

/// A cell with this path at both ends, whose receiving half has these options.
#[cfg(test)]
pub(crate) fn cell_of(name: &str, given: &[(&str, &str)]) -> Cell {
    let path = find(CATALOG, name).expect(name);
    let options = path.half(Role::Receiver).expect(name).options.iter().map(|spec| {
        let value = given.iter().find(|(option, _)| *option == spec.name);
        let value = value.map_or(spec.default, |(_, value)| value);
        (spec.name.to_owned(), spec.kind.parse(value).expect(spec.name))
    });
    let half = Half { path: name.into(), options: Options(options.collect()) };
    Cell::new(name, half.clone(), half)
}

/// Returns the cell as one of its ends runs it. Each end uses the path of its own role for both
/// directions if one of the paths is an event loop, if connections come and go, or if the workload
/// opens both halves at each end and they use different stacks, so that no end can have both.
pub fn cell_for_end(paths: &[&DataPath], cell: &Cell, role: Role) -> Cell {
    let meets = |cell: &Cell| {
        let find = |role: Role| find(paths, &cell.half(role).path);
        let both = find(Role::Sender).zip(find(Role::Receiver));
        let workload = workload::of(cell).ok();
        both.zip(workload)
            .is_some_and(|((tx, rx), workload)| transport(workload, cell, role, [tx, rx]).is_ok())
    };
    let own = cell.half(role).clone();
    let apart = Cell { tx: own.clone(), rx: own, ..cell.clone() };
    let reconnects = workload::of(cell).is_ok_and(|workload| workload.reconnects);
    let is_loop = |half: &Half| {
        reconnects || find(paths, &half.path).is_some_and(|path| path.event_loop.is_some())
    };
    if is_loop(&cell.tx) || is_loop(&cell.rx) {
        return apart;
    }
    if !meets(cell) && meets(&apart) { apart } else { cell.clone() }
}

/// Returns the transport of one end: the first that has the workload's protocol and that all halves
/// opened there support. An end that opens none uses its peer's.
pub fn transport(
    workload: &Workload,
    cell: &Cell,
    role: Role,
    [tx, rx]: [&DataPath; 2],
) -> Result<&'static Transport, Fault> {
    let all = [role, role.peer()].map(workload.halves);
    let directions = all.into_iter().find(|halves| !halves.is_empty()).unwrap_or_default();
    let opened = directions.iter().map(|direction| {
        let path = if *direction == Direction::Send { tx } else { rx };
        let half = path.half(direction.role());
        (path.name, half.map_or(&[][..], |half| half.transports))
    });
    let opened: Vec<_> = opened.collect();
    let protocol = (workload.protocol)(cell);
    let speaks = |transport: &&'static Transport| transport.protocol == protocol;
    if let Some((name, _)) = opened.iter().find(|(_, all)| !all.iter().any(speaks)) {
        let text = format!("path '{name}' does not speak {protocol}");
        let remedy = "choose another path, or another transport";
        return Err(Fault::usage(text).remedy(remedy));
    }
    let has = |all: &[&Transport], name: &str| all.iter().any(|t| t.name == name);
    let common = |t: &&'static Transport| opened.iter().all(|(_, all)| has(all, t.name));
    let first = opened.first().map_or(&[][..], |(_, all)| all);
    first.iter().copied().filter(speaks).find(common).ok_or_else(|| {
        let names: Vec<&str> = opened.iter().map(|(name, _)| *name).collect();
        let text = format!("one end cannot have both {}", names.join(" and "));
        Fault::usage(text).remedy("choose halves that use the same stack")
    })
}

/// Refuses an event loop for a workload that does not handle many connections per thread, and
/// anything but loops for a workload whose connections come and go.
pub fn suits_workload(workload: &Workload, path: &DataPath) -> Result<(), Fault> {
    let has_loop = path.loop_of(workload).is_some();
    let (path, name) = (path.name, workload.name);
    if workload.reconnects && !has_loop {
        let text =
            format!("path '{path}' opens connections once, and {name} one for each exchange");
        return Err(Fault::usage(text).remedy("choose socket or an event loop, such as epoll"));
    }
    if !has_loop || workload.play_loop.is_some() {
        return Ok(());
    }
    let text = format!("path '{path}' is an event loop, which the workload {name} does not use");
    Err(Fault::usage(text).remedy("choose --workload rr, or a path with a thread per flow"))
}

/// Refuses several adapters for workloads and transports with one device at each end.
pub fn crosses_adapters(workload: &Workload, transport: &Transport) -> Result<(), Fault> {
    let what = if workload.reconnects {
        format!("connections of the workload {} come and go between two addresses", workload.name)
    } else if transport.name != KERNEL_TCP.name {
        format!("{} is of one device at each end", transport.name)
    } else {
        return Ok(());
    };
    let text = format!("{what}: its flows cannot cross several adapters");
    Err(Fault::usage(text).remedy("leave out adapters, or choose another path or workload"))
}

/// True if a vhost worker, which can be placed, passes frames to this half.
pub fn has_vhost_worker(half: &str) -> bool {
    half == vhost::PATH.name
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytepath_record::{Attempt, Facts, Outcome, Protocol, Support};

    #[test]
    fn what_is_of_one_device_crosses_no_second() {
        let refusal = |workload: &str, path: &str| {
            let of = |name| workload::CATALOG.iter().find(|one| one.name == name).unwrap();
            let (workload, path) = (of(workload), find(CATALOG, path).unwrap());
            let name = &Half::plain(path.name);
            let cell = Cell::new("a", name.clone(), name.clone());
            let transport = transport(workload, &cell, Role::Receiver, [path, path]).unwrap();
            crosses_adapters(workload, transport).err().map(|f| f.to_string())
        };
        for (workload, path) in
            [("stream", "socket"), ("rr", "epoll"), ("stream", "zcrx"), ("stream", "devmem")]
        {
            assert_eq!(refusal(workload, path), None, "{path}");
        }
        for (workload, path, words) in [
            ("stream", "userspace", "one device at each end"),
            ("packets", "packet", "one device at each end"),
            ("crr", "epoll", "come and go between two addresses"),
        ] {
            let text = refusal(workload, path).unwrap_or_default();
            assert!(text.contains(words) && text.contains("leave out adapters"), "{path}: {text}");
        }
    }

    #[test]
    fn halves_need_their_attempt_to_work() {
        for (name, role) in [
            ("sendfile", Role::Sender),
            ("splice", Role::Sender),
            ("msg-zerocopy", Role::Sender),
            ("tcp-zerocopy-receive", Role::Receiver),
        ] {
            let path = find(CATALOG, name).unwrap();
            let check = |role, attempts: &[Attempt]| {
                let facts = Facts { attempts: attempts.to_vec(), ..Facts::default() };
                path.check(role, &facts).map(|support| support.is_yes())
            };
            let attempts = (path.attempt)(None);
            assert_eq!(check(role, &attempts), Some(true), "on this host: {attempts:?}");
            assert_eq!(check(role, &[]), Some(false), "{name}");
            let failed = Attempt { outcome: Outcome::Errno(libc::EINVAL), ..attempts[0].clone() };
            assert_eq!(check(role, &[failed]), Some(false), "{name}");
            assert_eq!(check(role.peer(), &attempts), None, "{name}");
        }
    }

    #[test]
    fn default_job_of_frame_paths_is_one_frame() {
        let facts = Facts::default();
        let all = CATALOG.iter().filter(|path| ["af-xdp", "udp-gso"].contains(&path.name));
        let halves =
            all.flat_map(|path| [Role::Sender, Role::Receiver].map(|r| path.check(r, &facts)));
        let found: Vec<Support> = halves.flatten().collect();
        assert_eq!(found.len(), 3);
        assert!(found.iter().all(Support::is_yes), "{found:?}");
    }

    #[test]
    fn chooses_transport_by_workload() {
        let cell = Cell::new("test", Half::plain("socket"), Half::plain("socket"));
        let stream = workload::CATALOG[0];
        let mut udp = cell.clone();
        udp.workload.name = "rr".into();
        udp.stream.protocol = Protocol::Udp;
        let rr = workload::of(&udp).unwrap();
        let named = |name: &str| workload::CATALOG.iter().find(|workload| workload.name == name);
        let packets = named("packets").unwrap();
        let of = |workload: &Workload, cell: &Cell, role, halves: [&DataPath; 2]| {
            transport(workload, cell, role, halves).map(|transport| transport.name)
        };
        for role in Role::ALL {
            assert_eq!(
                of(stream, &cell, role, [&splice::PATH, &socket::PATH]).unwrap(),
                "the kernel's TCP"
            );
            assert_eq!(
                of(rr, &udp, role, [&socket::PATH, &uring::PATH]).unwrap(),
                "the kernel's UDP"
            );
            let fault = of(rr, &udp, role, [&splice::PATH, &socket::PATH]).unwrap_err();
            assert_eq!(fault.message, "path 'splice' does not speak UDP");
            let frames = of(packets, &cell, role, [&packet::PATH, &tap::PATH]);
            assert_eq!(frames.unwrap(), "frames of the link");
            assert!(of(packets, &cell, role, [&socket::PATH, &socket::PATH]).is_err());
        }
        assert!(of(stream, &cell, Role::Sender, [&packet::PATH, &socket::PATH]).is_err());
    }

    #[test]
    fn ends_of_different_stacks_use_their_own_path() {
        let names = |tx: &str, rx: &str, workload: &str, role| {
            let mut cell = Cell::new("test", Half::plain(tx), Half::plain(rx));
            cell.workload.name = workload.into();
            let cell = cell_for_end(CATALOG, &cell, role);
            [cell.tx.path, cell.rx.path]
        };
        let [own, other] = ["userspace", "socket"];
        assert_eq!(names(own, other, "rr", Role::Sender), [own, own]);
        assert_eq!(names(own, other, "rr", Role::Receiver), [other, other]);
        assert_eq!(names(other, own, "rr", Role::Receiver), [own, own]);
        // One end opens only one half, or can have both.
        assert_eq!(names(own, other, "stream", Role::Sender), [own, other]);
        assert_eq!(names("uring-zc", "uring", "rr", Role::Sender), ["uring-zc", "uring"]);
        // A path without the half that it would need remains refused.
        assert_eq!(names(own, "splice", "rr", Role::Receiver), [own, "splice"]);
    }
}
