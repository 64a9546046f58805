//! Finds the offset between a log's clock and the study's from the study's own edges: power rises
//! when a stream begins and falls when it ends.
//!
//! For a given offset, every reading falls into one of the stretches in which a stream flowed, or
//! into the time between, before and after them. The better the offset, the less the readings
//! within a stretch differ: the alignment maximises the part of the log's variance that lies
//! between the stretches (the R² of an analysis of variance). Unlike a plain correlation with on
//! and off, this does not assume that all cells draw the same power. The readings of a stretch are
//! a range of a running sum, so an offset costs as many look-ups as there are stretches, and all
//! offsets at which the log covers the study are tried.

use super::Log;
use bytepath_record::TimeSpan;

/// Least part of the variance that an alignment must explain.
const LEAST_EXPLAINED: f64 = 0.5;

/// Another offset that explains nearly as much makes the best one doubtful: trials of equal length
/// at equal distances fit again when shifted by one.
const DOUBT: f64 = 0.97;

/// Most offsets tried in one pass.
const MOST_TRIED: f64 = 200_000.0;

/// The offset between a log's clock and the study's.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Alignment {
    /// Seconds to add to the log's times, accurate to about half the time between two readings. If
    /// a reading is the mean of the preceding interval, that delay is included in the offset, as it
    /// should be.
    pub offset: f64,
    /// Part of the log's variance that the study's stretches explain.
    pub explained: f64,
}

/// Finds the offset at which a log best fits the times in which streams flowed. The error explains
/// what the log would need.
pub fn align(log: &Log, flowed: &[TimeSpan]) -> Result<Alignment, String> {
    let stretches = merged(flowed);
    let (Some(first), Some(last)) = (stretches.first(), stretches.last()) else {
        return Err("the study has no trial to align the log with".into());
    };
    let (begin, end) = log.extent();
    let (lowest, highest) = (last.1 - end, first.0 - begin);
    if lowest > highest {
        return Err(format!(
            "the log covers {:.0} s and the study took {:.0} s: start it before the \
             study and end it after",
            end - begin,
            last.1 - first.0
        ));
    }
    let interval = log.interval();
    let shortest = stretches.iter().map(|(from, to)| to - from).fold(f64::INFINITY, f64::min);
    if shortest < 2.0 * interval {
        return Err(format!(
            "the log has a reading every {interval:.1} s, too few to detect the \
             edges of streams of {shortest:.1} s"
        ));
    }
    let sums = Sums::of(log);
    if sums.variance <= 0.0 {
        return Err("the log shows constant power".into());
    }
    let step = (interval / 4.0).max((highest - lowest) / MOST_TRIED).max(1e-3);
    let count = ((highest - lowest) / step).floor() as usize + 1;
    let offsets = (0..count).map(|index| lowest + index as f64 * step);
    let tried: Vec<Alignment> = offsets.map(|offset| sums.aligned(&stretches, offset)).collect();
    let best = tried.iter().copied().max_by(|a, b| a.explained.total_cmp(&b.explained));
    let best = best.ok_or("there is no offset to try")?;
    let near = shortest / 2.0 + interval;
    let rival = tried
        .iter()
        .filter(|other| (other.offset - best.offset).abs() > near)
        .max_by(|a, b| a.explained.total_cmp(&b.explained));
    if best.explained < LEAST_EXPLAINED {
        return Err(format!(
            "the trials' start and end times explain only {:.0}% of the log at best: is \
             it the log of this machine and this time?",
            best.explained * 100.0
        ));
    }
    if let Some(rival) = rival.filter(|rival| rival.explained > DOUBT * best.explained) {
        return Err(format!(
            "two offsets fit equally well: {:.1} s ({:.0}%) and {:.1} s ({:.0}%); a log \
             with more idle time before and after the study would decide",
            best.offset,
            best.explained * 100.0,
            rival.offset,
            rival.explained * 100.0
        ));
    }
    Ok(refined(&sums, &stretches, best, step.max(interval)))
}

/// Refines an offset. Between two readings nothing changes, so the best one is the middle of a
/// range.
fn refined(sums: &Sums, stretches: &[(f64, f64)], near: Alignment, reach: f64) -> Alignment {
    const STEPS: i32 = 200;
    let at = |index: i32| {
        sums.aligned(stretches, near.offset + reach * f64::from(index) / f64::from(STEPS))
    };
    let tried: Vec<Alignment> = (-STEPS..=STEPS).map(at).collect();
    let most = tried.iter().map(|a| a.explained).fold(near.explained, f64::max);
    let best: Vec<f64> =
        tried.iter().filter(|a| a.explained >= most - 1e-12).map(|a| a.offset).collect();
    match (best.first(), best.last()) {
        (Some(low), Some(high)) => Alignment { offset: (low + high) / 2.0, explained: most },
        _ => near,
    }
}

/// Merges stretches that overlap: cells that take turns flow at the same time.
fn merged(flowed: &[TimeSpan]) -> Vec<(f64, f64)> {
    let mut all: Vec<(f64, f64)> = flowed
        .iter()
        .map(|span| (span.begin, span.begin + span.length))
        .filter(|(from, to)| from.is_finite() && to > from)
        .collect();
    all.sort_by(|a, b| a.0.total_cmp(&b.0));
    let mut merged: Vec<(f64, f64)> = Vec::new();
    for (from, to) in all {
        match merged.last_mut() {
            Some((_, end)) if from <= *end => *end = end.max(to),
            _ => merged.push((from, to)),
        }
    }
    merged
}

