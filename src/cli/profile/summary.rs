//! A profile as a page of text.

use super::unit;
use bytepath_profile::import::UNNAMED;
use bytepath_profile::subsystem::{Classes, Rules, Subsystem};
use bytepath_profile::symptom::symptoms;
use bytepath_profile::{self as profile, FrameKind, Function, Header, Owner, Profile, Weight};
use bytepath_record::joined;
use bytepath_record::visible;
use bytepath_report::{self as report, Style, plural};
use std::collections::{BTreeMap, HashMap};
use std::io::{self, Write};

/// Writes what the profile contains, its shares by owner, the functions with the largest shares,
/// and what well-known ones mean. Below `least` samples it prints no shares.
pub(in crate::cli) fn write(
    profile: &Profile,
    (top, least): (usize, u64),
    style: &Style,
    out: &mut dyn Write,
) -> io::Result<()> {
    if profile.count() < least {
        let taken = plural(profile.count(), "sample");
        return writeln!(out, "  {taken}: too few for a table (--sample 999 takes more).");
    }
    facts(profile, out)?;
    let total = profile.total();
    if total <= 0.0 {
        return writeln!(out, "\nAll samples have weight zero.");
    }
    let whole = Whole { total, samples: if least > 0 { profile.count() } else { u64::MAX } };
    let classes = Classes::of(profile, Rules::built_in());
    owners(profile, &whole, out)?;
    subsystems(profile, &classes, &whole, out)?;
    functions(profile, &whole, top, out)?;
    let symptoms = symptoms(profile, &classes);
    if !symptoms.is_empty() {
        writeln!(out)?;
        report::symptoms(&symptoms).write(style, out)?;
    }
    Ok(())
}

/// Bias of samples taken by a timer interrupt (docs/guide/profiles.md).
const BY_TIMER: &str = "time with interrupts off is seen where they come on again: \
                        _raw_spin_unlock_irqrestore, finish_task_switch, handle_softirqs, \
                        do_syscall_64";

fn facts(profile: &Profile, out: &mut dyn Write) -> io::Result<()> {
    let Header { title, event, weight, period, seconds, cpus, lost, work, notes, tracks } =
        &profile.header;
    let mut fact = |name: &str, value: &str| writeln!(out, "{name:<9} {}", visible(value));
    fact("profile", title)?;
    let event = if event.is_empty() { "not named" } else { event };
    match period {
        Some(period) if matches!(weight, Weight::Nanoseconds | Weight::Delay) => {
            fact("event", &format!("{event}, {:.0} Hz", 1e9 / period))?;
        }
        Some(period) => {
            let each = amount(*weight, *period);
            fact("event", &format!("{event}, one sample each {each}"))?;
        }
        None => fact("event", event)?,
    }
    let distinct = (profile.stacks(), profile.threads().len());
    let samples = format!(
        "{} in {}, {} of {}",
        profile.count(),
        plural(distinct.1 as u64, "thread"),
        plural(distinct.0 as u64, "stack"),
        plural(profile.frames().len() as u64, "function")
    );
    fact("samples", &samples)?;
    fact("lost", &lost.to_string())?;
    if *weight != Weight::Samples {
        fact("weight", &format!("{} ({})", amount(*weight, profile.total()), unit(*weight)))?;
    }
    if let Some(seconds) = seconds {
        let on = cpus.map_or(String::new(), |cpus| format!(" on {}", plural(cpus.into(), "CPU")));
        fact("time", &format!("{seconds:.3} s{on}"))?;
    }
    for (what, value) in [("bytes", work.bytes), ("packets", work.packets)] {
        if let Some(value) = value {
            fact("work", &format!("{value:.0} {what}"))?;
        }
    }
    for track in tracks {
        fact("track", &format!("{} ({}), {} points", track.name, track.unit, track.points.len()))?;
    }
    if event.starts_with("cpu-clock") {
        fact("note", BY_TIMER)?;
    }
    // Why functions have no names was printed before.
    for note in notes.iter().filter(|note| !note.starts_with(UNNAMED)) {
        fact("note", note)?;
    }
    Ok(())
}

/// Writes the shares by owner, if any is recorded.
fn owners(profile: &Profile, whole: &Whole, out: &mut dyn Write) -> io::Result<()> {
    let mut weights: HashMap<Owner, f64> = HashMap::new();
    for sample in profile.samples() {
        *weights.entry(sample.owner).or_default() += sample.weight;
    }
    if !weights.keys().any(is_informative) {
        return Ok(());
    }
    writeln!(out, "\n   share  spent by")?;
    for owner in Owner::all() {
        if let Some(weight) = weights.get(&owner) {
            writeln!(out, "{}  {owner}", whole.percent(*weight))?;
        }
    }
    Ok(())
}

