//! Folded stacks: `thread;outermost;...;leaf weight`, one stack per line, as written by
//! `stackcollapse-perf.pl` and many others:
//!
//! ```text
//! iperf3-4012/4012;__libc_send;entry_SYSCALL_64_after_hwframe_[k];tcp_sendmsg_[k] 42
//! swapper;start_secondary_[k];cpu_startup_entry_[k];do_idle_[k] 17
//! ```
//!
//! A comment may state what weights count (`# weight=nanoseconds period=1000000 event=cpu-clock`);
//! ours do.
//!
//! The first name is taken as the thread's, which is where the stackcollapse programs put it;
//! `comm-PID/TID` is split.

use super::format::{Importer, Times};
use super::lines::{Lines, first_lines};
use super::number::decimal;
use crate::conventions;
use crate::text::quote;
use crate::{
    Builder, Frame, FrameId, FrameKind, FrameRef, Header, Owner, Profile, Sample, Thread, ThreadId,
    Weight,
};
use bytepath_record::Fault;
use hashbrown::HashMap;
use std::io::BufRead;

/// See the module documentation.
pub(super) static FORMAT: Importer = Importer {
    name: "folded",
    summary: "one stack a line with its weight, as stackcollapse-*.pl and inferno-collapse-* print",
    certain: false,
    recognises,
    read,
};

fn recognises(head: &[u8]) -> bool {
    let mut deep = false;
    for line in first_lines(head).map(<[u8]>::trim_ascii) {
        if line.is_empty() || line.starts_with(b"# ") {
            continue;
        }
        let Some((stack, _)) = std::str::from_utf8(line).ok().and_then(split) else { return false };
        deep |= stack.contains(';');
    }
    deep
}

fn read(title: &str, _: Times, input: &mut dyn BufRead) -> Result<Profile, Fault> {
    let mut lines = Lines::new(title, input);
    let mut line = Vec::with_capacity(4096);
    let builder = Builder::new(Header { title: title.to_owned(), ..Header::default() });
    let mut reader = Reader { builder, ..Reader::default() };
    while lines.next(&mut line)? {
        let text = line.trim_ascii();
        if let Some(comment) = text.strip_prefix(b"# ") {
            reader.comment(&String::from_utf8_lossy(comment));
        }
        if text.is_empty() || text.starts_with(b"# ") {
            continue;
        }
        reader.line(text).map_err(|what| lines.fault(what))?;
    }
    if reader.lines == 0 {
        return Err(lines.whole("holds no stack"));
    }
    if reader.lines > 1 && reader.doubled == reader.lines {
        return Err(lines.whole(
            "has two numbers in each line, as difffolded.pl writes them: compare the profiles that \
             it is of by bytepath diff",
        ));
    }
    if reader.fractions && reader.builder.header().weight == Weight::Samples {
        reader.builder.header().weight = Weight::Events;
    }
    Ok(reader.builder.build())
}

#[derive(Default)]
struct Reader {
    builder: Builder,
    threads: HashMap<String, (ThreadId, Owner)>,
    /// The previous line without its weight. Files are usually sorted, so most names of a line are
    /// at the same position in the previous one.
    before: Vec<u8>,
    /// The names of that line, the thread's first.
    names: Vec<Name>,
    /// Its thread, and for whom that works.
    thread: (ThreadId, Owner),
    stack: Vec<FrameId>,
    /// Whether a weight has a fraction, so that weights are not sample counts.
    fractions: bool,
    /// Number of lines, and of those that end with two numbers.
    lines: u64,
    doubled: u64,
}

/// A name in a line.
#[derive(Clone, Copy)]
struct Name {
    end: usize,
    /// The function; meaningless for the thread's name.
    frame: FrameId,
    inlined: bool,
}

impl Reader {
    /// Reads what weights count. Comments of other programs do not contain it.
    fn comment(&mut self, comment: &str) {
        let Some(rest) = comment.strip_prefix("weight=") else { return };
        let mut words = rest.split(' ');
        let Some(weight) = words.next().and_then(|word| word.parse().ok()) else { return };
        let header = self.builder.header();
        header.weight = weight;
        for (key, value) in words.filter_map(|word| word.split_once('=')) {
            match key {
                "period" => header.period = value.parse().ok().filter(|period| *period > 0.0),
                "event" => value.clone_into(&mut header.event),
                _ => {}
            }
        }
    }

