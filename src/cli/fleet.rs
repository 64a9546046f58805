//! `bytepath fleet`: an experiment on many pairs of hosts, allocated by Slurm.

use super::bed::choice;
use super::exit::{TRIAL_FAILED, UNDECIDED};
use super::output::{print_text, say, warn};
use super::plan::{LONGEST_TEXT, catalogues, read, seed};
use super::printed::{Document, Printed};
use super::run::own_program;
use super::{Arguments, dispatch};
use bytepath_record::{Fault, FaultKind, unit};
use bytepath_spec::{self as spec, Catalogues, Cpus, Experiment};
use bytepath_study::fleet::slurm::{self, Task};
use bytepath_study::fleet::{
    self, EXPERIMENT, Fleet, JOB, JOB_TEXT, MOST_SHARDS, PROGRAM, name, reached,
};
use bytepath_study::{Reached, is_begun, load, merge, refuse_used, storage};
use bytepath_sys::files;
use clap::{Args, Parser, Subcommand};
use serde::Serialize;
use std::fs;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

#[derive(Debug, Args)]
pub(super) struct FleetArguments {
    #[command(subcommand)]
    command: FleetCommand,
}

#[derive(Debug, Subcommand)]
enum FleetCommand {
    /// Submit a job array to Slurm: each task runs a shard on two nodes of its own
    ///
    /// Run again, it submits the shards that are neither complete nor waiting nor running.
    Submit(SubmitArguments),
    /// Show the state of each shard
    ///
    /// Exits with 0 if all are complete, 125 if some are waiting or running, 5 if one was lost.
    Status(StatusArguments),
    /// Merge the shards into one study
    Collect(CollectArguments),
    /// Run a shard, in the fleet's folder and within a Slurm job
    #[command(hide = true)]
    Shard,
}

#[derive(Debug, Args)]
struct SubmitArguments {
    /// Experiment file (see docs/experiments.md)
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// Folder for the fleet, on a file system that all nodes share
    #[arg(short, long, value_name = "DIR")]
    out: PathBuf,
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
}

#[derive(Debug, Args)]
struct StatusArguments {
    /// Folder of the fleet
    #[arg(value_name = "DIR")]
    folder: PathBuf,
    /// Show changes until no shard is waiting or running
    #[arg(long, conflicts_with_all = ["json", "format", "out"])]
    follow: bool,
    #[command(flatten)]
    printed: Printed,
}

#[derive(Debug, Args)]
struct CollectArguments {
    /// Folder of the fleet
    #[arg(value_name = "DIR")]
    folder: PathBuf,
    /// Folder for the merged study [default: DIR/study]
    #[arg(short, long, value_name = "STUDY")]
    out: Option<PathBuf>,
    /// Merge the complete shards even if others are not
    #[arg(long)]
    partial: bool,
    /// Merge the shards even if their CPUs or kernels differ
    #[arg(long)]
    different_hosts: bool,
}

/// How often Slurm and the folder are looked at.
const LOOK: Duration = Duration::from_secs(2);

fn address(text: &str) -> Result<(String, IpAddr), String> {
    let (node, address) = text.split_once('=').ok_or("write NODE=ADDRESS")?;
    let address = address.parse().map_err(|_| format!("'{address}' is not an IP address"))?;
    Ok((node.to_owned(), address))
}

pub(super) fn fleet(arguments: &FleetArguments) -> Result<ExitCode, Fault> {
    match &arguments.command {
        FleetCommand::Submit(arguments) => submit(arguments),
        FleetCommand::Status(arguments) => status(arguments),
        FleetCommand::Collect(arguments) => collect(arguments),
        FleetCommand::Shard => shard(Path::new(".")),
    }
}

