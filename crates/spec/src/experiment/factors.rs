//! The axes of an experiment: factors, their levels, and selections of levels.

use super::catalogues::{Catalogues, factor_names};
use super::document::{Entry, Section};
use crate::cells::{activity, halves, one_half};
use crate::kernel::parse_kernel;
use crate::link::{LINK_OPTIONS, parse_link};
use crate::options::short;
use crate::placement::{PARTS, read_cores};
use crate::stream::STREAM_OPTIONS;
use crate::{suggest, usage, wanted_settings};
use bytepath_record::{Fault, OptionSpec, Role, WantedSetting, joined};
use std::collections::HashMap;

/// Most combinations of levels that a file may request. A study with that many cells would take a
/// day with windows of a few seconds.
pub const MOST_CELLS: usize = 20_000;

/// One axis.
#[derive(Clone, Debug)]
pub(super) struct Factor<'a> {
    pub name: &'a str,
    pub kind: Kind,
    pub levels: Vec<Level>,
}

/// The kind of an axis.
#[derive(Clone, Copy, Debug)]
pub(super) enum Kind {
    Path,
    Half(Role),
    Workload,
    Link,
    Cores,
    Kernel,
    Settings,
    StreamOption(&'static OptionSpec),
    LinkOption(&'static OptionSpec),
}

/// One value on an axis.
#[derive(Clone, Debug)]
pub(super) struct Level {
    /// As typed.
    pub text: String,
    /// Identical for two spellings of one level (1M, 1024K).
    pub canonical: String,
}

/// A selection of cells by levels of some factors.
#[derive(Clone, Debug)]
pub(super) struct Choice {
    /// Indices of factors, each with the indices of the selected levels.
    factors: Vec<(usize, Vec<usize>)>,
}

impl Choice {
    /// Returns whether a cell with these levels (an index for each factor) is selected.
    pub(super) fn holds(&self, picks: &[usize]) -> bool {
        self.factors.iter().all(|(factor, levels)| levels.contains(&picks[*factor]))
    }

    /// Returns whether it selects placements that the command line has replaced, and so no cell.
    pub(super) fn is_of_none(&self) -> bool {
        self.factors.iter().any(|(_, levels)| levels.is_empty())
    }

    /// Returns the selection without the condition on a replaced placement.
    pub(super) fn without_replaced(mut self) -> Choice {
        self.factors.retain(|(_, levels)| !levels.is_empty());
        self
    }

    /// Names of the varying factors that this selection does not restrict.
    pub(super) fn leaves_open<'f>(&self, factors: &[Factor<'f>]) -> Vec<&'f str> {
        let chosen = |index: usize| self.factors.iter().any(|(factor, _)| *factor == index);
        let open = factors.iter().enumerate();
        let open = open.filter(|(index, factor)| factor.levels.len() > 1 && !chosen(*index));
        open.map(|(_, factor)| factor.name).collect()
    }
}

/// Parses `[factors]`.
pub(super) fn factors<'a>(
    entry: &Entry<'a>,
    catalogues: &Catalogues,
) -> Result<Vec<Factor<'a>>, Fault> {
    let section = entry.section("[factors]", "{ path = [\"socket\", \"uring\"] }")?;
    let counts = section.entries.iter().map(|factor| factor.list().len());
    let product = counts.fold(1usize, |product, count| product.saturating_mul(count.max(1)));
    if product > MOST_CELLS {
        let text = format!("the factors have more than {MOST_CELLS} combinations");
        return Err(entry.wrong_key(text).remedy("name fewer levels, or split the experiment"));
    }
    let mut factors: Vec<Factor> = Vec::new();
    for entry in &section.entries {
        let kind = kind(entry)?;
        let (mut levels, mut known) = (Vec::new(), HashMap::new());
        for value in entry.list() {
            let level = level(kind, &value, catalogues)?;
            if let Some(same) = known.insert(level.canonical.clone(), level.text.clone()) {
                let text = format!("'{}' is the same level as '{same}'", level.text);
                return Err(value.wrong(text).remedy("name each level once"));
            }
            levels.push(level);
        }
        if levels.is_empty() {
            let fault = entry.wrong(format!("factor '{}' has no levels", entry.key));
            return Err(fault.remedy("name at least one, or leave the factor out"));
        }
        factors.push(Factor { name: entry.key, kind, levels });
    }
    complete(entry, &section)?;
    if let Some(cores) = &catalogues.cores {
        replace_cores(&mut factors, cores, catalogues)?;
    }
    Ok(factors)
}

