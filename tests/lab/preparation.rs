//! NIC settings that a path requests, made for its own trials only: with a NIC that is a folder of
//! files, a fake testbed, and paths that read the NIC's settings when they are opened. Both agents
//! are threads of this process.

use crate::threads::{self, MadeUp, Silent, made_up, socket};
use bytepath::connection::Connection;
use bytepath::host::LocalSteward;
use bytepath::path::{DataPath, FlowNic};
use bytepath::record::wire::Nic;
use bytepath::record::{
    Fault, FaultKind, Options, Setting, SoftirqCpu, Study, Support, Trial, TrialStatus,
};
use bytepath::report::{self, Style, Subject};
use bytepath::settings::StateFolder;
use bytepath::stats;
use bytepath::study::{Laboratory, Plan, run_study};
use bytepath::sys::Roots;
use bytepath::testbed::{Deployment, Site, Stewardship, Testbed};
use bytepath::workload::{Group, HalfConfig, Rx, Tx};
use bytepath_testing::shared;
use std::fs;
use std::path::PathBuf;
use std::sync::atomic::AtomicBool;
use std::sync::{LazyLock, Mutex, PoisonError};

/// The NIC: a folder with files for its settings.
static CARD: LazyLock<tempfile::TempDir> = LazyLock::new(|| {
    let dir = tempfile::tempdir().unwrap();
    for (path, text) in [
        ("proc/sys/kernel/random/boot_id", "1b4e28ba-2fa1-11d2-883f-0016d3cca427\n"),
        ("proc/self/mountinfo", "22 28 0:21 / /proc rw - proc proc rw\n"),
        ("sys/class/net/eth0/mtu", "1500\n"),
        ("sys/class/net/eth0/threaded", "0\n"),
        ("proc/irq/45/smp_affinity_list", "0-3\n"),
        ("proc/irq/46/smp_affinity_list", "0-3\n"),
    ] {
        let path = dir.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
    let namespaces = dir.path().join("proc/self/ns");
    fs::create_dir_all(&namespaces).unwrap();
    std::os::unix::fs::symlink("net:[4026531840]", namespaces.join("net")).unwrap();
    dir
});

/// The NIC's MTU and whether its NAPI is threaded, as its files contain them.
fn card() -> (String, String) {
    let read = |name: &str| {
        let path = CARD.path().join("sys/class/net/eth0").join(name);
        fs::read_to_string(path).unwrap().trim().to_owned()
    };
    (read("mtu"), read("threaded"))
}

/// The CPUs that one of its interrupts goes to.
fn interrupts(number: u32) -> String {
    let path = CARD.path().join(format!("proc/irq/{number}/smp_affinity_list"));
    fs::read_to_string(path).unwrap().trim().to_owned()
}

fn journal() -> PathBuf {
    CARD.path().join("state/journal")
}

/// Held by the one test that uses the NIC.
static TURN: Mutex<()> = Mutex::new(());

#[test]
fn a_baseline_that_requires_something_is_rehearsed_with_it() {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let folder = tempfile::tempdir().unwrap();
    let study = conducted(&threads::plan(&["wanting", "plain"], 1, 1, folder.path()));
    let measured = |trial: &&Trial| trial.status == TrialStatus::Measured;
    assert_eq!(study.trials.iter().filter(measured).count(), 2, "{:?}", study.trials);
    assert_eq!(card(), ("1500".into(), "0".into()));
}

/// Runs a study with the NIC at the receiver.
fn conducted(plan: &Plan) -> Study {
    let _shared = shared();
    let stop = AtomicBool::new(false);
    let laboratory = Laboratory {
        paths: PATHS,
        meters: &[],
        testbed: &OneCard,
        program: "unused".into(),
        stop: &stop,
    };
    let (study, result) = run_study(&laboratory, plan, &mut Silent);
    result.unwrap();
    study.unwrap()
}

#[test]
fn prepares_the_nic_only_for_cells_that_request_it() {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let folder = tempfile::tempdir().unwrap();
    let names = ["plain", "wanting", "refused", "unwilling"];
    let plan = threads::plan(&names, 1, 3, folder.path());
    let plan = Plan { mandatory: false, testbed: "one-card".into(), ..plan };
    let study = conducted(&plan);

    let of = |name: &str| -> Vec<&Trial> {
        study.trials.iter().filter(|trial| trial.cell.0 == name).collect()
    };
    let measured = |trial: &&&Trial| trial.status == TrialStatus::Measured;
    // Each path has read the NIC's settings when it was opened, and refuses to run unless they are
    // as expected.
    assert_eq!(of("plain").iter().filter(measured).count(), 3, "{:?}", of("plain"));
    assert_eq!(of("wanting").iter().filter(measured).count(), 3, "{:?}", of("wanting"));
    assert!(of("plain").iter().all(|trial| trial.prepared.is_empty()));
    for trial in of("wanting") {
        let said: Vec<String> = trial.prepared.iter().map(ToString::to_string).collect();
        assert_eq!(said, ["mtu eth0: 1500 -> 4148", "threaded-napi eth0: 0 -> 1"]);
    }

    // A setting that cannot be made is a row with its reason, once, and the other paths continue.
    for (name, reason, remedy) in [
        ("refused", "cannot set 'mtu eth9 4148': there is no device eth9", ""),
        ("unwilling", "queue 0 carries everything else", "give the device more"),
    ] {
        let rows = of(name);
        let [Trial { status: TrialStatus::Unavailable { reason: said, remedy: help }, .. }] =
            rows.as_slice()
        else {
            panic!("{name}: {rows:?}")
        };
        assert!(said.contains(reason) && help.contains(remedy), "{name}: {said} ({help})");
    }

    // Everything is restored.
    assert_eq!(card(), ("1500".into(), "0".into()));
    assert!(!journal().exists());
    let report = rendered(&study);
    assert!(
        report.contains("for wanting: mtu eth0: 1500 -> 4148; threaded-napi eth0: 0 -> 1"),
        "{report}"
    );
}

#[test]
fn moves_interrupts_to_the_softirq_cpu_of_the_cell() {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let folder = tempfile::tempdir().unwrap();
    let plan = threads::plan(&["placed"], 1, 1, folder.path());
    let mut plan = Plan { mandatory: false, testbed: "one-card".into(), ..plan };
    let cpu = bytepath::sys::thread::allowed().unwrap()[0];
    plan.cells[0].placement.softirq = SoftirqCpu::Cpu(cpu);
    plan.cells[0].link.threaded_napi = false;
    let study = conducted(&plan);
    let measured = |trial: &&Trial| trial.status == TrialStatus::Measured;
    let trial = study.trials.iter().find(measured);
    let trial = trial.unwrap_or_else(|| panic!("{:?}", study.trials));
    let said: Vec<String> = trial.prepared.iter().map(ToString::to_string).collect();
    assert_eq!(
        said,
        [
            format!("CPUs of interrupt 45: 0-3 -> {cpu}"),
            format!("CPUs of interrupt 46: 0-3 -> {cpu}")
        ]
    );
    assert_eq!([interrupts(45), interrupts(46)], ["0-3", "0-3"], "restored");
}

fn rendered(study: &Study) -> String {
    let analysis = stats::analyse(study, &stats::Rules::of(&study.header));
    let subject = Subject::of(study, &analysis, None);
    let style = Style { width: 400, ..Style::default() };
    let mut out = Vec::new();
    report::find("text").unwrap().render(&subject, &style, &mut out).unwrap();
    String::from_utf8(out).unwrap()
}

/// Both agents as threads of this process, and a NIC at the receiver.
struct OneCard;

impl Testbed for OneCard {
    fn name(&self) -> &'static str {
        "one-card"
    }
    fn summary(&self) -> &'static str {
        "both agents as threads, over loopback"
    }
    fn probe(&self) -> Support {
        Support::Yes
    }
    fn stewardship(&self, _: &Site) -> Result<Stewardship, Fault> {
        let state = StateFolder::at(CARD.path().join("state"));
        Ok(Stewardship::Shared(Box::new(LocalSteward::at(state, Roots::recorded(CARD.path())))))
    }
    fn raise(&self, _: &Site) -> Result<Deployment, Fault> {
        assert_eq!(card(), ("1500".into(), "0".into()), "a testbed is raised unprepared");
        let nic = Nic { device: "eth0".into(), queues: 4, unpaired: 0, interrupts: vec![45, 46] };
        Ok(threads::start(PATHS, &[], Some(nic)))
    }
}

