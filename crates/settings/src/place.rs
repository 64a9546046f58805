//! Where the journal is, and who may write it: one bytepath per host.

use super::exclusion::{Taken, busy, take};
use super::journal::{self, JournalState, JournalStorage};
use bytepath_record::{DeviceName, Fault};
use bytepath_sys::file_lock;
use bytepath_sys::files::{self, Folder};
use std::collections::BTreeSet;
use std::fs::{self, DirBuilder, File};
use std::io::{self, Read, Seek, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

/// Environment variable that names another folder for journal and lock.
pub const STATE_VARIABLE: &str = "BYTEPATH_STATE";

/// Longest journal that is read; a change takes about a thousand bytes.
const LONGEST: u64 = 64 << 20;

/// The folder of journal and lock.
#[derive(Clone, Debug)]
pub struct StateFolder {
    folder: PathBuf,
}

/// The right to change settings on this host. It ends with the process, however that ends; a child
/// that the process is just starting may keep it until its execve(2).
#[derive(Debug)]
pub struct Lock {
    file: File,
}

impl Drop for Lock {
    fn drop(&mut self) {
        // If it fails, closing the file releases the lock.
        let _ = file_lock::release(&self.file);
    }
}

/// A journal on disk.
#[derive(Debug)]
pub struct JournalFile {
    folder: Folder,
    file: File,
}

/// True if this process may create files in a folder: root of a user namespace (`unshare -r`) may
/// not if the owner is outside that namespace. A read-only file system is a different fault.
fn may_write(folder: &Path) -> bool {
    use rustix::fs::{Access, AtFlags, CWD, accessat};
    let may = accessat(CWD, folder, Access::WRITE_OK, AtFlags::EACCESS);
    !matches!(may, Err(rustix::io::Errno::ACCESS))
}

/// Names of the files.
const JOURNAL: &str = "journal";
const LOCK: &str = "lock";

impl StateFolder {
    /// Where the next bytepath looks, also after a reboot: `$BYTEPATH_STATE`, else
    /// `/var/lib/bytepath` for root, else `$XDG_STATE_HOME/bytepath` or `~/.local/state/bytepath`.
    /// Root of a user namespace only has the former if `/var/lib` is that root's to write.
    pub fn standard() -> StateFolder {
        let variable = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty());
        if let Some(folder) = variable(STATE_VARIABLE) {
            return StateFolder::at(folder);
        }
        if rustix::process::geteuid().is_root() && may_write(Path::new("/var/lib")) {
            return StateFolder::at("/var/lib/bytepath");
        }
        let state = variable("XDG_STATE_HOME").map(PathBuf::from).unwrap_or_else(|| {
            PathBuf::from(variable("HOME").unwrap_or_else(|| "/".into())).join(".local/state")
        });
        StateFolder::at(state.join("bytepath"))
    }

    pub fn at(folder: impl Into<PathBuf>) -> StateFolder {
        StateFolder { folder: folder.into() }
    }

    pub fn journal(&self) -> PathBuf {
        self.folder.join(JOURNAL)
    }

    /// The file that holds the network namespace of a device that is lent.
    pub fn lent(&self, device: &DeviceName) -> PathBuf {
        self.folder.join("lent").join(device.as_str())
    }

    /// Returns the devices that have such a file, sorted by name.
    pub fn all_lent(&self) -> Vec<DeviceName> {
        let entries = fs::read_dir(self.folder.join("lent")).into_iter().flatten().flatten();
        let names = entries.filter_map(|entry| DeviceName::new(entry.file_name().to_str()?).ok());
        names.collect::<BTreeSet<_>>().into_iter().collect()
    }

    /// Takes the lock. If another process holds it, the fault names that process.
    pub fn lock(&self) -> Result<Lock, Fault> {
        let path = self.folder.join(LOCK);
        let fault = |e: &io::Error| storage("lock", &path, e);
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(&self.folder)
            .map_err(|e| storage("make", &self.folder, &e))?;
        let opened = self.open().and_then(|folder| own(folder.appender(LOCK, true)?));
        let mut file = opened.map_err(|e| fault(&e))?;
        let taken = take(|| file_lock::take(&file), || holder(&file)).map_err(|e| fault(&e))?;
        match taken {
            Taken::Ours => {}
            Taken::By(pid) => {
                return Err(busy(&format!(
                    "another bytepath (process {pid}) is changing settings on this host"
                )));
            }
            Taken::ByNoneSeen => {
                return Err(Fault::storage(format!(
                    "{} is locked, though the process named in it is not running here",
                    path.display()
                ))
                .remedy(format!("end what holds it; `fuser {}` names it", path.display())));
            }
        }
        // For messages and for those who wait; the lock itself does not depend on it.
        let mut note = || -> io::Result<()> {
            file.rewind()?;
            file.set_len(0)?;
            write!(file, "{}", std::process::id())
        };
        note().map_err(|e| fault(&e))?;
        Ok(Lock { file })
    }

    /// Returns the contents of an earlier run's journal; `None` if there is none, or nothing in it
    /// to restore. Unless the caller holds the lock, that run may still be active.
    pub fn read(&self) -> Result<Option<JournalState>, Fault> {
        let path = self.journal();
        let opened = self.open().and_then(|folder| own(folder.reader(JOURNAL)?));
        let bytes = match opened.and_then(|file| files::bounded(file, LONGEST)) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
            bytes => bytes.map_err(|e| storage("read", &path, &e))?,
        };
        let chronicle = journal::read(&bytes).map_err(|f| f.context(path.display()))?;
        Ok(chronicle.is_unfinished().then_some(chronicle))
    }

    /// True if there is a journal that can be opened, whatever it contains.
    pub fn has_journal(&self) -> bool {
        self.open().and_then(|folder| folder.reader(JOURNAL)).is_ok()
    }

    /// Removes a journal that has nothing to restore, if there is one.
    pub fn discard(&self, _lock: &Lock) -> Result<(), Fault> {
        match self.open().and_then(|folder| discard(&folder)) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(()),
            discarded => discarded.map_err(|e| storage("remove", &self.journal(), &e)),
        }
    }

    /// True if some bytepath currently holds the lock.
    pub fn is_locked(&self) -> bool {
        let file = self.open().and_then(|folder| own(folder.reader(LOCK)?));
        file.is_ok_and(|file| file_lock::is_taken(&file).unwrap_or(false))
    }

    /// Begins a new journal in place of one that has nothing to restore.
    pub fn create(&self, _lock: &Lock) -> Result<JournalFile, Fault> {
        let create = || -> io::Result<JournalFile> {
            let folder = self.open()?;
            let file = own(folder.appender(JOURNAL, true)?)?;
            file.set_len(0)?;
            file.sync_all()?;
            folder.sync()?;
            Ok(JournalFile { folder, file })
        };
        create().map_err(|e| storage("write", &self.journal(), &e))
    }

    /// Opens the journal of an earlier run to record what is restored. Cuts off a torn last line.
    pub fn reopen(&self, _lock: &Lock) -> Result<JournalFile, Fault> {
        let reopen = || -> io::Result<JournalFile> {
            let folder = self.open()?;
            let mut file = own(folder.appender(JOURNAL, false)?)?;
            let bytes = files::bounded(&mut file, LONGEST)?;
            let torn = journal::torn(&bytes);
            if torn > 0 {
                file.set_len((bytes.len() - torn) as u64)?;
            } else if bytes.last().is_some_and(|last| *last != b'\n') {
                file.write_all(b"\n")?;
            }
            Ok(JournalFile { folder, file })
        };
        reopen().map_err(|e| storage("write", &self.journal(), &e))
    }

    /// The folder; refused if someone else could remove the journal from it.
    fn open(&self) -> io::Result<Folder> {
        let folder = Folder::open(&self.folder)?.private();
        match files::other_writer(&folder)? {
            None => Ok(folder),
            Some(stranger) => Err(io::Error::new(
                io::ErrorKind::PermissionDenied,
                format!("the folder {stranger}; name another with {STATE_VARIABLE}"),
            )),
        }
    }
}

