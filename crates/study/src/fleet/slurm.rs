//! Slurm's programs, started by argument vector, and what they print: sbatch(1), squeue(1),
//! scontrol(1), srun(1) of Slurm 22.05. Neither slurmdbd nor sacct is needed.

use bytepath_record::{Fault, joined};
use bytepath_sys::process::output_tied;
use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::io::ErrorKind;
use std::net::{IpAddr, ToSocketAddrs};
use std::path::Path;
use std::process::Command;

/// Name of the script that Slurm starts.
pub(super) const JOB: &str = "job.sh";

/// The script that Slurm starts. Files and environment hold what differs between fleets and shards.
pub(super) const JOB_TEXT: &str = "\
#!/bin/sh
# A shard of a fleet of bytepath. Slurm starts it in the fleet's folder on the first of two
# nodes, once for each task of the array, and again after a requeue.
exec ./bytepath fleet shard
";

/// A task of a job array, as squeue knows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Task {
    /// Its number, which is that of the shard.
    pub index: u32,
    /// `RUNNING`, `PENDING`, ...
    pub state: String,
    /// Its nodes, as squeue writes a list of them; empty before it has any.
    pub nodes: String,
    /// Why it is in this state; the word `None` if Slurm gives no reason.
    pub reason: String,
}

impl Task {
    /// True if it runs, or will run without further action.
    pub fn is_active(&self) -> bool {
        ACTIVE.contains(&self.state.as_str())
    }
}

/// States of a job that has not ended (squeue(1), "JOB STATE CODES").
const ACTIVE: [&str; 12] = [
    "PENDING",
    "CONFIGURING",
    "RUNNING",
    "COMPLETING",
    "SUSPENDED",
    "REQUEUED",
    "REQUEUE_FED",
    "REQUEUE_HOLD",
    "RESIZING",
    "SIGNALING",
    "STAGE_OUT",
    "STOPPED",
];

/// Output format requested of squeue: index, state, nodes, reason.
const FIELDS: &str = "%K|%T|%N|%r";

/// Longest name of a host, bytes (gethostname(2), RFC 1123).
const LONGEST_NAME: usize = 255;

/// Submits the job of a fleet's folder for these shards. Returns the ID of the job array.
pub fn submit(
    folder: &Path,
    shards: &[u32],
    partition: Option<&str>,
    options: &[String],
) -> Result<String, Fault> {
    let mut words = vec![
        format!("--array={}", joined(shards, ",")),
        "--nodes=2".into(),
        "--exclusive".into(),
        "--requeue".into(),
        "--parsable".into(),
        "--open-mode=append".into(),
        "--output=shard-%a.log".into(),
        "--job-name=bytepath".into(),
        format!("--chdir={}", folder.display()),
    ];
    words.extend(partition.map(|name| format!("--partition={name}")));
    words.extend(options.iter().cloned());
    words.push(folder.join(JOB).display().to_string());
    parse_job(&run("sbatch", &words)?)
}

/// Returns the tasks of these job arrays; for a shard that was submitted again, the last one. Slurm
/// forgets tasks some minutes after they ended (`MinJobAge`).
pub fn tasks(jobs: &[String]) -> Result<BTreeMap<u32, Task>, Fault> {
    let mut all = BTreeMap::new();
    for job in jobs {
        let jobs = format!("--jobs={job}");
        let words = ["--noheader", "--array", "--states=all", &jobs, "--format", FIELDS];
        let text = match run("squeue", &words) {
            Err(fault) if fault.message.contains("Invalid job id") => continue,
            other => other?,
        };
        all.extend(parse_tasks(&text)?.into_iter().map(|task| (task.index, task)));
    }
    Ok(all)
}

/// Returns the two nodes of a job, from its list of them.
pub fn nodes(list: &str) -> Result<[String; 2], Fault> {
    parse_nodes(&run("scontrol", &["show", "hostnames", list])?)
}