/// The path `socket` under other names, each with its NIC settings.
struct Asking(&'static str);

static PATHS: &[&DataPath] = made_up![Asking: "plain", "wanting", "refused", "unwilling", "placed"];

impl MadeUp for Asking {
    fn nic_settings(&self, _: &Options, wire: &FlowNic) -> Result<Vec<Setting>, Fault> {
        // Only the receiver has a NIC.
        assert_eq!((wire.device, wire.queues), ("eth0", 4));
        let lines: &[&str] = match self.0 {
            "wanting" => &["mtu eth0 4148", "threaded-napi eth0 on"],
            "refused" => &["threaded-napi eth0 on", "mtu eth9 4148"],
            "unwilling" => {
                let fault = Fault::new(FaultKind::Usage, "queue 0 carries everything else");
                return Err(fault.remedy("give the device more: ethtool -L eth0 combined N"));
            }
            _ => &[],
        };
        lines.iter().map(|line| line.parse()).collect()
    }

    fn open_tx(
        &self,
        job: &HalfConfig,
        connection: &dyn Connection,
        group: &Group,
    ) -> Result<Box<dyn Tx>, Fault> {
        self.look()?;
        (socket().tx.unwrap().open)(job, connection, group)
    }

    fn open_rx(
        &self,
        job: &HalfConfig,
        connection: &dyn Connection,
        group: &Group,
    ) -> Result<Box<dyn Rx>, Fault> {
        self.look()?;
        (socket().rx.unwrap().open)(job, connection, group)
    }
}

impl Asking {
    /// Errors if the NIC or the journal is not as expected when the path is opened.
    fn look(&self) -> Result<(), Fault> {
        if self.0 == "placed" {
            return Ok(());
        }
        let expected = if self.0 == "wanting" { ("4148", "1") } else { ("1500", "0") };
        let (mtu, threaded) = card();
        if (mtu.as_str(), threaded.as_str()) != expected {
            let text = format!("{} was opened over a card with {mtu}, {threaded}", self.0);
            return Err(Fault::new(FaultKind::Corrupt, text));
        }
        let written = fs::read_to_string(journal()).unwrap_or_default();
        let open = written.matches("\"intent\"").count() - written.matches("\"undone\"").count();
        if open != if self.0 == "wanting" { 2 } else { 0 } {
            let text = format!("{open} settings are in the journal");
            return Err(Fault::new(FaultKind::Corrupt, text));
        }
        Ok(())
    }
}
