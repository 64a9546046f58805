//! Parses the first line of a sample of `perf script`: `comm pid/tid [cpu] time: period event:
//! rest`, of which `-F` may leave out any part.
//!
//! A thread's name may contain blanks and digits (`net rx 0 20554 1811.1:`), so the line is read
//! outwards from the fields that are unambiguous.

use super::lines::digits;
use crate::conventions::MODIFIERS;
use crate::text::is_hexadecimal;

/// The parsed line.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Head<'a> {
    pub(super) comm: &'a [u8],
    pub(super) pid: Option<u32>,
    pub(super) tid: Option<u32>,
    pub(super) cpu: Option<u32>,
    /// In nanoseconds.
    pub(super) time: Option<u64>,
    pub(super) period: Option<u64>,
    pub(super) event: Option<&'a [u8]>,
    /// The remaining text: a frame, or what a tracepoint recorded.
    pub(super) rest: &'a [u8],
    /// Whether there is a time, a CPU or an event, which no line of other text has.
    pub(super) certain: bool,
}

impl Head<'_> {
    /// Returns whether the event is a tracepoint, which prints its recorded fields.
    pub(super) fn traces(&self) -> bool {
        // In `cycles:ppp` modifiers follow the colon (perf-list(1)); `block:bio` is a system and a
        // name.
        self.event.is_some_and(|event| {
            memchr::memchr(b':', event)
                .and_then(|at| event.get(at + 1..))
                .is_some_and(|after| !after.iter().all(|byte| MODIFIERS.contains(byte)))
        })
    }
}

/// Prefix of the names of records that are not samples.
const RECORD: &[u8] = b"PERF_RECORD_";

/// Least distance in bytes from the end of the previous word to the end of a period (`%10lu `) or
/// of an address (`%16lx`) (tools/perf/builtin-script.c).
const PERIOD_COLUMN: usize = 11;
const ADDRESS_COLUMN: usize = 17;

/// Most words that are examined: more than the fields before the event ever have.
const WORDS: usize = 48;

/// The words of a line, by their beginnings and ends.
struct Words<'a> {
    line: &'a [u8],
    places: [(usize, usize); WORDS],
    count: usize,
}

impl<'a> Words<'a> {
    fn of(line: &'a [u8]) -> Words<'a> {
        let mut words = Words { line, places: [(0, 0); WORDS], count: 0 };
        let mut at = 0;
        for word in line.split(u8::is_ascii_whitespace) {
            if !word.is_empty() {
                let Some(place) = words.places.get_mut(words.count) else { break };
                *place = (at, at + word.len());
                words.count += 1;
            }
            at += word.len() + 1;
        }
        words
    }

    fn get(&self, index: usize) -> Option<&'a [u8]> {
        let (from, to) = *self.places.get(..self.count)?.get(index)?;
        self.line.get(from..to)
    }

    fn find(&self, test: impl Fn(&[u8]) -> bool) -> Option<usize> {
        (0..self.count).find(|index| self.get(*index).is_some_and(&test))
    }

    /// Returns the bytes from the end of the word before `index` to the end of that word.
    fn gap(&self, index: usize) -> usize {
        let end = |index: usize| self.places.get(index).map(|(_, to)| *to);
        match (end(index), index.checked_sub(1).and_then(end)) {
            (Some(own), Some(before)) => own.saturating_sub(before),
            _ => 0,
        }
    }

    /// Returns whether a word is in the column of a period. The first word of a line must end where
    /// that column does: a thread's name, which may be a number, is aligned farther to the right.
    fn is_wide(&self, index: usize) -> bool {
        match (index, self.places.first()) {
            (0, Some((from, to))) => *to == PERIOD_COLUMN - 1 || *from == 0 && *to >= PERIOD_COLUMN,
            _ => self.gap(index) >= PERIOD_COLUMN,
        }
    }

    /// Returns whether a word is an address, and not a period that looks like one.
    fn is_address(&self, index: usize) -> bool {
        self.get(index).is_some_and(address) && !self.is_period(index)
    }

    /// Returns whether a number without a following event is a period: it is in the period's
    /// column, and a frame follows on its line or below it.
    fn is_period(&self, index: usize) -> bool {
        self.get(index).and_then(digits).is_some()
            && self.gap(index) < ADDRESS_COLUMN
            && self.get(index + 1).is_none_or(|next| next.len() >= 4 && is_hexadecimal(next))
    }

