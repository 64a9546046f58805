//! A user-space TCP whose copies are made by an engine: every engine of this machine, every way to
//! share the FIFO, and how failures end.

use crate::dsa_model;
use crate::isolated::isolated;
use crate::running::said;
use crate::testbed::unavailable;
use crate::userspace::{End, Lab, V4};
use bytepath::path;
use bytepath::record::{Cell, Half, OptionSpec, Options, Role, Scope, Touch, Trial, TrialStatus};
use bytepath::study::load;
use bytepath::workload::{Account, Detail, Gate, HalfConfig, Phase, Progress, Recorder, Toucher};
use bytepath_testing::{alone, shared};
use std::io::Read;
use std::process::Command;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

/// Runs paths towards a kernel's TCP that verifies every byte, and returns their trials without the
/// baseline's copy. On a busy machine a figure may have been rejected; the bytes and the ledger are
/// valid.
fn run(senders: &[&str], arguments: &[&str]) -> Vec<Trial> {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("study");
    let mut command = Command::new(env!("CARGO_BIN_EXE_bytepath"));
    command.arg("run").arg("--study").arg(&out);
    command.args(senders.iter().map(|sender| format!("--path={sender}+socket")));
    command.args(["--blocks=1", "--warm-up=100ms", "--window=300ms", "--design=trials"]);
    command.args(["--profile=none", "--cores=unpinned"]).args(arguments);
    let (code, _, stderr) = said(&mut command);
    assert_eq!(code, 0, "{senders:?} {arguments:?}: {stderr}");
    let study = load(&out).unwrap();
    let null = study.header.cells.iter().find(|cell| cell.null).unwrap().id.clone();
    study.trials.into_iter().filter(|trial| trial.cell != null).collect()
}

const VERIFIED: &str = "--stream=touch=verify";

/// Checks that the bytes of both ends agree, and that each is in the ledger.
fn is_sound(trial: &Trial) {
    match &trial.status {
        TrialStatus::Measured | TrialStatus::Rejected { .. } => {}
        other => panic!("{}: {other:?}", trial.cell),
    }
    assert_eq!(trial.label, "copied", "{}", trial.cell);
    let [sender, receiver] = trial.roles.as_slice() else { panic!("two roles") };
    assert_eq!(sender.total_bytes, receiver.total_bytes, "{}", trial.cell);
    assert_eq!(sender.ledger.copied, sender.total_bytes, "{}", trial.cell);
    assert!(sender.total_bytes > 0, "{}: nothing moved", trial.cell);
}

fn reading(trial: &Trial, name: &str) -> f64 {
    let of_sender = Scope::Flow(Role::Sender, 0);
    trial.reading(name, &of_sender).unwrap_or_else(|| panic!("{}: no {name}", trial.cell))
}

#[test]
fn every_engine_copies_every_byte_with_any_writer() {
    if unavailable() {
        return;
    }
    let _shared = shared();
    let engines = ["cpu:method=best", "thread"];
    for writer in ["same", "thread", "lock-free"] {
        let paths = engines.map(|engine| {
            format!(
                "userspace:copy=\"{engine}\",writer={writer},copy-batch=2,fifo=100000,rotate=1M"
            )
        });
        let paths = paths.each_ref().map(String::as_str);
        for trial in run(&paths, &["--stream=touch=verify,message-size=70000"]) {
            is_sound(&trial);
            let (attempts, refused) =
                (reading(&trial, "copy.attempts"), reading(&trial, "copy.refused"));
            assert!(attempts > refused, "{}: {attempts} {refused}", trial.cell);
            let each = trial.roles[0].total_bytes as f64 / reading(&trial, "copy.copies");
            assert!((1.0..=70_000.0).contains(&each), "{}: {each}", trial.cell);
            // Both rates cover the same time, and the copied bytes are those of the ledger.
            let of_rates = reading(&trial, "copy.rate") / reading(&trial, "copy.made");
            assert!((of_rates / each - 1.0).abs() < 0.01, "{}: {of_rates} {each}", trial.cell);
            assert!(reading(&trial, "copy.time") > 0.0 && reading(&trial, "copy.polls") > 0.0);
            let names = || trial.roles[0].threads.iter().map(|thread| thread.name.as_str());
            assert_eq!(names().any(|name| name == "sender/0 stack"), writer != "same");
            let cell = &trial.cell.0;
            assert_eq!(names().any(|name| name == "sender/0 copy"), cell.contains("copy=thread"));
            assert_eq!(reading(&trial, "copy.faults"), 0.0, "{cell}");
        }
    }
}

/// The DSA driver on a software device, which is not among the program's engines.
#[test]
fn a_device_copies_every_byte_with_any_writer() {
    isolated(module_path!(), "inside_a_device");
}

