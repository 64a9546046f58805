//! Every engine copies every byte, in order, with several in flight; and the DSA driver handles
//! every status in the kernel's header.

use super::dsa::status;
use super::dsa_model::{self, InjectedFault, Settings};
use super::trial::{Load, memories, on_cpu, run};
use super::*;
use bytepath_record::{Fault, FaultKind, OptionSpec, Options};
use bytepath_sys::idxd::{BATCH, MEMMOVE, Record};
use bytepath_sys::thread;
use std::sync::mpsc::channel;
use std::time::Duration;

/// An engine's options at their defaults, except for these.
pub(super) fn options(kind: &EngineKind, given: &[(&str, &str)]) -> Options {
    let value = |spec: &OptionSpec| {
        let typed = given.iter().find(|(name, _)| *name == spec.name).map(|(_, value)| *value);
        spec.kind.parse(typed.unwrap_or(spec.default)).unwrap()
    };
    Options(kind.options.iter().map(|spec| (spec.name.to_owned(), value(spec))).collect())
}

pub(super) fn kind(name: &str) -> &'static EngineKind {
    let mut all = CATALOG.iter().copied().chain([&dsa_model::KIND]);
    all.find(|kind| kind.name == name).unwrap()
}

/// Engines that run on every machine, and their options.
pub(super) const PORTABLE_ENGINES: [(&str, &[(&str, &str)]); 9] = [
    ("cpu", &[]),
    ("cpu", &[("method", "best")]),
    ("cpu", &[("method", "rep-movsb")]),
    ("cpu", &[("method", "non-temporal")]),
    ("thread", &[]),
    ("dsa-model", &[("latency", "0")]),
    ("dsa-model", &[("fault-every", "3"), ("queues", "3")]),
    ("dsa-model", &[("shared", "on"), ("size", "2")]),
    ("dsa-model", &[("size", "3")]),
];

#[test]
fn every_engine_copies_with_several_in_flight() {
    for (name, given) in PORTABLE_ENGINES {
        for (depth, batch, size) in [(1, 1, 1), (7, 1, 65), (8, 4, 5000), (8, 8, 64)] {
            let shape = Shape { depth, batch };
            let time = Duration::from_millis(2);
            let load = Load { size, shape, rotate: false, time };
            let memories = memories(&[load]).unwrap();
            let kind = kind(name);
            let found = run((kind, &options(kind, given)), &memories, &load);
            let found = found.unwrap_or_else(|e| panic!("{name} {given:?} {load:?}: {e}"));
            assert!(found.copies > 0 && found.polls > 0, "{name} {given:?} {load:?}");
            assert!(found.latency >= 0.0 && found.seconds > 0.0);
            let faults = given.contains(&("fault-every", "3"));
            assert!(found.events.faults == 0 || faults, "{found:?}");
        }
    }
}

#[test]
fn dropped_engine_completes_copies() {
    let kind = kind("thread");
    let shape = Shape { depth: 4, batch: 4 };
    let size = 64;
    let load = Load { size, shape, rotate: false, time: Duration::ZERO };
    let memories = memories(&[load]).unwrap();
    let read = |memory: usize| {
        let mut bytes = [0; 64];
        memories[memory].read(0, &mut bytes);
        bytes
    };
    let [one, other] = [0, 1].map(|memory| Place { memory, at: 0 });
    for round in 0..2000_u64 {
        let mut engine = (kind.open)(&memories, shape, &options(kind, &[])).unwrap();
        // It is polling for more work when it is dropped.
        memories[1].write(0, &round.to_le_bytes());
        assert!(engine.submit(&Copy { from: one, to: other, len: size }).unwrap());
        drop(engine);
        assert_eq!(read(1), read(0), "round {round}");
    }
}

