//! `bytepath advise`: estimates what an observed program would spend with other ways of moving
//! bytes.

use super::newest::named_or_newest;
use super::output_args::OutputArgs;
use super::run::{self, RunArgs, default_folder};
use bytepath_record::{Fault, Observation, SCHEMA_VERSION};
use bytepath_report as report;
use bytepath_spec::usage;
use bytepath_study::load;
use bytepath_sys::files;
use clap::{Args, Parser};
use std::path::{Path, PathBuf};

#[derive(Debug, Args)]
#[command(after_long_help = EXAMPLES)]
pub(super) struct AdviseArgs {
    /// File that `bytepath observe -o FILE.json` wrote
    #[arg(value_name = "OBSERVATION")]
    observation: PathBuf,
    /// Folder of a study of the same host [default: the newest in bytepath-studies]
    #[arg(value_name = "STUDY")]
    study: Option<PathBuf>,
    /// Run the study that measures it; STUDY is its folder
    #[arg(long)]
    pub run: bool,
    #[command(flatten)]
    output: OutputArgs,
}

const EXAMPLES: &str = "\
Examples:
  bytepath observe -o run.json iperf3 -c 10.0.0.2 -t 10
  bytepath advise run.json --run                    measures the same calls, and others
  bytepath advise run.json study                    by a study that exists

Nothing is extrapolated: without a cell of the study that has the program's calls, bytes
a call and number of flows, on the same host and kernel, the answer is the reason why
there is none, and the command that measures it. A server with many connections is
compared with the event loops of a study of `rr` (docs/guide/observe.md).";

/// Largest observation that is read, in bytes.
const MOST: u64 = 64 << 20;

/// Prints the advice.
pub(super) fn advise(arguments: &AdviseArgs) -> Result<(), Fault> {
    arguments.output.format()?;
    let observation = read(&arguments.observation)?;
    let study = match arguments.run {
        true => measure(&observation, arguments.study.clone())?,
        false => named_or_newest(arguments.study.as_deref())?,
    };
    let advice = report::advise(&observation, &load(&study)?);
    arguments.output.print(&advice, |style, out| report::advice(&advice).write(style, out))
}

/// A command line of `bytepath run`.
#[derive(Debug, Parser)]
struct RunCommand {
    #[command(flatten)]
    arguments: RunArgs,
}

/// Runs the study that measures what the program does, and returns its folder.
fn measure(observation: &Observation, study: Option<PathBuf>) -> Result<PathBuf, Fault> {
    let words = report::measurement(observation);
    if words.is_empty() {
        let what = "no study measures what the program does";
        return Err(usage(what).remedy("`bytepath advise OBSERVATION STUDY` says why"));
    }
    let folder = study.unwrap_or_else(default_folder);
    // Standard output is reserved for the advice.
    let more = ["--format", "text", "-o", "/dev/null", "--study"];
    let words = words.iter().map(String::as_str).chain(more).map(Into::into);
    let words = words.chain([folder.clone().into_os_string()]);
    let command = RunCommand::try_parse_from(words)
        .map_err(|e| Fault::failed(format!("the study cannot be requested: {e}")))?;
    run::run(&command.arguments)?;
    Ok(folder)
}

fn read(file: &Path) -> Result<Observation, Fault> {
    let name = file.display();
    let bytes =
        files::read(file, MOST).map_err(|e| Fault::storage(format!("cannot read {name}: {e}")))?;
    let observation: Observation = serde_json::from_slice(&bytes).map_err(|e| {
        Fault::storage(format!("{name} is not an observation: {e}"))
            .remedy("make one with `bytepath observe -o FILE.json CMD`")
    })?;
    if observation.schema > SCHEMA_VERSION {
        let what = format!("{name} has schema {}, newer than {SCHEMA_VERSION}", observation.schema);
        return Err(Fault::unsupported(what).remedy("read it with the bytepath that made it"));
    }
    Ok(observation)
}
