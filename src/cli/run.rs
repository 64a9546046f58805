//! `bytepath run` and `bytepath resume`: arguments become a request, the request a plan, the plan
//! a study, and the study a report.

use super::exit::{NOTHING_MEASURED, TRIAL_FAILED};
use super::help::list;
use super::memory;
use super::newest::{STUDIES, named_or_newest};
use super::output::{quoted, say};
use super::plan;
use super::progress::{PairProgress, Progress, ProgressArgs};
use super::settings;
use super::show::{self, ReportArgs};
use super::signals::catch_signals;
use super::testbed_args::TestbedArgs;
use bytepath_engine::workload;
use bytepath_host::testbed;
use bytepath_record::{Design, Fault, OptionSpec, OptionValue, Study, TrialStatus};
use bytepath_spec::{self as spec, usage};
use bytepath_stats::FOREIGN_LIMIT;
use bytepath_study::{
    Deployment, ExperimentRequest, Laboratory, OpenStudy, PairedStudy, PathsRequest, RunRequest,
    is_begun, load, resume_study, run_study,
};
use bytepath_sys as sys;
use clap::Args;
use std::io::{self, IsTerminal};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::AtomicUsize;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use time::OffsetDateTime;

#[derive(Debug, Args)]
#[command(after_long_help = run_options_help())]
pub(super) struct RunArgs {
    /// Experiment file; without one, the options below say what to run
    ///
    /// docs/guide/experiments.md describes the format.
    #[arg(value_name = "FILE", conflicts_with_all = ["path", "baseline", "workload", "flows", "message_size", "stream", "link", "kernel"])]
    file: Option<PathBuf>,
    /// Data path, as in splice or splice+socket; repeatable [default: all]
    ///
    /// With options: PAIR[:key=value,...] or TX[:...]+RX[:...]. `bytepath paths` lists them.
    #[arg(long, value_name = "PATH")]
    path: Vec<String>,
    /// Path that all others are compared with [default: the first]
    #[arg(long, hide_short_help = true, value_name = "PATH")]
    baseline: Option<String>,
    /// Workload: stream, rr or packets [default: stream]
    ///
    /// With options: rr[:key=value,...], packets[:key=value,...].
    #[arg(long, value_name = "WORKLOAD")]
    workload: Option<String>,
    /// Connections [default: 1]
    #[arg(short = 'P', long, value_name = "N", value_parser = |text: &str| spec::stream_value("flows", text))]
    flows: Option<OptionValue>,
    /// Size of a message: bytes, or with K, M or G [default: 1M]
    ///
    /// K, M and G are powers of 1024, as in all sizes. The sender's buffer is as large.
    #[arg(short = 'l', long, value_name = "SIZE", value_parser = |text: &str| spec::stream_value("message-size", text))]
    message_size: Option<OptionValue>,
    /// Further parameters of the connections, the same for all paths: key=value,...
    #[arg(
        long,
        hide_short_help = true,
        hide_default_value = true,
        value_name = "OPTIONS",
        default_value = ""
    )]
    stream: String,
    /// Link: wire, offload, big-tcp or another preset [default: wire]
    ///
    /// With options: PRESET[:key=value,...]. The default is nic on the testbed ports.
    #[arg(long, value_name = "LINK")]
    link: Option<String>,
    #[command(flatten)]
    testbed: TestbedArgs,
    /// Pairs of hosts to distribute the blocks over: NAME,... of the inventory
    #[arg(long, hide_short_help = true, value_name = "NAMES", value_delimiter = ',', conflicts_with_all = ["testbed", "sender", "receiver", "dry_run", "kernel"])]
    pairs: Vec<String>,
    /// Inventory: a file that lists hosts and pairs (see docs/guide/hosts.md) [default: hosts.toml]
    #[arg(long, hide_short_help = true, value_name = "FILE", requires = "pairs")]
    inventory: Option<PathBuf>,
    /// Kernel that the hosts of the testbed vm boot: [NAME=]SOURCE [COMMAND LINE]; repeatable
    #[arg(long, hide_short_help = true, value_name = "KERNEL")]
    kernel: Vec<String>,
    /// CPUs: two, one, together, apart, unpinned, or S,R [default: two]
    ///
    /// two, one: a CPU for each end, or one for both (also two-cores, one-core). together,
    /// apart: softirqs on the CPU of an end's threads, or on another. Parts by
    /// name: sender=0,receiver=1,softirq=1,io-wq=0. With a file, it takes the place of the
    /// file's placements: users without root cannot place softirqs.
    #[arg(long, value_name = "CORES")]
    cores: Option<String>,
    /// Meters to run: default, all, none, or names as in default,locks [default: the file's, or
    /// default]
    #[arg(long, hide_short_help = true, value_name = "METERS")]
    meters: Option<String>,
    /// Repetitions of every path, in random order [default: until sure]
    ///
    /// With a file the default is the file's, or 10. With --time it is the most.
    #[arg(short = 'n', long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=i64::from(spec::MOST_BLOCKS)))]
    blocks: Option<u32>,
    /// Warm-up before the measured window, as in 500ms [default: the file's; 200ms; with a file or
    /// -n 1s]
    #[arg(long, hide_short_help = true, value_name = "TIME", value_parser = spec::parse_warm_up)]
    warm_up: Option<Duration>,
    /// Measured window of a trial, as in 2s or 500ms [default: 300ms]
    ///
    /// The default with a file is the file's, or 1500ms, as with --blocks alone.
    #[arg(long, value_name = "TIME", value_parser = spec::parse_window)]
    window: Option<Duration>,
    /// How the cells of a block share its time: trials or slices[:TIME] [default: the file's, or
    /// slices if all cells can be open at once]
    #[arg(long, hide_short_help = true, value_name = "DESIGN", value_parser = spec::parse_design)]
    design: Option<Design>,
    /// Time of the study, as in 20s; it ends once it is sure [default: 90s]
    ///
    /// The default is 5m where the cells cannot be open at once and take turns (--design trials).
    /// A comparison is decided as soon as its interval, which holds however often one looks,
    /// allows it; a cell whose comparisons are decided or out of reach is left out of further
    /// blocks. With a file the default is the file's, or no limit but its blocks.
    #[arg(short = 't', long, alias = "budget", value_name = "TIME", value_parser = spec::parse_time)]
    time: Option<Duration>,
    /// Count only trials in which others used at most 10% of a role's CPU
    ///
    /// Without it trials on a busy machine count, marked with ~. Short for --max-interference 10%.
    #[arg(long, conflicts_with = "max_interference")]
    strict: bool,
    /// Reject trials in which others used more than this share of a role's CPU, as in 30%
    #[arg(long, hide_short_help = true, value_name = "PERCENT", value_parser = spec::parse_interference)]
    max_interference: Option<f64>,
    /// Wait for other programs to leave the CPUs idle, at most this long
    #[arg(long, value_name = "TIME", num_args = 0..=1, require_equals = true, default_missing_value = "5m", value_parser = spec::parse_time)]
    wait_idle: Option<Duration>,
    /// Seed of the random order [default: the file's, or random]
    #[arg(long, hide_short_help = true, value_name = "N", value_parser = clap::value_parser!(u64).range(..=i64::MAX as u64))]
    seed: Option<u64>,
    /// Profiles at the end: leading, largest, all or none [default: leading]
    ///
    /// With options: leading:rate=499,trials=5. The default with a file is the file's, or none.
    #[arg(long, value_name = "WHAT")]
    profile: Option<String>,
    /// Source of power readings: SOURCE[=ARGUMENT][,rest=WATTS] [default: the file's, or auto]
    #[arg(long, hide_short_help = true, value_name = "SOURCE")]
    power: Option<String>,
    /// Profile of host settings to make for the study and restore afterwards:
    /// PROFILE[:device=NAME]; none leaves out the file's; repeatable
    #[arg(long, hide_short_help = true, value_name = "PROFILE")]
    settings: Vec<String>,
    /// Single host setting, as `bytepath settings` lists them: "mtu eth0 4148", or "sender: mtu
    /// eth0 4148" for one host; repeatable
    #[arg(long, hide_short_help = true, value_name = "SETTING")]
    set: Vec<String>,
    /// Folder for the study [default: bytepath-studies/DATE-TIME]
    #[arg(long, value_name = "DIR")]
    study: Option<PathBuf>,
    /// Assert that no one else uses an existing link: frame generators may fill it
    #[arg(long, hide_short_help = true, alias = "i-own-this-link")]
    unshared_link: bool,
    /// Run what the file names (commands, hosts, kernels, settings) even if others may have written
    /// it
    #[arg(long, hide_short_help = true)]
    trust: bool,
    /// Run also what a probe of the hosts refuses: a trial then shows whether it can run
    #[arg(long, hide_short_help = true)]
    force: bool,
    /// Run nothing; list cells, order, duration, and what would be set
    #[arg(long)]
    dry_run: bool,
    #[command(flatten)]
    progress: ProgressArgs,
    #[command(flatten)]
    report: ReportArgs,
}

