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
//! | `settings` | what can be set of the testbed |
//! | `up` | sessions that are up |
//! | `wire`, `network` | what joins guests, or a guest and this host; how qemu takes it |
//! | `alone` | a session of one role in a guest, where the other one is elsewhere |
//! | `beside` | a role on this host, at the other end of a guest's wire |
//! | `errand` | a session that runs a program and gives back what it prints |

mod alone;
mod beside;
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
mod network;
mod packed;
mod qemu;
mod settings;
mod up;
mod vmlinux;
mod wire;

pub use init::run as guest_init;

/// Readers of what others wrote, for tests and fuzzing; and guests that run the
/// programs of tests.
pub mod guest {
    pub use super::elf::{Needs, depends, needs};
    pub use super::errand::{Errand, Errands, Outcome};
    pub use super::frame::{Frame, Says};
    pub use super::kernel::release_in;
    pub use super::vmlinux::of_image as kernel_in;
}

use super::{Raised, Site, Testbed};
use crate::record::{Fault, FaultKind, Finding, Kernel, OptionSpec, Options, Role, Support};
use crate::sys::namespace::Kept;
use beside::Beside;
use frame::Layout;
use kernel::Image;
use machine::{Machine, NotBooted, SessionUp};
use modules::Modules;
use network::Network;
use qemu::{Accelerator, Start};
use settings::{Limits, OPTIONS, Settings};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use up::{Part, Up};
use wire::{Laid, Wire};

/// Virtual machines.
pub struct Vm {
    settings: Settings,
    /// The wire that was found to work, so that all trials of a study have the same.
    wire: OnceLock<Result<Wire, Fault>>,
    guests: Mutex<Vec<Guest>>,
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
pub static DEFAULT: Vm =
    Vm { settings: Settings::DEFAULT, wire: OnceLock::new(), guests: Mutex::new(Vec::new()) };

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
        let booted = booted(self.is_emulated(), || self.boot(site, &kernel))?;
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

/// Boots, and if an emulated kernel panics, once more. On a busy host the emulated
/// processors of a guest run far apart, and once in many boots a kernel that is all right
/// dies of that. One that is not dies twice.
fn booted<T>(emulated: bool, boot: impl Fn() -> Result<T, NotBooted>) -> Result<T, NotBooted> {
    match boot() {
        Err(not) if emulated && not.panicked => boot(),
        booted => booted,
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
        let settings = Settings::of(options)?;
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
            let is_pair = up.wire.is_none();
            let layout = if is_pair { Layout::Pair } else { Layout::One(role) };
            let SessionUp { number, raised, from_agents } = machine.raise(layout, site.stop)?;
            let alone = (!is_pair).then_some(role);
            up.parts.push(Part { machine: machine.clone(), session: number, alone });
            up.receiver = raised.receiver;
            for (pipe, of) in from_agents.into_iter().zip(Role::ALL) {
                if is_pair || of == role {
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

/// Whether this process is the first of a guest: the kernel calls it so.
pub fn is_guest_init() -> bool {
    std::process::id() == 1
        && std::env::args_os().next().is_some_and(|name| name == initramfs::INIT)
}
