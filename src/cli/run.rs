//! `bytepath run` and `bytepath resume`.

use super::bed::{BedArguments, choice, chosen};
use super::exit::TRIAL_FAILED;
use super::help::list;
use super::memory;
use super::output::say;
use super::pairs;
use super::place::laboratory;
use super::plan;
use super::progress::{Progress, Talk};
use super::settings;
use super::show::{self, Form};
use super::signals::catch_signals;
use bytepath_engine::workload;
use bytepath_host::testbed::{self, Testbed};
use bytepath_record::{Design, Fault, OptionSpec, OptionValue, Study, Trial, TrialStatus};
use bytepath_spec as spec;
use bytepath_study::{Laboratory, conduct, is_begun, load, resume as go_on};
use bytepath_sys as sys;
use clap::Args;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

#[derive(Debug, Args)]
#[command(after_long_help = run_options_help())]
pub(super) struct RunArguments {
    /// Experiment file [default: none; the options below say what to run]
    ///
    /// docs/experiments.md describes the format.
    #[arg(value_name = "FILE", conflicts_with_all = ["path", "baseline", "workload", "flows", "message_size", "stream", "link", "cores", "kernel"])]
    pub file: Option<PathBuf>,
    /// Path to run: PAIR or TX+RX; repeatable [default: all pairs]
    ///
    /// With options: PAIR[:key=value,...] or TX[:...]+RX[:...]. `bytepath paths` lists them.
    #[arg(long, value_name = "PATH")]
    pub path: Vec<String>,
    /// Path that all others are compared with [default: the first]
    #[arg(long, hide_short_help = true, value_name = "PATH")]
    pub baseline: Option<String>,
    /// Workload: stream, rr or packets [default: stream]
    ///
    /// With options: rr[:key=value,...], packets[:key=value,...].
    #[arg(long, value_name = "WORKLOAD")]
    pub workload: Option<String>,
    /// Connections, each with a thread at both ends [default: 1]
    #[arg(short = 'P', long, value_name = "N", value_parser = flows)]
    pub flows: Option<OptionValue>,
    /// Size of a message: bytes, or with K, M or G [default: 1M]
    ///
    /// K, M and G are powers of 1024, as in all sizes. The sender's buffer is as large.
    #[arg(short = 'l', long, value_name = "SIZE", value_parser = message_size)]
    pub message_size: Option<OptionValue>,
    /// Further parameters of the connections, the same for all paths: key=value,...
    #[arg(
        long,
        hide_short_help = true,
        hide_default_value = true,
        value_name = "OPTIONS",
        default_value = ""
    )]
    pub stream: String,
    /// Link: wire, offload, big-tcp or another preset [default: wire]
    ///
    /// With options: PRESET[:key=value,...]. The default is nic on the testbed ports.
    #[arg(long, value_name = "LINK")]
    pub link: Option<String>,
    #[command(flatten)]
    pub bed: BedArguments,
    /// Pairs of hosts to distribute the blocks over: NAME,... of the inventory
    #[arg(long, hide_short_help = true, value_name = "NAMES", value_delimiter = ',', conflicts_with_all = ["testbed", "sender", "receiver", "dry_run", "kernel"])]
    pub pairs: Vec<String>,
    /// Inventory: a file that lists hosts and pairs (see docs/hosts.md) [default: hosts.toml]
    #[arg(long, hide_short_help = true, value_name = "FILE", requires = "pairs")]
    pub inventory: Option<PathBuf>,
    /// Kernel that the hosts of the testbed vm boot: [NAME=]SOURCE [COMMAND LINE]; repeatable
    #[arg(long, hide_short_help = true, value_name = "KERNEL")]
    pub kernel: Vec<String>,
    /// CPUs: two, one, together, apart, unpinned, or S,R
    ///
    /// two, one: a CPU for each end, or one for both (also two-cores, one-core). together,
    /// apart: the softirqs of each end on the CPU of its threads, or on another. Parts by
    /// name: sender=0,receiver=1,softirq=1,io-wq=0.
    #[arg(long, value_name = "CORES", default_value = "two")]
    pub cores: String,
    /// Meters to run: usual, all, none, or names as in usual,locks [default: the file's, or usual]
    #[arg(long, hide_short_help = true, value_name = "METERS")]
    pub meters: Option<String>,
    /// Blocks; each runs all cells in random order [default: 10]
    ///
    /// The default with a file is the file's.
    #[arg(short = 'n', long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=i64::from(spec::MOST_BLOCKS)))]
    pub blocks: Option<u32>,
    /// Warm-up before the measured window, as in 500ms [default: the file's, or 1s]
    #[arg(long, hide_short_help = true, value_name = "TIME", value_parser = spec::parse_warm_up)]
    pub warm_up: Option<Duration>,
    /// Measured window, as in 2s or 500ms [default: 1500ms]
    ///
    /// The default with a file is the file's.
    #[arg(short = 't', long, value_name = "TIME", value_parser = spec::parse_window)]
    pub window: Option<Duration>,
    /// How the cells of a block share its time: trials or slices[:TIME] [default: the file's, or slices if all cells can be open at once]
    #[arg(long, hide_short_help = true, value_name = "DESIGN", value_parser = design)]
    pub design: Option<Design>,
    /// Time limit for the study, as in 2h [default: none]
    ///
    /// The default with a file is the file's. A first pass over all cells, then further blocks of the comparisons that matter.
    #[arg(long, value_name = "TIME", value_parser = spec::parse_budget)]
    pub budget: Option<Duration>,
    /// Seed of the random order [default: the file's, or random]
    #[arg(long, hide_short_help = true, value_name = "N", value_parser = clap::value_parser!(u64).range(..=i64::MAX as u64))]
    pub seed: Option<u64>,
    /// Profiles at the end: leading, largest, all or none [default: leading]
    ///
    /// With options: leading:rate=499,trials=5. The default with a file is the file's, or none.
    #[arg(long, value_name = "WHAT")]
    pub profile: Option<String>,
    /// Source of power readings: SOURCE[=ARGUMENT][,rest=WATTS] [default: the file's, or auto]
    #[arg(long, hide_short_help = true, value_name = "SOURCE")]
    pub power: Option<String>,
    /// Profile of host settings to make for the study and restore afterwards: PROFILE[:device=NAME]; repeatable
    #[arg(long, hide_short_help = true, value_name = "PROFILE")]
    pub settings: Vec<String>,
    /// Single host setting, as `bytepath settings` lists them: "mtu eth0 4148", or "sender: mtu eth0 4148" for one host; repeatable
    #[arg(long, hide_short_help = true, value_name = "SETTING")]
    pub set: Vec<String>,
    /// Folder for the study [default: bytepath-studies/DATE-TIME]
    #[arg(short, long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// Let frame generators send into devices that bytepath did not create
    #[arg(long, hide_short_help = true)]
    pub i_own_this_link: bool,
    /// Run nothing; list cells, order, duration, and what would be set
    #[arg(long)]
    pub dry_run: bool,
    #[command(flatten)]
    pub talk: Talk,
    #[command(flatten)]
    pub form: Form,
}

