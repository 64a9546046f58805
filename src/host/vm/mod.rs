//! Guests as testbed: a virtual machine whose kernel the study chooses and whose
//! only program is this one. `docs/vm.md` says how, and what it proves.
//!
//! | file | what |
//! |---|---|
//! | `kernel` | what a study names → an image and its modules |
//! | `modules`, `elf` | which modules, which libraries, in which order |
//! | `cpio`, `initramfs` | the guest's only file system |
//! | `qemu` | the command line; whether KVM works |
//! | `machine` | a guest that runs: port, console, end |
//! | `frame` | what host and guest say to each other |
//! | `init` | the guest's side of it: the first process |
//! | `wire`, `network` | what joins guests, or a guest and this host; how qemu takes it |
//! | `alone` | a session of one role in a guest, where the other one is elsewhere |
//! | `beside` | a role on this host, at the other end of a guest's wire |

mod alone;
mod beside;
mod cpio;
mod elf;
mod frame;
mod init;
mod initramfs;
mod kernel;
mod machine;
mod modules;
mod network;
mod qemu;
mod wire;

pub use init::run as guest_init;

/// Readers of what others wrote, for tests and fuzzing.
pub mod guest {
    pub use super::elf::{Needs, depends, needs};
    pub use super::frame::{Frame, Says};
    pub use super::kernel::release_in;
}

use super::netns;
use super::{AgentPipe, Raised, Site, Testbed};
use crate::record::wire::LinkEnd;
use crate::record::{
    Fault, FaultKind, Finding, Kernel, LinkSettings, OptionKind, OptionSpec, Options, Role, Support,
};
use crate::sys::namespace::Kept;
use beside::Beside;
use frame::Layout;
use machine::{FromAgent, Machine, NotBooted, SessionUp, ToAgent};
use modules::Modules;
use network::Network;
use qemu::{Accelerator, Start};
use std::io::{self, Read, Write};
use std::net::IpAddr;
use std::os::unix::net::UnixStream;
use std::sync::mpsc::Receiver;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use wire::{Laid, Wire, Wish};

/// Virtual machines.
pub struct Vm {
    settings: Settings,
    /// The wire that was found to work, so that all trials of a study have the same.
    wire: OnceLock<Result<Wire, Fault>>,
    guests: Mutex<Vec<Guest>>,
}

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
    /// What joins the two roles where they are not in one guest.
    pub wire: Wish,
    /// The role that stays on this host, if one does.
    pub on_host: Option<Role>,
}

/// A guest that stays up from trial to trial, because booting takes seconds.
/// What a trial leaves behind is what a session does: agents and namespaces,
/// and they are new for each.
struct Guest {
    kernel: Kernel,
    booted: Booted,
}

/// What is up.
#[derive(Clone)]
struct Booted {
    /// One machine for both roles, or one for each role that is not on this host,
    /// the sender's first.
    machines: Vec<Arc<Machine>>,
    /// Where the role of this host lives.
    host: Option<Arc<Kept>>,
}

impl Booted {
    fn is_alive(&self) -> bool {
        self.machines.iter().all(|machine| machine.is_alive())
    }

    /// Whether no session holds it. One guest with both roles holds any number of
    /// them; where there is a wire, there is one link.
    fn is_free(&self) -> bool {
        let whole = self.machines.len() == 1 && self.host.is_none();
        whole || self.machines.iter().all(|one| Arc::strong_count(one) == 1)
    }
}

/// What can be set, as the user types it.
const OPTIONS: &[OptionSpec] = &[
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
];

const ACCELERATORS: &[&str] = &["auto", "kvm", "tcg"];

/// Roles that may stay on this host.
const HOSTS: &[&str] = &["none", "sender", "receiver"];

/// Modules that guests load if the kernel has them, and whether a session needs
/// them: the port to the host, the pair of devices between the roles, then what
/// paths and congestion controls may ask for.
const MODULES: &[(&str, bool)] = &[
    ("virtio_pci", true),
    ("virtio_console", true),
    ("veth", true),
    ("virtio_net", false),
    ("tcp_bbr", false),
    ("tcp_dctcp", false),
    ("udmabuf", false),
    ("dummy", false),
    ("tun", false),
];

