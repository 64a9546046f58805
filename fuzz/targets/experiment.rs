//! Experiment files: any text yields an experiment or one line of error with a position. An
//! accepted experiment satisfies what the rest of the program relies on.

use bytepath::record::{FaultKind, is_unsafe_to_display};
use bytepath::spec::{Catalogues, MOST_CELLS, parse_experiment};
use bytepath::{meter, path, study, testbed};
use std::collections::HashSet;
use std::sync::LazyLock;

static CATALOGUES: LazyLock<Catalogues> = LazyLock::new(|| Catalogues {
    paths: study::path_spec(path::CATALOG, path::PAIRS),
    testbeds: study::testbed_spec(testbed::CATALOG),
    meters: meter::selectable().map(|meter| meter.name).collect(),
    usual_meters: meter::regular().map(|meter| meter.name).collect(),
    cpus: [0, 1].into(),
    testbed: None,
    cores: None,
    workload: String::new(),
});

pub fn check(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    match parse_experiment("x.toml", text, &CATALOGUES) {
        Err(fault) => {
            let line = fault.to_string();
            assert_eq!(fault.kind, FaultKind::Usage, "{line}");
            assert!(!line.contains(is_unsafe_to_display), "{line:?}");
            let place: Vec<&str> = line.splitn(4, ':').collect();
            let [file, row, column, _] = place.as_slice() else { panic!("no place: {line}") };
            assert_eq!(*file, "x.toml");
            let row: usize = row.parse().expect("a line");
            assert!(
                (1..=text.bytes().filter(|b| *b == b'\n').count() + 1).contains(&row),
                "{line}"
            );
            assert!(column.parse::<usize>().expect("a column") <= text.len() + 1, "{line}");
        }
        Ok(x) => {
            assert!((2..=MOST_CELLS + 1).contains(&x.cells.len()));
            let ids: HashSet<&str> = x.cells.iter().map(|cell| cell.id.0.as_str()).collect();
            assert_eq!(ids.len(), x.cells.len(), "ids are unique");
            assert!(x.cells.iter().any(|cell| cell.id == x.baseline && !cell.null));
            assert_eq!(x.cells.iter().filter(|cell| cell.null).count(), 1);
            assert!(x.layout.blocks != Some(0) && x.layout.window.as_millis() >= 100);
            assert!(
                x.layout.stopping.is_none_or(|rule| rule.at_least <= x.layout.blocks.unwrap_or(10))
            );
        }
    }
}
