//! Events by the names that perf-list(1) shows: hardware, software and cache
//! events, raw codes (`r1a8`), and events of a performance-monitoring unit
//! (`cpu/event=0x3c,umask=0x1/`) by `/sys/bus/event_source/devices`
//! (Documentation/ABI/testing/sysfs-bus-event_source-devices-*).

use crate::attribute;
use b::{PERF_TYPE_HARDWARE as HARDWARE, PERF_TYPE_SOFTWARE as SOFTWARE};
use perf_event_open_sys::{bindings as b, ioctls};
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::path::Path;

/// An event to count, as perf_event_open(2) describes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// Its name as typed.
    pub name: String,
    /// `perf_event_attr.type`.
    pub kind: u32,
    /// `perf_event_attr.config`, `config1` and `config2`.
    pub config: [u64; 3],
    /// Whether user mode is counted.
    pub user: bool,
    /// Whether the kernel is counted.
    pub kernel: bool,
    /// `perf_event_attr.precise_ip`: how precisely the address must be that of the event, 0 to 3.
    pub precise: u8,
}

/// The unit of an event's count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// A nanosecond on a CPU.
    Nanoseconds,
    Events,
}

/// Where an event is opened.
#[derive(Clone, Copy, Debug)]
pub(super) enum Target {
    /// One CPU, for all tasks.
    Cpu(u32),
    /// One thread, on any CPU.
    Thread(u32),
}

pub(super) fn open(mut attributes: b::perf_event_attr, target: Target) -> io::Result<OwnedFd> {
    let signed =
        |id: u32| i32::try_from(id).map_err(|_| io::Error::from(io::ErrorKind::InvalidInput));
    let (thread, cpu) = match target {
        Target::Cpu(cpu) => (-1, signed(cpu)?),
        Target::Thread(id) => (signed(id)?, -1),
    };
    let flags = b::PERF_FLAG_FD_CLOEXEC.into();
    // SAFETY: the attributes are initialised and contain their size; the kernel writes at most
    // their `size` field.
    let fd =
        unsafe { perf_event_open_sys::perf_event_open(&mut attributes, thread, cpu, -1, flags) };
    let fd = crate::check(fd.into())?;
    // SAFETY: the kernel has just made this descriptor, and it has no other owner.
    Ok(unsafe { OwnedFd::from_raw_fd(fd as i32) })
}

/// Enables or disables an event; while it is disabled, no samples are taken.
pub(super) fn switch(event: &OwnedFd, on: bool) -> io::Result<()> {
    let request = if on { ioctls::ENABLE } else { ioctls::DISABLE };
    // SAFETY: an ioctl without a pointer on an event that is open.
    crate::check(unsafe { request(event.as_raw_fd(), 0) }.into()).map(drop)
}

/// A name that is not an event on this machine.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{what}")]
pub struct UnknownEvent {
    /// What is wrong with the name.
    pub what: String,
    /// What could be written instead, if known.
    pub instead: Option<String>,
}