/// The kernel of a study that names none.
const OWN_KERNEL: &str = "debian:newest";

/// With every option at its default.
pub static DEFAULT: Vm = Vm {
    settings: Settings {
        guests: 1,
        cpus: 2,
        memory: 1 << 30,
        accelerator: "auto",
        wire: Wish::DEFAULT,
        on_host: None,
    },
    wire: OnceLock::new(),
    guests: Mutex::new(Vec::new()),
};

impl Settings {
    /// Whether both roles are in one guest.
    fn is_whole(&self) -> bool {
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

impl Vm {
    /// The wire between the roles, where they are not in one guest; found out once.
    fn wire(&self) -> Result<Option<&Wire>, Fault> {
        if self.settings.is_whole() {
            return Ok(None);
        }
        let settle = || self.settings.wire.settle(self.settings.on_host);
        self.wire.get_or_init(settle).as_ref().map(Some).map_err(Clone::clone)
    }

    /// The guests of a session: some that are up and free, or new ones.
    fn guest(&self, site: &Site) -> Result<Booted, Fault> {
        let kernel = site.kernel.cloned().unwrap_or_else(|| Kernel::named("newest", OWN_KERNEL));
        let mut guests = self.guests.lock().unwrap_or_else(PoisonError::into_inner);
        guests.retain(|guest| guest.booted.is_alive());
        let same = |guest: &&Guest| {
            (&guest.kernel.source, &guest.kernel.cmdline) == (&kernel.source, &kernel.cmdline)
        };
        if let Some(guest) = guests.iter().filter(|guest| guest.booted.is_free()).find(same) {
            return Ok(guest.booted.clone());
        }
        let booted = match self.boot(site, &kernel) {
            // On a busy host the emulated processors of a guest run far apart, and once in
            // many boots a kernel that is all right dies of that. One that is not dies twice.
            Err(not) if self.is_emulated() && not.panicked => self.boot(site, &kernel)?,
            booted => booted?,
        };
        guests.push(Guest { kernel, booted: booted.clone() });
        Ok(booted)
    }

    fn is_emulated(&self) -> bool {
        matches!(qemu::accelerator(self.settings.accelerator), Ok(Accelerator::Tcg { .. }))
    }

    /// Boots one guest, with or without a wire to this host, or two with a wire
    /// between them, at the same time.
    fn boot(&self, site: &Site, kernel: &Kernel) -> Result<Booted, NotBooted> {
        let program = qemu::find()?;
        let accelerator = qemu::accelerator(self.settings.accelerator)?;
        let image = kernel::find(&kernel.source)?;
        let modules = match &image.modules {
            Some(folder) => Modules::of(folder)?,
            None => Modules::unknown(),
        };
        let modules = modules.order(MODULES).map_err(|f| f.context(image.path.display()))?;
        let archive = initramfs::build(site.program, &modules)?;
        let fail = |e: std::io::Error| Fault::system("preparing a guest", &e);
        let start = |network: Option<Network>| -> Result<(Start, UnixStream), Fault> {
            let (ours, theirs) = UnixStream::pair().map_err(fail)?;
            let start = Start {
                program: program.clone(),
                settings: &self.settings,
                accelerator: &accelerator,
                kernel: image.path.clone(),
                cmdline: &kernel.cmdline,
                initramfs: qemu::in_memory("initramfs", &archive).map_err(fail)?,
                port: theirs.into(),
                network,
            };
            Ok((start, ours))
        };
        let Some(wire) = self.wire()? else {
            let (start, ours) = start(None)?;
            let machine = Arc::new(Machine::boot(start, ours, site.stop)?);
            return Ok(Booted { machines: vec![machine], host: None });
        };
        let Laid { networks, host } = wire.lay(self.settings.on_host)?;
        let starts = networks.into_iter().map(|network| start(Some(network)));
        let starts = starts.collect::<Result<Vec<_>, Fault>>()?;
        let machines = std::thread::scope(|scope| {
            let boot = |(start, ours)| scope.spawn(move || Machine::boot(start, ours, site.stop));
            let booting: Vec<_> = starts.into_iter().map(boot).collect();
            let lost = || Fault::new(FaultKind::System, "a thread that boots a guest ended early");
            let booted =
                booting.into_iter().map(|one| one.join().unwrap_or_else(|_| Err(lost().into())));
            booted.map(|machine| machine.map(Arc::new)).collect::<Result<Vec<_>, NotBooted>>()
        });
        Ok(Booted { machines: machines?, host: host.map(Arc::new) })
    }
}

impl Testbed for Vm {
    fn name(&self) -> &'static str {
        "vm"
    }

    fn summary(&self) -> &'static str {
        "virtual machines with a kernel of the study's choice"
    }

