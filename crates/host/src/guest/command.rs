//! For tests: a session that runs a program in the guest.

use super::frame::GuestCommand;
use super::nics;
use bytepath_record::Fault;
use bytepath_sys::netlink::Netlink;
use std::io;
use std::process::{Child, Command, Stdio};

/// Starts the program, with the guest's own loopback device up, and its
/// software NICs there, if it has some.
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