/// Writes the fleet's folder if need be, and submits what is missing.
fn submit(arguments: &SubmitArguments) -> Result<ExitCode, Fault> {
    let source = read(&arguments.file)?;
    let experiment = parsed(&arguments.file, &source.text)?;
    let out = &arguments.out;
    fs::create_dir_all(out).map_err(|e| storage("make", out, &e))?;
    // Jobs begin in this folder, wherever they were submitted from.
    let folder = fs::canonicalize(out).map_err(|e| storage("find", out, &e))?;
    let mut fleet = match Fleet::is_in(&folder) {
        true => again(&folder, arguments, &source.text)?,
        false => begin(&folder, arguments, &experiment, &source.text)?,
    };
    let rows = rows(&folder, &fleet)?;
    let missing = |row: &&Row| matches!(row.state(), State::Lost | State::New);
    let shards: Vec<u32> = rows.iter().filter(missing).map(|row| row.shard).collect();
    if shards.is_empty() {
        let text = format!("every shard of {} is complete, waiting or running", out.display());
        return Err(Fault::new(FaultKind::Usage, text)
            .remedy(format!("bytepath fleet status {}", out.display())));
    }
    let job = slurm::submit(&folder, &shards, arguments.partition.as_deref(), &arguments.sbatch)?;
    fleet.jobs.push(job.clone());
    fleet.write(&folder)?;
    let (count, trials, out) = (shards.len(), fleet.trials, out.display());
    print_text(|to| {
        let shards = if count == 1 { "shard" } else { "shards" };
        writeln!(to, "job {job}: {count} {shards} of {trials} trials, each on two nodes")?;
        writeln!(to, "follow them:  bytepath fleet status {out} --follow")?;
        writeln!(to, "merge them:   bytepath fleet collect {out}")
    })?;
    Ok(ExitCode::SUCCESS)
}

/// The experiment as it will be run on nodes whose CPUs are not known here.
fn parsed(file: &Path, text: &str) -> Result<Experiment, Fault> {
    let nodes = ["n0", "n1"].map(str::to_owned);
    let anywhere = [IpAddr::from([192, 0, 2, 1]), IpAddr::from([192, 0, 2, 2])];
    let testbed = Some(choice(&slurm::testbed(&nodes, anywhere))?);
    let all: Vec<u32> = (0..MOST_CPUS).collect();
    let catalogues = Catalogues { testbed, cpus: Cpus::Apart([all.clone(), all]), ..catalogues()? };
    let experiment = spec::parse_experiment(&file.display().to_string(), text, &catalogues)?;
    if experiment.stopping.is_some() || experiment.budget.is_some() {
        let text = format!("{}: shards that may stop early cannot be merged", file.display());
        return Err(Fault::new(FaultKind::Usage, text).remedy("leave out the keys stop and budget"));
    }
    Ok(experiment)
}

/// CPUs that an experiment may name: the largest NR_CPUS of x86 (arch/x86/Kconfig).
const MOST_CPUS: u32 = 8192;

/// A new fleet in an empty folder.
fn begin(
    folder: &Path,
    arguments: &SubmitArguments,
    experiment: &Experiment,
    text: &str,
) -> Result<Fleet, Fault> {
    refuse_used(folder)?;
    let program = folder.join(PROGRAM);
    fs::copy(own_program()?, &program).map_err(|e| storage("write", &program, &e))?;
    fleet::write(&folder.join(EXPERIMENT), text.as_bytes())?;
    fleet::write(&folder.join(JOB), JOB_TEXT.as_bytes())?;
    let trials = experiment.cells.len() * experiment.blocks as usize;
    let seed = experiment.seed.unwrap_or_else(seed);
    let addresses = arguments.addresses.iter().cloned().collect();
    let fleet = Fleet::new(arguments.shards, trials, seed, addresses);
    fleet.write(folder)?;
    Ok(fleet)
}

/// The existing fleet, if it is the requested one.
fn again(folder: &Path, arguments: &SubmitArguments, text: &str) -> Result<Fleet, Fault> {
    let mut fleet = Fleet::read(folder)?;
    let path = folder.join(EXPERIMENT);
    let before = files::read_text(&path, LONGEST_TEXT).map_err(|e| storage("read", &path, &e))?;
    if before != text || fleet.shards != arguments.shards {
        let text = format!("{} is another fleet", folder.display());
        return Err(Fault::new(FaultKind::Usage, text).remedy(format!(
            "choose another folder with --out, or submit its {} shards of {} again",
            fleet.shards,
            path.display()
        )));
    }
    fleet.addresses.extend(arguments.addresses.iter().cloned());
    fleet.write(folder)?;
    Ok(fleet)
}

/// A shard as it is shown.
struct Row {
    shard: u32,
    /// What Slurm knows of it.
    task: Option<Task>,
    /// What its folder has; none before it began.
    reached: Option<Reached>,
    /// Trials, if every cell can run.
    trials: usize,
    /// Whether it was submitted at least once.
    submitted: bool,
}

/// What `status --json` prints.
#[derive(Serialize)]
struct Shards<'a> {
    shards: Vec<Shard<'a>>,
}