    /// Returns the text of the words before `index`.
    fn before(&self, index: usize) -> &'a [u8] {
        match (self.places.first(), index.checked_sub(1).and_then(|last| self.places.get(last))) {
            (Some((from, _)), Some((_, to))) => self.line.get(*from..*to).unwrap_or_default(),
            _ => b"",
        }
    }

    /// Returns the thread whose name, and possibly ids, are the words before `index`.
    fn thread(&self, index: usize) -> Head<'a> {
        let ids = index.checked_sub(1).and_then(|last| ids(self.get(last)?));
        let (pid, tid) = ids.map_or((None, None), |(pid, tid)| (pid, Some(tid)));
        let comm = self.before(index - usize::from(ids.is_some()));
        Head { comm, pid, tid, ..Head::default() }
    }

    /// Returns the text from word `index` onwards.
    fn from(&self, index: usize) -> &'a [u8] {
        match self.places.get(..self.count).and_then(|places| places.get(index)) {
            Some((from, _)) => self.line.get(*from..).unwrap_or_default().trim_ascii_end(),
            None => b"",
        }
    }
}

/// Parses a line; `None` if it is empty.
pub(super) fn parse(line: &[u8]) -> Option<Head<'_>> {
    let words = Words::of(line);
    if words.count == 0 {
        return None;
    }
    // Output of `--show-task-events` and similar options, with or without a time.
    if let Some(record) = words.find(|word| word.starts_with(RECORD)) {
        return Some(Head { rest: words.from(record), certain: true, ..named(&words, record) });
    }
    let timed = words.find(|word| time(word).is_some());
    if let Some(anchor) = timed.or_else(|| words.find(|word| cpu(word).is_some())) {
        return Some(anchored(&words, anchor));
    }
    // No time and no CPU: the event is just before the address or the end.
    let stop = (1..words.count).find(|index| words.is_address(*index)).unwrap_or(words.count);
    let event = stop.checked_sub(1).filter(|at| words.get(*at).is_some_and(is_event));
    // A tracepoint's recorded fields come in between.
    let event = event.or_else(|| {
        (1..stop).find(|at| {
            words.get(*at).is_some_and(is_event)
                && words.get(at - 1).is_some_and(|word| ids(word).is_some())
        })
    });
    let Some(event) = event else {
        return Some(named(&words, stop));
    };
    // `pid period event:`, `pid event:` or `period event:`. A thread's name may end with a number,
    // so a period is recognised by its column.
    let last = words.get(event.wrapping_sub(1)).filter(|word| ids(word).is_some());
    let period = last.filter(|_| words.is_wide(event.wrapping_sub(1))).and_then(digits);
    let thread = words.thread(event - usize::from(period.is_some()));
    Some(Head {
        period,
        event: words.get(event).and_then(|word| word.strip_suffix(b":")),
        rest: words.from(event + 1),
        // A line of any text may end with a colon.
        certain: thread.tid.is_some() || period.is_some() || words.is_address(event + 1),
        ..thread
    })
}

/// Parses a line with a time or a CPU.
fn anchored<'a>(words: &Words<'a>, anchor: usize) -> Head<'a> {
    let time = words.get(anchor).and_then(time);
    let cpu_at = |index: usize| Some((words.get(index).and_then(cpu)?, index));
    let on = match time {
        // There may be flags between CPU and time: `d..1.` of the interrupt state.
        Some(_) => (1..=2).find_map(|back| cpu_at(anchor.checked_sub(back)?)),
        None => cpu_at(anchor),
    };
    let left = on.map_or(anchor, |(_, index)| index);
    let thread = words.thread(left);
    let mut next = anchor + 1;
    // After a CPU, a time may have fewer digits than perf prints.
    let short = words.get(next).and_then(|word| time_of(word, 1)).filter(|_| time.is_none());
    next += usize::from(short.is_some());
    let time = time.or(short);
    // An event that was measured and not sampled is named twice: `offcpu-time: 1050000
    // offcpu-time:`.
    let named = words.get(next).filter(|word| is_event(word));
    if named.is_some() && words.get(next + 2) == named {
        next += 1;
    }
    let number = words.get(next).and_then(digits);
    let event = words.get(next + usize::from(number.is_some())).filter(|word| is_event(word));
    // Without an event the number may be an address.
    let period = number.filter(|_| event.is_some() || words.is_period(next));
    next += usize::from(period.is_some()) + usize::from(event.is_some());
    Head {
        cpu: on.map(|(cpu, _)| cpu),
        time,
        period,
        event: event.and_then(|word| word.strip_suffix(b":")),
        rest: words.from(next),
        // ftrace writes thread name and id as one word.
        certain: thread.tid.is_some()
            || !words.get(left.wrapping_sub(1)).is_some_and(is_ftrace_task),
        ..thread
    }
}

