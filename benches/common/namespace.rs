//! Other programs in the namespaces and on the CPUs of a stand.

use bytepath::record::{Cell, Role};
use bytepath::study::OpenTestbed;
use std::process::Command;

/// What runs a program in the network namespace of a role, on the CPU that a cell gives
/// to it, if it gives one; the program and its arguments are still to be added.
pub fn inside(stand: &OpenTestbed, cell: &Cell, role: Role) -> Command {
    let mut command = within(stand, role);
    if let Some(cpu) = cell.placement.cpu(role) {
        command.args(["taskset", "-c", &cpu.to_string()]);
    }
    command
}

/// What runs a program in the network namespace of a role; the program is still to be added.
pub fn within(stand: &OpenTestbed, role: Role) -> Command {
    let mut command = Command::new("nsenter");
    command.args(["-t", &stand.pid(role).to_string(), "-n", "--"]);
    command
}
