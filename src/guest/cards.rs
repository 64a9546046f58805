//! Two network cards of a guest that are joined by a wire: software, by the module of
//! `modules/zcnic`, with what paths ask of a card that hardware would have.

use super::initramfs;
use super::init::{kernel_parameters, load};
use crate::record::{Fault, FaultKind};
use crate::sys::boot;
use crate::sys::netlink::Netlink;
use std::fs::{self, File};
use std::io;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};

/// The cards, the sender's first.
pub const CARDS: [&str; 2] = ["zcnic0", "zcnic1"];

/// The module that drives them.
pub const MODULE: &str = "zcnic";

/// Loads the module once more, so that no setting of an earlier session is left.
pub fn as_new() -> Result<(), Fault> {
    let fault = |e: io::Error| Fault::system(format!("loading the module {MODULE}"), &e);
    match boot::unload_module(MODULE) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(fault(e)),
        _ => {}
    }
    let file = file(Path::new(initramfs::MODULES)).ok_or_else(|| {
        let text = format!("the guest was booted without the module {MODULE}");
        Fault::new(FaultKind::Unsupported, text)
    })?;
    load(&file, &kernel_parameters()).map_err(fault)
}

/// Moves each card into the network namespace of a process.
pub fn hand_out(pids: [u32; 2]) -> Result<(), Fault> {
    let mut netlink = Netlink::new();
    for (card, pid) in CARDS.iter().zip(pids) {
        let fault = |e: io::Error| Fault::system(format!("handing {card} to an agent"), &e);
        let link = netlink.link(card).map_err(fault)?;
        let index = link.ok_or_else(|| fault(io::ErrorKind::NotFound.into()))?.index;
        let namespace = File::open(format!("/proc/{pid}/ns/net")).map_err(fault)?;
        netlink.set_namespace(index, namespace.as_fd()).map_err(fault)?;
    }
    Ok(())
}

/// Where the module is: its name comes after its place in the order of loading.
fn file(folder: &Path) -> Option<PathBuf> {
    let entries = fs::read_dir(folder).ok()?.flatten().map(|entry| entry.path());
    entries.into_iter().find(|path| is_it(path))
}

/// Whether this file is the module, which stays when it is loaded.
pub fn is_it(file: &Path) -> bool {
    let name = file.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    name.split_once('-').is_some_and(|(_, name)| name == MODULE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_module_is_found_by_its_name_alone() {
        let folder = tempfile::tempdir().unwrap();
        for name in ["000-virtio_pci", "001-not-zcnic", "zcnic"] {
            fs::write(folder.path().join(name), "").unwrap();
        }
        assert_eq!(file(folder.path()), None);
        fs::write(folder.path().join("002-zcnic"), "").unwrap();
        assert_eq!(file(folder.path()).unwrap().file_name().unwrap(), "002-zcnic");
    }
}
