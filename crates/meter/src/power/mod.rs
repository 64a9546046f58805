//! Energy and power of the machine, by whichever source it has.
//!
//! No two sources are ever added: each has figures for parts of the machine (`power.package-0`),
//! and by its own rule one figure for the whole (`power.energy`, `power.watts`). The sources do not
//! cover the same parts, so their figures are not comparable: RAPL covers processors and memory, an
//! external meter also fans, disks and the losses of the power supply.

mod counters;
mod domain;
mod gauge;
mod program;
mod sensors;

pub use program::{dcmi_reading, printed_watts};

use super::{Context, Meter, Output, Prepared, Running};
use bytepath_record::{
    Attempt, Facts, Fault, FaultKind, Outcome, Power as Choice, PowerSource, Reading, Rest, Scope,
    Support, Unit, joined,
};
use gauge::{Gauge, Measured};
use serde_json::json;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Name of the meter in the catalogue.
pub const NAME: &str = "power";

pub(crate) static METER: Meter = Meter {
    name: NAME,
    summary: "energy of the machine and its parts: RAPL, perf, hwmon, ipmitool, a program or a log",
    attempt: |roots| Some(Attempt { name: ATTEMPT.to_owned(), outcome: attempt(&roots.sys) }),
    probe: |facts| support(facts, &PowerSource::Auto),
    prepare,
    start,
    ..Meter::BASE
};

const ATTEMPT: &str = "power.counts";
const RAPL: &str = "RAPL";
const PERF: &str = "perf's PMU power";

/// Finds out which energy counters move. Those of a processor move every millisecond, whatever it
/// does; those shown to a virtual machine may stand still.
fn attempt(sys: &Path) -> Outcome {
    const LONG: Duration = Duration::from_millis(20);
    let moves = |open: fn(&Path) -> Result<Box<dyn Gauge>, Fault>| {
        let gauge = open(sys).ok()?;
        std::thread::sleep(LONG);
        Some(gauge.stop().ok()?.parts.iter().any(|part| part.joules > 0.0))
    };
    let moving = [(RAPL, moves(counters::rapl)), (PERF, moves(counters::perf))];
    Outcome::Works(joined(
        moving.iter().filter(|(_, is)| *is == Some(true)).map(|(name, _)| *name),
        ", ",
    ))
}

/// Returns what is wrong with a source whose counters stand still.
fn refuse_still_counters(facts: &Facts, source: &str) -> Option<Support> {
    match facts.attempt(ATTEMPT) {
        Some(Outcome::Works(moving)) if !moving.contains(source) => Some(Support::no(
            format!("the energy counters of {source} stand still, as in many virtual machines"),
            "",
        )),
        _ => None,
    }
}

/// Starts programs, which takes too long for the beginning of a window.
fn prepare(context: &Context) -> Result<Option<Prepared>, Fault> {
    let choice = choice(context)?;
    if !matches!(choice.source, PowerSource::Ipmi | PowerSource::Command { .. }) {
        return Ok(None);
    }
    let program = program::start(&choice.source)?;
    Ok(Some(Box::new(move || {
        Ok(Box::new(Window { gauge: Box::new(program.begin()), rest: rest(&choice) }))
    })))
}

fn start(context: &Context) -> Result<Box<dyn Running>, Fault> {
    // For windows after the first.
    if let Some(program) = prepare(context)? {
        return program();
    }
    let choice = choice(context)?;
    match open(&choice.source, &context.roots.sys)? {
        Some(gauge) => Ok(Box::new(Window { gauge, rest: rest(&choice) })),
        None => (Meter::BASE.start)(context),
    }
}

/// Whether a host has a source. Programs and files are tried only when they are used.
pub fn support(facts: &Facts, source: &PowerSource) -> Support {
    let (rapl, perf, hwmon) = (of_rapl(facts), of_perf(facts), of_hwmon(facts));
    match source {
        PowerSource::Rapl => rapl,
        PowerSource::Perf => perf,
        PowerSource::Hwmon => hwmon,
        PowerSource::Auto => {
            let all = [rapl, perf, hwmon];
            if all.iter().any(Support::is_yes) {
                return Support::Yes;
            }
            let reasons = all.iter().filter_map(|support| match support {
                Support::No { reason, .. } => Some(reason.as_str()),
                Support::Yes => None,
            });
            let denied = all.iter().find_map(|support| match support {
                Support::No { remedy, .. } if !remedy.is_empty() => Some(remedy.as_str()),
                _ => None,
            });
            let other = if facts.settings.contains_key("device.ipmi") {
                "query the board's controller: --power ipmi"
            } else {
                "use an external meter: --power csv=FILE or --power command=PROGRAM"
            };
            Support::no(joined(reasons, "; "), denied.unwrap_or(other))
        }
        PowerSource::Ipmi if !facts.settings.contains_key("device.ipmi") => Support::no(
            "there is no /dev/ipmi0",
            "modprobe ipmi_devintf ipmi_si, on a machine with a management controller",
        ),
        PowerSource::Ipmi | PowerSource::Command { .. } | PowerSource::Csv { .. } => Support::Yes,
    }
}