#[test]
#[ignore = "started in a namespace by a_device_copies_every_byte_with_any_writer"]
fn inside_a_device() {
    let lab = Lab::new();
    for writer in ["same", "thread", "lock-free"] {
        for device in [&[][..], &[("fault-every", "3"), ("shared", "on")]] {
            let account =
                stream_by_a_device(&lab, writer, &options(dsa_model::KIND.options, device));
            let of = |name: &str| {
                let reading = account.readings.iter().find(|reading| reading.metric == name);
                reading.unwrap_or_else(|| panic!("no {name}")).value
            };
            let case = format!("{writer} {device:?}");
            assert!(of("copy.attempts") > of("copy.refused"), "{case}");
            let each = account.ledger.copied as f64 / of("copy.copies");
            assert!((1.0..=70_000.0).contains(&each), "{case}: {each}");
            assert!(of("copy.time") > 0.0 && of("copy.polls") > 0.0, "{case}");
            assert_eq!(of("copy.faults") > 0.0, !device.is_empty(), "{case}");
        }
    }
}

/// Sends a stream to a kernel's TCP, which verifies every byte; returns the sender's account.
fn stream_by_a_device(lab: &Lab, writer: &str, device: &Options) -> Account {
    let [ours, theirs] = lab.connect(V4, false, &End::new(&[]));
    let given = [
        ("copy", "dsa-model"),
        ("writer", writer),
        ("copy-batch", "2"),
        ("fifo", "100000"),
        ("rotate", "1M"),
    ];
    let userspace = path::find(path::CATALOG, "userspace").unwrap();
    let mut cell = Cell::new("test", Half::plain("userspace"), Half::plain("socket"));
    cell.tx.options = options(userspace.tx.unwrap().options, &given);
    cell.stream.message_size = 70_000;
    let job = HalfConfig::stream(&cell, Role::Sender);
    let mut tx = path::offloaded(&job, &*ours, (&dsa_model::KIND, device)).unwrap();
    let gate = Arc::new(Gate::default());
    let mut recorder =
        Recorder::new(true, gate.clone(), Arc::new(Progress::default()), Detail::ALL);
    let (account, received) = thread::scope(|scope| {
        let received = scope.spawn(|| {
            let flow = theirs.kernel().unwrap();
            let mut toucher = Toucher::new(Touch::Verify, job.message_size);
            let (mut buffer, mut received) = (vec![0; 1 << 16], 0);
            loop {
                let bytes = (&*flow.socket).read(&mut buffer).unwrap();
                if bytes == 0 {
                    return received;
                }
                toucher.take(&buffer[..bytes]).unwrap();
                received += bytes as u64;
            }
        });
        scope.spawn(|| {
            thread::sleep(Duration::from_millis(300));
            gate.set(Phase::Stop);
        });
        tx.begin().unwrap();
        tx.send_until_stop(&mut recorder).unwrap();
        ours.end_stream().unwrap();
        (tx.account(&mut recorder).unwrap(), received.join().unwrap())
    });
    assert!(received > 0, "{writer}: nothing moved");
    assert_eq!((account.ledger.copied, account.ledger.delivered), (received, received), "{writer}");
    account
}

/// The declared options, with the `given` values in place of defaults.
fn options(specs: &[OptionSpec], given: &[(&str, &str)]) -> Options {
    let value = |spec: &OptionSpec| {
        let typed = given.iter().find(|(name, _)| *name == spec.name).map(|(_, value)| *value);
        spec.kind.parse(typed.unwrap_or(spec.default)).unwrap()
    };
    Options(specs.iter().map(|spec| (spec.name.to_owned(), value(spec))).collect())
}

#[test]
fn a_trickle_comes_in_while_it_sends() {
    if unavailable() {
        return;
    }
    let _alone = alone();
    for (workload, senders, least) in [
        ("stream:load=trickle", &["userspace:copy=cpu", "userspace:rotate=3M"][..], 30.0),
        ("stream:load=flood", &["socket"], 300.0),
    ] {
        for trial in run(senders, &["--workload", workload, "--link=wire:mtu=9000", VERIFIED]) {
            is_sound(&trial);
            let receiver = Scope::Flow(Role::Receiver, 0);
            let packets = trial.reading("load.packets", &receiver).unwrap();
            // The warm-up and the window take 0.4 s.
            assert!(packets >= least, "{}: {packets}", trial.cell);
        }
    }
}

#[test]
fn reports_impossible_requests_before_the_study() {
    let refused = |arguments: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_bytepath"));
        let (code, _, stderr) = said(command.arg("run").args(arguments));
        assert_ne!(code, 0, "{arguments:?}");
        stderr
    };
    for (path, workload, word) in [
        ("userspace:copy=das+socket", "stream", "there is no copy engine 'das'"),
        ("userspace:copy=dsa-model+socket", "stream", "there is no copy engine 'dsa-model'"),
        ("userspace:writer=thread+socket", "stream", "choose copy=cpu"),
        ("userspace:copy=cpu+socket", "rr", "it is for streams"),
        ("userspace:copy=dsa:queues=wq99.99+socket", "stream", "no work queue"),
    ] {
        let said = refused(&["--path", path, "--workload", workload]);
        assert!(said.contains(word), "{path}: {said}");
    }
}
