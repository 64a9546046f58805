//! `bytepath observe`: any program, measured by the same meters.

use super::exit::exit_code;
use super::help::{Choice, choices, one_of};
use super::memory::bounded_while;
use super::output::{
    self, PAGE_WIDTH, explain, give_up_after, ignore_closed_reader, json, print_error, write_file,
};
use super::output_args::{Format, OutputArgs};
use super::profile::{summary, write as write_profile};
use bytepath_host::survey;
use bytepath_observe::{self as observe, Method, Observed, Request, SignalFlags, Target};
use bytepath_profile::flame::{self, Chart};
use bytepath_profile::subsystem::Rules;
use bytepath_profile::{self as profile, export};
use bytepath_record::{Ending, Fault, joined, unit};
use bytepath_report::{self as report, Advice, Style};
use bytepath_study::{ProgramSampler, copy_ceiling, load, of_program};
use bytepath_sys::Roots;
use clap::Args;
use std::ffi::OsString;
use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

#[derive(Debug, Args)]
#[command(after_long_help = format!("{EXAMPLES}\n{}", choices("How calls are counted (--count):", COUNT)))]
pub(super) struct ObserveArgs {
    /// Observe a running process until it ends or Ctrl-C
    ///
    /// Its threads and descendants are observed, too.
    #[arg(
        short,
        long,
        value_name = "PID",
        value_parser = pid,
        conflicts_with = "command",
        required_unless_present = "command"
    )]
    pid: Option<u32>,
    /// Stop observing after this time (with --pid)
    #[arg(long = "for", value_name = "TIME", requires = "pid", value_parser = unit::parse_duration)]
    limit: Option<Duration>,
    #[command(flatten)]
    output: OutputArgs<true>,
    /// Show every thread, every call, and histograms of durations
    ///
    /// The histograms are of calls, in powers of two.
    #[arg(long)]
    details: bool,
    /// How calls are counted: auto, task-storage or none
    #[arg(long, hide_possible_values = true, default_value = "auto", value_parser = one_of(COUNT))]
    count: Method,
    /// Samples per second and CPU: a rate in Hz, auto or none
    #[arg(long, value_name = "HZ", default_value = "auto", value_parser = sampling)]
    sample: Sampling,
    /// Write the program's profile to this file; its suffix gives the format
    #[arg(long, value_name = "FILE", value_parser = profile_file)]
    profile_out: Option<PathBuf>,
    /// End with advice by this study of this host (see `bytepath advise`)
    #[arg(long, value_name = "FOLDER", conflicts_with = "json")]
    study: Option<PathBuf>,
    /// The program and its arguments; options of bytepath come before it
    #[arg(trailing_var_arg = true, value_name = "PROGRAM")]
    command: Vec<OsString>,
}

fn pid(text: &str) -> Result<u32, String> {
    let number = text.parse::<u32>().ok().filter(|pid| (1..=i32::MAX as u32).contains(pid));
    number.ok_or_else(|| {
        format!("'{text}' is not a process id (pgrep {text:?} finds those of a program)")
    })
}

/// Samples per second and CPU: `Some(None)` means as many as are cheap, `None` means no sampling.
type Sampling = Option<Option<u64>>;

fn sampling(text: &str) -> Result<Sampling, String> {
    match text {
        "auto" => Ok(Some(None)),
        "none" => Ok(None),
        rate => match rate.parse() {
            Ok(rate @ 1..=20_000) => Ok(Some(Some(rate))),
            _ => {
                Err(format!("'{rate}' is not a sampling rate (write auto, none, or 1 to 20000 Hz)"))
            }
        },
    }
}

/// Parses the name of a file whose suffix implies a format.
fn profile_file(text: &str) -> Result<PathBuf, String> {
    if export::find_by_file_name(text).is_some() {
        return Ok(text.into());
    }
    let endings = export::CATALOG.iter().map(|e| format!(".{}", e.extension));
    Err(format!(
        "cannot infer the format from the name (use one of the suffixes {})",
        joined(endings, ", ")
    ))
}

/// How system calls are counted.
const COUNT: &[Choice<Method>] = &[
    (
        "auto",
        "By BPF at typed tracepoints; if that does not work, the report says why",
        Method::Auto,
    ),
    ("task-storage", "The same; if that does not work, nothing is run", Method::TaskStorage),
    ("none", "Not at all", Method::None),
];

const EXAMPLES: &str = "\
The program keeps standard input, output and error; the report goes to standard
error when it has ended, or to the file of -o. Its exit code is kept (128 plus
the number if a signal ended it). Ctrl-C goes to the program; the report follows.
Threads and children are followed.

Examples:
  bytepath observe iperf3 -c 10.0.0.2 -t 10
  bytepath observe -o nginx.txt --details nginx -g 'daemon off;'
  bytepath observe -p 4711 --for 10s
  bytepath observe --profile-out redis.svg redis-benchmark -q -n 100000
  bytepath observe -o run.json redis-benchmark -q -n 100000
  bytepath observe --study bytepath-studies/20260102-030405 iperf3 -c 10.0.0.2

docs/guide/observe.md describes how each figure is obtained, what that costs, and what cannot
be seen.
";