#[derive(Debug, Args)]
pub(super) struct ResumeArgs {
    /// Folder of the study [default: the newest in bytepath-studies]
    #[arg(value_name = "STUDY")]
    study: Option<PathBuf>,
    /// Run what the study names (commands, hosts, kernels, settings) even if others may have
    /// written it
    #[arg(long, hide_short_help = true)]
    trust: bool,
    #[command(flatten)]
    progress: ProgressArgs,
    #[command(flatten)]
    report: ReportArgs,
}

impl RunArgs {
    /// Converts the arguments to a request.
    fn resolve(&self) -> Result<RunRequest, Fault> {
        Ok(RunRequest {
            experiment: self.experiment()?,
            testbed: self.testbed.resolve()?,
            blocks: self.blocks,
            warm_up: self.warm_up,
            window: self.window,
            design: self.design,
            time: self.time,
            wait_idle: self.wait_idle,
            max_interference: self.strict.then_some(FOREIGN_LIMIT).or(self.max_interference),
            seed: self.seed,
            meters: self.meters.as_deref().map(words),
            profiling: self.profile.as_deref().map(spec::parse_profile).transpose()?,
            power: self.power.as_deref().map(spec::parse_power).transpose()?,
            settings: spec::wanted_settings(
                self.settings.iter().map(String::as_str).filter(|profile| *profile != NONE),
                self.set.iter().map(String::as_str),
            )?,
            without_file_settings: self.settings.iter().any(|profile| profile == NONE),
            cores: self.cores.clone(),
            force: self.force,
            link_is_unshared: self.unshared_link,
            trusted: self.trust,
            folder: self.study.clone().unwrap_or_else(default_folder),
        })
    }

