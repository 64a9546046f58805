//! What the first process of a machine does: mount(2), init_module(2), reboot(2).

use rustix::mount::{MountFlags, mount};
use std::ffi::CString;
use std::io;

/// Mounts a file system that needs no device: proc, sysfs, devtmpfs.
pub fn mount_virtual(kind: &str, folder: &str) -> io::Result<()> {
    Ok(mount(kind, folder, kind, MountFlags::empty(), None)?)
}

/// Loads a module into the kernel; parameters are `name=value`, with blanks between
/// them. EEXIST: it is there already. ENOENT: a symbol that it needs is in no module
/// that was loaded.
pub fn load_module(module: &[u8], parameters: &str) -> io::Result<()> {
    let parameters = CString::new(parameters).map_err(|_| io::ErrorKind::InvalidInput)?;
    Ok(rustix::system::init_module(module, &parameters)?)
}

/// Takes a module out of the kernel. ENOENT: it is not there. EWOULDBLOCK: something
/// uses it.
pub fn unload_module(name: &str) -> io::Result<()> {
    let name = CString::new(name).map_err(|_| io::ErrorKind::InvalidInput)?;
    Ok(rustix::system::delete_module(&name, libc::O_NONBLOCK)?)
}

/// Switches the machine off. Returns only if the kernel refuses.
pub fn power_off() -> io::Error {
    match rustix::system::reboot(rustix::system::RebootCommand::PowerOff) {
        Err(errno) => errno.into(),
        Ok(()) => io::Error::other("the kernel did not switch the machine off"),
    }
}
