//! Streams that the program encrypts, in real runs, and the errors for requests that this kernel or
//! a path cannot satisfy. What the kernel encrypts is in `tests/guests/tls.rs`.

use bytepath::record::{Study, TrialStatus};
use bytepath::study::load;
use bytepath_testing::{shared, skip};
use std::path::Path;
use std::process::{Command, Output};

#[test]
fn the_program_encrypts_streams_and_exchanges() {
    let _shared = shared();
    let folder = tempfile::tempdir().unwrap();
    for (name, workload, stream) in [
        ("stream", "stream", "tls=user,touch=verify,flows=2,message-size=100001,read-size=5000"),
        ("memory", "stream", "tls=user,touch=verify,read-size=64K,read-memory=1M"),
        ("rr", "rr:request=100,response=40000", "tls=user,touch=verify"),
    ] {
        let out = folder.path().join(name);
        let text =
            shown(&run(&["--path=socket", "--workload", workload, "--stream", stream], &out));
        let study = measured(&out, &text);
        for trial in &study.trials {
            assert_eq!(trial.label, "copied (TLS by the program)", "{text}");
            let sources = trial.roles.iter().flat_map(|role| &role.ledger.evidence);
            assert!(sources.into_iter().all(|e| e.source.contains("crypted")), "{text}");
        }
    }
}

#[test]
fn reports_why_paths_cannot_encrypt() {
    let folder = tempfile::tempdir().unwrap();
    let says = |path: &str, stream: &str, words: &[&str]| {
        let output = run(&["--path", path, "--stream", stream], &folder.path().join("none"));
        let text = shown(&output);
        assert!(!output.status.success(), "{text}");
        for word in words {
            assert!(text.contains(word), "{path}, {stream}: no '{word}': {text}");
        }
    };
    says("sendfile", "tls=user", &["nobody reads and encrypts", "choose tls=kernel"]);
    says("splice", "tls=kernel", &["would be ciphertext", "choose socket or uring"]);
    says("uring-zc", "tls=kernel", &["refuses zero-copy sends"]);
    says("socket:lowat=4K", "tls=user", &["would count ciphertext", "leave lowat at auto"]);
    says("socket", "tls=card", &["none|user|kernel"]);
    says("socket", "tls=user,protocol=udp", &["UDP has none", "protocol=tcp"]);
    if Path::new("/proc/self/net/tls_stat").exists() {
        skip!("this kernel has TLS loaded, so it refuses nothing");
        return;
    }
    let kernel = run(&["--path=socket", "--stream=tls=kernel"], &folder.path().join("kernel"));
    let text = shown(&kernel);
    if kernel.status.success() {
        skip!("this kernel has loaded its TLS for us");
        return;
    }
    assert!(text.contains("this kernel has no TLS") && text.contains("--testbed vm"), "{text}");
}

#[test]
fn doctor_reports_tls_support() {
    let mut command = Command::new(env!("CARGO_BIN_EXE_bytepath"));
    let output = command.args(["doctor", "--json"]).output().unwrap();
    let said: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let folder = tempfile::tempdir().unwrap();
    for stream in said["streams"].as_array().unwrap() {
        let (name, able) = (stream["name"].as_str().unwrap(), stream["supported"] == "yes");
        let out = folder.path().join(name);
        let ran = run(&["--path=socket", "--stream", name], &out);
        assert_eq!(ran.status.success(), able, "{stream}: {}", shown(&ran));
        assert!(able || stream["remedy"].is_string(), "{stream}");
    }
    assert_eq!(said["streams"].as_array().map(Vec::len), Some(2), "{said}");
}

#[test]
fn program_tls_sends_no_plaintext() {
    if !rustix::process::geteuid().is_root() {
        skip!("not root, which a packet socket takes");
        return;
    }
    let said = |who: &str| {
        let mut double = Command::new(bytepath_testing::double());
        let output = double.args(["encrypted", who, "socket"]).output().unwrap();
        assert!(output.status.success(), "{}", shown(&output));
        shown(&output)
    };
    let (plain, encrypted) = (said("none"), said("user"));
    assert!(plain.contains("socket: ") && plain.contains("bytes intact, in the clear"), "{plain}");
    assert!(encrypted.contains("bytes intact, not to be found"), "{encrypted}");
    let refused = encrypted.lines().find(|line| line.starts_with("other secret: ")).unwrap();
    assert!(refused.contains("the two ends have different keys"), "{refused}");
}

fn run(words: &[&str], out: &Path) -> Output {
    let short =
        "--blocks 1 --warm-up 100ms --window 300ms --meters none --profile none --design trials";
    let mut command = Command::new(env!("CARGO_BIN_EXE_bytepath"));
    command.arg("run").args(words).args(short.split(' ')).arg("--study").arg(out).output().unwrap()
}

fn measured(out: &Path, text: &str) -> Study {
    let study = load(out).unwrap_or_else(|fault| panic!("{fault}: {text}"));
    assert!(!study.trials.is_empty(), "{text}");
    for trial in &study.trials {
        assert_eq!(trial.status, TrialStatus::Measured, "{text}");
        assert!(trial.count > 0, "{text}");
    }
    study
}

fn shown(output: &Output) -> String {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    text(&output.stdout) + &text(&output.stderr)
}
