//! `perf.data`, as `perf record` writes it to a file or a pipe
//! (`tools/perf/Documentation/perf.data-file-format.txt`,
//! `include/uapi/linux/perf_event.h`).
//!
//! ```text
//! 50 45 52 46 49 4c 45 32  68 00 00 00 00 00 00 00   PERFILE2, size of the header
//! 09 00 00 00 02 00 28 00  7e 8a 2f 00 00 00 00 00   a record: PERF_RECORD_SAMPLE, kernel, 40 bytes
//! ```
//!
//! The file contains addresses and mappings of modules, but no symbols. A function's name is looked
//! up on this host ([`HostSymbols`]) if requested; otherwise it is the offset in its file,
//! `0x1239`, as `perf script` prints it, or its address in the kernel. Files recorded with `-z` are
//! refused.
//!
//! The file is kept in memory: the data that explains its samples is at its end.

mod guard;
mod space;

use super::UNNAMED;
use super::collect::Collector;
use super::format::{Importer, Times};
use super::lines::unreadable;
use crate::conventions;
use crate::symbols::{HostSymbols, KERNEL};
use crate::text::hexadecimal;
use crate::{Frame, FrameId, FrameKind, Profile, Sample, Thread, Weight};
use bytepath_record::{Fault, listed};
use guard::Bytes;
use linux_perf_data::linux_perf_event_reader::{
    Endianness, PerfEventType, RawEventRecord, ReadFormat, RecordType, SampleFormat,
    SamplingPolicy, SoftwareCounterType,
};
use linux_perf_data::{AttributeDescription, DsoKey, PerfFile, PerfFileReader, PerfFileRecord};
use space::{ModuleId, Spaces};
use std::collections::{BTreeMap, HashMap, HashSet};
use std::io::{BufRead, Cursor, Read};
use std::path::Path;
use std::rc::Rc;

/// Larger files are refused; the output of `perf script` for them can be read piece by piece. At a
/// power of two the buffer would grow to the next one.
const MOST: u64 = (128 << 20) - 1;

/// See the module documentation.
pub(super) static FORMAT: Importer = Importer {
    name: "perf.data",
    summary: "what `perf record` writes; read it where it was recorded: that host has the functions' names",
    certain: true,
    recognises: |head| head.starts_with(b"PERFILE2") || head.starts_with(b"2ELIFREP"),
    read: |title, times, input| read(title, times, input, false),
};

/// Reads a file with the names that this host has for its addresses.
pub(super) fn read_here(
    title: &str,
    times: Times,
    input: &mut dyn BufRead,
) -> Result<Profile, Fault> {
    read(title, times, input, true)
}

fn read(
    title: &str,
    times: Times,
    input: &mut dyn BufRead,
    symbols: bool,
) -> Result<Profile, Fault> {
    let mut bytes = Vec::new();
    input.take(MOST).read_to_end(&mut bytes).map_err(|e| unreadable(title, &e))?;
    let bad = |what: String| Fault::storage(format!("{title}: {what}"));
    if !input.fill_buf().map_err(|e| unreadable(title, &e))?.is_empty() {
        let fault = bad(format!("is larger than {} MiB", MOST.div_ceil(1 << 20)));
        return Err(fault.remedy("convert it with `perf script`, which has no limit"));
    }
    let shape = guard::check(&bytes).map_err(|what| {
        let fault = bad(format!("is not a complete perf.data: {what}"));
        match what.contains("compressed") {
            true => fault.remedy("record without -z, or convert it with `perf script` first"),
            false => fault,
        }
    })?;
    let pass = |event| pass((title, times), &bytes, shape, event, symbols);
    let mut reader = pass(None).map_err(bad)?;
    // The first event may have no samples, like one that only tracks threads.
    if let (0, Some((&other, _))) = (reader.samples, reader.others.first_key_value()) {
        reader = pass(Some(other)).map_err(bad)?;
    }
    reader.finish().map_err(bad)
}

