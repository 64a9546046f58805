//! Guests as testbed: both hosts in one virtual machine, or each in its own, or one of them on this
//! machine. `docs/guide/guests.md` describes how, and what it proves.

use super::cable::{self, Cable, CreatedCable};
use super::vm_options::{IMPLIED, OPTIONS, Settings};
use super::{CARRIER, Deployment, Emulation, Properties, Site, Testbed, ends};
use crate::child::spawn_scoped;
use crate::guest::qemu::{self, Accelerator, Start};
use crate::guest::{
    DEVICE, GuestHost, Machine, Network, NicPair, NotBooted, bootable, in_one_guest,
    nic_parameters, prepare, retry_once_if_emulated,
};
use crate::{Adapter, AgentProcess, Attachment, Host, HwGro, LocalAgent, ProcessHost};
use bytepath_record::wire::LinkEnd;
use bytepath_record::{
    CpuTurns, Fault, Finding, Implied, Kernel, OptionSpec, Options, Role, Support, TapSettings,
};
use bytepath_sys::namespace::{self, Kept};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

pub(super) struct Vm {
    settings: Settings,
    /// Cables that were tried, by the tap that the cell describes, if any, so that all trials of a
    /// study use the same one.
    cables: Mutex<Vec<(Option<TapSettings>, FoundCable)>>,
    guests: Mutex<Vec<(BootedKernel, Booted)>>,
}

type FoundCable = Result<Cable, Fault>;

/// Kernel to boot, its command line, and the tap in front of the guest's device if the cell has
/// one.
type BootedKernel = (String, String, Option<TapSettings>);

/// Guests that stay up from trial to trial, because booting takes seconds. Only sessions could
/// leave anything behind: agents and namespaces, which are new for each trial.
#[derive(Clone)]
struct Booted {
    /// One machine for both roles, or one for each role that is not on this host, the sender's
    /// first.
    machines: Vec<Arc<Machine>>,
    /// The namespace of the role on this host.
    host: Option<Arc<Kept>>,
}

/// How many times slower than a current machine an emulated one may be.
const SLOWNESS: f64 = 4.0;

/// The kernel for a study that names none.
const OWN_KERNEL: &str = "debian:newest";

/// The testbed with every option at its default.
pub(super) static DEFAULT: Vm = Vm {
    settings: Settings::DEFAULT,
    cables: Mutex::new(Vec::new()),
    guests: Mutex::new(Vec::new()),
};

