//! Two network cards of a guest that are joined by a wire: software, by the module of
//! `modules/zcnic`, with what paths ask of a card that hardware would have.

use super::initramfs;
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

/// Loads the module once more, so that no setting of an earlier session is left;
/// parameters are `name=value`, with blanks between them.
pub fn as_new(parameters: &str) -> Result<(), Fault> {
    let fault = |e: io::Error| Fault::system(format!("loading the module {MODULE}"), &e);
    match boot::unload_module(MODULE) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(fault(e)),
        _ => {}
    }
    let file = file(Path::new(initramfs::MODULES)).ok_or_else(|| {
        let text = format!("the guest was booted without the module {MODULE}");
        Fault::new(FaultKind::Unsupported, text)
    })?;
    load(&file, parameters).map_err(fault)
}

/// Makes the cards, where the guest has the module and they are not there.
pub fn present() -> Result<(), Fault> {
    match file(Path::new(initramfs::MODULES)).map(|file| load(&file, "")) {
        Some(Err(e)) if e.kind() != io::ErrorKind::AlreadyExists => {
            Err(Fault::system(format!("loading the module {MODULE}"), &e))
        }
        _ => Ok(()),
    }
}

fn load(file: &Path, parameters: &str) -> io::Result<()> {
    boot::load_module(&fs::read(file)?, parameters)
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

/// The words of a kernel's command line that are parameters of the module
/// (`zcnic.drop=100`, as modprobe(8) has it), without its name; and the others.
pub fn parameters(command_line: &str) -> (String, String) {
    let (mut own, mut others) = (Vec::new(), Vec::new());
    for word in command_line.split_ascii_whitespace() {
        match word.split_once('.') {
            Some((MODULE, parameter)) => own.push(parameter),
            _ => others.push(word),
        }
    }
    (own.join(" "), others.join(" "))
}

/// Where the module is: its name comes after its place in the order of loading.
fn file(folder: &Path) -> Option<PathBuf> {
    let entries = fs::read_dir(folder).ok()?.flatten().map(|entry| entry.path());
    entries.into_iter().find(|path| is_it(path))
}

/// Whether this file is the module.
pub fn is_it(file: &Path) -> bool {
    let name = file.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    name.split_once('-').is_some_and(|(_, name)| name == MODULE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_are_separated_from_the_kernels_own() {
        let (own, others) = parameters("zcnic.driver=fbnic quiet  zcnic.drop=3 zcnicx.a=1 x");
        assert_eq!((own.as_str(), others.as_str()), ("driver=fbnic drop=3", "quiet zcnicx.a=1 x"));
    }

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
