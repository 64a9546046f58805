//! Reads a study folder back and validates it. Damage, such as a crash leaves, is an error or is
//! named in the study's remarks.

use super::layout::{
    EXPERIMENT, HOSTS, Hosts, LOADS, LOGS, LONGEST_LINE, Loads, MOST, MOST_TRIALS, PROFILES,
    REMARKS, TRIALS, power_file, storage,
};
use super::power_log;
use bytepath_record::{
    CellId, Fault, Profiling, SCHEMA_VERSION, Study, StudyHeader, Trial, TrialStatus, one_line,
};
use bytepath_spec as spec;
use bytepath_stats::{StudyPoints, points};
use bytepath_sys::files::Folder;
use serde::Deserialize;
use std::collections::{HashMap, HashSet};
use std::fmt::Display;
use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, Read};
use std::path::Path;

/// Longest window, seconds: longer ones cannot be requested.
const LONGEST_WINDOW: f64 = 86_400.0;

/// The most lines named per reason for leaving them out; further ones are only counted.
const NAMED: usize = 8;

/// Reads a study folder back. A torn last line, which a crash leaves, a trial that is there
/// twice, of an unknown cell or with an impossible window is left out with a remark; anything
/// else that cannot be read is an error that names file and line.
pub fn load(folder: &Path) -> Result<Study, Fault> {
    load_from(&open(folder)?, folder)
}

const FOREIGN: &str = "is this the folder of a bytepath study?";

/// Opens the folder of a study.
pub(super) fn open(folder: &Path) -> Result<Folder, Fault> {
    Folder::open(folder).map_err(|e| storage("read", folder, &e).remedy(FOREIGN))
}

/// Reads the study in an open folder, whose name is for errors.
pub(super) fn load_from(opened: &Folder, folder: &Path) -> Result<Study, Fault> {
    let refused = |name: &str, e: &io::Error| match e.kind() {
        io::ErrorKind::NotFound => storage("read", &folder.join(name), e).remedy(FOREIGN),
        _ => storage("read", &folder.join(name), e),
    };
    let malformed = |name: &str, e: &dyn Display| {
        let path = folder.join(name);
        Fault::storage(format!("{} is damaged: {e}", path.display()))
    };
    let read = |name: &str| {
        let bytes = opened.read(name, MOST).map_err(|e| refused(name, &e))?;
        String::from_utf8(bytes).map_err(|e| malformed(name, &e))
    };
    let experiment = read(EXPERIMENT)?;
    let hosts = read(HOSTS)?;
    check_version(folder, EXPERIMENT, toml::from_str::<Version>(&experiment).ok())?;
    check_version(folder, HOSTS, serde_json::from_str::<Version>(&hosts).ok())?;
    let experiment: StudyHeader =
        toml::from_str(&experiment).map_err(|e| malformed(EXPERIMENT, &e))?;
    let hosts: Hosts = serde_json::from_str(&hosts).map_err(|e| malformed(HOSTS, &e))?;
    let read_if_there = |name: &str| match folder.join(name).exists() {
        true => {
            let text = read(name)?;
            check_version(folder, name, serde_json::from_str::<Version>(&text).ok())?;
            Ok(Some(text))
        }
        false => Ok::<_, Fault>(None),
    };
    let loads = read_if_there(LOADS)?.map(|text| serde_json::from_str::<Loads>(&text));
    let loads = loads.transpose().map_err(|e| malformed(LOADS, &e))?;
    let trials = opened.reader(TRIALS).map_err(|e| refused(TRIALS, &e))?;
    let Lines { trials, torn, .. } =
        lines(trials).map_err(|fault| fault.context(folder.join(TRIALS).display()))?;
    let (mut remarks, cut) = remarks(opened).map_err(|e| refused(REMARKS, &e))?;
    let lost = |what| format!("the last {what} was cut off while it was written; it is left out");
    remarks.extend(cut.then(|| lost("remark")));
    remarks.extend(torn.then(|| lost("trial")));
    let header = StudyHeader {
        facts: hosts.facts,
        kernels: hosts.kernels,
        ceiling: hosts.ceiling,
        settings: hosts.settings,
        fingerprint: hosts.fingerprint,
        loads: loads.map(|file| file.loads).unwrap_or_default(),
        ..experiment
    };
    let trials = believable(trials, &header, &mut remarks);
    let merged = trials.iter().any(|trial| trial.pair.is_some());
    check_size(&header, merged).map_err(|why| malformed(EXPERIMENT, &why))?;
    let (profiles, trials) = trials.into_iter().partition(|trial| trial.profile.is_some());
    let mut study = Study { header, trials, profiles, remarks };
    for role in LOGS {
        let name = power_file(role);
        if let Some(text) = read_if_there(&name)? {
            let log = serde_json::from_str(&text).map_err(|e| malformed(&name, &e))?;
            power_log::enter(&mut study, &log);
        }
    }
    Ok(study)
}

