//! Network namespaces that outlive their creator: a bind mount of the namespace on a file keeps it
//! alive, as with ip-netns(8). Only [`release`], or a reboot, ends one; devices in it are still
//! there after a crash.

use super::namespace::remount_sysfs;
use rustix::fs::{CWD, FsWord, Mode, OFlags, fstatfs, openat};
use rustix::mount::{UnmountFlags, mount_bind, unmount};
use rustix::thread::{LinkNameSpaceType, UnshareFlags, move_into_link_name_space};
use std::fs::{self, DirBuilder, OpenOptions};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::Path;

/// `NSFS_MAGIC`, include/uapi/linux/magic.h: the type that statfs(2) returns for a namespace.
const NSFS: FsWord = 0x6e73_6673;

/// The network namespace of the thread that opens this path.
const OWN: &str = "/proc/thread-self/ns/net";

/// Makes a network namespace and binds it to a file, which is created if it does not exist. EEXIST:
/// a namespace is already bound to it. EPERM: not root.
pub fn make(file: &Path) -> io::Result<()> {
    make_file(file)?;
    // The thread's new network namespace lives as long as the thread, and the mount keeps it alive
    // afterwards.
    aside(|| {
        // SAFETY: only CLONE_FILES can invalidate owned descriptors, and it is not among the flags.
        unsafe { rustix::thread::unshare_unsafe(UnshareFlags::NEWNET) }?;
        Ok(mount_bind(OWN, file)?)
    })?
}

/// Binds an existing network namespace to one more file. It lives until the last is released.
/// Errors as for [`make`].
pub fn tie(namespace: BorrowedFd, file: &Path) -> io::Result<()> {
    make_file(file)?;
    aside(|| {
        move_into_link_name_space(namespace, Some(LinkNameSpaceType::Network))?;
        Ok(mount_bind(OWN, file)?)
    })?
}

/// Creates a file. EEXIST: a namespace is bound to it.
fn make_file(file: &Path) -> io::Result<()> {
    if open(file)?.is_some() {
        return Err(io::Error::from_raw_os_error(libc::EEXIST));
    }
    if let Some(folder) = file.parent() {
        DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
    }
    OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .custom_flags(libc::O_NOFOLLOW)
        .open(file)?;
    Ok(())
}

/// Returns the namespace bound to a file; `None` if there is none, or no such file.
pub fn open(file: &Path) -> io::Result<Option<OwnedFd>> {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    let found = match openat(CWD, file, flags, Mode::empty()) {
        Err(rustix::io::Errno::NOENT) => return Ok(None),
        found => found?,
    };
    Ok(Some(found).filter(|found| fstatfs(found).is_ok_and(|of| of.f_type == NSFS)))
}

/// Unmounts a namespace from its file and removes the file. The namespace ends with the last
/// process in it; its hardware devices then return to the initial namespace.
pub fn release(file: &Path) -> io::Result<()> {
    if open(file)?.is_some() {
        unmount(file, UnmountFlags::DETACH)?;
    }
    match fs::remove_file(file) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => Err(e),
        _ => Ok(()),
    }
}

/// Opens the network namespace of the calling thread.
pub fn own() -> io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC;
    Ok(openat(CWD, OWN, flags, Mode::empty())?)
}

/// Runs `work` in the network namespace of this file, such as `/proc/PID/ns/net`, on a separate
/// thread. EPERM: without CAP_SYS_ADMIN there and here.
pub fn inside<T: Send>(file: &Path, work: impl FnOnce() -> T + Send) -> io::Result<T> {
    let namespace = fs::File::open(file)?;
    aside(|| {
        move_into_link_name_space(namespace.as_fd(), Some(LinkNameSpaceType::Network))?;
        Ok(work())
    })?
}

/// Runs `work` in a network namespace, on a separate thread for which `/sys` also shows the
/// namespace's devices.
pub fn within<T: Send>(namespace: BorrowedFd, work: impl FnOnce() -> T + Send) -> io::Result<T> {
    aside(|| {
        move_into_link_name_space(namespace.as_fd(), Some(LinkNameSpaceType::Network))?;
        remount_sysfs()?;
        Ok(work())
    })?
}

fn aside<T: Send>(work: impl FnOnce() -> T + Send) -> io::Result<T> {
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().name("namespace".into());
        match thread.spawn_scoped(scope, work)?.join() {
            Ok(done) => Ok(done),
            Err(panic) => std::panic::resume_unwind(panic),
        }
    })
}

#[cfg(test)]
mod tests {
    use super::super::namespace::privileged;
    use super::super::netlink::{Netlink, Veth};
    use super::*;
    use bytepath_testing::skip;

    #[test]
    fn a_namespace_stays_until_it_is_released() {
        if !privileged() {
            skip!("not root");
            return;
        }
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("namespaces/one");
        assert!(open(&file).unwrap().is_none(), "no file");
        if let Err(e) = make(&file) {
            skip!("{e}");
            return;
        }
        assert_eq!(make(&file).unwrap_err().raw_os_error(), Some(libc::EEXIST));
        let held = open(&file).unwrap().unwrap();
        let veth = Veth {
            name: "last0".into(),
            peer: "last1".into(),
            peer_process: None,
            mtu: None,
            queues: 1,
        };
        within(held.as_fd(), || Netlink::new().create_veth(&veth)).unwrap().unwrap();
        assert_eq!(Netlink::new().link("last0").unwrap(), None, "not in ours");
        let shown =
            || (Path::new("/sys/class/net/last0").exists(), fs::read_dir("/sys/fs").is_ok());
        let again = open(&file).unwrap().unwrap();
        assert_eq!(within(again.as_fd(), shown).unwrap(), (true, true));
        assert!(!Path::new("/sys/class/net/last0").exists());
        release(&file).unwrap();
        assert!(!file.exists() && open(&file).unwrap().is_none());
        release(&file).unwrap();
        fs::write(&file, "").unwrap();
        assert!(open(&file).unwrap().is_none(), "a file is not a namespace");
    }
}