/// (names, type, config): the first name is the one printed.
const NAMED: &[(&[&str], u32, u32)] = &[
    (&["cycles", "cpu-cycles"], HARDWARE, b::PERF_COUNT_HW_CPU_CYCLES),
    (&["instructions"], HARDWARE, b::PERF_COUNT_HW_INSTRUCTIONS),
    (&["cache-references"], HARDWARE, b::PERF_COUNT_HW_CACHE_REFERENCES),
    (&["cache-misses"], HARDWARE, b::PERF_COUNT_HW_CACHE_MISSES),
    (&["branches", "branch-instructions"], HARDWARE, b::PERF_COUNT_HW_BRANCH_INSTRUCTIONS),
    (&["branch-misses"], HARDWARE, b::PERF_COUNT_HW_BRANCH_MISSES),
    (&["bus-cycles"], HARDWARE, b::PERF_COUNT_HW_BUS_CYCLES),
    (
        &["stalled-cycles-frontend", "idle-cycles-frontend"],
        HARDWARE,
        b::PERF_COUNT_HW_STALLED_CYCLES_FRONTEND,
    ),
    (
        &["stalled-cycles-backend", "idle-cycles-backend"],
        HARDWARE,
        b::PERF_COUNT_HW_STALLED_CYCLES_BACKEND,
    ),
    (&["ref-cycles"], HARDWARE, b::PERF_COUNT_HW_REF_CPU_CYCLES),
    (&["cpu-clock"], SOFTWARE, b::PERF_COUNT_SW_CPU_CLOCK),
    (&["task-clock"], SOFTWARE, b::PERF_COUNT_SW_TASK_CLOCK),
    (&["page-faults", "faults"], SOFTWARE, b::PERF_COUNT_SW_PAGE_FAULTS),
    (&["context-switches", "cs"], SOFTWARE, b::PERF_COUNT_SW_CONTEXT_SWITCHES),
    (&["cpu-migrations", "migrations"], SOFTWARE, b::PERF_COUNT_SW_CPU_MIGRATIONS),
    (&["minor-faults"], SOFTWARE, b::PERF_COUNT_SW_PAGE_FAULTS_MIN),
    (&["major-faults"], SOFTWARE, b::PERF_COUNT_SW_PAGE_FAULTS_MAJ),
    (&["alignment-faults"], SOFTWARE, b::PERF_COUNT_SW_ALIGNMENT_FAULTS),
    (&["emulation-faults"], SOFTWARE, b::PERF_COUNT_SW_EMULATION_FAULTS),
    (&["cgroup-switches"], SOFTWARE, b::PERF_COUNT_SW_CGROUP_SWITCHES),
];

/// Names of caches, as in perf.
const CACHES: &[(&str, u32)] = &[
    ("L1-dcache", b::PERF_COUNT_HW_CACHE_L1D),
    ("L1-icache", b::PERF_COUNT_HW_CACHE_L1I),
    ("LLC", b::PERF_COUNT_HW_CACHE_LL),
    ("dTLB", b::PERF_COUNT_HW_CACHE_DTLB),
    ("iTLB", b::PERF_COUNT_HW_CACHE_ITLB),
    ("branch", b::PERF_COUNT_HW_CACHE_BPU),
    ("node", b::PERF_COUNT_HW_CACHE_NODE),
];

/// Operations on a cache: names of accesses, then of misses.
const OPERATIONS: &[(&str, &str, u32)] = &[
    ("loads", "load-misses", b::PERF_COUNT_HW_CACHE_OP_READ),
    ("stores", "store-misses", b::PERF_COUNT_HW_CACHE_OP_WRITE),
    ("prefetches", "prefetch-misses", b::PERF_COUNT_HW_CACHE_OP_PREFETCH),
];

impl Event {
    /// The attributes that identify the event, but not how it is counted.
    pub(super) fn attributes(&self) -> b::perf_event_attr {
        let mut attributes = b::perf_event_attr {
            type_: self.kind,
            size: size_of::<b::perf_event_attr>() as u32,
            config: self.config[0],
            ..Default::default()
        };
        attributes.__bindgen_anon_3.config1 = self.config[1];
        attributes.__bindgen_anon_4.config2 = self.config[2];
        attributes
    }

    /// Hardware cycles.
    pub fn cycles() -> Event {
        Event::new("cycles", HARDWARE, b::PERF_COUNT_HW_CPU_CYCLES.into())
    }

    /// The software clock of a CPU, which every kernel has.
    pub fn cpu_clock() -> Event {
        Event::new("cpu-clock", SOFTWARE, b::PERF_COUNT_SW_CPU_CLOCK.into())
    }

