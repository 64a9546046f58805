//! Files whose content or location others control: read up to a limit, and opened in folders that
//! others may write to without following links they put there.
//!
//! A root process that works in a folder of another user must not be led out of it. So every
//! component of a path is opened separately (openat(2), `O_NOFOLLOW`): a link on the way is
//! followed only if it belongs to root or to this user, as with `fs.protected_symlinks` in /tmp;
//! within the folder, none is. Only regular files are opened, and none is written that another user
//! owns, or that has a second hard link and is in another user's folder.

use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, Stat, fstat, openat, readlinkat, statat};
use rustix::process::geteuid;
use std::collections::VecDeque;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, Error, ErrorKind, Read, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path};

/// Most links in a row, as in the kernel (path_resolution(7)).
const MOST_LINKS: usize = 40;

/// An open folder, which stays the same one if its name changes.
#[derive(Debug)]
pub struct Folder {
    fd: OwnedFd,
    owner: u32,
    /// Permissions of files created in it, before the umask.
    mode: Mode,
}

/// Opens a regular file that a user names, for reading. Refuses FIFOs and devices, without waiting
/// for a writer.
pub fn open(path: &Path) -> io::Result<File> {
    let file = open_nonblocking(path, OFlags::RDONLY)?;
    regular(&file)?;
    Ok(file)
}

/// Like [`open`], but also accepts pipes and devices, such as `/dev/stdin` or what a shell creates
/// for `<(command)`. Reading a FIFO without a writer returns end of file.
pub fn open_stream(path: &Path) -> io::Result<File> {
    make_blocking(open_nonblocking(path, OFlags::RDONLY)?)
}

/// Opens something that exists and is not a regular file, for writing; a FIFO must have a reader.
pub fn open_sink(path: &Path) -> io::Result<File> {
    make_blocking(open_nonblocking(path, OFlags::WRONLY).map_err(|e| match e.raw_os_error() {
        Some(libc::ENXIO) => refused("no program reads from this pipe".to_owned()),
        _ => e,
    })?)
}

fn open_nonblocking(path: &Path, flags: OFlags) -> io::Result<File> {
    let always = OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
    Ok(openat(CWD, path, flags | always, Mode::empty())?.into())
}

/// Makes reads and writes wait for the other end.
fn make_blocking(file: File) -> io::Result<File> {
    rustix::fs::fcntl_setfl(&file, rustix::fs::fcntl_getfl(&file)? - OFlags::NONBLOCK)?;
    Ok(file)
}

fn regular(file: &File) -> io::Result<Stat> {
    let stat = fstat(file)?;
    match FileType::from_raw_mode(stat.st_mode) {
        FileType::RegularFile => Ok(stat),
        kind => Err(refused(format!("it is not a regular file ({kind:?})"))),
    }
}

/// Describes who may write to an open file or folder besides this user and root; `None` if no one
/// may. The user who started root's command with sudo(8) does not count, nor does root's own group.
pub fn other_writer(file: impl AsFd) -> io::Result<Option<String>> {
    let stat = fstat(file)?;
    let own = geteuid();
    let caller = std::env::var("SUDO_UID").ok().filter(|_| own.is_root());
    let known = [0, own.as_raw(), caller.and_then(|uid| uid.parse().ok()).unwrap_or_default()];
    let may = |mode: Mode| Mode::from_raw_mode(stat.st_mode).contains(mode);
    Ok(if !known.contains(&stat.st_uid) {
        Some(format!("belongs to user {}", stat.st_uid))
    } else if may(Mode::WOTH) {
        Some("may be written by every user".to_owned())
    } else if own.is_root() && stat.st_gid != 0 && may(Mode::WGRP) {
        Some(format!("may be written by group {}", stat.st_gid))
    } else {
        None
    })
}

/// Returns the content of a file or pipe; errors if that is more than `most` bytes.
pub fn read(path: &Path, most: u64) -> io::Result<Vec<u8>> {
    bounded(open_stream(path)?, most)
}

/// Like [`read`], for a file that contains UTF-8.
pub fn read_text(path: &Path, most: u64) -> io::Result<String> {
    String::from_utf8(read(path, most)?).map_err(|e| Error::new(ErrorKind::InvalidData, e))
}

/// Reads up to the end of `input`; errors if that is more than `most` bytes.
pub fn bounded(input: impl Read, most: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    input.take(most.saturating_add(1)).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > most {
        let text = format!("it is larger than {} KiB, the maximum that is read", most >> 10);
        return Err(Error::new(ErrorKind::InvalidData, text));
    }
    Ok(bytes)
}

