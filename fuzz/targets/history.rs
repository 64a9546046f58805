//! The index of a folder of studies: whatever figures it contains, each is shown over time, and no
//! text controls a terminal.

use bytepath::report;
use bytepath::stats::{self, StudyPoints};
use std::collections::BTreeMap;

use super::study::{STYLE, text};

/// Most studies and figures: the time of a search for changes grows with both.
const MOST: usize = 24;

pub fn check(data: &[u8]) {
    let Ok(studies) = serde_json::from_slice::<BTreeMap<String, StudyPoints>>(data) else { return };
    let studies: Vec<(String, StudyPoints)> = studies.into_iter().take(MOST).collect();
    let mut figures = Vec::new();
    for point in studies.iter().flat_map(|(_, study)| &study.points) {
        let figure = (point.cell.as_str(), point.question);
        if figures.len() < MOST && !figures.contains(&figure) {
            figures.push(figure);
        }
    }
    for (cell, question) in figures {
        let history = stats::history(&studies, cell, question);
        assert!((1..=studies.len()).contains(&history.entries.len()));
        assert!(history.shifts.iter().all(|shift| shift.at < history.entries.len()));
        text(|out| report::history(&history).write(&STYLE, out));
        text(|out| report::history_page(&history, out));
    }
}
