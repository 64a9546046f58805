//! Output of `perf script`: a line for each sample, and below it, if call chains were recorded, one
//! line per frame, leaf first (`tools/perf/builtin-script.c`, `sample__fprintf_callchain` in
//! `tools/perf/util/evsel_fprintf.c`).
//!
//! The user chooses the fields of a line (`-F`), so they are recognised by their form: a time has a
//! point and a colon, a CPU brackets, an event a colon.
//!
//! ```text
//! iperf3  4012 [001]  2431.118201:   250000 cpu-clock:pppH:
//!         ffffffff81a3c0de tcp_sendmsg+0x2e ([kernel.kallsyms])
//! ```

use super::collect::Collector;
use super::format::{Importer, Times};
use super::header::{self, Head};
use super::lines::{Lines, first_lines};
use crate::conventions;
use crate::text::{is_hexadecimal, quote};
use crate::{Frame, FrameId, FrameKind, Profile, Sample, Thread, ThreadId, Weight};
use bytepath_record::Fault;
use hashbrown::HashMap;
use std::io::BufRead;

/// See the module documentation.
pub(super) static FORMAT: Importer = Importer {
    name: "perf-script",
    summary: "what `perf script` prints, with or without call chains",
    certain: true,
    recognises,
    read,
};

/// Requires several matching lines: one with a colon proves nothing.
fn recognises(head: &[u8]) -> bool {
    let (mut fitting, mut lines, mut doubtful) = (0, 0, false);
    let relevant = |line: &&[u8]| !line.is_empty() && !line.starts_with(b"#");
    for line in first_lines(head).filter(relevant).take(RECOGNISED) {
        lines += 1;
        let is_long = |located: &Located| line.starts_with(b"\t") || located.address.len() >= 8;
        let framed = Located::of(line).is_some_and(|l| l.addressed && is_long(&l));
        if framed && (line.starts_with(b"\t") || fitting > 0 || doubtful) {
            (fitting, doubtful) = (fitting + 1, false);
        } else if header::parse(line).is_some_and(|head| head.certain) {
            fitting += 1;
        } else if line.starts_with(b"\t") || line.starts_with(b" ") && fitting > 0 {
            // A symbol alone, or a source line.
        } else if doubtful {
            return false;
        } else {
            // A thread's name alone; then a frame has to follow.
            doubtful = true;
        }
    }
    !doubtful && fitting >= lines.min(2)
}

/// Most lines that are examined.
const RECOGNISED: usize = 32;

fn read(title: &str, times: Times, input: &mut dyn BufRead) -> Result<Profile, Fault> {
    let mut lines = Lines::new(title, input);
    let mut line = Vec::with_capacity(4096);
    let mut reader = Reader { collector: Collector::new(times), ..Reader::default() };
    reader.collector.builder.header().title = title.to_owned();
    while lines.next(&mut line)? {
        reader.line(&line).map_err(|what| lines.fault(what))?;
    }
    reader.flush().map_err(|what| lines.fault(what))?;
    reader.finish().map_err(|what| lines.whole(what))
}

/// The fields of a frame's line: address, symbol and offset, module in parentheses.
#[derive(Default)]
struct Located<'a> {
    symbol: &'a [u8],
    module: Option<&'a [u8]>,
    address: &'a [u8],
    addressed: bool,
    inlined: bool,
}

/// The sample whose lines are being read.
#[derive(Default)]
struct Open {
    thread: ThreadId,
    pid: Option<u32>,
    cpu: Option<u32>,
    time: Option<u64>,
    period: Option<u64>,
    /// Its first line has fields that no line of other text has.
    certain: bool,
    /// It belongs to another event than the first, and is left out.
    skipped: bool,
}

#[derive(Default)]
struct Reader {
    collector: Collector,
    frames: HashMap<Box<[u8]>, FrameId>,
    threads: HashMap<Box<[u8]>, ThreadId>,
    key: Vec<u8>,
    stack: Vec<FrameId>,
    /// Functions that were inlined into the one whose line is still to come.
    inlined: Vec<u8>,
    open: Option<Open>,
    event: Option<Vec<u8>>,
    weight: Option<Weight>,
    others: Vec<(Vec<u8>, u64)>,
    /// Samples of further events that are not listed.
    more: u64,
    samples: u64,
    /// Whether lines without indentation begin samples, or blank lines end them.
    separated: bool,
}

/// Most other events that are listed; the rest are only counted.
const OTHERS: usize = 16;

