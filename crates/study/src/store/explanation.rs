//! The explanation of a study: its profiles are read from its folder, and the
//! costs of cells are compared.

use super::load::{load, open_profile};
use bytepath_profile::import::{PPROF, Times};
use bytepath_profile::subsystem::Rules;
use bytepath_profile::waterfall::{Trials, Waterfall};
use bytepath_profile::{Ends, Explanation, Profile, WorkUnit, explain, symptoms};
use bytepath_record::unit::GIB;
use bytepath_record::{Fault, Scope, Study, Trial, TrialStatus, Work, joined};
use bytepath_spec::suggest;
use bytepath_stats::{self as stats, Analysis, Row};
use std::collections::BTreeMap;
use std::io::BufReader;
use std::path::Path;

/// A cell of a study, with its profiles.
#[derive(Clone, Debug)]
pub struct ProfiledCell {
    /// Results of its trials.
    pub row: Row,
    /// The profiles of its valid profile trials, each with the work that was done.
    pub profiles: Vec<Profile>,
    /// Notes for the reader: profiles that were left out, and why.
    pub notes: Vec<String>,
    /// Whether the processor was emulated: its costs mean nothing.
    pub functional: bool,
    /// CPU seconds per GiB and CPU nanoseconds per packet, by the CPU meter.
    metered: [Vec<f64>; 2],
}

/// Explains where each profiled cell's cost per unit of work differs from the baseline's; for a
/// single cell, what its functions cost. `None` if there is nothing to report. Profiles that cannot
/// be read are left out and named in the notes.
pub fn explanation(
    folder: &Path,
    study: &Study,
    analysis: &Analysis,
    unit: WorkUnit,
) -> Option<Explanation> {
    if study.profiles.is_empty() {
        return None;
    }
    let cell = |row: &Row| ProfiledCell::of(folder, study, row);
    let (baselines, rows): (Vec<&Row>, Vec<&Row>) =
        analysis.rows.iter().partition(|row| row.cell == analysis.baseline);
    let baseline = *baselines.first()?;
    let cells: Vec<ProfiledCell> = std::iter::once(baseline).chain(rows).map(cell).collect();
    let (baseline, others) = cells.split_first()?;
    let has_profiles = |cell: &&ProfiledCell| !cell.profiles.is_empty();
    let compared = others.iter().filter(has_profiles);
    let compared: Vec<Trials> = compared.map(|cell| cell.trials(unit)).collect();
    let mut explanation = Explanation { per: unit, ..Explanation::default() };
    if !baseline.profiles.is_empty() && !compared.is_empty() {
        match explain(&baseline.trials(unit), &compared, Rules::built_in(), unit) {
            Ok(explained) => {
                explanation = explained;
                for waterfall in &mut explanation.waterfalls {
                    let line = words(&study.profiles, waterfall, unit);
                    waterfall.notes.extend(line);
                }
            }
            Err(fault) => {
                explanation.notes.push(format!("the profiles cannot be compared: {fault}"));
            }
        }
    }
    explanation.notes.extend(cells.iter().flat_map(|cell| cell.notes.clone()));
    let profiled: Vec<&ProfiledCell> = cells.iter().filter(has_profiles).collect();
    match ends(&profiled, unit) {
        Ok(ends) => explanation.ends = ends,
        Err(fault) => explanation.notes.push(format!("the ends' costs are not known: {fault}")),
    }
    if explanation.waterfalls.is_empty() {
        let alone: Vec<Trials> = profiled.iter().map(|cell| cell.trials(unit)).collect();
        explanation.symptoms = symptoms(&alone, Rules::built_in()).0;
        let silent = explanation.notes.is_empty() && explanation.symptoms.seen.is_empty();
        return (!silent || !explanation.ends.is_empty()).then_some(explanation);
    }
    explanation.functional = study.header.functional.is_some();
    Some(explanation)
}

/// Returns what each end of these cells costs, the baseline first, if all count frames.
pub fn ends(cells: &[&ProfiledCell], unit: WorkUnit) -> Result<Ends, Fault> {
    if unit != WorkUnit::Packet || cells.iter().any(|cell| cell.row.work != Work::Packets) {
        return Ok(Ends::default());
    }
    let trials: Vec<Trials> = cells.iter().map(|cell| cell.trials(unit)).collect();
    Ends::of(&trials, Rules::built_in(), unit)
}

