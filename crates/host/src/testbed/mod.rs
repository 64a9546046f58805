//! Testbeds: they choose the hosts and the link of a deployment. One file per testbed, one line
//! each in [`CATALOG`].

mod cable;
mod catalog;
pub(crate) mod ends;
mod hosts;
mod netns;
mod ports;
mod ssh;
mod vm;
mod vm_options;

pub use catalog::CATALOG;
pub use ends::beside;

use crate::{Host, LocalSteward};
use bytepath_record::{
    DeviceName, Fault, Finding, Implied, Kernel, OptionSpec, Options, Ports, Role, Support,
    TapSettings, WantedSetting,
};
use std::fmt;
use std::net::IpAddr;
use std::path::Path;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

/// Time limit for two ports to negotiate a speed.
const CARRIER: Duration = Duration::from_secs(20);

/// A source of two hosts and the link between them.
pub trait Testbed: Sync {
    /// Name in the catalogue, as the user types it.
    fn name(&self) -> &'static str;

    /// One-line description.
    fn summary(&self) -> &'static str;

    /// Checks whether it can be raised from here. Actually tries it if that is the only reliable
    /// way, and leaves nothing behind.
    fn probe(&self) -> Support;

    /// Its options.
    fn options(&self) -> &'static [OptionSpec] {
        &[]
    }

    /// Defaults that depend on the value of another option.
    fn implied(&self) -> &'static [Implied] {
        &[]
    }

    /// Returns the testbed with these options, all of them resolved. `None` if it has no options
    /// and is used as it is.
    fn configured(&self, _options: &Options) -> Result<Option<Box<dyn Testbed>>, Fault> {
        Ok(None)
    }

    /// Its properties.
    fn properties(&self) -> Properties {
        Properties::default()
    }

    /// Describes how its hosts are emulated; `None` if they run on a real processor. May try it.
    fn emulation(&self) -> Option<Emulation> {
        None
    }

    /// Lists parts of it that are missing here, or work less well than they could.
    fn findings(&self) -> Vec<Finding> {
        Vec::new()
    }

    /// Settings that it needs before it can be raised. A study makes them after its sysctls and
    /// before its other settings, and restores everything in reverse order.
    fn settings(&self) -> Vec<WantedSetting> {
        Vec::new()
    }

    /// Returns the stewards of its hosts' settings.
    fn stewardship(&self, _site: &Site) -> Result<Stewardship, Fault> {
        Ok(Stewardship::Shared(Box::new(LocalSteward::standard())))
    }

    /// The devices of this machine that a study would lend to it, the sender's first, each end's in
    /// the order in which they are joined. Checks can use them where they are, without raising
    /// anything.
    fn devices(&self) -> Option<[Vec<String>; 2]> {
        None
    }

    /// The devices that the user has named for it, on the sender's host and on the receiver's.
    fn named_devices(&self) -> [Vec<String>; 2] {
        self.devices().unwrap_or_default()
    }

    /// Returns the address of a role at the adapter of this number, if it is known before raising.
    fn address(&self, role: Role, adapter: u32) -> IpAddr {
        ends::of_network(ends::address(role), adapter)
    }

    /// Called before each block of trials, while no deployment is up.
    fn begin_block(&self) {}

    /// Returns the worst problem of a device of its link after a trial, if devices outlive
    /// deployments; `None` if all could send.
    fn link_trouble(&self) -> Option<LinkTrouble> {
        None
    }

    /// Starts one agent per host. The link does not exist yet: the agents set it up on request (see
    /// [`Host::attachment`]).
    fn raise(&self, site: &Site) -> Result<Deployment, Fault>;
}

/// A problem with a device of a link. The worst comes first.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum LinkTrouble {
    /// It is not in the namespace it was lent to.
    Gone(DeviceName),
    /// Another program took it down. The next deployment brings it up again.
    Down(DeviceName),
    /// It is up, but cannot send.
    NoCarrier(DeviceName),
}

impl fmt::Display for LinkTrouble {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LinkTrouble::Gone(device) => {
                write!(f, "{device} is gone: it was unplugged, or its driver let go of it")
            }
            LinkTrouble::Down(device) => write!(f, "{device} was taken down"),
            LinkTrouble::NoCarrier(device) => write!(f, "{device} has no carrier"),
        }
    }
}

