//! One study from several folders: the same experiment, run on several pairs of hosts.

use super::layout::{LARGEST_PROFILE, profile_file, storage};
use super::load::{load, open_profile};
use super::writer::{StudyWriter, refuse_used};
use bytepath_record::{CellId, Fault, Load, Study, StudyHeader, Trial, TrialStatus, joined};
use bytepath_stats::{Difference, Weight, differences};
use bytepath_sys::files;
use std::collections::{BTreeSet, HashMap};
use std::fs::{self, File};
use std::path::{Path, PathBuf};

/// Merges the studies in these folders, each with the name of its pair of hosts, into a new
/// folder, whole or not at all. Blocks and trials are numbered on from one study to the next;
/// what differs between the hosts is in the remarks.
///
/// Refuses studies of different experiments, of different versions of bytepath, and, unless
/// `different_hosts`, of different CPUs or kernels.
pub fn merge(
    folders: &[(String, PathBuf)],
    out: &Path,
    different_hosts: bool,
) -> Result<(), Fault> {
    refuse_used(out)?;
    let parts = folders.iter().map(|(name, folder)| Part::read(name, folder));
    let parts = parts.collect::<Result<Vec<Part>, Fault>>()?;
    let header = header(&parts)?;
    let remarks = remarks(&parts, different_hosts)?;
    let nameless = || Fault::usage(format!("{} has no name", out.display()));
    let name = out.file_name().ok_or_else(nameless)?;
    let part = format!(".{}.{}.part", name.to_string_lossy(), std::process::id());
    let part = out.with_file_name(part);
    let written = write(&part, &header, &parts, &remarks).and_then(|()| put(&part, out));
    if written.is_err() {
        // The first error is the one that matters.
        let _ = fs::remove_dir_all(&part);
    }
    written
}

/// One of the studies.
struct Part {
    name: String,
    folder: PathBuf,
    study: Study,
}

impl Part {
    fn read(name: &str, folder: &Path) -> Result<Part, Fault> {
        let study = load(folder)?;
        let refuse = |what: &str, remedy: &str| {
            Err(Fault::usage(format!("{} {what}", folder.display())).remedy(remedy))
        };
        if study.trials.iter().any(|trial| trial.pair.is_some()) {
            return refuse("was merged already", "merge the studies that it was merged from");
        }
        if study.header.schedule.stopping.is_some() || study.header.schedule.until_sure {
            return refuse(
                "may stop early",
                "only studies whose number of blocks was fixed in advance can be merged",
            );
        }
        if study.trials.is_empty() {
            return refuse("has no trials", "leave it out, or `bytepath resume` it first");
        }
        Ok(Part { name: name.to_owned(), folder: folder.to_owned(), study })
    }

    /// Blocks that were started.
    fn blocks(&self) -> u32 {
        let ran = |t: &&Trial| !matches!(t.status, TrialStatus::Unavailable { .. });
        self.study.trials.iter().filter(ran).map(|t| t.block + 1).max().unwrap_or(0)
    }

    fn loads(&self) -> impl Iterator<Item = Load> {
        let pair = Some(self.name.clone());
        self.study.header.loads.iter().map(move |load| Load { pair: pair.clone(), ..load.clone() })
    }

    fn all(&self) -> impl Iterator<Item = &Trial> {
        self.study.trials.iter().chain(&self.study.profiles)
    }
}

/// Returns the header of the first study, with the blocks of all.
fn header(parts: &[Part]) -> Result<StudyHeader, Fault> {
    let first = parts.first().ok_or_else(|| Fault::usage("there is nothing to merge"))?;
    let names: BTreeSet<&str> = parts.iter().map(|part| part.name.as_str()).collect();
    if names.len() < parts.len() {
        return Err(Fault::usage("two studies have the same name")
            .remedy("rename a folder: the pairs of hosts are named after the folders"));
    }
    let mut header = first.study.header.clone();
    header.schedule.blocks = parts.iter().map(Part::blocks).sum();
    header.loads = parts.iter().flat_map(Part::loads).collect();
    let started = parts.iter().map(|part| part.study.header.started_ms);
    header.started_ms = started.min().unwrap_or(header.started_ms);
    Ok(header)
}

