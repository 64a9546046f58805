//! `bytepath advise`: what an observed program would spend if it moved its bytes in other ways.

use super::output_args::OutputArgs;
use bytepath_record::{Fault, Observation, SCHEMA_VERSION};
use bytepath_report as report;
use bytepath_study::load;
use bytepath_sys::files;
use clap::Args;
use std::path::{Path, PathBuf};

#[derive(Debug, Args)]
#[command(after_long_help = EXAMPLES)]
pub(super) struct AdviseArgs {
    /// File that `bytepath observe -o FILE.json` wrote
    #[arg(value_name = "OBSERVATION")]
    observation: PathBuf,
    /// Folder of a study of the same host
    #[arg(value_name = "STUDY")]
    study: PathBuf,
    #[command(flatten)]
    output: OutputArgs,
}

const EXAMPLES: &str = "\
Example:
  bytepath run --study study
  bytepath observe -o run.json iperf3 -c 10.0.0.2 -t 10
  bytepath advise run.json study

Nothing is extrapolated: without a cell of the study that has the program's calls, bytes
a call and number of flows, on the same host and kernel, the answer is the reason why
there is none (docs/guide/observe.md).";

/// Most bytes of an observation that are read.
const MOST: u64 = 64 << 20;

/// Prints the advice.
pub(super) fn advise(arguments: &AdviseArgs) -> Result<(), Fault> {
    let observation = read(&arguments.observation)?;
    let advice = report::advise(&observation, &load(&arguments.study)?);
    arguments.output.print(&advice, |style, out| report::advice(&advice).write(style, out))
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
