//! Parses how power is measured: `SOURCE[=ARGUMENT][,key=value...]`.

use super::options::usage;
use super::suggest;
use bytepath_record::{Fault, LogClock, Power, PowerSource, Rest, unit};

/// Every source, with its description.
pub const POWER_SOURCES: &[(&str, &str)] = &[
    ("auto", "the best of rapl, perf and hwmon that the host has"),
    ("rapl", "the processor's energy counters (/sys/class/powercap)"),
    ("perf", "the same counters by perf's PMU power"),
    ("hwmon", "sensors of the whole machine, or of the sockets (/sys/class/hwmon)"),
    ("ipmi", "the board's controller, queried once a second: ipmitool dcmi power reading"),
    ("command=PROGRAM ARG ...", "a program that prints watts, one reading per line; no shell"),
    ("csv=FILE", "an external meter's log of times and watts, read after the study"),
];

/// Returns the names of all sources, without their arguments.
pub(crate) fn source_names() -> impl Iterator<Item = &'static str> + Clone {
    POWER_SOURCES.iter().map(|(form, _)| form.split('=').next().unwrap_or(form))
}

/// The options of power, with their descriptions.
pub const POWER_OPTIONS: &[(&str, &str)] = &[
    ("sender=...,receiver=...", "for hosts that each have their own source, with its options"),
    ("rest=WATTS|measure", "idle power, subtracted from every reading"),
    (
        "clock=auto|TIME",
        "csv: offset added to its times; auto derives it from the trials' start and end times",
    ),
    ("column=NAME|N", "csv: heading or number of the column of power, if several could be meant"),
];

/// Parses the value of `--power` and of the key `power`.
pub fn parse_power(text: &str) -> Result<Power, Fault> {
    let Some(both) = text.trim().strip_prefix("sender=") else { return parse_one(text) };
    let (sender, receiver) = both.split_once(",receiver=").ok_or_else(|| {
        usage("the sender's source of power is given, and the receiver's is not")
            .remedy("sender=SOURCE,receiver=SOURCE")
    })?;
    Ok(Power { receiver: Some(Box::new(parse_one(receiver)?)), ..parse_one(sender)? })
}

/// Parses a source with its options.
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
            let (file, clock) = (need("FILE")?.to_owned(), clock.take().unwrap_or_default());
            PowerSource::Csv { file, clock, column: column.take() }
        }
        "command" => {
            let words = need("PROGRAM")?.split_whitespace().map(str::to_owned);
            PowerSource::Command { argv: words.collect() }
        }
        _ if argument.is_some() => {
            return Err(usage(format!("the source '{name}' takes no argument")));
        }
        other => other.parse().map_err(|_| {
            let fault = usage(format!("there is no source of power '{other}'"));
            suggest(fault, other, source_names())
        })?,
    };
    if clock.is_some() || column.is_some() {
        let what = if clock.is_some() { "clock of its own" } else { "columns" };
        return Err(usage(format!("the source '{name}' has no {what}"))
            .remedy("clock=... and column=... are for csv=FILE"));
    }
    Ok(Power { source, rest: rest.unwrap_or_default(), receiver: None })
}

/// Parses the offset of a log's clock: `auto`, `-3.5s`, `250ms`.
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

/// Parses the idle power to subtract: `measure`, `230`, `230W`.
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

/// Splits off the options. They are at the end, so that the name of a file or program may contain
/// commas.
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
    fn every_source_is_read() {
        let plain = [PowerSource::Auto, PowerSource::Rapl, PowerSource::Perf, PowerSource::Hwmon];
        for source in plain.into_iter().chain([PowerSource::Ipmi]) {
            assert_eq!(parse_power(&source.to_string()).unwrap().source, source);
        }
        for (text, file, column, seconds) in [
            ("csv=log, of the day.csv", "log, of the day.csv", None, None),
            ("csv=a=b.csv,clock=-3.25s,rest=60", "a=b.csv", None, Some(-3.25)),
            (
                "csv=a.csv,column=Active Power (W),clock=2s",
                "a.csv",
                Some("Active Power (W)"),
                Some(2.0),
            ),
        ] {
            let clock = seconds.map_or(LogClock::Steps, |seconds| LogClock::Offset { seconds });
            let (file, column) = (file.to_owned(), column.map(str::to_owned));
            assert_eq!(parse_power(text).unwrap().source, PowerSource::Csv { file, clock, column });
        }
        for (text, sender, receiver) in [
            (
                "sender=csv=s.csv,rest=60,receiver=csv=r.csv,clock=-3s",
                "csv=s.csv,rest=60",
                "csv=r.csv,clock=-3s",
            ),
            ("sender=rapl,receiver=hwmon,rest=measure", "rapl", "hwmon,rest=measure"),
        ] {
            let receiver = Some(Box::new(parse_power(receiver).unwrap()));
            let both = Power { receiver, ..parse_power(sender).unwrap() };
            assert_eq!(parse_power(text).unwrap(), both);
        }
        assert_eq!(parse_power("perf,rest=230").unwrap().rest, Rest::Given { watts: 230.0 });
        assert_eq!(parse_power("hwmon,rest=measure").unwrap().rest, Rest::Measured);
        let csv = parse_power("csv=log.csv,rest=60W,clock=+250ms").unwrap();
        let clock = LogClock::Offset { seconds: 0.25 };
        assert_eq!(csv.source, PowerSource::Csv { file: "log.csv".into(), clock, column: None });
        assert_eq!(csv.rest, Rest::Given { watts: 60.0 });
        let argv = vec!["meter".to_owned(), "-p".to_owned(), "a,b".to_owned()];
        assert_eq!(
            parse_power("command=meter  -p a,b").unwrap().source,
            PowerSource::Command { argv }
        );
        let argv = vec!["./watts".to_owned()];
        let watts = parse_power("command=./watts,rest=0.5").unwrap();
        assert_eq!(watts.source, PowerSource::Command { argv });
        assert_eq!(watts.rest, Rest::Given { watts: 0.5 });
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