/// Opens a profile of a study. Its name was read from a file, and must not lead out of the
/// folder.
pub(super) fn open_profile(folder: &Path, name: &str) -> Result<File, Fault> {
    let Some((PROFILES, file)) = name.split_once('/') else {
        return Err(Fault::storage(format!("'{name}' is not a file of the study")));
    };
    let profiles = Folder::open(folder).and_then(|folder| folder.inner(PROFILES));
    let opened = profiles.and_then(|profiles| profiles.reader(file));
    opened.map_err(|e| storage("read", &folder.join(name), &e))
}

/// The content of `trials.jsonl`.
pub(super) struct Lines {
    /// The trials, that of line 1 first.
    pub trials: Vec<Trial>,
    /// Whether the last line is incomplete.
    pub torn: bool,
    /// Bytes of the lines before it.
    pub whole: u64,
}

/// Reads the trials of a file. Errors name the line.
pub(super) fn lines(file: File) -> Result<Lines, Fault> {
    let mut file = BufReader::new(file.take(MOST_TRIALS + 1));
    let mut read = Lines { trials: Vec::new(), torn: false, whole: 0 };
    let mut line = Vec::new();
    loop {
        line.clear();
        let number = read.trials.len() + 1;
        let length = file.by_ref().take(LONGEST_LINE + 1).read_until(b'\n', &mut line);
        let unreadable = |e| Fault::storage(format!("line {number} cannot be read: {e}"));
        let length = length.map_err(unreadable)? as u64;
        if length > LONGEST_LINE {
            let text = format!("line {number} is longer than {} MiB", LONGEST_LINE >> 20);
            return Err(Fault::storage(text));
        }
        if read.whole + length > MOST_TRIALS {
            return Err(Fault::storage(format!("it is larger than {} MiB", MOST_TRIALS >> 20)));
        }
        if line.last() != Some(&b'\n') {
            read.torn = length > 0;
            return Ok(read);
        }
        if let Ok(Version { schema }) = serde_json::from_slice(&line)
            && schema > SCHEMA_VERSION
        {
            return Err(too_new(format_args!("line {number}"), schema));
        }
        let trial = serde_json::from_slice(&line);
        let damaged = |e| Fault::storage(format!("line {number} is damaged: {e}"));
        read.trials.push(trial.map_err(damaged)?);
        read.whole += length;
    }
}

/// Returns the complete remarks, and whether an incomplete one follows.
fn remarks(opened: &Folder) -> io::Result<(Vec<String>, bool)> {
    match opened.read(REMARKS, MOST) {
        Ok(bytes) => Ok(whole_lines(&bytes)),
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(Default::default()),
        Err(e) => Err(e),
    }
}

/// Returns the complete lines, and whether an incomplete one follows.
fn whole_lines(bytes: &[u8]) -> (Vec<String>, bool) {
    let text = String::from_utf8_lossy(bytes);
    let whole = text.split_inclusive('\n').filter_map(|line| line.strip_suffix('\n'));
    (whole.map(str::to_owned).collect(), bytes.last().is_some_and(|last| *last != b'\n'))
}