    fn options(&self) -> &'static [OptionSpec] {
        OPTIONS
    }

    fn configured(&self, options: &Options) -> Result<Option<Box<dyn Testbed>>, Fault> {
        let choice = |name: &str, known: &'static [&'static str]| {
            let word = options.word(name);
            known.iter().find(|known| **known == word).copied().unwrap_or(known[0])
        };
        let on_host = choice("host", HOSTS);
        let settings = Settings {
            guests: options.number("guests").map_or(DEFAULT.settings.guests, |n| n as u32),
            cpus: options.number("cpus").map_or(DEFAULT.settings.cpus, |n| n as u32),
            memory: options.number("memory").unwrap_or(DEFAULT.settings.memory),
            accelerator: choice("accel", ACCELERATORS),
            wire: Wish {
                kind: choice("wire", wire::KINDS),
                queues: options.number("queues").map_or(Wish::DEFAULT.queues, |n| n as u32),
                vhost: choice("vhost", wire::VHOST),
            },
            on_host: Role::ALL.into_iter().find(|role| role.to_string() == on_host),
        };
        settings.check()?;
        let vm = Vm { settings, wire: OnceLock::new(), guests: Mutex::new(Vec::new()) };
        Ok(Some(Box::new(vm)))
    }

    fn probe(&self) -> Support {
        let no = |fault: Fault| Support::no(fault.message, fault.remedy.unwrap_or_default());
        if let Err(fault) = qemu::find().and_then(|_| kernel::find(OWN_KERNEL).map(drop)) {
            return no(fault);
        }
        let able = qemu::accelerator(self.settings.accelerator).and_then(|_| self.wire());
        able.map_or_else(no, |_| Support::Yes)
    }

    fn findings(&self) -> Vec<Finding> {
        wire::findings()
    }

    fn boots_kernels(&self) -> bool {
        true
    }

    fn holds_several(&self) -> bool {
        self.settings.is_whole()
    }

    fn has_hosts_apart(&self) -> bool {
        !self.settings.is_whole()
    }

    fn functional(&self) -> Option<String> {
        match qemu::accelerator(self.settings.accelerator) {
            Ok(Accelerator::Tcg { because }) => {
                Some(format!("guests run on an emulated processor (TCG): {because}"))
            }
            _ => None,
        }
    }

    fn slowness(&self) -> f64 {
        match qemu::accelerator(self.settings.accelerator) {
            Ok(accelerator) => machine::slowness(&accelerator),
            Err(_) => 1.0,
        }
    }

    fn raise(&self, site: &Site) -> Result<Box<dyn Raised>, Fault> {
        let wire = self.wire()?.cloned();
        let Booted { machines, host } = self.guest(site)?;
        let mut up = Up { beside: None, parts: Vec::new(), receiver: 0, pipes: [None, None], wire };
        let apart = Role::ALL.into_iter().filter(|role| Some(*role) != self.settings.on_host);
        for (machine, role) in machines.iter().zip(apart) {
            let layout = if up.wire.is_none() { Layout::Pair } else { Layout::One(role) };
            let SessionUp { number, raised, from_agents } = machine.raise(layout, site.stop)?;
            up.parts.push(Part { machine: machine.clone(), session: number, layout });
            up.receiver = raised.receiver;
            for (pipe, of) in from_agents.into_iter().zip(Role::ALL) {
                if layout == Layout::Pair || of == role {
                    up.pipes[of as usize] = Some(pipe);
                }
            }
        }
        if let (Some(role), Some(namespace)) = (self.settings.on_host, host) {
            up.beside = Some(Beside::start(role, &namespace, site.program)?);
        }
        Ok(Box::new(up))
    }
}

