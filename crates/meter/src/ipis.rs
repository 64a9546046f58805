//! Interrupts that CPUs sent to each other, by the CPU that received them (`/proc/interrupts`).
//!
//! The kernel prints all interrupts for every CPU, so the cost of reading grows
//! with both: the reading `cost.ipis` says how much. It is taken outside of the window.

use super::{Context, Meter, Output, Reach, Running, Watched};
use bytepath_record::{Fault, Scope, Unit};
use bytepath_sys::interrupts::{self, InterProcessor};

/// The meter `ipis`.
pub(crate) struct Ipis;

impl Meter for Ipis {
    fn name(&self) -> &'static str {
        "ipis"
    }

    fn summary(&self) -> &'static str {
        "inter-processor interrupts by the CPU that received them (/proc/interrupts)"
    }

    fn reach(&self) -> Reach {
        Reach::Machine
    }

    fn start(&self, context: &Context) -> Result<Box<dyn Running>, Fault> {
        let path = context.roots.proc.join("interrupts");
        let mut file = Watched::open(path)?;
        let start = file.read(interrupts::parse)?;
        Ok(Box::new(Window { file, start }))
    }
}

struct Window {
    file: Watched,
    start: Vec<InterProcessor>,
}

impl Running for Window {
    fn stop(mut self: Box<Self>) -> Result<Output, Fault> {
        let stop = self.file.read(interrupts::parse)?;
        let mut output = Output::default();
        for after in &stop {
            let Some(before) = self.start.iter().find(|before| before.cpu == after.cpu) else {
                continue;
            };
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
        Ok(output)
    }
}
