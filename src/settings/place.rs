//! Where the journal is, and who may write it: one bytepath a host.

use super::journal::{self, Chronicle, Medium};
use crate::record::{DeviceName, Fault, FaultKind};
use crate::sys::file_lock;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Read, Seek, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// Environment variable that names another folder for journal and lock.
pub const STATE_VARIABLE: &str = "BYTEPATH_STATE";

/// Longest journal that is read; a change takes about a thousand bytes.
const LONGEST: u64 = 64 << 20;

/// The folder of journal and lock.
#[derive(Clone, Debug)]
pub struct Place {
    folder: PathBuf,
}

/// The right to set things on this host. It ends with the process, however that
/// ends.
#[derive(Debug)]
pub struct Lock {
    file: File,
}

impl Drop for Lock {
    fn drop(&mut self) {
        // If it fails, closing the file gives the lock back.
        let _ = file_lock::release(&self.file);
    }
}

/// A journal on disk.
#[derive(Debug)]
pub struct JournalFile {
    path: PathBuf,
    file: File,
}

impl Place {
    /// Where the next bytepath looks, also after a reboot: `$BYTEPATH_STATE`,
    /// else `/var/lib/bytepath` for root, else `$XDG_STATE_HOME/bytepath` or
    /// `~/.local/state/bytepath`.
    pub fn standard() -> Place {
        let variable = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty());
        if let Some(folder) = variable(STATE_VARIABLE) {
            return Place::at(folder);
        }
        if rustix::process::geteuid().is_root() {
            return Place::at("/var/lib/bytepath");
        }
        let state = variable("XDG_STATE_HOME").map(PathBuf::from).unwrap_or_else(|| {
            PathBuf::from(variable("HOME").unwrap_or_else(|| "/".into())).join(".local/state")
        });
        Place::at(state.join("bytepath"))
    }

    /// Another folder.
    pub fn at(folder: impl Into<PathBuf>) -> Place {
        Place { folder: folder.into() }
    }

    /// The journal's file.
    pub fn journal(&self) -> PathBuf {
        self.folder.join("journal")
    }

    /// The file that holds the network namespace of a device that is lent.
    pub fn lent(&self, device: &DeviceName) -> PathBuf {
        self.folder.join("lent").join(device.as_str())
    }

    /// Takes the right to set things. One fault tells which process has it.
    pub fn lock(&self) -> Result<Lock, Fault> {
        let path = self.folder.join("lock");
        let fault = |e: &io::Error| storage("lock", &path, e);
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(&self.folder)
            .map_err(|e| storage("make", &self.folder, &e))?;
        let mut file = open(OpenOptions::new().read(true).write(true).create(true), &path)
            .map_err(|e| fault(&e))?;
        if !file_lock::take(&file).map_err(|e| fault(&e))? {
            let mut pid = String::new();
            let _ = (&mut file).take(20).read_to_string(&mut pid);
            let who = match pid.trim() {
                "" => "another bytepath".to_owned(),
                pid => format!("another bytepath (process {pid})"),
            };
            let text = format!("{who} is setting things on this host");
            return Err(Fault::new(FaultKind::Storage, text)
                .remedy("wait until it has ended; two would spoil each other's numbers"));
        }
        // The number is for people alone; the lock itself goes with the process.
        let mut note = || -> io::Result<()> {
            file.rewind()?;
            file.set_len(0)?;
            write!(file, "{}", std::process::id())
        };
        note().map_err(|e| fault(&e))?;
        Ok(Lock { file })
    }

    /// What the journal of an earlier run tells; none if there is none, or if it
    /// has nothing to put back. Without the lock, that run may be going on still.
    pub fn read(&self) -> Result<Option<Chronicle>, Fault> {
        let path = self.journal();
        let mut bytes = Vec::new();
        let file = match open(OpenOptions::new().read(true), &path) {
            Ok(file) => file,
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(e) => return Err(storage("read", &path, &e)),
        };
        file.take(LONGEST).read_to_end(&mut bytes).map_err(|e| storage("read", &path, &e))?;
        let told = journal::read(&bytes).map_err(|f| f.context(path.display()))?;
        Ok((!told.ended && told.changes.iter().any(|change| !change.undone)).then_some(told))
    }

    /// Whether some bytepath holds the lock at this moment.
    pub fn is_locked(&self) -> bool {
        let file = open(OpenOptions::new().read(true), &self.folder.join("lock"));
        file.is_ok_and(|file| file_lock::is_taken(&file).unwrap_or(false))
    }

    /// Begins a new journal in place of one that has nothing to put back.
    pub fn create(&self, _lock: &Lock) -> Result<JournalFile, Fault> {
        let path = self.journal();
        let fault = |e: &io::Error| storage("write", &path, e);
        let options = OpenOptions::new().write(true).create(true).truncate(true).clone();
        let file = open(&options, &path).map_err(|e| fault(&e))?;
        file.sync_all().and_then(|()| sync_folder(&self.folder)).map_err(|e| fault(&e))?;
        Ok(JournalFile { path, file })
    }

    /// Opens the journal of an earlier run, to write down what is put back. A
    /// torn line is ended first.
    pub fn reopen(&self, _lock: &Lock) -> Result<JournalFile, Fault> {
        let path = self.journal();
        let fault = |e: &io::Error| storage("write", &path, e);
        let mut file =
            open(OpenOptions::new().read(true).append(true), &path).map_err(|e| fault(&e))?;
        let length = file.metadata().map_err(|e| fault(&e))?.len();
        let mut last = Vec::new();
        file.seek(io::SeekFrom::Start(length.saturating_sub(1)))
            .and_then(|_| file.read_to_end(&mut last))
            .map_err(|e| fault(&e))?;
        if journal::is_torn(&last) {
            file.write_all(b"\n").map_err(|e| fault(&e))?;
        }
        Ok(JournalFile { path, file })
    }
}

impl Medium for JournalFile {
    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.file.write_all(bytes)?;
        self.file.sync_data()
    }

    fn discard(&mut self) -> io::Result<()> {
        match fs::remove_file(&self.path) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(e),
            _ => {}
        }
        self.path.parent().map_or(Ok(()), sync_folder)
    }
}

/// Opens a file that only its owner may read. One that belongs to somebody else
/// is refused: what a journal says is written to the kernel.
fn open(options: &OpenOptions, path: &Path) -> io::Result<File> {
    let mut options = options.clone();
    let file = options.mode(0o600).custom_flags(libc::O_NOFOLLOW).open(path)?;
    let owner = file.metadata()?.uid();
    let me = rustix::process::geteuid().as_raw();
    if owner != me {
        let text = format!("it belongs to user {owner}, and this is user {me}");
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, text));
    }
    Ok(file)
}

/// A file's name has to outlive a crash, too.
fn sync_folder(folder: &Path) -> io::Result<()> {
    File::open(folder)?.sync_all()
}

fn storage(verb: &str, path: &Path, error: &io::Error) -> Fault {
    Fault::new(FaultKind::Storage, format!("cannot {verb} {}: {error}", path.display()))
        .remedy(format!("nothing is set without a journal; {STATE_VARIABLE} names another folder"))
}
