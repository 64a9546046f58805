//! Decodes a message into a profile.

use super::message::{self as pb, FORMAT, KINDS, OURS, PPM};
use crate::conventions;
use crate::text::quote;
use crate::{
    Builder, Frame, FrameId, FrameKind, Header, Owner, Profile, Sample, StackId, Thread, ThreadId,
    Track, Weight,
};
use bytepath_record::Fault;
use prost::Message;
use prost::encoding::decode_varint;
use std::collections::{HashMap, HashSet};

/// Returns whether bytes look like the beginning of a message: every field is one of the message's,
/// with the right type, and at least one sample type is well-formed.
pub fn recognises(head: &[u8]) -> bool {
    let mut rest = head;
    let mut typed = false;
    for _ in 0..64 {
        if rest.is_empty() {
            break;
        }
        let Ok(tag) = decode_varint(&mut rest) else { return false };
        match (tag >> 3, tag & 7) {
            (7..=10 | 12..=14, 0) => {
                if decode_varint(&mut rest).is_err() {
                    return false;
                }
            }
            (field @ (1..=6 | 11 | 13), 2) => {
                let Ok(length) = decode_varint(&mut rest) else { return false };
                let Ok(length) = usize::try_from(length) else { return false };
                let Some((message, after)) = rest.split_at_checked(length) else {
                    // It continues beyond the head.
                    return typed;
                };
                if field == 1 {
                    let numbers = message.first().is_none_or(|tag| matches!(tag, 0x08 | 0x10));
                    if !numbers || length > 20 || pb::ValueType::decode(message).is_err() {
                        return false;
                    }
                    typed = true;
                }
                rest = after;
            }
            _ => return false,
        }
    }
    typed
}

/// Decodes an uncompressed message; `title` names it in errors.
pub fn decode(title: &str, bytes: &[u8]) -> Result<Profile, Fault> {
    let bad = |what: String| Fault::storage(format!("{title}: {what}"));
    let message =
        pb::Profile::decode(bytes).map_err(|e| bad(format!("is not a complete pprof: {e}")))?;
    // A location can stand for many frames, and a stack can refer to it many times: without a limit
    // a small file could fill any memory.
    let room = bytes.len().saturating_mul(16).saturating_add(1 << 20);
    Decoder::new(title, &message, room).and_then(Decoder::run).map_err(bad)
}

/// Types of values that are CPU times; all other times are waiting or wall-clock time.
const CPU_TIMES: [&str; 6] = ["cpu", "cpu-time", "cpu_time", "cpu-clock", "task-clock", "on-cpu"];

/// Types of values that are sample counts.
const COUNTS: [&str; 3] = ["samples", "sample", "contentions"];

struct Decoder<'a> {
    title: &'a str,
    message: &'a pb::Profile,
    builder: Builder,
    own: Vec<(&'a str, &'a str)>,
    /// The fields that all frames of a mapping share.
    mappings: HashMap<u64, Frame>,
    functions: HashMap<u64, &'a pb::Function>,
    /// Frames of each location, leaf first.
    locations: HashMap<u64, Vec<FrameId>>,
    /// How many more frames all stacks together may have.
    room: usize,
}

/// The indices of a sample's values that are read.
struct Values {
    count: Option<usize>,
    /// Weight of one sample, from which the count is computed if it is not recorded.
    each: Option<f64>,
    weight: usize,
    scale: f64,
}

impl<'a> Decoder<'a> {
    fn new(title: &'a str, message: &'a pb::Profile, room: usize) -> Result<Self, String> {
        let mut decoder = Decoder {
            title,
            message,
            builder: Builder::new(Header::default()),
            own: Vec::new(),
            mappings: HashMap::new(),
            functions: HashMap::new(),
            locations: HashMap::new(),
            room,
        };
        for id in &message.comment {
            let text = decoder.text(*id)?;
            match text.strip_prefix(OURS).and_then(|rest| rest.split_once('=')) {
                // In its place among the other notes, so that they keep their order.
                Some(("note", value)) => decoder.builder.header().notes.push(value.to_owned()),
                Some((key, value)) => decoder.own.push((key, value)),
                None if !text.is_empty() => decoder.builder.header().notes.push(text.to_owned()),
                None => {}
            }
        }
        if let Some(version) = decoder.own("format").filter(|version| *version != FORMAT) {
            return Err(format!("was written by a newer bytepath, format {}", quote(version)));
        }
        Ok(decoder)
    }

