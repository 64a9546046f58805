//! Sources that are programs: `ipmitool`, and a program of the user's. These are the only programs
//! that bytepath starts while bytes flow, and only if they are requested by name. No shell sees
//! their command lines.
//!
//! A thread reads their output. A management controller has a new reading once a second or less
//! often, so a window may contain very few: their number is reported, and with fewer than two there
//! is no figure.

use super::domain::{Domain, Part};
use super::gauge::{Gauge, Measured, integrate};
use bytepath_record::{Fault, PowerSource};
use bytepath_sys::process::spawn_tied;
use bytepath_sys::tcp::wait_readable;
use rustix::process::{Pid, Signal, kill_process_group};
use std::io::{self, Read};
use std::os::fd::AsFd;
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// The command that queries a management controller (ipmitool(1)).
const IPMITOOL: [&str; 4] = ["ipmitool", "dcmi", "power", "reading"];

/// How long one answer of `ipmitool` may take.
const TIMEOUT: Duration = Duration::from_secs(5);

/// Time from one query to the next; controllers have no new reading earlier.
const PERIOD: Duration = Duration::from_secs(1);

/// Fewest readings for a figure.
const FEWEST: usize = 2;

/// Longest line or answer to accept, in bytes.
const LONGEST: usize = 64 << 10;

/// A program whose output is being read. Dropping it ends the program.
pub(super) struct Program {
    name: String,
    shared: Arc<Shared>,
}

/// Starts the program of a source and a thread that reads its output. Errors only if it cannot be
/// started at all.
pub(super) fn start(source: &PowerSource) -> Result<Program, Fault> {
    match source {
        PowerSource::Command { argv } => run(argv.clone(), false),
        _ => run(IPMITOOL.map(str::to_owned).to_vec(), true),
    }
}

/// Runs a program once and reads its lines, or, if `asked`, repeatedly and reads its answers.
fn run(argv: Vec<String>, asked: bool) -> Result<Program, Fault> {
    let name = argv.first().cloned().unwrap_or_default();
    let shared = Arc::new(Shared::default());
    // The first is started here, so that a missing program is reported at once.
    let first = spawn(&argv, &shared)?;
    let theirs = Arc::clone(&shared);
    let run = move || match asked {
        true => poll_loop(&argv, first, &theirs),
        false => read_lines(first, &theirs),
    };
    let thread = std::thread::Builder::new().name("power".into()).spawn(run);
    thread.map_err(|e| Fault::system("power: cannot start a thread", &e))?;
    Ok(Program { name, shared })
}

impl Program {
    /// Counts readings from now on.
    pub(super) fn begin(self) -> Reader {
        self.shared.lock().readings.clear();
        Reader { begin: Instant::now(), program: self }
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let mut state = self.shared.lock();
        state.over = true;
        if let Some(pid) = state.child {
            // It is not an error if the program has already exited.
            let _ = kill_process_group(pid, Signal::KILL);
        }
        self.shared.wake.notify_all();
    }
}

/// A program whose readings are counted.
pub(super) struct Reader {
    begin: Instant,
    program: Program,
}

impl Gauge for Reader {
    fn stop(self: Box<Self>) -> Result<Measured, Fault> {
        let end = Instant::now();
        let state = self.program.shared.lock();
        let name = &self.program.name;
        let seconds = end.saturating_duration_since(self.begin).as_secs_f64();
        let mut measured = Measured { seconds, ..Measured::default() };
        if let Some(trouble) = &state.trouble {
            measured.warnings.push(format!("power: {name}: {trouble}"));
        }
        let count = state.readings.len();
        measured.readings = Some(u32::try_from(count).unwrap_or(u32::MAX));
        if count < FEWEST {
            // If there were no readings for a known reason, more time does not help.
            let remedy = match (count, &state.trouble) {
                (0, Some(_)) => "",
                _ => " (--window 5s and --design trials allow more)",
            };
            measured.warnings.push(format!(
                "power: {name} gave {count} readings in a window of {seconds:.1} s, too \
                 few for a figure{remedy}"
            ));
            return Ok(measured);
        }
        let joules = integrate(&state.readings, self.begin, end).unwrap_or(0.0);
        measured.parts.push(Part { name: "box".into(), domain: Domain::Platform, joules });
        Ok(measured)
    }
}

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    wake: Condvar,
}