/// Reads the samples of one event, given by its index in the file.
fn pass(
    (title, times): (&str, Times),
    bytes: &[u8],
    shape: guard::Shape,
    event: Option<usize>,
    symbols: bool,
) -> Result<Reader, String> {
    let cursor = Cursor::new(bytes);
    let wrong = |e: linux_perf_data::Error| format!("is not perf.data: {e}");
    let PerfFileReader { mut perf_file, mut record_iter } = match shape {
        guard::Shape::File => PerfFileReader::parse_file(cursor).map_err(wrong)?,
        guard::Shape::Pipe => PerfFileReader::parse_pipe(cursor).map_err(wrong)?,
    };
    let mut reader = Reader::new(title, times, &perf_file, event.unwrap_or(0));
    let host = || HostSymbols::new(Path::new("/proc"), Path::new("/sys"));
    reader.names.host = symbols.then(host);
    while let Some(record) = record_iter.next_record(&mut perf_file).map_err(wrong)? {
        if let PerfFileRecord::EventRecord { attr_index, record } = record {
            reader.record(attr_index, &record)?;
        }
    }
    Ok(reader)
}

struct Reader {
    collector: Collector,
    endian: Endianness,
    attributes: Vec<AttributeDescription>,
    build_ids: HashMap<DsoKey, String>,
    spaces: Spaces,
    comms: HashMap<i32, String>,
    frames: HashMap<(Option<ModuleId>, u64, FrameKind), Rc<[FrameId]>>,
    names: Names,
    stack: Vec<FrameId>,
    /// Index of the event that is read.
    event: usize,
    others: BTreeMap<usize, u64>,
    samples: u64,
}

/// The fields of a sample that are used here.
#[derive(Default)]
struct Fields {
    ip: Option<u64>,
    pid: i32,
    tid: i32,
    time: Option<u64>,
    cpu: Option<u32>,
    period: Option<u64>,
    chain: Vec<u64>,
}

/// Entries of a call chain at or above this value are context marks: they give the side of the
/// entries after them.
const CONTEXT: u64 = -4095_i64 as u64;
const CONTEXT_KERNEL: u64 = -128_i64 as u64;
const CONTEXT_USER: u64 = -512_i64 as u64;

impl Reader {
    fn new(title: &str, times: Times, file: &PerfFile, event: usize) -> Self {
        let mut collector = Collector::new(times);
        let header = collector.builder.header();
        title.clone_into(&mut header.title);
        let texts = [file.hostname(), file.os_release(), file.cpu_desc()];
        for (key, text) in ["hostname", "os release", "cpudesc"].into_iter().zip(texts) {
            header.notes.extend(text.ok().flatten().map(|text| format!("{key}: {text}")));
        }
        header.cpus = file.nr_cpus().ok().flatten().map(|cpus| cpus.nr_cpus_online);
        let build_ids = file.build_ids().unwrap_or_default();
        Reader {
            collector,
            endian: file.endian(),
            attributes: file.event_attributes().to_vec(),
            build_ids: build_ids
                .into_iter()
                .map(|(key, info)| (key, hexadecimal(&info.build_id)))
                .collect(),
            spaces: Spaces::default(),
            comms: HashMap::new(),
            frames: HashMap::new(),
            names: Names::default(),
            stack: Vec::new(),
            event,
            others: BTreeMap::new(),
            samples: 0,
        }
    }

    fn record(&mut self, attribute: usize, record: &RawEventRecord<'_>) -> Result<(), String> {
        let data = record.data.as_slice();
        let mut bytes = Bytes::new(&data, self.endian);
        let read = match record.record_type {
            RecordType::SAMPLE => self.sample(attribute, record, bytes).map(Ok),
            RecordType::COMM => self.comm(bytes).map(Ok),
            RecordType::FORK => self.fork(bytes).map(Ok),
            RecordType::MMAP => self.map(bytes, record.misc, false),
            RecordType::MMAP2 => self.map(bytes, record.misc, true),
            kind => {
                let lost = match kind {
                    RecordType::LOST => bytes.u64().and_then(|_| bytes.u64()),
                    RecordType::LOST_SAMPLES => bytes.u64(),
                    _ => None,
                };
                let header = self.collector.builder.header();
                header.lost = header.lost.saturating_add(lost.unwrap_or(0));
                Some(Ok(()))
            }
        };
        let read = read.unwrap_or_else(|| Err("shorter than its fields".into()));
        read.map_err(|what| format!("{} record: {what}", name_of(record.record_type)))
    }

