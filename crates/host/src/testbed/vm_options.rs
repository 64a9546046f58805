//! The options of the testbed `vm`, as the user types them, and checks for contradictions.

use super::cable::{self, CableSpec};
use crate::guest::{Limits, NicPair, Shape};
use bytepath_record::{Fault, Implied, OptionKind, OptionSpec, Options, Role};
use std::time::Duration;

/// The parsed options.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Settings {
    /// One guest for both roles, or one for each.
    pub guests: u32,
    /// Resources of a guest, and its time limits.
    pub shape: Shape,
    /// `auto`, `kvm` or `tcg`.
    pub accelerator: &'static str,
    /// Whether guests' clocks count instructions instead of time.
    pub counted: bool,
    /// The role that stays on this host, if one does.
    pub on_host: Option<Role>,
    /// The cable between the two roles, if they are not in one guest.
    pub cable: CableSpec,
    /// The NICs between them if they are in one guest; `None`: a veth pair.
    pub nics: Option<&'static NicPair>,
}

/// The options, as the user types them.
pub(super) const OPTIONS: &[OptionSpec] = &[
    OptionSpec::new("guests", OptionKind::Count(1, 2), "1")
        .help("1: both roles in one guest, over veth; 2: a guest for each, over virtio-net"),
    OptionSpec::new("cpus", OptionKind::Count(1, 255), "2").help("CPUs of a guest"),
    OptionSpec::new("memory", OptionKind::Size(LEAST_MEMORY, 1 << 40), "1G")
        .help("memory of a guest, bytes"),
    OptionSpec::new("accel", OptionKind::Choice(ACCELERATORS), "auto")
        .help("kvm, or tcg (emulated: functional, not performance); auto: kvm if it works"),
    OptionSpec::new("count", OptionKind::Choice(COUNTS), "time")
        .help("what CPU time counts: time, or instructions (emulated, one guest with one CPU)"),
    OptionSpec::new("host", OptionKind::Choice(HOSTS), "none")
        .help("the role that stays on this host, at the other end of the guest's wire"),
    OptionSpec::new("wire", OptionKind::Choice(cable::KINDS), "auto")
        .help("tap: with offloads; socket: packet by packet, needs nothing; auto: tap if it works"),
    OptionSpec::new("nic", OptionKind::Choice(NIC_CHOICES), "auto")
        .help("two NICs in one guest: in software (zcnic, make vm-nic) or emulated; auto: veth, or virtio-net"),
    OptionSpec::new("queues", OptionKind::Count(1, 16), "1")
        .help("queue pairs of a guest's network device, at most as many as it has CPUs"),
    OptionSpec::new("vhost", OptionKind::Choice(cable::VHOST), "auto")
        .help("whether this host's kernel moves the packets of a tap (vhost-net); auto: if it can"),
    OptionSpec::new("boot", OptionKind::Time(1000, 3_600_000), "60s")
        .help("time after which a guest that is not up has failed"),
    OptionSpec::new("silence", OptionKind::Time(1000, 3_600_000), "20s").help(
        "time after which a guest that does not answer a ping is considered hung and terminated",
    ),
];

/// Memory of a guest below which one of the two agents is killed for lack of it: it holds the
/// kernel, its initramfs, the buffers of both ends and the memory for measuring copies.
const LEAST_MEMORY: u64 = 768 << 20;

/// With two CPUs, the clock would advance for both while one of them counts. Emulated NICs have a
/// queue and an interrupt per CPU, up to their maximum.
pub(super) const IMPLIED: &[Implied] = &[
    Implied { given: ("count", INSTRUCTIONS), then: ("cpus", "1") },
    Implied { given: ("nic", "igb"), then: ("cpus", "4") },
    Implied { given: ("nic", "e1000e"), then: ("cpus", "4") },
    Implied { given: ("nic", "vmxnet3"), then: ("cpus", "4") },
    Implied { given: ("nic", "virtio"), then: ("cpus", "4") },
];

const INSTRUCTIONS: &str = "instructions";
const COUNTS: &[&str] = &["time", INSTRUCTIONS];

/// A veth pair or virtio-net, and the names of [`crate::guest::NIC_PAIRS`].
const NIC_CHOICES: &[&str] = &["auto", "zcnic", "igb", "e1000e", "vmxnet3", "virtio"];

const ACCELERATORS: &[&str] = &["auto", "kvm", "tcg"];

/// Roles that may stay on this host.
const HOSTS: &[&str] = &["none", "sender", "receiver"];

impl Settings {
    /// Every option at its default.
    pub(super) const DEFAULT: Settings = Settings {
        guests: 1,
        shape: Shape::DEFAULT,
        accelerator: "auto",
        counted: false,
        on_host: None,
        cable: CableSpec::DEFAULT,
        nics: None,
    };