    fn run(mut self) -> Result<Profile, String> {
        self.mappings()?;
        self.locations()?;
        let values = self.header()?;
        self.listed()?;
        let start = self.start()?;
        for index in 0..self.message.sample.len() {
            self.sample(index, &values, start).map_err(|what| format!("sample {index}: {what}"))?;
        }
        Ok(self.builder.build())
    }

    fn text(&self, id: i64) -> Result<&'a str, String> {
        if id == 0 {
            // Some writers omit the table if they need no string.
            return Ok("");
        }
        usize::try_from(id)
            .ok()
            .and_then(|id| self.message.string_table.get(id))
            .map(String::as_str)
            .ok_or_else(|| format!("string {id} does not exist"))
    }

    /// Returns the value of one of our own comments.
    fn own(&self, key: &str) -> Option<&'a str> {
        self.own.iter().find(|(own, _)| *own == key).map(|(_, value)| *value)
    }

    /// Returns all values of one of our own comments.
    fn all(&self, key: &'static str) -> Vec<&'a str> {
        self.own.iter().filter(|(own, _)| *own == key).map(|(_, value)| *value).collect()
    }

    /// Returns a number in one of our own comments.
    fn number<T: std::str::FromStr>(&self, key: &str) -> Result<Option<T>, String> {
        self.own(key)
            .map(|text| {
                text.parse().map_err(|_| format!("{OURS}{key} is not a number: {}", quote(text)))
            })
            .transpose()
    }

    fn mappings(&mut self) -> Result<(), String> {
        let kinds = self.own("kinds").map(|kinds| kinds.chars().collect::<Vec<char>>());
        for (index, mapping) in self.message.mapping.iter().enumerate() {
            let filename = self.text(mapping.filename)?;
            let (module, kind) = match &kinds {
                Some(kinds) => {
                    let known = KINDS.iter().find(|(letter, _)| kinds.get(index) == Some(letter));
                    (filename.to_owned(), known.map_or(FrameKind::Unknown, |(_, kind)| *kind))
                }
                None => conventions::module(filename),
            };
            let build_id = self.text(mapping.build_id)?.to_owned();
            let frame = Frame { module, build_id, kind, ..Frame::default() };
            self.mappings.insert(mapping.id, frame);
        }
        Ok(())
    }

    fn locations(&mut self) -> Result<(), String> {
        let message = self.message;
        for function in &message.function {
            self.functions.insert(function.id, function);
        }
        let alone: HashSet<u64> = self
            .own("inlined")
            .map(|list| list.split(',').filter_map(|id| id.parse().ok()).collect())
            .unwrap_or_default();
        if self.own("format").is_some() {
            // Our own functions are frames, in their order.
            let mut known: HashMap<u64, (u64, bool)> = HashMap::new();
            for location in &message.location {
                let last = location.line.len().saturating_sub(1);
                for (index, line) in location.line.iter().enumerate() {
                    let inlined = index < last || alone.contains(&line.function_id);
                    known.entry(line.function_id).or_insert((location.mapping_id, inlined));
                }
            }
            for function in &message.function {
                if let Some((mapping, inlined)) = known.get(&function.id) {
                    let frame = self.frame(function, *mapping, *inlined)?;
                    self.builder.frame(frame);
                }
            }
        }
        for location in &message.location {
            let mut frames = Vec::with_capacity(location.line.len());
            let last = location.line.len().saturating_sub(1);
            for (index, line) in location.line.iter().enumerate() {
                let (id, at) = (line.function_id, location.id);
                let function = self.functions.get(&id).copied();
                let function = function
                    .ok_or_else(|| format!("location {at}: function {id} does not exist"))?;
                let inlined = index < last || alone.contains(&line.function_id);
                let frame = self.frame(function, location.mapping_id, inlined)?;
                frames.push(self.builder.frame(frame));
            }
            if frames.is_empty() {
                let function = format!("{:#x}", location.address);
                let frame = Frame { function, ..self.mapping(location.mapping_id)? };
                frames.push(self.builder.frame(frame));
            }
            self.locations.insert(location.id, frames);
        }
        Ok(())
    }

    fn mapping(&self, mapping: u64) -> Result<Frame, String> {
        match self.mappings.get(&mapping) {
            Some(frame) => Ok(frame.clone()),
            None if mapping == 0 => Ok(Frame::default()),
            None => Err(format!("mapping {mapping} does not exist")),
        }
    }

    fn frame(&self, function: &pb::Function, mapping: u64, inlined: bool) -> Result<Frame, String> {
        let place = self.mapping(mapping)?;
        let name = self.text(function.name)?;
        let name = if name.is_empty() { self.text(function.system_name)? } else { name };
        let is_ours = self.own("format").is_some();
        let name = if name.is_empty() && !is_ours { "[unknown]" } else { name };
        let file = self.text(function.filename)?.to_owned();
        Ok(Frame { function: name.to_owned(), file, inlined, ..place })
    }

    /// Reads the header and chooses the values to read: of several sample types the default one if
    /// there is one, else the last, as the tool pprof does.
    fn header(&mut self) -> Result<Values, String> {
        let mut types = Vec::new();
        for kind in &self.message.sample_type {
            types.push((self.text(kind.r#type)?, self.text(kind.unit)?));
        }
        let wanted = self.text(self.message.default_sample_type)?;
        let weight = types
            .iter()
            .rposition(|(name, _)| *name == wanted && !wanted.is_empty())
            .or_else(|| types.len().checked_sub(1))
            .ok_or("has no sample type")?;
        let (name, unit) = types.get(weight).copied().unwrap_or_default();
        let count = types
            .iter()
            .position(|(name, unit)| COUNTS.contains(name) && *unit == "count")
            // Only a count of something: threads, goroutines.
            .or_else(|| (types.len() == 1 && unit == "count").then_some(0));
        let time = if CPU_TIMES.contains(&name) { Weight::Nanoseconds } else { Weight::Delay };
        let (kind, scale) = match unit {
            "nanoseconds" | "ns" => (time, 1.0),
            "microseconds" | "us" => (time, 1e3),
            "milliseconds" | "ms" => (time, 1e6),
            "seconds" | "s" => (time, 1e9),
            "bytes" => (Weight::Bytes, 1.0),
            "ppm" => (Weight::Percent, 1.0 / PPM),
            _ if matches!(name, "samples" | "sample") => (Weight::Samples, 1.0),
            _ => (Weight::Events, 1.0),
        };
        let exact = Header {
            title: self.own("title").unwrap_or(self.title).to_owned(),
            event: self.own("event").unwrap_or(name).to_owned(),
            weight: self.own("weight").and_then(|text| text.parse().ok()).unwrap_or(kind),
            period: self.number("period")?,
            seconds: self.number("seconds")?,
            cpus: self.number("cpus")?,
            lost: self.number("lost")?.unwrap_or(0),
            work: crate::Work { bytes: self.number("bytes")?, packets: self.number("packets")? },
            notes: std::mem::take(&mut self.builder.header().notes),
            tracks: self.all("track").into_iter().map(track).collect::<Result<_, _>>()?,
        };
        *self.builder.header() = exact;
        let own = self.own("format").is_some();
        let (message, header) = (self.message, self.builder.header());
        if !own {
            if message.duration_nanos > 0 {
                header.seconds = Some(message.duration_nanos as f64 / 1e9);
            }
            let kind = message.sample_type.get(weight);
            if message.period > 0 && message.period_type.is_some_and(|of| Some(&of) == kind) {
                header.period = Some(message.period as f64 * scale);
            }
            for (index, (other, unit)) in types.iter().enumerate() {
                if index != weight && Some(index) != count {
                    let note = format!("left out: the values of {other} ({unit})");
                    self.builder.header().notes.push(note);
                }
            }
        }
        let each = self.builder.header().period.filter(|each| *each > 0.0);
        Ok(Values { count: count.or(own.then_some(0)), each, weight, scale })
    }

    /// Restores threads and stacks whose order differs from that of the samples.
    fn listed(&mut self) -> Result<(), String> {
        for text in self.all("thread") {
            let mut parts = text.splitn(3, ' ');
            let mut id = || parts.next().and_then(|part| part.parse().ok());
            let (Some(pid), Some(tid)) = (id(), id()) else {
                return Err(format!("{OURS}thread is invalid: {}", quote(text)));
            };
            let name = parts.next().unwrap_or("").to_owned();
            self.builder.thread(Thread { name, pid, tid });
        }
        for text in self.all("stack") {
            let ids: Result<Vec<u64>, _> = text.split_whitespace().map(str::parse).collect();
            let ids = ids.map_err(|_| format!("{OURS}stack is invalid: {}", quote(text)))?;
            self.stack(&ids)?;
        }
        Ok(())
    }

    fn stack(&mut self, locations: &[u64]) -> Result<StackId, String> {
        let mut frames = Vec::with_capacity(locations.len());
        for id in locations {
            let own =
                self.locations.get(id).ok_or_else(|| format!("location {id} does not exist"))?;
            self.room = self
                .room
                .checked_sub(own.len())
                .ok_or("its stacks are out of all proportion to the file")?;
            frames.extend_from_slice(own);
        }
        Ok(self.builder.stack(&frames))
    }

    /// Returns the time to count from: in profiles of other programs times refer to some clock, and
    /// the first becomes the start.
    fn start(&self) -> Result<i64, String> {
        let mut first: Option<i64> = None;
        for label in self.message.sample.iter().flat_map(|sample| &sample.label) {
            if self.text(label.key)? == "timestamp_ns" {
                first = Some(first.map_or(label.num, |first| first.min(label.num)));
            }
        }
        Ok(first.unwrap_or(0))
    }

    fn sample(&mut self, index: usize, values: &Values, start: i64) -> Result<(), String> {
        let message = self.message;
        let Some(sample) = message.sample.get(index) else { return Ok(()) };
        let types = message.sample_type.len();
        if sample.value.len() != types {
            return Err(format!("has {} values, not {types}", sample.value.len()));
        }
        let value = sample.value.get(values.weight).copied().unwrap_or(0);
        let mut weight = if values.scale == 1.0 / PPM {
            value as f64 / PPM
        } else {
            value as f64 * values.scale
        };
        let mut count = match values.count {
            Some(index) => {
                sample.value.get(index).and_then(|n| u64::try_from(*n).ok()).unwrap_or(0)
            }
            None => values.each.map_or(1, |each| (weight / each).round().max(1.0) as u64),
        };
        let mut thread = Thread::default();
        let (mut owner, mut cpu, mut time) = (None, None, None);
        for label in &sample.label {
            let id = || u32::try_from(label.num).unwrap_or(0);
            match self.text(label.key)? {
                "pid" => thread.pid = id(),
                "tid" => thread.tid = id(),
                "thread" => thread.name = self.text(label.str)?.to_owned(),
                "thread_comm" | "comm" if thread.name.is_empty() => {
                    thread.name = self.text(label.str)?.to_owned();
                }
                "owner" => owner = Owner::parse(self.text(label.str)?),
                "cpu" => cpu = u32::try_from(label.num).ok(),
                "time_ns" => time = time.or(Some(label.num as f64 / 1e9)),
                "timestamp_ns" => {
                    time = time.or(Some(label.num.saturating_sub(start) as f64 / 1e9));
                }
                "time_bits" => time = Some(f64::from_bits(label.num as u64)),
                "weight_bits" => weight = f64::from_bits(label.num as u64),
                "count_bits" => count = label.num as u64,
                _ => {}
            }
        }
        if !weight.is_finite() || time.is_some_and(|time| !time.is_finite()) {
            return Err("its weight or time is not a number".into());
        }
        let owner = owner.unwrap_or_else(|| conventions::owner(&thread.name, Some(thread.pid)));
        let thread: ThreadId = self.builder.thread(thread);
        let stack = self.stack(&sample.location_id)?;
        self.builder.add(Sample { stack, thread, owner, cpu, time, count, weight });
        Ok(())
    }
}

fn track(text: &str) -> Result<Track, String> {
    let bad = || format!("{OURS}track is invalid: {}", quote(text));
    let (name, unit, points): (String, String, Vec<(String, String)>) =
        serde_json::from_str(text).map_err(|_| bad())?;
    let points = points
        .into_iter()
        .map(|(time, value)| Some((time.parse().ok()?, value.parse().ok()?)))
        .collect::<Option<_>>()
        .ok_or_else(bad)?;
    Ok(Track { name, unit, points })
}
