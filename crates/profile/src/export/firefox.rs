//! JSON for the Firefox Profiler (<https://profiler.firefox.com>, "Load a
//! profile from file"): every thread with its samples at their times, and the
//! tracks of the header as counters.
//!
//! Samples without a time are spread evenly over the duration of the profile, or are a millisecond
//! apart if that is unknown. The profiler's weights are 32 bits wide: they are sample counts if
//! every sample has the same weight, else weights, divided by a power of ten if one is too large.

use super::Exporter;
use crate::{Frame, FrameKind, Header, Profile, Sample, Thread, Track, Weight};
use fxprof_processed_profile as fx;
use std::collections::HashMap;
use std::io;
use std::time::Duration;

/// See the module documentation.
pub(super) static FORMAT: Exporter = Exporter {
    name: "firefox",
    summary: "JSON for profiler.firefox.com: threads over time, with counter tracks",
    extension: "json",
    write: |profile, out| serde_json::to_writer(out, &convert(profile)).map_err(io::Error::other),
    binary: false,
};

fn convert(profile: &Profile) -> fx::Profile {
    let header = &profile.header;
    let interval = Duration::from_secs_f64(spacing(profile).clamp(1e-6, 3600.0));
    let mut made = fx::Profile::new(
        if header.title.is_empty() { "bytepath" } else { &header.title },
        // The time of recording is unknown; a fixed time makes equal profiles equal files.
        fx::ReferenceTimestamp::from_millis_since_unix_epoch(0.0),
        fx::SamplingInterval::from_nanos(interval.as_nanos() as u64),
    );
    // Names are included, so no symbol server needs to be queried.
    made.set_symbolicated(true);
    let frames = add_frames(&mut made, profile);
    let threads = add_threads(&mut made, profile);
    let unit = weight_unit(profile);
    let mut stacks = HashMap::new();
    for (sample, time) in timed(profile) {
        let Some((_, thread)) = threads.get(sample.thread.0 as usize).copied() else { continue };
        let stack = *stacks.entry((sample.thread, sample.stack)).or_insert_with(|| {
            let outermost = profile.stack(sample.stack).iter().rev();
            let chain = outermost.filter_map(|id| frames.get(id.0 as usize)).cloned();
            made.intern_stack_frames(thread, chain)
        });
        let delta = match header.weight {
            Weight::Nanoseconds => fx::CpuDelta::from_nanos(sample.weight.max(0.0) as u64),
            _ => fx::CpuDelta::ZERO,
        };
        let weight = unit.map_or(sample.count as f64, |unit| (sample.weight / unit).round());
        made.add_sample(thread, stamp(time), stack, delta, weight as i32);
    }
    if !header.tracks.is_empty() {
        let first = threads.first().map(|(process, _)| *process);
        let process = first.unwrap_or_else(|| {
            let process = made.add_process("bytepath", 0, stamp(0.0));
            made.add_thread(process, 0, stamp(0.0), true);
            process
        });
        for track in &header.tracks {
            counter(&mut made, process, track);
        }
    }
    made
}

fn add_frames(made: &mut fx::Profile, profile: &Profile) -> Vec<fx::FrameInfo> {
    let kernel = made.add_category("Kernel", fx::CategoryColor::Orange);
    let user = made.add_category("User", fx::CategoryColor::Blue);
    let info = |frame: &Frame| fx::FrameInfo {
        frame: fx::Frame::Label(made.intern_string(&label(frame))),
        category_pair: match frame.kind {
            FrameKind::Kernel => kernel.into(),
            FrameKind::User => user.into(),
            FrameKind::Unknown => fx::CategoryHandle::OTHER.into(),
        },
        flags: fx::FrameFlags::empty(),
    };
    profile.frames().iter().map(info).collect()
}

/// Adds every thread with its process.
fn add_threads(
    made: &mut fx::Profile,
    profile: &Profile,
) -> Vec<(fx::ProcessHandle, fx::ThreadHandle)> {
    let start = stamp(0.0);
    let mut processes: HashMap<u32, fx::ProcessHandle> = HashMap::new();
    let add = |thread: &Thread| {
        let is_main = !processes.contains_key(&thread.pid);
        let process = *processes
            .entry(thread.pid)
            .or_insert_with(|| made.add_process(&thread.name, thread.pid, start));
        let handle = made.add_thread(process, thread.tid, start, is_main);
        made.set_thread_name(handle, &thread.name);
        (process, handle)
    };
    profile.threads().iter().map(add).collect()
}

/// Returns a function's name with its module, as the profiler shows it.
fn label(frame: &Frame) -> String {
    let name = if frame.function.is_empty() { "[unknown]" } else { &frame.function };
    let module = frame.module.rsplit('/').next().unwrap_or("");
    let inlined = if frame.inlined { " (inlined)" } else { "" };
    match module {
        "" => format!("{name}{inlined}"),
        module => format!("{name}{inlined}  {module}"),
    }
}

/// Returns the approximate seconds between two samples.
fn spacing(profile: &Profile) -> f64 {
    let header = &profile.header;
    match (header.weight, header.period, header.seconds) {
        (Weight::Nanoseconds, Some(period), _) => period / 1e9,
        (_, _, Some(seconds)) if !profile.samples().is_empty() => {
            seconds / profile.samples().len() as f64
        }
        _ => 1e-3,
    }
}

/// Returns all samples with their times, in order of time.
fn timed(profile: &Profile) -> Vec<(&Sample, f64)> {
    let samples = profile.samples();
    let without = samples.iter().filter(|sample| sample.time.is_none()).count();
    let step = match profile.header.seconds {
        Some(seconds) if without > 0 => seconds / without as f64,
        _ => 1e-3,
    };
    let mut place = 0;
    let mut timed: Vec<(&Sample, f64)> = samples
        .iter()
        .map(|sample| {
            let time = sample.time.unwrap_or_else(|| {
                place += 1;
                (place - 1) as f64 * step
            });
            (sample, time)
        })
        .collect();
    timed.sort_by(|a, b| a.1.total_cmp(&b.1));
    timed
}

/// Returns the divisor of weights; `None` if every sample has the same weight, so that counts are
/// written instead.
fn weight_unit(profile: &Profile) -> Option<f64> {
    let Header { weight, period, .. } = profile.header;
    if weight == Weight::Samples || period.is_some() {
        return None;
    }
    let largest = profile.samples().iter().map(|s| s.weight.abs()).fold(0.0, f64::max);
    let wide = f64::from(i32::MAX);
    // Percentages have two decimal digits.
    let unit = if weight == Weight::Percent { 0.01 } else { 1.0 };
    let scale = (largest / unit / wide).max(1.0).log10().ceil();
    Some(unit * 10_f64.powf(scale))
}

/// Adds a track as a counter. The profiler divides the increment between two points by the time
/// between them: it shows bytes per second for the category `Bandwidth`, plain numbers for others.
fn counter(made: &mut fx::Profile, process: fx::ProcessHandle, track: &Track) {
    let category = if track.unit.starts_with("bytes") { "Bandwidth" } else { "CPU" };
    let handle = made.add_counter(process, &track.name, category, &track.unit);
    let mut before = 0.0_f64;
    for (time, value) in &track.points {
        if !time.is_finite() || !value.is_finite() {
            continue;
        }
        // A counter's point is the increment since the previous one.
        let amount = value * (time - before).max(0.0);
        made.add_counter_sample(handle, stamp(*time), amount, 1);
        before = *time;
    }
}

fn stamp(seconds: f64) -> fx::Timestamp {
    fx::Timestamp::from_nanos_since_reference((seconds.max(0.0) * 1e9).round() as u64)
}
