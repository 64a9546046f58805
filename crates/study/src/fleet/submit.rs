//! The folder of a fleet, the jobs that Slurm gets for it, and what each of their tasks does.

use super::record::{EXPERIMENT, Fleet, PROGRAM, name, set_aside, shards_of, write};
use super::slurm::{self, JOB, JOB_TEXT};
use crate::controller::{
    ExperimentFile, RunRequest, catalogues, own_program, parse_testbed, random_seed, read_text,
};
use crate::{Progress, is_begun, load, refuse_used, storage};
use bytepath_record::{Fault, Source};
use bytepath_spec::{self as spec, Catalogues, Cpus, Experiment, usage};
use std::fs;
use std::net::IpAddr;
use std::path::{Path, PathBuf};

/// What a user requests of a fleet.
#[derive(Clone, Debug)]
pub struct Order {
    /// The experiment file.
    pub file: PathBuf,
    /// Folder for the fleet, on a file system that all nodes share.
    pub folder: PathBuf,
    pub shards: u32,
    /// Partition of the nodes; `None` leaves it to Slurm.
    pub partition: Option<String>,
    /// Further options for sbatch.
    pub options: Vec<String>,
    /// Addresses of nodes on the link, if Slurm's are others.
    pub addresses: Vec<(String, IpAddr)>,
    /// True if the user trusts a file of others with what it names: commands, kernels, settings.
    pub trusted: bool,
}

/// A job array that Slurm has accepted.
#[derive(Clone, Debug)]
pub struct Submitted {
    pub job: String,
    pub shards: usize,
    /// Trials of each shard.
    pub trials: usize,
}

/// Writes the fleet's folder if need be, and submits the shards that are missing.
pub fn submit(order: &Order) -> Result<Submitted, Fault> {
    let file = ExperimentFile::read(&order.file)?;
    let experiment = parse(&file, order.trusted)?;
    let source = file.source;
    let out = &order.folder;
    fs::create_dir_all(out).map_err(|e| storage("make", out, &e))?;
    // Jobs begin in this folder, wherever they were submitted from.
    let folder = fs::canonicalize(out).map_err(|e| storage("find", out, &e))?;
    let mut fleet = match Fleet::is_in(&folder) {
        true => reopen(&folder, order, &source)?,
        false => begin(&folder, order, &experiment, &source)?,
    };
    let shards = shards_of(&folder, &fleet)?;
    let missing = shards.iter().filter(|shard| shard.state.is_missing());
    let missing: Vec<u32> = missing.map(|shard| shard.shard).collect();
    if missing.is_empty() {
        let out = out.display();
        return Err(usage(format!("every shard of {out} is complete, waiting or running"))
            .remedy(format!("bytepath fleet status {out}")));
    }
    let job = slurm::submit(&folder, &missing, order.partition.as_deref(), &order.options)?;
    fleet.jobs.push(job.clone());
    fleet.write(&folder)?;
    Ok(Submitted { job, shards: missing.len(), trials: fleet.trials })
}

/// CPUs that an experiment may name: the largest NR_CPUS of x86 (arch/x86/Kconfig).
const MOST_CPUS: u32 = 8192;

/// Returns the experiment for nodes whose CPUs are unknown here.
fn parse(file: &ExperimentFile, trusted: bool) -> Result<Experiment, Fault> {
    let nodes = ["n0", "n1"].map(str::to_owned);
    let anywhere = [IpAddr::from([192, 0, 2, 1]), IpAddr::from([192, 0, 2, 2])];
    let testbed = Some(parse_testbed(&slurm::testbed(&nodes, anywhere))?);
    let all: Vec<u32> = (0..MOST_CPUS).collect();
    let catalogues = Catalogues { testbed, cpus: Cpus::Apart([all.clone(), all]), ..catalogues() };
    let experiment = file.parse(&catalogues, trusted)?;
    if experiment.layout.stopping.is_some() || experiment.layout.time.is_some() {
        return Err(usage(format!("{}: shards that may stop early cannot be merged", file.name))
            .remedy("leave out the keys stop and time"));
    }
    Ok(experiment)
}