impl Folder {
    pub fn open(path: &Path) -> io::Result<Folder> {
        Folder::walk(path, false)
    }

    /// Opens a folder, and creates the missing folders of its path.
    pub fn open_or_make(path: &Path) -> io::Result<Folder> {
        Folder::walk(path, true)
    }

    fn walk(path: &Path, makes: bool) -> io::Result<Folder> {
        let own = geteuid().as_raw();
        let mut at = start(path)?;
        let mut rest: VecDeque<OsString> = names(path).collect();
        let mut links = 0;
        while let Some(name) = rest.pop_front() {
            let open = || openat(&at, &name, PLACE | OFlags::NOFOLLOW, Mode::empty());
            let next = match open() {
                Err(rustix::io::Errno::NOENT) if makes => {
                    match rustix::fs::mkdirat(&at, &name, Mode::from_raw_mode(0o777)) {
                        Err(rustix::io::Errno::EXIST) | Ok(()) => open()?,
                        Err(e) => return Err(e.into()),
                    }
                }
                next => next?,
            };
            let stat = fstat(&next)?;
            if FileType::from_raw_mode(stat.st_mode) != FileType::Symlink {
                at = next;
                continue;
            }
            links += 1;
            if links > MOST_LINKS {
                return Err(rustix::io::Errno::LOOP.into());
            }
            if ![0, own].contains(&stat.st_uid) {
                let (name, owner) = (name.display(), stat.st_uid);
                return Err(refused(format!(
                    "'{name}' is a link of user {owner}, which is not followed"
                )));
            }
            let target = readlinkat(&next, "", Vec::new())?;
            let target = Path::new(OsStr::from_bytes(target.as_bytes()));
            if target.is_absolute() {
                at = start(target)?;
            }
            for name in names(target).collect::<Vec<_>>().into_iter().rev() {
                rest.push_front(name);
            }
        }
        Folder::of(openat(&at, ".", FOLDER, Mode::empty())?)
    }

    /// Returns the same folder, but files created in it are readable by this user only.
    pub fn private(self) -> Folder {
        Folder { mode: Mode::RUSR | Mode::WUSR, ..self }
    }

    /// Opens the folder that a file is in; returns it with the file's name there.
    pub fn parent_folder(file: &Path) -> io::Result<(Folder, &OsStr)> {
        let name = file.file_name().ok_or_else(|| refused("it names no file".to_owned()))?;
        Ok((Folder::open(file.parent().unwrap_or(Path::new("")))?, name))
    }

    /// Opens a folder in this one.
    pub fn inner(&self, name: &str) -> io::Result<Folder> {
        let fd = openat(&self.fd, name, FOLDER | OFlags::NOFOLLOW, Mode::empty());
        Folder::of(fd.map_err(unfollowed)?)
    }

    /// Opens a folder in this one, and creates it if it does not exist.
    pub fn make(&self, name: &str) -> io::Result<Folder> {
        match rustix::fs::mkdirat(&self.fd, name, Mode::from_raw_mode(0o777)) {
            Err(rustix::io::Errno::EXIST) | Ok(()) => self.inner(name),
            Err(e) => Err(e.into()),
        }
    }

    /// Opens a file in it for reading.
    pub fn reader(&self, name: impl AsRef<OsStr>) -> io::Result<File> {
        self.file(name.as_ref(), OFlags::RDONLY)
    }

    /// Returns the content of a file in it; errors if that is more than `most` bytes.
    pub fn read(&self, name: impl AsRef<OsStr>, most: u64) -> io::Result<Vec<u8>> {
        bounded(self.reader(name)?, most)
    }

    /// Opens a file in it for reading and appending.
    pub fn appender(&self, name: impl AsRef<OsStr>, create: bool) -> io::Result<File> {
        let create = if create { OFlags::CREATE } else { OFlags::empty() };
        self.file(name.as_ref(), OFlags::RDWR | OFlags::APPEND | create)
    }

    /// Creates a file in it, which must not exist.
    pub fn create(&self, name: impl AsRef<OsStr>) -> io::Result<File> {
        self.file(name.as_ref(), OFlags::RDWR | OFlags::APPEND | OFlags::CREATE | OFlags::EXCL)
    }

    /// Replaces the file of this name atomically, or creates it; the content is on disk when this
    /// returns. Only one process at a time may do so; it also removes what another left behind when
    /// it was killed here.
    pub fn replace(&self, name: impl AsRef<OsStr>, content: &[u8]) -> io::Result<()> {
        self.put(name.as_ref(), "part", content)
    }

