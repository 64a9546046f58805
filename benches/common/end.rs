//! A small program as one end of a connection: this program again, in a role's network namespace.

use crate::namespace::inside;
use crate::plain;
use anyhow::{Context, Result, ensure};
use bytepath::record::{Cell, Role};
use bytepath::study::OpenTestbed;
use std::io::{BufRead, BufReader};
use std::process::{Child, ChildStdout, Command, Stdio};

/// A running end, which does not outlive its parent.
pub struct End {
    child: Child,
    output: BufReader<ChildStdout>,
}

impl End {
    /// Returns the command that starts an end; its arguments are still to be added.
    pub fn command(stand: &OpenTestbed, cell: &Cell, role: Role) -> Result<Command> {
        let mut command = inside(stand, cell, role);
        command.arg(std::env::current_exe()?).arg(plain::PLAIN);
        Ok(command)
    }

    pub fn start(command: &mut Command) -> Result<End> {
        let mut child = command.stdout(Stdio::piped()).spawn()?;
        let output = BufReader::new(child.stdout.take().context("no output")?);
        Ok(End { child, output })
    }

    /// Waits for the next line that it prints.
    pub fn line(&mut self) -> Result<String> {
        let mut line = String::new();
        ensure!(self.output.read_line(&mut line)? > 0, "it ended without a word");
        Ok(line.trim().to_owned())
    }

    pub fn ends_well(mut self) -> Result<()> {
        ensure!(self.child.wait()?.success(), "it failed");
        Ok(())
    }
}

impl Drop for End {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
