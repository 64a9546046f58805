//! `bytepath compare published:NAME [STUDY]`: the figures of a published work, and a study's ratios
//! beside them.

use super::output_args::{Document, OutputArgs};
use bytepath_record::{Fault, Published};
use bytepath_report as report;
use bytepath_spec::{find_published, published_names};
use bytepath_stats::{self as stats, PublishedComparison, Rules};
use bytepath_study::load;
use schemars::JsonSchema;
use serde::Serialize;
use std::path::Path;

/// The JSON document of a work.
#[derive(Serialize, JsonSchema)]
pub(super) struct WorkDocument<'a> {
    work: &'a Published,
    #[serde(skip_serializing_if = "Option::is_none")]
    beside: Option<&'a PublishedComparison>,
}

#[derive(Serialize, JsonSchema)]
pub(super) struct WorkEntry<'a> {
    name: &'a str,
    title: &'a str,
    /// Number of its figures.
    figures: usize,
}

/// Prints the names of all works, a work, or a study compared with it.
pub(super) fn published(
    name: &str,
    study: Option<&Path>,
    output: &OutputArgs<true>,
) -> Result<(), Fault> {
    if name.is_empty() && study.is_none() {
        return list(output);
    }
    let work = find_published(name)?;
    let document =
        |beside| Document::new("bytepath-published", WorkDocument { work: &work, beside });
    let Some(folder) = study else {
        return output
            .print(&document(None), |style, out| report::published(&work).write(style, out));
    };
    let study = load(folder)?;
    let comparison = stats::compare_published(&work, &study, &Rules::of(&study.header));
    output.print(&document(Some(&comparison)), |style, out| {
        let name = folder.display().to_string();
        report::published_comparison(&work, &name, &comparison).write(style, out)
    })
}

fn list(output: &OutputArgs<true>) -> Result<(), Fault> {
    let names = published_names();
    let works = names.iter().map(|name| find_published(name)).collect::<Result<Vec<_>, _>>()?;
    let entries = names.iter().zip(&works).map(|(name, work)| WorkEntry {
        name,
        title: &work.title,
        figures: work.figures.len(),
    });
    let list: Vec<WorkEntry> = entries.collect();
    output.print(&Document::of("bytepath-published-works", "works", &list), |_, out| {
        for WorkEntry { name, title, figures } in &list {
            writeln!(out, "{name:<14} {title}: {figures} figures")?;
        }
        writeln!(out, "\nbytepath compare published:NAME [STUDY]")
    })
}
