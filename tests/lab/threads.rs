//! A testbed without hosts: both agents are threads of this process, over pipes, with loopback TCP
//! between them. Also what studies on it share: plans and made-up paths.

use bytepath::connection::{Connection, KERNEL_TCP, Transport};
use bytepath::host::{Adapter, AgentPipe, Attachment, Host, Place};
use bytepath::meter::Meter;
use bytepath::path::{self, DataPath, FlowNic};
use bytepath::record::wire::Nic;
use bytepath::record::{
    Cell, CellId, Facts, Fault, Half, Options, Schedule, Setting, Stream, Support, Trial,
};
use bytepath::study::{Observer, OpenStudy, Plan, agent};
use bytepath::testbed::{Deployment, Site, Testbed};
use bytepath::workload::{Group, HalfConfig, Rx, Tx};
use std::net::Ipv4Addr;
use std::path::Path;
use std::time::Duration;

/// A testbed whose agents have these paths and meters, and no NICs.
pub struct InProcess {
    pub paths: &'static [&'static DataPath],
    pub meters: &'static [&'static Meter],
}

impl Testbed for InProcess {
    fn name(&self) -> &'static str {
        "in-process"
    }
    fn summary(&self) -> &'static str {
        "both agents as threads, over loopback"
    }
    fn probe(&self) -> Support {
        Support::Yes
    }
    fn raise(&self, _: &Site) -> Result<Deployment, Fault> {
        Ok(start(self.paths, self.meters, None))
    }
}

/// Both halves of a made-up path.
pub trait MadeUp {
    const TRANSPORTS: &'static [&'static Transport] = &[KERNEL_TCP];
    fn check(&self, _: &HalfConfig, _: &Facts) -> Support {
        Support::Yes
    }
    fn nic_settings(&self, _: &Options, _: &FlowNic) -> Result<Vec<Setting>, Fault> {
        Ok(Vec::new())
    }
    fn open_tx(
        &self,
        job: &HalfConfig,
        on: &dyn Connection,
        group: &Group,
    ) -> Result<Box<dyn Tx>, Fault>;
    fn open_rx(
        &self,
        job: &HalfConfig,
        on: &dyn Connection,
        group: &Group,
    ) -> Result<Box<dyn Rx>, Fault>;
}

/// A list of data paths with these names, both of whose halves are `$half(NAME)`.
macro_rules! made_up {
    ($half:ident: $($name:literal),*) => {
        &[$(&bytepath::path::DataPath {
            name: $name,
            summary: "made up",
            attempt: |_| Vec::new(),
            uses_io_uring: false,
            tx: Some($crate::threads::made_up!($half($name), open_tx)),
            rx: Some($crate::threads::made_up!($half($name), open_rx)),
            event_loop: None,
            one_at_a_time: None,
        }),*]
    };
    ($half:ident($name:literal), $open:ident) => {
        bytepath::path::HalfPath {
            options: &[],
            transports: <$half as $crate::threads::MadeUp>::TRANSPORTS,
            check: |job, facts| $half($name).check(job, facts),
            nic_settings: |options, wire| $half($name).nic_settings(options, wire),
            huge_pages: |_, _, _| bytepath::path::HugePages::default(),
            gpu: |_, _| None,
            sizes_reads: true,
            open: |job, connection, group| $half($name).$open(job, connection, group),
        }
    };
}
pub(crate) use made_up;

/// The path `socket`, for paths that only wrap it.
pub fn socket() -> &'static DataPath {
    path::find(path::CATALOG, "socket").unwrap()
}

/// Opens a study that is to be resumed.
pub fn open(folder: &Path) -> OpenStudy {
    OpenStudy::open(folder, false).unwrap()
}

/// A study of these paths, the first of them the baseline.
pub fn plan(paths: &[&str], flows: u32, blocks: u32, folder: &Path) -> Plan {
    let congestion = "reno".into();
    let (message_size, read_size) = (65536, 65536);
    let stream = Stream { flows, message_size, read_size, congestion, ..Stream::default() };
    let cell = |name: &&str| Cell {
        stream: stream.clone(),
        ..Cell::new(*name, Half::plain(*name), Half::plain(*name))
    };
    let schedule = Schedule { seed: 7, ..Schedule::trials(blocks, 0.02, 0.1) };
    let cells = paths.iter().map(cell).collect();
    Plan::bare(cells, CellId(paths[0].to_owned()), schedule, folder)
}

/// Starts both agents with these paths and meters. `nic` is the receiver's NIC.
pub fn start(
    paths: &'static [&'static DataPath],
    meters: &'static [&'static Meter],
    nic: Option<Nic>,
) -> Deployment {
    let host = |adapter| {
        let (requests, to_agent) = std::io::pipe().unwrap();
        let (from_agent, replies) = std::io::pipe().unwrap();
        std::thread::spawn(move || agent::serve(requests, replies, paths, meters));
        let pipe = AgentPipe { to_agent: Box::new(to_agent), from_agent: Box::new(from_agent) };
        let loopback = Place { address: Some(Ipv4Addr::LOCALHOST.into()), device: None };
        Thread { pipe: Some(pipe), attachment: Attachment::Given(vec![loopback]), adapter }
    };
    Deployment::of([host(Adapter::Virtual), host(nic.map_or(Adapter::Virtual, Adapter::Known))])
}

/// An agent that runs as a thread.
struct Thread {
    pipe: Option<AgentPipe>,
    attachment: Attachment,
    adapter: Adapter,
}

impl Host for Thread {
    fn take_pipe(&mut self) -> AgentPipe {
        self.pipe.take().unwrap()
    }
    fn attachment(&self) -> &Attachment {
        &self.attachment
    }
    fn adapter(&self) -> Adapter {
        self.adapter.clone()
    }
    fn exit_report(&mut self) -> String {
        "its thread ended".into()
    }
}

/// An observer that prints nothing.
pub struct Silent;

impl Observer for Silent {
    fn trial_ends(&mut self, _: usize, _: &Trial, _: Duration) {}
}
