//! Encodes a profile as a message.

use super::message::{self as pb, FORMAT, KINDS, OURS, PPM};
use crate::text::intern;
use crate::{Frame, FrameId, FrameKind, Profile, Sample, StackId, Thread, ThreadId, Weight};
use bytepath_record::joined;
use indexmap::IndexSet;
use prost::Message;
use std::collections::{BTreeSet, HashMap};
use std::fmt::Display;

/// Returns the message's bytes, uncompressed.
pub fn encode(profile: &Profile) -> Vec<u8> {
    let mut encoder = Encoder::new(profile);
    encoder.header();
    encoder.functions();
    encoder.locations();
    encoder.threads();
    encoder.stacks();
    for sample in profile.samples() {
        let message = encoder.sample(sample);
        encoder.message.sample.push(message);
    }
    encoder.message.string_table = encoder.strings.0.into_iter().collect();
    encoder.message.encode_to_vec()
}

/// The string table; the first string is empty.
struct Strings(IndexSet<String>);

impl Strings {
    fn id(&mut self, text: &str) -> i64 {
        intern(&mut self.0, text) as i64
    }
}

/// The fields that identify a mapping: module, build id, kind.
type MappingKey<'a> = (&'a str, &'a str, FrameKind);

struct Encoder<'a> {
    profile: &'a Profile,
    message: pb::Profile,
    strings: Strings,
    mappings: HashMap<MappingKey<'a>, u64>,
    /// Location ids by their frames, innermost first.
    locations: HashMap<&'a [FrameId], u64>,
    /// Locations of each stack.
    stacks: Vec<Vec<u64>>,
}

impl<'a> Encoder<'a> {
    fn new(profile: &'a Profile) -> Self {
        Encoder {
            profile,
            message: pb::Profile::default(),
            strings: Strings([String::new()].into()),
            mappings: HashMap::new(),
            locations: HashMap::new(),
            stacks: Vec::new(),
        }
    }

    fn comment(&mut self, key: &str, value: impl Display) {
        let id = self.strings.id(&format!("{OURS}{key}={value}"));
        self.message.comment.push(id);
    }

    fn header(&mut self) {
        let header = &self.profile.header;
        let event = if header.event.is_empty() { "weight" } else { &header.event };
        let (name, unit) = match header.weight {
            Weight::Nanoseconds | Weight::Delay => (event, "nanoseconds"),
            Weight::Bytes => (event, "bytes"),
            Weight::Events => (event, "count"),
            Weight::Samples => ("samples", "count"),
            Weight::Percent => (event, "ppm"),
        };
        let types = [("samples", "count"), (name, unit)].map(|(name, unit)| pb::ValueType {
            r#type: self.strings.id(name),
            unit: self.strings.id(unit),
        });
        self.message.sample_type = types.to_vec();
        self.message.default_sample_type = self.strings.id(name);
        self.message.period_type = types.last().copied();
        self.message.period = header.period.map_or(0, |period| period.round() as i64);
        self.message.duration_nanos =
            header.seconds.map_or(0, |seconds| (seconds * 1e9).round() as i64);
        self.comment("format", FORMAT);
        self.comment("title", &header.title);
        self.comment("event", &header.event);
        self.comment("weight", header.weight);
        // The shortest text that parses to the same number.
        let exact = [
            ("period", header.period),
            ("seconds", header.seconds),
            ("bytes", header.work.bytes),
            ("packets", header.work.packets),
        ];
        for (key, value) in exact {
            if let Some(value) = value {
                self.comment(key, format_args!("{value:?}"));
            }
        }
        if let Some(cpus) = header.cpus {
            self.comment("cpus", cpus);
        }
        if header.lost > 0 {
            self.comment("lost", header.lost);
        }
        for track in &header.tracks {
            // Numbers as text: JSON has no infinity.
            let points: Vec<(String, String)> =
                track.points.iter().map(|(t, v)| (format!("{t:?}"), format!("{v:?}"))).collect();
            if let Ok(text) = serde_json::to_string(&(&track.name, &track.unit, points)) {
                self.comment("track", &text);
            }
        }
        for note in &header.notes {
            let id = self.strings.id(note);
            // A note that looks like one of our own comments must not become one, and the empty
            // string is the table's first.
            if note.is_empty() || note.starts_with(OURS) {
                self.comment("note", note);
            } else {
                self.message.comment.push(id);
            }
        }
    }

