//! Trouble with a NIC in the middle of a study, on drivers that do not come from this project: the
//! trial names it, the study continues or ends, and the other NIC is restored as it was.

use crate::command::{CommandRunner, DOUBLE};
use crate::drivers::{Cards, for_pair, with_cards};
use crate::guests::able;
use bytepath::guest::{Maker, NIC_PAIRS};

/// All trouble with a NIC during a study, on every driver; on ports of this machine
/// `tests/lab/ports.rs` has the part that needs no NIC.
#[test]
#[ignore = "takes minutes: make test-drivers"]
fn every_trouble_of_every_driver() {
    let Some(_machine) = able() else { return };
    let only = std::env::var("DRIVER").unwrap_or_default();
    for pair in NIC_PAIRS.iter().filter(|pair| only.is_empty() || pair.name == only) {
        let Maker::Qemu { driver, .. } = pair.maker else { continue };
        let Some(guest) = with_cards(pair.name) else { continue };
        let bench = Bench::of(&guest, pair.name);
        bench.is_taken_down();
        bench.is_removed();
        bench.is_set_up_again();
        bench.is_pulled_for_a_moment();
        bench.is_pulled();
        bench.is_taken_from_its_driver(driver);
        bench.is_reset();
        println!("| {} | lost in a study | works |", pair.name);
    }
}

/// A guest with two NICs, and their state when no study runs.
struct Bench<'g> {
    guest: &'g CommandRunner,
    fresh: Cards,
    /// A study of four trials.
    study: String,
}

