//! Checks of a perf.data file before it is handed to the crate that reads it: every size in it must
//! be within the file, because the crate allocates memory by the sizes that the file states.

use linux_perf_data::linux_perf_event_reader::Endianness;

/// How the file was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Shape {
    /// To a file: a header with sections, features at the end.
    File,
    /// To a pipe: a header of 16 bytes, then records only.
    Pipe,
}

/// Bytes, read from the front.
#[derive(Clone, Copy)]
pub(super) struct Bytes<'a> {
    rest: &'a [u8],
    endian: Endianness,
}

impl<'a> Bytes<'a> {
    pub(super) fn new(bytes: &'a [u8], endian: Endianness) -> Self {
        Bytes { rest: bytes, endian }
    }

    pub(super) fn endian(&self) -> Endianness {
        self.endian
    }

    pub(super) fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.rest.split_at_checked(count)?;
        self.rest = rest;
        Some(taken)
    }

    /// Returns the next bytes, the least significant first.
    fn number<const SIZE: usize>(&mut self) -> Option<[u8; SIZE]> {
        let mut bytes: [u8; SIZE] = self.take(SIZE)?.try_into().ok()?;
        if self.endian == Endianness::BigEndian {
            bytes.reverse();
        }
        Some(bytes)
    }

    pub(super) fn u16(&mut self) -> Option<u16> {
        self.number().map(u16::from_le_bytes)
    }

    pub(super) fn u32(&mut self) -> Option<u32> {
        self.number().map(u32::from_le_bytes)
    }

    pub(super) fn u64(&mut self) -> Option<u64> {
        self.number().map(u64::from_le_bytes)
    }

    /// Returns the text up to the first zero byte.
    pub(super) fn text(&self) -> &'a [u8] {
        let end = memchr::memchr(0, self.rest).unwrap_or(self.rest.len());
        self.rest.get(..end).unwrap_or_default()
    }
}

/// Feature bits of the header (`HEADER_*` in `tools/perf/util/header.h`).
const EVENT_DESC: u64 = 12;
/// Set in files of Android's simpleperf.
const SIMPLEPERF_META_INFO: u64 = 129;
/// Record types beyond the kernel's (`tools/lib/perf/include/perf/event.h`).
const AUXTRACE: u32 = 71;
const HEADER_FEATURE: u32 = 80;
const COMPRESSED: u32 = 81;
const COMPRESSED2: u32 = 83;

/// From the size of the first published `perf_event_attr` to more than that of any later one.
const ATTRIBUTE: std::ops::RangeInclusive<u64> = 64..=4096;

/// Checks every size; the error describes the problem.
pub(super) fn check(file: &[u8]) -> Result<Shape, String> {
    let endian = match file.get(..8) {
        Some(b"PERFILE2") => Endianness::LittleEndian,
        Some(b"2ELIFREP") => Endianness::BigEndian,
        _ => return Err("it does not begin with PERFILE2".into()),
    };
    let short = || "its header is torn".to_owned();
    let mut bytes = Bytes::new(file, endian);
    bytes.take(8).ok_or_else(short)?;
    if bytes.u64().ok_or_else(short)? == 16 {
        records(Bytes::new(file.get(16..).unwrap_or_default(), endian))?;
        return Ok(Shape::Pipe);
    }
    let attribute = bytes.u64().ok_or_else(short)?;
    let outside = |what: &str| format!("its {what} reaches beyond its end");
    let mut section = |what: &str| {
        let (offset, size) = bytes.u64().zip(bytes.u64()).ok_or_else(short)?;
        slice(file, offset, size).map(|slice| (offset, slice)).ok_or_else(|| outside(what))
    };
    let (_, attributes) = section("list of events")?;
    let (at, data) = section("data")?;
    let (_, types) = section("list of types")?;
    if !ATTRIBUTE.contains(&attribute) || attributes.is_empty() {
        return Err("it has no list of events".into());
    }
    let mut features = Vec::new();
    for word in 0..4 {
        let bits = bytes.u64().ok_or_else(short)?;
        features.extend((0..64).filter(|bit| bits >> bit & 1 == 1).map(|bit| word * 64 + bit));
    }
    let table = at.checked_add(data.len() as u64).ok_or_else(|| outside("data"))?;
    let table = slice(file, table, features.len() as u64 * 16)
        .ok_or_else(|| outside("table of features"))?;
    let mut table = Bytes::new(table, endian);
    let mut described = false;
    for feature in features {
        let (offset, size) = (table.u64().ok_or_else(short)?, table.u64().ok_or_else(short)?);
        let content = slice(file, offset, size).ok_or_else(|| outside("features"))?;
        match feature {
            EVENT_DESC => {
                events(Bytes::new(content, endian)).ok_or("its description of events is torn")?;
                described = true;
            }
            SIMPLEPERF_META_INFO => return Err("it is from simpleperf, not from perf".into()),
            _ => {}
        }
    }
    if !types.is_empty() && !described {
        return Err("it is from a perf older than Linux 3.0".into());
    }
    records(Bytes::new(data, endian))?;
    Ok(Shape::File)
}

/// Returns the bytes of a section.
fn slice(file: &[u8], offset: u64, size: u64) -> Option<&[u8]> {
    let begin = usize::try_from(offset).ok()?;
    let end = begin.checked_add(usize::try_from(size).ok()?)?;
    // An empty section may have any offset.
    if size == 0 { Some(&[]) } else { file.get(begin..end) }
}

/// Checks `HEADER_EVENT_DESC`: numbers of events and ids, and lengths of names.
fn events(mut bytes: Bytes<'_>) -> Option<()> {
    let (count, size) = (bytes.u32()?, bytes.u32()?);
    let all = u64::from(count) * u64::from(size);
    if !ATTRIBUTE.contains(&u64::from(size)) || all > bytes.rest.len() as u64 {
        return None;
    }
    for _ in 0..count {
        let mut attribute = Bytes::new(bytes.take(usize::try_from(size).ok()?)?, bytes.endian);
        attribute.u32()?;
        if attribute.u32()? > size {
            return None;
        }
        let (ids, name) = (bytes.u32()?, bytes.u32()?);
        bytes.take(usize::try_from(name).ok()?)?;
        bytes.take(usize::try_from(u64::from(ids).checked_mul(8)?).ok()?)?;
    }
    Some(())
}

/// Checks all records in sequence.
fn records(mut bytes: Bytes<'_>) -> Result<(), String> {
    let torn = || "a record is torn".to_owned();
    while !bytes.rest.is_empty() {
        let (kind, _) = (bytes.u32().ok_or_else(torn)?, bytes.u16().ok_or_else(torn)?);
        let size = usize::from(bytes.u16().ok_or_else(torn)?);
        let body = size.checked_sub(8).and_then(|body| bytes.take(body)).ok_or_else(torn)?;
        let mut body = Bytes::new(body, bytes.endian);
        match kind {
            AUXTRACE => {
                let size = body.u64().and_then(|size| usize::try_from(size).ok());
                size.and_then(|size| bytes.take(size)).ok_or_else(torn)?;
            }
            HEADER_FEATURE if body.u64() == Some(EVENT_DESC) => {
                events(body).ok_or("its description of events is torn")?;
            }
            COMPRESSED | COMPRESSED2 => return Err("its records are compressed".into()),
            _ => {}
        }
    }
    Ok(())
}
