//! For tests: runs a program in the guest as a session.

use super::frame::GuestCommand;
use super::nics;
use bytepath_record::Fault;
use bytepath_sys::netlink::Netlink;
use std::io;
use std::process::{Child, Command, Stdio};

/// Starts the program, after setting up the guest's loopback device and its software NICs, if it
/// has the module.
pub(super) fn start(command: &GuestCommand) -> Result<Child, Fault> {
    nics::ensure_loaded()?;
    let mut netlink = Netlink::new();
    let up = netlink.link("lo").and_then(|lo| {
        let lo = lo.ok_or(io::ErrorKind::NotFound)?;
        netlink.set_up(lo.index)
    });
    up.map_err(|e| Fault::system("bringing up the loopback device", &e))?;
    let (program, arguments) =
        command.words.split_first().ok_or_else(|| Fault::usage("no program is named"))?;
    let mut child = Command::new(program);
    child.args(arguments).envs(command.environment.iter().map(|(name, value)| (name, value)));
    child.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    child.spawn().map_err(|e| Fault::system(format!("starting {program}"), &e))
}
