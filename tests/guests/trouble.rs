//! Guests that panic, hang, restart or are killed, while they boot and in the middle of a trial:
//! the fault names what happened and quotes the console, in bounded time, and nothing is left.
//! Without qemu or a kernel the tests that need one are skipped and reported.

use crate::guests::{able, bytepath, cpu_time, guests_of, leftovers, shown};
use bytepath::record::{Study, TrialStatus};
use bytepath::study::load;
use rustix::process::{Pid, Signal, kill_process};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

/// A study of two trials, one of a cell and one of its copy, long enough to do harm.
const TWO_TRIALS: &[&str] = &[
    "--path",
    "socket",
    "--blocks",
    "1",
    "--warm-up",
    "200ms",
    "--window",
    "3s",
    "--profile",
    "none",
    "--meters",
    "none",
];

#[test]
fn a_guest_that_is_killed_fails_its_trial_and_the_next_boots_again() {
    let Some(_machine) = able() else { return };
    let (fault, _) = harmed("vm", &[], Signal::KILL);
    assert!(fault.contains("qemu killed by signal 9 (SIGKILL)"), "{fault}");
    assert!(fault.contains("; its console "), "{fault}");
}

#[test]
fn a_guest_that_hangs_fails_its_trial_and_the_next_boots_again() {
    let Some(_machine) = able() else { return };
    // A stopped process keeps its sockets open and does not respond, like a kernel that spins with
    // interrupts off.
    let began = Instant::now();
    let (fault, text) = harmed("vm:silence=6s", &[], Signal::STOP);
    println!("a study with a guest that hung took {:.1} s", began.elapsed().as_secs_f64());
    assert!(fault.contains(": it was silent for 6 s, and its console "), "{fault}");
    assert!(fault.contains("hangs"), "it was in its trial: {fault}");
    assert!(text.contains("hangs"), "the report tells: {text}");
}

#[test]
fn a_guest_that_panics_in_a_trial_fails_it_with_its_last_words() {
    let Some(_machine) = able() else { return };
    // Each flow has buffers at both ends, and together they exceed the guest's memory: the kernel
    // panics by its own rule.
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("study");
    let output = bytepath(&[
        "run",
        "--testbed",
        "vm:memory=768M",
        "--path",
        "socket",
        "--blocks",
        "1",
        "--kernel",
        "oom=debian:newest sysctl.vm.panic_on_oom=1",
        "--stream",
        "flows=128,message-size=8M,read-size=8M",
        "--warm-up",
        "200ms",
        "--window",
        "300ms",
        "--profile",
        "none",
        "--meters",
        "none",
        "--study",
        out.to_str().unwrap(),
    ]);
    let text = shown(&output);
    let fault = first_fault(&load(&out).unwrap_or_else(|fault| panic!("{fault}: {text}")), &text);
    assert!(fault.contains("the guest's kernel panicked: Out of memory"), "{fault}");
    assert!(fault.contains("its console ended with: "), "{fault}");
    assert_eq!(output.status.code(), Some(5), "{text}");
    assert_eq!(leftovers(), []);
}

#[test]
fn a_guest_that_panics_as_it_boots_is_reported_with_its_console() {
    let Some(_machine) = able() else { return };
    // The guest has no such program, and its kernel panics for lack of one.
    let fault = refused("vm", "debian:newest", "rdinit=/nothing init=/nothing");
    assert!(fault.contains("did not come up: the guest's kernel panicked"), "{fault}");
    assert!(fault.contains("console ended with"), "{fault}");
}

#[test]
fn waits_for_a_hanging_guest_until_its_limit() {
    let Some(_machine) = able() else { return };
    // cli; hlt; jmp to the hlt.
    let image = made_up_kernel("about to hang", &[0xfa, 0xf4, 0xeb, 0xfd]);
    let began = Instant::now();
    let fault = refused("vm:boot=3s", image.path().to_str().unwrap(), "");
    let took = began.elapsed().as_secs_f64();
    assert!(took > 3.0, "{took}: {fault}");
    println!("a guest that hangs was given up after {took:.1} s");
    // On a busy machine it was waited for longer, and the fault has the time that really passed.
    let expected = |seconds: u64| {
        format!(
            "did not come up: it was silent for {seconds} s, and its console ends with: about to hang"
        )
    };
    let mut possible = (3..=took as u64).map(expected);
    assert!(possible.any(|expected| fault.contains(&expected)), "{took}: {fault}");
}

#[test]
fn a_guest_that_restarts_as_it_boots_is_not_waited_for() {
    let Some(_machine) = able() else { return };
    // mov al, 0xfe; out 0x64, al: the keyboard's controller resets the processor.
    let image = made_up_kernel("about to restart", &[0xb0, 0xfe, 0xe6, 0x64, 0xf4, 0xeb, 0xfd]);
    let began = Instant::now();
    let fault = refused("vm:boot=50s", image.path().to_str().unwrap(), "");
    assert!(began.elapsed().as_secs() < 50, "it was waited for: {fault}");
    let expected =
        "was reset without a message from its kernel; its console ended with: about to restart";
    assert!(fault.contains(expected), "{fault}");
}

