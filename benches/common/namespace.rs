//! Other programs in the namespaces and on the CPUs of a stand.

use anyhow::{Context, Result};
use bytepath::record::{Cell, Role};
use bytepath::run::Stand;
use std::process::Command;

/// What runs a program in the network namespace of a role, pinned to the CPU that
/// a cell gives to it; the program and its arguments are still to be added.
pub fn inside(stand: &Stand, cell: &Cell, role: Role) -> Result<Command> {
    let cpu = cell.placement.cpu(role).context("the bench pins both ends")?;
    let mut command = Command::new("nsenter");
    command.args(["-t", &stand.pid(role).to_string(), "-n", "--"]);
    command.args(["taskset", "-c", &cpu.to_string()]);
    Ok(command)
}