impl Vm {
    /// Returns the cable between the roles, or `None` if both are in one guest. Tried only once per
    /// tap.
    fn cable(&self, tap: Option<TapSettings>) -> Result<Option<Cable>, Fault> {
        let Settings { cable, on_host, .. } = &self.settings;
        if self.settings.is_whole() {
            return Ok(None);
        }
        let mut known = self.cables.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, found)) = known.iter().find(|(of, _)| *of == tap) {
            return found.clone().map(Some);
        }
        let found = match tap {
            Some(tap) => cable.with(tap).and_then(|cable| cable.settle(*on_host)),
            None => cable.settle(*on_host),
        };
        known.push((tap, found.clone()));
        found.map(Some)
    }

    /// Returns the guests for a session: free ones that are already up, or new ones. Kernels that
    /// differ only in parameters of NICs count as equal, since NICs are created for each session.
    fn guest(&self, site: &Site, kernel: &Kernel) -> Result<Booted, Fault> {
        let own = match self.settings.nics {
            Some(_) => nic_parameters(&kernel.cmdline).1,
            None => kernel.cmdline.clone(),
        };
        let kernel = (kernel.source.clone(), own, site.guest_tap);
        if let Some(booted) = self.free_guest(&kernel) {
            return Ok(booted);
        }
        // The lock is not held while it boots.
        let is_emulated = matches!(self.accelerator(), Ok(Accelerator::Tcg { .. }));
        let booted = retry_once_if_emulated(is_emulated, || self.boot(site, &kernel))?;
        self.guests().push((kernel, booted.clone()));
        Ok(booted)
    }

    fn free_guest(&self, kernel: &BootedKernel) -> Option<Booted> {
        let mut guests = self.guests();
        guests.retain(|(_, booted)| booted.machines.iter().all(|machine| machine.is_alive()));
        // A guest can have any number of veth pairs, but only one link of any other kind.
        let several = self.properties().holds_several;
        let has_session = |machine: &Arc<Machine>| Arc::strong_count(machine) > 1;
        let is_free = |booted: &Booted| several || !booted.machines.iter().any(has_session);
        let free = guests.iter().find(|(of, booted)| of == kernel && is_free(booted));
        free.map(|(_, booted)| booted.clone())
    }

    fn guests(&self) -> MutexGuard<'_, Vec<(BootedKernel, Booted)>> {
        self.guests.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn accelerator(&self) -> Result<Accelerator, Fault> {
        let Settings { accelerator, counted, .. } = self.settings;
        qemu::accelerator(if counted { qemu::COUNTED } else { accelerator })
    }

    /// Finds a qemu that has the device that the guest needs.
    fn program(&self) -> Result<PathBuf, Fault> {
        self.device().map_or_else(qemu::find, qemu::find_with)
    }

    /// Returns qemu's name of the NICs, if it emulates a pair.
    fn device(&self) -> Option<&'static str> {
        self.settings.nics.and_then(NicPair::emulated_device)
    }

    /// Boots one guest, with or without a cable to this host, or two with a cable between them, at
    /// the same time.
    fn boot(&self, site: &Site, kernel: &BootedKernel) -> Result<Booted, NotBooted> {
        let (source, cmdline, tap) = kernel;
        let program = self.program()?;
        let accelerator = self.accelerator()?;
        let (image, archive) =
            prepare(source, site.program, &[], &[], self.settings.nics, site.stop)?;
        let fail = |e: std::io::Error| Fault::system("preparing a guest", &e);
        let initramfs = qemu::in_memory("initramfs", &archive).map_err(fail)?;
        drop(archive);
        let emulated = matches!(accelerator, Accelerator::Tcg { .. });
        let file = image.open(emulated)?;
        let start = |networks: Vec<Network>| -> Result<(Start, UnixStream), Fault> {
            let (ours, theirs) = UnixStream::pair().map_err(fail)?;
            let start = Start {
                program: program.clone(),
                shape: self.settings.shape,
                accelerator: &accelerator,
                name: image.path.display().to_string(),
                kernel: file.try_clone().map_err(fail)?,
                cmdline,
                initramfs: initramfs.try_clone().map_err(fail)?,
                port: theirs.into(),
                monitor: None,
                networks,
            };
            Ok((start, ours))
        };
        let Some(cable) = self.cable(*tap)? else {
            let pair = self.device().map(|device| Network::joined(device, true)).transpose()?;
            let (start, ours) = start(pair.map_or_else(Vec::new, Vec::from))?;
            let machine = Arc::new(Machine::boot(start, ours, site.stop)?);
            return Ok(Booted { machines: vec![machine], host: None });
        };
        let CreatedCable { networks, host } = cable.lay(self.settings.on_host)?;
        let starts = networks.into_iter().map(|network| start(vec![network]));
        let starts = starts.collect::<Result<Vec<_>, Fault>>()?;
        let machines = std::thread::scope(|scope| {
            let boot = |(start, ours)| {
                spawn_scoped(scope, "guest", move || Machine::boot(start, ours, site.stop))
            };
            let booting: Vec<_> = starts.into_iter().map(boot).collect();
            let lost = || Fault::failed("a thread that boots a guest ended early");
            let booted =
                booting.into_iter().map(|one| one?.join().unwrap_or_else(|_| Err(lost().into())));
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
        "virtual machines with a kernel chosen by the study"
    }

    fn options(&self) -> &'static [OptionSpec] {
        OPTIONS
    }

    fn implied(&self) -> &'static [Implied] {
        IMPLIED
    }

    fn configured(&self, options: &Options) -> Result<Option<Box<dyn Testbed>>, Fault> {
        let settings = Settings::of(options)?;
        let vm = Vm { settings, cables: Mutex::new(Vec::new()), guests: Mutex::new(Vec::new()) };
        Ok(Some(Box::new(vm)))
    }

    fn probe(&self) -> Support {
        let able = self.program().and_then(|_| bootable(OWN_KERNEL, self.settings.nics));
        let able = able.and_then(|()| self.accelerator()).and_then(|_| self.cable(None));
        able.map_or_else(Support::from, |_| Support::Yes)
    }

    fn findings(&self) -> Vec<Finding> {
        cable::findings()
    }

    fn properties(&self) -> Properties {
        let apart = !self.settings.is_whole();
        let nics = self.settings.nics;
        Properties {
            boots_kernels: true,
            holds_several: !apart && nics.is_none(),
            hosts_apart: apart,
            has_cable: apart || nics.is_some(),
            nics_are_new: nics.is_some(),
            holds_taps: !apart && nics.is_none(),
            adapters: if apart { 1 } else { nics.map_or(CpuTurns::MOST as u32, NicPair::most) },
            has_guest_tap: self.settings.on_host == Some(Role::Sender),
            ..Properties::default()
        }
    }

    fn emulation(&self) -> Option<Emulation> {
        match self.accelerator() {
            Ok(Accelerator::Tcg { because, counted }) => Some(Emulation {
                because: format!("guests run on an emulated processor (TCG): {because}"),
                slowness: SLOWNESS,
                instructions_per_second: counted.then_some(qemu::INSTRUCTIONS_PER_SECOND),
            }),
            _ => self.settings.nics.map(|nics| Emulation {
                because: format!(
                    "the NICs are {} ({}): what a card does by DMA, CPUs do",
                    nics.made(),
                    nics.name
                ),
                slowness: 1.0,
                instructions_per_second: None,
            }),
        }
    }

    /// Two boots of a kernel may differ by more instructions than two trials of one boot, so if
    /// instructions are counted, each block has its own boots.
    fn begin_block(&self) {
        if self.settings.counted {
            self.guests().clear();
        }
    }

    fn raise(&self, site: &Site) -> Result<Deployment, Fault> {
        let kernel = site.kernel.cloned().unwrap_or_else(|| Kernel::named("newest", OWN_KERNEL));
        let Booted { machines, host } = self.guest(site, &kernel)?;
        let Some(cable) = self.cable(site.guest_tap)? else {
            let [machine] = machines.as_slice() else { return Err(too_few()) };
            let Some(nics) = self.settings.nics else {
                let hosts = in_one_guest(machine, None, site.stop, ends::beside)?;
                return Ok(Deployment::of(hosts));
            };
            // Too large a number is refused once the hosts are known.
            let pairs = site.adapters.min(nics.most());
            let end = |role, pair| {
                let address = self.address(role, pair);
                let end = LinkEnd::plain(nics.device(role, pair), address, ends::PREFIX);
                LinkEnd { timeout: CARRIER.as_secs_f64(), ..end }
            };
            let ends = Role::ALL.map(|role| {
                Attachment::Made(
                    (0..pairs).map(|pair| end(role, pair)).collect(),
                    HwGro::AsRequested,
                )
            });
            let given = Some((nics, pairs, nic_parameters(&kernel.cmdline).0));
            let hosts = in_one_guest(machine, given, site.stop, |_| ends)?;
            let mut deployment = Deployment::of(hosts);
            let number = if pairs == 1 { "two" } else { &format!("{pairs} pairs of") };
            let wire = format!("between {number} {} NICs ({})", nics.made(), nics.name);
            deployment.link_facts.push(("link.wire", wire));
            return Ok(deployment);
        };
        if site.guest_tap.is_some_and(|tap| tap.vhost) {
            machines.iter().try_for_each(|machine| machine.place_vhost(site.vhost))?;
        }
        let hw_gro = match cable {
            Cable::Sockets(_) => HwGro::AsRequested,
            Cable::Taps { .. } => HwGro::WithTso,
        };
        let mut machines = machines.iter();
        let mut host = |role: Role| -> Result<Box<dyn Host>, Fault> {
            if let Some(namespace) = host.as_ref().filter(|_| self.settings.on_host == Some(role)) {
                return Ok(Box::new(beside(role, namespace, site.program)?));
            }
            let machine = machines.next().ok_or_else(too_few)?;
            let attachment = Attachment::Made(vec![ends::end(role, DEVICE)], hw_gro);
            Ok(Box::new(GuestHost::alone(machine, site.stop, attachment)?))
        };
        let hosts = [host(Role::Sender)?, host(Role::Receiver)?];
        Ok(Deployment { hosts, link_facts: cable.facts(), ports: None })
    }
}