    /// Converts resolved options.
    pub(super) fn of(options: &Options) -> Result<Settings, Fault> {
        let number = |name| options.number(name).unwrap_or_default();
        let count = |name| number(name) as u32;
        let time = |name| Duration::from_millis(number(name));
        let word = |name, known: &[&'static str]| {
            let typed = options.word(name);
            known.iter().find(|known| **known == typed).copied().unwrap_or("auto")
        };
        let on_host = options.word("host");
        let settings = Settings {
            guests: count("guests"),
            shape: Shape {
                cpus: count("cpus"),
                memory: number("memory"),
                limits: Limits { boot: time("boot"), silence: time("silence") },
            },
            accelerator: word("accel", ACCELERATORS),
            counted: options.word("count") == INSTRUCTIONS,
            on_host: Role::ALL.into_iter().find(|role| role.to_string() == on_host),
            cable: CableSpec {
                kind: word("wire", cable::KINDS),
                queues: count("queues"),
                vhost: word("vhost", cable::VHOST),
                backpressure: false,
            },
            nics: NicPair::named(options.word("nic")),
        };
        settings.check()?;
        Ok(settings)
    }

    /// True if both roles are in one guest.
    pub(super) fn is_whole(&self) -> bool {
        self.guests == 1 && self.on_host.is_none()
    }

    /// Checks for contradictions between options.
    fn check(&self) -> Result<(), Fault> {
        let wrong = |text: String, remedy: &str| {
            Err(Fault::usage(format!("testbed vm: {text}")).remedy(remedy))
        };
        let Settings { guests, shape: Shape { cpus, .. }, on_host, ref cable, .. } = *self;
        if self.counted {
            self.check_counted(wrong)?;
        }
        if let Some(role) = on_host.filter(|_| guests > 1) {
            let text = format!(
                "guests={guests} has a guest for each role, but host={role} has none for that role"
            );
            return wrong(text, "leave one of them out");
        }
        if self.is_whole() && *cable != CableSpec::DEFAULT {
            let text = "both roles are in one guest, so there is no wire".to_owned();
            return wrong(text, "add guests=2, host=sender or host=receiver");
        }
        if let Some(nics) = self.nics.filter(|_| !self.is_whole()) {
            let text = format!("nic={} joins two roles in one guest", nics.name);
            return wrong(text, "leave out guests and host");
        }
        if cable.queues > cpus {
            let text = format!("queues={} are more than a guest's {cpus} CPUs", cable.queues);
            return wrong(text, "each queue needs a CPU: raise cpus, or lower queues");
        }
        if cable.kind != "socket" {
            return Ok(());
        }
        match (on_host, cable.queues, cable.vhost) {
            (Some(role), ..) => {
                let text =
                    format!("wire=socket joins two guests, but with host={role} there is only one");
                wrong(text, "leave out wire: the host's end is a tap")
            }
            (None, 2.., _) | (None, _, "on") => {
                let text = "wire=socket has one queue and no vhost".to_owned();
                wrong(text, "use wire=tap")
            }
            _ => Ok(()),
        }
    }

    /// Checks for options that a guest that counts instructions cannot have.
    fn check_counted(
        &self,
        wrong: impl Fn(String, &str) -> Result<(), Fault>,
    ) -> Result<(), Fault> {
        let Settings { accelerator, shape: Shape { cpus, .. }, .. } = *self;
        if accelerator == "kvm" {
            let text = "a processor (accel=kvm) runs guests without counting instructions".into();
            return wrong(text, "leave out accel, or count=instructions");
        }
        if cpus > 1 {
            let text = format!(
                "count=instructions requires one CPU, because cpus={cpus} would share a clock"
            );
            return wrong(text, "leave out cpus");
        }
        if !self.is_whole() {
            let text = "count=instructions counts in one guest that has both roles".into();
            return wrong(text, "leave out guests and host");
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::guest::NIC_PAIRS;

    #[test]
    fn every_pair_of_nics_can_be_chosen_and_emulated_ones_have_cpus() {
        let names = NIC_PAIRS.iter().map(|pair| pair.name);
        assert_eq!(NIC_CHOICES, std::iter::once("auto").chain(names).collect::<Vec<_>>());
        let emulated = NIC_PAIRS.iter().filter(|pair| pair.emulated_device().is_some());
        let implied = emulated.map(|pair| (("nic", pair.name), ("cpus", "4")));
        let all: Vec<_> = IMPLIED.iter().skip(1).map(|one| (one.given, one.then)).collect();
        assert_eq!(all, implied.collect::<Vec<_>>());
    }
}
