//! NIC features that only hardware used to have, in real runs: zcrx and devmem over the software
//! NIC of `modules/zcnic`, under the names of the drivers that support them, with trouble on
//! request. Without qemu, or without the module, these are skipped and reported.

use crate::command::{CommandRunner, DOUBLE};
use crate::guests::{able, leftovers, shown};
use bytepath::guest::NicPair;
use bytepath::record::{Cell, Role, Scope, Study, Support, Trial, TrialStatus};
use bytepath::spec;
use bytepath::study::{load, testbed_spec};
use bytepath::testbed;
use bytepath_testing::{Share, skip};
use std::fs;
use std::process::Command;

const BED: &str = "vm:nic=zcnic";

/// Names of drivers, the trouble that each NIC makes, the counters of that trouble, and the setting
/// that prepares it first.
const CARDS: [[&str; 4]; 4] = [
    ["fbnic", "zcnic.drop=150", "rx_asked_to_drop", "tcp-data-split=on"],
    [
        "bnxt_en",
        "zcnic.reset=150 zcnic.reorder=50",
        "rx_queue_resets rx_asked_to_reorder",
        "tcp-data-split=on",
    ],
    ["mlx5_core", "zcnic.flap=400", "link_flaps", "tcp-data-split=on"],
    ["gve", "zcnic.starve=300 zcnic.ring=2048", "rx_asked_to_starve", "tcp-data-split=on"],
];

/// An area of 1024 buffers, which a ring of 512 can fill up and one of 2048 never can.
const PATHS: [&str; 2] = ["zcrx:area=4M", "devmem"];

/// Bytes that a socket may hold: the default maximum of tcp_rmem (tcp(7)).
const BUFFERED: f64 = 6.0 * 1024.0 * 1024.0;

#[test]
fn zero_copy_is_proven_under_every_drivers_name_and_in_trouble() {
    let Some(_machine) = able_with_nics() else { return };
    let kernels = CARDS.map(|[driver, trouble, ..]| {
        format!("'{driver}=debian:newest zcnic.driver={driver} {trouble}'")
    });
    // The baseline may be a path that requires preparation.
    let experiment = format!(
        "testbed = '{BED}'\nblocks = 1\nwarm-up = '200ms'\nwindow = '600ms'\nmeters = ['nic']\n\
         profile = 'none'\n[[exclude]]\npath = '{1}'\nkernel = {2}\n\
         [factors]\npath = ['{0}', '{1}']\ntouch = 'verify'\n\
         link = 'nic:hw-gro=on'\nkernel = [{3}]\n",
        PATHS[0],
        PATHS[1],
        // The battle experiment runs devmem on this one.
        kernels[0],
        kernels.join(", ")
    );
    // A stream that stalled is a failed trial (exit code 5).
    let (study, text) = study_of(&experiment, &[0, 5]);
    assert_eq!(study.trials.len(), CARDS.len() * PATHS.len(), "{text}");
    let measured = measured(&study, &text);
    for trial in &measured {
        assert_eq!(trial.label, "zero-copy", "{}: {text}", trial.cell);
        let (placed, copied) =
            (driver(trial, "rx_to_iovs_bytes"), driver(trial, "rx_to_pages_bytes"));
        let count = trial.count as f64;
        // A stream that stalled for most of the window read what had arrived before.
        let proven = placed + BUFFERED > 0.8 * count && copied <= 0.01 * count;
        assert!(
            proven,
            "{}: {placed} and {copied} of {count}: {:?}: {text}",
            trial.cell, trial.warnings
        );
        is_proven(trial);
    }
    for [name, _, counters, first] in CARDS {
        let of: Vec<&&Trial> =
            measured.iter().filter(|t| t.cell.0.contains(&format!("kernel={name}"))).collect();
        assert!(!of.is_empty(), "{name}: {text}");
        for counter in counters.split(' ') {
            let counted: f64 = of.iter().map(|trial| driver(trial, counter)).sum();
            assert!(counted > 0.0, "{name}: no {counter}: {text}");
        }
        for trial in of {
            let set: Vec<String> = trial.prepared.iter().map(|r| r.setting.to_string()).collect();
            assert!(set[0].contains(first), "{name}: {set:?}");
            let rest = &set[set.len() - 3..];
            assert_eq!(rest[..2], ["spread zcnic1 queues=3", "feature zcnic1 rx-ntuple-filter=on"]);
            let rule = "flow zcnic1 src=198.18.0.1 dst=198.18.0.2 dst-port=20900 queue=3";
            assert_eq!(rest[2], rule, "{set:?}");
        }
    }
    let dry = measured.iter().find(|t| t.cell.0.contains("zcrx") && t.cell.0.contains("gve"));
    let warned =
        |trial: &&Trial| trial.warnings.iter().any(|text| text.contains("smaller NIC ring"));
    assert!(dry.is_none_or(warned), "{dry:#?}: {text}");
    assert_eq!(leftovers(), []);
}

