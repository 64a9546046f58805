//! The explanation of a study: its profiles are read from its folder, and the
//! costs of cells are laid side by side.

use crate::profile::import::{Importer, Pprof, Times};
use crate::profile::subsystem::Rules;
use crate::profile::waterfall::{Metered, Trials};
use crate::profile::{Explanation, Profile, explain};
use crate::record::{CellId, Fault, FaultKind, Study, Trial, TrialStatus};
use crate::stats::{Analysis, Row};
use std::fs::File;
use std::io::BufReader;
use std::path::Path;

/// Explains where each profiled cell's cost differs from the baseline's. None
/// where there are not two cells to lay side by side. What cannot be read is left
/// out and named in the notes.
pub fn explanation(folder: &Path, study: &Study, analysis: &Analysis) -> Option<Explanation> {
    let mut notes = Vec::new();
    let mut of = |cell: &CellId| -> Vec<Profile> {
        let trials = study.profiles.iter().filter(|trial| trial.cell == *cell);
        let counts = trials.filter(|trial| trial.status == TrialStatus::Measured);
        let mut keep = |trial: &Trial| match profile(folder, trial) {
            Ok(profile) => Some(profile),
            Err(fault) => {
                notes.push(format!("a profile is left out: {fault}"));
                None
            }
        };
        counts.filter_map(&mut keep).collect()
    };
    let baseline = of(&analysis.baseline);
    let rows = analysis.rows.iter().filter(|row| row.cell != analysis.baseline);
    let others: Vec<(&Row, Vec<Profile>)> =
        rows.map(|row| (row, of(&row.cell))).filter(|(_, profiles)| !profiles.is_empty()).collect();
    if study.profiles.is_empty() || baseline.is_empty() || others.is_empty() {
        let explanation = Explanation { notes, ..Explanation::default() };
        return (!explanation.notes.is_empty()).then_some(explanation);
    }
    let own = analysis.rows.iter().find(|row| row.cell == analysis.baseline);
    let first = trials(&analysis.baseline, &baseline, own);
    let others: Vec<Trials> =
        others.iter().map(|(row, profiles)| trials(&row.cell, profiles, Some(row))).collect();
    let mut explanation = explain(&first, &others, Rules::built_in()).unwrap_or_else(|fault| {
        let notes = vec![format!("the profiles cannot be compared: {fault}")];
        Explanation { notes, ..Explanation::default() }
    });
    explanation.notes.extend(notes);
    explanation.functional = study.header.functional.is_some();
    Some(explanation)
}

fn trials<'a>(cell: &'a CellId, profiles: &'a [Profile], row: Option<&Row>) -> Trials<'a> {
    let metered = row.and_then(|row| row.cpu_per_gib).map(|cost| Metered {
        mean: cost.mean,
        half_width: cost.interval.map(|(low, high)| (high - low) / 2.0),
    });
    Trials { cell: &cell.0, profiles, metered }
}

fn profile(folder: &Path, trial: &Trial) -> Result<Profile, Fault> {
    let record = trial.profile.as_ref();
    let record = record.ok_or_else(|| Fault::new(FaultKind::Storage, "it has no file"))?;
    // The name is read from a file, and must not lead out of the folder.
    let path = Path::new(&record.file);
    let plain = |part| matches!(part, std::path::Component::Normal(_));
    if record.file.is_empty() || !path.components().all(plain) {
        let text = format!("'{}' is no file of the study", record.file);
        return Err(Fault::new(FaultKind::Storage, text));
    }
    let path = folder.join(path);
    let title = path.display().to_string();
    let file = File::open(&path)
        .map_err(|e| Fault::new(FaultKind::Storage, format!("cannot read {title}: {e}")))?;
    Pprof.read(&title, Times::LeftOut, &mut BufReader::new(file))
}
