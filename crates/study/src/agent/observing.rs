//! The profile of an observed program, by the meter that trials use.

use super::samples;
use crate::sampling_rate::affordable_rate;
use bytepath_meter::{self as meter, Context, Prepared, Running};
use bytepath_observe as observe;
use bytepath_profile::attribution::Stream;
use bytepath_profile::{Builder, Owner, Profile, Sample};
use bytepath_record::{Fault, Sampling};
use bytepath_sys::{Roots, thread};
use serde_json::json;

/// The highest rate that is chosen by itself, Hz. A program is observed once, along with
/// what it is there for; trials are sampled apart from those that count.
const GENTLE: u64 = 99;

/// Samples all CPUs from the program's first instruction to its end.
pub struct ProgramSampler {
    roots: Roots,
    /// Ready to sample, or why not; reported once the program exists.
    prepared: Option<Result<Box<dyn Prepared>, Fault>>,
    running: Option<Box<dyn Running>>,
}

impl ProgramSampler {
    /// Gets ready to sample this many times a second and CPU; without a rate, as
    /// often as costs little. Takes about a second, in which it measures what a
    /// sample costs: to be called before anything else is counted.
    pub fn new(rate: Option<u64>) -> Self {
        let roots = Roots::real();
        ProgramSampler { prepared: Some(prepare(rate, &roots)), running: None, roots }
    }
}

impl observe::Sampler for ProgramSampler {
    fn begin(&mut self, _: u32) -> Result<(), Fault> {
        let prepared = self.prepared.take().ok_or_else(nothing)??;
        self.running = Some(prepared.start()?);
        Ok(())
    }

    fn tick(&mut self) {
        // The meter has a thread of its own that empties the rings.
    }

    fn end(&mut self) -> Result<Profile, Fault> {
        let running = self.running.take().ok_or_else(nothing)?;
        let capture = running.stop()?.capture.ok_or_else(nothing)?;
        samples::profile(&capture, &Stream::default(), &self.roots)
    }
}

fn prepare(rate: Option<u64>, roots: &Roots) -> Result<Box<dyn Prepared>, Fault> {
    let cpus =
        thread::allowed().map_err(|e| Fault::system("cannot read the CPUs of this process", &e))?;
    let first = cpus.first().copied().unwrap_or_default();
    let price = meter::sample_price(None, first, roots)?;
    let rate = rate.unwrap_or_else(|| affordable_rate(price.seconds).min(GENTLE));
    let options = json!(Sampling { event: price.event, rate, cpus });
    let context = Context { options, ..Context::idle(roots.clone()) };
    let profile = meter::CATALOG.iter().find(|meter| meter.name == meter::PROFILE_NAME);
    profile.map(|meter| (meter.prepare)(&context)).transpose()?.flatten().ok_or_else(nothing)
}

fn nothing() -> Fault {
    Fault::failed("nothing was sampled")
}

/// The part of a profile that is of these processes. Softirqs that ran on top of
/// their threads are in it, and marked as such.
pub fn of_program(profile: &Profile, pids: &[u32]) -> Profile {
    let mut builder = Builder::new(profile.header.clone());
    let own = |sample: &&Sample| pids.contains(&profile.thread(sample.thread).pid);
    for sample in profile.samples().iter().filter(own) {
        let frames: Vec<_> = profile
            .stack(sample.stack)
            .iter()
            .map(|id| builder.frame(profile.frame(*id).clone()))
            .collect();
        let stack = builder.stack(&frames);
        let thread = builder.thread(profile.thread(sample.thread).clone());
        let owner = match sample.owner {
            Owner::Foreign => Owner::Program,
            other => other,
        };
        builder.add(Sample { stack, thread, owner, ..*sample });
    }
    builder.build()
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytepath_profile::{Frame, Header, Thread};

    #[test]
    fn only_the_program_is_left() {
        let mut builder = Builder::new(Header { title: "t".into(), ..Header::default() });
        let frame = builder.frame(Frame { function: "f".into(), ..Frame::default() });
        let stack = builder.stack(&[frame]);
        for (pid, owner) in [(7, Owner::Foreign), (7, Owner::Softirq(None)), (8, Owner::Foreign)] {
            let thread = builder.thread(Thread { name: "x".into(), pid, tid: pid });
            let sample =
                Sample { stack, thread, owner, cpu: None, time: Some(0.1), count: 1, weight: 1.0 };
            builder.add(sample);
        }
        let own = of_program(&builder.build(), &[7]);
        assert_eq!(own.header.title, "t");
        let owners: Vec<Owner> = own.samples().iter().map(|sample| sample.owner).collect();
        assert_eq!(owners, [Owner::Program, Owner::Softirq(None)]);
        assert_eq!(own.threads().len(), 1);
    }
}
