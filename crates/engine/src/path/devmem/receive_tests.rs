//! The receiving engine against a fake kernel and NIC: whole streams
//! run through the same loop that runs on a connection.

use super::area::Area;
use super::receive::{Live, Receiver, Receiving};
use crate::connection::Flow;
use crate::workload::{
    Account, Detail, Gate, Job, Pattern, Phase, Progress, Recorder, Rx, TallyEnd,
};
use bytepath_record::{Cell, Fault, FaultKind, Half, OptionValue, Role, Touch};
use bytepath_sys::devmem::{Control, Fragment, Freer, Received, TokenRange, message};
use bytepath_sys::dmabuf::Rehearsal;
use bytepath_sys::tcp;
use proptest::prelude::*;
use std::collections::{BTreeSet, VecDeque};
use std::fs::File;
use std::io::{self, Write};
use std::os::unix::fs::FileExt;
use std::sync::{Arc, Mutex};

const PAGE: usize = 4096;
const DMABUF: u32 = 3;
const MESSAGE: u64 = 40_000;

#[derive(Clone, Debug)]
enum Arrival {
    /// A receive that brings pieces: true is device memory, false is linear.
    Pieces(Vec<(bool, u16)>),
    /// A receive without fragments.
    Ordinary(u16),
    Interrupted,
    /// Nothing comes for a while.
    Silence,
    /// An error of this number.
    Error(i32),
    /// What the kernel says, as it is: bytes, truncated, messages.
    Raw(usize, bool, Vec<Fragment>),
}

/// Plays NIC and kernel: writes the stream into free buffers, deals tokens out,
/// and takes them back, at most `most` a call.
struct Kernel {
    arrivals: VecDeque<Arrival>,
    memory: File,
    pattern: Pattern,
    /// Bytes of the stream so far.
    at: Arc<Mutex<u64>>,
    free: VecDeque<usize>,
    /// Tokens dealt out, with their buffers.
    out: Arc<Mutex<Vec<Option<usize>>>>,
    most: usize,
    calls: Arc<Mutex<Vec<u32>>>,
}

impl Kernel {
    fn deal(&mut self, buffer: usize) -> u32 {
        let mut out = self.out.lock().unwrap();
        // As xa_alloc: the lowest number that is free.
        let token = out.iter().position(Option::is_none).unwrap_or(out.len());
        if token == out.len() {
            out.push(None);
        }
        out[token] = Some(buffer);
        token as u32
    }

    fn bytes(&mut self, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        let mut at = self.at.lock().unwrap();
        self.pattern.fill(&mut bytes, *at);
        *at += len as u64;
        bytes
    }

