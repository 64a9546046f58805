//! A sender for which a copy engine writes the bytes into a FIFO, from which the stack reads them.
//! The flow's thread may do both, or the stack has a separate thread; then the two share the FIFO
//! with a spin lock, or lock-free.

use crate::connection::Connection;
use crate::connection::userspace::{Hold, Stack};
use crate::copy::fifo::{Counts, Reader, Sharing, Writer, fifo};
use crate::copy::{self, EngineKind, Events, Memories, Memory, Place, Shape};
use crate::path::Opened;
use crate::path::common;
use crate::path::turns::{account, hold, idle, rotation, turn, witness};
use crate::workload::{Account, HalfConfig, PATTERN_PERIOD, Pattern, Phase, Recorder, Tx};
use bytepath_record::{
    Attempt, Facts, Fault, OptionKind, OptionSpec, Options, Reading, Scope, Support, Unit,
};
use bytepath_sys::{Roots, clock};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread::JoinHandle;

/// Options of the offload.
pub(super) const OPTIONS: &[OptionSpec] = &[
    OptionSpec::new("copy", OptionKind::Text, "none").help("engine that copies into a FIFO (bytepath copy --help); none: the stack copies, without one"),
    OptionSpec::new("copy-depth", OptionKind::Count(1, 1024), "8").help("copies in flight"),
    OptionSpec::new("copy-batch", OptionKind::Count(1, 1024), "1").help("copies submitted together, at most copy-depth"),
    OptionSpec::new("fifo", OptionKind::Size(4096, 1 << 30), "2M").help("capacity of the FIFO in bytes"),
    OptionSpec::new("writer", OptionKind::Choice(&["same", "thread", "lock-free"]), "same").help("writer: the thread that polls the stack, or another one, with a spin lock or without"),
    OptionSpec::new("stack-cpu", OptionKind::WordCount("auto", 0, 4095), "auto").help("CPU of the stack's own thread; auto leaves it to the scheduler, away from the writer's"),
];

/// Indices of the memories: the application's source memory, and the FIFO.
const APPLICATION: usize = 0;
const FIFO: usize = 1;

/// Name of the attempt.
const DSA: &str = "dsa";

/// Looks for a usable work queue of a DSA.
pub(super) fn attempt(_: Option<&str>) -> Vec<Attempt> {
    let usable = copy::dsa::found(&Roots::real()).iter().any(|queue| queue.usable);
    vec![common::looked_for(DSA, usable, "there is no work queue that a program can open")]
}

/// True if bytes go through a FIFO.
pub(super) fn is_requested(job: &HalfConfig) -> bool {
    !matches!(job.options.word("copy"), "none" | "")
}

/// Refuses incompatible values, and an engine that the host lacks.
pub(super) fn check(job: &HalfConfig, facts: &Facts) -> Support {
    let (options, engine) = (&job.options, job.options.word("copy"));
    let writer = options.word("writer");
    if !is_requested(job) {
        return match writer {
            "same" | "" => Support::Yes,
            _ => Support::no(format!("writer={writer} writes into a FIFO"), "choose copy=cpu, too"),
        };
    }
    if job.batch == 1 {
        let what = "an engine copies into the FIFO ahead of what is sent: it is for streams";
        return Support::no(what, "leave copy at none");
    }
    if options.number("copy-batch") > options.number("copy-depth") {
        return Support::no("copy-batch is larger than copy-depth", "raise copy-depth");
    }
    match copy::engine(engine) {
        Err(fault) => common::fits::<()>(Err(fault)),
        Ok((kind, _)) if kind.name == DSA => facts.require(
            DSA,
            "bytepath doctor lists what is missing; docs/reference/paths/copy.md describes the setup",
        ),
        Ok(_) => Support::Yes,
    }
}

