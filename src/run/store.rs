//! The study folder: `experiment.toml`, `hosts.json`, and `trials.jsonl`, which
//! only ever grows, one fsynced line per trial. Readable after a crash at any byte.

use crate::record::{
    CopyCeiling, Facts, Fault, FaultKind, SCHEMA_VERSION, Study, StudyHeader, Trial,
};
use serde::{Deserialize, Serialize};
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

const EXPERIMENT: &str = "experiment.toml";
const HOSTS: &str = "hosts.json";
const TRIALS: &str = "trials.jsonl";

/// Appends trials to a study folder.
#[derive(Debug)]
pub struct StudyWriter {
    folder: PathBuf,
    trials: File,
}

/// `hosts.json`: what the hosts are.
#[derive(Serialize, Deserialize)]
struct Hosts {
    schema: u32,
    facts: Vec<Facts>,
    ceiling: Option<CopyCeiling>,
}

impl StudyWriter {
    /// Makes the folder, which must not exist or be empty, and writes down
    /// what is asked and where.
    pub fn create(folder: &Path, header: &StudyHeader) -> Result<Self, Fault> {
        let fault = |what: &Path, e: &io::Error| storage("write", what, e);
        fs::create_dir_all(folder).map_err(|e| fault(folder, &e))?;
        if fs::read_dir(folder).map_err(|e| fault(folder, &e))?.next().is_some() {
            return Err(Fault::new(
                FaultKind::Storage,
                format!("the study folder {} is not empty", folder.display()),
            )
            .remedy("choose another one with --out"));
        }
        // What the hosts are stands in a file of its own.
        let asked = StudyHeader { facts: Vec::new(), ceiling: None, ..header.clone() };
        let experiment = toml::to_string(&asked);
        let experiment = experiment.map_err(|e| encoding(EXPERIMENT, &e))?;
        let hosts = serde_json::to_string_pretty(&Hosts {
            schema: header.schema,
            facts: header.facts.clone(),
            ceiling: header.ceiling,
        });
        let hosts = hosts.map_err(|e| encoding(HOSTS, &e))?;
        write_durably(&folder.join(EXPERIMENT), &experiment)?;
        write_durably(&folder.join(HOSTS), &hosts)?;
        let path = folder.join(TRIALS);
        let trials = OpenOptions::new().create_new(true).append(true).open(&path);
        let trials = trials.map_err(|e| fault(&path, &e))?;
        Ok(StudyWriter { folder: folder.to_owned(), trials })
    }

    /// Appends one trial; when this returns, it is on disk.
    pub fn append(&mut self, trial: &Trial) -> Result<(), Fault> {
        let mut line = serde_json::to_vec(trial).map_err(|e| encoding(TRIALS, &e))?;
        line.push(b'\n');
        let written = self.trials.write_all(&line).and_then(|()| self.trials.sync_data());
        written.map_err(|e| storage("write", &self.folder.join(TRIALS), &e))
    }
}

fn write_durably(path: &Path, text: &str) -> Result<(), Fault> {
    let write = || -> io::Result<()> {
        let mut file = File::create(path)?;
        file.write_all(text.as_bytes())?;
        file.sync_all()
    };
    write().map_err(|e| storage("write", path, &e))
}

/// Reads a study folder back. A torn last line, which a crash leaves, is
/// passed over with a remark; anything else that cannot be read is an error
/// that names file and line.
pub fn load(folder: &Path) -> Result<Study, Fault> {
    let read = |name: &str| {
        let path = folder.join(name);
        fs::read_to_string(&path).map_err(|e| {
            storage("read", &path, &e).remedy("is this the folder of a bytepath study?")
        })
    };
    let malformed = |name: &str, e: &dyn std::fmt::Display| {
        let path = folder.join(name);
        Fault::new(FaultKind::Storage, format!("{} is damaged: {e}", path.display()))
    };
    let experiment = read(EXPERIMENT)?;
    let hosts = read(HOSTS)?;
    check_version(folder, EXPERIMENT, toml::from_str::<Version>(&experiment).ok())?;
    check_version(folder, HOSTS, serde_json::from_str::<Version>(&hosts).ok())?;
    let experiment: StudyHeader =
        toml::from_str(&experiment).map_err(|e| malformed(EXPERIMENT, &e))?;
    let hosts: Hosts = serde_json::from_str(&hosts).map_err(|e| malformed(HOSTS, &e))?;
    let (trials, remarks) = parse_trials(&read(TRIALS)?)
        .map_err(|fault| fault.context(folder.join(TRIALS).display()))?;
    let header = StudyHeader { facts: hosts.facts, ceiling: hosts.ceiling, ..experiment };
    Ok(Study { header, trials, remarks })
}

#[derive(Deserialize)]
struct Version {
    schema: u32,
}

fn check_version(folder: &Path, name: &str, version: Option<Version>) -> Result<(), Fault> {
    match version {
        Some(Version { schema }) if schema > SCHEMA_VERSION => Err(Fault::new(
            FaultKind::Unsupported,
            format!(
                "{} has schema {schema}; this bytepath reads up to {SCHEMA_VERSION}",
                folder.join(name).display()
            ),
        )
        .remedy("use a newer bytepath")),
        // A file without a version is reported as damaged by its own parser.
        _ => Ok(()),
    }
}

fn parse_trials(text: &str) -> Result<(Vec<Trial>, Vec<String>), Fault> {
    let mut trials = Vec::new();
    let mut remarks = Vec::new();
    for (index, line) in text.split_inclusive('\n').enumerate() {
        if !line.ends_with('\n') {
            remarks.push("the last trial was cut off while it was written; it is left out".into());
            break;
        }
        let number = index + 1;
        let version: Option<Version> = serde_json::from_str(line).ok();
        if let Some(Version { schema }) = version
            && schema > SCHEMA_VERSION
        {
            return Err(Fault::new(
                FaultKind::Unsupported,
                format!(
                    "line {number} has schema {schema}; this bytepath reads up to {SCHEMA_VERSION}"
                ),
            )
            .remedy("use a newer bytepath"));
        }
        trials.push(serde_json::from_str(line).map_err(|e| {
            Fault::new(FaultKind::Storage, format!("line {number} is damaged: {e}"))
        })?);
    }
    Ok((trials, remarks))
}

fn storage(verb: &str, path: &Path, error: &io::Error) -> Fault {
    let fault =
        Fault::new(FaultKind::Storage, format!("cannot {verb} {}: {error}", path.display()));
    match error.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded | io::ErrorKind::FileTooLarge => {
            fault.remedy("free some space; the trials before this one are kept")
        }
        io::ErrorKind::PermissionDenied => fault.remedy("choose another folder with --out"),
        _ => fault,
    }
}

fn encoding(name: &str, error: &dyn std::fmt::Display) -> Fault {
    Fault::new(FaultKind::System, format!("cannot encode {name}: {error}"))
}
