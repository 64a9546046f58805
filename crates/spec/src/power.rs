//! How power is measured, as typed: `SOURCE[=ARGUMENT][,key=value...]`.

use super::options::usage;
use super::suggest;
use bytepath_record::{Fault, LogClock, Power, PowerSource, Rest, unit};

/// Every source, and what it means.
pub const POWER_SOURCES: &[(&str, &str)] = &[
    ("auto", "the best of rapl, perf and hwmon that the host has"),
    ("rapl", "the processor's energy counters (/sys/class/powercap)"),
    ("perf", "the same counters by perf's PMU power"),
    ("hwmon", "sensors of the whole machine, or of the sockets (/sys/class/hwmon)"),
    ("ipmi", "the board's controller, queried once a second: ipmitool dcmi power reading"),
    ("command=PROGRAM ARG ...", "a program that prints watts, one reading per line; no shell"),
    ("csv=FILE", "an external meter's log of times and watts, read after the study"),
];

/// The sources without an argument.
const PLAIN: [(&str, PowerSource); 5] = [
    ("auto", PowerSource::Auto),
    ("rapl", PowerSource::Rapl),
    ("perf", PowerSource::Perf),
    ("hwmon", PowerSource::Hwmon),
    ("ipmi", PowerSource::Ipmi),
];

/// The names of all sources, without their arguments.
pub(crate) fn source_names() -> impl Iterator<Item = &'static str> {
    POWER_SOURCES.iter().map(|(form, _)| form.split('=').next().unwrap_or(form))
}

/// What can be set of power, and what it means.
pub const POWER_OPTIONS: &[(&str, &str)] = &[
    ("sender=...,receiver=...", "for hosts that each have their own source, with its options"),
    ("rest=WATTS|measure", "idle power, subtracted from every reading"),
    (
        "clock=auto|TIME",
        "csv: offset added to its times; auto derives it from the trials' start and end times",
    ),
    ("column=NAME|N", "csv: heading or number of the column of power, if several could be meant"),
];

/// Reads what `--power` and the key `power` take.
pub fn parse_power(text: &str) -> Result<Power, Fault> {
    let Some(both) = text.trim().strip_prefix("sender=") else { return parse_one(text) };
    let (sender, receiver) = both.split_once(",receiver=").ok_or_else(|| {
        usage("the sender's source of power is given, and the receiver's is not")
            .remedy("sender=SOURCE,receiver=SOURCE")
    })?;
    Ok(Power { receiver: Some(Box::new(parse_one(receiver)?)), ..parse_one(sender)? })
}

/// Reads a source and its options.
fn parse_one(text: &str) -> Result<Power, Fault> {
    let (head, options) = options(text.trim());
    let (name, argument) = match head.split_once('=') {
        Some((name, argument)) => (name.trim(), Some(argument.trim())),
        None => (head, None),
    };
    let (mut clock, mut rest, mut column) = (None, None, None);
    for (key, value) in options {
        let twice = match key {
            "clock" => clock.replace(read_clock(value)?).is_some(),
            "column" => column.replace(value.trim().to_owned()).is_some(),
            _ => rest.replace(read_rest(value)?).is_some(),
        };
        if twice {
            return Err(usage(format!("{key} is given twice in '{text}'")));
        }
    }
    let need = |what: &str| {
        let argument = argument.filter(|argument| !argument.is_empty());
        argument.ok_or_else(|| usage(format!("'{name}' needs {what}: {name}={what}")))
    };
    let source = match name {
        "csv" => {
            let file = need("FILE")?.to_owned();
            PowerSource::Csv {
                file,
                clock: clock.take().unwrap_or_default(),
                column: column.take(),
            }
        }
        "command" => {
            let words = need("PROGRAM")?.split_whitespace().map(str::to_owned);
            PowerSource::Command { argv: words.collect() }
        }
        _ if argument.is_some() => {
            return Err(usage(format!("the source '{name}' takes no argument")));
        }
        other => match PLAIN.iter().find(|(name, _)| *name == other) {
            Some((_, source)) => source.clone(),
            None => {
                let names: Vec<&str> = source_names().collect();
                let fault = usage(format!("there is no source of power '{other}'"));
                return Err(suggest(fault, other, &names));
            }
        },
    };
    if clock.is_some() || column.is_some() {
        let what = if clock.is_some() { "clock of its own" } else { "columns" };
        return Err(usage(format!("the source '{name}' has no {what}"))
            .remedy("clock=... and column=... are for csv=FILE"));
    }
    Ok(Power { source, rest: rest.unwrap_or_default(), receiver: None })
}

/// Writes power so that it is read again as the same.
pub fn print_power(power: &Power) -> String {
    match &power.receiver {
        Some(receiver) => format!("sender={},receiver={}", print_one(power), print_one(receiver)),
        None => print_one(power),
    }
}

