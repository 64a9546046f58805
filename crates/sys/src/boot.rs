//! What the first process of a machine does: mount(2), init_module(2), reboot(2).

use super::check;
use rustix::mount::{MountFlags, mount};
use std::io;

/// Mounts a file system that needs no device: proc, sysfs, devtmpfs.
pub fn mount_virtual(kind: &str, folder: &str) -> io::Result<()> {
    Ok(mount(kind, folder, kind, MountFlags::empty(), None)?)
}

/// Loads a module into the kernel, without parameters. EEXIST: it is there
/// already. ENOENT: a symbol that it needs is in no module that was loaded.
pub fn load_module(module: &[u8]) -> io::Result<()> {
    // SAFETY: the kernel reads `module` for its length and the text up to its
    // NUL, and keeps no reference to either.
    let loaded = unsafe {
        libc::syscall(libc::SYS_init_module, module.as_ptr(), module.len(), c"".as_ptr())
    };
    check(loaded).map(drop)
}

/// Switches the machine off. Returns only if the kernel refuses.
pub fn power_off() -> io::Error {
    match rustix::system::reboot(rustix::system::RebootCommand::PowerOff) {
        Err(errno) => errno.into(),
        Ok(()) => io::Error::other("the kernel did not switch the machine off"),
    }
}