impl<'g> Bench<'g> {
    fn of(guest: &'g CommandRunner, name: &str) -> Bench<'g> {
        let study = "/bin/bytepath run --testbed ports:sender=eth0,receiver=eth1 --blocks 2 \
                     --path socket --meters steady --profile none --warm-up 0 --window 1s";
        Bench { guest, fresh: Cards::of(guest), study: for_pair(name, study) }
    }

    /// Another program takes a NIC down: its trial fails, and the next one sets it up again.
    fn is_taken_down(&self) {
        let (code, text) = self.upset("/tmp/down", "down");
        assert!(code == 5 && !text.contains("the link is lost"), "{code}: {text}");
        self.one_fails("/tmp/down", "; eth1 was taken down");
    }

    /// Another program sets a NIC down and up again at once, and its driver resets it: the trial
    /// does not count, even if the stream survived.
    fn is_set_up_again(&self) {
        let (code, text) = self.upset("/tmp/flap", "down-up");
        assert!(matches!(code, 0 | 5) && !text.contains("the link is lost"), "{code}: {text}");
        self.one_fails("/tmp/flap", "link eth1 changed");
    }

    /// A NIC is unplugged: the study ends, and continues once the NIC is back.
    fn is_removed(&self) {
        let (_, folder) = self.place();
        let (code, text) = self.upset("/tmp/unplugged", &format!("write {folder}/remove 1"));
        self.ended((code, &text), "eth1 is gone");
        assert!(text.contains("loan eth1: gone: it no longer exists"), "{text}");
        self.double("write /sys/bus/pci/rescan 1");
        self.goes_on("/tmp/unplugged");
    }

    /// The driver is unbound from a NIC, and bound again only after the study.
    fn is_taken_from_its_driver(&self, driver: &str) {
        let (name, _) = self.place();
        let (code, text) = self.upset("/tmp/unbound", &format!("write {driver}/unbind {name}"));
        self.ended((code, &text), "eth1 is gone");
        self.double(&format!("write {driver}/bind {name}"));
        self.goes_on("/tmp/unbound");
    }

    /// The cable is pulled until the trial has failed: the study waits for it and continues.
    fn is_pulled_for_a_moment(&self) {
        let (code, text) = self.while_it_runs("/tmp/moment", || {
            self.in_its_second_trial("/tmp/moment", "");
            self.guest.plug(false);
            self.double("no-agents");
            self.guest.plug(true);
        });
        assert!(code == 5 && !text.contains("the link is lost"), "{code}: {text}");
        self.one_fails("/tmp/moment", "; eth1 has no carrier");
    }

    /// The cable is pulled, and not plugged in again: the study ends.
    fn is_pulled(&self) {
        let (code, text) = self.while_it_runs("/tmp/pulled", || {
            self.in_its_second_trial("/tmp/pulled", "");
            self.guest.plug(false);
        });
        self.ended((code, &text), "eth1 has no carrier");
        self.guest.plug(true);
        self.goes_on("/tmp/pulled");
    }

    /// The NIC is reset without its driver, which may not notice: every trial is recorded, and both
    /// NICs are restored.
    fn is_reset(&self) {
        let (_, folder) = self.place();
        let (code, text) = self.upset("/tmp/reset", &format!("write {folder}/reset 1"));
        assert!(matches!(code, 0 | 5) && !text.contains("NOT restored"), "{code}: {text}");
        assert_eq!(self.faults("/tmp/reset").len(), 4, "{text}");
        self.fresh.are_back(self.guest);
    }

    /// Checks that a study ended with the name of the receiver's trouble, that the other NIC is as
    /// before, and that nothing is left to restore.
    fn ended(&self, (code, text): (i32, &str), trouble: &str) {
        let fault = format!("the link is lost: {trouble}");
        assert!(code == 5 && text.contains(&fault), "{code}: {text}");
        assert!(text.contains("`bytepath resume` continues"), "{text}");
        self.fresh.is_back(self.guest, 0);
        let restored = self.guest.output_of("/bin/bytepath restore");
        assert!(restored.starts_with("nothing to restore"), "{restored}");
    }

    /// Checks that a study continues to its last trial, with the NIC that is back.
    fn goes_on(&self, out: &str) {
        let (code, text) = self.guest.outcome_of(&format!("/bin/bytepath resume {out}"));
        // A stream that stalled is a failed trial.
        assert!(matches!(code, 0 | 5), "{code}: {text}");
        let faults = self.faults(out);
        let by_it = faults.iter().any(|fault| fault.contains("eth1"));
        assert!(faults.len() == 4 && !by_it, "{faults:?}: {text}");
        self.fresh.are_back(self.guest);
    }

    /// Checks that one trial of four failed by this, and that the NICs are as before.
    fn one_fails(&self, out: &str, trouble: &str) {
        let faults = self.faults(out);
        let by_it = faults.iter().filter(|fault| fault.contains(trouble)).count();
        assert!(faults.len() == 4 && by_it == 1, "{faults:?}");
        self.fresh.are_back(self.guest);
    }

    /// Why each trial failed or does not count; empty for the others.
    fn faults(&self, out: &str) -> Vec<String> {
        let fault = |line: &str| -> String {
            let trial: serde_json::Value = serde_json::from_str(line).unwrap();
            let status = &trial["status"];
            let message = status["fault"]["message"].as_str().unwrap_or_default();
            status["events"].as_array().map_or(message.to_owned(), |all| format!("{all:?}"))
        };
        self.double(&format!("read {out}/trials.jsonl")).lines().map(fault).collect()
    }

    /// Runs a study in whose second trial this is done to the receiver's NIC.
    fn upset(&self, out: &str, deed: &str) -> (i32, String) {
        self.while_it_runs(out, || self.in_its_second_trial(out, deed))
    }

    fn in_its_second_trial(&self, out: &str, deed: &str) {
        self.double(&format!("upset {out} 1 eth1 {deed}"));
    }

    /// Runs a study while `work` is done; returns its exit code and all its output.
    fn while_it_runs(&self, out: &str, work: impl FnOnce()) -> (i32, String) {
        let line = format!("{} --study {out}", self.study);
        std::thread::scope(|scope| {
            let study = scope.spawn(|| self.guest.outcome_of(&line));
            work();
            study.join().unwrap()
        })
    }

    /// The name of the receiver's NIC on its bus, and the folder of its PCI device.
    fn place(&self) -> (String, String) {
        let place = self.double("place eth1");
        let (name, folder) = place.trim().split_once(' ').unwrap();
        (name.to_owned(), folder.to_owned())
    }

    fn double(&self, words: &str) -> String {
        self.guest.output_of(&format!("{DOUBLE} {words}"))
    }
}