#[derive(Debug, Args)]
pub(super) struct ResumeArguments {
    /// Folder of the study
    #[arg(value_name = "STUDY")]
    study: PathBuf,
    #[command(flatten)]
    talk: Talk,
    #[command(flatten)]
    form: Form,
}

impl RunArguments {
    /// The name of the workload, unless it is the default.
    pub(super) fn other_workload(&self) -> Option<&str> {
        let name = self.workload.as_deref()?.split(':').next().unwrap_or_default().trim();
        (!["", "stream"].contains(&name)).then_some(name)
    }
}

fn flows(text: &str) -> Result<OptionValue, String> {
    spec::stream_value("flows", text)
}

fn message_size(text: &str) -> Result<OptionValue, String> {
    spec::stream_value("message-size", text)
}

fn design(text: &str) -> Result<Design, String> {
    spec::parse_design(text).map_err(|fault| fault.to_string())
}

/// Runs a study and prints its report.
pub(super) fn run(arguments: &RunArguments) -> Result<ExitCode, Fault> {
    if !arguments.pairs.is_empty() {
        return pairs::run(arguments);
    }
    let (plan, testbed) = memory::bounded_while(|| plan::plan(arguments))?;
    let testbed = testbed.as_ref();
    if arguments.dry_run {
        plan::print(&plan, testbed, arguments.form.is_json())?;
        return Ok(ExitCode::SUCCESS);
    }
    let work =
        |laboratory: &Laboratory, progress: &mut Progress| conduct(laboratory, &plan, progress);
    watch(testbed, &plan.folder, &arguments.talk, &arguments.form, work)
}