    /// Brings pieces, as many as there are free buffers for.
    fn pieces(
        &mut self,
        pieces: &[(bool, u16)],
        linear: &mut [u8],
        control: &mut Control,
    ) -> io::Result<Received> {
        let mut messages = Vec::new();
        let (mut total, mut copied, mut taken) = (0, 0, 0);
        for (in_device, len) in pieces {
            let len = *len as usize;
            if total + len > linear.len() {
                break;
            }
            let fragment = if *in_device {
                let Some(buffer) = self.free.pop_front() else { break };
                let bytes = self.bytes(len);
                let offset = buffer * PAGE + (PAGE - len);
                self.memory.write_all_at(&bytes, offset as u64).unwrap();
                let token = self.deal(buffer);
                let (offset, len) = (offset as u64, len as u32);
                Fragment::Dmabuf { dmabuf: DMABUF, offset, len, token }
            } else {
                let bytes = self.bytes(len);
                linear[copied..copied + len].copy_from_slice(&bytes);
                copied += len;
                Fragment::Linear { len: len as u32 }
            };
            message::encode(&[fragment], &mut messages);
            total += len;
            taken += 1;
        }
        if taken < pieces.len() {
            // The rest comes with a later call, once buffers are free.
            self.arrivals.push_front(Arrival::Pieces(pieces[taken..].to_vec()));
        }
        if total == 0 {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        assert!(control.fill(&messages), "more fragments than there is room for");
        Ok(Received { bytes: total, truncated: false })
    }
}

impl Freer for Kernel {
    fn free(&mut self, ranges: &[TokenRange]) -> io::Result<usize> {
        let mut out = self.out.lock().unwrap();
        assert!(ranges.len() <= 128);
        let asked: u32 = ranges.iter().map(|range| range.count).sum();
        assert!(asked <= 1024, "{asked} fragments at once");
        self.calls.lock().unwrap().push(asked);
        let tokens = ranges.iter().flat_map(|range| range.start..range.start + range.count);
        let mut freed = 0;
        for token in tokens.take(self.most) {
            let buffer = out[token as usize].take().expect("freed twice, or never dealt out");
            // The device overwrites what is free: late reads see it.
            self.memory.write_all_at(&[0xee; PAGE], (buffer * PAGE) as u64).unwrap();
            self.free.push_back(buffer);
            freed += 1;
        }
        Ok(freed)
    }
}

impl Receiver for Kernel {
    fn receive(&mut self, linear: &mut [u8], control: &mut Control) -> io::Result<Received> {
        control.fill(&[]);
        let Some(arrival) = self.arrivals.pop_front() else {
            return Ok(Received { bytes: 0, truncated: false });
        };
        match arrival {
            Arrival::Interrupted => Err(io::ErrorKind::Interrupted.into()),
            Arrival::Silence => Err(io::ErrorKind::WouldBlock.into()),
            Arrival::Error(errno) => Err(io::Error::from_raw_os_error(errno)),
            Arrival::Ordinary(len) => {
                let bytes = self.bytes(len.into());
                linear[..bytes.len()].copy_from_slice(&bytes);
                Ok(Received { bytes: bytes.len(), truncated: false })
            }
            Arrival::Raw(bytes, truncated, fragments) => {
                let mut messages = Vec::new();
                message::encode(&fragments, &mut messages);
                control.fill(&messages);
                Ok(Received { bytes, truncated })
            }
            Arrival::Pieces(pieces) => self.pieces(&pieces, linear, control),
        }
    }

    fn prepare(&mut self) -> Result<(), Fault> {
        Ok(())
    }

    fn confirm_end(&self) -> Result<(), Fault> {
        Ok(())
    }