/// Errors if a study is larger than can be requested, since `resume` would list the order of all
/// its trials. A merged study has the blocks of all its parts.
fn check_size(header: &StudyHeader, merged: bool) -> Result<(), String> {
    let StudyHeader { cells, schedule, profiling, .. } = header;
    let of_profiles = |count: fn(&Profiling) -> u32| u64::from(profiling.as_ref().map_or(0, count));
    let most_blocks = if merged { u32::MAX } else { spec::MOST_BLOCKS };
    let sizes = [
        ("cells", cells.len() as u64, spec::MOST_CELLS as u64),
        ("blocks", schedule.blocks.into(), most_blocks.into()),
        ("profile trials", of_profiles(|profiling| profiling.trials), spec::MOST_PROFILES),
        ("profile retakes", of_profiles(|profiling| profiling.retakes), spec::MOST_PROFILES),
    ];
    let too_large = sizes.into_iter().find(|(_, count, most)| count > most);
    too_large
        .map_or(Ok(()), |(what, count, most)| Err(format!("{count} {what}, of at most {most}")))
}

/// Leaves out trials that no run can have written, with a remark for each.
fn believable(trials: Vec<Trial>, header: &StudyHeader, remarks: &mut Vec<String>) -> Vec<Trial> {
    let cells: HashSet<&CellId> = header.cells.iter().map(|cell| &cell.id).collect();
    let mut first_lines = HashMap::new();
    let mut left_out = Vec::new();
    let mut doubt = |number: usize, trial: &Trial| -> Option<String> {
        let (cell, window) = (&trial.cell, trial.window);
        if !cells.contains(cell) {
            return Some(format!("the study has no cell '{cell}'"));
        }
        if !(0.0..=LONGEST_WINDOW).contains(&window) {
            return Some(format!("{cell} has an impossible window of {window:e} s"));
        }
        let unable = matches!(trial.status, TrialStatus::Unavailable { .. });
        let profile = trial.profile.as_ref().map(|profile| profile.number);
        let which = (cell.clone(), trial.block, trial.pair.clone(), unable, profile);
        let first = *first_lines.entry(which).or_insert(number);
        (first != number).then(|| format!("it repeats line {first}, of {cell}"))
    };
    let mut kept = Vec::new();
    for (number, trial) in (1..).zip(trials) {
        match doubt(number, &trial) {
            Some(why) => left_out.push(format!("line {number} of {TRIALS} is left out: {why}")),
            None => kept.push(trial),
        }
    }
    let more = left_out.len().saturating_sub(NAMED);
    left_out.truncate(NAMED);
    remarks.extend(left_out);
    remarks.extend((more > 0).then(|| format!("{more} more lines of {TRIALS} are left out")));
    kept
}

#[derive(Deserialize)]
struct Version {
    schema: u32,
}

fn check_version(folder: &Path, name: &str, version: Option<Version>) -> Result<(), Fault> {
    match version {
        Some(Version { schema }) if schema > SCHEMA_VERSION => {
            Err(too_new(folder.join(name).display(), schema))
        }
        // A file without a version is reported as damaged by its own parser.
        _ => Ok(()),
    }
}

fn too_new(what: impl Display, schema: u32) -> Fault {
    let text = format!("{what} has schema {schema}; this bytepath reads up to {SCHEMA_VERSION}");
    Fault::unsupported(text).remedy("use a newer bytepath")
}

/// Studies by the names of their folders.
#[derive(Debug, Default)]
pub struct Studies {
    pub points: Vec<(String, StudyPoints)>,
    /// Folders that cannot be read, and why.
    pub unreadable: Vec<(String, Fault)>,
}

/// Reads the studies of a folder, in the order of their names.
pub fn read_studies(folder: &Path) -> Result<Studies, Fault> {
    let unreadable = |e: std::io::Error| storage("read", folder, &e);
    let entries = fs::read_dir(folder).map_err(unreadable)?;
    let paths = entries.map(|entry| entry.map(|entry| entry.path()));
    let mut paths = paths.collect::<Result<Vec<_>, _>>().map_err(unreadable)?;
    paths.retain(|path| path.join(EXPERIMENT).is_file());
    paths.sort();
    let mut studies = Studies::default();
    for path in paths {
        let name = one_line(&path.file_name().unwrap_or_default().to_string_lossy());
        match load(&path) {
            Ok(study) => studies.points.push((name, points(&study))),
            Err(fault) => studies.unreadable.push((name, fault)),
        }
    }
    Ok(studies)
}
