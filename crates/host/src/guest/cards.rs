//! Two network cards of a guest that are joined by a wire: software, by the module of
//! `modules/zcnic`, with what paths require of a hardware card.

use bytepath_record::{Fault, FaultKind};
use bytepath_sys::boot;
use bytepath_sys::netlink::Netlink;
use std::fs::{self, File};
use std::io;
use std::os::fd::AsFd;

/// The cards, the sender's first.
pub const CARDS: [&str; 2] = ["zcnic0", "zcnic1"];

/// The module that drives them.
pub(super) const MODULE: &str = "zcnic";

/// Loads the module once more, so that no setting of an earlier session is left;
/// parameters are `name=value`, with blanks between them.
pub(super) fn as_new(parameters: &str) -> Result<(), Fault> {
    let fault = |e: io::Error| Fault::system(format!("loading the module {MODULE}"), &e);
    match boot::unload_module(MODULE) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(fault(e)),
        _ => {}
    }
    let file = boot::module_file(boot::MODULES.as_ref(), MODULE).ok_or_else(|| {
        let text = format!("the guest was booted without the module {MODULE}");
        Fault::new(FaultKind::Unsupported, text)
    })?;
    fs::read(&file).and_then(|module| boot::load_module(&module, parameters)).map_err(fault)
}

/// Makes the cards, where the guest has the module and they are not there.
#[cfg(feature = "test-support")]
pub(super) fn present() -> Result<(), Fault> {
    match boot::load_kept(MODULE) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => {
            Err(Fault::system(format!("loading the module {MODULE}"), &e))
        }
        _ => Ok(()),
    }
}

/// Moves each card into the network namespace of a process.
pub(super) fn hand_out(pids: [u32; 2]) -> Result<(), Fault> {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_are_separated_from_the_kernels_own() {
        let (own, others) = parameters("zcnic.driver=fbnic quiet  zcnic.drop=3 zcnicx.a=1 x");
        assert_eq!((own.as_str(), others.as_str()), ("driver=fbnic drop=3", "quiet zcnicx.a=1 x"));
    }
}
