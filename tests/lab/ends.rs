//! One half of a path on a real connection, driven without an agent.
#![allow(dead_code)] // Not every test program needs all of it.

use bytepath::connection::{Connection, Flow};
use bytepath::path::DataPath;
use bytepath::record::{Cell, Fault, FaultKind, OptionSpec, Role};
use bytepath::workload::{Account, Group, HalfConfig, Recorder, Rx, Tx};

/// An open half.
pub enum End {
    /// A sender, and its connection.
    Tx(Box<dyn Tx>, Flow),
    /// A receiver.
    Rx(Box<dyn Rx>),
}

impl End {
    /// Sends the witness page.
    pub fn witness(&mut self) -> Result<(), Fault> {
        match self {
            End::Tx(tx, _) => tx.witness(),
            End::Rx(_) => panic!("only a sender sends a witness page"),
        }
    }

    /// Runs this end of the workload `stream`.
    pub fn run(&mut self, recorder: &mut Recorder) -> Result<Account, Fault> {
        match self {
            End::Tx(tx, flow) => {
                tx.begin()?;
                tx.send_until_stop(recorder)?;
                flow.end_stream()?;
                tx.account(recorder)
            }
            End::Rx(rx) => {
                rx.begin()?;
                rx.receive_to_end(recorder)?;
                rx.account(recorder)
            }
        }
    }
}

/// Opens a path's halves for tests.
pub trait Opens {
    /// Opens the half of `role` for the stream of a cell, in a session of its own.
    fn open(&self, role: Role, cell: &Cell, flow: Flow) -> Result<End, Fault> {
        self.open_in(role, cell, flow, &Group::default())
    }

    /// Like [`Opens::open`], for one of several flows of a session.
    fn open_in(&self, role: Role, cell: &Cell, flow: Flow, group: &Group) -> Result<End, Fault>;

    /// The options of the half of a role.
    fn options(&self, role: Role) -> &'static [OptionSpec];
}

impl Opens for DataPath {
    fn open_in(&self, role: Role, cell: &Cell, flow: Flow, group: &Group) -> Result<End, Fault> {
        let job = HalfConfig::stream(cell, role);
        let lacks = || Fault::new(FaultKind::Usage, format!("no {role} half"));
        Ok(match role {
            Role::Sender => End::Tx((self.tx.ok_or_else(lacks)?.open)(&job, &flow, group)?, flow),
            Role::Receiver => End::Rx((self.rx.ok_or_else(lacks)?.open)(&job, &flow, group)?),
        })
    }

    fn options(&self, role: Role) -> &'static [OptionSpec] {
        self.half(role).map_or(&[], |half| half.options)
    }
}