    /// Writes one function per frame, in order; a frame's other fields are in its mapping.
    fn functions(&mut self) {
        let profile = self.profile;
        let mut kinds = String::new();
        for frame in profile.frames() {
            let name = self.strings.id(&frame.function);
            let filename = self.strings.id(&frame.file);
            let id = self.message.function.len() as u64 + 1;
            self.message.function.push(pb::Function { id, name, system_name: name, filename });
            let key = mapping_key(frame);
            if !self.mappings.contains_key(&key) {
                let id = self.message.mapping.len() as u64 + 1;
                self.mappings.insert(key, id);
                let filename = self.strings.id(&frame.module);
                let build_id = self.strings.id(&frame.build_id);
                self.message.mapping.push(pb::Mapping {
                    id,
                    filename,
                    build_id,
                    has_functions: true,
                    has_filenames: !frame.file.is_empty(),
                    has_inline_frames: true,
                });
                let letter = KINDS.iter().find(|(_, kind)| *kind == frame.kind);
                kinds.push(letter.map_or('?', |(letter, _)| *letter));
            }
        }
        self.comment("kinds", &kinds);
    }

    /// Writes the locations of all stacks, and of functions in no stack.
    fn locations(&mut self) {
        let profile = self.profile;
        let mut is_in_stack = vec![false; profile.frames().len()];
        for index in 0..profile.stacks() {
            let frames = profile.stack(StackId(index as u32));
            let locations = self.stack(frames);
            self.stacks.push(locations);
            for id in frames {
                is_in_stack[id.0 as usize] = true;
            }
        }
        // A function refers to its mapping only through a location.
        for index in (0..is_in_stack.len()).filter(|index| !is_in_stack[*index]) {
            let key = mapping_key(profile.frame(FrameId(index as u32)));
            let mapping_id = self.mappings.get(&key).copied().unwrap_or(0);
            let line = vec![pb::Line { function_id: index as u64 + 1, line: 0 }];
            self.push_location(mapping_id, line);
        }
        // A function before the last line of a location is thereby marked as inlined; an inlined
        // function in the last line has to be listed.
        let last = self.message.location.iter().filter_map(|location| location.line.last());
        let inlined: BTreeSet<u64> = last
            .map(|line| line.function_id)
            .filter(|id| profile.frame(FrameId((id - 1) as u32)).inlined)
            .collect();
        if !inlined.is_empty() {
            self.comment("inlined", joined(inlined, ","));
        }
    }

    fn push_location(&mut self, mapping_id: u64, line: Vec<pb::Line>) -> u64 {
        let id = self.message.location.len() as u64 + 1;
        self.message.location.push(pb::Location { id, mapping_id, line, address: 0 });
        id
    }

    /// Returns the locations of a stack.
    fn stack(&mut self, frames: &'a [FrameId]) -> Vec<u64> {
        let mut locations = Vec::with_capacity(frames.len());
        let mut begin = 0;
        for index in 0..frames.len() {
            let own = self.profile.frame(frames[index]);
            let outer = frames.get(index + 1).map(|id| self.profile.frame(*id));
            let goes_on =
                own.inlined && outer.is_some_and(|outer| mapping_key(outer) == mapping_key(own));
            if !goes_on {
                locations.push(self.location(&frames[begin..=index]));
                begin = index + 1;
            }
        }
        locations
    }

