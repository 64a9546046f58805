//! TLS support per path: which halves can move encrypted bytes, whether kernel or program encrypts,
//! and why the others cannot.

pub use crate::connection::tls::support;
use crate::workload::{self, Direction};
use bytepath_record::{Cell, Facts, Options, Protocol, Role, Support, Tls};

/// Returns whether everything that both ends of a cell open can be encrypted as its contract
/// requires, given one end's host facts. Pure.
pub fn encrypts(cell: &Cell, facts: &Facts) -> Support {
    let who = cell.stream.tls;
    let Ok(workload) = workload::of(cell) else { return Support::Yes };
    if workload::handshake(cell).is_some() {
        return support(Tls::User, facts);
    }
    if who == Tls::None {
        return Support::Yes;
    }
    if (workload.protocol)(cell) != Protocol::Tcp {
        let reason = format!("{} carry no TLS", (workload.protocol)(cell));
        return Support::no(reason, "leave tls out");
    }
    // Reports first what is impossible on any host.
    let halves = Role::ALL.into_iter().flat_map(workload.halves).map(|direction| {
        let half = cell.half(direction.role());
        half_can(&half.path, *direction, who, &half.options)
    });
    halves.fold(Support::Yes, Support::and).and(support(who, facts))
}

fn half_can(path: &str, direction: Direction, who: Tls, options: &Options) -> Support {
    if let Some((_, reason)) = NEVER.iter().find(|(name, _)| *name == path) {
        return Support::no(
            *reason,
            format!("leave tls out, or choose {}", encrypting_paths(who, direction)),
        );
    }
    if who == Tls::User && path != "socket" {
        let reason = match path {
            "sendfile" | "splice" => {
                format!("{path} sends pages as they are: nobody reads and encrypts them")
            }
            _ => format!("{path} leaves no turn to a program that encrypts"),
        };
        return Support::no(reason, "choose tls=kernel, or the path socket");
    }
    // With wait=epoll, epoll_wait does the polling, whatever reads afterwards.
    let polls_by_epoll = options.word("wait") == "epoll";
    let stray = OPTIONS.iter().find(|(tls, name, option, usual, _)| {
        let value = options.0.get(*option).map(|value| value.to_string());
        (*tls, *name) == (who, path)
            && value.is_some_and(|value| value != *usual)
            && !(polls_by_epoll && *option == "busy-poll")
    });
    match stray {
        Some((_, _, option, usual, reason)) => {
            Support::no(*reason, format!("leave {option} at {usual}, or tls out"))
        }
        None => Support::Yes,
    }
}

fn encrypting_paths(who: Tls, direction: Direction) -> &'static str {
    match (who, direction) {
        (Tls::User, _) => "socket",
        (_, Direction::Send) => "socket, sendfile, splice or uring",
        (_, Direction::Receive) => "socket or uring",
    }
}

/// Halves without encryption (net/tls/tls_sw.c, net/ipv4/tcp_ulp.c, io_uring/zcrx.c).
const NEVER: &[(&str, &str)] = &[
    ("msg-zerocopy", "the kernel's TLS refuses MSG_ZEROCOPY, and mapped pages would be ciphertext"),
    ("tcp-zerocopy-receive", "TCP_ZEROCOPY_RECEIVE maps what arrived, which would be ciphertext"),
    ("uring-zc", "the kernel's TLS refuses zero-copy sends of io_uring"),
    ("zcrx", "the NIC puts ciphertext into the area, and the kernel's TLS refuses zcrx"),
    ("devmem", "no CPU reads the memory of a device, so none can encrypt or decrypt it"),
    ("discard", "what is discarded unseen is not decrypted either"),
    ("epoll", "the event loops make and read no records yet"),
    ("poll", "the event loops make and read no records yet"),
    ("uring-loop", "the event loops make and read no records yet"),
    ("userspace-loop", "the event loops make and read no records yet"),
    ("userspace", "its connections are not sockets of the kernel's, and it has no TLS of its own"),
];

/// Options that would apply to ciphertext: who encrypts, path, option, its default, and why no
/// other value is allowed.
const OPTIONS: &[(Tls, &str, &str, &str, &str)] = &[
    (Tls::User, "socket", "lowat", "auto", "SO_RCVLOWAT would count ciphertext"),
    (Tls::User, "socket", "waitall", "off", "MSG_WAITALL would wait for ciphertext"),
    (Tls::User, "socket", "wait", "block", "a program that decrypts sleeps in recv here"),
    (Tls::Kernel, "socket", "lowat", "auto", "SO_RCVLOWAT would count ciphertext"),
    (
        Tls::Kernel,
        "socket",
        "busy-poll",
        "0",
        "recv from the kernel's TLS sleeps without polling (with wait=epoll, epoll_wait polls)",
    ),
    (
        Tls::Kernel,
        "uring",
        "mode",
        "send",
        "the kernel's TLS refuses MSG_WAITALL, which bundles need",
    ),
];