#[derive(Serialize)]
struct Shard<'a> {
    shard: u32,
    state: State,
    /// The state of its task, as Slurm calls it.
    #[serde(skip_serializing_if = "Option::is_none")]
    slurm_state: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    nodes: Option<&'a str>,
    trials_ended: usize,
    /// All of its trials, ended or not.
    trials: usize,
    /// At least.
    #[serde(skip_serializing_if = "Option::is_none")]
    seconds_left: Option<f64>,
}

/// State of a shard.
#[derive(Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
enum State {
    /// It was never submitted.
    New,
    /// Slurm has it.
    Active,
    /// All trials have ended.
    Complete,
    /// Its job ended before its study was complete, or Slurm no longer knows it.
    Lost,
}

impl Row {
    fn state(&self) -> State {
        match (&self.task, &self.reached) {
            // The report and the end of the job come after the last trial.
            (Some(task), _) if task.is_active() => State::Active,
            (_, Some(reached)) if reached.is_all() => State::Complete,
            _ if self.submitted => State::Lost,
            _ => State::New,
        }
    }

    /// As a program reads it.
    fn shown(&self) -> Shard<'_> {
        let task = self.task.as_ref();
        let reached = self.reached.as_ref();
        Shard {
            shard: self.shard,
            state: self.state(),
            slurm_state: task.map(|task| task.state.as_str()),
            nodes: task.map(|task| task.nodes.as_str()).filter(|nodes| !nodes.is_empty()),
            trials_ended: reached.map_or(0, |reached| reached.ended),
            trials: reached.map_or(self.trials, |reached| reached.ended + reached.missing),
            seconds_left: reached.map(|reached| reached.left),
        }
    }

    fn line(&self) -> String {
        let (word, nodes) = match (&self.task, self.state()) {
            (_, State::New) => ("not submitted".to_owned(), ""),
            (task, State::Complete) => {
                ("complete".to_owned(), task.as_ref().map_or("", |task| task.nodes.as_str()))
            }
            (Some(task), State::Active) => (task.state.to_lowercase(), &*task.nodes),
            (Some(task), _) => (format!("lost: {}", task.state.to_lowercase()), &*task.nodes),
            (None, _) => ("lost".to_owned(), ""),
        };
        let (ended, total, left) = match &self.reached {
            Some(r) => (r.ended, r.ended + r.missing, Some(r.left)),
            None => (0, self.trials, None),
        };
        let left = left.and_then(|left| Duration::try_from_secs_f64(left.round()).ok());
        let left = left.map_or_else(|| "-".to_owned(), unit::seconds);
        let nodes = if nodes.is_empty() { "-" } else { nodes };
        let reason = self.task.as_ref().filter(|task| task.state == "PENDING");
        let reason = reason.map_or("", |task| task.reason.as_str());
        let trials = format!("{ended}/{total}");
        let line =
            format!("{:>5}  {word:<16} {nodes:<20} {trials:>9} {left:>8}  {reason}", self.shard);
        line.trim_end().to_owned()
    }
}

/// What `status` shows above its rows.
const HEADING: &str = "shard  state            nodes                   trials     left";

/// Every shard of a fleet, by what Slurm and its folder say.
fn rows(folder: &Path, fleet: &Fleet) -> Result<Vec<Row>, Fault> {
    let mut tasks = slurm::tasks(&fleet.jobs)?;
    let submitted = !fleet.jobs.is_empty();
    let row = |shard| -> Result<Row, Fault> {
        let (task, reached) = (tasks.remove(&shard), reached(folder, shard)?);
        Ok(Row { shard, task, reached, trials: fleet.trials, submitted })
    };
    (0..fleet.shards).map(row).collect()
}

