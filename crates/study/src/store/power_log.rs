//! The log of an external power meter: aligned with the trials of a study, and entered into them.

use bytepath_record::{
    Fault, LogClock, LoggedTrial, Power, PowerLog, PowerSource, Reading, Rest, Role,
    SCHEMA_VERSION, Scope, Study, TimeSpan, Trial, TrialStatus, Unit,
};
use bytepath_stats::power_log::{Alignment, LONGEST_LOG, Log, align};
use bytepath_sys::files;
use std::io::Read;
use std::path::Path;

/// The fewest readings in a window from which a figure is computed.
const FEWEST: u32 = 2;

/// A requested log: the role whose host it covers (`None` for both), and how to read it.
pub(crate) type LogRequest = (Option<Role>, Power);

/// Returns the logs that a study names.
pub(crate) fn logs(power: &Power) -> Vec<LogRequest> {
    let all = match power.receiver {
        Some(_) => Role::ALL.map(|role| (Some(role), power.of(role).clone())).to_vec(),
        None => vec![(None, power.clone())],
    };
    all.into_iter().filter(|(_, power)| matches!(power.source, PowerSource::Csv { .. })).collect()
}

/// Reads a log and aligns it with the trials of a study.
pub(crate) fn read(study: &Study, (role, power): &LogRequest) -> Result<PowerLog, Fault> {
    let PowerSource::Csv { file, clock, column } = &power.source else {
        let text = "only a log can be attached to a study that has ended";
        return Err(Fault::usage(text).remedy("csv=FILE"));
    };
    let wrong = |cause: String| Fault::storage(format!("{file}: {cause}"));
    let log = Log::parse(&read_text(file)?, column.as_deref()).map_err(wrong)?;
    let trials: Vec<&Trial> = study.trials.iter().chain(&study.profiles).collect();
    let alignment = match clock {
        LogClock::Offset { seconds } => Alignment { offset: *seconds, explained: f64::NAN },
        LogClock::Steps => {
            let warm_up = study.header.schedule.warm_up;
            let flowed: Vec<_> = trials.iter().filter_map(|trial| flow(trial, warm_up)).collect();
            let remedy = "give the offset of its clock, if known: clock=SECONDS";
            align(&log, &flowed).map_err(|cause| wrong(cause).remedy(remedy))?
        }
    };
    let offset = alignment.offset;
    let rest = match power.rest {
        Rest::Kept => None,
        Rest::Given { watts } => Some(watts),
        Rest::Measured => {
            let first = trials.iter().map(|trial| trial.started_ms).min().unwrap_or_default();
            let mean = log.mean_before(first as f64 * 1e-3 - offset);
            let mean = mean.filter(|(_, count)| *count >= FEWEST as usize).map(|(mean, _)| mean);
            Some(mean.ok_or_else(|| {
                wrong("the log starts with the study, so it does not show the idle power".into())
                    .remedy("give it: rest=WATTS")
            })?)
        }
    };
    let ran: Vec<_> = trials.iter().filter(|trial| !trial.spans.is_empty()).collect();
    let logged = ran.iter().filter_map(|t| of_trial(&log, t, offset, rest.unwrap_or(0.0)));
    let logged: Vec<LoggedTrial> = logged.collect();
    let (without, interval) = (ran.len() - logged.len(), log.interval());
    let remark = format!(
        "power: the log has fewer than {FEWEST} readings in some window of {without} trials, \
         which therefore have no power figure (a reading every {interval:.1} s)"
    );
    Ok(PowerLog {
        schema: SCHEMA_VERSION,
        role: *role,
        file: Path::new(file).file_name().unwrap_or_default().to_string_lossy().into_owned(),
        column: Some(log.column().to_owned()),
        offset,
        explained: Some(alignment.explained).filter(|explained| explained.is_finite()),
        rest,
        trials: logged,
        remarks: (without > 0).then_some(remark).into_iter().collect(),
    })
}