/// Returns the remarks of all studies, and the differences between them.
fn remarks(parts: &[Part], different_hosts: bool) -> Result<Vec<String>, Fault> {
    let names = joined(parts.iter().map(|part| &part.name), ", ");
    let mut remarks = vec![format!("merged from {names}")];
    let Some(first) = parts.first() else { return Ok(remarks) };
    for part in parts {
        let apart = differences(&first.study.header, &part.study.header);
        check(first, part, &apart, different_hosts)?;
        let lines = apart.iter().map(|d| {
            format!("{} has {} {}, {} has {}", part.name, d.what, d.second, first.name, d.first)
        });
        remarks.extend(lines);
        remarks.extend(part.study.remarks.iter().map(|text| format!("{}: {text}", part.name)));
    }
    Ok(remarks)
}

/// Errors if a part is of another experiment or another kind of host.
fn check(
    first: &Part,
    part: &Part,
    apart: &[Difference],
    different_hosts: bool,
) -> Result<(), Fault> {
    let (a, b) = (&first.study.header, &part.study.header);
    let kind = |header: &StudyHeader| header.testbed.split(':').next().map(str::to_owned);
    let checks = [
        ("records of a different version", a.schema == b.schema),
        ("different cells", a.cells == b.cells),
        ("a different baseline", a.baseline == b.baseline),
        ("a different margin, confidence or exponent", a.judgement == b.judgement),
        ("different profiles", a.profiling == b.profiling),
        ("a different testbed", kind(a) == kind(b)),
        ("a different reason to measure no speed", a.functional == b.functional),
    ];
    let other = checks.iter().find(|(_, same)| !same).map(|(what, _)| (*what).to_owned());
    let method = apart.iter().find(|d| d.weight == Weight::Method);
    let method = method.map(|d| format!("a different {} ({} and {})", d.what, d.first, d.second));
    if let Some(what) = other.or(method) {
        let text = format!("{} has {what} than {}", part.name, first.name);
        return Err(Fault::usage(text).remedy("merge studies of one experiment and one bytepath"));
    }
    // Every pair has its own testbed, with its own names and addresses.
    let decides = |d: &&Difference| match d.what.as_str() {
        "testbed" => false,
        "kernel" | "kernel build" => true,
        _ => d.weight == Weight::Machine,
    };
    let machine = apart.iter().filter(decides);
    let machine = machine.map(|d| format!("{} ({} and {})", d.what, d.first, d.second));
    let what = joined(machine, ", ");
    if different_hosts || what.is_empty() {
        return Ok(());
    }
    Err(Fault::usage(format!("the hosts of {} and {} differ: {what}", first.name, part.name))
        .remedy("merge them anyway with --different-hosts"))
}

fn write(
    folder: &Path,
    header: &StudyHeader,
    parts: &[Part],
    remarks: &[String],
) -> Result<(), Fault> {
    let mut writer = StudyWriter::create(folder, header)?;
    for remark in remarks {
        writer.remark(remark)?;
    }
    let (mut blocks, mut order) = (0, 0);
    let mut profiles: HashMap<CellId, u32> = HashMap::new();
    for part in parts {
        let mut trials: Vec<Trial> = part.all().cloned().collect();
        for trial in &mut trials {
            trial.pair = Some(part.name.clone());
            trial.order += order;
            let Some(profile) = &mut trial.profile else {
                trial.block += blocks;
                continue;
            };
            let number = profiles.entry(trial.cell.clone()).or_default();
            *number += 1;
            profile.number = *number;
            trial.block = *number - 1;
            if !profile.file.is_empty() {
                let file = open_profile(&part.folder, &profile.file)?;
                let packed = files::bounded(file, LARGEST_PROFILE)
                    .map_err(|e| storage("read", &part.folder.join(&profile.file), &e))?;
                profile.file = writer.profile(&profile_file(&trial.cell, *number), &packed)?;
            }
        }
        writer.append(&trials)?;
        blocks += part.blocks();
        order += part.all().map(|t| t.order + 1).max().unwrap_or(0);
    }
    Ok(())
}

/// Moves a complete folder to its place.
fn put(part: &Path, out: &Path) -> Result<(), Fault> {
    let parent = match out.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    let put = fs::rename(part, out).and_then(|()| File::open(parent)?.sync_all());
    put.map_err(|e| storage("write", out, &e))
}