    fn fork(&mut self, mut bytes: Bytes<'_>) -> Option<()> {
        let mut id = || bytes.u32().map(|id| id as i32);
        let (pid, parent, tid, parent_tid) = (id()?, id()?, id()?, id()?);
        if pid != parent {
            self.spaces.fork(pid, parent);
        }
        if let Some(name) = self.comms.get(&parent_tid) {
            self.comms.insert(tid, name.clone());
        }
        Some(())
    }

    fn comm(&mut self, mut bytes: Bytes<'_>) -> Option<()> {
        let (_, tid) = (bytes.u32()?, bytes.u32()? as i32);
        let name = String::from_utf8_lossy(bytes.text()).into_owned();
        self.comms.insert(tid, name);
        Some(())
    }

    /// Reads a mapping of an executable file, or of the kernel and its modules.
    fn map(&mut self, mut bytes: Bytes<'_>, misc: u16, second: bool) -> Option<Result<(), String>> {
        const DATA: u16 = 1 << 13;
        const BUILD_ID: u16 = 1 << 14;
        let (pid, _) = (bytes.u32()? as i32, bytes.u32()?);
        let (start, length, offset) = (bytes.u64()?, bytes.u64()?, bytes.u64()?);
        let mut build_id = None;
        if second {
            let id = bytes.take(24)?;
            if misc & BUILD_ID != 0 {
                let size = usize::from(*id.first()?).min(20);
                build_id = Some(hexadecimal(id.get(4..4 + size)?));
            }
            bytes.take(8)?;
        } else if misc & DATA != 0 {
            return Some(Ok(()));
        }
        let path = bytes.text();
        let mode = linux_perf_data::linux_perf_event_reader::CpuMode::from_misc(misc);
        let known = || DsoKey::detect(path, mode).and_then(|key| self.build_ids.get(&key).cloned());
        let build_id = build_id.or_else(known).unwrap_or_default();
        let kernel = misc & 7 == 1;
        let text = String::from_utf8_lossy(path);
        let (module, kind) = match conventions::module(&text) {
            (module, FrameKind::Unknown) if kernel => (module, FrameKind::Kernel),
            // Executable memory without a file.
            _ if text.starts_with("//anon") => (String::new(), FrameKind::User),
            known => known,
        };
        if let (true, Some(symbol)) =
            (kernel && offset != 0, text.strip_prefix("[kernel.kallsyms]"))
        {
            self.names.base = Some((symbol.to_owned(), offset));
        }
        let owner = if kernel { None } else { Some(pid) };
        let module = Frame { module, build_id, kind, ..Frame::default() };
        Some(self.spaces.map(owner, start, length, offset, module))
    }

    fn sample(
        &mut self,
        attribute: usize,
        record: &RawEventRecord<'_>,
        bytes: Bytes<'_>,
    ) -> Option<()> {
        let info = &record.parse_info;
        let fields = fields(bytes, info.sample_format, info.read_format)?;
        if attribute != self.event {
            *self.others.entry(attribute).or_default() += 1;
            return Some(());
        }
        self.samples += 1;
        self.stack.clear();
        let side = match record.misc & 7 {
            1 | 4 => FrameKind::Kernel,
            2 | 5 => FrameKind::User,
            _ => FrameKind::Unknown,
        };
        let mut kind = side;
        for entry in &fields.chain {
            if *entry >= CONTEXT {
                kind = match *entry {
                    CONTEXT_KERNEL => FrameKind::Kernel,
                    CONTEXT_USER => FrameKind::User,
                    _ => FrameKind::Unknown,
                };
            } else {
                let frames = self.frames(fields.pid, *entry, kind);
                self.stack.extend_from_slice(&frames);
            }
        }
        if let (true, Some(ip)) = (self.stack.is_empty(), fields.ip) {
            let frames = self.frames(fields.pid, ip, side);
            self.stack.extend_from_slice(&frames);
        }
        let fixed =
            self.attributes.get(attribute).and_then(|known| match known.attr.sampling_policy {
                SamplingPolicy::Period(period) => Some(period.get()),
                _ => None,
            });
        let weight = fields.period.or(fixed).map_or(1.0, |period| period as f64);
        self.names.add(self.stack.first(), weight);
        let name = match self.comms.get(&fields.tid) {
            Some(name) => name.clone(),
            None if fields.pid == 0 && fields.tid == 0 => "swapper".into(),
            None => format!(":{}", fields.tid),
        };
        let (pid, tid) = (u32::try_from(fields.pid).ok(), u32::try_from(fields.tid).unwrap_or(0));
        let owner = conventions::owner(&name, pid);
        let builder = &mut self.collector.builder;
        let thread = builder.thread(Thread { name, pid: pid.unwrap_or(0), tid });
        let stack = builder.stack(&self.stack);
        let cpu = fields.cpu;
        let sample = Sample { stack, thread, owner, cpu, time: None, count: 1, weight };
        self.collector.push(sample, fields.time);
        Some(())
    }

