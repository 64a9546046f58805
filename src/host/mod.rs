//! Where roles run: testbeds (two hosts and the link between them), and what
//! is known of a host. One file per testbed, one line each in [`CATALOG`].

mod card;
mod child;
mod doctor;
mod doctor_card;
mod energy;
mod facts;
mod fingerprint;
mod keeper;
mod link;
mod netns;
mod nic;
mod ports;
mod renew;
mod send_memory;
pub mod settings;
mod tail;
mod vm;

pub use card::{Card, record as record_cards};
pub use doctor::{Moment, examine, moment};
pub use facts::survey;
pub use fingerprint::{Fingerprint, differences, fingerprint};
pub use link::apply as apply_link_end;
pub use netns::address;
pub use nic::Nic;
pub use vm::{guest, guest_init, is_guest_init};

use crate::record::wire::LinkEnd;
use crate::record::{
    Fault, FaultKind, Finding, Kernel, LinkSettings, OptionSpec, Options, Role, Support,
    WantedSetting,
};
use crate::sys::Roots;
use settings::{Host, Place};
use std::io::{Read, Write};
use std::net::IpAddr;
use std::path::Path;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

/// Two hosts and the link between them.
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

    /// The same testbed with these options, all of them resolved. None where it
    /// has none to set, and is used as it is.
    fn configured(&self, options: &Options) -> Result<Option<Box<dyn Testbed>>, Fault> {
        let _ = options;
        Ok(None)
    }

    /// Whether it boots the kernels that cells name.
    fn boots_kernels(&self) -> bool {
        false
    }

    /// Whether several can be up at once, as the design `slices` needs it.
    fn holds_several(&self) -> bool {
        true
    }

    /// Whether each role has a machine of its own. Meters of a whole machine are
    /// left out then, because the records have a place for one machine.
    fn has_hosts_apart(&self) -> bool {
        false
    }

    /// Why its speed says nothing of any machine; none where it does.
    fn functional(&self) -> Option<String> {
        None
    }

    /// What of it cannot be had here, or works less well than it could.
    fn findings(&self) -> Vec<Finding> {
        Vec::new()
    }

    /// How many times slower than a machine of our day its hosts may be: what
    /// waits for them waits so many times longer.
    fn slowness(&self) -> f64 {
        1.0
    }

    /// Settings of this host without which it cannot be raised. A study makes them after
    /// its own, and puts them back.
    fn settings(&self) -> Vec<WantedSetting> {
        Vec::new()
    }

    /// Where settings for it are made and written down, its own and those that paths ask
    /// of its devices.
    fn host(&self) -> (Place, Host) {
        (Place::standard(), Host::new(Roots::real()))
    }

    /// The devices of this host that a study would give it, the sender's first: questions
    /// are asked over them where they are, without raising anything.
    fn devices(&self) -> Option<[String; 2]> {
        None
    }

    /// The link that it is for: one of `spec::PRESETS`.
    fn usual_link(&self) -> &'static str {
        "wire"
    }

    /// Whether a wire is between the roles. It copies the witness page in any case,
    /// which says nothing of the sender's kernel then.
    fn has_wire(&self) -> bool {
        self.has_hosts_apart()
    }

    /// Starts one agent per role. The link is not there yet: the agents set it
    /// up when they are asked to (see [`Raised::link_end`]).
    fn raise(&self, site: &Site) -> Result<Box<dyn Raised>, Fault>;
}

/// What a testbed is raised with.
#[derive(Clone, Copy, Debug)]
pub struct Site<'a> {
    /// The bytepath binary to run as agent.
    pub program: &'a Path,
    /// The kernel that the cell names; none leaves it to the testbed.
    pub kernel: Option<&'a Kernel>,
    /// Set when the user wants to stop: whatever takes long gives up.
    pub stop: &'a AtomicBool,
}

impl<'a> Site<'a> {
    /// With the testbed's own kernel, and nobody to stop it.
    pub fn of(program: &'a Path) -> Site<'a> {
        static NEVER: AtomicBool = AtomicBool::new(false);
        Site { program, kernel: None, stop: &NEVER }
    }

    /// Refuses a kernel, for a testbed that boots none.
    fn refuse_kernel(&self, testbed: &str) -> Result<(), Fault> {
        let Some(kernel) = self.kernel else { return Ok(()) };
        let text =
            format!("testbed {testbed} runs on this machine's kernel, not on {}", kernel.name);
        Err(Fault::new(FaultKind::Usage, text).remedy("choose the testbed vm"))
    }
}

/// A testbed that is up. Dropping it ends its agents and takes it down.
pub trait Raised: Send {
    /// The pipe to an agent, once.
    fn take_pipe(&mut self, role: Role) -> AgentPipe;

    /// What to ask of an agent so that its end of the link exists; the
    /// sender's end is set up first. None where the link is not ours to make.
    fn link_end(
        &self,
        role: Role,
        settings: &LinkSettings,
        softirq_cpu: Option<u32>,
    ) -> Option<LinkEnd>;

    /// Address of a role on the link.
    fn address(&self, role: Role) -> IpAddr;

    /// Network device of a role on the link.
    fn device(&self, role: Role) -> Option<String>;

    /// What the testbed knows of the link and no agent can see: facts by name, for
    /// both hosts ("link.wire" is "taps").
    fn link_facts(&self) -> Vec<(&'static str, String)> {
        Vec::new()
    }

    /// The card that a role's flows come by, as far as it needs preparing; none where the
    /// device is all software.
    fn nic(&self, role: Role) -> Result<Option<Nic>, Fault> {
        let _ = role;
        Ok(None)
    }

    /// Waits until both ends of the link can send, after whatever made them stop.
    fn settle(&mut self, stop: &AtomicBool) -> Result<(), Fault> {
        let _ = stop;
        Ok(())
    }

    /// How an agent that went away ended, in words: "killed by signal 9
    /// (SIGKILL)", "exited with code 1: THE LAST LINE IT PRINTED".
    fn last_words(&mut self, role: Role) -> String;

    /// Asks the host of a role whether it is still there, without waiting for the
    /// answer. One that has left the question open for too long hangs: it is ended,
    /// and the words say for how long it has been silent and what it showed last.
    fn hangs(&mut self, role: Role) -> Option<String> {
        let _ = role;
        None
    }

    /// Time that the host of a role took to boot for this testbed; none where it
    /// was up before.
    fn booted(&self, role: Role) -> Option<Duration> {
        let _ = role;
        None
    }

    /// What the console of a host that does not answer shows, if it has one.
    fn console(&mut self, role: Role) -> Option<String> {
        let _ = role;
        None
    }
}

/// The two ends of a pipe to an agent.
pub struct AgentPipe {
    /// What the agent reads.
    pub to_agent: Box<dyn Write + Send>,
    /// What the agent writes.
    pub from_agent: Box<dyn Read + Send>,
}

/// Every testbed.
pub static CATALOG: &[&dyn Testbed] = &[&netns::Netns, &ports::UNNAMED, &vm::DEFAULT];
