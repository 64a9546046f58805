//! Collects samples one by one, in memory that does not grow with their number: a small profile
//! keeps the time of every sample; in a large one equal samples are merged without their times.

use super::format::Times;
use crate::{Builder, Profile, Sample};

/// Up to this many samples keep their times, which are more useful in a small profile and cost more
/// memory in a large one.
pub const TIMED: usize = 200_000;

/// Makes a profile of samples with times.
#[derive(Debug, Default)]
pub(super) struct Collector {
    /// Stores functions, threads and stacks.
    pub(super) builder: Builder,
    /// Samples without their times, and nanoseconds of the file's clock.
    timed: Vec<(Sample, u64)>,
    times: Times,
    /// Whether there are too many samples to keep their times.
    many: bool,
    first: Option<u64>,
    last: u64,
    period: Period,
}

/// The weight of one sample, as long as it is the same for all.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
enum Period {
    #[default]
    None,
    Same(f64),
    Differs,
}

impl Collector {
    pub(super) fn new(times: Times) -> Collector {
        Collector { times, ..Collector::default() }
    }

    /// Adds a sample; `time` is in nanoseconds of the file's clock.
    pub(super) fn push(&mut self, sample: Sample, time: Option<u64>) {
        let each = sample.weight / sample.count.max(1) as f64;
        self.period = match self.period {
            Period::None => Period::Same(each),
            Period::Same(period) if period == each => self.period,
            _ => Period::Differs,
        };
        if let Some(time) = time {
            self.first = Some(self.first.map_or(time, |first| first.min(time)));
            self.last = self.last.max(time);
        }
        match time.filter(|_| !self.many && self.times == Times::Kept) {
            Some(time) if self.timed.len() < TIMED => self.timed.push((sample, time)),
            Some(_) => {
                self.many = true;
                let earlier = std::mem::take(&mut self.timed).into_iter();
                earlier.for_each(|(earlier, _)| self.builder.add(earlier));
                self.builder.add(sample);
            }
            None => self.builder.add(sample),
        }
    }

    /// Returns the weight of every sample, if it was constant.
    pub(super) fn period(&self) -> Option<f64> {
        match self.period {
            Period::Same(period) => Some(period),
            Period::None | Period::Differs => None,
        }
    }

    /// Builds the profile, with times relative to its first sample. Its seconds are those between
    /// the first and the last sample, unless the header states them.
    pub(super) fn build(mut self) -> Profile {
        if let Some(first) = self.first {
            let header = self.builder.header();
            let span = seconds(self.last.saturating_sub(first));
            if header.seconds.is_none() && span > 0.0 {
                header.seconds = Some(span);
            }
            if self.many {
                header.notes.push(format!(
                    "more than {TIMED} samples: their times were left out, equal ones added up"
                ));
            }
            for (sample, time) in self.timed {
                let time = Some(seconds(time.saturating_sub(first)));
                self.builder.add(Sample { time, ..sample });
            }
        }
        self.builder.build()
    }
}

/// Converts nanoseconds to seconds.
fn seconds(nanoseconds: u64) -> f64 {
    nanoseconds as f64 / 1e9
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Thread;

    fn collect(times: Times, samples: u64) -> Profile {
        let mut collector = Collector::new(times);
        let thread = collector.builder.thread(Thread::default());
        let stack = collector.builder.stack(&[]);
        for n in 0..samples {
            let sample = Sample { stack, thread, count: 1, weight: 2.0, ..Sample::default() };
            collector.push(sample, Some(5_000_000_000 + n * 1000));
        }
        assert_eq!(collector.period(), Some(2.0));
        collector.build()
    }

    #[test]
    fn times_are_kept_until_there_are_too_many() {
        let few = collect(Times::Kept, 3);
        assert_eq!(few.samples().len(), 3);
        assert_eq!(few.samples()[1].time, Some(1e-6));
        assert_eq!(few.header.seconds, Some(2e-6));
        let many = collect(Times::Kept, TIMED as u64 + 5);
        assert_eq!(many.samples().len(), 1);
        assert_eq!((many.count(), many.samples()[0].time), (TIMED as u64 + 5, None));
        assert!(many.header.notes[0].contains("left out"));
    }

    #[test]
    fn unneeded_times_are_not_kept() {
        let sums = collect(Times::LeftOut, 3);
        assert_eq!((sums.samples().len(), sums.count()), (1, 3));
        assert_eq!((sums.samples()[0].time, sums.header.seconds), (None, Some(2e-6)));
    }
}