#[derive(Default)]
struct State {
    readings: Vec<(Instant, f64)>,
    trouble: Option<String>,
    /// The program until it has been waited for, so that its process id is not reused.
    child: Option<Pid>,
    over: bool,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Kills and waits for a child that has closed its output.
    fn reap(&self, mut child: Child) {
        let mut state = self.lock();
        if let Some(pid) = state.child.take() {
            let _ = kill_process_group(pid, Signal::KILL);
        }
        // It is dead or dying, so this does not take long.
        let _ = child.wait();
    }
}

/// Starts a program in its own process group, so that programs it starts can be ended with it.
fn spawn(argv: &[String], shared: &Shared) -> Result<(Child, ChildStdout), Fault> {
    let (program, arguments) = argv
        .split_first()
        .ok_or_else(|| Fault::usage("power: there is no program to read watts from"))?;
    let mut state = shared.lock();
    let mut command = Command::new(program);
    command.args(arguments).process_group(0);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
    // Tied to this process: if an agent is killed, nothing else would end the program.
    let child = spawn_tied(command, &[]);
    let mut child = child.map_err(|e| {
        let fault = Fault::system(format_args!("power: cannot start {program}"), &e);
        match e.kind() {
            io::ErrorKind::NotFound => {
                fault.remedy(format!("install {program}, or choose another source"))
            }
            _ => fault,
        }
    })?;
    state.child = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
    let output = child.stdout.take();
    let output = output.ok_or_else(|| Fault::failed("power: a pipe is missing"))?;
    Ok((child, output))
}

/// Reads one reading per line, as long as the program lives.
fn read_lines((child, mut output): (Child, ChildStdout), shared: &Shared) {
    let mut line = Vec::new();
    let mut buffer = [0; 4096];
    loop {
        let read = match output.read(&mut buffer) {
            Ok(0) => break,
            Ok(read) => read,
            Err(e) if e.kind() == io::ErrorKind::Interrupted => continue,
            Err(_) => break,
        };
        let now = Instant::now();
        for byte in buffer.iter().take(read) {
            match byte {
                b'\n' => {
                    let text = String::from_utf8_lossy(&line);
                    let mut state = shared.lock();
                    match printed_watts(&text) {
                        Some(watts) => state.readings.push((now, watts)),
                        None => {
                            let shown: String = text.trim().chars().take(40).collect();
                            state.trouble = Some(format!("'{shown}' is not a reading in watts"));
                        }
                    }
                    drop(state);
                    line.clear();
                }
                // A line longer than any reading is not stored in full: it is refused at its end.
                byte if line.len() < LONGEST => line.push(*byte),
                _ => {}
            }
        }
    }
    let mut state = shared.lock();
    if !state.over {
        state.trouble.get_or_insert_with(|| "the program ended".into());
    }
    drop(state);
    shared.reap(child);
}

/// Gets one reading per answer, by running the program repeatedly.
fn poll_loop(argv: &[String], first: (Child, ChildStdout), shared: &Shared) {
    let mut next = Some(first);
    loop {
        let asked = Instant::now();
        let started = next.take().map_or_else(|| spawn(argv, shared), Ok);
        let (child, mut output) = match started {
            Ok(started) => started,
            Err(fault) => {
                shared.lock().trouble = Some(fault.message);
                return;
            }
        };
        let answer = read_until(&mut output, asked + TIMEOUT);
        let now = Instant::now();
        shared.reap(child);
        let reading = answer.and_then(|text| dcmi_reading(&text));
        let mut state = shared.lock();
        match reading {
            Ok((watts, doubt)) => {
                state.readings.push((now, watts));
                state.trouble = doubt.or(state.trouble.take());
            }
            Err(_) if state.over => {}
            Err(trouble) => state.trouble = Some(trouble),
        }
        while !state.over && asked.elapsed() < PERIOD {
            let left = PERIOD.saturating_sub(asked.elapsed());
            let waited = shared.wake.wait_timeout(state, left);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        if state.over {
            return;
        }
    }
}

/// Returns all that a program prints until it closes its output.
fn read_until(output: &mut ChildStdout, deadline: Instant) -> Result<String, String> {
    let mut text = Vec::new();
    let mut buffer = [0; 4096];
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        match wait_readable(output.as_fd(), left) {
            Ok(false) => return Err(format!("no answer within {} s", TIMEOUT.as_secs())),
            Err(e) if e.kind() == io::ErrorKind::Interrupted => continue,
            Err(e) => return Err(e.to_string()),
            Ok(true) => {}
        }
        match output.read(&mut buffer) {
            Ok(0) => return Ok(String::from_utf8_lossy(&text).into_owned()),
            Ok(read) if text.len() < LONGEST => text.extend(buffer.iter().take(read)),
            Ok(_) => return Err("the answer is too long".into()),
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(e.to_string()),
        }
    }
}