/// Paths that request two queues, with rings, queues and an area too small for what arrives, and
/// one that maps pages of a NIC.
const NARROW: [&str; 4] = [
    "zcrx:queues=2,rq=16",
    "zcrx:queues=2,completions=4",
    "devmem:queues=2,area=2M,recycle-batch=65536",
    "msg-zerocopy",
];

#[test]
fn spreads_flows_over_queues_and_names_overflows() {
    let Some(_machine) = able_with_nics() else { return };
    let experiment = format!(
        "testbed = '{BED}'\nblocks = 1\nwarm-up = '100ms'\nwindow = '400ms'\nmeters = ['nic']\n\
         profile = 'none'\n[factors]\npath = ['{}']\ntouch = 'verify'\nflows = 2\nlink = 'nic'\n",
        NARROW.join("', '")
    );
    let (study, text) = study_of(&experiment, &[0]);
    let of = |path: &str| {
        let cell = study.header.cells.iter().find(|cell| cell.levels["path"] == path).unwrap();
        study.trials.iter().find(|trial| trial.cell == cell.id).unwrap()
    };
    for path in NARROW {
        let trial = of(path);
        assert_eq!(trial.status, TrialStatus::Measured, "{path}: {text}");
        assert_eq!(trial.label, "zero-copy", "{path}: {text}");
        let set: Vec<String> = trial.prepared.iter().map(|r| r.setting.to_string()).collect();
        let split = ["rings zcnic1 tcp-data-split=on", "rings zcnic1 hds-thresh=0"];
        assert_eq!(set[..2], split, "{path}");
        for (flow, queue) in [(0, 2), (1, 3)] {
            let (from, to) =
                (format!(" src-port={} dst-port=", 21_000 + flow), format!(" queue={queue}"));
            let is_rule = |set: &String| set.contains(&from) && set.ends_with(&to);
            assert!(set.iter().any(is_rule), "{path}: {set:?}");
            assert!(card(trial, &format!("nic.rx-{queue}.rx-packets")) > 100.0, "{path}: {text}");
            let pool = if path == "msg-zerocopy" { "pages" } else { "provider" };
            let pool = card(trial, &format!("nic.pool.rx-{queue}.{pool}.alloc-fast"));
            assert!(pool > 100.0, "{path}: {text}");
        }
    }
    let counted = |path, metric: &str| -> f64 {
        let readings = of(path).readings.iter().filter(|reading| reading.metric == metric);
        readings.map(|reading| reading.value).sum()
    };
    assert!(counted(NARROW[0], "zcrx.refill_full") > 0.0, "{text}");
    assert!(counted(NARROW[1], "zcrx.queue_full") > 0.0, "{text}");
    let says = |path, words: &str| of(path).warnings.iter().any(|text| text.contains(words));
    assert!(says(NARROW[0], "choose a larger rq"), "{text}");
    assert!(says(NARROW[1], "allow more completions"), "{text}");
    assert!(says(NARROW[2], "recycle-batch is too large for the area"), "{text}");
}

/// Paths whose four flows cross two NICs: two without their own queues, the first of which is the
/// baseline and also runs over one NIC; two with a queue for each flow; and one whose flows share a
/// queue of each NIC.
const OVER_TWO: [&str; 5] = [
    "socket",
    "msg-zerocopy",
    "devmem:area=4M,queues=2,wait=epoll",
    "zcrx:area=4M,queues=2",
    "zcrx:area=4M",
];

/// A workload in which both ends receive.
const BOTH_WAYS: &str = "rr:request=8K,response=8K";