/// Returns the time from the first byte of the warm-up to the end of the window.
fn flow(trial: &Trial, warm_up: f64) -> Option<TimeSpan> {
    let (first, last) = (trial.spans.first()?, trial.spans.last()?);
    let begin = first.begin - warm_up;
    Some(TimeSpan { begin, length: last.begin + last.length - begin })
}

fn of_trial(log: &Log, trial: &Trial, offset: f64, rest: f64) -> Option<LoggedTrial> {
    let mut sum = LoggedTrial { order: trial.order, joules: 0.0, seconds: 0.0, readings: 0 };
    for span in &trial.spans {
        let begin = span.begin - offset;
        let (joules, readings) = log.energy(begin, begin + span.length)?;
        if readings < FEWEST {
            return None;
        }
        sum.joules += joules - rest * span.length;
        sum.seconds += span.length;
        sum.readings = sum.readings.saturating_add(readings);
    }
    Some(sum).filter(|sum| sum.seconds > 0.0)
}

/// Enters the readings of a log into the trials that it covers.
pub(crate) fn enter(study: &mut Study, log: &PowerLog) {
    let ran = |trial: &&mut Trial| {
        matches!(trial.status, TrialStatus::Measured | TrialStatus::Rejected { .. })
    };
    for trial in study.trials.iter_mut().chain(&mut study.profiles).filter(ran) {
        let Some(logged) = log.trials.iter().find(|logged| logged.order == trial.order) else {
            continue;
        };
        let scope = log.role.map_or(Scope::Machine, Scope::MachineOf);
        let replaced = |r: &Reading| {
            r.metric.starts_with("power.") && (log.role.is_none() || r.scope == scope)
        };
        trial.readings.retain(|reading| !replaced(reading));
        let sum = |metric, unit, value| Reading::sum(metric, unit, value, scope.clone());
        let watts = |metric, value| Reading::mean(metric, Unit::Watts, value, scope.clone());
        trial.readings.extend([
            sum("power.energy", Unit::Joules, logged.joules),
            watts("power.watts", logged.joules / logged.seconds),
            sum("power.readings", Unit::Count, f64::from(logged.readings)),
        ]);
        trial.readings.extend(log.rest.map(|rest| watts("power.rest", rest)));
    }
    let how = match log.explained {
        Some(explained) => format!(
            "found from the trials' start and end times, which explain {:.0}% of it",
            explained * 100.0
        ),
        None => "as given".to_owned(),
    };
    let of = log.role.map_or_else(String::new, |role| format!(" of the {role}'s host"));
    let column = log.column.as_ref().map_or_else(String::new, |name| format!(" ('{name}')"));
    study.remarks.push(format!(
        "power{of} is from the log {}{column}, {} trials; its clock is {:+.2} s off, {how}",
        log.file,
        log.trials.len(),
        -log.offset
    ));
    study.remarks.extend(log.remarks.iter().cloned());
}

pub(crate) fn read_text(file: &str) -> Result<String, Fault> {
    let fault = |e: &std::io::Error| {
        Fault::storage(format!("cannot read the log {file}: {e}"))
            .remedy("give a file of times and watts: --power csv=FILE")
    };
    let mut bytes = Vec::new();
    let open = files::open(Path::new(file)).map_err(|e| fault(&e))?;
    open.take(LONGEST_LOG + 1).read_to_end(&mut bytes).map_err(|e| fault(&e))?;
    if bytes.len() as u64 > LONGEST_LOG {
        let text = format!("the log {file} is larger than {} MiB", LONGEST_LOG >> 20);
        return Err(Fault::storage(text).remedy("cut it to the time of the study"));
    }
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// Returns the fault of a log per role if both share a host.
pub(crate) fn shared() -> Fault {
    let text = "a source of power for each role: their hosts share a machine";
    Fault::usage(text).remedy("give one source for both")
}