/// Returns the address of a node: the one in `known`, or else Slurm's, resolved if it is a name.
pub fn address(node: &str, known: &BTreeMap<String, IpAddr>) -> Result<IpAddr, Fault> {
    if let Some(address) = known.get(node) {
        return Ok(*address);
    }
    let text = run("scontrol", &["show", "node", node])?;
    let name = parse_address(&text).unwrap_or(node);
    let remedy = format!("give it with --addresses {node}=ADDRESS");
    let unknown = |what: &str| {
        Fault::unsupported(format!("node {node}: {name} {what}")).remedy(remedy.clone())
    };
    // An address resolves to itself.
    let found =
        (name, 0).to_socket_addrs().map_err(|e| unknown(&format!("has no address: {e}")))?;
    let usable = found.map(|address| address.ip()).find(|address| !address.is_loopback());
    usable.ok_or_else(|| unknown("is a loopback address, which peers cannot reach"))
}

/// Returns the testbed of two nodes, where srun starts an agent on each within the job. The program
/// has the same path there as here, in the fleet's folder.
pub fn testbed(nodes: &[String; 2], addresses: [IpAddr; 2]) -> String {
    let agent = |node: &str| {
        format!(
            "exec:srun --nodes=1 --ntasks=1 --nodelist={node} --overlap --mem=0 --cpu-bind=none \
             --export=ALL --quiet"
        )
    };
    let [sender, receiver] = nodes;
    format!(
        "hosts:sender=\"{}\",sender-address={},receiver=\"{}\",receiver-address={}",
        agent(sender),
        addresses[0],
        agent(receiver),
        addresses[1]
    )
}

/// Parses the output of `sbatch --parsable`: `ID` or `ID;CLUSTER`.
pub fn parse_job(text: &str) -> Result<String, Fault> {
    let id = text.trim().split(';').next().unwrap_or_default();
    if is_job(id) { Ok(id.to_owned()) } else { Err(garbled("sbatch", text)) }
}

/// True if this can be the ID of a job: digits.
pub fn is_job(id: &str) -> bool {
    !id.is_empty() && id.bytes().all(|byte| byte.is_ascii_digit())
}

/// Parses lines of `squeue` in the form `%K|%T|%N|%r`. Jobs that are no arrays are skipped.
pub fn parse_tasks(text: &str) -> Result<Vec<Task>, Fault> {
    let mut tasks = Vec::new();
    for line in text.lines().filter(|line| !line.trim().is_empty()) {
        let mut fields = line.splitn(4, '|').map(|field| field.trim().to_owned());
        let mut next = || fields.next().ok_or_else(|| garbled("squeue", line));
        let (index, state, nodes, reason) = (next()?, next()?, next()?, next()?);
        if index == "N/A" {
            continue;
        }
        let index = index.parse().map_err(|_| garbled("squeue", line))?;
        tasks.push(Task { index, state, nodes, reason });
    }
    Ok(tasks)
}

/// Parses the output of `scontrol show hostnames` for a list of two nodes.
pub fn parse_nodes(text: &str) -> Result<[String; 2], Fault> {
    let nodes: Vec<&str> = text.split_whitespace().collect();
    let sound = |node: &&str| {
        let letters = node.bytes().all(|b| b.is_ascii_alphanumeric() || b"-._".contains(&b));
        letters && !node.starts_with('-') && node.len() <= LONGEST_NAME
    };
    match nodes.as_slice() {
        [one, other] if one != other && nodes.iter().all(sound) => {
            Ok([(*one).to_owned(), (*other).to_owned()])
        }
        _ => Err(garbled("scontrol", text).remedy("a shard runs on two nodes")),
    }
}

/// Returns the address or name of a node, from the output of `scontrol show node`.
pub fn parse_address(text: &str) -> Option<&str> {
    let words = text.split_whitespace();
    words.filter_map(|word| word.strip_prefix("NodeAddr=")).find(|name| !name.is_empty())
}

