//! Guests as testbed: a virtual machine whose kernel the study chooses and whose
//! only program is this one. `docs/vm.md` says how, and what it proves.
//!
//! | file | what |
//! |---|---|
//! | `kernel` | what a study names → an image and its modules |
//! | `vmlinux`, `packed` | the kernel in an image; unpacking |
//! | `modules`, `elf` | which modules, which libraries, in which order |
//! | `cpio`, `initramfs` | the guest's only file system |
//! | `qemu` | the command line; whether KVM works |
//! | `machine` | a guest that runs: port, console |
//! | `end` | how it ended, in words |
//! | `frame` | what host and guest say to each other |
//! | `init` | the guest's side of it: the first process |
//! | `alone` | a session of one role, where another guest plays the other |
//! | `errand` | a session that runs a program and gives back what it prints |

mod alone;
mod cpio;
mod elf;
mod end;
mod errand;
mod frame;
mod init;
mod initramfs;
mod kernel;
mod machine;
mod modules;
mod packed;
mod qemu;
mod vmlinux;

pub use init::run as guest_init;

/// Readers of what others wrote, for tests and fuzzing; and guests that run the
/// programs of tests.
pub mod guest {
    pub use super::elf::{Needs, depends, needs, without_debug};
    pub use super::errand::{Errand, Errands, Outcome};
    pub use super::frame::{Frame, Says};
    pub use super::kernel::release_in;
    pub use super::vmlinux::of_image as kernel_in;
}

use super::netns;
use super::{AgentPipe, Raised, Site, Testbed};
use crate::record::wire::LinkEnd;
use crate::record::{
    Fault, FaultKind, Kernel, LinkSettings, OptionKind, OptionSpec, Options, Role, Support,
};
use frame::Layout;
use kernel::Image;
use machine::{FromAgent, Machine, NotBooted, SessionUp, ToAgent};
use modules::Modules;
use qemu::{Accelerator, Network, Start};
use std::io::{self, Read, Write};
use std::net::IpAddr;
use std::os::unix::net::{UnixDatagram, UnixStream};
use std::path::Path;
use std::sync::mpsc::Receiver;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// Virtual machines.
pub struct Vm {
    settings: Settings,
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

/// A guest that stays up from trial to trial, because booting takes seconds.
/// What a trial leaves behind is what a session does: agents and namespaces,
/// and they are new for each.
struct Guest {
    kernel: Kernel,
    /// One machine for both roles, or the sender's and the receiver's.
    machines: Vec<Arc<Machine>>,
}

impl Guest {
    fn is_alive(&self) -> bool {
        self.machines.iter().all(|machine| machine.is_alive())
    }

    /// Whether no session holds it. One guest holds any number of them; a pair
    /// of guests has one link between them.
    fn is_free(&self) -> bool {
        self.machines.len() == 1 || self.machines.iter().all(|one| Arc::strong_count(one) == 1)
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
        limits: Limits { boot: Duration::from_secs(60), silence: Duration::from_secs(20) },
    },
    guests: Mutex::new(Vec::new()),
};

impl Vm {
    /// The guests of a session: some that are up and free, or new ones.
    fn guest(&self, site: &Site) -> Result<Vec<Arc<Machine>>, Fault> {
        let kernel = site.kernel.cloned().unwrap_or_else(|| Kernel::named("newest", OWN_KERNEL));
        let mut guests = self.guests.lock().unwrap_or_else(PoisonError::into_inner);
        guests.retain(Guest::is_alive);
        let same = |guest: &&Guest| {
            (&guest.kernel.source, &guest.kernel.cmdline) == (&kernel.source, &kernel.cmdline)
        };
        if let Some(guest) = guests.iter().filter(|guest| guest.is_free()).find(same) {
            return Ok(guest.machines.clone());
        }
        let machines = match self.boot(site, &kernel) {
            // On a busy host the emulated processors of a guest run far apart, and once in
            // many boots a kernel that is all right dies of that. One that is not dies twice.
            Err(not) if self.is_emulated() && not.panicked => self.boot(site, &kernel)?,
            booted => booted?,
        };
        guests.push(Guest { kernel, machines: machines.clone() });
        Ok(machines)
    }