/// An engine that copies nothing is detected.
#[test]
fn detects_missing_copy() {
    static LIAR: EngineKind = EngineKind {
        name: "liar",
        summary: "says that it copied",
        options: &[],
        open: |_, _, _| Ok(Box::new(Liar(0))),
    };
    struct Liar(u64);
    impl Engine for Liar {
        fn submit(&mut self, _: &Copy) -> Result<bool, Fault> {
            self.0 += 1;
            Ok(true)
        }
        fn poll(&mut self) -> Result<u64, Fault> {
            Ok(self.0)
        }
    }
    let shape = Shape { depth: 2, batch: 1 };
    let load = Load { size: 100, shape, rotate: false, time: Duration::ZERO };
    let memories = memories(&[load]).unwrap();
    let fault = run((&LIAR, &Options::default()), &memories, &load).unwrap_err();
    assert_eq!(fault.kind, FaultKind::Corrupt);
    assert!(fault.message.contains("copy 0 of 100 bytes differs"), "{fault}");
}

/// The time of a submission is part of a copy's time in flight.
#[test]
fn latency_begins_before_the_submission() {
    const TAKES: Duration = Duration::from_millis(2);
    static SLOW: EngineKind = EngineKind {
        name: "slow",
        summary: "copies within a slow submission",
        options: &[],
        open: |memories, _, _| Ok(Box::new(Slow(memories.clone(), 0))),
    };
    struct Slow(Memories, u64);
    impl Engine for Slow {
        fn submit(&mut self, copy: &Copy) -> Result<bool, Fault> {
            std::thread::sleep(TAKES);
            let [from, to] = [copy.from, copy.to].map(|place| place.of(&self.0));
            bytepath_sys::copying::Method::Memmove.copy(from, to, copy.len as usize);
            self.1 += 1;
            Ok(true)
        }
        fn poll(&mut self) -> Result<u64, Fault> {
            Ok(self.1)
        }
    }
    for depth in [1, 3] {
        let shape = Shape { depth, batch: 1 };
        let load = Load { size: 64, shape, rotate: false, time: Duration::from_millis(20) };
        let memories = memories(&[load]).unwrap();
        let found = run((&SLOW, &Options::default()), &memories, &load).unwrap();
        // In a burst, the last copy waits only for its own submission, the first for all.
        let least = TAKES.as_secs_f64() * (depth + 1) as f64 / 2.0;
        assert!(found.latency >= least * 0.99, "{depth}: {} of {least}", found.latency);
        assert!(found.submitting >= 0.99 * TAKES.as_secs_f64() * found.copies as f64, "{found:?}");
    }
}

/// Makes `count` copies of `size` bytes with the model, all in flight together. Returns the
/// memories, how many were completed or the fault, and the events.
fn copied(
    settings: &Settings,
    (count, size): (u64, u32),
    batch: usize,
) -> (Memories, Result<u64, Fault>, Events) {
    let shape = Shape { depth: count as usize, batch };
    let load = Load { size, shape, rotate: false, time: Duration::ZERO };
    let memories = memories(&[load]).unwrap();
    let mut engine = dsa_model::open(&memories, shape, settings).unwrap();
    let stride = size.next_multiple_of(64) as usize;
    for number in 0..count {
        let place = |memory| Place { memory, at: number as usize * stride };
        let copy = Copy { from: place(0), to: place(1), len: size };
        assert!(engine.submit(&copy).unwrap(), "there is room for all");
    }
    engine.flush().unwrap();
    let mut last = 0;
    let done = loop {
        match engine.poll() {
            Ok(done) if done < last => panic!("{done} after {last}"),
            Ok(done) if done == count => break Ok(done),
            Ok(done) => last = done,
            Err(fault) => break Err(fault),
        }
        std::thread::yield_now();
    };
    let events = engine.events();
    drop(engine);
    (memories, done, events)
}

/// Returns which copies arrived.
fn arrived(memories: &Memories, count: u64, size: u32) -> Vec<bool> {
    let stride = size.next_multiple_of(64) as usize;
    let bytes = |memory: usize, number: u64| {
        let mut bytes = vec![0; size as usize];
        memories[memory].read(number as usize * stride, &mut bytes);
        bytes
    };
    (0..count).map(|number| bytes(0, number) == bytes(1, number)).collect()
}

fn injected(operation: u8, number: u64, status: u8, completed: u32) -> Settings {
    let record = Some(Record { status, completed, ..Record::default() });
    Settings { faults: vec![InjectedFault { operation, number, record }], ..Settings::default() }
}

