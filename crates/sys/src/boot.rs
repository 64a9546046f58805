//! System calls of a machine's first process: mount(2), init_module(2), reboot(2).

use rustix::mount::{MountFlags, mount};
use std::ffi::CString;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// Folder of the modules of a guest. Their names begin with their position in the order of loading.
pub const MODULES: &str = "/modules";

/// Mounts a file system that needs no device: proc, sysfs, devtmpfs.
pub fn mount_virtual(kind: &str, folder: &str) -> io::Result<()> {
    Ok(mount(kind, folder, kind, MountFlags::empty(), None)?)
}

/// Loads a module into the kernel; parameters are `name=value`, separated by blanks. EEXIST: it is
/// already loaded. ENOENT: no loaded module provides a symbol that it needs.
pub fn load_module(module: &[u8], parameters: &str) -> io::Result<()> {
    let parameters = CString::new(parameters).map_err(|_| io::ErrorKind::InvalidInput)?;
    Ok(rustix::system::init_module(module, &parameters)?)
}

/// Loads a module that a guest keeps for later use, with these parameters. One that is already
/// loaded stays as it is, whatever its parameters are. NotFound: the guest has no such module, or
/// this is not a guest.
pub fn load_kept(name: &str, parameters: &str) -> io::Result<()> {
    let file = module_file(MODULES.as_ref(), name).ok_or(io::ErrorKind::NotFound)?;
    match load_module(&fs::read(file)?, parameters) {
        Err(e) if e.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        other => other,
    }
}

/// Returns the path of a module in such a folder.
pub fn module_file(folder: &Path, name: &str) -> Option<PathBuf> {
    let entries = fs::read_dir(folder).ok()?.flatten().map(|entry| entry.path());
    entries.into_iter().find(|path| is_module(path, name))
}

/// Whether this file is the module called `name`.
pub fn is_module(file: &Path, name: &str) -> bool {
    let file = file.file_name().and_then(|file| file.to_str()).unwrap_or_default();
    file.split_once('-').is_some_and(|(_, of)| of == name)
}

/// Removes a module from the kernel. ENOENT: it is not loaded. EWOULDBLOCK: it is in use.
pub fn unload_module(name: &str) -> io::Result<()> {
    let name = CString::new(name).map_err(|_| io::ErrorKind::InvalidInput)?;
    Ok(rustix::system::delete_module(&name, libc::O_NONBLOCK)?)
}

/// Powers the machine off. Returns only if the kernel refuses.
pub fn power_off() -> io::Error {
    match rustix::system::reboot(rustix::system::RebootCommand::PowerOff) {
        Err(errno) => errno.into(),
        Ok(()) => io::Error::other("the kernel did not switch the machine off"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_module_is_found_by_its_name_alone() {
        let folder = tempfile::tempdir().unwrap();
        for name in ["000-virtio_pci", "001-not-zcnic", "zcnic"] {
            fs::write(folder.path().join(name), "").unwrap();
        }
        assert_eq!(module_file(folder.path(), "zcnic"), None);
        fs::write(folder.path().join("002-zcnic"), "").unwrap();
        let found = module_file(folder.path(), "zcnic").unwrap();
        assert_eq!(found.file_name().unwrap(), "002-zcnic");
    }
}
