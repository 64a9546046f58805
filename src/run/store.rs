//! The study folder: `experiment.toml`, `hosts.json`, and two files that only
//! ever grow, each line fsynced: `trials.jsonl` and `remarks.txt`. Readable after
//! a crash at any byte.

use super::power;
use crate::record::{
    CopyCeiling, Facts, Fault, FaultKind, KernelHosts, PowerLog, RestorationRow, Role,
    SCHEMA_VERSION, SettingRecord, Study, StudyHeader, Trial,
};
use rustix::fs::{FlockOperation, flock};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

const EXPERIMENT: &str = "experiment.toml";
const HOSTS: &str = "hosts.json";
const AFTER: &str = "hosts-after.json";
const TRIALS: &str = "trials.jsonl";
const REMARKS: &str = "remarks.txt";
const PROFILES: &str = "profiles";

/// Appends trials to a study folder. While it lives, no other process can.
#[derive(Debug)]
pub struct StudyWriter {
    folder: PathBuf,
    trials: File,
}

/// `hosts.json`: what the hosts are.
#[derive(Serialize, Deserialize, JsonSchema)]
pub struct Hosts {
    /// Version of this record.
    pub schema: u32,
    /// Facts of the sender's and of the receiver's host.
    pub facts: Vec<Facts>,
    /// The same for every kernel that cells name.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub kernels: Vec<KernelHosts>,
    /// Memory-copy bandwidth of one core, measured at the start.
    pub ceiling: Option<CopyCeiling>,
    /// Settings of the host that were made for the study, from what to what.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub settings: Vec<SettingRecord>,
    /// What the controller's host was set to when the first trial began.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub fingerprint: BTreeMap<String, String>,
}

/// `hosts-after.json`: what the hosts were when the run ended, however it ended.
#[derive(Serialize, Deserialize, JsonSchema)]
pub struct HostsAfter {
    /// Version of this record.
    pub schema: u32,
    /// What the controller's host was set to after the last trial, before the
    /// study's own settings were put back.
    pub fingerprint: BTreeMap<String, String>,
    /// What became of the study's own settings, the last one first.
    pub settings: Vec<RestorationRow>,
}

impl StudyWriter {
    /// Makes the folder, which must not exist or be empty, and writes down
    /// what is asked and where.
    pub fn create(folder: &Path, header: &StudyHeader) -> Result<Self, Fault> {
        let fault = |what: &Path, e: &io::Error| storage("write", what, e);
        fs::create_dir_all(folder).map_err(|e| fault(folder, &e))?;
        refuse_used(folder)?;
        // What the hosts are stands in a file of its own.
        let asked = StudyHeader {
            facts: Vec::new(),
            kernels: Vec::new(),
            ceiling: None,
            settings: Vec::new(),
            fingerprint: BTreeMap::new(),
            ..header.clone()
        };
        let experiment = toml::to_string(&asked);
        let experiment = experiment.map_err(|e| encoding(EXPERIMENT, &e))?;
        let hosts = serde_json::to_string_pretty(&Hosts {
            schema: header.schema,
            facts: header.facts.clone(),
            kernels: header.kernels.clone(),
            ceiling: header.ceiling,
            settings: header.settings.clone(),
            fingerprint: header.fingerprint.clone(),
        });
        let hosts = hosts.map_err(|e| encoding(HOSTS, &e))?;
        write_durably(&folder.join(EXPERIMENT), &experiment)?;
        write_durably(&folder.join(HOSTS), &hosts)?;
        let path = folder.join(TRIALS);
        let trials = OpenOptions::new().create_new(true).append(true).open(&path);
        let trials = trials.map_err(|e| fault(&path, &e))?;
        lock(folder, &trials)?;
        // The names of the files have to outlive a crash too.
        let durable = File::open(folder).and_then(|folder| folder.sync_all());
        durable.map_err(|e| fault(folder, &e))?;
        Ok(StudyWriter { folder: folder.to_owned(), trials })
    }

    /// Opens a folder to go on with its study. A torn last line is cut off.
    pub fn reopen(folder: &Path) -> Result<(Self, Study), Fault> {
        let path = folder.join(TRIALS);
        let fault = |e: &io::Error| storage("write", &path, e);
        // Whatever is wrong with the folder, `load` says it better.
        load(folder)?;
        let trials = OpenOptions::new().append(true).open(&path).map_err(|e| fault(&e))?;
        lock(folder, &trials)?;
        let text = fs::read(&path).map_err(|e| fault(&e))?;
        let whole = text.iter().rposition(|byte| *byte == b'\n').map_or(0, |newline| newline + 1);
        if whole < text.len() {
            let cut = trials.set_len(whole as u64).and_then(|()| trials.sync_data());
            cut.map_err(|e| fault(&e))?;
        }
        Ok((StudyWriter { folder: folder.to_owned(), trials }, load(folder)?))
    }

    /// Appends trials, all in one write; when this returns, they are on disk.
    pub fn append(&mut self, trials: &[Trial]) -> Result<(), Fault> {
        let mut lines = Vec::new();
        for trial in trials {
            serde_json::to_writer(&mut lines, trial).map_err(|e| encoding(TRIALS, &e))?;
            lines.push(b'\n');
        }
        let written = self.trials.write_all(&lines).and_then(|()| self.trials.sync_data());
        written.map_err(|e| storage("write", &self.folder.join(TRIALS), &e))
    }