/// Parses a line with a thread's name, and possibly its id and a frame.
fn named<'a>(words: &Words<'a>, stop: usize) -> Head<'a> {
    let rest = words.from(stop);
    // In a column as wide as that of addresses.
    let certain = stop < words.count && words.gap(stop) >= ADDRESS_COLUMN;
    let last = stop.checked_sub(1);
    let period = last.filter(|last| words.is_wide(*last));
    let period = period.and_then(|last| digits(words.get(last)?));
    let thread = words.thread(stop - usize::from(period.is_some()));
    Head { period, rest, certain, ..thread }
}

/// Parses `1811.125732:`, into nanoseconds.
fn time(word: &[u8]) -> Option<u64> {
    time_of(word, 3)
}

/// Like `time`, with at least `least` digits after the point.
fn time_of(word: &[u8], least: usize) -> Option<u64> {
    let word = word.strip_suffix(b":")?;
    let point = memchr::memchr(b'.', word)?;
    let (whole, fraction) = (word.get(..point)?, word.get(point + 1..)?);
    if !(least..=9).contains(&fraction.len()) {
        return None;
    }
    let places = u32::try_from(9 - fraction.len()).ok()?;
    let nanoseconds = digits(fraction)?.checked_mul(10_u64.checked_pow(places)?)?;
    digits(whole)?.checked_mul(1_000_000_000)?.checked_add(nanoseconds)
}

/// Parses `[003]`.
fn cpu(word: &[u8]) -> Option<u32> {
    let number = word.strip_prefix(b"[")?.strip_suffix(b"]")?;
    if number.len() < 3 {
        return None;
    }
    digits(number).and_then(|cpu| u32::try_from(cpu).ok())
}

/// Parses `20554` (a thread) or `20550/20554` (a process and its thread). The idle task of a guest
/// has -1.
fn ids(word: &[u8]) -> Option<(Option<u32>, u32)> {
    let id = |text: &[u8]| match text {
        b"-1" => Some(0),
        _ => digits(text).and_then(|id| u32::try_from(id).ok()),
    };
    match memchr::memchr(b'/', word) {
        Some(at) => Some((Some(id(word.get(..at)?)?), id(word.get(at + 1..)?)?)),
        None => Some((None, id(word)?)),
    }
}

/// Returns whether this is like `cpu-clock:`, `cycles:P:` or `cpu/event=0x3c/u:`; a number alone is
/// no event.
fn is_event(word: &[u8]) -> bool {
    word.ends_with(b":")
        && word.first().is_some_and(u8::is_ascii_alphanumeric)
        && word.iter().any(u8::is_ascii_alphabetic)
        && word.iter().all(|byte| byte.is_ascii_alphanumeric() || b"_-:/=,.{}@".contains(byte))
}

/// Returns whether this is like `kworker/0:1-42`, as ftrace names a task.
fn is_ftrace_task(word: &[u8]) -> bool {
    let id = memchr::memrchr(b'-', word).and_then(|at| word.get(at + 1..));
    id.and_then(digits).is_some()
}

