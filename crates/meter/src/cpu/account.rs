//! The kernel's account of each CPU's time: makes the map, loads the programs, attaches them for a
//! window and reads the result.

use super::programs::{Members, Programs, RoleProcesses, class, identify, state};
use crate::bpf::{self, Named, attach_all};
use bytepath_record::{Fault, Role};
use bytepath_sys::Roots;
use bytepath_sys::bpf::{Hook, Link, Map, MapKind, Program};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// System calls are watched at the beginning of every Nth window of a process, and during one of
/// this many ticks of a window. Watching a call takes 0.12 to 0.19 us: if it were done all the
/// time, paths with many calls would lose 2 % of their rate and others nothing.
const WINDOWS: u64 = 8;
const TICKS: u64 = 10;

/// Programs that are loaded but not attached.
#[derive(Debug)]
pub(super) struct Account {
    states: Map,
    mark: Program,
    programs: Vec<Named<Program>>,
    calls: Vec<Named<Program>>,
    watched: Mutex<Watched>,
}

/// System call times observed since this process began.
#[derive(Debug, Default)]
struct Watched {
    windows: u64,
    /// Seconds by class; only those of threads matter.
    parts: [f64; class::COUNT],
}

impl Account {
    /// Needs typed tracepoints: Linux 5.12 and later with `CONFIG_DEBUG_INFO_BTF`. `cpus`: one more
    /// than the highest number of a CPU.
    pub(super) fn load(roots: &Roots, role: Role, cpus: u32) -> Result<Account, Fault> {
        bpf::refuse_emulated(roots)?;
        let btf = bpf::types(roots)?;
        let members = Members::of(&btf)?;
        let states = bpf::map(MapKind::Array, "bytepath_cpu", 4, state::SIZE, cpus)?;
        let programs =
            Programs { members, states: &states, processes: role_processes(members, role)? };
        let (softirq, irq) = (state::UNDER_SOFTIRQ, state::UNDER_IRQ);
        let always = [
            ("sched_switch", programs.switch()),
            ("softirq_entry", programs.interrupt(class::SOFTIRQ, softirq)),
            ("softirq_exit", programs.resume(softirq)),
            ("irq_handler_entry", programs.interrupt(class::IRQ, irq)),
            ("irq_handler_exit", programs.resume(irq)),
        ];
        let calls = [("sys_enter", programs.call(false)), ("sys_exit", programs.call(true))];
        Ok(Account {
            programs: bpf::load_all(&btf, always)?,
            calls: bpf::load_all(&btf, calls)?,
            mark: bpf::load(Hook::OnDemand, "mark", programs.mark())?,
            watched: Mutex::default(),
            states,
        })
    }

    /// Starts counting on these CPUs. Those that are not online are left out.
    pub(super) fn start(self: &Arc<Self>, cpus: &[u32]) -> Result<Counting, Fault> {
        let links = attach_all(&self.programs)?;
        let mut watched = self.watched();
        let watch = watched.windows.is_multiple_of(WINDOWS);
        watched.windows += 1;
        drop(watched);
        let mut counting = Counting {
            account: self.clone(),
            _links: links,
            calls: None,
            ticks: 0,
            failed: None,
            start: self.states(cpus.iter().copied())?,
        };
        if watch {
            counting.watch()?;
        }
        Ok(counting)
    }

    /// Returns the current accounts of those of these CPUs that are online.
    fn states(&self, cpus: impl Iterator<Item = u32>) -> Result<Vec<State>, Fault> {
        cpus.filter_map(|cpu| self.state(cpu).transpose()).collect()
    }

    fn state(&self, cpu: u32) -> Result<Option<State>, Fault> {
        let fault = |e| Fault::system(format!("cannot read the account of CPU {cpu}"), &e);
        match self.mark.run_on(cpu) {
            Err(e) if e.raw_os_error() == Some(libc::ENXIO) => return Ok(None),
            other => other.map_err(fault)?,
        }
        let value = self.states.lookup(&cpu.to_ne_bytes()).map_err(fault)?;
        Ok(Some(State::decode(cpu, &value)))
    }

