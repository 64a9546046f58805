//! What can be set of the testbed, as the user types it, and what contradicts itself.

use super::wire::{self, Wish};
use crate::record::{Fault, FaultKind, OptionKind, OptionSpec, Options, Role};
use std::time::Duration;

/// What can be set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// One guest for both roles, or one for each.
    pub guests: u32,
    /// CPUs of a guest.
    pub cpus: u32,
    /// Memory of a guest, bytes.
    pub memory: u64,
    /// `auto`, `kvm` or `tcg`.
    pub accelerator: &'static str,
    /// The role that stays on this host, if one does.
    pub on_host: Option<Role>,
    /// What joins the two roles where they are not in one guest.
    pub wire: Wish,
    /// How long it is waited for.
    pub limits: Limits,
}

/// How long a guest may take before it counts as one that hangs. A limit is reached
/// by nothing but a guest that is lost, so it is generous: an emulated guest on a
/// busy host is slow and all right.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// From its start until its program answers.
    pub boot: Duration,
    /// To answer what its program answers by itself, without an agent.
    pub silence: Duration,
}

/// What can be set, as the user types it.
pub const OPTIONS: &[OptionSpec] = &[
    OptionSpec {
        name: "guests",
        kind: OptionKind::Count(1, 2),
        default: "1",
        help: "1: both roles in one guest, over veth; 2: a guest for each, over virtio-net",
    },
    OptionSpec {
        name: "cpus",
        kind: OptionKind::Count(1, 255),
        default: "2",
        help: "CPUs of a guest",
    },
    OptionSpec {
        name: "memory",
        kind: OptionKind::Size(256 << 20, 1 << 40),
        default: "1G",
        help: "memory of a guest, bytes",
    },
    OptionSpec {
        name: "accel",
        kind: OptionKind::Choice(ACCELERATORS),
        default: "auto",
        help: "kvm, or tcg (emulated: functional, not performance); auto: kvm if it works",
    },
    OptionSpec {
        name: "host",
        kind: OptionKind::Choice(HOSTS),
        default: "none",
        help: "the role that stays on this host, at the other end of the guest's wire",
    },
    OptionSpec {
        name: "wire",
        kind: OptionKind::Choice(wire::KINDS),
        default: "auto",
        help: "tap: with offloads; socket: packet by packet, needs nothing; auto: tap if it works",
    },
    OptionSpec {
        name: "queues",
        kind: OptionKind::Count(1, 16),
        default: "1",
        help: "queue pairs of a guest's network device, at most as many as it has CPUs",
    },
    OptionSpec {
        name: "vhost",
        kind: OptionKind::Choice(wire::VHOST),
        default: "auto",
        help: "whether this host's kernel moves the packets of a tap (vhost-net); auto: if it can",
    },
    OptionSpec {
        name: "boot",
        kind: OptionKind::Time(1000, 3_600_000),
        default: "60s",
        help: "a guest that is not up after so long has failed",
    },
    OptionSpec {
        name: "silence",
        kind: OptionKind::Time(1000, 3_600_000),
        default: "20s",
        help: "a guest that leaves a question unanswered for so long hangs, and is ended",
    },
];

const ACCELERATORS: &[&str] = &["auto", "kvm", "tcg"];

/// Roles that may stay on this host.
const HOSTS: &[&str] = &["none", "sender", "receiver"];

impl Settings {
    /// With every option at its default.
    pub const DEFAULT: Settings = Settings {
        guests: 1,
        cpus: 2,
        memory: 1 << 30,
        accelerator: "auto",
        on_host: None,
        wire: Wish::DEFAULT,
        limits: Limits { boot: Duration::from_secs(60), silence: Duration::from_secs(20) },
    };

    /// What these options come to.
    pub fn of(options: &Options) -> Result<Settings, Fault> {
        let usual = Settings::DEFAULT;
        let count = |name, usual| options.number(name).map_or(usual, |n| n as u32);
        let time = |name, usual| options.number(name).map_or(usual, Duration::from_millis);
        let word = |name, known: &[&'static str], usual| {
            let typed = options.word(name);
            known.iter().find(|known| **known == typed).copied().unwrap_or(usual)
        };
        let on_host = options.word("host");
        let settings = Settings {
            guests: count("guests", usual.guests),
            cpus: count("cpus", usual.cpus),
            memory: options.number("memory").unwrap_or(usual.memory),
            accelerator: word("accel", ACCELERATORS, usual.accelerator),
            on_host: Role::ALL.into_iter().find(|role| role.to_string() == on_host),
            wire: Wish {
                kind: word("wire", wire::KINDS, usual.wire.kind),
                queues: count("queues", usual.wire.queues),
                vhost: word("vhost", wire::VHOST, usual.wire.vhost),
            },
            limits: Limits {
                boot: time("boot", usual.limits.boot),
                silence: time("silence", usual.limits.silence),
            },
        };
        settings.check()?;
        Ok(settings)
    }

    /// Whether both roles are in one guest.
    pub fn is_whole(&self) -> bool {
        self.guests == 1 && self.on_host.is_none()
    }

    /// Contradictions between what was typed.
    fn check(&self) -> Result<(), Fault> {
        let wrong = |text: String, remedy: &str| {
            Err(Fault::new(FaultKind::Usage, format!("testbed vm: {text}")).remedy(remedy))
        };
        let Settings { guests, cpus, on_host, ref wire, .. } = *self;
        if let Some(role) = on_host.filter(|_| guests > 1) {
            let text = format!("guests={guests} has a guest for each role, and host={role} none");
            return wrong(text, "leave one of them out");
        }
        if self.is_whole() && *wire != Wish::DEFAULT {
            let text = "both roles are in one guest, so there is no wire".to_owned();
            return wrong(text, "add guests=2, host=sender or host=receiver");
        }
        if wire.queues > cpus {
            let text = format!("queues={} are more than a guest's {cpus} CPUs", wire.queues);
            return wrong(text, "a queue is worked by one CPU: raise cpus, or lower queues");
        }
        if wire.kind != "socket" {
            return Ok(());
        }
        match (on_host, wire.queues, wire.vhost) {
            (Some(role), ..) => {
                let text = format!("wire=socket joins two guests, and host={role} is none");
                wrong(text, "leave wire out: the host's end is a tap")
            }
            (None, 2.., _) | (None, _, "on") => {
                let text = "wire=socket has one queue and no vhost".to_owned();
                wrong(text, "use wire=tap")
            }
            _ => Ok(()),
        }
    }
}
