//! `bytepath run`.

use super::exit::TRIAL_FAILED;
use super::progress::Progress;
use super::show::{self, Form};
use crate::record::{Design, Fault, FaultKind, Judgement, OptionSpec, Schedule, TrialStatus, unit};
use crate::run::{Laboratory, Plan, conduct, path_spec};
use crate::spec::{self, Ask};
use crate::{host, meter, path, sys};
use clap::Args;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

#[derive(Debug, Args)]
#[command(after_help = run_options_help())]
pub(super) struct RunArguments {
    /// Path to run: PAIR[:key=value,...] or TX[:...]+RX[:...]; repeatable [default: all pairs]
    #[arg(long, value_name = "PATH")]
    path: Vec<String>,
    /// Path that all others are compared with [default: the first]
    #[arg(long, value_name = "PATH")]
    baseline: Option<String>,
    /// The stream's contract: key=value,...
    #[arg(long, value_name = "OPTIONS", default_value = "")]
    stream: String,
    /// The testbed's link: PRESET[:key=value,...]
    #[arg(long, value_name = "LINK", default_value = "wire")]
    link: String,
    /// CPUs of sender and receiver: two, one, none, or S,R
    #[arg(long, value_name = "CORES", default_value = "two")]
    cores: String,
    /// Meters to run: all, none, or a list with commas
    #[arg(long, value_name = "METERS", default_value = "all")]
    meters: String,
    /// Passes over all paths, each in random order
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=1000))]
    blocks: u32,
    /// Time that flows before the window
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = unit::parse_duration)]
    warm_up: Duration,
    /// The measured window
    #[arg(long, value_name = "TIME", default_value = "3s", value_parser = window)]
    window: Duration,
    /// Seed of the random order [default: random]
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
    /// Folder for the study [default: bytepath-studies/DATE-TIME]
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// List the cells, their order and the time they take; run nothing
    #[arg(long)]
    dry_run: bool,
    #[command(flatten)]
    form: Form,
}

/// Shortest window that a tick-based CPU figure means anything for.
fn window(text: &str) -> Result<Duration, String> {
    let window = unit::parse_duration(text)?;
    if window < Duration::from_millis(100) || window > Duration::from_secs(3600) {
        return Err("a window lasts from 100ms to 60m".into());
    }
    Ok(window)
}

/// Runs a study and prints its report.
pub(super) fn run(arguments: &RunArguments) -> Result<ExitCode, Fault> {
    let plan = plan(arguments)?;
    if arguments.dry_run {
        print_plan(&plan);
        return Ok(ExitCode::SUCCESS);
    }
    let stop = catch_signals()?;
    sys::process::report_file_size_limit();
    let testbed = host::CATALOG[0];
    let laboratory = Laboratory {
        paths: path::CATALOG,
        meters: meter::CATALOG,
        testbed,
        program: own_program()?,
        stop: &stop,
    };
    let mut progress = Progress::new();
    let (study, result) = conduct(&laboratory, &plan, &mut progress);
    progress.finish();
    if let Some(study) = &study
        && !study.trials.is_empty()
    {
        show::print(study, &arguments.form)?;
        eprintln!("study: {}", plan.folder.display());
    }
    result?;
    let failed = |trial: &crate::record::Trial| matches!(trial.status, TrialStatus::Failed { .. });
    let any_failed = study.is_some_and(|study| study.trials.iter().any(failed));
    Ok(if any_failed { ExitCode::from(TRIAL_FAILED) } else { ExitCode::SUCCESS })
}

/// What is asked for, checked as far as that needs no testbed.
fn plan(arguments: &RunArguments) -> Result<Plan, Fault> {
    let mandatory = !arguments.path.is_empty();
    let all: Vec<String> = path::PAIRS.iter().map(|pair| pair.name.to_owned()).collect();
    let allowed = sys::thread::allowed()
        .map_err(|e| Fault::system("cannot read the CPUs of this process", &e))?;
    let cores = spec::parse_cores(default_cores(&arguments.cores, &allowed), &allowed)?;
    let ask = Ask {
        paths: if mandatory { &arguments.path } else { &all },
        stream: &arguments.stream,
        link: &arguments.link,
        cores: &cores,
        baseline: arguments.baseline.as_deref(),
    };
    let (cells, baseline) = spec::cells(&ask, &path_spec(path::CATALOG, path::PAIRS))?;
    Ok(Plan {
        title: String::new(),
        cells,
        baseline,
        schedule: Schedule {
            blocks: arguments.blocks,
            warm_up: arguments.warm_up.as_secs_f64(),
            window: arguments.window.as_secs_f64(),
            seed: arguments.seed.unwrap_or_else(rand::random),
            design: Design::default(),
            stopping: None,
        },
        judgement: Judgement::default(),
        meters: meters(&arguments.meters)?,
        mandatory,
        folder: arguments.out.clone().unwrap_or_else(default_folder),
    })
}

