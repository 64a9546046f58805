//! Names in settings. Each type can only hold what is safe in a path or in a message to the kernel,
//! whatever its origin: the same check applies to typed text, files and journals.

use crate::{Fault, joined};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;

/// Name of a network device: what `dev_valid_name` (net/core/dev.c) accepts, except `=`, which in a
/// typed setting could not be distinguished from `name=value`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(try_from = "String", into = "String")]
#[schemars(with = "String")]
pub struct DeviceName(String);

/// Dotted name of a kernel parameter that may be set. A slash stands for a dot within a part, as in
/// sysctl(8): `net.ipv4.conf.eth0/100.rp_filter`.
///
/// Allowed are all parameters below `net`, except those that change other parameters or act when
/// they are written (forwarding, `flush`, those below `conf.all` and `conf.default`), and those of
/// [`SysctlName::OTHERS`].
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(try_from = "String", into = "String")]
#[schemars(with = "String")]
pub struct SysctlName(String);

/// A name defined by the kernel, of a feature, governor, qdisc or idle state: up to 63 letters,
/// digits, `-`, `_` and `.`, beginning with a letter or digit.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(try_from = "String", into = "String")]
#[schemars(with = "String")]
pub struct Word(String);

/// A set of CPUs. Written in the kernel's list format: `0-3,8`; `none` is empty.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(try_from = "String", into = "String")]
#[schemars(with = "String")]
pub struct Cpus(BTreeSet<u32>);

/// Largest number of CPUs that a Linux kernel can be built for (CONFIG_NR_CPUS of x86).
const MOST_CPUS: u32 = 8192;

impl DeviceName {
    /// Checks a name.
    pub fn new(name: &str) -> Result<Self, Fault> {
        let odd = |c: char| matches!(c, '/' | ':' | '=') || c.is_whitespace() || c.is_control();
        let fits = (1..=15).contains(&name.len()) && !name.contains(odd);
        if fits && name != "." && name != ".." {
            Ok(DeviceName(name.to_owned()))
        } else {
            Err(wrong(format!("'{}' is not a name of a network device", tame(name))))
        }
    }
}

impl SysctlName {
    /// Parameters outside `net` that may be set.
    pub const OTHERS: &[&str] = &[
        "kernel.nmi_watchdog",
        "kernel.numa_balancing",
        "kernel.perf_cpu_time_max_percent",
        "kernel.perf_event_mlock_kb",
        "kernel.perf_event_paranoid",
        "kernel.sched_autogroup_enabled",
        "kernel.sched_rt_runtime_us",
        "kernel.timer_migration",
        "kernel.watchdog",
        "vm.compaction_proactiveness",
        "vm.max_map_count",
        "vm.nr_hugepages",
        "vm.nr_overcommit_hugepages",
        "vm.stat_interval",
        "vm.swappiness",
        "vm.zone_reclaim_mode",
    ];

    /// Checks a name.
    pub fn new(name: &str) -> Result<Self, Fault> {
        let part_is_sound = |part: &str| {
            let path = part.replace('/', ".");
            let sound = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '/' | '@');
            !part.is_empty() && path != "." && path != ".." && part.chars().all(sound)
        };
        let parts: Vec<&str> = name.split('.').collect();
        if name.len() > 200 || parts.len() < 2 || !parts.iter().all(|part| part_is_sound(part)) {
            return Err(wrong(format!("'{}' is not the name of a sysctl", tame(name)))
                .remedy("write net.core.rmem_max"));
        }
        if parts[0] != "net" && !Self::OTHERS.contains(&name) {
            return Err(wrong(format!("the sysctl '{name}' is not one that bytepath sets"))
                .remedy(format!("below net all are, else {}", Self::OTHERS.join(", "))));
        }
        let last = parts.last().copied().unwrap_or_default();
        let acts = matches!(last, "flush" | "ip_forward" | "forwarding" | "mc_forwarding")
            || matches!(parts.as_slice(), ["net", _, "conf", "all" | "default", ..]);
        if acts {
            let text = format!("the sysctl '{name}' changes more than itself when it is written");
            return Err(
                wrong(text).remedy("its side effects could not be restored; set it by hand")
            );
        }
        Ok(SysctlName(name.to_owned()))
    }

    /// Returns its parts, as folders and file below `/proc/sys`.
    pub fn path(&self) -> impl Iterator<Item = String> {
        self.0.split('.').map(|part| part.replace('/', "."))
    }

    /// True if it belongs to a network namespace.
    pub fn is_of_namespace(&self) -> bool {
        self.0.starts_with("net.")
    }

    /// Returns the network device it belongs to, as in `net.ipv4.conf.eth0.rp_filter` or below
    /// `neigh`.
    pub fn device(&self) -> Option<DeviceName> {
        let parts: Vec<&str> = self.0.split('.').collect();
        let ["net", _, "conf" | "neigh", name, _] = parts[..] else { return None };
        let name = DeviceName::new(&name.replace('/', ".")).ok()?;
        (!matches!(name.as_str(), "all" | "default")).then_some(name)
    }

    /// Replaces the device, if it belongs to one.
    pub(super) fn on_device(&self, device: &DeviceName) -> SysctlName {
        let mut parts: Vec<String> = self.0.split('.').map(str::to_owned).collect();
        if self.device().is_some() {
            parts[3] = device.0.replace('.', "/");
        }
        SysctlName(parts.join("."))
    }
}