/// Creates a fleet in an empty folder.
fn begin(
    folder: &Path,
    order: &Order,
    experiment: &Experiment,
    source: &Source,
) -> Result<Fleet, Fault> {
    refuse_used(folder)?;
    let program = folder.join(PROGRAM);
    fs::copy(own_program()?, &program).map_err(|e| {
        // An incomplete copy would obstruct the next attempt.
        let _ = fs::remove_file(&program);
        storage("write", &program, &e)
    })?;
    write(&folder.join(EXPERIMENT), source.text.as_bytes())?;
    write(&folder.join(JOB), JOB_TEXT.as_bytes())?;
    let trials =
        experiment.cells.len() * experiment.layout.blocks.unwrap_or(spec::DEFAULT_BLOCKS) as usize;
    let seed = experiment.layout.seed.unwrap_or_else(random_seed);
    let addresses = order.addresses.iter().cloned().collect();
    let fleet = Fleet::new(order.shards, trials, seed, addresses);
    fleet.write(folder)?;
    Ok(fleet)
}

/// Returns the existing fleet, if it is the requested one.
fn reopen(folder: &Path, order: &Order, source: &Source) -> Result<Fleet, Fault> {
    let mut fleet = Fleet::read(folder)?;
    let path = folder.join(EXPERIMENT);
    if read_text(&path)? != source.text || fleet.shards != order.shards {
        let text = format!("{} already holds a different fleet", folder.display());
        return Err(usage(text).remedy(format!(
            "choose another folder, or submit its {} shards of {} again",
            fleet.shards,
            path.display()
        )));
    }
    fleet.addresses.extend(order.addresses.iter().cloned());
    fleet.write(folder)?;
    Ok(fleet)
}

/// What the task of a shard has to do.
pub enum ShardTask {
    /// Nothing: its study is complete.
    Complete,
    /// To resume the study in a folder.
    Resume(PathBuf),
    Run(Box<RunRequest>),
}

/// Returns what this task of a Slurm job array has to do in the fleet's folder, with remarks for
/// its log.
pub fn shard_task(folder: &Path) -> Result<(ShardTask, Vec<String>), Fault> {
    let fleet = Fleet::read(folder)?;
    let shard: u32 = of_job("SLURM_ARRAY_TASK_ID")?.parse().map_err(|_| outside())?;
    let nodes = slurm::nodes(&of_job("SLURM_JOB_NODELIST")?)?;
    let [sender, receiver] = [0, 1].map(|at| slurm::address(&nodes[at], &fleet.addresses));
    let testbed = parse_testbed(&slurm::testbed(&nodes, [sender?, receiver?]))?;
    let mut remarks = vec![format!("{} on {}", name(shard), nodes.join(" and "))];
    let out = folder.join(name(shard));
    if is_begun(&out) {
        let study = load(&out)?;
        if Progress::of(&study).is_all() {
            return Ok((ShardTask::Complete, remarks));
        }
        if study.header.testbed == testbed.text {
            return Ok((ShardTask::Resume(out), remarks));
        }
        // A study belongs to one pair of hosts, and this shard was measured on another one.
        let kept = set_aside(folder, shard)?;
        let kept = kept.display();
        remarks.push(format!("the nodes differ from before: started over, {kept} is kept"));
    } else if out.exists() {
        // The study was stopped before its first trial was written.
        fs::remove_dir_all(&out).map_err(|e| storage("remove", &out, &e))?;
    }
    let request = RunRequest {
        testbed: Some(testbed),
        seed: Some(fleet.seed(shard)),
        ..RunRequest::of_file(folder.join(EXPERIMENT), out)
    };
    Ok((ShardTask::Run(Box::new(request)), remarks))
}

/// Returns a variable that Slurm sets for its jobs.
fn of_job(variable: &str) -> Result<String, Fault> {
    std::env::var(variable).map_err(|_| outside())
}

fn outside() -> Fault {
    usage("this is not a task of a Slurm job array").remedy("`bytepath fleet submit` makes one")
}