    /// Like [`Folder::replace`], if several processes may do so at once.
    pub fn replace_shared(&self, name: impl AsRef<OsStr>, content: &[u8]) -> io::Result<()> {
        self.put(name.as_ref(), &format!("{}.part", std::process::id()), content)
    }

    /// Removes the partial file that [`Folder::replace`] left behind if it was killed.
    pub fn remove_part(&self, name: &str) -> io::Result<()> {
        self.remove(format!("{name}.part"))
    }

    fn put(&self, name: &OsStr, ending: &str, content: &[u8]) -> io::Result<()> {
        let mut part = name.to_owned();
        part.push(".");
        part.push(ending);
        let put = || -> io::Result<()> {
            // A file left by a crash would be in the way.
            self.remove(&part)?;
            let mut file = self.create(&part)?;
            file.write_all(content)?;
            file.sync_all()?;
            rustix::fs::renameat(&self.fd, &part, &self.fd, name)?;
            self.sync()
        };
        put().inspect_err(|_| {
            // The first error is the one that matters.
            let _ = self.remove(&part);
        })
    }

    /// Removes a file from it, if it exists.
    pub fn remove(&self, name: impl AsRef<OsStr>) -> io::Result<()> {
        match rustix::fs::unlinkat(&self.fd, name.as_ref(), AtFlags::empty()) {
            Err(rustix::io::Errno::NOENT) | Ok(()) => Ok(()),
            Err(e) => Err(e.into()),
        }
    }

    /// Whether an open file still has the name it was opened by.
    pub fn still_has(&self, name: &str, file: &File) -> io::Result<bool> {
        let opened = fstat(file)?;
        match statat(&self.fd, name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(now) => Ok((now.st_dev, now.st_ino) == (opened.st_dev, opened.st_ino)),
            Err(rustix::io::Errno::NOENT) => Ok(false),
            Err(e) => Err(e.into()),
        }
    }

    /// Makes the names in it durable, so that they outlive a crash.
    pub fn sync(&self) -> io::Result<()> {
        Ok(rustix::fs::fsync(&self.fd)?)
    }

    fn of(fd: OwnedFd) -> io::Result<Folder> {
        let owner = fstat(&fd)?.st_uid;
        Ok(Folder { fd, owner, mode: Mode::from_raw_mode(0o666) })
    }

    fn file(&self, name: &OsStr, flags: OFlags) -> io::Result<File> {
        if name.as_bytes().contains(&b'/') {
            return Err(refused("it is not the name of a file in this folder".to_owned()));
        }
        // Opening a FIFO or a terminal could wait forever.
        let always = OFlags::CLOEXEC | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY;
        let fd = openat(&self.fd, name, flags | always, self.mode);
        let file: File = fd.map_err(unfollowed)?.into();
        let stat = regular(&file)?;
        if flags.contains(OFlags::RDWR) {
            self.may_write(&stat)?;
        }
        Ok(file)
    }

    /// Checks that a file may be written: in another user's folder its name may be a hard link to
    /// any file of ours.
    fn may_write(&self, file: &Stat) -> io::Result<()> {
        let own = geteuid().as_raw();
        if ![own, self.owner].contains(&file.st_uid) {
            return Err(refused(format!(
                "it belongs to user {}, and this is user {own}",
                file.st_uid
            )));
        }
        if file.st_nlink > 1 && self.owner != own {
            let text =
                format!("it has {} names, and user {} gave it this", file.st_nlink, self.owner);
            return Err(refused(text));
        }
        Ok(())
    }
}

