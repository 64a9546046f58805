//! `bytepath fleet`: an experiment on many pairs of hosts, allocated by Slurm.

use super::exit::{TRIAL_FAILED, UNDECIDED};
use super::output::{print_text, quoted, say, warn};
use super::output_args::{Document, OutputArgs};
use super::progress::ProgressArgs;
use super::run::{resume_folder, run_request};
use super::show::ReportArgs;
use bytepath_record::{Fault, unit};
use bytepath_study::fleet::{self, MOST_SHARDS, Order, Shard, ShardState, ShardTask, Submitted};
use clap::{Args, Subcommand};
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

#[derive(Debug, Args)]
pub(super) struct FleetArgs {
    #[command(subcommand)]
    command: FleetCommand,
}

#[derive(Debug, Subcommand)]
enum FleetCommand {
    /// Submit a job array to Slurm: each task runs a shard on two nodes of its own
    ///
    /// Run again, it submits the shards that are neither complete nor waiting nor running.
    Submit(SubmitArgs),
    /// Show the state of each shard
    ///
    /// Exits with 0 if all are complete, 125 if some are waiting or running, 5 if one was lost.
    Status(StatusArgs),
    /// Merge the shards into one study
    Collect(CollectArgs),
    /// Run a shard, in the fleet's folder and within a Slurm job
    #[command(hide = true)]
    Shard,
}

#[derive(Debug, Args)]
struct SubmitArgs {
    /// Experiment file (see docs/guide/experiments.md)
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// Folder for the fleet, on a file system that all nodes share
    #[arg(value_name = "DIR")]
    folder: PathBuf,
    /// Shards, each on two nodes and with a seed of its own
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=i64::from(MOST_SHARDS)))]
    shards: u32,
    /// Partition of the nodes [default: Slurm's]
    #[arg(long, value_name = "NAME")]
    partition: Option<String>,
    /// Additional option for sbatch, as in --sbatch=--time=30; repeatable
    #[arg(long, value_name = "OPTION", allow_hyphen_values = true)]
    sbatch: Vec<String>,
    /// Addresses for the data, NODE=ADDRESS,... [default: those that Slurm has]
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = address)]
    addresses: Vec<(String, IpAddr)>,
    /// Run what the file names even if others may have written it
    #[arg(long)]
    trust: bool,
}

#[derive(Debug, Args)]
struct StatusArgs {
    /// Folder of the fleet
    #[arg(value_name = "DIR")]
    folder: PathBuf,
    /// Show changes until no shard is waiting or running
    #[arg(long, conflicts_with_all = ["json", "format", "out"])]
    follow: bool,
    #[command(flatten)]
    output: OutputArgs,
}

#[derive(Debug, Args)]
struct CollectArgs {
    /// Folder of the fleet
    #[arg(value_name = "DIR")]
    folder: PathBuf,
    /// Folder for the merged study [default: DIR/study]
    #[arg(long, value_name = "DIR")]
    study: Option<PathBuf>,
    /// Merge the complete shards even if others are not
    #[arg(long)]
    partial: bool,
    /// Merge the shards even if their CPUs or kernels differ
    #[arg(long)]
    different_hosts: bool,
}

/// Interval at which Slurm and the folder are queried.
const INTERVAL: Duration = Duration::from_secs(2);

fn address(text: &str) -> Result<(String, IpAddr), String> {
    let (node, address) = text.split_once('=').ok_or("write NODE=ADDRESS")?;
    let address = address.parse().map_err(|_| format!("'{address}' is not an IP address"))?;
    Ok((node.to_owned(), address))
}

pub(super) fn fleet(arguments: FleetArgs) -> Result<ExitCode, Fault> {
    match arguments.command {
        FleetCommand::Submit(arguments) => submit(arguments),
        FleetCommand::Status(arguments) => status(&arguments),
        FleetCommand::Collect(arguments) => collect(arguments),
        FleetCommand::Shard => run_shard(),
    }
}