    fn experiment(&self) -> Result<ExperimentRequest, Fault> {
        if let Some(file) = &self.file {
            return Ok(ExperimentRequest::File(file.clone()));
        }
        let workload = self.workload.clone().unwrap_or_default();
        let name = workload.split(':').next().unwrap_or_default().trim();
        if self.message_size.is_some() && !["", "stream"].contains(&name) {
            let text = format!("--message-size is for the workload stream, not for {name}");
            return Err(usage(text)
                .remedy("choose --workload rr:request=SIZE,response=SIZE or packets:frame=SIZE"));
        }
        let flags = [("flows", self.flows.as_ref()), ("message-size", self.message_size.as_ref())];
        let kernels = self.kernel.iter().map(|text| spec::parse_kernel(text));
        Ok(ExperimentRequest::Paths(PathsRequest {
            paths: self.path.clone(),
            baseline: self.baseline.clone(),
            workload,
            stream: spec::with_flags(&self.stream, &flags)?,
            link: self.link.clone(),
            cores: self.cores.clone().unwrap_or_else(|| "two".to_owned()),
            kernels: kernels.collect::<Result<_, Fault>>()?,
        }))
    }
}

/// Typed instead of a profile to ignore the settings of the file.
const NONE: &str = "none";

fn words(list: &str) -> Vec<String> {
    list.split(',').map(|word| word.trim().to_owned()).collect()
}

/// Returns a new folder for a study, named after the current time.
pub(super) fn default_folder() -> PathBuf {
    let format = time::macros::format_description!("[year][month][day]-[hour][minute][second]");
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    // Not every value of a clock is a valid date.
    let date =
        i64::try_from(now).ok().and_then(|now| OffsetDateTime::from_unix_timestamp(now).ok());
    let name = date.and_then(|date| date.format(format).ok()).unwrap_or_else(|| now.to_string());
    let folder = PathBuf::from(STUDIES).join(&name);
    // Two studies may begin within the same second.
    let others = (2..).map(|number| folder.with_file_name(format!("{name}-{number}")));
    let mut candidates = std::iter::once(folder.clone()).chain(others);
    candidates.find(|folder| !folder.exists()).unwrap_or(folder)
}

/// Runs a study and prints its report.
pub(super) fn run(arguments: &RunArgs) -> Result<ExitCode, Fault> {
    let RunArgs { pairs, inventory, progress, report, dry_run, .. } = arguments;
    check_report_file(report)?;
    let request = arguments.resolve()?;
    if !pairs.is_empty() {
        let inventory = inventory.as_deref().unwrap_or(Path::new("hosts.toml"));
        return run_pairs(&PairedStudy::plan(&request, inventory, pairs)?, progress, report);
    }
    if *dry_run {
        let (plan, deployment) = memory::bounded_while(|| request.plan())?;
        return plan::print(&plan, &deployment, report.is_json());
    }
    run_request(&request, progress, report)
}