#[test]
fn flows_over_two_nics_have_queues_and_proofs_of_each() {
    let Some(_machine) = able_with_nics() else { return };
    let list = |paths: &[&str]| format!("['{}']", paths.join("', '"));
    let experiment = format!(
        "testbed = '{BED}'\nblocks = 1\nwarm-up = '100ms'\nwindow = '400ms'\n\
         meters = ['nic', 'syscalls']\nprofile = 'none'\n\
         [[exclude]]\npath = {}\nadapters = 1\n\
         [[exclude]]\npath = {}\nworkload = '{BOTH_WAYS}'\n\
         [factors]\npath = {}\nworkload = ['stream', '{BOTH_WAYS}']\ntouch = 'verify'\nflows = 4\n\
         link = 'nic'\nadapters = [1, 2]\n",
        list(&OVER_TWO[1..]),
        list(&[&OVER_TWO[..3], &OVER_TWO[4..]].concat()),
        list(&OVER_TWO),
    );
    let (study, text) = study_of(&experiment, &[0]);
    let of = |path: &str, workload: &str| {
        let levels = [("path", path), ("workload", workload), ("adapters", "2")];
        let is_it =
            |cell: &&Cell| levels.iter().all(|(factor, level)| cell.levels[*factor] == *level);
        let cell = study.header.cells.iter().find(is_it).unwrap();
        let trial = study.trials.iter().find(|trial| trial.cell == cell.id).unwrap();
        assert_eq!(trial.status, TrialStatus::Measured, "{}: {text}", cell.id);
        let label = if path == "socket" { "copied" } else { "zero-copy" };
        assert_eq!(trial.label, label, "{}: {text}", cell.id);
        trial
    };
    for path in OVER_TWO {
        let trial = of(path, "stream");
        for (adapter, nic) in ["zcnic1", "zcnic3"].into_iter().enumerate() {
            has_queues_of(trial, nic, adapter, if path == OVER_TWO[4] { 1 } else { 2 });
            let placed = of_nic(trial, nic, "nic.driver.rx_to_iovs_bytes");
            let copied = of_nic(trial, nic, "nic.driver.rx_to_pages_bytes");
            let is_provided = path.starts_with("zcrx") || path.starts_with("devmem");
            let (there, elsewhere) = if is_provided { (placed, copied) } else { (copied, placed) };
            assert!(
                there > 1e5 && elsewhere <= 0.01 * there,
                "{path}: {nic}: {there}, {elsewhere}"
            );
        }
        if path != "socket" {
            is_proven(trial);
        }
        let short = |warning: &String| warning.contains("freed fewer fragments");
        assert!(!trial.warnings.iter().any(short), "{path}: {:?}", trial.warnings);
    }
    // These rows are in the published table of devmem.
    let calls = &of(OVER_TWO[2], "stream").role(Role::Receiver).unwrap().calls;
    for name in ["recvmsg(devmem)", "setsockopt(dontneed)", "ioctl(dma-buf sync)", "epoll_wait"] {
        assert!(calls.iter().any(|call| call.name == name && call.calls > 0), "{name}: {calls:?}");
    }
    // Each end prepares its own two NICs.
    let trial = of(OVER_TWO[3], BOTH_WAYS);
    for nic in ["zcnic0", "zcnic1", "zcnic2", "zcnic3"] {
        assert!(of_nic(trial, nic, "nic.driver.rx_to_iovs_bytes") > 1e4, "{nic}: {text}");
    }
    assert_eq!(leftovers(), []);
}

/// Checks that the flows of a receiver's NIC, whose number is `adapter`, use its last `queues`
/// queues in turn.
fn has_queues_of(trial: &Trial, nic: &str, adapter: usize, queues: usize) {
    let set: Vec<String> = trial.prepared.iter().map(|r| r.setting.to_string()).collect();
    let (cell, first) = (&trial.cell, 4 - queues);
    for wanted in [format!("rings {nic} tcp-data-split=on"), format!("spread {nic} queues={first}")]
    {
        assert!(set.contains(&wanted), "{cell}: {wanted}: {set:?}");
    }
    let ends = format!("flow {nic} src=198.18.{adapter}.1 dst=198.18.{adapter}.2");
    for turn in 0..queues {
        let port = match queues {
            1 => String::new(),
            _ => format!(" src-port={}", 21_000 + adapter + 2 * turn),
        };
        let (from, to) = (format!("{ends}{port} dst-port="), format!(" queue={}", first + turn));
        let is_rule = |set: &String| set.starts_with(&from) && set.ends_with(&to);
        assert!(set.iter().any(is_rule), "{cell}: {from}{to}: {set:?}");
        let came = of_nic(trial, nic, &format!("nic.rx-{}.rx-packets", first + turn));
        assert!(came > 20.0, "{cell}: {came} by queue {} of {nic}", first + turn);
    }
}