fn submit(arguments: SubmitArgs) -> Result<ExitCode, Fault> {
    let SubmitArgs { file, folder, shards, partition, sbatch, addresses, trust } = arguments;
    let quoted = quoted(&folder);
    let order =
        Order { file, folder, shards, partition, options: sbatch, addresses, trusted: trust };
    let Submitted { job, shards, trials } = fleet::submit(&order)?;
    print_text(|to| {
        let word = if shards == 1 { "shard" } else { "shards" };
        writeln!(to, "job {job}: {shards} {word} of {trials} trials, each on two nodes")?;
        writeln!(to, "follow them:  bytepath fleet status {quoted} --follow")?;
        writeln!(to, "merge them:   bytepath fleet collect {quoted}")
    })?;
    Ok(ExitCode::SUCCESS)
}

/// Heading of the table of shards.
const HEADING: &str = "shard  state            nodes                   trials     left";

/// Formats a shard as a line below [`HEADING`].
fn line(shard: &Shard) -> String {
    let slurm_state = shard.slurm_state.as_deref().map(str::to_lowercase);
    let (state, nodes) = match (shard.state, slurm_state) {
        (ShardState::New, _) => ("not submitted".to_owned(), None),
        (ShardState::Complete, _) => ("complete".to_owned(), shard.nodes.as_deref()),
        (ShardState::Active, Some(state)) => (state, shard.nodes.as_deref()),
        (_, Some(state)) => (format!("lost: {state}"), shard.nodes.as_deref()),
        (_, None) => ("lost".to_owned(), None),
    };
    let left = shard.seconds_left.map(f64::round).map(Duration::try_from_secs_f64);
    let left = left.and_then(Result::ok).map_or_else(|| "-".to_owned(), unit::seconds);
    let trials = format!("{}/{}", shard.trials_ended, shard.trials);
    let (number, nodes) = (shard.shard, nodes.unwrap_or("-"));
    let reason = shard.reason.as_deref().unwrap_or_default();
    let line = format!("{number:>5}  {state:<16} {nodes:<20} {trials:>9} {left:>8}  {reason}");
    line.trim_end().to_owned()
}

/// Prints one line per shard, and with `--follow` again whenever one changes.
fn status(arguments: &StatusArgs) -> Result<ExitCode, Fault> {
    let mut printed: Vec<String> = Vec::new();
    loop {
        let shards = fleet::shards(&arguments.folder)?;
        let has = |state| shards.iter().any(|shard| shard.state == state);
        let is_active = has(ShardState::Active);
        let is_missing = shards.iter().any(|shard| shard.state.is_missing());
        let lines: Vec<String> = shards.iter().map(line).collect();
        let document = Document::of("bytepath-fleet", "shards", shards);
        arguments.output.print_plain(&document, |to| {
            if printed.is_empty() {
                writeln!(to, "{HEADING}")?;
            }
            let mut new = lines.iter().filter(|line| !printed.contains(line));
            new.try_for_each(|line| writeln!(to, "{line}"))
        })?;
        printed = lines;
        if arguments.follow && is_active {
            std::thread::sleep(INTERVAL);
            continue;
        }
        if is_missing {
            say("submit what is missing with the same `bytepath fleet submit`");
            return Ok(ExitCode::from(TRIAL_FAILED));
        }
        return Ok(if is_active { ExitCode::from(UNDECIDED) } else { ExitCode::SUCCESS });
    }
}

/// Merges the complete shards.
fn collect(arguments: CollectArgs) -> Result<ExitCode, Fault> {
    let CollectArgs { folder, study, partial, different_hosts } = arguments;
    let out = study.unwrap_or_else(|| folder.join("study"));
    let (merged, missing) = fleet::collect(&folder, &out, partial, different_hosts)?;
    missing.iter().for_each(|missing| warn(format!("left out: {missing}")));
    print_text(|to| {
        writeln!(to, "study: {}, merged from {merged}", out.display())?;
        writeln!(to, "its report:  bytepath show {} --details", quoted(&out))
    })?;
    Ok(ExitCode::SUCCESS)
}

/// Runs or resumes a shard: started by Slurm, in the fleet's folder.
fn run_shard() -> Result<ExitCode, Fault> {
    let (task, remarks) = fleet::shard_task(Path::new(""))?;
    remarks.iter().for_each(say);
    let (progress, report) = (ProgressArgs::default(), ReportArgs::default());
    match task {
        ShardTask::Complete => Ok(ExitCode::SUCCESS),
        ShardTask::Resume(study) => resume_folder(&study, false, &progress, &report),
        ShardTask::Run(request) => run_request(&request, &progress, &report),
    }
}
