//! What the first process of a machine does: mount(2), init_module(2), reboot(2).

use rustix::mount::{MountFlags, mount};
use std::io;

/// Mounts a file system that needs no device: proc, sysfs, devtmpfs.
pub fn mount_virtual(kind: &str, folder: &str) -> io::Result<()> {
    Ok(mount(kind, folder, kind, MountFlags::empty(), None)?)
}

/// Loads a module into the kernel, without parameters. EEXIST: it is there
/// already. ENOENT: a symbol that it needs is in no module that was loaded.
pub fn load_module(module: &[u8]) -> io::Result<()> {
    Ok(rustix::system::init_module(module, c"")?)
}

/// Switches the machine off. Returns only if the kernel refuses.
pub fn power_off() -> io::Error {
    match rustix::system::reboot(rustix::system::RebootCommand::PowerOff) {
        Err(errno) => errno.into(),
        Ok(()) => io::Error::other("the kernel did not switch the machine off"),
    }
}