/// Observes a program, and prints the report.
pub(super) fn observe(arguments: &ObserveArgs) -> Result<ExitCode, Fault> {
    // Errors are reported before anything is run.
    let format = arguments.output.format()?;
    if format == Format::Html {
        let file = arguments.output.out.as_deref();
        output::refuse_on_terminal(std::io::stderr(), file, ("html", "html"))?;
    }
    let load = |study: &Path| bounded_while(|| load(study));
    let study = arguments.study.as_deref().map(load).transpose()?;
    let target = match arguments.pid {
        Some(pid) => Target::Process(pid),
        None => Target::Command(arguments.command.clone()),
    };
    let signals = SignalFlags::default();
    catch_signals(&signals, arguments.pid.is_some())
        .map_err(|e| Fault::system("cannot install a signal handler", &e))?;
    give_up_after(&signals.stop);
    let request = Request { target, method: arguments.count, limit: arguments.limit };
    let mut sampler = arguments.sample.map(ProgramSampler::new);
    let sampler = sampler.as_mut().map(|sampler| sampler as &mut dyn observe::Sampler);
    let mut observed = observe::observe(&request, &signals, sampler)?;
    complete(&mut observed);
    observed.observation.host = Some(survey(&Roots::real()));
    observed.observation.limits = report::limits(&observed.observation);
    let advice = study.map(|study| report::advise(&observed.observation, &study));
    observe::fold(&mut observed.observation);
    let code = match observed.observation.ending {
        Ending::Code(code) => u8::try_from(code).unwrap_or(u8::MAX),
        Ending::Signal(signal) => u8::try_from(128 + signal).unwrap_or(u8::MAX),
        Ending::Running | Ending::Gone => 0,
    };
    let Err(fault) = write(arguments, format, &observed, advice.as_ref()) else {
        return Ok(ExitCode::from(code));
    };
    explain(&fault);
    // The program's own exit code takes precedence, because the caller expects it.
    Ok(if code == 0 { exit_code(&fault) } else { ExitCode::from(code) })
}

/// Derives from the profile an estimate of the copies, if possible, and the program's own part of
/// it.
fn complete(observed: &mut Observed) {
    let Some(profile) = observed.profile.take() else { return };
    let observation = &observed.observation;
    let mut program = of_program(&profile);
    program.header.title = observation.command.join(" ");
    observed.observation.profile = Some(profile::summarise(&program, Rules::built_in()));
    observed.profile = Some(program);
    // Without a measured bandwidth there is no estimate, and the report states that.
    observed.estimate_copies(|| {
        let ceiling = copy_ceiling(None, COPIED_AT_ONCE, &AtomicBool::new(false)).ok()?;
        Some((ceiling.memory / COLD, ceiling.workload))
    });
}

/// Size of a program's copies, for the upper end of the estimate.
const COPIED_AT_ONCE: u64 = 128 << 10;

/// How many times slower than the ceiling a copy by the kernel may be: its pages were just
/// allocated, and interrupts occur during it. iperf3 over loopback was observed to copy at 0.57 of
/// the ceiling of memory.
const COLD: f64 = 3.0;

/// Number of functions of the profile to show.
const FUNCTIONS: usize = 15;

/// Fewest samples for a table of functions.
const FEWEST: u64 = 100;

/// Catches signals. A terminal sends Ctrl-C to the program, too, so it is enough to survive it.
/// Signals that `kill` sends only to us are passed on. Ignored signals stay ignored, which the
/// program inherits.
fn catch_signals(signals: &SignalFlags, process: bool) -> std::io::Result<()> {
    use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM};
    let caught = [SIGINT, SIGQUIT, SIGTERM, SIGHUP].into_iter();
    for signal in caught.filter(|signal| !bytepath_sys::process::ignores(*signal)) {
        signal_hook::flag::register(signal, signals.stop.clone())?;
        if !process && matches!(signal, SIGTERM | SIGHUP) {
            let number = signal.unsigned_abs() as usize;
            signal_hook::flag::register_usize(signal, signals.pass_on.clone(), number)?;
        }
    }
    Ok(())
}

fn write(
    arguments: &ObserveArgs,
    format: Format,
    observed: &Observed,
    advice: Option<&Advice>,
) -> Result<(), Fault> {
    let terminal = arguments.output.out.is_none() && std::io::stderr().is_terminal();
    let colour = arguments.output.out.is_none() && output::colours(&std::io::stderr());
    let size = output::size(std::io::stderr()).filter(|_| terminal);
    let width = size.map_or(PAGE_WIDTH, |(columns, _)| columns);
    let style = Style { width, colour, details: arguments.details };
    let mut text = Vec::new();
    let fault = |e: std::io::Error| Fault::system("cannot write the report", &e);
    let observation = &observed.observation;
    if format == Format::Json {
        text = json(observation)?.into_bytes();
    } else if format == Format::Html {
        let profiles = observed.profile.iter();
        let charts: Vec<Chart> =
            profiles.map(|profile| flame::chart(profile, Rules::built_in())).collect();
        report::observation_page(observation, &charts, advice, &mut text).map_err(fault)?;
    } else {
        report::observation(observation, style.details).write(&style, &mut text).map_err(fault)?;
        if let Some(profile) = &observed.profile {
            text.extend_from_slice(b"\nProfile of the program\n");
            summary::write(profile, (FUNCTIONS, FEWEST), &style, &mut text).map_err(fault)?;
        }
        if let Some(advice) = report::advice_or_hint(advice, observation) {
            text.push(b'\n');
            advice.write(&style, &mut text).map_err(fault)?;
        }
    }
    if let (Some(file), Some(profile)) = (&arguments.profile_out, &observed.profile)
        && let Some(format) = export::find_by_file_name(&file.to_string_lossy())
    {
        write_profile(format, profile, file)?;
    }
    match &arguments.output.out {
        Some(file) => write_file(file, &text),
        None => ignore_closed_reader("standard error", print_error(&text)),
    }
}