/// Properties of a testbed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Properties {
    /// It boots the kernels that cells name.
    pub boots_kernels: bool,
    /// Several deployments can be up at once, as the design `slices` needs.
    pub holds_several: bool,
    /// Each host has its own machine.
    pub hosts_apart: bool,
    /// There is a cable, real or emulated, between the hosts. It always copies the witness page,
    /// which then shows nothing about the sender's kernel.
    pub has_cable: bool,
    /// The link already exists, and is not changed.
    pub link_is_given: bool,
    /// NICs are created with each deployment and removed with it: its agents prepare them, and
    /// nothing has to be restored.
    pub nics_are_new: bool,
    /// Both hosts are namespaces of one kernel, so that their link may be a tap.
    pub holds_taps: bool,
    /// Largest number of pairs of devices that can join its hosts.
    pub adapters: u32,
    /// The sender's device may be a tap whose reader is the receiver's guest.
    pub has_guest_tap: bool,
    /// Its default link: one of `spec::PRESETS`.
    pub usual_link: &'static str,
    /// How long to wait for a lost host or carrier before the study ends.
    pub timeout: Duration,
}

impl Default for Properties {
    /// The properties of two hosts that share this machine.
    fn default() -> Self {
        Properties {
            boots_kernels: false,
            holds_several: true,
            hosts_apart: false,
            has_cable: false,
            link_is_given: false,
            nics_are_new: false,
            holds_taps: false,
            adapters: 1,
            has_guest_tap: false,
            usual_link: "wire",
            timeout: Duration::ZERO,
        }
    }
}

#[derive(Clone, Debug, PartialEq)]
pub struct Emulation {
    /// Why the speed of its hosts is not that of a real machine.
    pub because: String,
    /// How many times slower than a current machine they may be; time limits are multiplied by it.
    pub slowness: f64,
    /// Instructions represented by a second of their CPU time, if their clock counts instructions
    /// instead of time.
    pub instructions_per_second: Option<f64>,
}

/// The stewards of the settings of a testbed's hosts.
pub enum Stewardship {
    /// One steward in this process: the hosts share this machine, or run on it.
    Shared(Box<LocalSteward>),
    /// A second agent on each host, which runs as long as the study, the sender's first.
    Apart([Box<dyn Host>; 2]),
}

/// Two hosts and their link. Dropping it ends the agents and removes the link.
pub struct Deployment {
    /// The sender's host, and the receiver's.
    pub hosts: [Box<dyn Host>; 2],
    /// Facts about the link that no agent can determine, by name, for both hosts ("link.wire" is
    /// "taps").
    pub link_facts: Vec<(&'static str, String)>,
    /// Ports that receivers may listen on; `None` leaves the choice to the kernel.
    pub ports: Option<Ports>,
}

impl Deployment {
    /// Two hosts, and a link about which their agents can determine everything.
    pub fn of<H: Host + 'static>(hosts: [H; 2]) -> Deployment {
        let hosts = hosts.map(|host| Box::new(host) as Box<dyn Host>);
        Deployment { hosts, link_facts: Vec::new(), ports: None }
    }

    /// Returns the host of a role.
    pub fn host(&mut self, role: Role) -> &mut dyn Host {
        self.hosts[role as usize].as_mut()
    }
}

impl Drop for Deployment {
    fn drop(&mut self) {
        // Both are closed before either is waited for.
        self.hosts.iter_mut().for_each(|host| host.close());
    }
}

/// What is needed to raise a testbed.
#[derive(Clone, Copy, Debug)]
pub struct Site<'a> {
    /// The bytepath binary to run as agent.
    pub program: &'a Path,
    /// The kernel that the cell names; `None` leaves it to the testbed.
    pub kernel: Option<&'a Kernel>,
    /// The tap between the sender's host and the receiver's guest, if the cell's link is one.
    pub guest_tap: Option<TapSettings>,
    /// The CPU of the vhost threads of that tap; `None` leaves them to the scheduler.
    pub vhost: Option<u32>,
    /// Number of pairs of devices that the cell's flows cross.
    pub adapters: u32,
    /// Set when the user cancels: long operations stop.
    pub stop: &'a AtomicBool,
}

impl<'a> Site<'a> {
    /// The testbed's own kernel, one adapter, and no cancellation.
    pub fn of(program: &'a Path) -> Site<'a> {
        static NEVER: AtomicBool = AtomicBool::new(false);
        Site { program, kernel: None, guest_tap: None, vhost: None, adapters: 1, stop: &NEVER }
    }

    /// Errors if a kernel is named, for testbeds that boot none.
    fn refuse_kernel(&self, testbed: &str) -> Result<(), Fault> {
        let Some(kernel) = self.kernel else { return Ok(()) };
        let text =
            format!("testbed {testbed} runs on this machine's kernel, not on {}", kernel.name);
        Err(Fault::usage(text).remedy("choose the testbed vm"))
    }
}
