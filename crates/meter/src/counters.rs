//! Hardware and software events as in `perf stat`, for each group of threads that works for a role:
//! perf_event_open(2) on each thread, opened while the stream starts and enabled at the edge of the
//! window, so that it contains only one ioctl per event.
//!
//! Events that the machine cannot count are left out, so that a zero was always counted. If
//! hardware events take turns, each count is scaled by the time enabled over the time counted, as
//! in `perf stat`, and a reading contains the fraction of time counted.

use super::workers::{self, Worker};
use super::{Context, Meter, Output, Reach, Running, at_stop};
use bytepath_profile::counts::EVENTS;
use bytepath_record::{Attempt, Fault, Outcome, Reading, Role, Scope, Unit, joined};
use bytepath_sys::perf::{Event, Tally, ThreadCount};
use bytepath_sys::{Roots, perf, thread};
use std::collections::BTreeSet;
use std::io;
use std::time::Instant;

/// Not in every study: each context switch has to switch the thread's counters, too.
pub(crate) static METER: Meter = Meter {
    name: "counters",
    summary: "task-clock, switches, faults, cycles, ... of groups of threads, as perf stat; on request",
    reach: Reach::Agent,
    usual: false,
    attempt: |roots| Some(Attempt { name: ATTEMPT.to_owned(), outcome: attempt(roots) }),
    probe: |facts| facts.require(ATTEMPT, REMEDY),
    prepare: |context| {
        let counters = Counters::open(context)?;
        Ok(Some(Box::new(|| counters.start())))
    },
    // For windows after the first.
    start: |context| Counters::open(context)?.start(),
    ..Meter::BASE
};

const ATTEMPT: &str = "perf.counters";
const REMEDY: &str = "run as root or with CAP_PERFMON, or lower kernel.perf_event_paranoid to 1";

fn attempt(roots: &Roots) -> Outcome {
    let open =
        |name: &'static str| Some((name, ThreadCount::open(&event(name, roots)?, thread::id())));
    let all: Vec<_> = EVENTS.into_iter().filter_map(open).collect();
    let clock = all.first().and_then(|(_, clock)| clock.as_ref().err());
    match clock.and_then(io::Error::raw_os_error) {
        Some(errno) => Outcome::Errno(errno),
        None => {
            let absent = all.iter().filter(|(_, count)| count.is_err()).map(|(name, _)| *name);
            let absent = joined(absent, ", ");
            let without = if absent.is_empty() { "" } else { "without " };
            Outcome::Works(format!("{without}{absent}"))
        }
    }
}

fn event(name: &str, roots: &Roots) -> Option<Event> {
    Event::parse(name, &roots.sys).ok()
}

/// Counts of a thread, in the order of [`EVENTS`]; `None` for an event that cannot be counted.
type Tallies = [Option<Tally>; EVENTS.len()];

