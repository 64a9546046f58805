//! Other programs in the namespaces and on the CPUs of an open testbed.

use bytepath::record::{Cell, Role};
use bytepath::study::OpenTestbed;
use std::process::Command;

/// A command that runs a program in a role's network namespace, on the CPU that the cell gives to
/// the role, if any; the program and its arguments are still to be added.
pub fn inside(stand: &OpenTestbed, cell: &Cell, role: Role) -> Command {
    let mut command = within(stand, role);
    if let Some(cpu) = cell.placement.cpu(role) {
        command.args(["taskset", "-c", &cpu.to_string()]);
    }
    command
}

/// A command that runs a program in a role's network namespace; the program is still to be added.
pub fn within(stand: &OpenTestbed, role: Role) -> Command {
    let mut command = Command::new("nsenter");
    command.args(["-t", &stand.pid(role).to_string(), "-n", "--"]);
    command
}