fn print_one(power: &Power) -> String {
    let mut text = match &power.source {
        PowerSource::Command { argv } => format!("command={}", argv.join(" ")),
        PowerSource::Csv { file, .. } => format!("csv={file}"),
        plain => {
            let name = PLAIN.iter().find(|(_, source)| source == plain);
            name.map_or_else(String::new, |(name, _)| (*name).to_owned())
        }
    };
    if let PowerSource::Csv { column: Some(column), .. } = &power.source {
        text += &format!(",column={column}");
    }
    if let PowerSource::Csv { clock: LogClock::Offset { seconds }, .. } = power.source {
        text += &format!(",clock={seconds}s");
    }
    match power.rest {
        Rest::Kept => {}
        Rest::Given { watts } => text += &format!(",rest={watts}"),
        Rest::Measured => text += ",rest=measure",
    }
    text
}

/// The stated offset of a log's clock: `auto`, `-3.5s`, `250ms`.
pub fn read_clock(text: &str) -> Result<LogClock, Fault> {
    if text == "auto" {
        return Ok(LogClock::Steps);
    }
    let (sign, rest) = match text.strip_prefix('-') {
        Some(rest) => (-1.0, rest),
        None => (1.0, text.strip_prefix('+').unwrap_or(text)),
    };
    let wrong =
        || usage(format!("'{text}' is not a clock offset")).remedy("write auto, -3.5s or 250ms");
    let seconds = unit::parse_duration(rest).map_err(|_| wrong())?.as_secs_f64();
    Ok(LogClock::Offset { seconds: sign * seconds })
}

/// What is subtracted: `measure`, `230`, `230W`.
pub fn read_rest(text: &str) -> Result<Rest, Fault> {
    if text == "measure" {
        return Ok(Rest::Measured);
    }
    let digits = text.strip_suffix(['W', 'w']).unwrap_or(text);
    match digits.parse::<f64>() {
        Ok(watts) if watts.is_finite() && watts >= 0.0 => Ok(Rest::Given { watts }),
        _ => {
            Err(usage(format!("'{text}' is not an idle power"))
                .remedy("write measure or watts: 230"))
        }
    }
}

/// What precedes the options, and the options. They are at the end, so that a
/// file or a program may have commas in its name.
fn options(text: &str) -> (&str, Vec<(&str, &str)>) {
    let mut head = text;
    let mut options = Vec::new();
    while let Some((before, last)) = head.rsplit_once(',') {
        let Some((key @ ("rest" | "clock" | "column"), value)) = last.trim().split_once('=') else {
            break;
        };
        options.push((key, value));
        head = before.trim_end();
    }
    (head, options)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_source_is_read_and_written() {
        for text in [
            "auto",
            "rapl",
            "perf,rest=230",
            "hwmon,rest=measure",
            "ipmi",
            "command=meter --port /dev/ttyUSB0,9600",
            "command=./watts,rest=0.5",
            "csv=log, of the day.csv",
            "csv=a=b.csv,clock=-3.25s,rest=60",
            "csv=a.csv,column=Active Power (W),clock=2s",
            "sender=csv=s.csv,rest=60,receiver=csv=r.csv,clock=-3s",
            "sender=rapl,receiver=hwmon,rest=measure",
        ] {
            let power = parse_power(text).unwrap();
            assert_eq!(print_power(&power), text);
        }
        let csv = parse_power("csv=log.csv,rest=60W,clock=+250ms").unwrap();
        let clock = LogClock::Offset { seconds: 0.25 };
        assert_eq!(csv.source, PowerSource::Csv { file: "log.csv".into(), clock, column: None });
        assert_eq!(csv.rest, Rest::Given { watts: 60.0 });
        let argv = vec!["meter".to_owned(), "-p".to_owned(), "a,b".to_owned()];
        assert_eq!(
            parse_power("command=meter  -p a,b").unwrap().source,
            PowerSource::Command { argv }
        );
    }

    #[test]
    fn errors_say_what_would_be_right() {
        let wrong = |text: &str| parse_power(text).unwrap_err().to_string();
        assert!(wrong("sender=rapl").contains("the receiver's is not"));
        assert!(wrong("rap").contains("did you mean 'rapl'?"));
        assert!(wrong("").contains("choose from auto, rapl"));
        assert!(wrong("csv").contains("csv=FILE"));
        assert!(wrong("command= ").contains("command=PROGRAM"));
        assert!(wrong("rapl=0").contains("takes no argument"));
        assert!(wrong("rapl,clock=3s").contains("no clock of its own"));
        assert!(wrong("rapl,column=3").contains("has no columns"));
        assert!(wrong("csv=x,clock=soon").contains("-3.5s"));
        assert!(wrong("csv=x,clock=-3.5").contains("-3.5s"));
        assert!(wrong("hwmon,rest=-3").contains("idle power"));
        assert!(wrong("hwmon,rest=nan").contains("idle power"));
        assert!(wrong("hwmon,rest=3,rest=4").contains("twice"));
    }
}