    fn watched(&self) -> MutexGuard<'_, Watched> {
        self.watched.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// An account that is being kept for a window.
#[derive(Debug)]
pub(super) struct Counting {
    account: Arc<Account>,
    _links: Vec<Link>,
    /// While system calls are watched: the links, and the accounts when watching began.
    calls: Option<(Vec<Link>, Vec<State>)>,
    ticks: u64,
    failed: Option<Fault>,
    start: Vec<State>,
}

impl Counting {
    /// Starts or stops watching system calls from time to time.
    pub(super) fn tick(&mut self) {
        let done = match (&self.calls, self.ticks % TICKS) {
            (Some(_), _) => self.stop_watching(),
            (None, 0) if self.ticks > 0 => self.watch(),
            (None, _) => Ok(()),
        };
        self.ticks += 1;
        self.failed = self.failed.take().or(done.err());
    }

    fn watch(&mut self) -> Result<(), Fault> {
        let links = attach_all(&self.account.calls)?;
        self.calls = Some((links, self.states()?));
        Ok(())
    }

    fn stop_watching(&mut self) -> Result<(), Fault> {
        let Some((links, start)) = self.calls.take() else { return Ok(()) };
        let stop = self.states()?;
        drop(links);
        let mut watched = self.account.watched();
        for spent in Spent::of_all(&start, &stop) {
            watched.parts.iter_mut().zip(spent.parts).for_each(|(sum, part)| *sum += part);
        }
        Ok(())
    }

    fn states(&self) -> Result<Vec<State>, Fault> {
        self.account.states(self.start.iter().map(|state| state.cpu))
    }

    /// Ends the account; returns the times of each CPU that was online at both edges.
    pub(super) fn stop(mut self) -> Result<Vec<Spent>, Fault> {
        self.stop_watching()?;
        let mut spent = Spent::of_all(&self.start, &self.states()?);
        let watched = self.account.watched();
        spent.iter_mut().for_each(|spent| spent.split(&watched.parts));
        self.failed.map_or(Ok(spent), Err)
    }
}

/// The account of a CPU at one moment.
#[derive(Clone, Debug, PartialEq)]
struct State {
    cpu: u32,
    /// Time in ns of the monotonic clock.
    at: u64,
    /// Nanoseconds by class; only differences matter.
    sums: [u64; class::COUNT],
}

impl State {
    /// Decodes a value; missing bytes count as zeros.
    fn decode(cpu: u32, value: &[u8]) -> State {
        let sum = |class: usize| bpf::number(value, state::SUMS as usize + 8 * class, 8);
        let at = bpf::number(value, state::LAST as usize, 8);
        State { cpu, at, sums: std::array::from_fn(sum) }
    }
}

/// Times of a CPU in a window, in seconds.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Spent {
    pub cpu: u32,
    pub wall: f64,
    parts: [f64; class::COUNT],
}

impl Spent {
    fn of_all(start: &[State], stop: &[State]) -> Vec<Spent> {
        let at_both = |start: &State| {
            Some(Spent::between(start, stop.iter().find(|stop| stop.cpu == start.cpu)?))
        };
        start.iter().filter_map(at_both).collect()
    }

    fn between(start: &State, stop: &State) -> Spent {
        // Sums begin at any number and wrap. If an interrupt's program took time away from a part,
        // that may be negative by nanoseconds.
        let seconds = |from: u64, to: u64| to.wrapping_sub(from) as i64 as f64 * 1e-9;
        Spent {
            cpu: start.cpu,
            wall: seconds(start.at, stop.at),
            parts: std::array::from_fn(|i| seconds(start.sums[i], stop.sums[i]).max(0.0)),
        }
    }

    /// Divides the run time of each role's threads into user and system time in the proportion
    /// observed while system calls were watched. If a role was not observed then, all of its time
    /// counts as system time, because that is where its class begins.
    fn split(&mut self, watched: &[f64; class::COUNT]) {
        for role in Role::ALL {
            let (user, system) = (class::thread(role), class::thread(role) + class::SYSTEM);
            let run = self.parts[user] + self.parts[system];
            let seen = watched[user] + watched[system];
            self.parts[user] = if seen > 0.0 { run * watched[user] / seen } else { 0.0 };
            self.parts[system] = run - self.parts[user];
        }
    }

    /// Seconds of one [`class`].
    pub(super) fn of(&self, class: usize) -> f64 {
        self.parts[class]
    }

    /// A CPU that was idle for `wall` seconds, for tests.
    #[cfg(test)]
    pub(crate) fn idle(cpu: u32, wall: f64) -> Spent {
        let mut parts = [0.0; class::COUNT];
        parts[class::IDLE] = wall;
        Spent { cpu, wall, parts }
    }

