//! A log: readings of power over time, as a table of text.

use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

/// Largest log that is read, bytes: a week of ten readings a second.
pub const LONGEST_LOG: u64 = 256 << 20;

/// Readings of power, by time.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Log {
    /// (seconds by the log's own clock, watts), the times rising.
    points: Vec<(f64, f64)>,
}

impl Log {
    /// Reads a table of two columns or more, with commas, semicolons, tabs or blanks
    /// between them. A first line of words names the columns; without one the first is
    /// the time and the second the power. Times are seconds, milli-, micro- or
    /// nanoseconds since the Unix epoch, seconds since anything, or RFC 3339 (UTC where
    /// nothing else is specified). Powers are watts. Lines that begin with `#` are comments,
    /// and a last line without an end is skipped. Errors name the line.
    pub fn parse(text: &str) -> Result<Log, String> {
        // A log that is still being written ends in the middle of a line.
        let whole = text.rfind('\n').map_or(text, |end| text.get(..=end).unwrap_or(text));
        let first = whole.lines().find(|line| !line.trim().is_empty() && !line.starts_with('#'));
        let delimiter = delimiter(first.ok_or("the log is empty")?);
        let mut reader = csv::ReaderBuilder::new()
            .has_headers(false)
            .flexible(true)
            .comment(Some(b'#'))
            .delimiter(delimiter)
            .trim(csv::Trim::All)
            .from_reader(whole.as_bytes());
        let mut columns = None;
        let mut log = Log::default();
        for record in reader.records() {
            let record = record.map_err(|e| e.to_string())?;
            let line = record.position().map_or(0, csv::Position::line);
            let (at, power) = match columns {
                Some(columns) => columns,
                None => {
                    let (first, named) = named_columns(&record.iter().collect::<Vec<_>>());
                    columns = Some(first);
                    if named {
                        continue;
                    }
                    first
                }
            };
            let field = |index: usize| record.get(index).unwrap_or_default();
            let time = seconds(field(at));
            let time = time.ok_or_else(|| wrong(line, field(at), "a time"))?;
            let watts = field(power).trim_end_matches(['W', 'w', ' ']).parse::<f64>().ok();
            let watts = watts.filter(|watts| watts.is_finite() && watts.abs() <= 1e7);
            let watts = watts.ok_or_else(|| wrong(line, field(power), "a power in watts"))?;
            match log.points.last() {
                Some((last, _)) if time < *last => {
                    return Err(format!(
                        "line {line}: the time goes backwards by {} s",
                        last - time
                    ));
                }
                // Some meters repeat a reading; the first of them is as good.
                Some((last, _)) if time == *last => {}
                _ => log.points.push((time, watts)),
            }
        }
        match log.points.len() {
            0 | 1 => Err("the log has fewer than two readings".into()),
            _ => Ok(log),
        }
    }

    pub fn points(&self) -> &[(f64, f64)] {
        &self.points
    }

    /// When it starts and ends, by its own clock.
    pub fn extent(&self) -> (f64, f64) {
        let time = |point: Option<&(f64, f64)>| point.map_or(0.0, |(time, _)| *time);
        (time(self.points.first()), time(self.points.last()))
    }

    /// The usual time from one reading to the next, seconds: the median.
    pub fn interval(&self) -> f64 {
        let mut steps: Vec<f64> =
            self.points.windows(2).map(|pair| pair[1].0 - pair[0].0).collect();
        steps.sort_by(f64::total_cmp);
        steps.get(steps.len() / 2).copied().unwrap_or(0.0)
    }

    /// Joules between two moments of its own clock, and the readings among them; `None`
    /// if the log does not cover them. Straight lines go from reading to reading.
    pub fn energy(&self, begin: f64, end: f64) -> Option<(f64, u32)> {
        let (first, last) = self.extent();
        if !(begin >= first && end <= last && begin <= end) {
            return None;
        }
        let from = self.points.partition_point(|(time, _)| *time < begin);
        let to = self.points.partition_point(|(time, _)| *time <= end);
        let inside = self.points.get(from..to)?;
        let mut joules = 0.0;
        let mut before = (begin, self.at(begin)?);
        for point in inside.iter().copied().chain([(end, self.at(end)?)]) {
            joules += (point.0 - before.0) * (point.1 + before.1) / 2.0;
            before = point;
        }
        Some((joules, u32::try_from(inside.len()).unwrap_or(u32::MAX)))
    }

    /// Mean of the readings before a moment of its own clock, and how many there are.
    pub fn mean_before(&self, moment: f64) -> Option<(f64, usize)> {
        let count = self.points.partition_point(|(time, _)| *time < moment);
        let sum: f64 = self.points.iter().take(count).map(|(_, watts)| watts).sum();
        (count > 0).then(|| (sum / count as f64, count))
    }

    /// Watts at a moment that the log covers.
    fn at(&self, moment: f64) -> Option<f64> {
        let next = self.points.partition_point(|(time, _)| *time < moment);
        let (to, after) = *self.points.get(next)?;
        let before = next.checked_sub(1).and_then(|i| self.points.get(i));
        Some(before.map_or(after, |(from, before)| {
            before + (after - before) * (moment - from) / (to - from)
        }))
    }
}