    fn is_emulated(&self) -> bool {
        matches!(qemu::accelerator(self.settings.accelerator), Ok(Accelerator::Tcg { .. }))
    }

    /// Boots one guest, or two with a wire between them, at the same time.
    fn boot(&self, site: &Site, kernel: &Kernel) -> Result<Vec<Arc<Machine>>, NotBooted> {
        let program = qemu::find()?;
        let accelerator = qemu::accelerator(self.settings.accelerator)?;
        let (image, archive) = prepare(&kernel.source, site.program, &[])?;
        let fail = |e: std::io::Error| Fault::system("preparing a guest", &e);
        let initramfs = qemu::in_memory("initramfs", &archive).map_err(fail)?;
        drop(archive);
        let emulated = matches!(accelerator, Accelerator::Tcg { .. });
        let file = image.open(emulated)?;
        let start = |network: Option<Network>| -> Result<(Start, UnixStream), Fault> {
            let (ours, theirs) = UnixStream::pair().map_err(fail)?;
            let start = Start {
                program: program.clone(),
                settings: &self.settings,
                accelerator: &accelerator,
                name: image.path.display().to_string(),
                kernel: file.try_clone().map_err(fail)?,
                cmdline: &kernel.cmdline,
                initramfs: initramfs.try_clone().map_err(fail)?,
                port: theirs.into(),
                network,
            };
            Ok((start, ours))
        };
        if self.settings.guests == 1 {
            let (start, ours) = start(None)?;
            return Ok(vec![Arc::new(Machine::boot(start, ours, site.stop)?)]);
        }
        let wires = UnixDatagram::pair().map_err(fail)?;
        let starts = [wires.0, wires.1].into_iter().zip(Role::ALL).map(|(wire, role)| {
            let mac = format!("52:54:00:c6:12:0{}", role as usize + 1);
            start(Some(Network { wire: wire.into(), mac }))
        });
        let starts = starts.collect::<Result<Vec<_>, Fault>>()?;
        std::thread::scope(|scope| {
            let boot = |(start, ours)| scope.spawn(move || Machine::boot(start, ours, site.stop));
            let booting: Vec<_> = starts.into_iter().map(boot).collect();
            let lost = || Fault::new(FaultKind::System, "a thread that boots a guest ended early");
            let booted =
                booting.into_iter().map(|one| one.join().unwrap_or_else(|_| Err(lost().into())));
            booted.map(|machine| machine.map(Arc::new)).collect()
        })
    }
}

/// The image of a kernel and the file system of its guests: this program, others
/// where the first of each pair says, modules.
fn prepare(
    kernel: &str,
    program: &Path,
    others: &[(&str, &Path)],
) -> Result<(Image, Vec<u8>), Fault> {
    let image = kernel::find(kernel)?;
    let modules = match &image.modules {
        Some(folder) => Modules::of(folder)?,
        None => Modules::unknown(),
    };
    let modules = modules.order(MODULES).map_err(|f| f.context(image.path.display()))?;
    let archive = initramfs::build(program, others, &modules)?;
    Ok((image, archive))
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
        let word = options.word("accel");
        let accelerator = ACCELERATORS.iter().find(|known| **known == word).copied();
        let usual = &DEFAULT.settings;
        let time = |name, usual| options.number(name).map_or(usual, Duration::from_millis);
        let settings = Settings {
            guests: options.number("guests").map_or(usual.guests, |n| n as u32),
            cpus: options.number("cpus").map_or(usual.cpus, |n| n as u32),
            memory: options.number("memory").unwrap_or(usual.memory),
            accelerator: accelerator.unwrap_or(usual.accelerator),
            limits: Limits {
                boot: time("boot", usual.limits.boot),
                silence: time("silence", usual.limits.silence),
            },
        };
        Ok(Some(Box::new(Vm { settings, guests: Mutex::new(Vec::new()) })))
    }