/// Resumes an interrupted study and prints its report.
pub(super) fn resume(arguments: &ResumeArguments) -> Result<ExitCode, Fault> {
    let study = memory::bounded_while(|| load(&arguments.study))?;
    let testbed = chosen(&choice(&study.header.testbed)?)?;
    drop(study);
    let testbed = testbed.as_ref();
    let work = |laboratory: &Laboratory, progress: &mut Progress| {
        go_on(laboratory, &arguments.study, progress)
    };
    watch(testbed, &arguments.study, &arguments.talk, &arguments.form, work)
}

/// Runs trials with a progress bar and prints the report of the outcome,
/// complete or not.
fn watch(
    testbed: &dyn Testbed,
    folder: &Path,
    talk: &Talk,
    form: &Form,
    work: impl FnOnce(&Laboratory, &mut Progress) -> (Option<Study>, Result<(), Fault>),
) -> Result<ExitCode, Fault> {
    let stop = catch_signals()?;
    sys::process::report_file_size_limit();
    let laboratory = laboratory(testbed, &stop)?;
    settings::report_left_behind();
    let mut progress = Progress::new(talk);
    let (study, result) = work(&laboratory, &mut progress);
    progress.finish();
    let mut printed = Ok(());
    if let Some(study) = &study
        && !study.trials.is_empty()
    {
        printed = show::print(folder, study, form, None);
        progress.remark(&format!("study: {}", folder.display()));
    }
    if result.is_err() && study.is_some() && is_begun(folder) {
        say(format!("resume with: bytepath resume {}", folder.display()));
    }
    result.and(printed)?;
    let failed = |trial: &Trial| matches!(trial.status, TrialStatus::Failed { .. });
    let any_failed = study.is_some_and(|study| study.trials.iter().any(failed));
    Ok(if any_failed { ExitCode::from(TRIAL_FAILED) } else { ExitCode::SUCCESS })
}

pub(super) fn own_program() -> Result<PathBuf, Fault> {
    std::env::current_exe().map_err(|e| Fault::system("cannot find the bytepath binary", &e))
}

/// Examples, and the typed options of workload and link from their declarations.
fn run_options_help() -> String {
    let options = |heading: String, options: &[OptionSpec]| {
        let row = |option: &OptionSpec| {
            let typed = format!("{}={}", option.name, option.kind);
            (typed, format!("{} [{}]", option.help, option.default))
        };
        list(&heading, options.iter().map(row))
    };
    let workloads = workload::CATALOG.iter();
    let testbeds = testbed::CATALOG.iter();
    let presets = spec::PRESETS.iter().map(|preset| (preset.name, preset.summary));
    let sources = spec::POWER_SOURCES.iter().chain(spec::POWER_OPTIONS).copied();
    let mut parts = vec![EXAMPLES.to_owned()];
    parts.push(list("Workloads (--workload):", workloads.clone().map(|w| (w.name(), w.summary()))));
    parts.extend(workloads.filter(|workload| !workload.options().is_empty()).map(|workload| {
        let heading = format!("Options of the workload {} (--workload):", workload.name());
        options(heading, workload.options())
    }));
    parts.push(options("Stream options (--stream):".to_owned(), spec::STREAM_OPTIONS));
    parts.push(list("Link presets (--link):", presets));
    parts.push(options("Link options:".to_owned(), spec::LINK_OPTIONS));
    parts.extend(testbeds.filter(|testbed| !testbed.options().is_empty()).map(|testbed| {
        let heading = format!("Options of the testbed {} (--testbed):", testbed.name());
        options(heading, testbed.options())
    }));
    parts.push(list("Profiles (--profile):", spec::PROFILED_CELLS.iter().copied()));
    parts.push(options("Profile options:".to_owned(), spec::PROFILE_OPTIONS));
    parts.push(list("Sources of power (--power):", sources));
    parts.push(UNITS.to_owned());
    parts.join("\n")
}

const EXAMPLES: &str = "\
Examples:
  bytepath run                                     every path, about four minutes
  bytepath run --path socket --path uring -t 5s    two paths, windows of 5 s
  bytepath run -P 4 -l 64K -n 20                   four connections, smaller messages, 20 blocks
  bytepath run experiments/gro.toml -o gro -q      an experiment file, without progress
";

const UNITS: &str = "\
Times need a unit (2s, 500ms, 20us, 2m, 1h). Sizes are in bytes, or with K, M, G or T in
powers of 1024 (64K is 64KiB); 64KB is refused, because it may mean 64000.
`bytepath paths` lists the paths and their options.";
