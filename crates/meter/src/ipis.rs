//! Interrupts that CPUs sent to each other, by the CPU that received them (`/proc/interrupts`).
//!
//! The kernel prints all interrupts for every CPU, so the cost of reading grows with both: the
//! reading `cost.ipis` is that cost. It is incurred outside the window.

use super::{Context, Meter, Output, ProcFile, Running, at_stop};
use bytepath_record::{Fault, Scope, Unit};
use bytepath_sys::interrupts::{self, InterProcessor};

pub(crate) static METER: Meter = Meter {
    name: "ipis",
    summary: "inter-processor interrupts by the CPU that received them (/proc/interrupts)",
    start,
    ..Meter::BASE
};

fn start(context: &Context) -> Result<Box<dyn Running>, Fault> {
    let mut file = ProcFile::open(context.roots.proc.join("interrupts"))?;
    let before = file.read(interrupts::parse)?;
    at_stop(move || Ok(readings(&before, &file.read(interrupts::parse)?)))
}

fn readings(before: &[InterProcessor], after: &[InterProcessor]) -> Output {
    let mut output = Output::default();
    for after in after {
        let Some(before) = before.iter().find(|before| before.cpu == after.cpu) else { continue };
        // 32-bit counters wrap.
        let gained =
            |of: fn(&InterProcessor) -> Option<u32>| Some(of(after)?.wrapping_sub(of(before)?));
        for (metric, count) in [
            ("ipis.reschedule", gained(|row| Some(row.reschedule))),
            ("ipis.call", gained(|row| Some(row.call))),
            ("ipis.tlb", gained(|row| row.tlb)),
        ] {
            if let Some(count) = count {
                output.add(metric, Unit::Count, count.into(), &Scope::Cpu(after.cpu));
            }
        }
    }
    output
}
