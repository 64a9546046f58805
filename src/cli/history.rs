//! `bytepath history`: one figure over all studies of a folder. The store is the
//! folder itself; an index next to the studies saves reading all of their trials
//! again, and can be deleted at any time.

use super::output::warn;
use super::printed::{Document, Printed, WithPage};
use bytepath_record::{Fault, FaultKind};
use bytepath_report as report;
use bytepath_spec::suggest;
use bytepath_stats::{self as stats, Question, StudyPoints};
use bytepath_study::load;
use bytepath_sys::files::Folder;
use clap::Args;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::UNIX_EPOCH;

#[derive(Debug, Args)]
pub(super) struct HistoryArguments {
    /// Folder that contains the study folders
    #[arg(value_name = "DIR")]
    folder: PathBuf,
    /// CELL.rate, CELL.cpu, or CELL.p50 to CELL.p99.99 [default: the baseline's rate]
    ///
    /// The default is of the newest study.
    #[arg(value_name = "FIGURE")]
    figure: Option<String>,
    /// Reread every study
    #[arg(long)]
    rebuild: bool,
    #[command(flatten)]
    printed: Printed<WithPage>,
}

/// Name of the index in the folder of the studies.
const INDEX: &str = "bytepath-index.json";

/// Version of the index; another one is rebuilt.
const INDEX_SCHEMA: u32 = 3;

/// Most bytes of an index that are read.
const MOST: u64 = 256 << 20;

/// Files of a study that its points follow from.
const SOURCES: [&str; 3] = ["experiment.toml", "hosts.json", "trials.jsonl"];

/// Shows one figure over time.
pub(super) fn history(arguments: &HistoryArguments) -> Result<ExitCode, Fault> {
    let (index, unread) = gather(&arguments.folder, arguments.rebuild)?;
    for (study, fault) in &unread {
        // A parser's message draws the place over several lines.
        let cause = fault.message.lines().next().unwrap_or_default();
        warn(format!("left out: {study}: {cause}"));
    }
    let studies: Vec<(String, StudyPoints)> =
        index.studies.into_iter().map(|(name, known)| (name, known.points)).collect();
    let (cell, question) = figure(arguments.figure.as_deref(), &studies, &arguments.folder)?;
    let history = stats::history(&studies, &cell, question);
    let document = Document::new("bytepath-history", &history);
    arguments.printed.print_any(
        &document,
        |style, out| report::history(&history, style, out),
        |out| report::history_page(&history, out),
    )?;
    Ok(ExitCode::SUCCESS)
}

/// The request, checked against what exists.
fn figure(
    asked: Option<&str>,
    studies: &[(String, StudyPoints)],
    folder: &Path,
) -> Result<(String, Question), Fault> {
    let Some((_, newest)) = studies.iter().max_by_key(|(_, s)| s.started_ms) else {
        let what = format!("there is no study in {}", folder.display());
        return Err(Fault::new(FaultKind::Usage, what)
            .remedy("name the folder that contains the study folders"));
    };
    let Some(asked) = asked else {
        return Ok((newest.baseline.clone(), Question::Rate));
    };
    let known = |cell: &str, question| {
        let mut all = studies.iter().flat_map(|(_, s)| &s.points);
        all.any(|p| p.cell == cell && p.question == question)
    };
    if let Some((cell, question)) = Question::split(asked).filter(|(c, q)| known(c, *q)) {
        return Ok((cell.to_owned(), question));
    }
    let mut names: Vec<String> = studies
        .iter()
        .flat_map(|(_, s)| &s.points)
        .map(|p| format!("{}.{}", p.cell, p.question.name()))
        .collect();
    names.sort();
    names.dedup();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let what = format!("no study in {} has the figure '{asked}'", folder.display());
    let fault = Fault::new(FaultKind::Usage, what);
    Err(suggest(fault, asked, &names))
}

/// The index: what every study of a folder says.
#[derive(Debug, Serialize, Deserialize)]
struct Index {
    schema: u32,
    /// CRC-32 of the studies as JSON.
    sum: u32,
    studies: BTreeMap<String, Known>,
}

/// A study as it was when it was read.
#[derive(Debug, Serialize, Deserialize)]
struct Known {
    /// Length and time of change of its files: with others it is read again.
    stamp: Vec<(u64, u64)>,
    points: StudyPoints,
}

/// Reads the studies of a folder, those that the index knows from there. Also
/// returns the studies that could not be read.
fn gather(folder: &Path, rebuild: bool) -> Result<(Index, Vec<(String, Fault)>), Fault> {
    let old = if rebuild { None } else { read_index(folder) };
    let fresh = old.is_none();
    let mut old = old.map(|index| index.studies).unwrap_or_default();
    let mut index = Index { schema: INDEX_SCHEMA, sum: 0, studies: BTreeMap::new() };
    let mut unread = Vec::new();
    let mut changed = fresh;
    for (name, study) in studies_of(folder)? {
        let stamp = stamp(&study);
        if let Some(known) = old.remove(&name).filter(|known| known.stamp == stamp) {
            index.studies.insert(name, known);
            continue;
        }
        changed = true;
        match load(&study) {
            Ok(loaded) => {
                let points = stats::points(&loaded);
                index.studies.insert(name, Known { stamp, points });
            }
            Err(fault) => unread.push((name, fault)),
        }
    }
    // What is left in the old index is gone from the folder.
    if (changed || !old.is_empty()) && !index.studies.is_empty() {
        write_index(folder, &mut index);
    }
    Ok((index, unread))
}

/// Folders that look like a study, by name.
fn studies_of(folder: &Path) -> Result<Vec<(String, PathBuf)>, Fault> {
    let fault = |e: &std::io::Error| {
        Fault::new(FaultKind::Storage, format!("cannot read {}: {e}", folder.display()))
    };
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).map_err(|e| fault(&e))? {
        let path = entry.map_err(|e| fault(&e))?.path();
        if path.join(SOURCES[0]).is_file() {
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            found.push((name, path));
        }
    }
    found.sort();
    Ok(found)
}

fn stamp(study: &Path) -> Vec<(u64, u64)> {
    let of = |name: &&str| {
        let meta = fs::metadata(study.join(name)).ok()?;
        let time = meta.modified().ok()?.duration_since(UNIX_EPOCH).ok()?;
        Some((meta.len(), time.as_nanos() as u64))
    };
    SOURCES.iter().map(|name| of(name).unwrap_or_default()).collect()
}

/// The index, unless it is missing, damaged, or of another version: then it is
/// rebuilt, and nothing is lost.
fn read_index(folder: &Path) -> Option<Index> {
    let bytes = Folder::open(folder).and_then(|folder| folder.read(INDEX, MOST)).ok()?;
    let index: Index = serde_json::from_slice(&bytes).ok()?;
    (index.schema == INDEX_SCHEMA && index.sum == sum(&index)?).then_some(index)
}

/// Puts the index in its place, whole or not at all. A folder that may not be
/// written to is read again each time.
fn write_index(folder: &Path, index: &mut Index) {
    let Some(sum) = sum(index) else { return };
    index.sum = sum;
    let Ok(text) = serde_json::to_vec(index) else { return };
    let _ = Folder::open(folder).and_then(|folder| folder.replace_shared(INDEX, &text));
}

fn sum(index: &Index) -> Option<u32> {
    let mut crc = flate2::Crc::new();
    crc.update(&serde_json::to_vec(&index.studies).ok()?);
    Some(crc.sum())
}