/// Returns a cell of the study in a folder by its name, complete or as reports shorten it. Errors
/// if it has no valid profile.
pub fn profiled_cell(folder: &Path, name: &str) -> Result<ProfiledCell, Fault> {
    let study = load(folder)?;
    let analysis = stats::analyse(&study, &stats::Rules::of(&study.header));
    let rows = || analysis.rows.iter().chain(&analysis.null);
    let named = study.header.cell_named(name).map(|cell| &cell.id);
    let Some(row) = rows().find(|row| Some(&row.cell) == named) else {
        let what = format!("the study {} has no cell '{name}'", folder.display());
        return Err(suggest(Fault::usage(what), name, rows().map(|row| row.cell.0.as_str())));
    };
    let cell = ProfiledCell::of(folder, &study, row);
    if cell.profiles.is_empty() {
        let what = format!("the study {} has no profile of '{name}' that counts", folder.display());
        let others = rows().map(|row| &row.cell).filter(|id| analysis.has_profile(id));
        let mut ways = cell.notes;
        ways.push(match joined(others, ", ").as_str() {
            "" => "take profiles with `bytepath run --profile all`".to_owned(),
            some => format!("there are profiles of {some}"),
        });
        return Err(Fault::usage(what).remedy(ways.join("; ")));
    }
    Ok(cell)
}

impl ProfiledCell {
    fn of(folder: &Path, study: &Study, row: &Row) -> ProfiledCell {
        let mut cell = ProfiledCell {
            row: row.clone(),
            profiles: Vec::new(),
            notes: Vec::new(),
            functional: study.header.functional.is_some(),
            metered: [Vec::new(), Vec::new()],
        };
        let declared = study.header.cells.iter().find(|cell| cell.id == row.cell);
        for trial in study.profiles.iter().filter(|trial| trial.cell == row.cell) {
            // An invalidated trial is reported by the analysis.
            if trial.status != TrialStatus::Measured {
                continue;
            }
            match profile(folder, trial) {
                Ok(profile) => {
                    cell.profiles.push(profile);
                    let costs = declared.map(|declared| stats::costs(declared, trial));
                    let per_gib = costs.and_then(|c| c[0].filter(|_| row.work == Work::Bytes));
                    cell.metered[0].extend(per_gib);
                    cell.metered[1].extend(costs.and_then(|c| c[1]));
                }
                Err(fault) => cell.notes.push(format!("a profile is left out: {fault}")),
            }
        }
        cell
    }

    /// Returns the figures to compare with another cell's.
    pub fn trials(&self, unit: WorkUnit) -> Trials<'_> {
        let metered: &[f64] = match unit {
            WorkUnit::Gib => &self.metered[0],
            WorkUnit::Packet => &self.metered[1],
            WorkUnit::Run => &[],
        };
        let all_known = metered.len() == self.profiles.len();
        let metered = if all_known { metered } else { &[] };
        Trials { cell: &self.row.cell.0, profiles: &self.profiles, metered }
    }
}

fn profile(folder: &Path, trial: &Trial) -> Result<Profile, Fault> {
    let record = trial.profile.as_ref();
    let record = record.ok_or_else(|| Fault::storage("it has no file"))?;
    let file = open_profile(folder, &record.file)?;
    let title = folder.join(&record.file).display().to_string();
    let mut profile = (PPROF.read)(&title, Times::LeftOut, &mut BufReader::new(file))?;
    // A profile that was taken before packets were recorded has them in its trial.
    let packets = &mut profile.header.work.packets;
    *packets = packets.or_else(|| trial.packets());
    Ok(profile)
}

/// Describes what two cells spent spinning for locks while their profiles were taken; `None` if the
/// meter `locks` did not run in both, or the steps are not times.
pub(super) fn words(profiles: &[Trial], waterfall: &Waterfall, per: WorkUnit) -> Option<String> {
    let Waterfall { before, after, unit, .. } = waterfall;
    let scale = if unit.starts_with("CPU-ns") { 1e9 } else { 1.0 };
    if !unit.starts_with("CPU-") {
        return None;
    }
    let [before, after] = [&before.cell, &after.cell];
    let [first, second] = [spun(profiles, before, per)?, spun(profiles, after, per)?];
    let longer = if first.cost > second.cost { &first } else { &second };
    let most = longer.most.as_ref().map(|name| format!(", most in {name}")).unwrap_or_default();
    let [first, second] = [first.cost * scale, second.cost * scale];
    Some(format!(
        "Of the step locks, time spent spinning: {first:.3} {unit} ({before}) and {second:.3} \
         ({after}){most}."
    ))
}

