//! `bytepath compare published:NAME [STUDY]`: the figures of a published work, and a study
//! with its ratios.

use super::output::{print, print_json};
use super::show::style;
use crate::record::{Fault, Published};
use crate::report;
use crate::run::load;
use crate::spec::{find_published, published_names};
use crate::stats::{self, PublishedComparison, Rules};
use serde::Serialize;
use std::path::Path;

/// What `--json` prints.
#[derive(Serialize)]
struct Document<'a> {
    format: &'static str,
    work: &'a Published,
    #[serde(skip_serializing_if = "Option::is_none")]
    beside: Option<&'a PublishedComparison>,
}

/// Prints the names of all works, a work, or a study compared with it.
pub(super) fn published(name: &str, study: Option<&Path>, json: bool) -> Result<(), Fault> {
    if name.is_empty() && study.is_none() {
        return list(json);
    }
    let work = find_published(name)?;
    let format = "bytepath-published";
    let Some(folder) = study else {
        return match json {
            true => print_json(&Document { format, work: &work, beside: None }),
            false => print(|out| report::published(&work, &style(false), out)),
        };
    };
    let study = load(folder)?;
    let found = stats::compare_published(&work, &study, &Rules::of(&study.header));
    match json {
        true => print_json(&Document { format, work: &work, beside: Some(&found) }),
        false => print(|out| {
            let name = folder.display().to_string();
            report::published_comparison(&work, &name, &found, &style(false), out)
        }),
    }
}

fn list(json: bool) -> Result<(), Fault> {
    let names = published_names();
    let works = names.iter().map(|name| find_published(name)).collect::<Result<Vec<_>, _>>()?;
    if json {
        return print_json(&names);
    }
    print(|out| {
        for (name, work) in names.iter().zip(&works) {
            writeln!(out, "{name:<14} {}: {} figures", work.title, work.figures.len())?;
        }
        writeln!(out, "\nbytepath compare published:NAME [STUDY]")
    })
}