    /// Moves idle time to another class, for tests.
    #[cfg(test)]
    pub(crate) fn move_from_idle(&mut self, class: usize, seconds: f64) {
        self.parts[class::IDLE] -= seconds;
        self.parts[class] += seconds;
    }
}

/// Gets the ids of this process from the kernel: inside a PID namespace we cannot know them.
fn role_processes(members: Members, role: Role) -> Result<RoleProcesses, Fault> {
    let map = bpf::map(MapKind::Array, "bytepath_ids", 4, 8, 1)?;
    let program = bpf::load(Hook::OnDemand, "identify", identify(members, &map))?;
    let fault = |e| Fault::system("cannot ask the kernel for the id of this process", &e);
    program.run_here().map_err(fault)?;
    let value = map.lookup(&0u32.to_ne_bytes()).map_err(fault)?;
    let id = |at: usize| bpf::number(&value, at, 4) as u32;
    Ok(RoleProcesses { own: id(0), role, parent: id(4) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytepath_sys::procfs;
    use bytepath_testing::skip;
    use std::time::{Duration, Instant};

    fn online() -> Vec<u32> {
        let text = std::fs::read_to_string("/proc/stat").unwrap();
        procfs::parse_stat(&text).unwrap().iter().map(|cpu| cpu.cpu).collect()
    }

    fn total(all: &[Spent], class: usize) -> f64 {
        all.iter().map(|spent| spent.of(class)).sum()
    }

    #[test]
    fn converts_wrapping_sums_to_seconds() {
        let mut value = vec![0; state::SIZE];
        let mut put = |at: i16, number: u64| {
            value[at as usize..at as usize + 8].copy_from_slice(&number.to_ne_bytes());
        };
        put(state::LAST, 5_000_000_000);
        put(state::SUMS + 8 * class::IRQ as i16, 7);
        let stop = State::decode(3, &value);
        assert_eq!((stop.cpu, stop.at, stop.sums[class::IRQ]), (3, 5_000_000_000, 7));
        let mut start = State { at: 3_000_000_000, ..stop.clone() };
        start.sums[class::IRQ] = 0u64.wrapping_sub(999_999_993);
        start.sums[class::IDLE] = 40;
        let spent = Spent::between(&start, &stop);
        assert_eq!((spent.cpu, spent.wall, spent.of(class::IRQ)), (3, 2.0, 1.0));
        assert_eq!(spent.of(class::IDLE), 0.0, "nanoseconds below zero");
        assert_eq!(State::decode(0, &[1; 7]), State { cpu: 0, at: 0, sums: [0; class::COUNT] });
    }

    #[test]
    fn accounts_for_all_time_and_system_calls() {
        let cpus = online();
        let account = match Account::load(&Roots::real(), Role::Receiver, cpus.len() as u32) {
            Ok(account) => Arc::new(account),
            Err(fault) => return skip!("{fault}"),
        };
        let mut counting = account.start(&cpus).unwrap();
        let begin = Instant::now();
        let role = std::thread::Builder::new().name("sender/0".into()).spawn(move || {
            while begin.elapsed() < Duration::from_millis(200) {
                let _ = rustix::process::getppid();
            }
        });
        // Calls are watched from the beginning to the first tick, and again from the tenth on.
        std::thread::sleep(Duration::from_millis(50));
        assert!(counting.calls.is_some());
        (0..TICKS).for_each(|_| counting.tick());
        assert!(counting.calls.is_none());
        counting.tick();
        assert!(counting.calls.is_some());
        role.unwrap().join().unwrap();
        let spent = counting.stop().unwrap();
        assert_eq!(spent.len(), cpus.len());
        for cpu in &spent {
            let parts: f64 = cpu.parts.iter().sum();
            assert!((parts / cpu.wall - 1.0).abs() < 1e-3, "{cpu:?}");
            assert!(cpu.wall >= 0.2 && cpu.wall < 20.0, "{cpu:?}");
        }
        let (user, system) = (class::SENDER, class::SENDER + class::SYSTEM);
        assert!(total(&spent, user) > 0.0 && total(&spent, system) > 0.0, "{spent:?}");
        assert_eq!(total(&spent, class::RECEIVER), 0.0);
        // The same programs again, after they were detached; calls are not watched.
        let again = account.start(&cpus).unwrap();
        assert!(again.calls.is_none());
        assert_eq!(again.stop().unwrap().len(), cpus.len());
    }

    #[test]
    fn splits_run_time_as_calls_were_watched() {
        let mut spent = Spent::idle(0, 1.0);
        // The class that a thread had last while calls were not watched means nothing.
        spent.move_from_idle(class::thread(Role::Receiver), 0.3);
        spent.move_from_idle(class::thread(Role::Receiver) + class::SYSTEM, 0.1);
        spent.move_from_idle(class::thread(Role::Sender), 0.2);
        let mut watched = [0.0; class::COUNT];
        watched[class::thread(Role::Receiver)] = 0.01;
        watched[class::thread(Role::Receiver) + class::SYSTEM] = 0.03;
        spent.split(&watched);
        let of = |role, more| spent.of(class::thread(role) + more);
        assert!((of(Role::Receiver, 0) - 0.1).abs() < 1e-12);
        assert!((of(Role::Receiver, class::SYSTEM) - 0.3).abs() < 1e-12);
        assert_eq!((of(Role::Sender, 0), of(Role::Sender, class::SYSTEM)), (0.0, 0.2));
    }

    #[test]
    fn missing_btf_has_a_remedy() {
        let dir = tempfile::tempdir().unwrap();
        let fault = Account::load(&Roots::recorded(dir.path()), Role::Sender, 1).unwrap_err();
        assert!(fault.message.contains("BTF") && fault.remedy.unwrap().contains("5.12"));
    }

    #[test]
    fn refuses_emulated_processors() {
        let dir = tempfile::tempdir().unwrap();
        let roots = Roots::recorded(dir.path());
        std::fs::create_dir_all(&roots.proc).unwrap();
        let cpuinfo = "model name\t: QEMU TCG CPU version 2.5+\n";
        std::fs::write(roots.proc.join("cpuinfo"), cpuinfo).unwrap();
        let fault = Account::load(&roots, Role::Sender, 1).unwrap_err();
        assert!(fault.message.contains("QEMU TCG"), "{fault}");
    }

    /// Tests that need a quiet machine: `make timing`.
    mod timing {
        use super::*;
        use std::io::{Read, Write};

        /// Nanoseconds that one of `count` repetitions takes: the smallest of several measurements.
        fn each(count: u32, mut work: impl FnMut()) -> f64 {
            let once = |_| {
                let begin = Instant::now();
                (0..count).for_each(|_| work());
                begin.elapsed().as_secs_f64() * 1e9 / f64::from(count)
            };
            (0..30).map(once).fold(f64::INFINITY, f64::min)
        }

        /// Costs of a call, and of a switch from one thread to another and back.
        fn costs(cpu: u32) -> [f64; 2] {
            let costs = move || {
                bytepath_sys::thread::pin(cpu).unwrap();
                let call = each(20_000, || _ = rustix::process::getppid());
                let (mut here, mut there) = std::os::unix::net::UnixStream::pair().unwrap();
                let echo = std::thread::Builder::new().name("receiver/0".into()).spawn(move || {
                    let mut byte = [0];
                    while there.read_exact(&mut byte).is_ok() {
                        there.write_all(&byte).unwrap();
                    }
                });
                let switches = each(2_000, || {
                    here.write_all(&[1]).unwrap();
                    here.read_exact(&mut [0]).unwrap();
                });
                drop(here);
                echo.unwrap().join().unwrap();
                [call, switches]
            };
            std::thread::Builder::new()
                .name("sender/0".into())
                .spawn(costs)
                .unwrap()
                .join()
                .unwrap()
        }

        #[test]
        #[ignore = "timing"]
        fn an_event_takes_a_fraction_of_a_microsecond() {
            let cpus = online();
            let account = Account::load(&Roots::real(), Role::Receiver, cpus.len() as u32);
            let account = match account {
                Ok(account) => Arc::new(account),
                Err(fault) => return skip!("{fault}"),
            };
            let [call, switches] = costs(cpus[0]);
            let mut counting = account.start(&cpus).unwrap();
            let [watched, both] = costs(cpus[0]);
            counting.tick();
            let [unwatched, switched] = costs(cpus[0]);
            println!(
                "a call {call:.0} ns, watched {watched:.0} ns, not watched {unwatched:.0} ns; there \
                 and back {switches:.0} ns, accounted for {switched:.0} ns, calls too {both:.0} ns"
            );
            assert!(watched - call < 1000.0 && switched - switches < 2000.0);
        }
    }
}
