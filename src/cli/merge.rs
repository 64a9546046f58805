//! `bytepath merge`: merges several studies into one.

use super::output::say;
use bytepath_record::Fault;
use bytepath_spec::usage;
use bytepath_study::merge as join;
use clap::Args;
use std::path::{Path, PathBuf};

#[derive(Debug, Args)]
pub(super) struct MergeArgs {
    /// Study folders of the same experiment, each on a pair of hosts
    #[arg(value_name = "STUDY", required = true, num_args = 2..)]
    studies: Vec<PathBuf>,
    /// Folder for the merged study
    #[arg(long, value_name = "DIR")]
    study: PathBuf,
    /// Merge the studies even if their CPUs or kernels differ
    #[arg(long)]
    different_hosts: bool,
    /// Print only warnings and errors
    #[arg(short, long)]
    quiet: bool,
}

/// Merges studies; pairs of hosts are named after the folders.
pub(super) fn merge(arguments: &MergeArgs) -> Result<(), Fault> {
    let named = |folder: &PathBuf| name(folder).map(|name| (name, folder.clone()));
    let folders = arguments.studies.iter().map(named).collect::<Result<Vec<_>, Fault>>()?;
    join(&folders, &arguments.study, arguments.different_hosts)?;
    if !arguments.quiet {
        say(format!("study: {}", arguments.study.display()));
    }
    Ok(())
}

fn name(folder: &Path) -> Result<String, Fault> {
    let name = folder.file_name().map(|name| name.to_string_lossy().into_owned());
    name.ok_or_else(|| {
        usage(format!("{} has no name", folder.display()))
            .remedy("name the folder of a study: the pairs of hosts are named after the folders")
    })
}