fn too_few() -> Fault {
    Fault::failed("testbed vm: too few guests were booted")
}

/// Starts the host at the other end of a guest's cable, on this machine: an agent in the network
/// namespace of the tap. The namespace stays when the agent ends.
fn beside(role: Role, namespace: &Arc<Kept>, program: &Path) -> Result<ProcessHost, Fault> {
    let (namespace, program) = (namespace.clone(), program.to_owned());
    let [agent] = LocalAgent::start(move || {
        let child = namespace::spawn_into(AgentProcess::command(&program), &namespace);
        let child = child.map_err(|refused| {
            Fault::not_started(format_args!("{} on the cable", program.display()), &refused.error)
                .context(refused.step)
        });
        Ok([AgentProcess::new(child?)?])
    })?;
    // A tap passes on packets of a guest unchanged, so nothing would merge packets on it.
    let attachment = Attachment::Made(vec![ends::end(role, ends::device(role))], HwGro::Never);
    Ok(ProcessHost { agent, attachment, adapter: Adapter::Virtual })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_guest_has_as_many_pairs_of_devices_as_are_asked_and_of_emulated_nics_one() {
        let adapters = |set: &[(&str, &str)]| {
            let mut options = Options::default();
            for spec in OPTIONS {
                let text = set.iter().find(|(name, _)| *name == spec.name);
                let value = spec.kind.parse(text.map_or(spec.default, |(_, text)| *text)).unwrap();
                options.0.insert(spec.name.into(), value);
            }
            DEFAULT.configured(&options).unwrap().unwrap().properties().adapters
        };
        let of_nic = |name| adapters(&[("nic", name)]);
        assert_eq!(
            [adapters(&[]), of_nic("zcnic"), of_nic("igb"), of_nic("virtio")],
            [16, 16, 1, 1]
        );
        assert_eq!([adapters(&[("guests", "2")]), adapters(&[("host", "sender")])], [1, 1]);
    }
}