fn garbled(program: &str, text: &str) -> Fault {
    let excerpt: String = text.chars().take(80).collect();
    Fault::failed(format!("cannot parse the output of {program}: {excerpt:?}"))
}

/// Runs one of Slurm's programs and returns its output.
fn run(program: &str, words: &[impl AsRef<OsStr>]) -> Result<String, Fault> {
    let mut command = Command::new(program);
    command.args(words);
    let output = output_tied(command).map_err(|e| match e.kind() {
        ErrorKind::NotFound => Fault::unsupported(format!("{program} is not on this machine"))
            .remedy(
                "run this where Slurm's commands are installed; Debian has them in slurm-client",
            ),
        _ => Fault::not_started(program, &e),
    })?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let stderr = String::from_utf8_lossy(&output.stderr);
    let last = stderr.lines().rfind(|line| !line.trim().is_empty());
    let why = last.map_or_else(|| output.status.to_string(), |line| line.trim().to_owned());
    Err(Fault::failed(format!("{program} failed: {why}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_of_jobs_are_digits() {
        assert_eq!(parse_job("12\n").unwrap(), "12");
        assert_eq!(parse_job("4096;cluster\n").unwrap(), "4096");
        for wrong in ["", "\n", ";x", "Submitted batch job 12", "-1"] {
            assert!(parse_job(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn reads_tasks_by_line_with_any_reason() {
        // A made-up output in the requested format.
        let text = "1|PENDING||Resources\n0|RUNNING|n[0-1]|None\nN/A|RUNNING|n2|None\n\n\
                    2|FAILED|n0,n1|a|b\n";
        let tasks = parse_tasks(text).unwrap();
        let seen: Vec<_> = tasks.iter().map(|t| (t.index, &*t.nodes, t.is_active())).collect();
        assert_eq!(seen, [(1, "", true), (0, "n[0-1]", true), (2, "n0,n1", false)]);
        assert_eq!(tasks[2].reason, "a|b");
        assert_eq!(parse_tasks("").unwrap(), []);
        for wrong in ["x|RUNNING|n0|None", "0|RUNNING", "[0-1]|PENDING||None"] {
            assert!(parse_tasks(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_shard_has_two_nodes() {
        assert_eq!(parse_nodes("n0\nn1\n").unwrap(), ["n0", "n1"]);
        for wrong in ["", "n0\n", "n0\nn1\nn2\n", "n0\nn0\n", "n0\n-n1\n", "n0\nn\"1\n"] {
            assert!(parse_nodes(wrong).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn a_nodes_address_is_among_its_words() {
        let text = "NodeName=n0 Arch=x86_64 CoresPerSocket=1\n   CPUAlloc=0 CPUTot=2\n   \
                    NodeAddr=10.9.0.1 NodeHostName=n0 Version=22.05.8\n";
        assert_eq!(parse_address(text), Some("10.9.0.1"));
        assert_eq!(parse_address("NodeName=n0 NodeAddr= Version=1"), None);
        let known = [("n0".to_owned(), "10.1.1.1".parse().unwrap())].into();
        assert_eq!(address("n0", &known).unwrap().to_string(), "10.1.1.1");
    }

    #[test]
    fn the_testbed_of_two_nodes_is_read_as_one() {
        let nodes = ["n0", "n1"].map(str::to_owned);
        let text = testbed(&nodes, ["10.9.0.1", "10.9.0.2"].map(|a| a.parse().unwrap()));
        let declared = crate::testbed_spec(bytepath_host::testbed::CATALOG);
        let choice = bytepath_spec::parse_testbed(&text, &declared).unwrap();
        assert_eq!(choice.name, "hosts");
        assert!(choice.options.word("receiver").starts_with("exec:srun --nodes=1"));
        assert!(choice.options.word("receiver").contains("--nodelist=n1 --overlap"));
        assert_eq!(choice.options.word("receiver-address"), "10.9.0.2");
    }
}