/// A log with its running sums.
struct Sums<'a> {
    log: &'a Log,
    /// Sums of the first so many readings, less their mean.
    sums: Vec<f64>,
    /// Sum of squares about the mean.
    variance: f64,
}

impl<'a> Sums<'a> {
    fn of(log: &'a Log) -> Self {
        let points = log.points();
        let mean = points.iter().map(|(_, watts)| watts).sum::<f64>() / points.len() as f64;
        let mut sums = vec![0.0];
        let mut sum = 0.0;
        for (_, watts) in points {
            sum += watts - mean;
            sums.push(sum);
        }
        let variance = points.iter().map(|(_, watts)| (watts - mean).powi(2)).sum();
        Sums { log, sums, variance }
    }

    /// Returns an offset with the part of the variance that lies between the stretches.
    fn aligned(&self, stretches: &[(f64, f64)], offset: f64) -> Alignment {
        let points = self.log.points();
        let index = |moment: f64| points.partition_point(|(time, _)| *time < moment - offset);
        let sum = |index: usize| self.sums.get(index).copied().unwrap_or(0.0);
        let (mut between, mut rest, mut others) = (0.0, sum(points.len()), points.len());
        for (from, to) in stretches {
            let (from, to) = (index(*from), index(*to));
            let count = to.saturating_sub(from);
            if count > 0 {
                let here = sum(to) - sum(from);
                between += here * here / count as f64;
                rest -= here;
                others = others.saturating_sub(count);
            }
        }
        if others > 0 {
            between += rest * rest / others as f64;
        }
        Alignment { offset, explained: between / self.variance }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Noise of the same kind in every run.
    struct Noise(u64);

    impl Noise {
        /// Approximately normal, with variance 1.
        fn next(&mut self) -> f64 {
            let mut sum = 0.0;
            for _ in 0..12 {
                self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
                sum += (self.0 >> 11) as f64 / (1u64 << 53) as f64;
            }
            sum - 6.0
        }
    }

    /// Eight trials of 5 s, 1.3 s apart, of two cells that draw 60 and 90 W above idle.
    fn study() -> Vec<TimeSpan> {
        (0..8).map(|i| TimeSpan { begin: 1000.0 + f64::from(i) * 6.3, length: 5.0 }).collect()
    }

    /// The log of that study by a meter whose clock is `off` seconds behind.
    fn log(off: f64, interval: f64, noise: f64, margin: f64) -> Log {
        let spans = study();
        let (begin, end) = (spans[0].begin - margin, spans[7].begin + 5.0 + margin);
        let mut random = Noise(42);
        let mut text = String::from("time,watts\n");
        let mut now = begin;
        while now <= end {
            let flows = spans.iter().position(|s| now >= s.begin && now < s.begin + s.length);
            let above = flows.map_or(0.0, |i| if i % 2 == 0 { 60.0 } else { 90.0 });
            let watts = 230.0 + above + noise * random.next();
            text += &format!("{:.3},{watts:.2}\n", now - off);
            now += interval;
        }
        Log::parse(&text, None).unwrap()
    }

    #[test]
    fn a_known_offset_is_found_in_noise() {
        for (off, interval, noise) in [
            (0.0, 1.0, 0.0),
            (3600.0, 1.0, 5.0),
            (-77.7, 0.5, 15.0),
            (12.34, 0.1, 20.0),
            (0.4, 2.0, 8.0),
        ] {
            let found = align(&log(off, interval, noise, 20.0), &study()).unwrap();
            let error = (found.offset - off).abs();
            assert!(error <= 0.55 * interval + 0.02, "{off}, {interval}, {noise}: {found:?}");
            assert!(found.explained > 0.6, "{found:?}");
        }
    }

    #[test]
    fn refuses_logs_without_a_clear_offset() {
        let flat = Log::parse("0,5\n1000,5\n2000,5\n", None).unwrap();
        let spans = [TimeSpan { begin: 500.0, length: 300.0 }];
        assert!(align(&flat, &spans).unwrap_err().contains("every 1000.0 s"));
        let mut random = Noise(1);
        let noise: String = (0..4000).map(|i| format!("{i},{}\n", 50.0 + random.next())).collect();
        let error = align(&Log::parse(&noise, None).unwrap(), &study()).unwrap_err();
        assert!(error.contains("explain only"), "{error}");
        let short = Log::parse("0,5\n1,6\n2,5\n", None).unwrap();
        assert!(align(&short, &study()).unwrap_err().contains("covers 2 s"));
        // One trial, and a log with another load of the same length.
        let twice: String = (0..100)
            .map(|i| {
                format!(
                    "{i},{}\n",
                    if (20..30).contains(&i) || (60..70).contains(&i) { 9 } else { 1 }
                )
            })
            .collect();
        let one = [TimeSpan { begin: 500.0, length: 10.0 }];
        let error = align(&Log::parse(&twice, None).unwrap(), &one).unwrap_err();
        assert!(error.contains("explain only") || error.contains("two offsets"), "{error}");
        assert!(align(&flat, &[]).unwrap_err().contains("no trial"));
    }
}