impl Reader {
    fn line(&mut self, line: &[u8]) -> Result<(), String> {
        match line.first() {
            None => self.blank(),
            Some(b'#') => {
                let header = self.collector.builder.header();
                conventions::header_line(&String::from_utf8_lossy(line), header);
                Ok(())
            }
            Some(b'\t') => self.frame(line),
            Some(b' ') => self.indented(line),
            Some(_) => self.head(line),
        }
    }

    /// Ends a sample, unless its frames are still to come.
    fn blank(&mut self) -> Result<(), String> {
        if self.stack.is_empty() && self.inlined.is_empty() {
            return Ok(());
        }
        self.separated = true;
        self.flush()
    }

    /// Reads a line that begins with blanks: a frame whose tab was converted, a source line, or a
    /// sample whose thread name is right-aligned.
    fn indented(&mut self, line: &[u8]) -> Result<(), String> {
        if line.iter().all(u8::is_ascii_whitespace) {
            return self.blank();
        }
        if self.open.is_none() {
            let passed = self.samples > 0 && source_line(line);
            return if passed { Ok(()) } else { self.head(line) };
        }
        let is_frame = Located::of(line).is_some_and(|l| l.addressed || l.module.is_some());
        match header::parse(line) {
            Some(head) if head.certain => self.head(line),
            _ if is_frame => self.frame(line),
            // `-F sym` prints only a symbol, `-F srcline` a second line.
            _ if source_line(line) => Ok(()),
            Some(head) if self.stack.is_empty() && head.pid.is_some() => self.head(line),
            _ => self.frame(line),
        }
    }

    /// Reads the line that begins a sample.
    fn head(&mut self, line: &[u8]) -> Result<(), String> {
        let parsed = header::parse(line);
        // Frames that have lost their indentation, or have no sample line above.
        if (self.open.is_some() || !self.separated)
            && parsed.is_some_and(|head| !head.certain)
            && Located::of(line).is_some_and(|l| l.addressed && l.address.len() >= 8)
        {
            return self.frame(line);
        }
        self.flush()?;
        let Some(head) = parsed else {
            return Err(format!("{} is not a sample of perf script", quote(line)));
        };
        if let Some(record) = head.rest.strip_prefix(b"PERF_RECORD_") {
            self.record(record);
            return Ok(());
        }
        self.separated = true;
        let skipped = self.of_other_event(&head);
        if self.weight.is_none() && !skipped {
            self.weight = Some(match (head.event, head.period) {
                (Some(event), Some(_)) => conventions::weight_of(&String::from_utf8_lossy(event)),
                (None, Some(_)) => Weight::Events,
                _ => Weight::Samples,
            });
        }
        let thread = self.thread(&head);
        let Head { pid, cpu, time, period, certain, .. } = head;
        self.open = Some(Open { thread, pid, cpu, time, period, certain, skipped });
        if !head.rest.is_empty() && !skipped {
            // Without call chains the only frame is on the same line.
            let located = Located::of(head.rest);
            let is_symbol = |l: &Located| !head.traces() && !is_assignment(l.symbol);
            if let Some(located) = located.filter(|l| l.addressed || is_symbol(l)) {
                self.push_frame(&located);
                return self.flush();
            }
        }
        Ok(())
    }

    /// Returns whether a sample belongs to another event than the first of the file, which is the
    /// one that is read.
    fn of_other_event(&mut self, head: &Head<'_>) -> bool {
        let Some(event) = head.event else { return false };
        if *self.event.get_or_insert_with(|| event.to_vec()) == event {
            return false;
        }
        let room = self.others.len() < OTHERS;
        match self.others.iter_mut().find(|(name, _)| name == event) {
            Some((_, count)) => *count += 1,
            None if room => self.others.push((event.to_vec(), 1)),
            None => self.more += 1,
        }
        true
    }

    fn thread(&mut self, head: &Head<'_>) -> ThreadId {
        let (pid, tid) = (head.pid.unwrap_or(0), head.tid.unwrap_or(0));
        self.key.clear();
        self.key.extend_from_slice(&pid.to_le_bytes());
        self.key.extend_from_slice(&tid.to_le_bytes());
        self.key.extend_from_slice(head.comm);
        if let Some(id) = self.threads.get(self.key.as_slice()) {
            return *id;
        }
        let name = String::from_utf8_lossy(head.comm).into_owned();
        let id = self.collector.builder.thread(Thread { name, pid, tid });
        self.threads.insert(self.key.as_slice().into(), id);
        id
    }