impl AsFd for Folder {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

const PLACE: OFlags = OFlags::PATH.union(OFlags::CLOEXEC);
const FOLDER: OFlags = OFlags::DIRECTORY.union(OFlags::CLOEXEC);

/// Opens the folder where the resolution of a path begins.
fn start(path: &Path) -> io::Result<OwnedFd> {
    Ok(openat(CWD, if path.is_absolute() { "/" } else { "." }, PLACE, Mode::empty())?)
}

fn names(path: &Path) -> impl Iterator<Item = OsString> {
    path.components().filter_map(|component| match component {
        Component::Normal(name) => Some(name.to_owned()),
        Component::ParentDir => Some("..".into()),
        _ => None,
    })
}

fn unfollowed(error: rustix::io::Errno) -> Error {
    match error {
        rustix::io::Errno::LOOP => refused("it is a symbolic link, which is not followed".into()),
        // A FIFO without a reader, or a socket.
        rustix::io::Errno::NXIO => refused("it is not a regular file".into()),
        other => other.into(),
    }
}

fn refused(text: String) -> Error {
    Error::new(ErrorKind::PermissionDenied, text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::{chown, lchown, symlink};

    fn why<T>(result: io::Result<T>) -> String {
        result.map(drop).unwrap_err().to_string()
    }

    #[test]
    fn what_is_read_is_bounded() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("file");
        fs::write(&path, vec![b'x'; 1 << 10]).unwrap();
        assert_eq!(read_text(&path, 1 << 10).unwrap().len(), 1 << 10);
        assert!(read(&path, (1 << 10) - 1).is_err());
        let endless = why(read(Path::new("/dev/zero"), 1 << 20));
        assert_eq!(endless, "it is larger than 1024 KiB, the maximum that is read");
    }

    #[test]
    fn nothing_but_regular_files_is_opened_and_no_link_is_followed() {
        let dir = tempfile::tempdir().unwrap();
        let folder = Folder::open(dir.path()).unwrap();
        let name = |name: &str| dir.path().join(name);
        fs::write(name("precious"), "precious").unwrap();
        symlink("precious", name("link")).unwrap();
        symlink("/dev/zero", name("device")).unwrap();
        rustix::fs::mknodat(CWD, name("fifo"), FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
        fs::create_dir(name("folder")).unwrap();
        for odd in ["link", "device", "fifo", "folder", "../x", "folder/x"] {
            assert!(folder.read(odd, 10).is_err(), "{odd}");
            assert!(folder.appender(odd, true).is_err(), "{odd}");
        }
        assert!(why(folder.read("link", 10)).contains("symbolic link"));
        assert!(why(folder.read("fifo", 10)).contains("not a regular file (Fifo)"));
        // The link itself is replaced, not its target.
        folder.replace("link", b"new").unwrap();
        assert_eq!(fs::read(name("precious")).unwrap(), b"precious");
        assert_eq!(folder.read("link", 10).unwrap(), b"new");
        // The same holds for a link in place of the partial file.
        symlink("precious", name("link.part")).unwrap();
        folder.replace("link", b"newer").unwrap();
        assert_eq!(fs::read(name("precious")).unwrap(), b"precious");
        assert!(!name("link.part").exists());
    }

    #[test]
    fn a_file_that_was_replaced_is_noticed() {
        let dir = tempfile::tempdir().unwrap();
        let folder = Folder::open(dir.path()).unwrap();
        let file = folder.create("file").unwrap();
        assert!(folder.still_has("file", &file).unwrap());
        folder.replace("file", b"").unwrap();
        assert!(!folder.still_has("file", &file).unwrap());
        folder.remove("file").unwrap();
        assert!(!folder.still_has("file", &file).unwrap());
    }

    #[test]
    fn root_is_not_led_out_of_a_folder_of_others() {
        if !geteuid().is_root() {
            bytepath_testing::skip!("only root has folders of others to write to");
            return;
        }
        let dir = tempfile::tempdir().unwrap();
        let name = |name: &str| dir.path().join(name);
        fs::write(name("precious"), "precious").unwrap();
        fs::create_dir_all(name("theirs/study")).unwrap();
        for (target, link) in [("..", "theirs/up"), ("theirs", "own")] {
            symlink(target, name(link)).unwrap();
        }
        lchown(name("theirs/up"), Some(1), Some(1)).unwrap();
        // Links that belong to root are followed, those of others are not.
        Folder::open(&name("own/study")).unwrap();
        Folder::open_or_make(&name("own/made/deep")).unwrap();
        assert!(name("theirs/made/deep").is_dir());
        assert!(Folder::open_or_make(&name("theirs/up/made")).is_err());
        assert!(!name("made").exists(), "nothing is made where a link of others leads");
        let led = why(Folder::open(&name("theirs/up")));
        assert_eq!(led, "'up' is a link of user 1, which is not followed");
        // A hard link to a file of ours in another user's folder; and a file of a third user.
        chown(name("theirs"), Some(1), Some(1)).unwrap();
        fs::hard_link(name("precious"), name("theirs/second")).unwrap();
        fs::write(name("theirs/third"), "").unwrap();
        chown(name("theirs/third"), Some(2), Some(2)).unwrap();
        let theirs = Folder::open(&name("theirs")).unwrap();
        assert!(why(theirs.appender("second", false)).contains("it has 2 names"));
        assert!(why(theirs.appender("third", false)).contains("it belongs to user 2"));
        assert_eq!(theirs.read("second", 10).unwrap(), b"precious", "reading does no harm");
        chown(name("theirs/third"), Some(1), Some(1)).unwrap();
        theirs.appender("third", false).unwrap();
    }
}