#[test]
fn cpu_finishes_page_faults() {
    for (status, completed, result) in [
        (status::PAGE_FAULT, 0, 0),
        (status::PAGE_FAULT | status::WRITE, 77, 0),
        (status::PAGE_FAULT_UNANSWERED, 4096, 0),
        // Backwards, as a device may copy overlapping buffers.
        (status::PAGE_FAULT, 77, 1),
    ] {
        let record = Some(Record { status, completed, result, fault: 0x1000 });
        for batch in [1, 4] {
            let faults = vec![InjectedFault { operation: MEMMOVE, number: 2, record }];
            let settings = Settings { faults, ..Settings::default() };
            let (memories, done, events) = copied(&settings, (8, 5000), batch);
            assert_eq!(done, Ok(8), "{status:#x} {batch}");
            assert_eq!(arrived(&memories, 8, 5000), [true; 8], "{status:#x} {batch}");
            assert_eq!((events.faults, events.by_cpu), (1, 5000 - u64::from(completed)));
            assert_eq!(events.batches, if batch == 4 { 2 } else { 0 });
        }
    }
}

#[test]
fn cpu_copies_unread_batch() {
    let settings = injected(BATCH, 0, status::BATCH_PAGE_FAULT, 3);
    let (memories, done, events) = copied(&settings, (8, 300), 8);
    assert_eq!((done, arrived(&memories, 8, 300)), (Ok(8), vec![true; 8]));
    assert_eq!((events.faults, events.by_cpu), (5, 5 * 300));
}

/// Every status of `enum dsa_completion_status`.
pub(super) fn header() -> impl Iterator<Item = u8> {
    (0x01..=0x09).chain(0x10..=0x22).chain([0x26, 0x27])
}

/// Statuses of an operation that the driver handles.
pub(super) fn dealt_with(operation: u8) -> &'static [u8] {
    match operation {
        MEMMOVE => &[status::SUCCESS, status::PAGE_FAULT, status::PAGE_FAULT_UNANSWERED],
        _ => &[status::SUCCESS, status::BATCH_FAILED, status::BATCH_PAGE_FAULT],
    }
}

/// Each status in the header, of a copy and of a batch, is either handled by the driver or an error
/// with a specific message.
#[test]
fn handles_every_completion_status() {
    let header: Vec<u8> = header().collect();
    for operation in [MEMMOVE, BATCH] {
        for code in header.iter().copied().filter(|code| !dealt_with(operation).contains(code)) {
            let (memories, done, _) = copied(&injected(operation, 0, code, 0), (4, 100), 4);
            let fault = done.unwrap_err();
            let what = if operation == MEMMOVE { "a copy" } else { "a batch" };
            assert_eq!(fault.kind, FaultKind::System);
            assert!(fault.message.starts_with(&format!("the device refused {what}: ")), "{fault}");
            assert!(fault.message.ends_with(&format!("({code:#04x})")), "{fault}");
            assert!(!fault.message.contains("does not name"), "{fault}");
            assert!(!arrived(&memories, 4, 100)[0], "{code:#x}");
        }
    }
    let known: Vec<u8> = status::ERRORS.iter().map(|(code, _)| *code).collect();
    assert!(header.iter().all(|code| (0x01..=0x06).contains(code) || known.contains(code)));
    let (_, done, _) = copied(&injected(MEMMOVE, 0, 0x3f, 0), (4, 100), 1);
    assert!(done.unwrap_err().message.contains("does not name"));
    let (_, done, _) = copied(&injected(MEMMOVE, 0, status::PAGE_FAULT, 101), (4, 100), 1);
    assert!(done.unwrap_err().message.contains("more than it has"));
}

#[test]
fn failed_batch_reports_its_copies() {
    let mut settings = injected(BATCH, 0, status::BATCH_FAILED, 4);
    let (memories, done, _) = copied(&settings, (4, 100), 4);
    assert_eq!((done, arrived(&memories, 4, 100)), (Ok(4), vec![true; 4]));
    let record = Some(Record { status: 0x20, ..Record::default() });
    settings.faults.push(InjectedFault { operation: MEMMOVE, number: 1, record });
    let (_, done, _) = copied(&settings, (4, 100), 4);
    assert!(done.unwrap_err().message.contains("a copy: a hardware error while reading"));
}

