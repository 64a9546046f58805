//! `bytepath history`: one figure over all studies in a folder.

use super::output::warn;
use super::output_args::{Document, OutputArgs};
use bytepath_record::Fault;
use bytepath_report as report;
use bytepath_spec::{suggest, usage};
use bytepath_stats::{self as stats, Metric, StudyPoints};
use bytepath_study::read_studies;
use clap::Args;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

#[derive(Debug, Args)]
pub(super) struct HistoryArgs {
    /// Folder that contains the study folders
    #[arg(value_name = "DIR")]
    folder: PathBuf,
    /// CELL.rate, CELL.cpu, or CELL.p50 to CELL.p99.99 [default: the baseline's rate]
    ///
    /// The default is of the newest study.
    #[arg(value_name = "FIGURE")]
    figure: Option<String>,
    /// No effect: earlier versions had an index to rebuild
    #[arg(long, hide = true)]
    rebuild: bool,
    #[command(flatten)]
    printed: OutputArgs<true>,
}

/// Shows one figure over time.
pub(super) fn history(arguments: &HistoryArgs) -> Result<(), Fault> {
    let studies = read_studies(&arguments.folder)?;
    for (study, fault) in &studies.unreadable {
        // The message of a parser shows the location on further lines.
        let cause = fault.message.lines().next().unwrap_or_default();
        warn(format!("left out: {study}: {cause}"));
    }
    let studies = studies.points;
    let (cell, question) = figure(arguments.figure.as_deref(), &studies, &arguments.folder)?;
    let history = stats::history(&studies, &cell, question);
    let document = Document::new("bytepath-history", &history);
    arguments.printed.print_any(
        &document,
        |style, out| report::history(&history).write(style, out),
        |out| report::history_page(&history, out),
    )
}

/// Returns the requested figure, checked against those that exist.
fn figure(
    requested: Option<&str>,
    studies: &[(String, StudyPoints)],
    folder: &Path,
) -> Result<(String, Metric), Fault> {
    let Some((_, newest)) = studies.iter().max_by_key(|(_, s)| s.started_ms) else {
        let what = format!("there is no study in {}", folder.display());
        return Err(usage(what).remedy("name the folder that contains the study folders"));
    };
    let Some(requested) = requested else {
        return Ok((newest.baseline.clone(), Metric::Rate));
    };
    let known = |cell: &str, question| {
        let mut all = studies.iter().flat_map(|(_, s)| &s.points);
        all.any(|p| p.cell == cell && p.question == question)
    };
    if let Some((cell, question)) = Metric::split(requested).filter(|(c, q)| known(c, *q)) {
        return Ok((cell.to_owned(), question));
    }
    let points = studies.iter().flat_map(|(_, s)| &s.points);
    let names = points.map(|p| format!("{}.{}", p.cell, p.question.name()));
    let names: BTreeSet<String> = names.collect();
    let what = format!("no study in {} has the figure '{requested}'", folder.display());
    Err(suggest(usage(what), requested, names.iter().map(String::as_str)))
}