    /// Parses a name; `sys` is the path of `/sys`, for events of a unit. A name may end in `:` and
    /// modifiers as in perf: `u` user mode only, `k` kernel only, `p` (up to three) precise.
    pub fn parse(text: &str, sys: &Path) -> Result<Event, UnknownEvent> {
        let text = text.trim();
        let (name, modifiers) = split_modifiers(text);
        let mut event = match name.split_once('/') {
            Some((unit, rest)) => of_unit(unit, rest, sys)?,
            None => named(name).or_else(|| cache(name)).or_else(|| raw(name)).ok_or_else(|| {
                UnknownEvent {
                    what: format!("there is no event '{name}'"),
                    instead: Some(
                        "write a name as perf list shows it, r and a hexadecimal code, or \
                         UNIT/event=0x..,umask=0x../"
                            .into(),
                    ),
                }
            })?,
        };
        event.name = text.to_owned();
        event.modify(modifiers)?;
        Ok(event)
    }

    /// Returns every plain name, for help texts and suggestions.
    pub fn names() -> Vec<String> {
        let named = NAMED.iter().map(|(names, ..)| names[0].to_owned());
        let caches = CACHES.iter().flat_map(|(cache, _)| {
            OPERATIONS.iter().flat_map(move |(accesses, misses, _)| {
                [format!("{cache}-{accesses}"), format!("{cache}-{misses}")]
            })
        });
        named.chain(caches).collect()
    }

    /// The unit of its count.
    pub fn unit(&self) -> Unit {
        let clocks = [b::PERF_COUNT_SW_CPU_CLOCK, b::PERF_COUNT_SW_TASK_CLOCK];
        let is_clock = clocks.iter().any(|clock| u64::from(*clock) == self.config[0]);
        if self.kind == SOFTWARE && is_clock { Unit::Nanoseconds } else { Unit::Events }
    }

    fn new(name: &str, kind: u32, config: u64) -> Event {
        let name = name.to_owned();
        Event { name, kind, config: [config, 0, 0], user: true, kernel: true, precise: 0 }
    }

    fn modify(&mut self, modifiers: &str) -> Result<(), UnknownEvent> {
        if modifiers.contains(['u', 'k']) {
            self.user = modifiers.contains('u');
            self.kernel = modifiers.contains('k');
        }
        let precise = modifiers.chars().filter(|c| *c == 'p').count();
        let known = modifiers.chars().all(|c| matches!(c, 'u' | 'k' | 'p'));
        if !known || precise > 3 {
            return Err(UnknownEvent {
                what: format!("'{modifiers}' are not event modifiers"),
                instead: Some("u, k, or up to three p".into()),
            });
        }
        self.precise = precise as u8;
        Ok(())
    }
}

/// Splits off the modifiers, which follow the last colon, or the slash that ends an event of a
/// unit.
fn split_modifiers(text: &str) -> (&str, &str) {
    if let Some((name, behind)) = text.rsplit_once('/') {
        let modifiers = behind.strip_prefix(':').unwrap_or(behind);
        return (&text[..name.len() + 1], modifiers);
    }
    text.rsplit_once(':').unwrap_or((text, ""))
}

fn named(name: &str) -> Option<Event> {
    let (_, kind, config) = NAMED.iter().find(|(names, ..)| names.contains(&name))?;
    Some(Event::new(name, *kind, u64::from(*config)))
}

/// Parses `L1-dcache-load-misses` and the like: cache, operation and result, a byte each.
fn cache(name: &str) -> Option<Event> {
    let (cache, id) = CACHES.iter().find(|(cache, _)| name.starts_with(cache))?;
    let rest = name[cache.len()..].strip_prefix('-')?;
    let (_, misses, operation) =
        OPERATIONS.iter().find(|(accesses, misses, _)| [*accesses, *misses].contains(&rest))?;
    let result = if rest == *misses {
        b::PERF_COUNT_HW_CACHE_RESULT_MISS
    } else {
        b::PERF_COUNT_HW_CACHE_RESULT_ACCESS
    };
    let config = u64::from(*id) | u64::from(*operation) << 8 | u64::from(result) << 16;
    Some(Event::new(name, b::PERF_TYPE_HW_CACHE, config))
}

fn raw(name: &str) -> Option<Event> {
    let code = u64::from_str_radix(name.strip_prefix('r')?, 16).ok()?;
    Some(Event::new(name, b::PERF_TYPE_RAW, code))
}