/// The whole matrix of the battle experiment, with the smallest windows and messages that still
/// prove zero-copy.
#[test]
fn the_battle_runs_whole_and_its_reports_have_the_chart() {
    // The experiment's settings are this host's, which other tests must find unchanged.
    let _alone = bytepath_testing::alone();
    if !has_nics() {
        return;
    }
    if !rustix::process::geteuid().is_root() {
        return skip!("not root, which the settings of the experiment take");
    }
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("battle");
    let shipped = concat!(env!("CARGO_MANIFEST_DIR"), "/experiments/battle.toml");
    let experiment = fs::read_to_string(shipped).unwrap().replace("\"64M\"", "\"4M\"");
    let file = folder.path().join("battle.toml");
    fs::write(&file, experiment).unwrap();
    let bed = format!("{BED},cpus=4");
    let bytepath = |words: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_bytepath"));
        command.env("BYTEPATH_STATE", folder.path().join("state")).args(words).output().unwrap()
    };
    let study = out.to_str().unwrap();
    let short = ["--blocks", "1", "--warm-up", "100ms", "--window", "300ms", "--profile", "none"];
    let file = file.to_str().unwrap();
    let words = ["run", file, "--testbed", &bed, "--meters", "none", "--study", study];
    let output = bytepath(&[&words[..], &short].concat());
    let text = shown(&output);
    assert!(matches!(output.status.code(), Some(0 | 5)), "{text}");
    let study = load(&out).unwrap_or_else(|fault| panic!("{fault}: {text}"));
    assert_eq!(study.trials.len(), 17, "{text}");
    let measured = measured(&study, &text);
    for (path, label) in [
        ("socket", "copied"),
        // Its headers are split, too, because the other paths request that.
        ("msg-zerocopy", "zero-copy"),
        ("zcrx", "zero-copy"),
        ("devmem", "zero-copy"),
    ] {
        let of = measured.iter().filter(|t| t.cell.0.split(' ').next() == Some(path));
        let of: Vec<&&Trial> = of.collect();
        assert!(of.len() >= 3, "{path}: {text}");
        for trial in of {
            assert_eq!(trial.label, label, "{}: {text}", trial.cell);
            if label == "zero-copy" {
                is_proven(trial);
            }
        }
    }
    let netdev = shown(&bytepath(&["show", out.to_str().unwrap(), "--format", "netdev"]));
    let chart = netdev.split_once("What each factor does").expect(&netdev).1;
    for part in ["hw-gro  cores=together", "cores=apart", "zcrx", "zero-copy"] {
        assert!(chart.contains(part), "{part}: {netdev}");
    }
    let page = shown(&bytepath(&["show", out.to_str().unwrap(), "--format", "html"]));
    let chart = page.split_once("id=\"factors\"").expect("the section").1;
    let chart = chart.split_once("</figure>").unwrap().0;
    assert!(chart.contains("<h3>cores=apart</h3>") && chart.contains(">devmem<"), "{chart}");
    assert_eq!(leftovers(), []);
}

/// Runs the study of an experiment, which must end with one of these codes; returns it with its
/// output.
fn study_of(experiment: &str, codes: &[i32]) -> (Study, String) {
    let folder = tempfile::tempdir().unwrap();
    let (file, out) = (folder.path().join("nics.toml"), folder.path().join("study"));
    fs::write(&file, experiment).unwrap();
    let output =
        crate::guests::bytepath(&["run", file.to_str().unwrap(), "--study", out.to_str().unwrap()]);
    let text = shown(&output);
    assert!(output.status.code().is_some_and(|code| codes.contains(&code)), "{text}");
    let study = load(&out).unwrap_or_else(|fault| panic!("{fault}: {text}"));
    (study, text)
}

/// The trials of a study that were measured. In trouble, or on a busy machine, a stream may stall
/// for a window; no other failure is accepted.
fn measured<'a>(study: &'a Study, text: &str) -> Vec<&'a Trial> {
    let is_measured = |trial: &&Trial| match &trial.status {
        TrialStatus::Measured => true,
        TrialStatus::Failed { fault } => {
            let still = ["nothing moved", "did not drain"];
            assert!(still.iter().any(|how| fault.message.contains(how)), "{fault}: {text}");
            false
        }
        other => panic!("{}: {other:?}: {text}", trial.cell),
    };
    study.trials.iter().filter(is_measured).collect()
}

