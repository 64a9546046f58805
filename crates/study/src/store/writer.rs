//! The study folder: `experiment.toml`, `hosts.json`, and two files that only
//! ever grow, each line fsynced: `trials.jsonl` and `remarks.txt`. Readable after
//! a crash at any byte.

use super::layout::{
    AFTER, EXPERIMENT, HOSTS, Hosts, HostsAfter, LOADS, LOGS, LONGEST_LINE, Loads, MOST,
    MOST_TRIALS, PROFILES, REMARKS, TRIALS, power_file, storage,
};
use super::load::{lines, load, load_from, open};
use super::power_log;
use bytepath_record::{
    Fault, Load, Power, PowerLog, Role, SCHEMA_VERSION, Study, StudyHeader, Trial,
};
use bytepath_sys::files::{self, Folder};
use rustix::fs::{Access, AtFlags, CWD, FlockOperation, accessat, flock};
use serde::Serialize;
use std::fs::{self, File};
use std::io::{self, Write};
use std::mem::take;
use std::path::{Path, PathBuf};

/// Appends trials to a study folder. While it exists, no other process can.
#[derive(Debug)]
pub struct StudyWriter {
    path: PathBuf,
    folder: Folder,
    trials: File,
}

impl StudyWriter {
    /// Creates the folder, which must not exist or be empty, and writes what is requested and
    /// where. If that fails, nothing remains.
    pub fn create(folder: &Path, header: &StudyHeader) -> Result<Self, Fault> {
        let absent = |folder: &&Path| !folder.as_os_str().is_empty() && !folder.exists();
        let made: Vec<&Path> = folder.ancestors().take_while(absent).collect();
        let opened = Folder::open_or_make(folder).map_err(|e| storage("make", folder, &e))?;
        refuse_used(folder)?;
        Self::begin(folder, opened, header).inspect_err(|_| {
            // The first error is the one that matters.
            for name in [EXPERIMENT, HOSTS, LOADS, TRIALS] {
                let _ = fs::remove_file(folder.join(name));
            }
            made.iter().for_each(|folder| drop(fs::remove_dir(folder)));
        })
    }

    fn begin(path: &Path, folder: Folder, header: &StudyHeader) -> Result<Self, Fault> {
        let fault = |name: &str, e: &io::Error| storage("write", &path.join(name), e);
        // The hosts' facts are in a separate file.
        let mut experiment = header.clone();
        let hosts = serde_json::to_string_pretty(&Hosts {
            schema: header.schema,
            facts: take(&mut experiment.facts),
            kernels: take(&mut experiment.kernels),
            ceiling: experiment.ceiling.take(),
            settings: take(&mut experiment.settings),
            fingerprint: take(&mut experiment.fingerprint),
        });
        let loads = take(&mut experiment.loads);
        let experiment = toml::to_string(&experiment).map_err(|e| encoding(EXPERIMENT, &e))?;
        let hosts = hosts.map_err(|e| encoding(HOSTS, &e))?;
        for (name, text) in [(EXPERIMENT, experiment), (HOSTS, hosts)] {
            folder.replace(name, text.as_bytes()).map_err(|e| fault(name, &e))?;
        }
        if !loads.is_empty() {
            put(&folder, path, LOADS, &Loads { schema: header.schema, loads })?;
        }
        let trials = folder.create(TRIALS).map_err(|e| fault(TRIALS, &e))?;
        // The names of the files must survive a crash, too.
        folder.sync().map_err(|e| fault(TRIALS, &e))?;
        lock(path, &trials)?;
        Ok(StudyWriter { path: path.to_owned(), folder, trials })
    }

    /// Opens a folder to resume its study. Torn last lines are cut off.
    pub fn reopen(path: &Path) -> Result<(Self, Study), Fault> {
        let folder = open(path)?;
        // Called for its errors, which explain what is wrong with the folder.
        load_from(&folder, path)?;
        let fault = |name: &str, e: &io::Error| storage("write", &path.join(name), e);
        let trials = folder.appender(TRIALS, false).map_err(|e| fault(TRIALS, &e))?;
        lock(path, &trials)?;
        let whole = lines(folder.reader(TRIALS).map_err(|e| fault(TRIALS, &e))?)?.whole;
        cut(&trials, whole).map_err(|e| fault(TRIALS, &e))?;
        cut_remarks(&folder).map_err(|e| fault(REMARKS, &e))?;
        // If no trial is missing, this file is not written again.
        folder.remove_part(AFTER).map_err(|e| fault(AFTER, &e))?;
        let study = load_from(&folder, path)?;
        Ok((StudyWriter { path: path.to_owned(), folder, trials }, study))
    }

