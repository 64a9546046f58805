//! A provisional form of profiles on disk: the same two functions over gzipped
//! JSON. The pprof reader and writer takes the place of this file.

use super::{Builder, Frame, Header, Owner, Profile, Sample, Thread, Weight, Work};
use crate::record::{Fault, FaultKind};
use flate2::Compression;
use flate2::read::GzDecoder;
use flate2::write::GzEncoder;
use serde_json::{Value, json};
use std::io::{self, BufRead, Read, Write};

/// Most bytes of a profile after decompression.
const LARGEST: u64 = 1 << 30;

/// Writes a profile.
pub fn write(profile: &Profile, out: &mut dyn Write) -> io::Result<()> {
    let h = &profile.header;
    let frames: Vec<Value> = profile
        .frames()
        .iter()
        .map(|f| json!([f.function, f.module, f.build_id, f.file, f.kind as u8, f.inlined]))
        .collect();
    let threads: Vec<Value> =
        profile.threads().iter().map(|t| json!([t.name, t.pid, t.tid])).collect();
    let samples: Vec<Value> = profile
        .samples()
        .iter()
        .map(|s| {
            let stack: Vec<u32> = profile.stack(s.stack).iter().map(|f| f.0).collect();
            json!([stack, s.thread.0, s.owner.name(), s.cpu, s.time, s.count, s.weight])
        })
        .collect();
    let value = json!({
        "title": h.title, "event": h.event, "weight": h.weight as u8, "period": h.period,
        "seconds": h.seconds, "cpus": h.cpus, "lost": h.lost, "bytes": h.work.bytes,
        "packets": h.work.packets, "notes": h.notes,
        "frames": frames, "threads": threads, "samples": samples,
    });
    let mut encoder = GzEncoder::new(out, Compression::default());
    serde_json::to_writer(&mut encoder, &value)?;
    encoder.finish()?;
    Ok(())
}

/// Reads a profile; `title` names its source in errors.
pub fn read(title: &str, input: &mut dyn BufRead) -> Result<Profile, Fault> {
    let wrong = |what: &str| Fault::new(FaultKind::Storage, format!("{title}: {what}"));
    let mut text = String::new();
    let read = GzDecoder::new(input).take(LARGEST).read_to_string(&mut text);
    read.map_err(|e| wrong(&e.to_string()))?;
    let v: Value = serde_json::from_str(&text).map_err(|e| wrong(&e.to_string()))?;
    let text = |v: &Value| v.as_str().unwrap_or_default().to_owned();
    let whole = |v: &Value| v.as_u64().unwrap_or_default() as u32;
    let list = |key: &str| v[key].as_array().cloned().unwrap_or_default();
    let mut builder = Builder::new(Header {
        title: text(&v["title"]),
        event: text(&v["event"]),
        weight: match v["weight"].as_u64() {
            Some(0) => Weight::Nanoseconds,
            Some(1) => Weight::Events,
            Some(3) => Weight::Percent,
            _ => Weight::Samples,
        },
        period: v["period"].as_f64(),
        seconds: v["seconds"].as_f64(),
        cpus: v["cpus"].as_u64().map(|n| n as u32),
        lost: v["lost"].as_u64().unwrap_or_default(),
        work: Work { bytes: v["bytes"].as_f64(), packets: v["packets"].as_f64() },
        notes: list("notes").iter().map(text).collect(),
    });
    let frames: Vec<_> = list("frames")
        .iter()
        .map(|f| {
            builder.frame(Frame {
                function: text(&f[0]),
                module: text(&f[1]),
                build_id: text(&f[2]),
                file: text(&f[3]),
                kind: match f[4].as_u64() {
                    Some(0) => super::FrameKind::Kernel,
                    Some(1) => super::FrameKind::User,
                    _ => super::FrameKind::Unknown,
                },
                inlined: f[5].as_bool().unwrap_or_default(),
            })
        })
        .collect();
    let threads: Vec<_> = list("threads")
        .iter()
        .map(|t| builder.thread(Thread { name: text(&t[0]), pid: whole(&t[1]), tid: whole(&t[2]) }))
        .collect();
    for s in list("samples") {
        let stack = s[0].as_array().cloned().unwrap_or_default();
        let stack: Option<Vec<_>> =
            stack.iter().map(|f| frames.get(whole(f) as usize).copied()).collect();
        let thread = threads.get(whole(&s[1]) as usize).copied();
        let (Some(stack), Some(thread)) = (stack, thread) else {
            return Err(wrong("a sample names what is not there"));
        };
        let stack = builder.stack(&stack);
        builder.add(Sample {
            stack,
            thread,
            owner: s[2].as_str().and_then(Owner::parse).unwrap_or_default(),
            cpu: s[3].as_u64().map(|cpu| cpu as u32),
            time: s[4].as_f64(),
            count: s[5].as_u64().unwrap_or_default(),
            weight: s[6].as_f64().unwrap_or_default(),
        });
    }
    Ok(builder.build())
}