    fn frame(&mut self, line: &[u8]) -> Result<(), String> {
        let located = Located::of(line)
            .ok_or_else(|| format!("{} is not a frame of perf script", quote(line)))?;
        match &self.open {
            Some(open) if open.skipped => return Ok(()),
            Some(_) => {}
            // `-F ip,sym`: the sample has no line of its own.
            None => {
                let thread = self.collector.builder.thread(Thread::default());
                self.weight.get_or_insert(Weight::Samples);
                self.open = Some(Open { thread, certain: true, ..Open::default() });
            }
        }
        self.push_frame(&located);
        Ok(())
    }

    fn push_frame(&mut self, located: &Located<'_>) {
        if located.inlined {
            // Only the frame that it was inlined into shows the module.
            self.inlined.extend_from_slice(located.symbol);
            self.inlined.push(0);
            return;
        }
        self.push_inlined(located);
        let id = self.intern(located);
        self.stack.push(id);
    }

    /// Pushes the functions that were inlined into this one.
    fn push_inlined(&mut self, outer: &Located<'_>) {
        let mut inlined = std::mem::take(&mut self.inlined);
        for symbol in inlined.split(|byte| *byte == 0).filter(|symbol| !symbol.is_empty()) {
            let id = self.intern(&Located { symbol, inlined: true, ..*outer });
            self.stack.push(id);
        }
        inlined.clear();
        self.inlined = inlined;
    }

    fn intern(&mut self, located: &Located<'_>) -> FrameId {
        let unnamed = located.symbol.is_empty() || located.symbol == b"[unknown]";
        let side = side(located.address);
        self.key.clear();
        self.key.push(u8::from(located.inlined) | (side as u8) << 1 | u8::from(unnamed) << 3);
        self.key.extend_from_slice(if unnamed { located.address } else { located.symbol });
        self.key.push(0);
        self.key.extend_from_slice(located.module.unwrap_or_default());
        if let Some(id) = self.frames.get(self.key.as_slice()) {
            return *id;
        }
        let text = String::from_utf8_lossy(located.module.unwrap_or_default());
        let (module, kind) = conventions::located_module(&text, side, located.address.len());
        let function = if !unnamed {
            String::from_utf8_lossy(located.symbol).into_owned()
        } else if located.address.is_empty() {
            "[unknown]".into()
        } else {
            format!("0x{}", String::from_utf8_lossy(located.address))
        };
        let frame = Frame { function, module, kind, inlined: located.inlined, ..Frame::default() };
        let id = self.collector.builder.frame(frame);
        self.frames.insert(self.key.as_slice().into(), id);
        id
    }

    /// Completes the sample.
    fn flush(&mut self) -> Result<(), String> {
        let Some(open) = self.open.take() else { return Ok(()) };
        // In case the frame that they were inlined into is missing.
        self.push_inlined(&Located::default());
        if !self.separated && self.stack.len() > 1 {
            return Err(format!(
                "nothing separates its samples, so these are {0} samples or one of {0} frames: print \
                 another field, too, as in `perf script -F comm,ip,sym`",
                self.stack.len()
            ));
        }
        if !open.certain && self.stack.is_empty() {
            return Err("the line before is not a sample of perf script".into());
        }
        if !open.skipped {
            self.samples += 1;
            let builder = &mut self.collector.builder;
            let stack = builder.stack(&self.stack);
            let thread = open.thread;
            let owner = conventions::owner(builder.name(thread), open.pid);
            let weight = match self.weight {
                Some(Weight::Samples) | None => 1.0,
                Some(_) => open.period.map_or(1.0, |period| period as f64),
            };
            let cpu = open.cpu;
            let sample = Sample { stack, thread, owner, cpu, time: None, count: 1, weight };
            self.collector.push(sample, open.time);
        }
        self.stack.clear();
        Ok(())
    }

    /// Reads a line of `perf script --show-lost-events` or similar.
    fn record(&mut self, record: &[u8]) {
        let text = String::from_utf8_lossy(record);
        let lost = text.strip_prefix("LOST").and_then(|rest| rest.split_once("lost "));
        let lost = lost.and_then(|(_, count)| count.split_whitespace().next()?.parse::<u64>().ok());
        let header = self.collector.builder.header();
        header.lost = header.lost.saturating_add(lost.unwrap_or(0));
    }

    fn finish(mut self) -> Result<Profile, String> {
        if self.samples == 0 {
            return Err("holds no sample of perf script".into());
        }
        let period = self.collector.period();
        let header = self.collector.builder.header();
        header.event = String::from_utf8_lossy(&self.event.unwrap_or_default()).into_owned();
        header.weight = self.weight.unwrap_or_default();
        if header.weight != Weight::Samples {
            header.period = period;
        }
        for (name, count) in self.others {
            let name = String::from_utf8_lossy(&name);
            header.notes.push(format!("left out: {count} samples of the event {name}"));
        }
        if self.more > 0 {
            header.notes.push(format!("left out: {} samples of other events", self.more));
        }
        Ok(self.collector.build())
    }
}