    /// Returns who else may have written the files that decide what the study does
    /// ([`files::other_writer`]).
    pub(crate) fn stranger(&self) -> Result<Option<String>, Fault> {
        let of = |name: &str| {
            let found = self.folder.reader(name).and_then(files::other_writer);
            found.map_err(|e| storage("read", &self.path.join(name), &e))
        };
        let folder =
            files::other_writer(&self.folder).map_err(|e| storage("read", &self.path, &e))?;
        Ok(folder.or(of(EXPERIMENT)?).or(of(HOSTS)?))
    }

    /// Appends trials in one write; when this returns, they are on disk. Errors if they could not
    /// be read back.
    pub fn append(&mut self, trials: &[Trial]) -> Result<(), Fault> {
        let mut lines = Vec::new();
        for trial in trials {
            let begin = lines.len();
            serde_json::to_writer(&mut lines, trial).map_err(|e| encoding(TRIALS, &e))?;
            lines.push(b'\n');
            if (lines.len() - begin) as u64 > LONGEST_LINE {
                return Err(self.too_large(&format!("a trial of {}", trial.cell), LONGEST_LINE));
            }
        }
        let before = self.trials.metadata().map_err(|e| self.fault(TRIALS, &e))?.len();
        if before + lines.len() as u64 > MOST_TRIALS {
            return Err(self.too_large(TRIALS, MOST_TRIALS));
        }
        let written = self.trials.write_all(&lines).and_then(|()| self.trials.sync_data());
        written.map_err(|e| self.fault(TRIALS, &e))?;
        if self.folder.still_has(TRIALS, &self.trials).map_err(|e| self.fault(TRIALS, &e))? {
            return Ok(());
        }
        let path = self.path.join(TRIALS);
        let text = format!("{} was removed or replaced while the study ran", path.display());
        Err(Fault::storage(text)
            .remedy("its trials are lost except for what is printed; run the study again"))
    }

    /// Writes a profile atomically. Returns its name relative to the folder of the study.
    pub fn profile(&mut self, name: &str, packed: &[u8]) -> Result<String, Fault> {
        let put = self.folder.make(PROFILES).and_then(|folder| folder.replace(name, packed));
        let name = format!("{PROFILES}/{name}");
        put.map_err(|e| self.fault(&name, &e)).map(|()| name)
    }

    /// Writes the trials' power from an external meter's log, atomically. A log of both hosts
    /// replaces those of single hosts, and the other way round.
    pub fn power_log(&mut self, log: &PowerLog) -> Result<(), Fault> {
        let name = power_file(log.role);
        self.put(&name, log)?;
        for other in LOGS.into_iter().filter(|other| other.is_none() != log.role.is_none()) {
            let name = power_file(other);
            let removed = self.folder.remove(&name);
            removed.map_err(|e| storage("remove", &self.path.join(&name), &e))?;
        }
        Ok(())
    }

    /// Writes the rates that are fractions of the peak, before the first trial with one.
    pub fn loads(&mut self, loads: &[Load]) -> Result<(), Fault> {
        self.put(LOADS, &Loads { schema: SCHEMA_VERSION, loads: loads.to_vec() })
    }

    /// Writes the state of the hosts at the end of the run.
    pub fn after(&mut self, after: &HostsAfter) -> Result<(), Fault> {
        self.put(AFTER, after)
    }

    /// Appends a remark for the reader of the study, one line.
    pub fn remark(&mut self, remark: &str) -> Result<(), Fault> {
        let file = self.folder.appender(REMARKS, true);
        let append = file.and_then(|mut file| {
            file.write_all(format!("{remark}\n").as_bytes())?;
            file.sync_data()
        });
        append.map_err(|e| self.fault(REMARKS, &e))
    }

