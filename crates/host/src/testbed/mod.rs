//! Which hosts and links make a deployment. One file per testbed, one line each in
//! [`CATALOG`].

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

/// How long two ports may take to agree on a speed.
const CARRIER: Duration = Duration::from_secs(20);

/// A way to get two hosts and the link between them.
pub trait Testbed: Sync {
    /// Name in the catalogue, as the user types it.
    fn name(&self) -> &'static str;

    /// One line: what it is.
    fn summary(&self) -> &'static str;

    /// Whether it can be raised from here. Tries it for real where that is
    /// the only honest way, and leaves nothing behind.
    fn probe(&self) -> Support;

    /// What can be set of it.
    fn options(&self) -> &'static [OptionSpec] {
        &[]
    }

    /// Defaults that the value of another option changes.
    fn implied(&self) -> &'static [Implied] {
        &[]
    }

    /// The same testbed with these options, all of them resolved. `None` if it
    /// has none to set, and is used as it is.
    fn configured(&self, _options: &Options) -> Result<Option<Box<dyn Testbed>>, Fault> {
        Ok(None)
    }

    /// What kind of testbed it is.
    fn properties(&self) -> Properties {
        Properties::default()
    }

    /// How its hosts are emulated; `None` if they run on a processor. May try it.
    fn emulation(&self) -> Option<Emulation> {
        None
    }

    /// Parts of it that are not available here, or work less well than they could.
    fn findings(&self) -> Vec<Finding> {
        Vec::new()
    }

    /// Settings without which it cannot be raised. A study makes them after its sysctls and
    /// before its other settings, and restores everything in reverse.
    fn settings(&self) -> Vec<WantedSetting> {
        Vec::new()
    }

    /// Who keeps the settings of its hosts.
    fn stewardship(&self, _site: &Site) -> Result<Stewardship, Fault> {
        Ok(Stewardship::Shared(Box::new(LocalSteward::standard())))
    }

    /// The devices of this machine that a study would give it, the sender's first, each end's in
    /// the order in which they are joined: questions are asked over them where they are, without
    /// raising anything.
    fn devices(&self) -> Option<[Vec<String>; 2]> {
        None
    }

    /// The devices that the user has named for it, on the sender's host and the receiver's.
    fn named_devices(&self) -> [Vec<String>; 2] {
        self.devices().unwrap_or_default()
    }

    /// The address that a role will have at the adapter of this number, where that is known before
    /// it is raised.
    fn address(&self, role: Role, adapter: u32) -> IpAddr {
        ends::of_network(ends::address(role), adapter)
    }

    /// A block of trials begins, and no deployment is up.
    fn begin_block(&self) {}

    /// The worst that is wrong with a device of its link after a trial, where devices outlive
    /// deployments; `None` if they could send.
    fn link_trouble(&self) -> Option<LinkTrouble> {
        None
    }

    /// Starts one agent per host. The link is not there yet: the agents set it
    /// up when they are asked to (see [`Host::attachment`]).
    fn raise(&self, site: &Site) -> Result<Deployment, Fault>;
}

/// What is wrong with a device of a link. The worst comes first.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum LinkTrouble {
    /// It is not where it was lent to.
    Gone(DeviceName),
    /// Another program took it down. The next deployment brings it up.
    Down(DeviceName),
    /// It is up, and cannot send.
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