    fn location(&mut self, frames: &'a [FrameId]) -> u64 {
        if let Some(id) = self.locations.get(frames) {
            return *id;
        }
        let key = frames.last().map(|last| mapping_key(self.profile.frame(*last)));
        let mapping_id = key.and_then(|key| self.mappings.get(&key).copied()).unwrap_or(0);
        let line =
            frames.iter().map(|f| pb::Line { function_id: u64::from(f.0) + 1, line: 0 }).collect();
        let id = self.push_location(mapping_id, line);
        self.locations.insert(frames, id);
        id
    }

    /// Lists the threads, unless their order is that in which samples first refer to them.
    fn threads(&mut self) {
        let profile = self.profile;
        let threads = profile.samples().iter().map(|sample| sample.thread.0);
        if !in_order(threads, profile.threads().len()) {
            for Thread { pid, tid, name } in profile.threads() {
                self.comment("thread", format_args!("{pid} {tid} {name}"));
            }
        }
    }

    /// Likewise lists the stacks.
    fn stacks(&mut self) {
        let stacks = self.profile.samples().iter().map(|sample| sample.stack.0);
        if !in_order(stacks, self.profile.stacks()) {
            for index in 0..self.stacks.len() {
                // Comments refer to the string table, which would merge equal ones; but stacks are
                // never equal.
                self.comment("stack", joined(&self.stacks[index], " "));
            }
        }
    }

    fn sample(&mut self, sample: &Sample) -> pb::Sample {
        let weight = self.profile.header.weight;
        let scale = if weight == Weight::Percent { PPM } else { 1.0 };
        let value = (sample.weight * scale).round() as i64;
        let mut label = Vec::new();
        let thread = self.profile.thread(ThreadId(sample.thread.0));
        for (key, id) in [("pid", thread.pid), ("tid", thread.tid)] {
            if id != 0 {
                label.push(self.number(key, i64::from(id), ""));
            }
        }
        if !thread.name.is_empty() {
            label.push(self.text("thread", &thread.name));
        }
        label.push(self.text("owner", sample.owner.name()));
        if let Some(cpu) = sample.cpu {
            label.push(self.number("cpu", i64::from(cpu), ""));
        }
        if let Some(time) = sample.time {
            let nanoseconds = (time * 1e9).round() as i64;
            label.push(self.number("time_ns", nanoseconds, "nanoseconds"));
            if (nanoseconds as f64 / 1e9).to_bits() != time.to_bits() {
                label.push(self.number("time_bits", time.to_bits() as i64, ""));
            }
        }
        if (value as f64 / scale).to_bits() != sample.weight.to_bits() {
            label.push(self.number("weight_bits", sample.weight.to_bits() as i64, ""));
        }
        if i64::try_from(sample.count).is_err() {
            label.push(self.number("count_bits", sample.count as i64, ""));
        }
        let count = i64::try_from(sample.count).unwrap_or(i64::MAX);
        let location_id = self.stacks.get(sample.stack.0 as usize).cloned().unwrap_or_default();
        pb::Sample { location_id, value: vec![count, value], label }
    }

    fn number(&mut self, key: &str, num: i64, unit: &str) -> pb::Label {
        let num_unit = self.strings.id(unit);
        pb::Label { key: self.strings.id(key), num, num_unit, ..pb::Label::default() }
    }

    fn text(&mut self, key: &str, value: &str) -> pb::Label {
        let str = self.strings.id(value);
        pb::Label { key: self.strings.id(key), str, ..pb::Label::default() }
    }
}

fn mapping_key(frame: &Frame) -> MappingKey<'_> {
    (&frame.module, &frame.build_id, frame.kind)
}

/// Returns whether the first occurrences of the ids are in ascending order without gaps, up to
/// `all`.
fn in_order(ids: impl Iterator<Item = u32>, all: usize) -> bool {
    let first_uses: IndexSet<u32> = ids.collect();
    first_uses.into_iter().eq(0..all as u32)
}