/// Checks that a trial has evidence from the NIC for its label.
fn is_proven(trial: &Trial) {
    let sources: Vec<&str> =
        trial.roles.iter().flat_map(|r| &r.ledger.evidence).map(|e| &*e.source).collect();
    let by_the_nic =
        ["zcrx_stats does not call copied", "the NIC put in a dmabuf", "mapped length"];
    let proven = sources.iter().any(|source| by_the_nic.iter().any(|by| source.contains(by)));
    assert!(proven, "{}: {sources:?}", trial.cell);
}

/// A counter of the driver, summed over a trial's devices.
fn driver(trial: &Trial, counter: &str) -> f64 {
    card(trial, &format!("nic.driver.{counter}"))
}

/// A reading of one NIC of a trial.
fn of_nic(trial: &Trial, nic: &str, metric: &str) -> f64 {
    let of = trial.readings.iter().filter(|reading| reading.metric == metric);
    of.filter(|reading| matches!(&reading.scope, Scope::Link(_, name) if name == nic))
        .map(|reading| reading.value)
        .sum()
}

/// A reading summed over all NICs of a trial.
fn card(trial: &Trial, metric: &str) -> f64 {
    let of = trial.readings.iter().filter(|reading| reading.metric == metric);
    of.filter(|reading| matches!(reading.scope, Scope::Link(..))).map(|reading| reading.value).sum()
}

/// On the testbed `ports`, inside a guest, whose NICs outlive the study. A receiver's bindings and
/// buffers end with it: the next study gets the queue, over IPv6.
#[test]
fn restores_a_prepared_nic_after_its_study_was_killed() {
    let Some(_machine) = able_with_nics() else { return };
    let guest = CommandRunner::boot("debian:newest", &[], NicPair::named("zcnic")).unwrap();
    let study = "/bin/bytepath run --testbed ports:sender=zcnic0,receiver=zcnic1 --path zcrx \
                 --set 'channels zcnic1 combined=3' --set 'rings zcnic1 rx=256' \
                 --meters none --profile none --warm-up 200ms --window 60s --study /tmp/study";
    let killed = guest.output_of(&format!("{DOUBLE} killed /tmp/study \"flow\" {study}"));
    assert!(killed.contains("signal: 9"), "{killed}");
    let restored = guest.output_of("/bin/bytepath restore");
    for setting in [
        "flow zcnic1 src=198.18.0.1 dst=198.18.0.2 dst-port=20900 queue=2",
        "feature zcnic1 rx-ntuple-filter",
        "spread zcnic1",
        "rings zcnic1 tcp-data-split",
        "loan zcnic0",
        "rings zcnic1 rx: restored: 512",
        "channels zcnic1: restored: 4 (was set to 3)",
    ] {
        let line = restored.lines().find(|line| line.contains(setting));
        assert!(line.is_some_and(|line| line.contains("restored")), "{setting}: {restored}");
    }
    assert!(guest.output_of("/bin/bytepath restore").starts_with("nothing to restore"));
    let study = "/bin/bytepath run --testbed ports:sender=zcnic0,receiver=zcnic1,ip=v6 \
                 --stream touch=verify --link nic:mtu=4168 --meters none --profile none --blocks 1";
    // Most of the area is in use when it dies, in the middle of a stream.
    let holds = "--path devmem:recycle-batch=8192 --warm-up 200ms --window 60s --study /tmp/held";
    let killed = guest.output_of(&format!("{DOUBLE} killed /tmp/held \"flow\" {study} {holds}"));
    assert!(killed.contains("signal: 9"), "{killed}");
    guest.output_of("/bin/bytepath restore");
    let again = "--path devmem --path zcrx --warm-up 200ms --window 500ms --study /tmp/v6";
    let shown = guest.output_of(&format!("{study} {again}"));
    let labels = shown.lines().filter(|line| line.ends_with("zero-copy"));
    assert_eq!(labels.count(), 2, "{shown}");
    assert!(shown.contains("flow zcnic1 src=2001:2::1"), "{shown}");
    over_two_nics(&guest);
    by_a_context(&guest);
}