    /// Returns the frames of an address, leaf first.
    fn frames(&mut self, pid: i32, address: u64, kind: FrameKind) -> Rc<[FrameId]> {
        let found = self.spaces.find((kind != FrameKind::Kernel).then_some(pid), address);
        let found = found.or_else(|| self.spaces.find(None, address));
        let (module, place) = match found {
            Some((id, offset)) => match self.spaces.module(id) {
                Some(file) if file.kind == FrameKind::User && !file.module.is_empty() => {
                    (Some(id), offset)
                }
                _ => (Some(id), address),
            },
            None => (None, address),
        };
        let key = (module, place, kind);
        if let Some(frames) = self.frames.get(&key) {
            return Rc::clone(frames);
        }
        let known = module.and_then(|id| self.spaces.module(id)).cloned().unwrap_or_default();
        let named = found.and_then(|(_, offset)| self.names.find(&known, address, offset));
        let is_named = named.is_some();
        let frames = named.unwrap_or_else(|| {
            let kind = if known.kind == FrameKind::Unknown { kind } else { known.kind };
            vec![Frame { function: format!("{place:#x}"), kind, ..known }]
        });
        let builder = &mut self.collector.builder;
        let frames: Rc<[FrameId]> = frames.into_iter().map(|frame| builder.frame(frame)).collect();
        if !is_named {
            self.names.unnamed.extend(frames.iter().copied());
        }
        self.frames.insert(key, Rc::clone(&frames));
        frames
    }

    fn event_name(&self, attribute: usize) -> String {
        let Some(known) = self.attributes.get(attribute) else { return String::new() };
        match (known.name(), known.attr.type_) {
            (Some(name), _) if !name.is_empty() => name.to_owned(),
            (_, PerfEventType::Software(SoftwareCounterType::CpuClock)) => "cpu-clock".into(),
            (_, PerfEventType::Software(SoftwareCounterType::TaskClock)) => "task-clock".into(),
            _ => format!("event {attribute}"),
        }
    }

    fn finish(mut self) -> Result<Profile, String> {
        if self.samples == 0 {
            return Err("holds no sample".into());
        }
        let name = self.event_name(self.event);
        let note = |(other, n): (&usize, &u64)| {
            format!("left out: {n} samples of the event {}", self.event_name(*other))
        };
        let others: Vec<String> = self.others.iter().map(note).collect();
        let period = self.collector.period();
        let unnamed = self.names.note(&self.collector.builder.header().title);
        let header = self.collector.builder.header();
        header.weight = match conventions::weight_of(&name) {
            Weight::Nanoseconds => Weight::Nanoseconds,
            _ => Weight::Events,
        };
        header.event = name;
        header.period = period;
        header.notes.splice(0..0, unnamed);
        header.notes.extend(others);
        Ok(self.collector.build())
    }
}

/// Names of addresses, and the weight without names.
#[derive(Default)]
struct Names {
    /// `None` if names are not requested.
    host: Option<HostSymbols>,
    /// A symbol of the kernel, and its address at the time of recording.
    base: Option<(String, u64)>,
    unnamed: HashSet<FrameId>,
    /// Weight of the samples in functions without a name, and of all.
    without: f64,
    all: f64,
}