#[cfg(test)]
mod tests {
    use super::*;
    use bytepath_record::{Attempt, Half, OptionValue, Outcome};

    fn facts(works: bool) -> Facts {
        let outcome = || match works {
            true => Outcome::Works(String::new()),
            false => Outcome::Missing("this kernel has none".into()),
        };
        let names = ["tls.kernel", "tls.user"];
        let attempts = names.map(|name| Attempt { name: name.into(), outcome: outcome() });
        Facts { attempts: attempts.into(), ..Facts::default() }
    }

    fn cell(tx: &str, rx: &str, tls: Tls) -> Cell {
        let mut cell = Cell::new("test", Half::plain(tx), Half::plain(rx));
        cell.stream.tls = tls;
        cell
    }

    fn refusal(cell: &Cell, works: bool) -> Option<String> {
        match encrypts(cell, &facts(works)) {
            Support::Yes => None,
            Support::No { reason, remedy } => Some(format!("{reason} ({remedy})")),
        }
    }

    #[test]
    fn every_path_supports_or_refuses_tls() {
        for path in crate::path::CATALOG {
            for tls in [Tls::User, Tls::Kernel] {
                let (sends, receives) = (path.tx.is_some(), path.rx.is_some());
                let tx = if sends { path.name } else { "socket" };
                let rx = if receives { path.name } else { "socket" };
                let can = refusal(&cell(tx, rx, tls), true).is_none();
                let expected = match tls {
                    Tls::User => path.name == "socket",
                    _ => ["socket", "sendfile", "splice", "uring"].contains(&path.name),
                };
                let frames = path.tx.is_some_and(|half| {
                    half.transports.iter().all(|t| t.protocol == Protocol::Frames)
                });
                let sinks = path.rx.is_some_and(|half| {
                    half.transports.iter().all(|t| t.protocol == Protocol::Frames)
                });
                assert!(can == expected || frames || sinks, "{} {tls:?}", path.name);
            }
        }
        let mut packets = cell("packet", "tap", Tls::Kernel);
        packets.workload.name = "packets".into();
        assert_eq!(refusal(&packets, true).unwrap(), "frames carry no TLS (leave tls out)");
    }

    #[test]
    fn refusals_have_cause_and_remedy() {
        let of = |tx, rx, tls| refusal(&cell(tx, rx, tls), true).unwrap();
        assert_eq!(
            of("sendfile", "socket", Tls::User),
            "sendfile sends pages as they are: nobody reads and encrypts them (choose \
             tls=kernel, or the path socket)"
        );
        assert_eq!(
            of("splice", "tcp-zerocopy-receive", Tls::Kernel),
            "TCP_ZEROCOPY_RECEIVE maps what arrived, which would be ciphertext (leave tls out, \
             or choose socket or uring)"
        );
        assert!(
            refusal(&cell("socket", "socket", Tls::Kernel), false).unwrap().contains("modprobe")
        );
        assert!(refusal(&cell("socket", "socket", Tls::None), false).is_none());
        let mut bundle = cell("uring", "uring", Tls::Kernel);
        bundle.tx.options.0.insert("mode".into(), OptionValue::Word("bundle".into()));
        let said = refusal(&bundle, true).unwrap();
        assert!(said.ends_with("(leave mode at send, or tls out)"), "{said}");
    }

    #[test]
    fn only_epoll_polls_under_the_kernels_tls() {
        let refused = |tls, wait: &str| {
            let mut cell = cell("socket", "socket", tls);
            let options = &mut cell.rx.options.0;
            options.insert("busy-poll".into(), OptionValue::Number(50));
            options.insert("wait".into(), OptionValue::Word(wait.into()));
            refusal(&cell, true)
        };
        for wait in ["block", "spin"] {
            let reason = refused(Tls::Kernel, wait).unwrap();
            assert!(reason.starts_with("recv from the kernel's TLS sleeps"), "{reason}");
            assert!(reason.ends_with("(leave busy-poll at 0, or tls out)"), "{reason}");
        }
        assert_eq!(refused(Tls::Kernel, "epoll"), None);
        assert_eq!(refused(Tls::User, "block"), None, "the program's recv is TCP's own");
    }

    #[test]
    fn both_ends_of_exchanges_open_both_halves() {
        let mut rr = cell("sendfile", "socket", Tls::Kernel);
        rr.workload.name = "rr".into();
        assert_eq!(refusal(&rr, true), None);
        rr.rx = Half::plain("discard");
        assert!(refusal(&rr, true).unwrap().contains("not decrypted"));
    }
}