/// Errors if the name of the report's file gives no format: perhaps it was meant for the study.
fn check_report_file(report: &ReportArgs) -> Result<(), Fault> {
    let file = report.out.as_deref().filter(|file| file.extension().is_none() || file.is_dir());
    report.format().map(drop).map_err(|fault| match file {
        Some(file) => {
            let file = quoted(file);
            usage(format!("-o {file} is for the report, and its name has no suffix")).remedy(format!(
                "name the folder of the study with --study {file}, or the report as in -o report.html"
            ))
        }
        None => fault,
    })
}

/// Runs a request and prints its report.
pub(super) fn run_request(
    request: &RunRequest,
    progress: &ProgressArgs,
    report: &ReportArgs,
) -> Result<ExitCode, Fault> {
    let (plan, deployment) = memory::bounded_while(|| request.plan())?;
    let work = |laboratory: &Laboratory, shown: &mut Progress| run_study(laboratory, &plan, shown);
    watch(&deployment, &plan.folder, progress, report, work)
}

/// Resumes an interrupted study and prints its report.
pub(super) fn resume(arguments: &ResumeArgs) -> Result<ExitCode, Fault> {
    check_report_file(&arguments.report)?;
    let study = named_or_newest(arguments.study.as_deref())?;
    resume_folder(&study, arguments.trust, &arguments.progress, &arguments.report)
}

pub(super) fn resume_folder(
    folder: &Path,
    trusted: bool,
    progress: &ProgressArgs,
    report: &ReportArgs,
) -> Result<ExitCode, Fault> {
    let study = memory::bounded_while(|| OpenStudy::open(folder, trusted))?;
    let deployment = Deployment::parse(study.testbed())?;
    let work =
        |laboratory: &Laboratory, shown: &mut Progress| resume_study(laboratory, study, shown);
    watch(&deployment, folder, progress, report, work)
}

/// Runs trials with a progress bar, and prints the report, complete or not.
fn watch(
    deployment: &Deployment,
    folder: &Path,
    progress: &ProgressArgs,
    report: &ReportArgs,
    work: impl FnOnce(&Laboratory, &mut Progress) -> (Option<Study>, Result<(), Fault>),
) -> Result<ExitCode, Fault> {
    let stop = catch_signals()?;
    sys::process::report_file_size_limit();
    let laboratory = deployment.laboratory(&stop)?;
    settings::report_left_behind();
    let mut progress = Progress::new(progress);
    let (study, result) = work(&laboratory, &mut progress);
    progress.finish();
    let mut printed = Ok(());
    if let Some(study) = &study
        && !study.trials.is_empty()
    {
        printed = print_report(folder, study, report);
        progress.remark(&format!("study: {}", folder.display()));
    }
    if result.is_err() && study.is_some() && is_begun(folder) {
        say(format!("resume with: bytepath resume {}", quoted(folder)));
    }
    result.and(printed)?;
    let code = study.map_or(0, |study| {
        let [trials, profiles] = [&study.trials, &study.profiles]
            .map(|trials| trials.iter().map(|trial| &trial.status).collect::<Vec<_>>());
        exit_code(&trials, &profiles)
    });
    Ok(ExitCode::from(code))
}

/// Returns the exit code of a study that ran to its end: whether a trial failed, including those
/// for profiles, otherwise whether any was measured.
fn exit_code(trials: &[&TrialStatus], profiles: &[&TrialStatus]) -> u8 {
    let measured = trials.contains(&&TrialStatus::Measured);
    let ran = trials.iter().any(|status| matches!(status, TrialStatus::Rejected { .. }));
    let mut all = trials.iter().chain(profiles);
    match all.any(|status| matches!(status, TrialStatus::Failed { .. })) {
        true => TRIAL_FAILED,
        false if ran && !measured => NOTHING_MEASURED,
        false => 0,
    }
}

/// Prints the report, or writes it to its file; in that case a user at a terminal gets the text,
/// too.
fn print_report(folder: &Path, study: &Study, report: &ReportArgs) -> Result<(), Fault> {
    show::print(folder, study, report, None)?;
    match report.out.is_some() && io::stdout().is_terminal() {
        true => show::print(folder, study, &ReportArgs::default(), None),
        false => Ok(()),
    }
}

