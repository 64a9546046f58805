//! The text of `perf script`, for what reads that: `stackcollapse-perf.pl`,
//! inferno, speedscope, bytepath itself.

use super::Exporter;
use crate::{Frame, FrameKind, Profile, Sample, Weight};
use std::io::{self, Write};

/// See the module's text.
pub struct PerfScript;

impl Exporter for PerfScript {
    fn name(&self) -> &'static str {
        "perf-script"
    }

    fn summary(&self) -> &'static str {
        "text as of `perf script`, for stackcollapse-perf.pl and speedscope"
    }

    fn extension(&self) -> &'static str {
        "script"
    }

    fn write(&self, profile: &Profile, out: &mut dyn Write) -> io::Result<()> {
        let header = &profile.header;
        writeln!(out, "# {}", line(&header.title))?;
        if let Some(cpus) = header.cpus {
            writeln!(out, "# nrcpus online : {cpus}")?;
        }
        for note in &header.notes {
            writeln!(out, "# {}", line(note))?;
        }
        let event = match (header.event.as_str(), header.weight) {
            ("", Weight::Nanoseconds) => "cpu-clock".to_owned(),
            ("", _) => "samples".to_owned(),
            (event, _) => line(event).replace(' ', "_"),
        };
        let frames: Vec<String> = profile.frames().iter().map(frame).collect();
        let each = profile.count() <= MOST;
        for sample in profile.samples() {
            let records = if each { sample.count.max(1) } else { 1 };
            self.sample(profile, sample, records, &event, &frames, out)?;
        }
        Ok(())
    }
}

/// Of a profile of more samples than this, those that are one here stay one:
/// the weights of folded stacks may be nanoseconds, and are read as samples.
const MOST: u64 = 1 << 20;

impl PerfScript {
    /// A sample that stands for several becomes as many records, their periods
    /// together its weight.
    fn sample(
        &self,
        profile: &Profile,
        sample: &Sample,
        records: u64,
        event: &str,
        frames: &[String],
        out: &mut dyn Write,
    ) -> io::Result<()> {
        let thread = profile.thread(sample.thread);
        let name = line(&thread.name);
        let name = if name.trim().is_empty() { "[unknown]" } else { name.trim() };
        // Percent are written as millionths, periods being whole numbers.
        let scale = if profile.header.weight == Weight::Percent { 1e4 } else { 1.0 };
        let whole = (sample.weight * scale).max(0.0).round() as u64;
        for record in 0..records {
            let period = whole / records + u64::from(record < whole % records);
            write!(out, "{name} {}/{} ", thread.pid, thread.tid)?;
            if let Some(cpu) = sample.cpu {
                write!(out, "[{cpu:03}] ")?;
            }
            let nanoseconds = (sample.time.unwrap_or(0.0).max(0.0) * 1e9).round() as u64;
            let (seconds, rest) = (nanoseconds / 1_000_000_000, nanoseconds % 1_000_000_000);
            writeln!(out, "{seconds:5}.{rest:09}: {period:10} {event}: ")?;
            for id in profile.stack(sample.stack) {
                out.write_all(frames.get(id.0 as usize).map_or(b"", |frame| frame.as_bytes()))?;
            }
            writeln!(out)?;
        }
        Ok(())
    }
}

/// A frame's line. Addresses are not kept, so one that tells the side stands there.
fn frame(frame: &Frame) -> String {
    let name = line(&frame.function);
    let hexadecimal = name.strip_prefix("0x").filter(|digits| {
        (1..=16).contains(&digits.len()) && digits.bytes().all(|byte| byte.is_ascii_hexdigit())
    });
    let (address, name) = match (hexadecimal, frame.kind) {
        (Some(digits), _) => (digits.to_owned(), "[unknown]"),
        (None, FrameKind::Kernel) => ("ffffffff80000000".to_owned(), name.as_str()),
        (None, _) => ("0".to_owned(), name.as_str()),
    };
    let name = if name.trim().is_empty() { "[unknown]" } else { name };
    if frame.inlined {
        return format!("\t{address:>16} {name} (inlined)\n");
    }
    let module = match frame.module.as_str() {
        "" => "[unknown]".to_owned(),
        "[kernel]" => "[kernel.kallsyms]".to_owned(),
        module => line(module),
    };
    format!("\t{address:>16} {name} ({module})\n")
}

/// Text that stays on its line.
fn line(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}