    fn put(&self, name: &str, value: &impl Serialize) -> Result<(), Fault> {
        put(&self.folder, &self.path, name, value)
    }

    fn too_large(&self, what: &str, most: u64) -> Fault {
        let text =
            format!("{}: {what} would be larger than {} MiB", self.path.display(), most >> 20);
        Fault::storage(text).remedy("run fewer blocks, cells or flows, or fewer meters, in a study")
    }

    fn fault(&self, name: &str, error: &io::Error) -> Fault {
        storage("write", &self.path.join(name), error)
    }
}

/// Errors for a folder in which [`StudyWriter::create`] could not begin a study, with the same
/// reason. Creates nothing.
pub fn refuse_folder(folder: &Path) -> Result<(), Fault> {
    let there = folder.ancestors().find(|part| part.exists()).unwrap_or(Path::new("."));
    Folder::open(there).map_err(|e| storage("make", folder, &e))?;
    refuse_used(folder)?;
    accessat(CWD, there, Access::WRITE_OK, AtFlags::EACCESS).map_err(|e| match there == folder {
        true => storage("write", &folder.join(EXPERIMENT), &e.into()),
        false => storage("make", folder, &e.into()),
    })
}

/// Errors for a folder that is not empty; one that does not exist is fine.
pub fn refuse_used(folder: &Path) -> Result<(), Fault> {
    let used = match fs::read_dir(folder) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => false,
        entries => entries.map_err(|e| storage("write", folder, &e))?.next().is_some(),
    };
    if !used {
        return Ok(());
    }
    let text = format!("the folder {} is not empty", folder.display());
    Err(Fault::storage(text).remedy("choose another one (that of a study: --study DIR)"))
}

/// True if a study was started in a folder, with all of its files.
pub fn is_begun(folder: &Path) -> bool {
    folder.join(TRIALS).exists()
}

/// Keeps other processes from writing to the same study. On a file system without locks, nothing
/// does.
fn lock(folder: &Path, trials: &File) -> Result<(), Fault> {
    match flock(trials, FlockOperation::NonBlockingLockExclusive) {
        Err(rustix::io::Errno::WOULDBLOCK) => Err(Fault::storage(format!(
            "the study {} is being run by another process",
            folder.display()
        ))
        .remedy("wait until it has ended")),
        _ => Ok(()),
    }
}

/// Cuts off an incomplete last remark, to which the next would be appended.
fn cut_remarks(folder: &Folder) -> io::Result<()> {
    let mut remarks = match folder.appender(REMARKS, false) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(()),
        remarks => remarks?,
    };
    let text = files::bounded(&mut remarks, MOST)?;
    let whole = text.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at as u64 + 1);
    cut(&remarks, whole)
}

/// Truncates a file to this many bytes.
fn cut(file: &File, whole: u64) -> io::Result<()> {
    if file.metadata()?.len() > whole {
        file.set_len(whole)?;
        file.sync_data()?;
    }
    Ok(())
}

/// Writes a record atomically.
fn put(folder: &Folder, path: &Path, name: &str, value: &impl Serialize) -> Result<(), Fault> {
    let text = serde_json::to_vec_pretty(value).map_err(|e| encoding(name, &e))?;
    folder.replace(name, &text).map_err(|e| storage("write", &path.join(name), &e))
}

fn encoding(name: &str, error: &dyn std::fmt::Display) -> Fault {
    Fault::failed(format!("cannot encode {name}: {error}"))
}

/// Aligns the log of an external meter with a study that has ended, and stores the result with the
/// study. The log covers one role's host, or both; an earlier log of the same hosts is replaced.
pub fn import_power(
    folder: &Path,
    power: &Power,
    role: Option<Role>,
) -> Result<(Study, PowerLog), Fault> {
    let (mut writer, study) = StudyWriter::reopen(folder)?;
    if role.is_some() && !study.trials.iter().any(Trial::has_hosts_apart) {
        return Err(power_log::shared());
    }
    let log = power_log::read(&study, &(role, power.clone()))?;
    writer.power_log(&log)?;
    // Read again, because the study may hold readings of an older log.
    Ok((load(folder)?, log))
}