/// Parses `UNIT/term=value,.../`, with terms laid out as in the unit's folder `format`, or one of
/// its named `events`.
fn of_unit(unit: &str, rest: &str, sys: &Path) -> Result<Event, UnknownEvent> {
    let wrong = |what: String, instead: Option<String>| UnknownEvent { what, instead };
    let terms = rest
        .strip_suffix('/')
        .ok_or_else(|| wrong(format!("the event '{unit}/{rest}' does not end in a slash"), None))?;
    let devices = sys.join("bus/event_source/devices");
    let sound = |name: &str| {
        let plain = |c: char| c.is_ascii_alphanumeric() || "_-.".contains(c);
        !name.is_empty() && !name.starts_with('.') && name.chars().all(plain)
    };
    let folder = devices.join(unit);
    let kind = Some(unit)
        .filter(|unit| sound(unit))
        .and_then(|_| attribute::text(&folder.join("type"))?.parse::<u32>().ok());
    let kind = kind.ok_or_else(|| {
        let there = attribute::names(&devices);
        let instead = (!there.is_empty()).then(|| format!("this host has {}", there.join(", ")));
        wrong(format!("there is no event source '{unit}'"), instead)
    })?;
    let mut event = Event::new("", kind, 0);
    let mut queue: Vec<String> = split_terms(terms);
    // A named event is an alias for terms; it cannot name another.
    let is_name = |term: &String| sound(term) && folder.join("events").join(term).is_file();
    if let Some(at) = queue.iter().position(is_name) {
        let name = queue.remove(at);
        let text = attribute::text(&folder.join("events").join(&name)).unwrap_or_default();
        queue.splice(at..at, split_terms(&text));
    }
    for term in queue {
        let (key, value) = term.split_once('=').unwrap_or((&term, "1"));
        let value = number(value).ok_or_else(|| {
            wrong(format!("'{value}' in '{unit}/{terms}/' is not a number"), None)
        })?;
        let place = match key {
            _ if WORDS.contains(&key) => Some(format!("{key}:0-63")),
            _ if sound(key) => attribute::text(&folder.join("format").join(key)),
            _ => None,
        };
        let placed = place
            .as_deref()
            .and_then(parse_format)
            .ok_or_else(|| wrong(format!("the event source '{unit}' has no term '{key}'"), None))?;
        let (word, bits) = placed;
        event.config[word] |= scatter(value, &bits).ok_or_else(|| {
            wrong(format!("{value:#x} is too large for '{key}' of '{unit}'"), None)
        })?;
    }
    Ok(event)
}

fn split_terms(text: &str) -> Vec<String> {
    text.split(',').map(str::trim).filter(|term| !term.is_empty()).map(str::to_owned).collect()
}

fn number(text: &str) -> Option<u64> {
    match text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")) {
        Some(digits) => u64::from_str_radix(digits, 16).ok(),
        None => text.parse().ok(),
    }
}

/// Names of the words of [`Event::config`].
const WORDS: [&str; 3] = ["config", "config1", "config2"];

/// `config1:0-7,32-35`: the word and its bits, lowest first.
fn parse_format(text: &str) -> Option<(usize, Vec<u32>)> {
    let (word, ranges) = text.trim().split_once(':')?;
    let word = WORDS.iter().position(|known| *known == word)?;
    let mut bits = Vec::new();
    for range in ranges.split(',') {
        let (low, high) = range.split_once('-').unwrap_or((range, range));
        let (low, high) = (low.trim().parse::<u32>().ok()?, high.trim().parse::<u32>().ok()?);
        if low > high || high > 63 {
            return None;
        }
        bits.extend(low..=high);
    }
    Some((word, bits))
}