/// Parses the answer of `ipmitool dcmi power reading`: returns the momentary figure in watts with
/// any doubt about it, or why there is none (lib/ipmi_dcmi.c of ipmitool). Firmware without a
/// sensor reports 0 or all bits of the field, 65535; OpenBMC reports its measurement as deactivated
/// although it measures.
pub fn dcmi_reading(text: &str) -> Result<(f64, Option<String>), String> {
    let field = |name: &str| {
        let mut lines = text.lines().filter_map(|line| line.split_once(':'));
        lines.find(|(key, _)| key.trim() == name).map(|(_, value)| value.trim())
    };
    let shown = |text: &str| -> String { text.chars().take(40).collect() };
    let value = field("Instantaneous power reading");
    let value = value.ok_or("the answer holds no instantaneous power reading")?;
    let watts = printed_watts(value)
        .ok_or_else(|| format!("'{}' is not a reading in watts", shown(value)))?;
    let state = field("Power reading state is").filter(|state| *state != "activated");
    let state = state.map(|state| format!("calls its power measurement '{}'", shown(state)));
    match (NO_READING.contains(&watts), state) {
        (true, None) => Err(format!("the controller reports {watts} W, which means no reading")),
        (true, Some(state)) => Err(format!("the controller {state} and reports {watts} W")),
        (false, state) => {
            let doubt = state.map(|state| format!("the controller {state}, and measures"));
            Ok((watts, doubt))
        }
    }
}

/// What firmware reports instead of a reading, in watts.
const NO_READING: [f64; 2] = [0.0, 65535.0];

/// Parses a reading as a program prints it: `230`, `230.5 W`, `231 Watts`. `None` if it is not a
/// power that a machine can draw.
pub fn printed_watts(line: &str) -> Option<f64> {
    const MOST: f64 = 1e7;
    let line = line.trim();
    let end = line.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(line.len());
    let (digits, unit) = (line.get(..end)?, line.get(end..)?.trim());
    let watts = ["", "w", "watt", "watts"].contains(&unit.to_ascii_lowercase().as_str());
    digits.parse::<f64>().ok().filter(|value| watts && value.is_finite() && *value <= MOST)
}

#[cfg(test)]
mod tests {
    use super::*;

    const DCMI: &str = "
    Instantaneous power reading:                   233 Watts
    Minimum during sampling period:                 24 Watts
    Maximum during sampling period:                461 Watts
    Average power reading over sample period:      231 Watts
    IPMI timestamp:                           Sat Nov 21 12:00:00 2026
    Sampling period:                          00000001 Seconds.
    Power reading state is:                   activated

";

    #[test]
    fn answers_of_ipmitool() {
        assert_eq!(dcmi_reading(DCMI), Ok((233.0, None)));
        // The state that OpenBMC reports, with a reading.
        let off = DCMI.replace("activated", "deactivated");
        let (watts, doubt) = dcmi_reading(&off).unwrap();
        assert!(watts == 233.0 && doubt.unwrap().contains("'deactivated', and measures"));
        for none in ["0 Watts", "65535 Watts"] {
            let text = DCMI.replace("233 Watts", none);
            assert!(dcmi_reading(&text).unwrap_err().contains("no reading"), "{none}");
            let text = off.replace("233 Watts", none);
            assert!(dcmi_reading(&text).unwrap_err().contains("'deactivated' and reports"));
        }
        let one_line = DCMI.replace("2026\n    Sampling", "2026    Sampling");
        assert_eq!(dcmi_reading(&one_line), Ok((233.0, None)));
        assert!(dcmi_reading("").unwrap_err().contains("no instantaneous"));
        let nonsense = DCMI.replace("233 Watts", "-233 Volts");
        assert!(dcmi_reading(&nonsense).unwrap_err().contains("-233 Volts"));
    }

    #[test]
    fn lines_of_a_program() {
        for (line, watts) in [("230", 230.0), (" 12.5 W\r", 12.5), ("7watts", 7.0), ("0", 0.0)] {
            assert_eq!(printed_watts(line), Some(watts), "{line}");
        }
        for line in ["", "W", "-3", "nan", "inf", "1e9", "230 mA", "1.2.3", "99999999", "é"] {
            assert_eq!(printed_watts(line), None, "{line}");
        }
    }