/// Subsystems below this fraction have no line, except those that are interesting because they are
/// small.
const SMALL: f64 = 0.005;

/// Writes the shares by subsystem, largest first; nothing if there is only one.
fn subsystems(
    profile: &Profile,
    classes: &Classes,
    whole: &Whole,
    out: &mut dyn Write,
) -> io::Result<()> {
    let mut weights: BTreeMap<Subsystem, f64> = BTreeMap::new();
    for sample in profile.samples() {
        *weights.entry(classes.sample(sample)).or_default() += sample.weight;
    }
    if weights.len() < 2 {
        return Ok(());
    }
    let mut all: Vec<(Subsystem, f64)> = weights.into_iter().collect();
    all.sort_by(|a, b| b.1.total_cmp(&a.1));
    let is_large = |(subsystem, weight): &(Subsystem, f64)| {
        *subsystem == Subsystem::CopySubmission || *weight >= SMALL * whole.total
    };
    let (large, small): (Vec<_>, Vec<_>) = all.into_iter().partition(is_large);
    writeln!(out, "\n   share  subsystem")?;
    for (subsystem, weight) in &large {
        writeln!(out, "{}  {}", whole.percent(*weight), subsystem.title())?;
    }
    if !small.is_empty() {
        let rest = small.iter().map(|(_, weight)| weight).sum();
        writeln!(out, "{}  {} smaller", whole.percent(rest), small.len())?;
    }
    Ok(())
}

fn functions(profile: &Profile, whole: &Whole, top: usize, out: &mut dyn Write) -> io::Result<()> {
    let functions = profile::functions(profile);
    let split = functions.iter().any(|function| function.owners.keys().any(is_informative));
    let head = if split { "  by whom" } else { "" };
    writeln!(out, "\n    self    total  function{head}")?;
    let mut shown = 0.0;
    for function in functions.iter().take(top) {
        let frame = function.frame;
        shown += function.own;
        let module = match (frame.module.as_str(), frame.kind) {
            ("", FrameKind::Kernel) => "  [kernel]".to_owned(),
            ("", _) => String::new(),
            (module, _) => format!("  {}", module.rsplit('/').next().unwrap_or(module)),
        };
        let inlined = if frame.inlined { " (inlined)" } else { "" };
        let by = if split { by_whom(function) } else { String::new() };
        let line = format!("{}{inlined}{module}{by}", short(&frame.function));
        let [own, all] = [function.own, function.total].map(|weight| whole.percent(weight));
        writeln!(out, "{own} {all}  {}", visible(&line))?;
    }
    let rest = functions.len().saturating_sub(top);
    if rest > 0 {
        let share = whole.percent(whole.total - shown);
        writeln!(out, "{share}           {rest} more functions")?;
    }
    Ok(())
}

/// Formats the owners of a function's own weight: `  (sender 60 %, softirq 40 %)`.
fn by_whom(function: &Function) -> String {
    if function.own <= 0.0 {
        return String::new();
    }
    let part = |owner| {
        let part = function.owners.get(&owner)? / function.own;
        (part >= 0.005).then(|| format!("{owner} {:.0} %", part * 100.0))
    };
    format!("  ({})", joined(Owner::all().filter_map(part), ", "))
}

/// The total to which shares refer.
struct Whole {
    total: f64,
    /// Samples in it; shares of few samples have no decimals.
    samples: u64,
}

impl Whole {
    fn percent(&self, weight: f64) -> String {
        let share = weight / self.total * 100.0;
        match self.samples {
            ..1000 => format!("{share:>7.0}%"),
            _ => format!("{share:>7.2}%"),
        }
    }
}

/// True if an owner adds anything to the name of the thread.
fn is_informative(owner: &Owner) -> bool {
    !matches!(owner, Owner::Unknown | Owner::Idle | Owner::Program)
}

/// Characters of a name that are shown; names in C++ and Rust can be far longer.
const LETTERS: usize = 64;

fn short(name: &str) -> String {
    match name.char_indices().nth(LETTERS) {
        Some((end, _)) => format!("{}...", &name[..end]),
        None => name.to_owned(),
    }
}

/// Formats a weight with its unit.
fn amount(weight: Weight, value: f64) -> String {
    match weight {
        Weight::Nanoseconds | Weight::Delay if value >= 1e9 => format!("{:.3} s", value / 1e9),
        Weight::Nanoseconds | Weight::Delay => format!("{:.3} ms", value / 1e6),
        Weight::Events | Weight::Samples | Weight::Bytes => format!("{value:.0}"),
        Weight::Percent => format!("{value:.2} %"),
    }
}
