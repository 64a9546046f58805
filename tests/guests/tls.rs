//! Encrypted streams, in a guest whose kernel has TLS: every path that supports it, end to end,
//! with proof; what is on the wire; and a peer with another secret. Without qemu or a kernel these
//! are skipped and reported.

use crate::command::{CommandRunner, DOUBLE};
use crate::guests::{able, bytepath, shown};
use bytepath::record::{Study, Trial, TrialStatus};
use bytepath::study::load;
use bytepath_testing::skip;
use std::fs;

/// Paths that send over the kernel's TLS, and one that does not.
const PATHS: [&str; 5] = ["socket", "sendfile", "splice+socket", "uring", "msg-zerocopy"];

#[test]
fn every_path_that_can_is_encrypted_and_proven() {
    let Some(_machine) = able() else { return };
    for kernel in ["debian:7.3", "debian:6.1"] {
        let folder = tempfile::tempdir().unwrap();
        let (file, out) = (folder.path().join("tls.toml"), folder.path().join("study"));
        let experiment = format!(
            "testbed = 'vm'\nblocks = 1\nwarm-up = '100ms'\nwindow = '400ms'\nmeters = ['syscalls']\n\
             profile = 'none'\nbaseline = {{ path = 'socket', tls = 'none' }}\n\
             [factors]\npath = ['{}']\ntls = ['none', 'user', 'kernel']\n\
             touch = 'verify'\nflows = 2\nmessage-size = '64K'\nkernel = '{kernel}'\n",
            PATHS.join("', '")
        );
        fs::write(&file, experiment).unwrap();
        let words = ["run", file.to_str().unwrap(), "--study", out.to_str().unwrap()];
        let text = shown(&bytepath(&words));
        if text.contains("there is no kernel") {
            skip!("{kernel} was not fetched");
            continue;
        }
        let study = load(&out).unwrap_or_else(|fault| panic!("{fault}: {text}"));
        for path in PATHS {
            for tls in ["none", "user", "kernel"] {
                is_as_expected(&study, path, tls, &text);
            }
        }
    }
}

fn is_as_expected(study: &Study, path: &str, tls: &str, text: &str) {
    let of =
        |cell: &&bytepath::record::Cell| cell.levels["path"] == path && cell.levels["tls"] == tls;
    let cell = study.header.cells.iter().find(of).unwrap();
    let trial = study.trials.iter().find(|trial| trial.cell == cell.id).unwrap();
    let name = format!("{path}, {tls}: {text}");
    let can = match tls {
        "none" => true,
        "user" => path == "socket",
        _ => path != "msg-zerocopy",
    };
    let TrialStatus::Measured = trial.status else {
        let TrialStatus::Unavailable { reason, remedy } = &trial.status else {
            panic!("{:?}: {name}", trial.status);
        };
        assert!(!can && !remedy.is_empty(), "{reason}: {name}");
        return;
    };
    assert!(can && trial.count > 0, "{name}");
    match tls {
        "user" => assert_eq!(trial.label, "copied (TLS by the program)", "{name}"),
        "kernel" => is_proven(trial, &name),
        _ => assert!(!trial.label.contains("TLS"), "{name}"),
    }
}

/// Checks that every byte went through the kernel's TLS at both ends, on the expected number of
/// sockets.
fn is_proven(trial: &Trial, name: &str) {
    assert_eq!(trial.label, "copied (TLS by the kernel)", "{name}");
    for (role, words) in trial.roles.iter().zip(["(TlsTxSw)", "(TlsRxSw)"]) {
        assert_eq!(role.ledger.copied, role.ledger.delivered, "{name}");
        assert!(role.ledger.delivered > 0, "{name}");
        assert!(role.ledger.evidence.iter().all(|e| e.source.ends_with(words)), "{name}");
    }
    for (counter, expected) in
        [("tls.TlsTxSw", 4.0), ("tls.TlsRxSw", 4.0), ("tls.TlsDecryptError", 0.0)]
    {
        let of = trial.readings.iter().filter(|reading| reading.metric == counter);
        // Two flows, counted at both ends.
        assert_eq!(of.map(|reading| reading.value).sum::<f64>(), expected, "{counter}: {name}");
    }
}

/// Part of a test in `command.rs`.
pub(crate) fn nothing_is_on_the_wire_in_the_clear(guest: &CommandRunner) {
    let printed =
        |who: &str, senders: &str| guest.output_of(&format!("{DOUBLE} encrypted {who} {senders}"));
    let plain = printed("none", "socket sendfile");
    assert_eq!(plain.matches("bytes intact, in the clear").count(), 2, "{plain}");
    for (who, senders, count) in
        [("kernel", "socket sendfile splice uring", 4), ("user", "socket", 1)]
    {
        let text = printed(who, senders);
        assert_eq!(text.matches("bytes intact, not to be found").count(), count, "{text}");
        let refused = text.lines().find(|line| line.starts_with("other secret: ")).unwrap();
        assert!(refused.contains("a TLS record cannot be decrypted"), "{refused}");
        assert!(refused.contains("the two ends have different keys"), "{refused}");
    }
}
