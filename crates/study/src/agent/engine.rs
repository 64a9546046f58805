//! One engine: a thread that opens one end of one flow, or of the flows of an event loop, and plays
//! its actor.

use bytepath_engine::connection::{Connection, read_witness};
use bytepath_engine::path::DataPath;
use bytepath_engine::workload::{
    self, Actor, Detail, Direction, EventLoop, FlowEnd, Gate, Group, LoopActor, PlayLoop, Progress,
    Recorder, Workload,
};
use bytepath_host::spawn_thread;
use bytepath_record::wire::{OPENING, Request};
use bytepath_record::{Cell, Fault, ProvenWitness, Role};
use bytepath_sys::{thread, uring};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};

/// An engine that is open and waits for [`Engine::start`], or runs.
#[derive(Debug)]
pub(super) struct Engine {
    pub tid: u32,
    start: Sender<Detail>,
}

/// An event for the agent's main loop.
pub(super) enum Event {
    /// A line from the controller.
    Request(Result<Request, Fault>),
    /// The controller is gone.
    HungUp,
    /// The engine of a flow has returned.
    EngineEnded { flow: u32, result: EngineResult },
}

/// The counts of an engine's actor, and the witness page from the receiver's first flow.
pub(super) type EngineResult = Result<Box<(FlowEnd, Option<ProvenWitness>)>, Fault>;

/// Everything a thread needs to become an engine.
pub(super) struct Assignment {
    pub halves: Halves,
    pub role: Role,
    pub cell: Arc<Cell>,
    /// One connection, or those of an event loop.
    pub connections: Vec<Arc<dyn Connection>>,
    /// Number of connections of all threads.
    pub all: usize,
    /// State that the flows of the session share, by direction.
    pub groups: [Arc<Group>; 2],
    pub gate: Arc<Gate>,
    pub progress: Arc<Progress>,
    pub events: Sender<Event>,
}

impl Assignment {
    /// Returns the number of the thread, which is that of its first flow.
    fn number(&self) -> u32 {
        self.connections.first().map_or(0, |connection| connection.index())
    }

    /// True if this thread does this end's part of the witness page.
    fn has_witness(&self) -> bool {
        self.halves.workload.has_witness(&self.cell) && self.number() == 0
    }
}

/// The paths of both directions of a cell, and the workload that uses them.
#[derive(Clone, Copy)]
pub(super) struct Halves {
    pub workload: &'static Workload,
    pub tx: &'static DataPath,
    pub rx: &'static DataPath,
}

impl Engine {
    /// Starts the thread and waits until its end of the path is open. An io_uring ring belongs to
    /// the thread that created it, and memory to the NUMA node of the CPU that touched it first, so
    /// everything happens on that thread.
    pub(crate) fn open(assignment: Assignment) -> Result<Engine, Fault> {
        let (opened, wait_open) = channel();
        let (start, wait_start) = channel();
        let name = format!("{}/{}", assignment.role, assignment.number());
        spawn_thread(&name, move || life(assignment, &opened, &wait_start))?;
        match wait_open.recv_timeout(OPENING) {
            Ok(opened) => opened.map(|tid| Engine { tid, start }),
            Err(RecvTimeoutError::Timeout) => Err(Fault::failed(format!(
                "thread {name} did not open its path within {} s",
                OPENING.as_secs()
            ))),
            Err(RecvTimeoutError::Disconnected) => {
                Err(Fault::failed(format!("thread {name} panicked while it opened its path"))
                    .remedy("report this as a bug, with its output"))
            }
        }
    }

    /// Lets the bytes flow.
    pub(crate) fn start(&self, detail: Detail) {
        // If the engine has ended, an event already reports it.
        let _ = self.start.send(detail);
    }
}

type Opened = Result<u32, Fault>;

fn life(assignment: Assignment, opened: &Sender<Opened>, start: &Receiver<Detail>) {
    let (events, flow) = (assignment.events.clone(), assignment.number());
    let result = catch_unwind(AssertUnwindSafe(|| play(assignment, opened, start)));
    let panicked = |text| Some(Err(Fault::failed(format!("the engine panicked: {text}"))));
    if let Some(result) = result.unwrap_or_else(|panic| panicked(panic_text(panic.as_ref()))) {
        // The agent receives no more events only if it is ending anyway.
        let _ = events.send(Event::EngineEnded { flow, result });
    }
}

/// Opens, waits, plays. `None` if it ended before it played; the caller waiting in `Engine::open`
/// then gets the reason.
fn play(
    assignment: Assignment,
    opened: &Sender<Opened>,
    start: &Receiver<Detail>,
) -> Option<EngineResult> {
    let open = Open::of(&assignment).map_err(|fault| drop(opened.send(Err(fault)))).ok()?;
    opened.send(Ok(thread::id())).ok()?;
    let detail = start.recv().ok()?;
    let connections = assignment.connections.clone();
    let result = open.play(assignment, detail);
    // The peer waits for this end to close. The session holds the connections (to read
    // their state), so letting go of ours would not be enough.
    connections.iter().for_each(|connection| match result {
        Ok(_) => connection.close(),
        Err(_) => connection.cut(),
    });
    Some(result)
}