/// Opens a sender whose bytes this engine copies: the FIFO, the engine, and the source memory,
/// which is used in turn.
pub fn offloaded(
    job: &HalfConfig,
    connection: &dyn Connection,
    (kind, engine_options): (&EngineKind, &Options),
) -> Opened<dyn Tx> {
    let (options, all) = (&job.options, rotation(job));
    let number = |name| options.number(name).unwrap_or(1) as usize;
    let map = |len: usize| {
        Memory::new(len).map_err(|e| {
            Fault::system(format!("memory of {len} bytes for a copy engine"), &e)
                .remedy("choose a smaller rotate, message-size or fifo")
        })
    };
    let memories = Memories::from([map(all as usize)?, map(number("fifo"))?]);
    let pattern = Pattern::new(job.message_size);
    let mut part = vec![0; PATTERN_PERIOD.min(all as usize)];
    for at in (0..all as usize).step_by(part.len()) {
        let len = part.len().min(all as usize - at);
        pattern.fill(&mut part[..len], at as u64);
        memories[APPLICATION].write(at, &part[..len]);
    }
    let shape = Shape { depth: number("copy-depth"), batch: number("copy-batch") };
    let opened = (kind.open)(&memories, shape, engine_options)?;
    let writer = options.word("writer");
    let sharing = if writer == "thread" { Sharing::Lock } else { Sharing::LockFree };
    let (fifo_in, reader) = fifo(sharing, &memories, FIFO, (opened, shape.depth));
    let own = hold(job, connection)?;
    let feeder = match writer {
        "thread" | "lock-free" => {
            let cpu = options.number("stack-cpu").map(|cpu| cpu as u32);
            Feeder::Waiting { hold: hold(job, connection)?, reader, cpu }
        }
        _ => Feeder::Own(reader),
    };
    Ok(Box::new(Offloaded {
        feeder,
        writer: fifo_in,
        hold: own,
        engine: options.word("copy").to_owned(),
        size: job.message_size as usize,
        all: all as usize,
        place: 0,
        idle: 0,
        begun: 0,
    }))
}

struct Offloaded {
    // Dropped before the writer.
    feeder: Feeder,
    writer: Writer,
    hold: Hold,
    engine: String,
    /// Bytes of a message, and of the whole source memory.
    size: usize,
    all: usize,
    /// Position of the stream in the source memory.
    place: usize,
    /// Turns since something was last written.
    idle: u32,
    /// When the stream began, in ticks.
    begun: u64,
}

/// What moves bytes from the FIFO to the stack.
enum Feeder {
    Own(Reader),
    /// A thread that has not started yet.
    Waiting {
        hold: Hold,
        reader: Reader,
        cpu: Option<u32>,
    },
    Thread(StackThread),
    Ended,
}

impl Tx for Offloaded {
    fn witness(&mut self) -> Result<(), Fault> {
        witness(&self.hold)
    }

    fn begin(&mut self) -> Result<(), Fault> {
        self.feeder = match std::mem::replace(&mut self.feeder, Feeder::Ended) {
            Feeder::Waiting { hold, reader, cpu } => {
                Feeder::Thread(StackThread::start(hold, reader, cpu)?)
            }
            other => {
                self.hold.attend();
                other
            }
        };
        self.begun = clock::now();
        Ok(())
    }

    #[inline]
    fn send(&mut self, recorder: &mut Recorder) -> Result<(), Fault> {
        let from = Place { memory: APPLICATION, at: self.place };
        let given = self.writer.write(from, self.size - self.place % self.size)?;
        if given > 0 {
            recorder.moved(given);
            self.place = (self.place + given) % self.all;
        }
        self.turn(given > 0, recorder)
    }

    /// Sends until the gate is at stop, then sends the rest of the FIFO.
    fn send_until_stop(&mut self, recorder: &mut Recorder) -> Result<(), Fault> {
        while recorder.phase() != Phase::Stop {
            self.send(recorder)?;
        }
        while !self.writer.settle()? || self.writer.taken() < self.writer.published() {
            self.turn(false, recorder)?;
        }
        if let Feeder::Thread(thread) = std::mem::replace(&mut self.feeder, Feeder::Ended) {
            return thread.end();
        }
        Ok(())
    }

