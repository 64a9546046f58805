//! `bytepath observe`: any program under the same meters.

use super::exit::{exit_code, explain};
use super::show::{PAGE, replace};
use crate::observe::{self, Asked, Method, Observed, Request, Target};
use crate::record::{Ending, Fault, FaultKind, unit};
use crate::report::{self, Style};
use clap::{Args, ValueEnum};
use std::ffi::OsString;
use std::io::{IsTerminal, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct ObserveArguments {
    /// Watch a process that runs already, with its threads and descendants, until it ends or Ctrl-C
    #[arg(
        long,
        value_name = "PID",
        conflicts_with = "command",
        required_unless_present = "command"
    )]
    pid: Option<u32>,
    /// Stop watching after this long (with --pid)
    #[arg(long = "for", value_name = "TIME", requires = "pid", value_parser = unit::parse_duration)]
    limit: Option<Duration>,
    /// Write the report to this file instead of to standard error
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// Write everything as JSON (`bytepath schema observation`)
    #[arg(long)]
    json: bool,
    /// Show every thread, every call, and how long calls took in steps of powers of two
    #[arg(long)]
    details: bool,
    /// How system calls are counted
    #[arg(long, value_enum, default_value_t = Count::Auto)]
    count: Count,
    /// The program and its arguments, behind `--`
    #[arg(last = true, value_name = "CMD")]
    command: Vec<OsString>,
}

/// How system calls are counted.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum Count {
    /// The first of these that works here
    Auto,
    /// BPF at typed tracepoints, a thread's state kept with the thread
    TaskStorage,
    /// BPF at raw tracepoints, a thread's state kept in a hash
    Hash,
    /// Records of tracepoints through perf's rings
    Tracepoints,
    /// Not at all
    None,
}

const EXAMPLES: &str = "\
The program keeps standard input, output and error; the report goes to standard
error when it has ended, or to the file of --out. Its exit code is kept (128 and
the number if a signal ended it). Ctrl-C goes to the program; the report follows.
Threads and children are followed.

Examples:
  bytepath observe -- iperf3 -c 10.0.0.2 -t 10
  bytepath observe --out nginx.txt --details -- nginx -g 'daemon off;'
  bytepath observe --pid 4711 --for 10s
  bytepath observe --json --out run.json -- redis-benchmark -q -n 100000

docs/observe.md says how each figure comes about, what it costs, and what cannot
be seen.";

/// Watches, and prints what was seen.
pub(super) fn observe(arguments: &ObserveArguments) -> Result<ExitCode, Fault> {
    let target = match arguments.pid {
        Some(pid) => Target::Process(pid),
        None => Target::Command(arguments.command.clone()),
    };
    let method = match arguments.count {
        Count::Auto => Method::Auto,
        Count::TaskStorage => Method::TaskStorage,
        Count::Hash => Method::Hash,
        Count::Tracepoints => Method::Tracepoints,
        Count::None => Method::None,
    };
    let asked = Asked::default();
    heed(&asked, arguments.pid.is_some())
        .map_err(|e| Fault::system("cannot install a signal handler", &e))?;
    let request = Request { target, method, limit: arguments.limit };
    let observed = observe::observe(&request, &asked, None)?;
    let code = match observed.observation.ending {
        Ending::Code(code) => u8::try_from(code).unwrap_or(u8::MAX),
        Ending::Signal(signal) => u8::try_from(128 + signal).unwrap_or(u8::MAX),
        Ending::Running | Ending::Gone => 0,
    };
    match write(arguments, &observed) {
        Err(fault) if code == 0 => {
            explain(&fault);
            Ok(exit_code(&fault))
        }
        // The program's own failure is the one that its caller asks for.
        Err(fault) => {
            explain(&fault);
            Ok(ExitCode::from(code))
        }
        Ok(()) => Ok(ExitCode::from(code)),
    }
}

/// A terminal sends Ctrl-C to the program too, so it is enough not to die of
/// it. What `kill` sends to us alone is passed on.
fn heed(asked: &Asked, process: bool) -> std::io::Result<()> {
    use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM};
    for signal in [SIGINT, SIGQUIT, SIGTERM, SIGHUP] {
        signal_hook::flag::register(signal, asked.stop.clone())?;
        if !process && matches!(signal, SIGTERM | SIGHUP) {
            let number = signal.unsigned_abs() as usize;
            signal_hook::flag::register_usize(signal, asked.pass_on.clone(), number)?;
        }
    }
    Ok(())
}

fn write(arguments: &ObserveArguments, observed: &Observed) -> Result<(), Fault> {
    let terminal = arguments.out.is_none() && std::io::stderr().is_terminal();
    let colour = terminal && std::env::var_os("NO_COLOR").is_none();
    let width = if terminal { width().unwrap_or(PAGE) } else { PAGE };
    let style = Style { width, colour, details: arguments.details };
    let mut text = Vec::new();
    if arguments.json {
        text = serde_json::to_vec_pretty(&observed.observation)
            .map_err(|e| Fault::new(FaultKind::System, format!("cannot encode: {e}")))?;
        text.push(b'\n');
    } else {
        report::observation(&observed.observation, &style, &mut text)
            .map_err(|e| Fault::system("cannot make the report", &e))?;
    }
    match &arguments.out {
        Some(file) => replace(file, &text).map_err(|e| {
            Fault::new(FaultKind::Storage, format!("cannot write {}: {e}", file.display()))
        }),
        None => std::io::stderr()
            .lock()
            .write_all(&text)
            .map_err(|e| Fault::system("cannot print the report", &e)),
    }
}

fn width() -> Option<usize> {
    let size = rustix::termios::tcgetwinsize(std::io::stderr()).ok()?;
    (size.ws_col > 0).then_some(size.ws_col.into())
}