/// Time that a cell spent spinning.
struct Spun {
    /// Seconds per unit of work.
    cost: f64,
    /// The function that waited longest.
    most: Option<String>,
}

fn spun(profiles: &[Trial], cell: &str, per: WorkUnit) -> Option<Spun> {
    const METRIC: &str = "locks.spin";
    let (mut time, mut work) = (None, 0.0);
    let mut functions: BTreeMap<&str, f64> = BTreeMap::new();
    let taken = |t: &&Trial| t.cell.0 == cell && t.status == TrialStatus::Measured;
    for trial in profiles.iter().filter(taken) {
        work += units(trial, per)?;
        for reading in &trial.readings {
            match &reading.scope {
                Scope::Machine | Scope::MachineOf(_) if reading.metric == METRIC => {
                    *time.get_or_insert(0.0) += reading.value;
                }
                Scope::Function(name) | Scope::FunctionOf(_, name)
                    if reading.metric.starts_with(METRIC)
                        && !reading.metric.ends_with(".waits") =>
                {
                    *functions.entry(name).or_default() += reading.value;
                }
                _ => {}
            }
        }
    }
    let most = functions.into_iter().max_by(|a, b| a.1.total_cmp(&b.1));
    Some(Spun { cost: time? / work, most: most.map(|(name, _)| name.to_owned()) })
}

fn units(trial: &Trial, per: WorkUnit) -> Option<f64> {
    match per {
        WorkUnit::Gib => {
            (trial.work == Work::Bytes && trial.count > 0).then(|| trial.count as f64 / GIB)
        }
        WorkUnit::Packet => trial.packets(),
        WorkUnit::Run => Some(1.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytepath_profile::change::Change;
    use bytepath_profile::waterfall::Bar;
    use bytepath_record::{CellId, Reading, Unit};

    fn trial(cell: &str, spun: Option<f64>) -> Trial {
        let mut trial = Trial::blank(CellId(cell.into()), 0, 0);
        trial.status = TrialStatus::Measured;
        trial.count = 2 << 30;
        let mut add = |metric: &str, unit, value, scope| {
            trial.readings.push(Reading::sum(metric, unit, value, scope));
        };
        if let Some(spun) = spun {
            add("locks.spin", Unit::Seconds, spun, Scope::Machine);
            add("locks.spin.waits", Unit::Count, 9.0, Scope::Machine);
            add("locks.spin.lock", Unit::Seconds, 0.6 * spun, Scope::Function("tcp_v4_rcv".into()));
            add("locks.spin.lock.waits", Unit::Count, 9.0, Scope::Function("pipe_write".into()));
        }
        trial
    }

    #[test]
    fn made_up_waits_are_reported_per_unit_with_the_function_that_waited_longest() {
        let bar = |cell: &str| Bar {
            cell: cell.into(),
            trials: 1,
            sampled: 0.4,
            metered: None,
            packet: None,
        };
        let waterfall = Waterfall {
            before: bar("socket"),
            after: bar("msg-zerocopy"),
            unit: "CPU-s/GiB".into(),
            confidence: 0.95,
            parts: Vec::new(),
            sampled: Change::plain(0.0),
            check: None,
            notes: Vec::new(),
        };
        let rejected = TrialStatus::Rejected { events: Vec::new() };
        let profiles = |other| {
            [
                trial("socket", Some(0.042)),
                trial("msg-zerocopy", other),
                Trial { status: rejected.clone(), ..trial("socket", Some(7.0)) },
            ]
        };
        let line = words(&profiles(Some(0.068)), &waterfall, WorkUnit::Gib);
        let expected = "Of the step locks, time spent spinning: 0.021 CPU-s/GiB (socket) and 0.034 \
                        (msg-zerocopy), most in tcp_v4_rcv.";
        assert_eq!(line.as_deref(), Some(expected));
        assert_eq!(
            words(&profiles(None), &waterfall, WorkUnit::Gib),
            None,
            "it did not run in one"
        );
        let events = Waterfall { unit: "10^9 cycles/GiB".into(), ..waterfall.clone() };
        assert_eq!(words(&profiles(Some(0.068)), &events, WorkUnit::Gib), None);
        assert_eq!(words(&profiles(Some(0.068)), &waterfall, WorkUnit::Packet), None, "no packets");
    }
}