#[test]
fn respects_queue_limits() {
    let settings = Settings { longest: 99, ..Settings::default() };
    let memories = Memories::from([(); 2].map(|()| Memory::new(4096).unwrap()));
    let shape = Shape { depth: 4, batch: 1 };
    let mut engine = dsa_model::open(&memories, shape, &settings).unwrap();
    let place = |memory| Place { memory, at: 0 };
    let mut submit = |len| engine.submit(&Copy { from: place(0), to: place(1), len });
    assert!(submit(100).unwrap_err().message.contains("outside 1 to 99"));
    assert!(submit(0).is_err());
    let mut taken = 0;
    while submit(99).unwrap() {
        taken += 1;
    }
    assert_eq!(taken, 4, "the depth");
}

/// The device itself refuses a list that is too long for it.
#[test]
fn model_refuses_long_batches() {
    let settings = Settings { batch: 3, ..Settings::default() };
    let (_, done, _) = copied(&settings, (4, 100), 4);
    assert!(done.unwrap_err().message.ends_with("(0x14)"));
}

#[test]
fn retries_full_shared_queue() {
    let settings = Settings {
        shared: true,
        size: 1,
        latency: Duration::from_micros(50),
        ..Settings::default()
    };
    let (memories, done, events) = copied(&settings, (64, 4096), 1);
    assert_eq!((done, arrived(&memories, 64, 4096)), (Ok(64), vec![true; 64]));
    assert!(events.retries > 0, "{events:?}");
}

/// The record is never written, as if its address could not be translated.
#[test]
fn silent_device_times_out() {
    let faults = vec![InjectedFault { operation: MEMMOVE, number: 1, record: None }];
    let timeout = Duration::from_millis(50);
    let settings = Settings { faults, timeout, ..Settings::default() };
    let (memories, done, _) = copied(&settings, (3, 100), 1);
    assert!(done.unwrap_err().message.contains("completed nothing for 0.05 s"));
    assert_eq!(arrived(&memories, 3, 100), [true, false, true]);
}

#[test]
fn refuses_unavailable_options() {
    let memories = Memories::from([Memory::new(4096).unwrap()]);
    let shape = Shape { depth: 1, batch: 1 };
    let dsa = kind("dsa");
    let given = options(dsa, &[("queues", "wq99.99")]);
    let refused = (dsa.open)(&memories, shape, &given).err().unwrap();
    assert_eq!(refused.kind, FaultKind::Unsupported);
    assert_eq!(refused.message, "there is no work queue wq99.99");
    let thread = kind("thread");
    let refused = (thread.open)(&memories, shape, &options(thread, &[("cpu", "4095")])).err();
    assert!(refused.unwrap().message.contains("cannot pin the helper"));
}

/// Also on a thread other than the process's first, from whose CPUs the helper chooses.
#[test]
fn helper_avoids_callers_cpu() {
    let all = thread::allowed().unwrap();
    let Some((first, others)) = all.split_first().filter(|(_, others)| !others.is_empty()) else {
        return bytepath_testing::skip!("a single CPU");
    };
    let seen = on_cpu(Some(*first), || {
        let (say, said) = channel();
        helper("looks", None, move || drop(say.send(thread::allowed())))?.join().unwrap();
        Ok((thread::allowed().unwrap(), said.recv().unwrap().unwrap()))
    });
    assert_eq!(seen.unwrap(), (vec![*first], others.to_vec()));
}

#[test]
fn queues_are_described_as_their_device_does() {
    let folder = tempfile::tempdir().unwrap();
    let queue = folder.path().join("bus/dsa/devices/wq0.0");
    std::fs::create_dir_all(&queue).unwrap();
    for (file, text) in [
        ("state", "enabled"),
        ("type", "user"),
        ("mode", "dedicated"),
        ("size", "128"),
        ("max_batch_size", "1024"),
        ("max_transfer_size", "2147483648"),
    ] {
        std::fs::write(queue.join(file), text).unwrap();
    }
    let roots = bytepath_sys::Roots { sys: folder.path().into(), ..bytepath_sys::Roots::real() };
    let facts = super::dsa::chosen(&roots, "auto").unwrap();
    let said: Vec<String> = facts.iter().map(ToString::to_string).collect();
    let expected = "wq0.0 is dedicated, of 128 places; batches of up to 1024, copies of up to 2G";
    assert_eq!(said, [expected]);
}