fn wrong(line: u64, text: &str, what: &str) -> String {
    let text: String = text.chars().take(40).collect();
    format!("line {line}: '{text}' is not {what}")
}

fn delimiter(line: &str) -> u8 {
    let candidates = [b';', b'\t', b','];
    candidates.into_iter().find(|byte| line.as_bytes().contains(byte)).unwrap_or(b' ')
}

/// Columns of time and power, and whether the line names them.
fn named_columns(fields: &[&str]) -> ((usize, usize), bool) {
    let named = fields.first().is_some_and(|field| seconds(field).is_none());
    if !named {
        return ((0, 1), false);
    }
    let find = |marks: &[&str], exact: &[&str]| {
        fields.iter().position(|field| {
            let name = field.to_ascii_lowercase();
            exact.contains(&name.as_str()) || marks.iter().any(|mark| name.contains(mark))
        })
    };
    let time = find(&["time", "date", "epoch"], &["t", "ts"]).unwrap_or(0);
    let power = find(&["watt", "power", "[w]", "(w)"], &["w", "p"]).unwrap_or(time + 1);
    ((time, power), true)
}

/// Seconds of a time as a log writes it.
fn seconds(text: &str) -> Option<f64> {
    if let Ok(number) = text.parse::<f64>() {
        // By size: a number of seconds has reached ten digits, and each unit has three more.
        let scale = match number.abs() {
            n if n < 1e11 => 1.0,
            n if n < 1e14 => 1e-3,
            n if n < 1e17 => 1e-6,
            _ => 1e-9,
        };
        return number.is_finite().then_some(number * scale).filter(|s| s.abs() < 1e11);
    }
    // "2026-11-21 12:00:00.25" is RFC 3339 except for the T and the zone.
    let mut text = text.replacen(' ', "T", 1);
    let clock = text.split_once('T').map_or("", |(_, clock)| clock);
    if !clock.contains(['Z', 'z', '+', '-']) {
        text.push('Z');
    }
    let moment = OffsetDateTime::parse(&text, &Rfc3339).ok()?;
    Some(moment.unix_timestamp_nanos() as f64 * 1e-9)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn parse(text: &str) -> Vec<(f64, f64)> {
        Log::parse(text).unwrap().points().to_vec()
    }

    #[test]
    fn logs_of_many_meters() {
        let expected = [(1_700_000_000.0, 230.0), (1_700_000_001.0, 231.5)];
        for text in [
            "1700000000,230\n1700000001,231.5\n",
            "# a meter\ntime,volts,Power [W]\n1700000000000,230,230 W\n1700000001000,229,231.5 W\n",
            "Timestamp;Watts\n2023-11-14 22:13:20;230\n2023-11-14T22:13:21Z;231.5\n",
            "1700000000 230\n1700000001 231.5\n170000",
            "watts\ttime\n230\t2023-11-14T23:13:20+01:00\n231.5\t2023-11-14T22:13:21.000Z\n",
        ] {
            assert_eq!(parse(text), expected, "{text}");
        }
    }

    #[test]
    fn errors_name_the_line() {
        let wrong = |text: &str| Log::parse(text).unwrap_err();
        assert!(wrong("").contains("empty"));
        assert!(wrong("1,2\n").contains("fewer than two"));
        assert!(
            wrong("1,2\n2,x\n").contains("line 2: 'x' is not a power"),
            "{}",
            wrong("1,2\n2,x\n")
        );
        assert!(wrong("1,2\nx,2\n").contains("line 2: 'x' is not a time"));
        assert!(wrong("5,2\n4,2\n").contains("line 2: the time goes backwards by 1 s"));
        assert!(wrong("1,2\n2,nan\n").contains("line 2"));
    }

    #[test]
    fn energy_is_the_area_under_the_readings() {
        let log = Log::parse("0,100\n10,100\n20,200\n30,200\n").unwrap();
        assert_eq!(log.energy(0.0, 30.0), Some((1000.0 + 1500.0 + 2000.0, 4)));
        assert_eq!(log.energy(5.0, 15.0), Some((500.0 + 625.0, 1)));
        assert_eq!(log.energy(12.0, 14.0), Some((2.0 * 130.0, 0)));
        assert_eq!(log.energy(-1.0, 5.0), None, "not covered");
        assert_eq!(log.energy(5.0, 31.0), None, "not covered");
        assert_eq!(log.mean_before(11.0), Some((100.0, 2)));
        assert_eq!(log.interval(), 10.0);
    }

    proptest! {
        #[test]
        fn any_text_is_a_log_or_an_error(text in "[0-9a-z,;:.\\n\" TZ#+-]{0,200}") {
            if let Ok(log) = Log::parse(&text) {
                prop_assert!(log.points().windows(2).all(|pair| pair[0].0 < pair[1].0));
            }
        }
    }
}