/// Puts the bits of a value at the positions `bits`; `None` if it has more bits than that.
fn scatter(value: u64, bits: &[u32]) -> Option<u64> {
    let width = bits.len().min(64) as u32;
    if width < 64 && value >> width != 0 {
        return None;
    }
    let placed = bits.iter().take(64).enumerate();
    Some(placed.fold(0, |sum, (from, to)| sum | ((value >> from) & 1) << to))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Event, UnknownEvent> {
        Event::parse(text, Path::new("/nonexistent"))
    }

    #[test]
    fn names_are_those_of_perf() {
        // (name, type, config), as `perf stat -vv -e NAME` shows them.
        let known = [
            ("cycles", 0, 0),
            ("cpu-cycles", 0, 0),
            ("branch-misses", 0, 5),
            ("cpu-clock", 1, 0),
            ("faults", 1, 2),
            ("cs", 1, 3),
            ("L1-dcache-loads", 3, 0),
            ("L1-dcache-load-misses", 3, 0x10000),
            ("LLC-stores", 3, 0x102),
            ("dTLB-prefetch-misses", 3, 0x10203),
            ("node-loads", 3, 6),
            ("r1a8", 4, 0x1a8),
        ];
        for (name, kind, config) in known {
            let event = parse(name).unwrap();
            assert_eq!((event.kind, event.config[0]), (kind, config), "{name}");
            assert_eq!(event.name, name);
        }
        for name in Event::names() {
            assert!(parse(&name).is_ok(), "{name}");
        }
        for name in ["", "cycle", "L1-dcache", "LLC-load", "rxyz", "r", "r11111111111111111"] {
            assert!(parse(name).unwrap_err().what.contains("no event"), "{name}");
        }
    }

    #[test]
    fn modifiers_choose_the_mode() {
        let kernel = parse("cycles:k").unwrap();
        assert_eq!((kernel.user, kernel.kernel, kernel.precise), (false, true, 0));
        let precise = parse("cycles:upp").unwrap();
        assert_eq!((precise.user, precise.kernel, precise.precise), (true, false, 2));
        assert!(parse("cycles:x").unwrap_err().what.contains("modifiers"));
        assert!(parse("cycles:pppp").is_err());
        assert_eq!(parse("cpu-clock:k").unwrap().unit(), Unit::Nanoseconds);
        assert_eq!(parse("cycles").unwrap().unit(), Unit::Events);
    }

    #[test]
    fn events_of_a_unit_are_placed_by_its_format() {
        let dir = tempfile::tempdir().unwrap();
        let unit = dir.path().join("bus/event_source/devices/cpu");
        for folder in ["format", "events"] {
            std::fs::create_dir_all(unit.join(folder)).unwrap();
        }
        for (name, text) in [
            ("type", "4\n"),
            ("format/event", "config:0-7,32-35\n"),
            ("format/umask", "config:8-15\n"),
            ("format/ldlat", "config1:0-15\n"),
            ("format/broken", "config:9-3\n"),
            ("events/mem-loads", "event=0xcd,umask=0x1,ldlat=3\n"),
        ] {
            std::fs::write(unit.join(name), text).unwrap();
        }
        let parse = |text: &str| Event::parse(text, dir.path());
        let event = parse("cpu/event=0x3ab,umask=0x12/").unwrap();
        assert_eq!((event.kind, event.config), (4, [0x3_0000_12ab, 0, 0]));
        let named = parse("cpu/mem-loads/k").unwrap();
        assert_eq!((named.config, named.user), ([0x1cd, 3, 0], false));
        assert_eq!(parse("cpu/config=0x10,config2=7/").unwrap().config, [0x10, 0, 7]);
        let what = |text: &str| parse(text).unwrap_err().what;
        assert!(what("cpu/umask=0x100/").contains("too large"));
        assert!(what("cpu/nothing=1/").contains("no term"));
        assert!(what("cpu/broken=1/").contains("no term"));
        assert!(what("cpu/event=x/").contains("not a number"));
        assert!(what("cpu/event=1").contains("slash"));
        assert!(what("gpu/event=1/").contains("no event source"));
        assert!(what("../cpu/event=1/").contains("no event source"));
        assert!(what("cpu/../type/").contains("slash") || what("cpu/../type/").contains("no term"));
        assert!(parse("gpu/event=1/").unwrap_err().instead.unwrap().contains("cpu"));
    }
}