/// Prints a row a shard, with `--follow` again whenever one changes.
fn status(arguments: &StatusArguments) -> Result<ExitCode, Fault> {
    let folder = &arguments.folder;
    let fleet = Fleet::read(folder)?;
    let mut shown: Vec<String> = Vec::new();
    loop {
        let rows = rows(folder, &fleet)?;
        let lines: Vec<String> = rows.iter().map(Row::line).collect();
        let shards = Shards { shards: rows.iter().map(Row::shown).collect() };
        let document = Document::new("bytepath-fleet", shards);
        arguments.printed.print_plain(&document, |to| {
            if shown.is_empty() {
                writeln!(to, "{HEADING}")?;
            }
            let new = lines.iter().filter(|line| !shown.contains(line));
            new.into_iter().try_for_each(|line| writeln!(to, "{line}"))
        })?;
        shown = lines;
        let any = |state| rows.iter().any(|row| row.state() == state);
        if arguments.follow && any(State::Active) {
            std::thread::sleep(LOOK);
            continue;
        }
        if any(State::Lost) || any(State::New) {
            say("submit what is missing with the same `bytepath fleet submit`");
            return Ok(ExitCode::from(TRIAL_FAILED));
        }
        let done = !any(State::Active);
        return Ok(if done { ExitCode::SUCCESS } else { ExitCode::from(UNDECIDED) });
    }
}

/// Merges the shards that are complete.
fn collect(arguments: &CollectArguments) -> Result<ExitCode, Fault> {
    let folder = &arguments.folder;
    let fleet = Fleet::read(folder)?;
    let (mut complete, mut missing) = (Vec::new(), Vec::new());
    for shard in 0..fleet.shards {
        match reached(folder, shard)? {
            Some(reached) if reached.is_all() => complete.extend(fleet::studies(folder, shard)),
            Some(Reached { ended, missing: left, .. }) => {
                missing.push(format!("{} has {ended} of {} trials", name(shard), ended + left));
            }
            None => missing.push(format!("{} has not started", name(shard))),
        }
    }
    if !missing.is_empty() && (!arguments.partial || complete.is_empty()) {
        let text = format!("the fleet is not complete: {}", missing.join("; "));
        let fault = Fault::new(FaultKind::Usage, text);
        return Err(match complete.is_empty() {
            true => fault.remedy(format!("see bytepath fleet status {}", folder.display())),
            false => fault.remedy("merge the others without them with --partial"),
        });
    }
    missing.iter().for_each(|missing| warn(format!("left out: {missing}")));
    let out = arguments.out.clone().unwrap_or_else(|| folder.join("study"));
    merge(&complete, &out, arguments.different_hosts)?;
    print_text(|to| {
        writeln!(to, "study: {}, merged from {}", out.display(), complete.len())?;
        writeln!(to, "its report:  bytepath show {} --details", out.display())
    })?;
    Ok(ExitCode::SUCCESS)
}

/// Runs or resumes a shard: what Slurm starts.
fn shard(folder: &Path) -> Result<ExitCode, Fault> {
    let fleet = Fleet::read(folder)?;
    let shard: u32 = of_job("SLURM_ARRAY_TASK_ID")?.parse().map_err(|_| outside())?;
    let nodes = slurm::nodes(&of_job("SLURM_JOB_NODELIST")?)?;
    let [sender, receiver] = &nodes;
    let addresses = [sender, receiver].map(|node| slurm::address(node, &fleet.addresses));
    let [sender, receiver] = addresses;
    let testbed = slurm::testbed(&nodes, [sender?, receiver?]);
    say(format!("{} on {}", name(shard), nodes.join(" and ")));
    let out = folder.join(name(shard));
    if is_begun(&out) {
        let study = load(&out)?;
        if Reached::of(&study).is_all() {
            return Ok(ExitCode::SUCCESS);
        }
        if study.header.testbed == choice(&testbed)?.text {
            return bytepath(&["resume", &name(shard)]);
        }
        // A study is of one pair of hosts; what this one measured is of another.
        let aside = fleet::set_aside(folder, shard)?;
        say(format!("the nodes differ from before: started over, {} is kept", aside.display()));
    } else if out.exists() {
        // It was stopped before its first trial could be written down.
        fs::remove_dir_all(&out).map_err(|e| storage("remove", &out, &e))?;
    }
    let seed = fleet.seed(shard).to_string();
    let out = name(shard);
    bytepath(&["run", EXPERIMENT, "--testbed", &testbed, "--seed", &seed, "--out", &out])
}

/// Runs the given command.
fn bytepath(words: &[&str]) -> Result<ExitCode, Fault> {
    dispatch(Arguments::parse_from([&[PROGRAM][..], words].concat()))
}

/// What Slurm has set for its job.
fn of_job(variable: &str) -> Result<String, Fault> {
    std::env::var(variable).map_err(|_| outside())
}

fn outside() -> Fault {
    Fault::new(FaultKind::Usage, "this is not a task of a Slurm job array")
        .remedy("`bytepath fleet submit` makes one")
}
