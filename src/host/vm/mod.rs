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

mod cpio;
mod elf;
mod frame;
mod init;
mod initramfs;
mod kernel;
mod machine;
mod modules;
mod qemu;

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
use crate::record::{Fault, Kernel, LinkSettings, OptionKind, OptionSpec, Options, Role, Support};
use machine::{FromAgent, Machine, SessionUp, ToAgent};
use modules::Modules;
use qemu::{Accelerator, Start};
use std::net::IpAddr;
use std::os::unix::net::UnixStream;
use std::sync::mpsc::Receiver;
use std::sync::{Arc, Mutex, PoisonError};

/// Virtual machines.
pub struct Vm {
    settings: Settings,
    guests: Mutex<Vec<Guest>>,
}

/// What can be set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// CPUs of a guest.
    pub cpus: u32,
    /// Memory of a guest, bytes.
    pub memory: u64,
    /// `auto`, `kvm` or `tcg`.
    pub accelerator: &'static str,
}

/// A guest that stays up from trial to trial, because booting takes seconds.
/// What a trial leaves behind is what a session does: agents and namespaces,
/// and they are new for each.
struct Guest {
    kernel: Kernel,
    machine: Arc<Machine>,
}

/// What can be set, as the user types it.
const OPTIONS: &[OptionSpec] = &[
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
];

const ACCELERATORS: &[&str] = &["auto", "kvm", "tcg"];

/// Modules that guests load if the kernel has them, and whether a session needs
/// them: the port to the host, the pair of devices between the roles, then what
/// paths and congestion controls may ask for.
const MODULES: &[(&str, bool)] = &[
    ("virtio_pci", true),
    ("virtio_console", true),
    ("veth", true),
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
    settings: Settings { cpus: 2, memory: 1 << 30, accelerator: "auto" },
    guests: Mutex::new(Vec::new()),
};

impl Vm {
    /// A guest with this kernel that is up: one that was, or a new one.
    fn guest(&self, site: &Site) -> Result<Arc<Machine>, Fault> {
        let kernel = site.kernel.cloned().unwrap_or_else(|| Kernel::named("newest", OWN_KERNEL));
        let mut guests = self.guests.lock().unwrap_or_else(PoisonError::into_inner);
        guests.retain(|guest| guest.machine.is_alive());
        let same = |guest: &&Guest| {
            (&guest.kernel.source, &guest.kernel.cmdline) == (&kernel.source, &kernel.cmdline)
        };
        if let Some(guest) = guests.iter().find(same) {
            return Ok(guest.machine.clone());
        }
        let machine = Arc::new(self.boot(site, &kernel)?);
        guests.push(Guest { kernel, machine: machine.clone() });
        Ok(machine)
    }

    fn boot(&self, site: &Site, kernel: &Kernel) -> Result<Machine, Fault> {
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
        let (ours, theirs) = UnixStream::pair().map_err(fail)?;
        let start = Start {
            program,
            settings: &self.settings,
            accelerator: &accelerator,
            kernel: image.path,
            cmdline: &kernel.cmdline,
            initramfs: qemu::in_memory("initramfs", &archive).map_err(fail)?,
            port: theirs.into(),
            network: None,
        };
        Machine::boot(start, ours, site.stop)
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
        let word = options.word("accel");
        let accelerator = ACCELERATORS.iter().find(|known| **known == word).copied();
        let settings = Settings {
            cpus: options.number("cpus").map_or(DEFAULT.settings.cpus, |n| n as u32),
            memory: options.number("memory").unwrap_or(DEFAULT.settings.memory),
            accelerator: accelerator.unwrap_or(DEFAULT.settings.accelerator),
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

    fn functional(&self) -> Option<String> {
        match qemu::accelerator(self.settings.accelerator) {
            Ok(Accelerator::Tcg { because }) => {
                Some(format!("guests ran on an emulated processor (TCG), because {because}"))
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
        let machine = self.guest(site)?;
        let SessionUp { number, raised, from_agents } = machine.raise(site.stop)?;
        let pipes = from_agents.map(Some);
        Ok(Box::new(Up { machine, session: number, receiver: raised.receiver, pipes }))
    }
}

/// A session that is up. Dropping it takes it down; the guest stays.
struct Up {
    machine: Arc<Machine>,
    session: u32,
    receiver: u32,
    pipes: [Option<Receiver<Vec<u8>>>; 2],
}

impl Raised for Up {
    fn take_pipe(&mut self, role: Role) -> AgentPipe {
        let (machine, session) = (self.machine.clone(), self.session);
        let from_agent: Box<dyn std::io::Read + Send> = match self.pipes[role as usize].take() {
            Some(pipe) => Box::new(FromAgent { pipe, rest: Vec::new() }),
            None => Box::new(std::io::empty()),
        };
        AgentPipe { to_agent: Box::new(ToAgent { machine, session, role }), from_agent }
    }

    fn link_end(
        &self,
        role: Role,
        settings: &LinkSettings,
        softirq_cpu: Option<u32>,
    ) -> Option<LinkEnd> {
        Some(netns::veth_end(role, settings, softirq_cpu, self.receiver))
    }

    fn address(&self, role: Role) -> IpAddr {
        netns::address(role)
    }

    fn device(&self, role: Role) -> Option<String> {
        Some(netns::device(role).to_owned())
    }

    fn last_words(&mut self, role: Role) -> String {
        self.machine.last_words(self.session, role)
    }

    fn console(&mut self, _: Role) -> Option<String> {
        Some(self.machine.console()).filter(|text| !text.is_empty())
    }
}

impl Drop for Up {
    fn drop(&mut self) {
        self.machine.lower(self.session);
    }
}

/// Whether this process is the first of a guest: the kernel calls it so.
pub fn is_guest_init() -> bool {
    std::process::id() == 1
        && std::env::args_os().next().is_some_and(|name| name == initramfs::INIT)
}
