//! One engine: a thread that opens one end of one flow and moves its bytes.

use super::agent::Event;
use crate::path::{Account, DataPath, Flow, Recorder, read_witness};
use crate::record::{Cell, Fault, FaultKind, ProvenWitness, Role};
use crate::sys::{tcp, thread, uring};
use crate::workload::{Gate, Progress, TallyEnd};
use std::net::{Shutdown, TcpStream};
use std::os::fd::AsFd;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

/// An engine that is open and waits for [`Engine::start`], or runs.
#[derive(Debug)]
pub(super) struct Engine {
    /// Thread id.
    pub tid: u32,
    /// Names of the calls it makes.
    pub calls: &'static [&'static str],
    start: Sender<bool>,
}

/// How an engine ended.
#[derive(Debug)]
pub(super) struct Ended {
    /// Which flow.
    pub flow: u32,
    /// What it knows, or why it failed.
    pub result: Result<FlowEnd, Fault>,
}

/// What an engine knows at its end.
#[derive(Clone, Debug)]
pub(super) struct FlowEnd {
    /// Its path's account.
    pub account: Account,
    /// Its counts.
    pub tally: TallyEnd,
    /// Receiver, first flow: what the witness page showed.
    pub witness: Option<ProvenWitness>,
}

/// Everything a thread needs to become an engine.
pub(super) struct Assignment {
    pub path: &'static dyn DataPath,
    pub role: Role,
    pub cell: Arc<Cell>,
    pub index: u32,
    pub socket: TcpStream,
    pub gate: Arc<Gate>,
    pub progress: Arc<Progress>,
    pub events: Sender<Event>,
}

/// How long opening may take: memory is touched page by page, and first
/// touches can be slow.
pub(super) const OPENING: Duration = Duration::from_secs(60);

impl Engine {
    /// Starts the thread and waits until its end of the path is open. The ring
    /// of an io_uring belongs to the thread that made it, and memory to the
    /// CPU that touched it first, so everything happens on that thread.
    pub fn open(assignment: Assignment) -> Result<Engine, Fault> {
        let (opened, wait_open) = channel();
        let (start, wait_start) = channel();
        let name = format!("{}/{}", assignment.role, assignment.index);
        std::thread::Builder::new()
            .name(name.clone())
            .spawn(move || life(assignment, &opened, &wait_start))
            .map_err(|e| Fault::system(format!("cannot start thread {name}"), &e))?;
        match wait_open.recv_timeout(OPENING) {
            Ok(Ok((tid, calls))) => Ok(Engine { tid, calls, start }),
            Ok(Err(fault)) => Err(fault),
            Err(_) => Err(Fault::new(
                FaultKind::System,
                format!("thread {name} did not open its path within {} s", OPENING.as_secs()),
            )),
        }
    }

    /// Lets the bytes flow. `detailed` switches call and size statistics on.
    pub fn start(&self, detailed: bool) {
        // An engine that is gone has said so by an event of its own.
        let _ = self.start.send(detailed);
    }
}

type Opened = Result<(u32, &'static [&'static str]), Fault>;

fn life(assignment: Assignment, opened: &Sender<Opened>, start: &Receiver<bool>) {
    let (events, flow) = (assignment.events.clone(), assignment.index);
    let result = catch_unwind(AssertUnwindSafe(|| play(assignment, opened, start)));
    let result = match result {
        Ok(None) => return,
        Ok(Some(result)) => result,
        Err(panic) => Err(Fault::new(
            FaultKind::System,
            format!("the engine panicked: {}", panic_text(panic.as_ref())),
        )),
    };
    // Nobody listens any more only when the agent is ending anyway.
    let _ = events.send(Event::Ended(Box::new(Ended { flow, result })));
}

/// Opens, waits, runs. None: it never came to run, and whoever waited for it
/// to open knows why.
fn play(
    assignment: Assignment,
    opened: &Sender<Opened>,
    start: &Receiver<bool>,
) -> Option<Result<FlowEnd, Fault>> {
    let Assignment { path, role, cell, index, socket, gate, progress, .. } = assignment;
    let open = || -> Result<_, Fault> {
        if let Some(cpu) = cell.placement.cpu(role) {
            thread::pin(cpu).map_err(|e| Fault::system(format!("cannot pin to CPU {cpu}"), &e))?;
        }
        if let Some(cpu) = cell.placement.io_wq.filter(|_| path.uses_io_uring()) {
            uring::pin_workers(cpu).map_err(|e| {
                Fault::system(format!("cannot pin io_uring's workers to CPU {cpu}"), &e)
                    .remedy("leave io-wq out; it takes Linux 5.14 and a CPU of this process")
            })?;
        }
        let duplicate =
            || socket.try_clone().map_err(|e| Fault::system("cannot duplicate the connection", &e));
        let (own, watch) = (duplicate()?, duplicate()?);
        let mut endpoint = path.open(role, &cell, Flow { socket: own, index })?;
        if role == Role::Sender && index == 0 {
            endpoint.witness()?;
        }
        Ok((endpoint, Flow { socket: watch, index }))
    };
    let (mut endpoint, watch) = match open() {
        Ok(open) => open,
        Err(fault) => {
            let _ = opened.send(Err(fault));
            return None;
        }
    };
    opened.send(Ok((thread::id(), endpoint.calls()))).ok()?;
    let detailed = start.recv().ok()?;

    let run = || -> Result<FlowEnd, Fault> {
        let witness = match role {
            Role::Receiver if index == 0 => Some(read_witness(&watch)?),
            _ => None,
        };
        let mut recorder = Recorder::new(role, gate, progress, detailed);
        let account = endpoint.run(&mut recorder)?;
        let tally = recorder.finish();
        if account.ledger.delivered != tally.total {
            let (entered, moved) = (account.ledger.delivered, tally.total);
            return Err(Fault::new(
                FaultKind::System,
                format!("the ledger has {entered} bytes, but {moved} were moved"),
            ));
        }
        Ok(FlowEnd { account, tally, witness })
    };
    let result = run();
    // The peer waits for this end to close. The session holds the socket open
    // (to read its state), so closing our copy would not be enough.
    let how = if result.is_ok() { Shutdown::Write } else { Shutdown::Both };
    let _ = tcp::shutdown(watch.socket.as_fd(), how);
    Some(result)
}

fn panic_text(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("no message").to_owned()
}