/// Replaces all placements by that of the command line.
fn replace_cores(
    factors: &mut Vec<Factor>,
    cores: &str,
    catalogues: &Catalogues,
) -> Result<(), Fault> {
    let canonical = canonical(Kind::Cores, cores, catalogues)?;
    let levels = vec![Level { text: cores.to_owned(), canonical }];
    match factors.iter_mut().find(|factor| matches!(factor.kind, Kind::Cores)) {
        Some(factor) => factor.levels = levels,
        None => factors.push(Factor { name: "cores", kind: Kind::Cores, levels }),
    }
    Ok(())
}

/// Returns the entry that names kernels, if there is one.
pub(super) fn kernels<'a>(entry: &Entry<'a>) -> Result<Option<Entry<'a>>, Fault> {
    let section = entry.section("[factors]", "{ path = [\"socket\", \"uring\"] }")?;
    Ok(section.get("kernel"))
}

/// Errors unless a path is named as a whole or as two halves.
fn complete(entry: &Entry, section: &Section) -> Result<(), Fault> {
    let example = "path = [\"socket\", \"uring\"], or tx and rx";
    match (section.get("path"), section.get("tx"), section.get("rx")) {
        (Some(_), None, None) | (None, Some(_), Some(_)) => Ok(()),
        (Some(_), Some(half), _) | (Some(_), _, Some(half)) => Err(half
            .wrong_key(format!("'{}' contradicts 'path', which names both halves", half.key))
            .remedy("write path, or tx and rx")),
        (None, Some(half), None) => {
            Err(half.wrong_key("'tx' requires 'rx'").remedy("write rx = \"socket\""))
        }
        (None, None, Some(half)) => {
            Err(half.wrong_key("'rx' requires 'tx'").remedy("write tx = \"socket\""))
        }
        (None, None, None) => {
            let fault = entry.wrong_key("[factors] names no path");
            Err(fault.remedy(format!("write {example}")))
        }
    }
}

/// Parses levels of some of the factors: an `[[exclude]]`, or a baseline.
pub(super) fn choice(
    section: &Section,
    factors: &[Factor],
    catalogues: &Catalogues,
) -> Result<Choice, Fault> {
    let names: Vec<&str> = factors.iter().map(|factor| factor.name).collect();
    let mut choice = Choice { factors: Vec::new() };
    for entry in &section.entries {
        let Some(index) = names.iter().position(|name| *name == entry.key) else {
            kind(entry)?;
            let fault = entry.wrong_key(format!("'{}' is not among [factors]", entry.key));
            return Err(fault.remedy(format!("they are {}", names.join(", "))));
        };
        let values = entry.list();
        if values.is_empty() {
            return Err(entry.wrong(format!("no level of '{}' is given", entry.key)));
        }
        let level = |value| level_index(&factors[index], value, catalogues).transpose();
        let levels = values.iter().filter_map(level).collect::<Result<Vec<_>, _>>()?;
        choice.factors.push((index, levels));
    }
    Ok(choice)
}

/// Returns the index of a value among the levels of its factor; `None` for a placement that the
/// command line has replaced.
fn level_index(
    factor: &Factor,
    value: &Entry,
    catalogues: &Catalogues,
) -> Result<Option<usize>, Fault> {
    let requested = level(factor.kind, value, catalogues)?;
    let found = factor.levels.iter().position(|level| level.canonical == requested.canonical);
    let is_replaced = matches!(factor.kind, Kind::Cores) && catalogues.cores.is_some();
    if found.is_some() || is_replaced {
        return Ok(found);
    }
    let known = factor.levels.iter().map(|level| level.text.as_str());
    let text = format!("'{}' is not a level of '{}' in [factors]", requested.text, factor.name);
    Err(suggest(value.wrong(text), &requested.text, known))
}