    fn line(&mut self, line: &[u8]) -> Result<(), String> {
        let bad = || format!("{} is not a stack and its weight", quote(line));
        let text = String::from_utf8_lossy(line);
        let (stack, weight) = text.rsplit_once(' ').ok_or_else(bad)?;
        let weight = number(weight).ok_or_else(bad)?;
        self.fractions |= weight.fract() != 0.0 || weight >= 9e15;
        self.lines += 1;
        self.doubled += u64::from(stack.rsplit_once(' ').and_then(|(_, n)| number(n)).is_some());
        self.names(stack.trim_ascii());
        self.stack.clear();
        self.stack.extend(self.names.iter().skip(1).rev().map(|name| name.frame));
        if self.names.iter().any(|name| name.inlined) {
            self.settle_inlined();
        }
        let (thread, owner) = self.thread;
        let stack = self.builder.stack(&self.stack);
        let Header { weight: counts, period, .. } = self.builder.header();
        let count = match (*counts, *period) {
            (_, Some(period)) => (weight / period).round() as u64,
            (Weight::Samples, None) => weight as u64,
            // The number of samples behind a weight is unknown, but it is not zero.
            (_, None) => 1,
        };
        self.builder.add(Sample { stack, thread, owner, count, weight, ..Sample::default() });
        Ok(())
    }

    /// Splits a line into [`Reader::names`]: only names that it does not share with the previous
    /// line are looked up.
    fn names(&mut self, text: &str) {
        let bytes = text.as_bytes();
        let same = shared(bytes, &self.before);
        let ends = |at: usize| matches!(bytes.get(at), None | Some(b';'));
        let kept = self.names.iter().take_while(|name| name.end <= same && ends(name.end)).count();
        self.names.truncate(kept);
        self.before.truncate(same);
        self.before.extend_from_slice(bytes.get(same..).unwrap_or_default());
        let mut begin = self.names.last().map_or(0, |name| name.end + 1);
        // A name that ends the previous line may continue in this one.
        let rest = bytes.get(begin..).map(|rest| memchr::memchr_iter(b';', rest));
        let offset = begin;
        let ends = rest.into_iter().flatten().map(|at| offset + at);
        let last = (begin <= bytes.len()).then_some(bytes.len());
        for end in ends.chain(last) {
            let name = text.get(begin..end).unwrap_or_default();
            let (frame, inlined) = if self.names.is_empty() {
                self.thread = self.thread(name);
                (FrameId(0), false)
            } else {
                self.frame(name)
            };
            self.names.push(Name { end, frame, inlined });
            begin = end + 1;
        }
    }

    fn thread(&mut self, name: &str) -> (ThreadId, Owner) {
        if let Some(known) = self.threads.get(name) {
            return *known;
        }
        let ids = name.rsplit_once('-').and_then(|(comm, ids)| {
            let (pid, tid) = ids.split_once('/')?;
            Some((comm, pid.parse().ok()?, tid.parse().ok()?))
        });
        let (comm, pid, tid) = ids.unwrap_or((name, 0, 0));
        let id = self.builder.thread(Thread { name: comm.to_owned(), pid, tid });
        let known = (id, conventions::owner(comm, None));
        self.threads.insert(name.to_owned(), known);
        known
    }

    /// Returns a function, and whether the compiler had inlined it into its caller.
    fn frame(&mut self, name: &str) -> (FrameId, bool) {
        // `_[j]`, `_[0]` and `_[1]` mark code of a virtual machine: compiled or interpreted.
        let (function, mark) =
            match name.len().checked_sub(4).and_then(|at| name.split_at_checked(at)) {
                Some((function, mark @ ("_[k]" | "_[i]" | "_[j]" | "_[0]" | "_[1]"))) => {
                    (function, mark)
                }
                _ => (name, ""),
            };
        let inlined = mark == "_[i]";
        let kind = if mark == "_[k]" { FrameKind::Kernel } else { FrameKind::Unknown };
        let frame = FrameRef { function, kind, inlined, ..FrameRef::default() };
        (self.builder.frame_of(frame), inlined)
    }

    /// Gives inlined functions the kind of the function that they were inlined into, which their
    /// own mark does not show.
    fn settle_inlined(&mut self) {
        for index in (0..self.stack.len().saturating_sub(1)).rev() {
            let [own, outer] = [index, index + 1].map(|at| self.builder.function(self.stack[at]));
            if own.inlined && own.kind == FrameKind::Unknown && outer.kind != FrameKind::Unknown {
                let settled = Frame { kind: outer.kind, ..own.clone() };
                self.stack[index] = self.builder.frame(settled);
            }
        }
    }
}

/// Returns the length in bytes of the common beginning of two texts.
fn shared(a: &[u8], b: &[u8]) -> usize {
    // Arrays of a known length are compared inline, without a call.
    let ((words_a, _), (words_b, _)) = (a.as_chunks::<16>(), b.as_chunks::<16>());
    let alike = words_a.iter().zip(words_b).take_while(|(a, b)| a == b).count() * 16;
    let (a, b) = (a.get(alike..).unwrap_or_default(), b.get(alike..).unwrap_or_default());
    alike + a.iter().zip(b).take_while(|(a, b)| a == b).count()
}

/// Parses a weight as these programs print it, including `1e+06`.
fn number(text: &str) -> Option<f64> {
    decimal(text).or_else(|| {
        let short = text.contains(['e', 'E']) && text.len() < 32;
        text.parse().ok().filter(|value| short && (0.0..1e18).contains(value))
    })
}