    fn account(&mut self, recorder: &mut Recorder) -> Result<Account, Fault> {
        let counts = self.writer.counts();
        let source = format!(
            "copied into a FIFO by {}, to the user-space TCP's buffer, and twice more on output",
            self.engine
        );
        let mut account = account(&self.hold, [recorder.total(), counts.copies], &source)?;
        let elapsed = (clock::now() - self.begun) as f64 * clock::tick_seconds();
        let scope = Scope::Flow(self.hold.role, self.hold.connection.index());
        account.readings.extend(readings(&counts, &self.writer.events(), elapsed, &scope));
        Ok(account)
    }
}

impl Offloaded {
    /// Runs the stack, if that is this thread's job. In either case, waits a little if nothing was
    /// written.
    fn turn(&mut self, written: bool, recorder: &mut Recorder) -> Result<(), Fault> {
        self.idle = if written { 0 } else { self.idle.saturating_add(1) };
        match &mut self.feeder {
            Feeder::Own(reader) => {
                let fed = {
                    let mut stack = self.hold.stack();
                    let fed = feed(reader, &mut stack, self.hold.place);
                    let fed = fed.ok_or_else(|| self.hold.cut_off())?;
                    turn(&self.hold, &mut stack, recorder)?;
                    fed
                };
                // A busy engine is polled again without waiting.
                match written || fed > 0 || self.writer.is_under_way() {
                    true => Ok(()),
                    false => idle(&self.hold, recorder),
                }
            }
            Feeder::Thread(thread) if !written => {
                copy::pause(self.idle);
                thread.check()
            }
            _ => Ok(()),
        }
    }
}

/// Copies from the FIFO to the stack as much as there is room for; returns the number of bytes, or
/// `None` if the stack accepts no more.
fn feed(reader: &mut Reader, stack: &mut Stack, place: usize) -> Option<usize> {
    let mut open = true;
    let fed = reader.take(|bytes| {
        let mut done = 0;
        // Two pieces if the stack's buffer wraps in between.
        loop {
            match stack.send_with(place, |piece| bytes.read(done, piece)) {
                Some(0) => return done,
                Some(more) => done += more,
                None => {
                    open = false;
                    return done;
                }
            }
        }
    });
    open.then_some(fed)
}

/// The thread that polls the stack and feeds it from the FIFO.
struct StackThread {
    stop: Arc<AtomicBool>,
    failed: Arc<OnceLock<Fault>>,
    thread: Option<JoinHandle<()>>,
}

impl StackThread {
    fn start(mut hold: Hold, mut reader: Reader, cpu: Option<u32>) -> Result<StackThread, Fault> {
        let (stop, failed) = (Arc::new(AtomicBool::new(false)), Arc::new(OnceLock::new()));
        let (stopped, fault) = (stop.clone(), failed.clone());
        let life = move || {
            if let Err(why) = poll_stack(&mut hold, &mut reader, &stopped) {
                let _ = fault.set(why);
            }
        };
        let thread = Some(copy::helper("stack", cpu, life)?);
        Ok(StackThread { stop, failed, thread })
    }

    /// Errors with the fault of the thread, if it has failed.
    fn check(&self) -> Result<(), Fault> {
        self.failed.get().map_or(Ok(()), |fault| Err(fault.clone()))
    }

    /// Stops the thread once the FIFO is empty.
    fn end(mut self) -> Result<(), Fault> {
        self.join();
        self.check()
    }