impl<'a> Located<'a> {
    /// Splits a frame's line into its fields; `None` if it is empty.
    fn of(line: &'a [u8]) -> Option<Located<'a>> {
        // perf pads addresses only.
        let padded = line.starts_with(b"\t ");
        let line = line.trim_ascii();
        let (first, rest) = match memchr::memchr(b' ', line) {
            Some(at) => (line.get(..at)?, line.get(at + 1..)?.trim_ascii_start()),
            None => (line, &b""[..]),
        };
        // A symbol can look like an address (`add`), but then only a module follows it, and it does
        // not begin with a digit.
        let hexadecimal = first.len() <= 16
            && is_hexadecimal(first)
            && (if rest.is_empty() {
                first.len() >= 4 || padded
            } else {
                // `(anonymous namespace)::f (/bin/x)` is more than a module.
                padded
                    || !rest.starts_with(b"(")
                    || !matches!(split_module(rest), (b"", _))
                    || first.first().is_some_and(u8::is_ascii_digit)
                    || first.len() >= 8 && first.iter().any(u8::is_ascii_digit)
            });
        let (address, text) = if hexadecimal { (first, rest) } else { (&b""[..], line) };
        let (text, inlined) = match text.strip_suffix(b"(inlined)") {
            Some(text) => (text.trim_ascii_end(), true),
            None => (text, false),
        };
        let (symbol, module) = if inlined { (text, None) } else { split_module(text) };
        // Without a name it is like any other address.
        let symbol = without_offset(symbol.strip_suffix(b"(inlined)").unwrap_or(symbol));
        let inlined = inlined && !symbol.is_empty();
        if symbol.is_empty() && address.is_empty() {
            return None;
        }
        Some(Located { symbol, module, address, addressed: hexadecimal, inlined })
    }
}

/// Returns whether this is `page=0xffffea00269631d0`, as a tracepoint prints it, and not
/// `operator=`.
fn is_assignment(text: &[u8]) -> bool {
    let first = text.split(|byte| *byte == b' ').next().unwrap_or_default();
    first.contains(&b'=') && !first.contains(&b'(') && !first.starts_with(b"operator")
}

/// Returns the side of an address: the kernel's half of the address space is the upper one.
fn side(address: &[u8]) -> FrameKind {
    match address {
        [] => FrameKind::Unknown,
        [first, ..] if address.len() == 16 && *first >= b'8' => FrameKind::Kernel,
        _ => FrameKind::User,
    }
}

/// Splits `symbol (module)`; both may contain parentheses.
fn split_module(text: &[u8]) -> (&[u8], Option<&[u8]>) {
    let Some(body) = text.strip_suffix(b")") else { return (text, None) };
    let mut depth = 1_usize;
    let opening = body.iter().rposition(|byte| {
        match byte {
            b')' => depth += 1,
            b'(' => depth -= 1,
            _ => {}
        }
        depth == 0
    });
    match opening.map(|at| body.split_at(at)) {
        Some((symbol, module)) if symbol.last().is_none_or(|last| *last == b' ') => {
            (symbol.trim_ascii_end(), module.get(1..))
        }
        _ => (text, None),
    }
}

/// Removes `+0x1f` from a symbol.
fn without_offset(symbol: &[u8]) -> &[u8] {
    let plus = memchr::memrchr(b'+', symbol).unwrap_or(symbol.len());
    let (name, offset) = symbol.split_at(plus);
    if offset.strip_prefix(b"+0x").is_some_and(is_hexadecimal) { name } else { symbol }
}

/// Returns whether this is what `-F srcline` prints below a frame: two blanks and `file:line` or
/// `module[address]`.
fn source_line(line: &[u8]) -> bool {
    let Some(text) = line.strip_prefix(b"  ").filter(|text| !text.starts_with(b" ")) else {
        return false;
    };
    let text = text.trim_ascii();
    let numbered = memchr::memrchr(b':', text)
        .and_then(|at| text.get(at + 1..))
        .is_some_and(|number| !number.is_empty() && number.iter().all(u8::is_ascii_digit));
    memchr::memchr(b' ', text).is_none() && (numbered || text.ends_with(b"]"))
}

#[cfg(test)]
#[path = "perf_script_tests.rs"]
mod tests;