/// Returns whether this is an address: it has more digits than a thread id (at most seven).
fn address(word: &[u8]) -> bool {
    word.len() >= 8 && word.len() <= 16 && is_hexadecimal(word)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn head(line: &str) -> Head<'_> {
        parse(line.as_bytes()).unwrap()
    }

    #[test]
    fn the_default_line() {
        let h = head("net rx 0 20554 [001]  1811.125732:    2004008 cpu-clock: ");
        assert_eq!(h.comm, b"net rx 0");
        assert_eq!((h.pid, h.tid, h.cpu), (None, Some(20554), Some(1)));
        assert_eq!(h.time, Some(1_811_125_732_000));
        assert_eq!((h.period, h.event), (Some(2_004_008), Some(&b"cpu-clock"[..])));
        assert_eq!((h.rest, h.certain), (&b""[..], true));
    }

    #[test]
    fn a_frame_on_the_same_line() {
        let h = head("   tx:1 (main) 1/20555  1811.1:  5 cycles:P:  ffff81 read+0x7 ([kernel])");
        assert_eq!(h.time, None, "one digit is not a time");
        let h = head("   tx:1 (main) 1/20555  1811.125:  5 cycles:P:  ffff81 read+0x7 ([kernel])");
        assert_eq!((h.comm, h.pid, h.tid), (&b"tx:1 (main)"[..], Some(1), Some(20555)));
        assert_eq!((h.event, h.rest), (Some(&b"cycles:P"[..]), &b"ffff81 read+0x7 ([kernel])"[..]));
        assert!(!h.traces());
    }

    #[test]
    fn fields_that_are_left_out() {
        let h = head("net rx 0 20579 cpu-clock:  ffffffff81d335f7 read_zero");
        assert_eq!((h.comm, h.tid), (&b"net rx 0"[..], Some(20579)));
        assert_eq!(
            (h.event, h.rest),
            (Some(&b"cpu-clock"[..]), &b"ffffffff81d335f7 read_zero"[..])
        );
        let h = head("        net rx 0 24927    3344481   cpu-clock: ");
        assert_eq!((h.comm, h.tid, h.period), (&b"net rx 0"[..], Some(24927), Some(3_344_481)));
        let h = head("nginx: worker process 7 cycles:");
        assert_eq!((h.comm, h.event), (&b"nginx: worker process"[..], Some(&b"cycles"[..])));
        let h = head("net rx 0  ffffffff81d335f7 read_zero ([kernel.kallsyms])");
        assert_eq!((h.comm, h.certain), (&b"net rx"[..], true), "its last word looks like an id");
        assert_eq!(h.rest, b"ffffffff81d335f7 read_zero ([kernel.kallsyms])");
        let h = head("busy ");
        assert_eq!((h.comm, h.certain), (&b"busy"[..], false));
        let h = head("20554  1811.125732: ");
        assert_eq!((h.comm, h.tid, h.event), (&b""[..], Some(20554), None));
    }

    #[test]
    fn periods_without_an_event() {
        let h = head("burn  7504  2347.337874:    2004008 ");
        assert_eq!((h.tid, h.period, h.rest), (Some(7504), Some(2_004_008), &b""[..]));
        let h = head("   burn  7648  2349.431390:    2004008      55c890b4517c main");
        assert_eq!((h.period, h.rest), (Some(2_004_008), &b"55c890b4517c main"[..]));
        let h = head("   burn  7648  2349.431390:           401000 main");
        assert_eq!((h.period, h.rest), (None, &b"401000 main"[..]));
        let h = head("burn    2004008 ");
        assert_eq!((h.comm, h.tid, h.period), (&b"burn"[..], None, Some(2_004_008)));
        let h = head("burn 7648   10000000      55c890b4517c main");
        assert_eq!((h.tid, h.period, h.certain), (Some(7648), Some(10_000_000), true));
        assert_eq!(h.rest, b"55c890b4517c main");
    }

    #[test]
    fn records_that_are_not_samples() {
        for line in [
            "java 0 [000] 0.000000: PERF_RECORD_COMM: java:1221/1225",
            "java     0 PERF_RECORD_COMM exec: java:1221/1225",
        ] {
            let h = head(line);
            assert!(h.certain && h.event.is_none() && h.rest.starts_with(b"PERF_RECORD_COMM"));
        }
    }

    #[test]
    fn lines_of_other_texts_are_not_certain() {
        for line in [
            "heap profile:  25601: 104861696 [ 51870: 209116368] @ heapprofile",
            "Flat profile:",
            "MAPPED_LIBRARIES:",
            "  bash-977   [000] 17284.993652: sys_close <-system_call_fastpath",
            "Nov 25 15:00:01 host CRON[123]: (root) CMD (true)",
            "heap_v2/524288:",
        ] {
            assert!(!head(line).certain, "{line}");
        }
    }

    #[test]
    fn tracepoints() {
        let h = head("perf 7 [000] 1.000001: sched:sched_switch: prev_comm=perf prev_pid=7 ==> a");
        assert_eq!(h.event, Some(&b"sched:sched_switch"[..]));
        assert!(h.traces());
        assert!(h.rest.starts_with(b"prev_comm"));
    }
}