/// Measures the idle power of the machine over this time, in watts. Errors if `stop` is set
/// meanwhile.
pub fn measure_idle_power(
    context: &Context,
    time: Duration,
    stop: &AtomicBool,
) -> Result<f64, Fault> {
    let choice = Choice { rest: Rest::Kept, ..choice(context)? };
    let context = Context { options: json!(choice), ..context.clone() };
    let mut running = start(&context)?;
    let begin = Instant::now();
    while let Some(left) = time.checked_sub(begin.elapsed()).filter(|left| !left.is_zero()) {
        if stop.load(Ordering::Relaxed) {
            return Err(Fault::new(FaultKind::Interrupted, "interrupted by the user"));
        }
        std::thread::sleep(left.min(super::TICK));
        running.tick();
    }
    let output = running.stop()?;
    let watts = |r: &&Reading| r.metric == "power.watts" && r.scope == Scope::Machine;
    output.readings.iter().find(watts).map(|r| r.value).ok_or_else(|| {
        let why = output.warnings.first().map_or("the source gave no figure", String::as_str);
        Fault::unsupported(format!("the idle power cannot be measured: {why}"))
            .remedy("give it: --power SOURCE,rest=WATTS")
    })
}

fn of_rapl(facts: &Facts) -> Support {
    match (facts.settings.get("power.rapl"), facts.settings.get("power.rapl.denied")) {
        (Some(_), None) => refuse_still_counters(facts, RAPL).unwrap_or(Support::Yes),
        (Some(_), Some(_)) => Support::no(
            "RAPL's counters are readable by root only",
            "run as root, or: chmod a+r /sys/class/powercap/*/energy_uj",
        ),
        _ => Support::no("no RAPL zone in /sys/class/powercap", ""),
    }
}

fn of_perf(facts: &Facts) -> Support {
    if !facts.settings.contains_key("power.perf") {
        return Support::no("no PMU power in /sys/bus/event_source/devices", "");
    }
    let open = facts.number::<i64>("kernel.perf_event_paranoid").is_some_and(|p| p <= 0);
    if open || facts.privileges.may_monitor() {
        return refuse_still_counters(facts, PERF).unwrap_or(Support::Yes);
    }
    Support::no(
        "perf's PMU power is not accessible to this user",
        "sysctl -w kernel.perf_event_paranoid=0",
    )
}

fn of_hwmon(facts: &Facts) -> Support {
    let is_there = facts.settings.contains_key("power.hwmon");
    Support::when(is_there, "no sensor of machine or sockets in /sys/class/hwmon", "")
}

/// Opens a source and starts reading it. `Auto` uses the first that can be opened; `None` if there
/// is none.
fn open(source: &PowerSource, sys: &Path) -> Result<Option<Box<dyn Gauge>>, Fault> {
    match source {
        PowerSource::Rapl => counters::rapl(sys).map(Some),
        PowerSource::Perf => counters::perf(sys).map(Some),
        PowerSource::Hwmon => sensors::hwmon(sys).map(Some),
        PowerSource::Auto => Ok(counters::rapl(sys)
            .or_else(|_| counters::perf(sys))
            .or_else(|_| sensors::hwmon(sys))
            .ok()),
        // The log is read after the study.
        _ => Ok(None),
    }
}

fn choice(context: &Context) -> Result<Choice, Fault> {
    Ok(context.options()?.unwrap_or_default())
}

fn rest(power: &Choice) -> Option<f64> {
    match power.rest {
        Rest::Given { watts } => Some(watts),
        // The study measures it before its first trial and then passes it on.
        Rest::Kept | Rest::Measured => None,
    }
}

struct Window {
    gauge: Box<dyn Gauge>,
    rest: Option<f64>,
}

impl Running for Window {
    fn tick(&mut self) {
        self.gauge.tick();
    }

    fn stop(self: Box<Self>) -> Result<Output, Fault> {
        let measured = self.gauge.stop()?;
        Ok(report(measured, self.rest))
    }
}

/// Makes the readings of a window.
fn report(mut measured: Measured, rest: Option<f64>) -> Output {
    let seconds = measured.seconds;
    measured.leave_out_still_counters();
    let mut output = Output { warnings: measured.warnings, ..Output::default() };
    let (total, doubt) = domain::total(&measured.parts);
    for part in &measured.parts {
        output.add(&part.metric(), Unit::Joules, part.joules, &Scope::Machine);
    }
    output.warnings.extend(doubt);
    let Some(total) = total.filter(|_| seconds > 0.0) else { return output };
    let rest = rest.unwrap_or(0.0);
    let net = total - rest * seconds;
    output.add("power.energy", Unit::Joules, net, &Scope::Machine);
    output.level("power.watts", Unit::Watts, net / seconds, &Scope::Machine);
    if rest > 0.0 {
        output.level("power.rest", Unit::Watts, rest, &Scope::Machine);
    }
    if let Some(count) = measured.readings {
        output.add("power.readings", Unit::Count, f64::from(count), &Scope::Machine);
    }
    if net < 0.0 {
        output.warnings.push(format!(
            "power: the window drew less than the idle power of {rest:.1} W that is subtracted"
        ));
    }
    output
}