/// Runs [`TWO_TRIALS`] and sends the first one's guest a signal in its window. Returns that trial's
/// fault and the program's output.
fn harmed(testbed: &str, more: &[&str], signal: Signal) -> (String, String) {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("study");
    let arguments = [&["--testbed", testbed][..], TWO_TRIALS, more].concat();
    let (child, guest) = begun(&arguments, &out);
    // By then agents are up, which takes less than that, and the stream flows; the window has not
    // ended yet, even on a host that gives the guest half a CPU.
    let until = cpu_time(guest) + 1.2;
    let deadline = Instant::now() + Duration::from_secs(60);
    while cpu_time(guest) < until && Instant::now() < deadline {
        std::thread::sleep(Duration::from_millis(5));
    }
    kill_process(guest, signal).unwrap();
    let output: Output = child.wait_with_output().unwrap();
    let text = shown(&output);
    assert_eq!(output.status.code(), Some(5), "{text}");
    let study = load(&out).unwrap();
    let fault = first_fault(&study, &text);
    assert_eq!(study.trials[1].status, TrialStatus::Measured, "{text}");
    assert_eq!(leftovers(), []);
    assert!(rustix::process::test_kill_process(guest).is_err(), "the guest was reaped");
    (fault, text)
}

/// Starts a study into `out` and waits until its folder exists: then the guest is up, and its first
/// trial begins. Returns the study's process and the guest's.
fn begun(arguments: &[&str], out: &Path) -> (Child, Pid) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_bytepath"));
    command.arg("run").args(arguments).arg("--study").arg(out);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let deadline = Instant::now() + Duration::from_secs(120);
    while !out.join("trials.jsonl").exists() {
        assert!(Instant::now() < deadline, "the study did not begin");
        assert!(child.try_wait().unwrap().is_none(), "the study ended at once");
        std::thread::sleep(Duration::from_millis(5));
    }
    let guests = guests_of(child.id());
    assert_eq!(guests.len(), 1, "one guest for one kernel: {guests:?}");
    (child, guests[0])
}

/// The fault of a study's first trial.
fn first_fault(study: &Study, text: &str) -> String {
    match study.trials.first().map(|trial| &trial.status) {
        Some(TrialStatus::Failed { fault }) => fault.to_string(),
        other => panic!("{other:?}: {text}"),
    }
}

/// Runs a study whose guest cannot boot, and returns its output.
fn refused(with: &str, source: &str, cmdline: &str) -> String {
    let kernel = format!("broken={source} {cmdline}");
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("study");
    let mut words = vec!["run", "--testbed", with, "--kernel", kernel.trim_end()];
    words.extend_from_slice(TWO_TRIALS);
    let output = bytepath(&[&words[..], &["--study", out.to_str().unwrap()]].concat());
    let text = shown(&output);
    assert_eq!(output.status.code(), Some(5), "{text}");
    assert_eq!(leftovers(), []);
    text
}

/// An image whose setup code prints `says` on the serial port and then runs `code`, which is 16-bit
/// code (Documentation/arch/x86/boot.rst).
fn made_up_kernel(says: &str, code: &[u8]) -> tempfile::NamedTempFile {
    const ENTRY: usize = 0x200;
    const CODE: usize = 0x270;
    const RELEASE: usize = 0x300;
    const MESSAGE: usize = 0x340;
    let mut image = vec![0u8; 4096];
    let mut put = |at: usize, bytes: &[u8]| image[at..at + bytes.len()].copy_from_slice(bytes);
    // One sector of setup code after the first; its signature; protocol 2.6; loaded high; the
    // highest address of an initial ramdisk; the text of the release.
    put(0x1f1, &[1]);
    put(0x1fe, &[0x55, 0xaa]);
    put(0x202, b"HdrS\x06\x02");
    put(0x20e, &((RELEASE - ENTRY) as u16).to_le_bytes());
    put(0x211, &[1]);
    put(0x22c, &0x37ff_ffffu32.to_le_bytes());
    put(RELEASE, b"0.0.1-made-up ");
    put(MESSAGE, says.as_bytes());
    // jmp CODE
    put(ENTRY, &[0xeb, (CODE - ENTRY - 2) as u8]);
    // mov si, MESSAGE; mov dx, 0x3f8. The segment begins at the entry.
    let [low, high] = ((MESSAGE - ENTRY) as u16).to_le_bytes();
    put(CODE, &[0xbe, low, high, 0xba, 0xf8, 0x03]);
    // again: lods al, cs:[si]; test al, al; jz over; out dx, al; jmp again; over:
    put(CODE + 6, &[0x2e, 0xac, 0x84, 0xc0, 0x74, 0x03, 0xee, 0xeb, 0xf7]);
    put(CODE + 15, code);
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(Path::new(file.path()), &image).unwrap();
    file
}