    /// Writes a profile, whole or not at all, and gives its name below the folder
    /// of the study.
    pub fn profile(&mut self, name: &str, packed: &[u8]) -> Result<String, Fault> {
        let folder = self.folder.join(PROFILES);
        let (path, part) = (folder.join(name), folder.join(format!("{name}.part")));
        let write = || -> io::Result<()> {
            fs::create_dir_all(&folder)?;
            let mut file = File::create(&part)?;
            file.write_all(packed)?;
            file.sync_all()?;
            fs::rename(&part, &path)?;
            File::open(&folder)?.sync_all()
        };
        write().map_err(|e| storage("write", &path, &e))?;
        Ok(format!("{PROFILES}/{name}"))
    }

    /// Writes what an external meter's log says of the trials, whole or not at all. What was
    /// there of both hosts does not stand beside what is of one, nor the other way round.
    pub fn power_log(&mut self, log: &PowerLog) -> Result<(), Fault> {
        let name = power_file(log.role);
        let (path, part) = (self.folder.join(&name), self.folder.join(format!("{name}.part")));
        let text = serde_json::to_string_pretty(log).map_err(|e| encoding(&name, &e))?;
        write_durably(&part, &text)?;
        let renamed = fs::rename(&part, &path)
            .and_then(|()| File::open(&self.folder))
            .and_then(|folder| folder.sync_all());
        renamed.map_err(|e| storage("write", &path, &e))?;
        for other in LOGS.into_iter().filter(|other| other.is_none() != log.role.is_none()) {
            let path = self.folder.join(power_file(other));
            match fs::remove_file(&path) {
                Err(e) if e.kind() != io::ErrorKind::NotFound => {
                    return Err(storage("remove", &path, &e));
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// Writes down what the hosts were at the end of the run.
    pub fn after(&mut self, after: &HostsAfter) -> Result<(), Fault> {
        let text = serde_json::to_string_pretty(after);
        write_durably(&self.folder.join(AFTER), &text.map_err(|e| encoding(AFTER, &e))?)
    }

    /// Appends what the reader of the study should know, one line.
    pub fn remark(&mut self, remark: &str) -> Result<(), Fault> {
        let path = self.folder.join(REMARKS);
        let append = || -> io::Result<()> {
            let mut file = OpenOptions::new().create(true).append(true).open(&path)?;
            file.write_all(format!("{remark}\n").as_bytes())?;
            file.sync_data()
        };
        append().map_err(|e| storage("write", &path, &e))
    }
}

/// Refuses a folder that has something in it; one that is not there will do.
pub fn refuse_used(folder: &Path) -> Result<(), Fault> {
    let used = match fs::read_dir(folder) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => false,
        entries => entries.map_err(|e| storage("write", folder, &e))?.next().is_some(),
    };
    if !used {
        return Ok(());
    }
    let text = format!("the folder {} is not empty", folder.display());
    Err(Fault::new(FaultKind::Storage, text).remedy("choose another one with --out"))
}

/// Whether a study was begun in a folder: all of its files are there.
pub fn is_begun(folder: &Path) -> bool {
    folder.join(TRIALS).exists()
}

/// Keeps other processes from writing to the same study. A file system without
/// locks has to do without.
fn lock(folder: &Path, trials: &File) -> Result<(), Fault> {
    match flock(trials, FlockOperation::NonBlockingLockExclusive) {
        Err(rustix::io::Errno::WOULDBLOCK) => Err(Fault::new(
            FaultKind::Storage,
            format!("the study {} is being run by another process", folder.display()),
        )
        .remedy("wait until it has ended")),
        _ => Ok(()),
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
    let (trials, torn) = parse_trials(&read(TRIALS)?)
        .map_err(|fault| fault.context(folder.join(TRIALS).display()))?;
    let mut remarks = remarks(folder)?;
    remarks.extend(torn);
    let header = StudyHeader {
        facts: hosts.facts,
        kernels: hosts.kernels,
        ceiling: hosts.ceiling,
        settings: hosts.settings,
        fingerprint: hosts.fingerprint,
        ..experiment
    };
    let (profiles, trials) = trials.into_iter().partition(|trial| trial.profile.is_some());
    let mut study = Study { header, trials, profiles, remarks };
    for role in LOGS {
        let name = power_file(role);
        if folder.join(&name).exists() {
            let text = read(&name)?;
            check_version(folder, &name, serde_json::from_str::<Version>(&text).ok())?;
            let log = serde_json::from_str(&text).map_err(|e| malformed(&name, &e))?;
            power::enter(&mut study, &log);
        }
    }
    Ok(study)
}

/// The hosts that a log may be of: both, or a role's.
const LOGS: [Option<Role>; 3] = [None, Some(Role::Sender), Some(Role::Receiver)];

/// The file of what such a log says.
fn power_file(role: Option<Role>) -> String {
    match role {
        Some(role) => format!("power-{role}.json"),
        None => "power.json".to_owned(),
    }
}

/// Remarks of the run itself; a torn last line is none.
fn remarks(folder: &Path) -> Result<Vec<String>, Fault> {
    let path = folder.join(REMARKS);
    match fs::read(&path) {
        Ok(bytes) => {
            let text = String::from_utf8_lossy(&bytes);
            let whole = text.split_inclusive('\n').filter_map(|line| line.strip_suffix('\n'));
            Ok(whole.map(str::to_owned).collect())
        }
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        Err(e) => Err(storage("read", &path, &e)),
    }
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

/// A file or folder of a study, or of a fleet, that could not be had.
pub fn storage(verb: &str, path: &Path, error: &io::Error) -> Fault {
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
