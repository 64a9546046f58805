//! Senders and sinks of frames that need modules which this host may not have, in a guest whose
//! kernel has them: vhost-net, with this program in the role of the virtual machine, and pktgen.
//! Without qemu or such a kernel it is skipped and reported.

use crate::guests::{able, bytepath, leftovers, shown};
use bytepath::record::{Role, TrialStatus};
use bytepath::study::load;

/// One boot.
#[test]
fn vhost_net_and_pktgen_lose_no_frame_that_is_not_named() {
    let Some(_machine) = able() else { return };
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("study");
    let paths = ["packet+vhost", "pktgen+vhost:wait=spin", "packet+vhost:stop-after=50"];
    let mut words = vec!["run", "--testbed", "vm", "--workload", "packets", "--link", "tap"];
    paths.iter().for_each(|path| words.extend(["--path", path]));
    words.extend(["--cores", "0,1,vhost=0", "--blocks", "1", "--warm-up", "100ms"]);
    words.extend(["--window", "500ms", "--meters", "threads", "--profile", "none"]);
    words.extend(["--study", out.to_str().unwrap()]);
    let output = bytepath(&words);
    let text = shown(&output);
    let study = load(&out).unwrap_or_else(|fault| panic!("{fault}: {text}"));
    assert_eq!(study.trials.len(), paths.len() + 1, "{text}");
    for trial in &study.trials {
        let id = trial.cell.to_string();
        let failed = matches!(trial.status, TrialStatus::Failed { .. });
        assert!(!failed, "{id}: {:?}: {text}", trial.status);
        let hops = trial.hops.unwrap();
        assert_eq!(hops.unaccounted(), 0, "{id}: {hops:?}");
        let left_full = id.contains("stop-after");
        assert!(hops.received > 0 && left_full == (hops.ring_queued > 0), "{id}: {hops:?}");
        assert!(!left_full || hops.received == 50 && hops.ring_queued > 200, "{id}: {hops:?}");
        let threads = |role: Role| trial.roles[role as usize].threads.iter();
        let mut worker = threads(Role::Receiver).filter(|one| one.name.starts_with("vhost-"));
        assert!(worker.next().is_some(), "{id}: {text}");
        let generator = threads(Role::Sender).find(|one| one.name.starts_with("kpktgend_"));
        // An idle one that waits long for an emulated CPU may look busy, too.
        assert!(generator.is_some() || !id.contains("pktgen+"), "{id}: {text}");
        assert_eq!(trial.label.contains("made in the kernel"), id.contains("pktgen+"), "{id}");
    }
    assert_eq!(leftovers(), [], "no guest outlives its study");
}