/// Runs a study on pairs of hosts and prints the report of the merged study.
fn run_pairs(
    study: &PairedStudy,
    progress: &ProgressArgs,
    report: &ReportArgs,
) -> Result<ExitCode, Fault> {
    let stop = catch_signals()?;
    sys::process::report_file_size_limit();
    let (trials, quiet) = (study.trials, progress.quiet);
    if !quiet {
        say(format!("{trials} trials over {} pairs", study.count()));
    }
    let ended = AtomicUsize::new(0);
    let observer =
        |pair: &str| PairProgress { pair: pair.to_owned(), ended: &ended, trials, quiet };
    let faults = study.run(&stop, observer);
    for (pair, fault) in &faults {
        say(format!("{pair}: {fault}"));
    }
    let mut printed = Ok(());
    if study.merge()? {
        let out = &study.folder;
        printed = print_report(out, &load(out)?, report);
        if !quiet {
            say(format!("study: {}\nof each pair: {}", out.display(), study.parts.display()));
        }
    }
    match faults.into_iter().next() {
        Some((_, fault)) => Err(fault),
        None => printed.map(|()| ExitCode::SUCCESS),
    }
}

/// Returns examples, and the options of workload and link from their declarations.
fn run_options_help() -> String {
    let options = |heading: &str, options: &[OptionSpec]| {
        let row = |option: &OptionSpec| {
            let typed = format!("{}={}", option.name, option.kind);
            (typed, format!("{} [{}]", option.help, option.default))
        };
        list(heading, options.iter().map(row))
    };
    let of = |kind: &str, name: &str, own: &[OptionSpec]| {
        let heading = format!("Options of the {kind} {name} (--{kind}):");
        (!own.is_empty()).then(|| options(&heading, own))
    };
    let workloads = workload::CATALOG.iter();
    let testbeds = testbed::CATALOG.iter();
    let presets = spec::PRESETS.iter().map(|preset| (preset.name, preset.summary));
    let sources = spec::POWER_SOURCES.iter().chain(spec::POWER_OPTIONS).copied();
    let mut parts = vec![EXAMPLES.to_owned()];
    parts.push(list("Workloads (--workload):", workloads.clone().map(|w| (w.name, w.summary))));
    parts.extend(workloads.filter_map(|w| of("workload", w.name, w.options)));
    parts.push(options("Stream options (--stream):", spec::STREAM_OPTIONS));
    parts.push(list("Link presets (--link):", presets));
    parts.push(options("Link options:", spec::LINK_OPTIONS));
    parts.extend(testbeds.filter_map(|testbed| of("testbed", testbed.name(), testbed.options())));
    parts.push(list("Profiles (--profile):", spec::PROFILED_CELLS.iter().copied()));
    parts.push(options("Profile options:", spec::PROFILE_OPTIONS));
    parts.push(list("Sources of power (--power):", sources));
    parts.push(UNITS.to_owned());
    parts.join("\n")
}

const EXAMPLES: &str = "\
Examples:
  bytepath run                                     every path until it is sure, at most 90 s
  bytepath run --path socket --path uring -t 20s   two paths, 20 seconds
  bytepath run -P 4 -l 64K -n 20                   four connections, smaller messages, 20 blocks
  bytepath run experiments/gro.toml -o gro.html    an experiment file, its report as a page
";

const UNITS: &str = "\
Times need a unit (2s, 500ms, 20us, 2m, 1h). Sizes are in bytes, or with K, M, G or T in
powers of 1024 (64K is 64KiB); 64KB is refused, because it may mean 64000.
`bytepath paths` lists the paths and their options.";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_failed_or_was_not_measured_decides_the_exit_code() {
        let measured = &TrialStatus::Measured;
        let rejected = &TrialStatus::Rejected { events: vec!["a CPU was throttled".into()] };
        let failed = &TrialStatus::Failed { fault: Fault::failed("nothing moved") };
        assert_eq!(exit_code(&[measured, rejected], &[rejected]), 0);
        assert_eq!(exit_code(&[measured, failed], &[]), TRIAL_FAILED);
        assert_eq!(exit_code(&[measured], &[measured, failed]), TRIAL_FAILED);
        assert_eq!(exit_code(&[rejected], &[]), NOTHING_MEASURED);
        assert_eq!(exit_code(&[], &[]), 0);
    }
}