    #[test]
    fn a_program_ends_with_its_parent() {
        let start = || {
            let shared = Shared { state: Mutex::default(), wake: Condvar::new() };
            let (child, _output) = spawn(&argv("exec sleep 60"), &shared).unwrap();
            // Killed, and not dropped: none of our code runs afterwards.
            child
        };
        let mut child = std::thread::scope(|scope| scope.spawn(start).join().unwrap());
        let deadline = Instant::now() + Duration::from_secs(10);
        while child.try_wait().unwrap().is_none() {
            assert!(Instant::now() < deadline, "it goes on");
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    fn argv(script: &str) -> Vec<String> {
        ["sh", "-c", script].map(str::to_owned).to_vec()
    }

    fn program(script: &str) -> Program {
        start(&PowerSource::Command { argv: argv(script) }).unwrap()
    }

    /// Waits until `done`; panics after a minute.
    fn until(program: &Program, done: impl Fn(&State) -> bool) {
        let deadline = Instant::now() + Duration::from_secs(60);
        while !done(&program.shared.lock()) {
            assert!(Instant::now() < deadline, "the program did nothing");
            std::thread::yield_now();
        }
    }

    #[test]
    fn a_program_that_prints_watts() {
        let program = program("while :; do echo 50 W; sleep 0.01; done");
        until(&program, |state| !state.readings.is_empty());
        let reader = program.begin();
        until(&reader.program, |state| state.readings.len() > 3);
        let begin = reader.begin;
        let measured = Box::new(reader).stop().unwrap();
        let [part] = &measured.parts[..] else { panic!("{measured:?}") };
        let watts = part.joules / begin.elapsed().as_secs_f64();
        assert!(watts > 25.0 && watts <= 50.0, "{watts}");
        assert!(measured.readings > Some(3) && measured.warnings.is_empty(), "{measured:?}");
    }

    #[test]
    fn polls_a_controller() {
        let program = run(argv(&format!("echo '{DCMI}'")), true).unwrap();
        until(&program, |state| state.readings.len() == 2);
        let state = program.shared.lock();
        assert_eq!(state.readings.iter().map(|r| r.1).collect::<Vec<_>>(), [233.0, 233.0]);
        let apart = state.readings[1].0 - state.readings[0].0;
        assert!(apart > PERIOD / 2, "{apart:?}");
        assert_eq!(state.trouble, None);
    }

    #[test]
    fn times_out_without_an_answer() {
        let shared = Shared::default();
        let (child, mut output) = spawn(&argv("sleep 600"), &shared).unwrap();
        let begin = Instant::now();
        let answer = read_until(&mut output, begin + Duration::from_millis(30));
        assert!(answer.unwrap_err().contains("no answer"));
        shared.reap(child);
        assert!(begin.elapsed() < Duration::from_secs(60));
    }

    #[test]
    fn reports_malformed_lines_and_too_few_readings() {
        let program = program("echo 50; echo volts; sleep 60");
        until(&program, |state| state.trouble.is_some());
        let reader = Reader { begin: Instant::now(), program };
        let measured = Box::new(reader).stop().unwrap();
        assert_eq!((measured.readings, measured.parts.len()), (Some(1), 0));
        let said = measured.warnings.join("\n");
        assert!(said.contains("'volts'") && said.contains("gave 1 readings"), "{said}");
    }

    #[test]
    fn dropping_a_program_kills_its_process_group() {
        let program = program("echo $$; sleep 600 & echo $!; wait");
        until(&program, |state| state.readings.len() == 2);
        let pids: Vec<u32> = program.shared.lock().readings.iter().map(|r| r.1 as u32).collect();
        drop(program);
        let deadline = Instant::now() + Duration::from_secs(60);
        // A zombie that has not been waited for is dead anyway.
        let lives = |pid: &u32| {
            let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
            !stat.is_empty() && !stat.contains(") Z ")
        };
        while pids.iter().any(lives) {
            assert!(Instant::now() < deadline, "{pids:?} live on");
            std::thread::yield_now();
        }
    }

    #[test]
    fn names_missing_programs() {
        let argv = vec!["no-such-program".to_owned()];
        let fault = start(&PowerSource::Command { argv }).err().unwrap();
        assert!(fault.to_string().contains("no-such-program"), "{fault}");
    }
}