impl JournalStorage for JournalFile {
    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        let length = self.file.metadata()?.len();
        let appended = self.file.write_all(bytes).and_then(|()| self.file.sync_data());
        if appended.is_err() {
            // Half a line is damage once another follows it.
            self.file.set_len(length)?;
        }
        appended
    }

    fn discard(&mut self) -> io::Result<()> {
        discard(&self.folder)
    }
}

/// Reads the PID in the lock file.
fn holder(mut file: &File) -> Option<u32> {
    let mut pid = String::new();
    file.rewind().and_then(|()| file.take(20).read_to_string(&mut pid)).ok()?;
    pid.trim().parse().ok()
}

fn discard(folder: &Folder) -> io::Result<()> {
    folder.remove(JOURNAL)?;
    folder.sync()
}

/// Refuses a file that belongs to another user, even for reading: the values in a journal are
/// written to the kernel.
fn own(file: File) -> io::Result<File> {
    let owner = file.metadata()?.uid();
    let me = rustix::process::geteuid().as_raw();
    if owner != me {
        let text = format!("it belongs to user {owner}, and this is user {me}");
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, text));
    }
    Ok(file)
}

fn storage(verb: &str, path: &Path, error: &io::Error) -> Fault {
    Fault::storage(format!("cannot {verb} {}: {error}", path.display()))
        .remedy(format!("nothing is set without a journal; {STATE_VARIABLE} names another folder"))
}

#[cfg(test)]
mod tests {
    use super::super::exclusion::lives;
    use super::*;
    use std::process::Command;
    use std::sync::Barrier;
    use std::thread;
    use std::time::Duration;

    /// Between fork(2) and execve(2) a child of a bytepath that was killed still has its lock.
    #[test]
    fn a_lock_of_a_dead_process_is_waited_for() {
        let folder = tempfile::tempdir().unwrap();
        let place = StateFolder::at(folder.path());
        let lock = place.lock().unwrap();
        let said = place.lock().unwrap_err().to_string();
        assert!(said.contains(&format!("(process {})", std::process::id())), "{said}");
        let mut dead = Command::new("true").spawn().unwrap();
        while lives(dead.id()) {}
        fs::write(folder.path().join(LOCK), dead.id().to_string()).unwrap();
        let begun = Barrier::new(2);
        thread::scope(|scope| {
            let next = scope.spawn(|| {
                begun.wait();
                place.lock()
            });
            begun.wait();
            // Time to be refused in.
            thread::sleep(Duration::from_millis(100));
            assert!(!next.is_finished(), "it did not wait: {:?}", next.join());
            drop(lock);
            next.join().unwrap().unwrap();
        });
        dead.wait().unwrap();
        assert!(!lives(dead.id()) && lives(std::process::id()));
    }
}