/// What kind of testbed one is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Properties {
    /// It boots the kernels that cells name.
    pub boots_kernels: bool,
    /// Several can be up at once, as the design `slices` needs it.
    pub holds_several: bool,
    /// Each host has a machine of its own.
    pub hosts_apart: bool,
    /// A cable, real or emulated, is between the hosts. It copies the witness page in any
    /// case, which shows nothing about the sender's kernel then.
    pub has_cable: bool,
    /// The link already exists, and stays as it is.
    pub link_is_given: bool,
    /// Cards are made with each deployment and go with it: its agents prepare them, and
    /// nothing has to be restored.
    pub nics_are_new: bool,
    /// Both hosts are namespaces of one kernel, so that their link may be a tap.
    pub holds_taps: bool,
    /// Most pairs of devices that can join its hosts.
    pub adapters: u32,
    /// The sender's device may be a tap whose reader is the receiver's guest.
    pub has_guest_tap: bool,
    /// The link that it is for: one of `spec::PRESETS`.
    pub usual_link: &'static str,
    /// How long a host or a carrier that was lost is waited for before the study ends.
    pub timeout: Duration,
}

impl Default for Properties {
    /// Of two hosts that share this machine.
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
    /// Why the speed of its hosts is that of no real machine.
    pub because: String,
    /// How many times slower than a current machine they may be: what waits for them
    /// waits this many times longer.
    pub slowness: f64,
    /// Instructions that a second of their CPU time represents, where their clock counts
    /// instructions and not time.
    pub instructions_per_second: Option<f64>,
}

/// Who keeps the settings of a testbed's hosts.
pub enum Stewardship {
    /// One steward in this process: the hosts share this machine, or run on it.
    Shared(Box<LocalSteward>),
    /// A second agent on each host, which stays as long as the study, the sender's first.
    Apart([Box<dyn Host>; 2]),
}

/// Two hosts and their link. Dropping it ends the agents and takes it down.
pub struct Deployment {
    /// The sender's host, and the receiver's.
    pub hosts: [Box<dyn Host>; 2],
    /// What is known of the link and no agent can see: facts by name, for both hosts
    /// ("link.wire" is "taps").
    pub link_facts: Vec<(&'static str, String)>,
    /// Ports that receivers may listen on; none leaves it to the kernel.
    pub ports: Option<Ports>,
}

impl Deployment {
    /// Two hosts, and a link of which their agents see everything.
    pub fn of<H: Host + 'static>(hosts: [H; 2]) -> Deployment {
        let hosts = hosts.map(|host| Box::new(host) as Box<dyn Host>);
        Deployment { hosts, link_facts: Vec::new(), ports: None }
    }

    /// The host of a role.
    pub fn host(&mut self, role: Role) -> &mut dyn Host {
        self.hosts[role as usize].as_mut()
    }
}

impl Drop for Deployment {
    fn drop(&mut self) {
        // Both are notified before any is waited for.
        self.hosts.iter_mut().for_each(|host| host.close());
    }
}

/// What a testbed is raised with.
#[derive(Clone, Copy, Debug)]
pub struct Site<'a> {
    /// The bytepath binary to run as agent.
    pub program: &'a Path,
    /// The kernel that the cell names; none leaves it to the testbed.
    pub kernel: Option<&'a Kernel>,
    /// The tap between the sender's host and the receiver's guest, if the cell's link is one.
    pub guest_tap: Option<TapSettings>,
    /// The CPU of the vhost threads of that tap; none leaves them to the scheduler.
    pub vhost: Option<u32>,
    /// The pairs of devices that the cell's flows cross.
    pub adapters: u32,
    /// Set when the user wants to stop: whatever takes long gives up.
    pub stop: &'a AtomicBool,
}

impl<'a> Site<'a> {
    /// With the testbed's own kernel, and nothing to stop it.
    pub fn of(program: &'a Path) -> Site<'a> {
        static NEVER: AtomicBool = AtomicBool::new(false);
        Site { program, kernel: None, guest_tap: None, vhost: None, adapters: 1, stop: &NEVER }
    }

    /// Refuses a kernel, for a testbed that boots none.
    fn refuse_kernel(&self, testbed: &str) -> Result<(), Fault> {
        let Some(kernel) = self.kernel else { return Ok(()) };
        let text =
            format!("testbed {testbed} runs on this machine's kernel, not on {}", kernel.name);
        Err(Fault::usage(text).remedy("choose the testbed vm"))
    }
}