    fn fault(&self, call: &str, error: &io::Error) -> Fault {
        Fault::system(call, error)
    }
}

/// What a run came to.
struct Run {
    result: Result<Account, Fault>,
    tally: TallyEnd,
    /// Tokens that were dealt out and not returned.
    leaked: usize,
    /// Fragments asked back, call by call.
    calls: Vec<u32>,
    sent: u64,
}

struct Scene {
    arrivals: Vec<Arrival>,
    batch: Option<u64>,
    touch: Touch,
    /// The CPU can look at the memory.
    seen: bool,
    buffers: usize,
    /// Most tokens that the kernel frees with one call.
    most: usize,
}

impl Default for Scene {
    fn default() -> Self {
        let touch = Touch::Verify;
        Scene { arrivals: vec![], batch: None, touch, seen: true, buffers: 4096, most: 1024 }
    }
}

fn play(scene: Scene) -> Run {
    let memory = Rehearsal::new(scene.buffers * PAGE, scene.seen).unwrap();
    let (out, calls) = (Arc::<Mutex<Vec<_>>>::default(), Arc::<Mutex<Vec<_>>>::default());
    let sent = Arc::<Mutex<u64>>::default();
    let kernel = Kernel {
        arrivals: scene.arrivals.into(),
        memory: memory.file().unwrap(),
        pattern: Pattern::new(MESSAGE),
        at: sent.clone(),
        free: (0..scene.buffers).collect(),
        out: out.clone(),
        most: scene.most,
        calls: calls.clone(),
    };
    let mut cell = Cell::new("devmem", Half::plain("devmem"), Half::plain("devmem"));
    cell.stream.touch = scene.touch;
    cell.stream.message_size = MESSAGE;
    cell.stream.read_size = 8 << 20;
    let batch = scene.batch.map_or(OptionValue::Word("each".into()), OptionValue::Number);
    cell.rx.options.0.insert("recycle-batch".into(), batch);
    let area = Area::unbound(DMABUF, Box::new(memory));
    let mut engine = Receiving::new(kernel, area, &job(&cell)).unwrap();
    let gate = Arc::new(Gate::default());
    gate.set(Phase::Window);
    let progress = Arc::new(Progress::default());
    let mut recorder = Recorder::new(false, gate.clone(), progress, Detail::ALL);
    let result = run(&mut engine, &mut recorder);
    gate.set(Phase::Stop);
    let tally = recorder.finish(engine.calls());
    let leaked = out.lock().unwrap().iter().flatten().count();
    let calls = calls.lock().unwrap().clone();
    let sent = *sent.lock().unwrap();
    Run { result, tally, leaked, calls, sent }
}

fn job(cell: &Cell) -> Job {
    Job::stream(cell, Role::Receiver)
}

fn run<R: Receiver>(engine: &mut Receiving<R>, recorder: &mut Recorder) -> Result<Account, Fault> {
    engine.begin()?;
    engine.receive_to_end(recorder)?;
    engine.account(recorder)
}

fn pages(count: usize) -> Arrival {
    Arrival::Pieces(vec![(true, PAGE as u16); count])
}

/// The same loop on a real connection, with the real calls. Nothing is bound, so
/// all that the kernel can do is copy, and the ledger says so.
#[test]
fn on_a_connection_without_a_bound_queue_every_byte_is_copied() {
    const LEN: usize = 3_000_000;
    let (tx, rx) = tcp::loopback_pair().unwrap();
    let sender = std::thread::spawn(move || {
        let flow = Flow::tcp(tx, 0);
        let mut stream = vec![0; LEN];
        Pattern::new(MESSAGE).fill(&mut stream, 0);
        (&flow.socket).write_all(&stream).unwrap();
        flow.end_stream().unwrap();
    });
    let mut cell = Cell::new("devmem", Half::plain("devmem"), Half::plain("devmem"));
    cell.stream.touch = Touch::Verify;
    cell.stream.message_size = MESSAGE;
    let area = Area::unbound(DMABUF, Box::new(Rehearsal::new(PAGE, true).unwrap()));
    let live = Live(Flow::tcp(rx, 0));
    let mut engine = Receiving::new(live, area, &job(&cell)).unwrap();
    let mut recorder = Recorder::new(false, Arc::default(), Arc::default(), Detail::ALL);
    let account = run(&mut engine, &mut recorder).unwrap();
    sender.join().unwrap();
    assert_eq!((account.ledger.delivered, account.ledger.copied), (LEN as u64, LEN as u64));
    assert!(account.notes[0].contains("not steered to it"), "{:?}", account.notes);
}

#[test]
fn every_call_frees_its_own_fragments_where_nothing_is_gathered() {
    let run = play(Scene { arrivals: vec![pages(3), pages(600), pages(1)], ..Scene::default() });
    let account = run.result.unwrap();
    assert_eq!((run.leaked, run.calls), (0, vec![3, 600, 1]));
    assert_eq!(account.ledger.not_copied, 604 * PAGE as u64);
    assert_eq!((account.ledger.copied, account.notes), (0, vec![]));
    let counts = run.tally.fragments;
    assert_eq!((counts.calls, counts.fragments, counts.min, counts.max), (3, 604, 1, 600));
    assert_eq!((counts.below_512, counts.from_512_to_1024, counts.frees_avoided), (2, 1, 0));
}

#[test]
fn gathered_fragments_go_back_together_and_the_rest_at_the_end() {
    let arrivals = vec![pages(300), pages(300), pages(500), pages(300)];
    let run = play(Scene { arrivals, batch: Some(1024), ..Scene::default() });
    run.result.unwrap();
    // 1100 take two calls, and 300 are left for the end.
    assert_eq!((run.leaked, run.calls), (0, vec![1024, 76, 300]));
    let counts = run.tally.fragments;
    assert_eq!((counts.frees_avoided, counts.gathered_above_1024, counts.above_1024), (3, 1, 0));
    assert_eq!(counts.above_share_of_gathered(), Some(0.0));
}

#[test]
fn linear_fragments_and_ordinary_bytes_are_entered_as_copied() {
    let mixed = vec![(false, 100), (true, 4000), (false, 50), (true, 8)];
    let arrivals = vec![Arrival::Ordinary(33), Arrival::Pieces(mixed), Arrival::Interrupted];
    let run = play(Scene { arrivals, ..Scene::default() });
    let account = run.result.unwrap();
    assert_eq!((account.ledger.copied, account.ledger.not_copied), (183, 4008));
    let sources: Vec<(u64, u64)> =
        account.ledger.evidence.iter().map(|e| (e.bytes, e.events)).collect();
    assert_eq!(sources, [(4008, 2), (150, 2), (33, 1)]);
    assert!(account.notes[0].contains("150 bytes in 2 fragments"), "{:?}", account.notes);
    assert_eq!((run.tally.fragments.calls, run.leaked), (1, 0));
}

#[test]
fn a_batch_larger_than_the_area_ends_in_silence_and_not_in_a_deadlock() {
    let arrivals = vec![pages(100), pages(100), pages(100)];
    let run = play(Scene { arrivals, batch: Some(5000), buffers: 128, ..Scene::default() });
    let account = run.result.unwrap();
    assert_eq!(account.ledger.delivered, 300 * PAGE as u64);
    assert_eq!(run.leaked, 0);
    assert!(
        account.notes.iter().any(|n| n.contains("too large for the area")),
        "{:?}",
        account.notes
    );
}

#[test]
fn silence_with_nothing_held_is_just_silence() {
    let arrivals = vec![Arrival::Silence, pages(2), Arrival::Silence, Arrival::Silence];
    let run = play(Scene { arrivals, ..Scene::default() });
    assert_eq!((run.result.unwrap().notes, run.calls), (vec![], vec![2]));
}

#[test]
fn a_kernel_that_frees_fewer_is_asked_again() {
    let run = play(Scene { arrivals: vec![pages(1000)], most: 300, ..Scene::default() });
    let account = run.result.unwrap();
    assert_eq!((run.leaked, run.calls), (0, vec![1000, 700, 400, 100]));
    assert!(account.notes[0].contains("3 of 4 times the kernel freed fewer"), "{account:?}");
}

#[test]
fn a_kernel_that_frees_none_is_a_fault_and_no_endless_loop() {
    let run = play(Scene { arrivals: vec![pages(10)], most: 0, ..Scene::default() });
    let fault = run.result.unwrap_err();
    assert!(fault.message.contains("did not accept 10 returned fragments"), "{fault}");
}

#[test]
fn memory_out_of_the_cpus_reach_is_copied_to_be_verified_and_counted_apart() {
    let scene = || Scene { arrivals: vec![pages(7)], seen: false, ..Scene::default() };
    let account = play(scene()).result.unwrap();
    assert_eq!((account.ledger.copied, account.ledger.not_copied), (0, 7 * PAGE as u64));
    assert!(account.notes[0].contains("28672 bytes were copied out of device memory in 7 copies"));
    let untouched = play(Scene { touch: Touch::None, ..scene() }).result.unwrap();
    assert_eq!(untouched.notes, Vec::<String>::new());
}

#[test]
fn synchronising_is_a_call_like_the_others_where_the_cpu_looks() {
    let called = |touch, seen| {
        let scene = Scene { arrivals: vec![pages(3), pages(2)], touch, seen, ..Scene::default() };
        let calls = play(scene).tally.calls;
        calls
            .iter()
            .find(|(name, _)| name.contains("dma-buf sync"))
            .map_or(0, |(name, of)| of.row(name, 1.0).calls)
    };
    assert_eq!(called(Touch::Read, true), 4, "a begin and an end for each receive");
    assert_eq!(called(Touch::None, true), 0);
    assert_eq!(called(Touch::Read, false), 0, "memory that the CPU cannot look at");
}

#[test]
fn bytes_that_were_overwritten_are_found_out() {
    let wrong = Fragment::Dmabuf { dmabuf: DMABUF, offset: 0, len: 16, token: 0 };
    for seen in [true, false] {
        let arrivals = vec![Arrival::Raw(16, false, vec![wrong])];
        let run = play(Scene { arrivals, seen, ..Scene::default() });
        assert_eq!(run.result.unwrap_err().kind, FaultKind::Corrupt);
    }
}

#[test]
fn what_the_kernel_cannot_have_meant_is_a_fault_that_names_it() {
    let piece = |dmabuf, offset, len| Fragment::Dmabuf { dmabuf, offset, len, token: 0 };
    for (arrival, words) in [
        (Arrival::Raw(16, true, vec![]), "MSG_CTRUNC"),
        (Arrival::Raw(16, false, vec![piece(9, 0, 16)]), "dmabuf 9, but the bound one is 3"),
        (Arrival::Raw(16, false, vec![piece(3, u64::MAX, 16)]), "outside of its memory"),
        (Arrival::Raw(16, false, vec![piece(3, 4096 * 4096 - 15, 16)]), "outside of its memory"),
        (Arrival::Raw(16, false, vec![piece(3, 0, 15)]), "16 bytes and described 15"),
        (Arrival::Raw(16, false, vec![Fragment::Linear { len: 0 }]), "16 bytes and described 0"),
        (Arrival::Raw(16, false, vec![Fragment::Linear { len: u32::MAX }]), "outside"),
        (Arrival::Error(libc::EFAULT), "cannot describe"),
        (Arrival::Error(libc::ENODEV), "another program has bound"),
        (Arrival::Error(bytepath_sys::devmem::ETOOSMALL), "no room for one fragment"),
        (Arrival::Error(libc::ENOMEM), "no token left"),
        (Arrival::Error(libc::ECONNRESET), "recvmsg with MSG_SOCK_DEVMEM"),
    ] {
        let scene = Scene { arrivals: vec![arrival], touch: Touch::None, ..Scene::default() };
        let fault = play(scene).result.unwrap_err();
        assert!(fault.message.contains(words), "'{fault}' lacks '{words}'");
    }
}

#[test]
fn token_numbers_come_back_and_are_distinguished() {
    // The kernel deals the lowest free numbers out again, as soon as it may.
    let run = play(Scene { arrivals: (0..50).map(|_| pages(40)).collect(), ..Scene::default() });
    run.result.unwrap();
    let asked: BTreeSet<u32> = run.calls.into_iter().collect();
    assert_eq!((run.leaked, asked), (0, BTreeSet::from([40])));
}

fn arrival() -> impl Strategy<Value = Arrival> {
    let piece = (prop::bool::weighted(0.9), 1..=PAGE as u16);
    prop_oneof![
        8 => prop::collection::vec(piece, 1..200).prop_map(Arrival::Pieces),
        1 => (1..5000u16).prop_map(Arrival::Ordinary),
        1 => Just(Arrival::Interrupted),
        1 => Just(Arrival::Silence),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    /// Whatever the kernel does, short of lying: every byte is verified, every
    /// token goes back once, and the ledger is the stream.
    #[test]
    fn no_token_is_lost_and_no_byte(
        arrivals in prop::collection::vec(arrival(), 0..20),
        batch in prop::option::of(1u64..3000),
        most in 1usize..1500,
        buffers in 32usize..2000,
        seen in any::<bool>(),
    ) {
        let touch = Touch::Verify;
        let run = play(Scene { arrivals, batch, touch, seen, buffers, most });
        let account = run.result.unwrap();
        prop_assert_eq!(run.leaked, 0);
        prop_assert_eq!(account.ledger.delivered, run.sent);
        prop_assert_eq!(run.tally.total, run.sent);
        let counts = run.tally.fragments;
        prop_assert_eq!(
            counts.calls,
            counts.above_1024 + counts.from_512_to_1024 + counts.below_512
        );
    }
}