    fn join(&mut self) {
        self.stop.store(true, Ordering::Release);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl Drop for StackThread {
    fn drop(&mut self) {
        self.join();
    }
}

fn poll_stack(hold: &mut Hold, reader: &mut Reader, stop: &AtomicBool) -> Result<(), Fault> {
    hold.attend();
    let mut idle = 0_u32;
    loop {
        let stopped = stop.load(Ordering::Acquire);
        let fed = {
            let mut stack = hold.stack();
            let fed = feed(reader, &mut stack, hold.place).ok_or_else(|| hold.cut_off())?;
            stack.poll().map_err(|e| hold.fault(&e))?;
            fed
        };
        if fed > 0 {
            idle = 0;
        } else if stopped {
            return Ok(());
        } else {
            idle = idle.saturating_add(1);
            copy::pause(idle);
        }
    }
}

/// Readings of the writer over the whole stream, which took `elapsed` seconds.
fn readings(counts: &Counts, events: &Events, elapsed: f64, scope: &Scope) -> Vec<Reading> {
    let Counts { attempts, refused, busy, copies, bytes, polls, submitting, polling } = *counts;
    let Events { retries, faults, by_cpu, batches } = *events;
    let tick = clock::tick_seconds();
    let each = |sum: u64| sum as f64 / copies.max(1) as f64;
    let a_second = |sum: u64| sum as f64 / elapsed;
    let time = each(submitting + polling);
    // On other architectures the clock counts nanoseconds.
    let cycles = (tick != 1e-9).then_some(("copy.cycles", Unit::Count, time));
    let levels = [
        ("copy.attempts", Unit::PerSecond, a_second(attempts)),
        ("copy.refused", Unit::PerSecond, a_second(refused)),
        ("copy.busy", Unit::PerSecond, a_second(busy)),
        ("copy.rate", Unit::BytesPerSecond, a_second(bytes)),
        ("copy.made", Unit::PerSecond, a_second(copies)),
        ("copy.time", Unit::Seconds, time * tick),
        ("copy.polls", Unit::Count, each(polls)),
    ];
    let levels = levels.into_iter().chain(cycles);
    let levels = levels.map(|(name, unit, value)| Reading::mean(name, unit, value, scope.clone()));
    let sums = [
        ("copy.copies", Unit::Count, copies),
        ("copy.retries", Unit::Count, retries),
        ("copy.faults", Unit::Count, faults),
        ("copy.by-cpu", Unit::Bytes, by_cpu),
        ("copy.batches", Unit::Count, batches),
    ];
    let sums = sums
        .into_iter()
        .map(|(name, unit, value)| Reading::sum(name, unit, value as f64, scope.clone()));
    levels.chain(sums).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytepath_record::{Cell, Half, OptionValue, Role};

    /// Configuration of a stream with these sender options, all others at their defaults.
    fn job(given: &[(&str, &str)]) -> HalfConfig {
        let mut cell = Cell::new("test", Half::plain("userspace"), Half::plain("socket"));
        for spec in OPTIONS {
            let typed = given.iter().find(|(name, _)| *name == spec.name).map(|(_, value)| *value);
            let value: OptionValue = spec.kind.parse(typed.unwrap_or(spec.default)).unwrap();
            cell.tx.options.0.insert(spec.name.into(), value);
        }
        HalfConfig::stream(&cell, Role::Sender)
    }

    #[test]
    fn refuses_conflicting_options() {
        let said = |job: &HalfConfig| match check(job, &Facts::default()) {
            Support::Yes => String::new(),
            Support::No { reason, .. } => reason,
        };
        assert_eq!(said(&job(&[])), "");
        assert_eq!(said(&job(&[("copy", "cpu:method=best"), ("writer", "thread")])), "");
        for (given, word) in [
            (&[("writer", "thread")][..], "writer=thread writes into a FIFO"),
            (&[("copy", "das")], "there is no copy engine 'das'"),
            (&[("copy", "cpu:methd=x")], "has no option 'methd'"),
            (
                &[("copy", "cpu"), ("copy-depth", "2"), ("copy-batch", "4")],
                "larger than copy-depth",
            ),
            (&[("copy", "dsa")], "dsa was not tried"),
        ] {
            assert!(said(&job(given)).contains(word), "{given:?}: {}", said(&job(given)));
        }
        let messages = HalfConfig { batch: 1, ..job(&[("copy", "cpu")]) };
        assert!(said(&messages).contains("it is for streams"));
    }
}