/// The opened end of a thread's flows.
enum Open {
    /// Both halves of one flow, as far as the workload needs them here.
    Flow {
        tx: Option<Box<dyn workload::Tx>>,
        rx: Option<Box<dyn workload::Rx>>,
    },
    Loop(Box<dyn EventLoop>, PlayLoop),
}

impl Open {
    fn of(assignment: &Assignment) -> Result<Open, Fault> {
        let Assignment { halves, role, cell, connections, groups, .. } = assignment;
        let uses_io_uring = halves.tx.uses_io_uring || halves.rx.uses_io_uring;
        if let Some(cpu) = cell.placement.of_thread(*role, assignment.number()) {
            thread::pin(cpu).map_err(|e| Fault::system(format!("cannot pin to CPU {cpu}"), &e))?;
        }
        if let Some(cpu) = cell.placement.io_wq.filter(|_| uses_io_uring) {
            uring::pin_workers(cpu).map_err(|e| {
                Fault::system(format!("cannot pin io_uring's workers to CPU {cpu}"), &e).remedy(
                    "leave out io-wq; it requires Linux 5.14 and a CPU available to this process",
                )
            })?;
        }
        match (halves.tx.loop_of(halves.workload), halves.workload.play_loop) {
            (Some(open), Some(play)) => {
                let job = |direction| (halves.workload.job)(cell, *role, direction);
                let jobs = [&job(Direction::Send), &job(Direction::Receive)];
                let mut event_loop = open(jobs, connections, &groups[0])?;
                if *role == Role::Sender && assignment.has_witness() {
                    event_loop.witness()?;
                }
                Ok(Open::Loop(event_loop, play))
            }
            _ => Open::flow(assignment),
        }
    }

    fn flow(assignment: &Assignment) -> Result<Open, Fault> {
        let Assignment { halves, role, cell, connections, groups, .. } = assignment;
        let (mut sending, mut receiving) = (None, None);
        let connection = only(connections)?.as_ref();
        for &direction in (halves.workload.halves)(*role) {
            let job = (halves.workload.job)(cell, *role, direction);
            let group = &groups[direction as usize];
            match direction {
                Direction::Send => {
                    let path = halves.tx.tx.ok_or_else(|| lacks(halves.tx, direction))?;
                    sending = Some((path.open)(&job, connection, group)?);
                }
                Direction::Receive => {
                    let path = halves.rx.rx.ok_or_else(|| lacks(halves.rx, direction))?;
                    receiving = Some((path.open)(&job, connection, group)?);
                }
            }
        }
        if let (Role::Sender, true, Some(tx)) = (role, assignment.has_witness(), &mut sending) {
            tx.witness()?;
        }
        Ok(Open::Flow { tx: sending, rx: receiving })
    }

    fn play(self, assignment: Assignment, detail: Detail) -> EngineResult {
        let expected = assignment.has_witness() && assignment.role == Role::Receiver;
        let Assignment { halves, role, cell, connections, all, groups, gate, progress, .. } =
            assignment;
        let first = connections.first().filter(|_| expected);
        let witness = first.map(|connection| read_witness(connection.as_ref())).transpose()?;
        let recorder = Recorder::new(role == Role::Sender, gate, progress, detail);
        let end = match self {
            Open::Flow { tx, rx } => {
                let connection = only(&connections)?.clone();
                let actor = Actor { role, cell, connection, tx, rx, recorder };
                halves.workload.play[role as usize](actor)?
            }
            Open::Loop(event_loop, play) => {
                // The event loop was opened with the first group.
                let [_, group] = groups;
                play(LoopActor { role, cell, connections, event_loop, group, all, recorder })?
            }
        };
        let (entered, moved) = (end.account.ledger.delivered, end.bytes);
        if entered != moved {
            return Err(Fault::failed(format!(
                "the ledger has {entered} bytes, but {moved} were moved"
            )));
        }
        Ok(Box::new((end, witness)))
    }
}

/// Returns the connection of a thread that has exactly one.
fn only(connections: &[Arc<dyn Connection>]) -> Result<&Arc<dyn Connection>, Fault> {
    match connections {
        [connection] => Ok(connection),
        others => Err(Fault::failed(format!("{} connections for one flow", others.len()))
            .remedy("report this as a bug")),
    }
}

/// Fault of a missing half. `spec` accepts only cells whose halves exist.
fn lacks(path: &DataPath, direction: Direction) -> Fault {
    let text = format!("path '{}' has no half that can {direction:?}", path.name);
    Fault::usage(text).remedy("choose another path for that direction; 'bytepath paths' lists them")
}

fn panic_text(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("no message").to_owned()
}