fn split(text: &str) -> Option<(&str, f64)> {
    let (stack, weight) = text.rsplit_once(' ')?;
    let digit = weight.starts_with(|c: char| c.is_ascii_digit());
    (digit && !stack.trim().is_empty()).then_some((stack, number(weight)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Profile, Fault> {
        super::read("t", Times::Kept, &mut text.as_bytes())
    }

    #[test]
    fn two_counts_a_line_are_refused() {
        let text = "main;a;b 10 15\nmain;a;c 5 0\n";
        let error = read(text).unwrap_err();
        assert!(error.message.contains("difffolded.pl"), "{error}");
        let one = "main;net rx 0 15\nmain;a;c 5\n";
        assert!(read(one).is_ok());
    }

    #[test]
    fn stacks_are_read_leaf_first_with_their_marks() {
        let text = "swapper;a_[k];b_[k];c_[i] 2\nnginx-7/9;main;work;do_read_[k] 3\nswapper;a_[k];b_[k];c_[i] 5\n";
        let profile = read(text).unwrap();
        assert!(recognises(text.as_bytes()));
        assert_eq!((profile.count(), profile.total()), (10, 10.0));
        let [first, second] = profile.samples() else { panic!("{profile:?}") };
        assert_eq!((first.count, first.owner), (7, Owner::Idle));
        let names: Vec<&str> = profile
            .stack(first.stack)
            .iter()
            .map(|id| profile.frame(*id).function.as_str())
            .collect();
        assert_eq!(names, ["c", "b", "a"]);
        let leaf = profile.frame(profile.stack(first.stack)[0]);
        assert!(leaf.inlined && leaf.kind == FrameKind::Kernel);
        let thread = profile.thread(second.thread);
        assert_eq!((thread.name.as_str(), thread.pid, thread.tid), ("nginx", 7, 9));
    }

    /// The names of every stack, thread first, with its weight.
    fn folded(profile: &Profile) -> Vec<(String, f64)> {
        let text = |sample: &Sample| {
            let names = profile.stack(sample.stack).iter().rev();
            let names = names.map(|id| profile.frame(*id).function.as_str());
            let thread = profile.thread(sample.thread).name.as_str();
            let all: Vec<&str> = std::iter::once(thread).chain(names).collect();
            (all.join(";"), sample.weight)
        };
        profile.samples().iter().map(text).collect()
    }

    #[test]
    fn a_line_may_begin_like_the_one_before_it() {
        // Each begins like its neighbour, ends within one of its names, or continues where it ends.
        let stacks = [
            "t",
            "t;a",
            "t;a;bc",
            "t;a;bc;d",
            "t;a;bcd",
            "t;a;b",
            "t;ab;b",
            "t;ab",
            "tt;ab",
            "tt",
            "t;a;;d",
            "t;a;;de",
            "t;a;",
            "t;a;long_name_of_a_function;x",
            "t;a;long_name_of_a_f",
            "t;a;long_name_of_a_function;y",
            ";a",
            ";",
            "u;a;long_name_of_a_function;y",
        ];
        let orders = [stacks.to_vec(), stacks.iter().rev().copied().collect()];
        for order in orders {
            let text: String =
                order.iter().zip(1..).map(|(stack, n)| format!("{stack} {n}\n")).collect();
            let expected: Vec<(String, f64)> =
                order.iter().zip(1..).map(|(s, n)| ((*s).to_owned(), f64::from(n))).collect();
            assert_eq!(folded(&read(&text).unwrap()), expected);
        }
    }

    proptest::proptest! {
        #[test]
        fn lines_of_any_likeness_are_distinguished(stacks in proptest::collection::vec("[ab](;[ab]{0,3}){0,5}", 1..40)) {
            let text: String = stacks.iter().map(|stack| format!("{stack} 1\n")).collect();
            let mut expected = std::collections::BTreeMap::new();
            for stack in stacks {
                *expected.entry(stack).or_default() += 1.0;
            }
            let read: std::collections::BTreeMap<String, f64> = folded(&read(&text).unwrap()).into_iter().collect();
            proptest::prop_assert_eq!(read, expected);
        }
    }

    #[test]
    fn weights_with_fractions_are_not_samples() {
        let profile = read("t;a 1,5\nt;b 2,25\nt;c 1.000\nt;d 1e+06\n").unwrap();
        assert_eq!(profile.header.weight, Weight::Events);
        assert_eq!(profile.total(), 1.5 + 2.25 + 1.0 + 1e6);
    }

    #[test]
    fn garbage_is_refused_by_line() {
        for text in ["t;a 1\nt;b x\n", "t;a 1\nnothing\n", "t;a 1.5\nt;b 1,234\n", "t;a 1\nt;b -4"]
        {
            let error = read(text).unwrap_err();
            assert!(error.message.starts_with("t, line 2: "), "{error}");
        }
        assert!(read("\n\n").unwrap_err().message.contains("no stack"));
        assert!(!recognises(b"dear all 4\nsee below 5\n"));
    }
}