impl Names {
    fn find(&mut self, known: &Frame, address: u64, offset: u64) -> Option<Vec<Frame>> {
        let host = self.host.as_mut()?;
        let Frame { module, build_id, .. } = known;
        match known.kind {
            FrameKind::Kernel if module == KERNEL => {
                let base = self.base.as_ref().map(|(symbol, address)| (symbol.as_str(), *address));
                host.kernel(build_id, base, address).map(|frame| vec![frame])
            }
            FrameKind::Kernel => host.module(module, build_id, offset).map(|frame| vec![frame]),
            FrameKind::User if module.starts_with('/') => host.file(module, build_id, offset),
            _ => None,
        }
    }

    /// Adds a sample to the totals, by its leaf function.
    fn add(&mut self, leaf: Option<&FrameId>, weight: f64) {
        self.all += weight;
        if leaf.is_some_and(|leaf| self.unnamed.contains(leaf)) {
            self.without += weight;
        }
    }

    /// Returns a line that states what has no name, why, and which command helps; `None` if the
    /// share is negligible.
    fn note(&self, title: &str) -> Option<String> {
        /// Code generated at run time never has a name.
        const LITTLE: f64 = 0.01;
        /// Most reasons that are listed.
        const NAMED: usize = 4;
        let share = self.without / self.all;
        let reasons = self.host.as_ref().filter(|_| share >= LITTLE)?.reasons.iter();
        let reasons: Vec<&String> = reasons.collect();
        (!reasons.is_empty()).then(|| {
            format!(
                "{UNNAMED}{:.0}% of the samples, in {}; where it was recorded: \
                 perf script -i {title} | bytepath profile -",
                share * 100.0,
                listed(&reasons, NAMED)
            )
        })
    }
}

/// Parses a sample's fields, in the order of `PERF_RECORD_SAMPLE` in perf_event_open(2).
fn fields(mut bytes: Bytes<'_>, format: SampleFormat, read: ReadFormat) -> Option<Fields> {
    let mut fields = Fields::default();
    let word = |bytes: &mut Bytes<'_>, field| match format.contains(field) {
        true => bytes.u64().map(Some),
        false => Some(None),
    };
    word(&mut bytes, SampleFormat::IDENTIFIER)?;
    fields.ip = word(&mut bytes, SampleFormat::IP)?;
    if format.contains(SampleFormat::TID) {
        (fields.pid, fields.tid) = (bytes.u32()? as i32, bytes.u32()? as i32);
    }
    fields.time = word(&mut bytes, SampleFormat::TIME)?;
    for unused in [SampleFormat::ADDR, SampleFormat::ID, SampleFormat::STREAM_ID] {
        word(&mut bytes, unused)?;
    }
    if format.contains(SampleFormat::CPU) {
        fields.cpu = Some(bytes.u32()?);
        bytes.u32()?;
    }
    fields.period = word(&mut bytes, SampleFormat::PERIOD)?;
    if format.contains(SampleFormat::READ) {
        // PERF_FORMAT_LOST (1 << 4) is newer than the constants of the crate.
        let each = 1 + u64::from(read.contains(ReadFormat::ID)) + (read.bits() >> 4 & 1);
        let times = u64::from(read.contains(ReadFormat::TOTAL_TIME_ENABLED))
            + u64::from(read.contains(ReadFormat::TOTAL_TIME_RUNNING));
        let words = if read.contains(ReadFormat::GROUP) {
            bytes.u64()?.checked_mul(each)?.checked_add(times)?
        } else {
            each + times
        };
        bytes.take(usize::try_from(words.checked_mul(8)?).ok()?)?;
    }
    if format.contains(SampleFormat::CALLCHAIN) {
        let count = usize::try_from(bytes.u64()?).ok()?;
        let mut chain = Bytes::new(bytes.take(count.checked_mul(8)?)?, bytes.endian());
        fields.chain = std::iter::from_fn(|| chain.u64()).collect();
    }
    Some(fields)
}

fn name_of(record: RecordType) -> &'static str {
    match record {
        RecordType::SAMPLE => "a sample's",
        RecordType::COMM => "a comm",
        RecordType::FORK => "a fork",
        RecordType::MMAP | RecordType::MMAP2 => "an mmap",
        _ => "a",
    }
}