/// Sessions that are up. Dropping it takes them down; the guests stay.
struct Up {
    /// The role of this host; it goes first.
    beside: Option<Beside>,
    /// One for both roles, or one for each role that is in a guest.
    parts: Vec<Part>,
    receiver: u32,
    pipes: [Option<Receiver<Vec<u8>>>; 2],
    /// What is between the roles, where they are not in one guest.
    wire: Option<Wire>,
}

/// A machine, the session in it, and what it is to the session.
struct Part {
    machine: Arc<Machine>,
    session: u32,
    layout: Layout,
}

impl Up {
    fn part(&self, role: Role) -> Option<&Part> {
        self.parts.iter().find(|part| [Layout::Pair, Layout::One(role)].contains(&part.layout))
    }

    fn beside(&mut self, role: Role) -> Option<&mut Beside> {
        self.beside.as_mut().filter(|beside| beside.role == role)
    }
}

impl Raised for Up {
    fn take_pipe(&mut self, role: Role) -> AgentPipe {
        if let Some(beside) = self.beside(role) {
            return beside.take_pipe();
        }
        let to_agent: Box<dyn Write + Send> = match self.part(role) {
            Some(Part { machine, session, .. }) => {
                Box::new(ToAgent { machine: machine.clone(), session: *session, role })
            }
            None => Box::new(io::sink()),
        };
        let from_agent: Box<dyn Read + Send> = match self.pipes[role as usize].take() {
            Some(pipe) => Box::new(FromAgent { pipe, rest: Vec::new() }),
            None => Box::new(io::empty()),
        };
        AgentPipe { to_agent, from_agent }
    }

    fn link_end(
        &self,
        role: Role,
        settings: &LinkSettings,
        softirq_cpu: Option<u32>,
    ) -> Option<LinkEnd> {
        if let Some(beside) = self.beside.as_ref().filter(|beside| beside.role == role) {
            return Some(beside.link_end(settings, softirq_cpu));
        }
        Some(match &self.wire {
            None => netns::veth_end(role, settings, softirq_cpu, self.receiver),
            Some(Wire::Sockets(_)) => alone::device_end(role, settings, softirq_cpu),
            // What crosses a tap whole is received whole only by a device that takes
            // large packets, which its driver calls hardware GRO (virtio_net).
            Some(Wire::Taps { .. }) => {
                let hw_gro = settings.hw_gro || settings.tso;
                let settings = LinkSettings { hw_gro, ..settings.clone() };
                alone::device_end(role, &settings, softirq_cpu)
            }
        })
    }

    fn address(&self, role: Role) -> IpAddr {
        netns::address(role)
    }

    fn device(&self, role: Role) -> Option<String> {
        let named = self.wire.is_none() || self.beside.as_ref().is_some_and(|b| b.role == role);
        Some(if named { netns::device(role) } else { alone::DEVICE }.to_owned())
    }

    fn link_facts(&self) -> Vec<(&'static str, String)> {
        self.wire.as_ref().map(Wire::facts).unwrap_or_default()
    }

    fn last_words(&mut self, role: Role) -> String {
        if let Some(beside) = self.beside(role) {
            return beside.last_words();
        }
        match self.part(role) {
            Some(Part { machine, session, .. }) => machine.last_words(*session, role),
            None => "never begun".to_owned(),
        }
    }

    fn console(&mut self, role: Role) -> Option<String> {
        let Part { machine, .. } = self.part(role)?;
        Some(machine.console()).filter(|text| !text.is_empty())
    }
}

impl Drop for Up {
    fn drop(&mut self) {
        self.beside = None;
        for Part { machine, session, .. } in &self.parts {
            machine.lower(*session);
        }
    }
}

/// Whether this process is the first of a guest: the kernel calls it so.
pub fn is_guest_init() -> bool {
    std::process::id() == 1
        && std::env::args_os().next().is_some_and(|name| name == initramfs::INIT)
}