fn kind(entry: &Entry) -> Result<Kind, Fault> {
    let option = |specs: &'static [OptionSpec]| specs.iter().find(|spec| spec.name == entry.key);
    let kind = match entry.key {
        "path" => Some(Kind::Path),
        "tx" => Some(Kind::Half(Role::Sender)),
        "rx" => Some(Kind::Half(Role::Receiver)),
        "workload" => Some(Kind::Workload),
        "link" => Some(Kind::Link),
        "cores" => Some(Kind::Cores),
        "kernel" => Some(Kind::Kernel),
        "settings" => Some(Kind::Settings),
        _ => option(STREAM_OPTIONS)
            .map(Kind::StreamOption)
            .or_else(|| option(LINK_OPTIONS).map(Kind::LinkOption)),
    };
    kind.ok_or_else(|| {
        let fault = entry.wrong_key(format!("there is no factor '{}'", short(entry.key)));
        suggest(fault, entry.key, factor_names())
    })
}

fn level(kind: Kind, value: &Entry, catalogues: &Catalogues) -> Result<Level, Fault> {
    let text = match kind {
        Kind::Cores if value.is_section() => cores_table(value)?,
        _ => value.level()?.to_owned(),
    };
    let canonical = canonical(kind, &text, catalogues).map_err(|fault| value.fault(fault))?;
    Ok(Level { text, canonical })
}

/// Converts a placement from a table with its parts by name to the one-line syntax.
fn cores_table(value: &Entry) -> Result<String, Fault> {
    let example = "{ sender = 0, receiver = 1, softirq = 1 }";
    let section = value.section("a placement", example)?;
    section.only(&PARTS.map(|(part, _)| part))?;
    let part = |entry: &Entry| Ok(format!("{}={}", entry.key, entry.level()?));
    let parts = section.entries.iter().map(part).collect::<Result<Vec<_>, Fault>>()?;
    if parts.is_empty() {
        let fault = value.wrong("this placement names no part of the work");
        return Err(fault.remedy(format!("write {example}, or \"unpinned\"")));
    }
    Ok(parts.join(","))
}

fn canonical(kind: Kind, text: &str, catalogues: &Catalogues) -> Result<String, Fault> {
    match kind {
        Kind::Path => halves(text, &catalogues.paths).map(|(name, ..)| name),
        Kind::Half(role) => one_half(role, text, &catalogues.paths),
        Kind::Workload => activity(text, &catalogues.paths).map(|(workload, as_typed)| {
            // The default workload is not named in ids.
            if as_typed.is_empty() { workload.name } else { as_typed }
        }),
        Kind::Link => parse_link(text).map(|(settings, difference)| {
            // The default preset is not named in ids.
            if difference.is_empty() { settings.preset } else { difference }
        }),
        Kind::Cores => {
            read_cores(text, catalogues.cpus.clone()).map(|cores| format!("{:?}", cores.placement))
        }
        // Two names of the same kernel are two levels: that is a way to measure a study's noise.
        Kind::Kernel => parse_kernel(text).map(|kernel| kernel.name),
        Kind::Settings => settings_of_level(text).map(|all| name_of_settings(&all)),
        Kind::StreamOption(spec) | Kind::LinkOption(spec) => {
            let parsed = spec.kind.parse(text);
            parsed.map(|value| spec.kind.print(&value)).map_err(|wrong| {
                usage(format!("factor '{}': {wrong}", spec.name))
                    .remedy(format!("it takes {}: {}", spec.kind, spec.help))
            })
        }
    }
}

/// Parses the settings of a cell: lines as for `--set`, separated by semicolons, or `none`.
pub(super) fn settings_of_level(text: &str) -> Result<Vec<WantedSetting>, Fault> {
    let lines = text.split(';').map(str::trim).filter(|line| *line != "none");
    wanted_settings(None, lines)
}

/// Returns the name of a cell's settings in ids: `rings/eth1/rx=4096`, or `none`.
pub(super) fn name_of_settings(settings: &[WantedSetting]) -> String {
    let one = |setting: &WantedSetting| {
        let host = setting.host.map_or(String::new(), |role| format!("{role}:"));
        format!("{host}{}", setting.setting.to_string().replace(' ', "/"))
    };
    if settings.is_empty() { "none".to_owned() } else { joined(settings.iter().map(one), "+") }
}
