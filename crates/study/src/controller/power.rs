//! Power at the edges of a study: whether the source exists, the machine's
//! idle power, and the log of an external meter at the end.

use super::run::Run;
use crate::store::power_log;
use bytepath_meter::{self as meter, Context};
use bytepath_record::{Facts, Fault, Power, PowerSource, Rest, Role};
use bytepath_sys::Roots;
use serde_json::json;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

/// How long the idle power is measured.
const AT_REST: Duration = Duration::from_secs(5);

/// Power as a study will measure it, before its first trial: checked, and the idle power measured
/// if requested, with a remark. `apart` is whether the testbed's hosts do not share this machine.
pub(super) fn settle(
    requested: &Power,
    facts: &[Facts],
    apart: bool,
    stop: &AtomicBool,
) -> Result<(Power, Option<String>), Fault> {
    if !check(requested, facts, apart)? {
        return Ok((requested.clone(), None));
    }
    let context = Context { options: json!(requested), ..Context::idle(Roots::real()) };
    let watts = meter::measure_idle_power(&context, AT_REST, stop)?;
    let remark = format!(
        "idle, the machine drew {watts:.1} W over {} s before the first trial; that is \
         subtracted from every power reading",
        AT_REST.as_secs()
    );
    Ok((Power { rest: Rest::Given { watts }, ..requested.clone() }, Some(remark)))
}

/// Refuses power that cannot be measured: a source that is named and missing. Returns whether the
/// idle power is to be measured.
pub(super) fn check(requested: &Power, facts: &[Facts], apart: bool) -> Result<bool, Fault> {
    if requested.is_default() {
        return Ok(false);
    }
    if requested.receiver.is_some() && !apart {
        return Err(power_log::shared());
    }
    // A machine's hosts share its sources; the receiver's agent reads them.
    for role in Role::ALL.into_iter().filter(|role| apart || *role == Role::Receiver) {
        if let Some(facts) = facts.get(role as usize)
            && let Some(fault) = meter::power_support(facts, &requested.of(role).source).refusal()
        {
            return Err(fault.context(format!("{role}: power")));
        }
    }
    let mut measures_rest = false;
    for power in Role::ALL.map(|role| requested.of(role)) {
        match &power.source {
            // An error in its name is better reported before the study than after it. Its idle
            // power is in the log.
            PowerSource::Csv { file, .. } => drop(power_log::read_text(file)?),
            _ => measures_rest |= power.rest == Rest::Measured,
        }
    }
    if measures_rest && apart {
        let text = "rest=measured: each host is a machine of its own, with its own idle power";
        return Err(Fault::unsupported(text).remedy("leave out rest"));
    }
    Ok(measures_rest)
}

impl Run<'_, '_> {
    /// Reads the logs of external meters, if the study names some. A log that does not fit
    /// costs its figures and not the study: it can be aligned again.
    pub(super) fn power_log(&mut self) -> Result<(), Fault> {
        for requested in power_log::logs(&self.study.header.power) {
            match power_log::read(&self.study, &requested) {
                Ok(log) => {
                    self.writer.power_log(&log)?;
                    power_log::enter(&mut self.study, &log);
                }
                Err(fault) => {
                    let role =
                        requested.0.map_or_else(String::new, |role| format!(" --role {role}"));
                    self.remark(format!(
                        "no power figures: {fault}; `bytepath attach STUDY LOG{role}` tries again"
                    ))?;
                }
            }
        }
        Ok(())
    }
}