/// A role, and the name of a kind of its threads.
type Group = (Role, &'static str);

/// Threads with their counters, which are not enabled yet.
struct Counters {
    role: Role,
    threads: Vec<(Group, Worker, [Option<ThreadCount>; EVENTS.len()])>,
    missed: Vec<String>,
}

impl Counters {
    fn open(context: &Context) -> Result<Counters, Fault> {
        let mut counters = Counters { role: context.role, threads: Vec::new(), missed: Vec::new() };
        let role = context.role;
        let own = workers::of_role(context).into_iter().map(|one| ((role, one.group()), one));
        let guest = workers::of_guest(context).into_iter();
        let guest = guest.map(|one| ((role.peer(), one.group_in_qemu()), one));
        for (group, worker) in own.chain(guest) {
            let mut counts = std::array::from_fn(|_| None);
            let mut ended = false;
            for (count, name) in counts.iter_mut().zip(EVENTS) {
                let Some(event) = event(name, &context.roots) else { continue };
                match ThreadCount::open(&event, worker.tid) {
                    Ok(opened) => *count = Some(opened),
                    Err(e) => match e.raw_os_error() {
                        Some(libc::ENOENT | libc::EOPNOTSUPP | libc::ENODEV | libc::ENXIO) => {}
                        Some(libc::ESRCH) => ended = true,
                        code => return Err(refused(name, &worker, &e, code)),
                    },
                }
            }
            if ended {
                counters.missed.push(format!("counters: {} had ended", worker.name));
            } else {
                counters.threads.push((group, worker, counts));
            }
        }
        Ok(counters)
    }

    fn each(&self, call: fn(&ThreadCount) -> io::Result<()>) -> Result<(), Fault> {
        let mut all = self.threads.iter().flat_map(|(.., counts)| counts.iter().flatten());
        all.try_for_each(call).map_err(|e| Fault::system("cannot switch a perf event", &e))
    }

    fn start(self) -> Result<Box<dyn Running>, Fault> {
        let begin = Instant::now();
        self.each(ThreadCount::enable)?;
        at_stop(move || {
            self.each(ThreadCount::disable)?;
            self.readings(begin.elapsed().as_secs_f64())
        })
    }

    fn readings(self, wall: f64) -> Result<Output, Fault> {
        let read = |count: &Option<ThreadCount>| count.as_ref().map(ThreadCount::read).transpose();
        let mut threads: Vec<(Group, Worker, Tallies)> = Vec::new();
        for (group, worker, counts) in self.threads {
            let mut tallies = Tallies::default();
            for (tally, count) in tallies.iter_mut().zip(&counts) {
                *tally = read(count).map_err(|e| Fault::system("cannot read a perf event", &e))?;
            }
            threads.push((group, worker, tallies));
        }
        let clock = |(.., tallies): &(Group, Worker, Tallies)| {
            tallies[0].map_or(0.0, |clock| clock.count as f64)
        };
        let threads = workers::at_work(threads, |(_, worker, _)| &worker.name, clock);
        let mut output = Output { warnings: self.missed, ..Output::default() };
        let of_wall = |scope| Reading::sum("counters.wall", Unit::Seconds, wall, scope);
        output.readings.push(of_wall(Scope::Role(self.role)));
        // Threads of one group need not be adjacent.
        let groups: BTreeSet<Group> = threads.iter().map(|(group, ..)| *group).collect();
        for (role, group) in groups {
            let members = threads.iter().filter(|(of, ..)| *of == (role, group));
            let tallies: Vec<&Tallies> = members.map(|(.., tallies)| tallies).collect();
            let scope = Scope::Threads(role, group.to_owned());
            output.readings.extend(readings(&tallies, &scope));
            // The agent in a guest has its own clock.
            output.readings.extend((role != self.role).then(|| of_wall(scope)));
        }
        Ok(output)
    }
}

fn refused(name: &str, worker: &Worker, error: &io::Error, code: Option<i32>) -> Fault {
    let fault = Fault::system(format!("perf event {name} of thread {}", worker.name), error);
    match code {
        Some(libc::EACCES | libc::EPERM) => fault.remedy(REMEDY),
        Some(libc::EMFILE) => fault.remedy(format!(
            "raise the limit of open files (ulimit -n): each thread needs {}",
            EVENTS.len()
        )),
        _ => fault,
    }
}

/// Returns the readings of a group of threads.
fn readings(threads: &[&Tallies], scope: &Scope) -> Vec<Reading> {
    let number = threads.len() as f64;
    let mut all = vec![Reading::mean("counters.threads", Unit::Count, number, scope.clone())];
    for (at, name) in EVENTS.iter().enumerate() {
        let tallies: Option<Vec<Tally>> = threads.iter().map(|tallies| tallies[at]).collect();
        let scaled = |tally: &Tally| match (tally.enabled, tally.running) {
            // The event never had its turn: the count is unknown.
            (1.., 0) => None,
            // The thread never ran.
            (0, _) => Some(0.0),
            (enabled, running) => Some(tally.count as f64 * enabled as f64 / running as f64),
        };
        let sum = |tallies: &Vec<Tally>| tallies.iter().map(scaled).sum::<Option<f64>>();
        let Some((tallies, sum)) = tallies.and_then(|all| sum(&all).map(|sum| (all, sum))) else {
            continue;
        };
        let (unit, scale) = match event(name, &Roots::real()).map(|event| event.unit()) {
            Some(perf::Unit::Nanoseconds) => (Unit::Seconds, 1e-9),
            _ => (Unit::Count, 1.0),
        };
        let metric = format!("counters.{name}");
        all.push(Reading::sum(&metric, unit, sum * scale, scope.clone()));
        let time = |of: fn(&Tally) -> u64| tallies.iter().map(of).sum::<u64>() as f64;
        let counted = time(|tally| tally.running) / time(|tally| tally.enabled);
        if counted.is_finite() {
            let metric = format!("{metric}.counted");
            all.push(Reading::mean(metric, Unit::Ratio, counted, scope.clone()));
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scales_counters_by_their_turns_and_leaves_out_unknown_ones() {
        let tally = |count, enabled, running| Some(Tally { count, enabled, running, lost: None });
        let at = |name: &str| EVENTS.iter().position(|event| *event == name).unwrap();
        let mut one = Tallies::default();
        one[at("task-clock")] = tally(2_000_000_000, 4, 4);
        one[at("cycles")] = tally(3000, 4, 2);
        one[at("branches")] = tally(0, 4, 0);
        one[at("instructions")] = tally(7, 4, 4);
        let mut other = Tallies::default();
        other[at("task-clock")] = tally(500_000_000, 4, 4);
        other[at("cycles")] = tally(0, 0, 0);
        other[at("branches")] = tally(50, 4, 4);
        let scope = Scope::Threads(Role::Sender, "flows".into());
        let all = readings(&[&one, &other], &scope);
        let value = |metric: &str| all.iter().find(|r| r.metric == metric).map(|r| r.value);
        assert_eq!(value("counters.threads"), Some(2.0));
        assert_eq!(value("counters.task-clock"), Some(2.5));
        assert_eq!(
            (value("counters.cycles"), value("counters.cycles.counted")),
            (Some(6000.0), Some(0.5))
        );
        assert_eq!(value("counters.branches"), None, "one of them never had its turn");
        assert_eq!(value("counters.instructions"), None, "one of them cannot be counted");
        assert_eq!(value("counters.page-faults"), None);
    }
}