    fn probe(&self) -> Support {
        let no = |fault: Fault| Support::no(fault.message, fault.remedy.unwrap_or_default());
        if let Err(fault) = qemu::find().and_then(|_| kernel::find(OWN_KERNEL).map(drop)) {
            return no(fault);
        }
        match qemu::accelerator(self.settings.accelerator) {
            Ok(_) => Support::Yes,
            Err(fault) => no(fault),
        }
    }

    fn boots_kernels(&self) -> bool {
        true
    }

    fn holds_several(&self) -> bool {
        self.settings.guests == 1
    }

    fn has_hosts_apart(&self) -> bool {
        self.settings.guests > 1
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
        let machines = self.guest(site)?;
        let mut up = Up { parts: Vec::new(), receiver: 0, pipes: [None, None] };
        for (machine, role) in machines.iter().zip(Role::ALL) {
            let is_pair = machines.len() == 1;
            let layout = if is_pair { Layout::Pair } else { Layout::One(role) };
            let SessionUp { number, raised, from_agents } = machine.raise(layout, site.stop)?;
            up.parts.push((machine.clone(), number));
            up.receiver = raised.receiver;
            for (pipe, of) in from_agents.into_iter().zip(Role::ALL) {
                if is_pair || of == role {
                    up.pipes[of as usize] = Some(pipe);
                }
            }
        }
        Ok(Box::new(up))
    }
}

/// Sessions that are up. Dropping it takes them down; the guests stay.
struct Up {
    /// A machine and the session in it: one for both roles, or one for each.
    parts: Vec<(Arc<Machine>, u32)>,
    receiver: u32,
    pipes: [Option<Receiver<Vec<u8>>>; 2],
}

impl Up {
    fn part(&self, role: Role) -> Option<&(Arc<Machine>, u32)> {
        self.parts.get(role as usize).or(self.parts.first())
    }
}

impl Raised for Up {
    fn take_pipe(&mut self, role: Role) -> AgentPipe {
        let to_agent: Box<dyn Write + Send> = match self.part(role).cloned() {
            Some((machine, session)) => Box::new(ToAgent { machine, session, role }),
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
        Some(match self.parts.len() {
            1 => netns::veth_end(role, settings, softirq_cpu, self.receiver),
            _ => alone::device_end(role, settings, softirq_cpu),
        })
    }

    fn address(&self, role: Role) -> IpAddr {
        netns::address(role)
    }

    fn device(&self, role: Role) -> Option<String> {
        Some(if self.parts.len() == 1 { netns::device(role) } else { alone::DEVICE }.to_owned())
    }

    fn last_words(&mut self, role: Role) -> String {
        match self.part(role) {
            Some((machine, session)) => machine.last_words(*session, role),
            None => "never begun".to_owned(),
        }
    }

    fn console(&mut self, role: Role) -> Option<String> {
        let (machine, _) = self.part(role)?;
        Some(machine.console()).filter(|text| !text.is_empty())
    }

    fn hangs(&mut self, role: Role) -> Option<String> {
        self.part(role).and_then(|(machine, _)| machine.hangs())
    }

    fn booted(&self, role: Role) -> Option<Duration> {
        self.part(role).map(|(machine, _)| machine.booted)
    }
}

impl Drop for Up {
    fn drop(&mut self) {
        for (machine, session) in &self.parts {
            machine.lower(*session);
        }
    }
}

/// Whether this process is the first of a guest: the kernel calls it so.
pub fn is_guest_init() -> bool {
    std::process::id() == 1
        && std::env::args_os().next().is_some_and(|name| name == initramfs::INIT)
}