/// A machine with one CPU has no two; there the default is to share it.
fn default_cores<'a>(asked: &'a str, allowed: &[u32]) -> &'a str {
    if asked == "two" && allowed.len() == 1 { "one" } else { asked }
}

fn meters(text: &str) -> Result<Vec<String>, Fault> {
    let all: Vec<&str> = meter::CATALOG.iter().map(|meter| meter.name()).collect();
    let chosen: Vec<&str> = match text {
        "all" => all.clone(),
        "none" => Vec::new(),
        list => list.split(',').map(str::trim).collect(),
    };
    for name in &chosen {
        if !all.contains(name) {
            let fault = Fault::new(FaultKind::Usage, format!("there is no meter '{name}'"));
            return Err(match spec::did_you_mean(name, &all) {
                Some(near) => fault.remedy(format!("did you mean '{near}'?")),
                None => fault.remedy(format!("choose from {}", all.join(", "))),
            });
        }
    }
    Ok(chosen.into_iter().map(str::to_owned).collect())
}

fn default_folder() -> PathBuf {
    let format = time::macros::format_description!("[year][month][day]-[hour][minute][second]");
    let now = time::OffsetDateTime::now_utc();
    let name = now.format(format).unwrap_or_else(|_| now.unix_timestamp().to_string());
    let folder = PathBuf::from("bytepath-studies").join(&name);
    // Two studies may begin within one second.
    let mut free = folder.clone();
    for number in 2.. {
        if !free.exists() {
            break;
        }
        free = folder.with_file_name(format!("{name}-{number}"));
    }
    free
}

pub(super) fn own_program() -> Result<PathBuf, Fault> {
    std::env::current_exe().map_err(|e| Fault::system("cannot find the bytepath binary", &e))
}

/// A flag that the first Ctrl-C sets; the second one ends the process at once.
fn catch_signals() -> Result<Arc<AtomicBool>, Fault> {
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP] {
        signal_hook::flag::register_conditional_default(signal, stop.clone())
            .and_then(|_| signal_hook::flag::register(signal, stop.clone()))
            .map_err(|e| Fault::system("cannot catch signals", &e))?;
    }
    Ok(stop)
}

fn print_plan(plan: &Plan) {
    let each = plan.schedule.warm_up + plan.schedule.window;
    let order = spec::order(plan.cells.len(), plan.schedule.blocks, plan.schedule.seed);
    println!("cells:");
    for cell in &plan.cells {
        let mark = if cell.id == plan.baseline { "  (baseline)" } else { "" };
        println!("  {}{mark}", cell.id);
    }
    println!("order (seed {}):", plan.schedule.seed);
    for block in 0..plan.schedule.blocks {
        let pass: Vec<&str> = order
            .iter()
            .filter(|(b, _)| *b == block)
            .map(|(_, cell)| plan.cells[*cell].id.0.as_str())
            .collect();
        println!("  block {}: {}", block + 1, pass.join(", "));
    }
    let total = Duration::from_secs_f64(each * order.len() as f64);
    println!("{} trials of {each:.1} s: at least {}", order.len(), unit::seconds(total));
}

/// The typed options of workload and link, from their declarations.
fn run_options_help() -> String {
    let list = |title: &str, specs: &[OptionSpec]| {
        let mut text = format!("{title}\n");
        for spec in specs {
            let typed = format!("{}={}", spec.name, spec.kind);
            let line = format!("  {typed:<36} {} [{}]\n", spec.help, spec.default);
            text.push_str(&line);
        }
        text
    };
    let mut text = list("Stream options (--stream):", spec::STREAM_OPTIONS);
    text.push_str("\nLink presets (--link):\n");
    for preset in spec::PRESETS {
        text.push_str(&format!("  {:<10} {}\n", preset.name, preset.summary));
    }
    text.push('\n');
    text.push_str(&list("Link options:", spec::LINK_OPTIONS));
    text.push_str("\n`bytepath paths` lists the paths and their options.");
    text
}