/// The same over two NICs at each end, which are restored together.
fn over_two_nics(guest: &CommandRunner) {
    let study = "/bin/bytepath run --testbed ports:sender=zcnic0+zcnic2,receiver=zcnic1+zcnic3 \
                 --link nic:adapters=2 --stream flows=2,touch=verify --profile none --blocks 1";
    let killed = guest.output_of(&format!(
        "{DOUBLE} killed /tmp/two \"flow\" {study} --path zcrx --meters none --warm-up 200ms --window 60s \
         --study /tmp/two"
    ));
    assert!(killed.contains("signal: 9"), "{killed}");
    let restored = guest.output_of("/bin/bytepath restore");
    for (adapter, [sends, receives]) in
        [["zcnic0", "zcnic1"], ["zcnic2", "zcnic3"]].iter().enumerate()
    {
        let (from, to) = (format!("198.18.{adapter}.1"), format!("198.18.{adapter}.2"));
        for setting in [
            format!("flow {receives} src={from} dst={to} dst-port=20900 queue=3"),
            format!("feature {receives} rx-ntuple-filter"),
            format!("spread {receives}"),
            format!("rings {receives} tcp-data-split"),
            format!("loan {receives}"),
            format!("loan {sends}"),
        ] {
            let line = restored.lines().find(|line| line.contains(&setting));
            assert!(line.is_some_and(|line| line.contains("restored")), "{setting}: {restored}");
        }
    }
    // The queues bound by one path are bound by the next one, on both NICs.
    let shown = guest.output_of(&format!(
        "{study} --path devmem --path zcrx --meters nic --warm-up 200ms --window 400ms --study /tmp/pairs"
    ));
    let is_whole = |line: &&str| line.ends_with(" zero-copy") && line.matches(" 100%").count() == 2;
    assert_eq!(shown.lines().filter(is_whole).count(), 2, "{shown}");
    assert!(!shown.contains("freed fewer fragments"), "{shown}");
    let readings = guest.output_of("/bin/bytepath show /tmp/pairs --format csv");
    for nic in ["zcnic1", "zcnic3"] {
        let [placed, copied] = ["iovs", "pages"]
            .map(|memory| of_readings(&readings, nic, &format!("nic.driver.rx_to_{memory}_bytes")));
        assert!(placed > 1e5 && copied <= 0.01 * placed, "{nic}: {placed}, {copied}: {readings}");
    }
    assert!(guest.output_of("/bin/bytepath restore").starts_with("nothing to restore"));
}

/// Sum of the readings in csv of one metric of a NIC.
fn of_readings(csv: &str, nic: &str, metric: &str) -> f64 {
    let metric = format!(",{metric},");
    let lines = csv.lines().filter(|line| line.contains(&metric) && line.contains(nic));
    lines
        .filter_map(|line| line.trim_end_matches(',').rsplit(',').next()?.parse::<f64>().ok())
        .sum()
}

/// Flows that an RSS context spreads arrive by its queues and no others, even after the NIC was
/// lent and restored.
fn by_a_context(guest: &CommandRunner) {
    guest.output_of(&format!("{DOUBLE} context zcnic1 1 2"));
    guest.output_of(
        "/bin/bytepath run --testbed ports:sender=zcnic0,receiver=zcnic1 --path socket \
         --stream flows=8 --set 'feature zcnic1 rx-ntuple-filter=on' --meters nic --profile none \
         --blocks 1 --warm-up 200ms --window 400ms --study /tmp/context",
    );
    let shown = guest.output_of("/bin/bytepath show /tmp/context --format csv");
    let packets = |queue: u32| of_readings(&shown, "zcnic1", &format!("nic.rx-{queue}.rx-packets"));
    let came = [0, 1, 2, 3].map(packets);
    // The other queues carry what is not TCP.
    assert!(came[1] > 100.0 && came[2] > 100.0 && came[0] + came[3] < 20.0, "{came:?}: {shown}");
}

/// A turn at the machine; `None` if guests cannot have NICs on it.
fn able_with_nics() -> Option<Share> {
    has_nics().then(able)?
}

fn has_nics() -> bool {
    let choice = spec::parse_testbed(BED, &testbed_spec(testbed::CATALOG)).unwrap();
    let bed = crate::guests::testbed().configured(&choice.options).unwrap().unwrap();
    match bed.probe() {
        Support::Yes => true,
        Support::No { reason, .. } => {
            skip!("{reason}");
            false
        }
    }
}