impl Word {
    /// Checks a word.
    pub fn new(word: &str) -> Result<Self, Fault> {
        let sound = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
        let begins = word.starts_with(|c: char| c.is_ascii_alphanumeric());
        if begins && word.len() <= 63 && word.chars().all(sound) {
            Ok(Word(word.to_owned()))
        } else {
            Err(wrong(format!("'{}' is not a name of the kernel's", tame(word))))
        }
    }
}

impl Cpus {
    /// A set of CPU numbers.
    pub fn new(cpus: impl IntoIterator<Item = u32>) -> Result<Self, Fault> {
        let cpus: BTreeSet<u32> = cpus.into_iter().collect();
        match cpus.last().filter(|last| **last >= MOST_CPUS) {
            None => Ok(Cpus(cpus)),
            Some(last) => Err(wrong(format!("there is no CPU {last}"))),
        }
    }

    /// Returns the numbers, ascending.
    pub fn iter(&self) -> impl Iterator<Item = u32> + '_ {
        self.0.iter().copied()
    }

    /// True if it contains no CPU.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Formats the set like the masks of `/sys` and `/proc`: hexadecimal words of 32 CPUs, the
    /// highest first, separated by commas (lib/bitmap.c).
    pub fn mask(&self) -> String {
        let words = self.0.last().map_or(1, |last| last / 32 + 1);
        let word = |at: u32| {
            let bits = self.iter().filter(|cpu| cpu / 32 == at);
            bits.fold(0u32, |word, cpu| word | 1 << (cpu % 32))
        };
        let mut text = format!("{:x}", word(words - 1));
        for at in (0..words - 1).rev() {
            text.push_str(&format!(",{:08x}", word(at)));
        }
        text
    }

    /// Parses such a mask; `None` if the text is not a mask.
    pub fn from_mask(text: &str) -> Option<Self> {
        let mut cpus = BTreeSet::new();
        let words: Vec<&str> = text.trim().split(',').collect();
        if words.len() > (MOST_CPUS / 32) as usize {
            return None;
        }
        for (at, word) in (0u32..).zip(words.iter().rev()) {
            // A word could be longer than 32 bits only if it were the only one, and no kernel
            // prints that.
            let fits = (1..=8).contains(&word.len()) && word.chars().all(|c| c.is_ascii_hexdigit());
            let bits = u32::from_str_radix(word, 16).ok().filter(|_| fits)?;
            cpus.extend((0..32).filter(|bit| bits >> bit & 1 == 1).map(|bit| at * 32 + bit));
        }
        Some(Cpus(cpus))
    }
}

impl FromStr for Cpus {
    type Err = Fault;

    fn from_str(text: &str) -> Result<Self, Fault> {
        let fault = || {
            wrong(format!("'{}' is not a list of CPUs", tame(text))).remedy("write 0-3,8, or none")
        };
        let mut cpus = BTreeSet::new();
        let text = text.trim();
        if text == "none" || text.is_empty() {
            return Ok(Cpus(cpus));
        }
        for part in text.split(',') {
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            let first: u32 = first.trim().parse().map_err(|_| fault())?;
            let last: u32 = last.trim().parse().map_err(|_| fault())?;
            if first > last || last >= MOST_CPUS {
                return Err(fault());
            }
            cpus.extend(first..=last);
        }
        Ok(Cpus(cpus))
    }
}

impl fmt::Display for Cpus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut runs: Vec<(u32, u32)> = Vec::new();
        for cpu in self.iter() {
            match runs.last_mut() {
                Some((_, last)) if *last + 1 == cpu => *last = cpu,
                _ => runs.push((cpu, cpu)),
            }
        }
        let run = |(first, last): &(u32, u32)| match last - first {
            0 => first.to_string(),
            _ => format!("{first}-{last}"),
        };
        f.write_str(&if runs.is_empty() {
            "none".into()
        } else {
            joined(runs.iter().map(run), ",")
        })
    }
}

/// Converts the name types from and to text.
macro_rules! as_text {
    ($($name:ident),*) => {$(
        impl $name {
            /// Returns the name.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl TryFrom<String> for $name {
            type Error = Fault;

            fn try_from(text: String) -> Result<Self, Fault> {
                Self::new(&text)
            }
        }

        impl From<$name> for String {
            fn from(name: $name) -> String {
                name.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }
    )*};
}

as_text!(DeviceName, SysctlName, Word);

impl TryFrom<String> for Cpus {
    type Error = Fault;

    fn try_from(text: String) -> Result<Self, Fault> {
        text.parse()
    }
}

impl From<Cpus> for String {
    fn from(cpus: Cpus) -> String {
        cpus.to_string()
    }
}

/// Returns what is wrong with the value of a sysctl, or `None`.
pub(super) fn value_flaw(value: &str) -> Option<String> {
    let sound = |c: char| c.is_ascii_graphic() || matches!(c, ' ' | '\t');
    if value.trim().is_empty() {
        return Some("it has no value".into());
    }
    let fits = value.len() <= 1024 && value.chars().all(sound) && value.trim() == value;
    (!fits).then(|| "its value is not one line of plain text without surrounding blanks".into())
}

fn wrong(message: String) -> Fault {
    Fault::usage(message)
}

/// Shortens and escapes untrusted text for an error message.
pub(super) fn tame(text: &str) -> String {
    text.chars().take(60).flat_map(char::escape_debug).collect()
}
