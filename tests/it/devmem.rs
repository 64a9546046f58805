//! devmem as far as it works without a capable NIC: memory as dmabufs, the refusals of real
//! devices, recorded and live, and what a study reports about it.

use crate::made_up;
use bytepath_testing::skip;

use bytepath::record::{
    Attempt, Cell, Facts, FragmentCounts, Half, OptionValue, Options, Outcome, Role, Support,
    TrialStatus,
};
use bytepath::report::{self, Style};
use bytepath::stats::{Rules, analyse};
use bytepath::study::load;
use bytepath::sys::devmem::{self, Refusal};
use bytepath::sys::dmabuf::{self, Memory, Place};
use bytepath::workload::HalfConfig;
use bytepath::{path, testbed};
use std::os::fd::{AsFd, OwnedFd};
use std::process::Command;

/// Environment variable set in a guest that owns all its devices: then those backed by hardware are
/// tried, too.
const ALL_DEVICES: &str = "BYTEPATH_TEST_ALL_DEVICES";

/// Memory, if the kernel has udmabuf, and a stand-in for its descriptor: a driver that cannot bind
/// refuses before it looks at that.
fn memory() -> (Option<Box<dyn Memory>>, OwnedFd) {
    let memory = dmabuf::PROVIDERS
        .iter()
        .find_map(|provider| (provider.allocate)(1 << 20, Place::default()).ok());
    (memory, devmem::stand_in().unwrap())
}

#[test]
fn devices_that_cannot_bind_say_why() {
    if let Err(e) = devmem::netdev_family() {
        skip!("no netdev family: {e}");
        return;
    }
    let (memory, stand_in) = memory();
    let fd = memory.as_ref().map_or(stand_in.as_fd(), |memory| memory.fd());
    let all = std::env::var_os(ALL_DEVICES).is_some();
    let mut tried = 0;
    for entry in std::fs::read_dir("/sys/class/net").unwrap() {
        let entry = entry.unwrap();
        let name = entry.file_name().into_string().unwrap();
        if entry.path().join("device").exists() && !all || !entry.path().join("ifindex").exists() {
            continue;
        }
        let bindings = [
            ("rx", devmem::bind_receive(&name, &[0], None, fd)),
            ("tx", devmem::bind_send(&name, fd)),
        ];
        for (direction, binding) in bindings {
            let Refusal { error, words } = binding.expect_err("a virtual device binds a dmabuf");
            let errno = error.raw_os_error().unwrap();
            println!(
                "{}",
                serde_json::json!({
                    "device": name, "direction": direction, "dmabuf": memory.is_some(),
                    "errno": errno, "words": words,
                })
            );
            tried += 1;
        }
    }
    assert!(tried >= 2, "there is always a loopback device");
}

/// Refusals that a real kernel returned for its real devices.
#[derive(serde::Deserialize)]
struct Recorded {
    kernel: String,
    refusals: Vec<Refused>,
}

#[derive(serde::Deserialize)]
struct Refused {
    device: String,
    direction: String,
    errno: i32,
    words: Option<String>,
}

fn recorded() -> Recorded {
    serde_json::from_str(include_str!("../data/devmem/refusals-7.3.4.json")).unwrap()
}

/// The kernel's message reaches a user who asks for the reason.
#[test]
fn recorded_refusals_become_reasons() {
    let Recorded { kernel, refusals } = recorded();
    assert_eq!(refusals.len(), 12, "six devices, both ways");
    let devmem = path::find(path::CATALOG, "devmem").unwrap();
    for Refused { device, direction, errno, words } in refusals {
        let (role, bind) = match direction.as_str() {
            "tx" => (Role::Sender, "devmem.bind-tx"),
            _ => (Role::Receiver, "devmem.bind-rx"),
        };
        let outcome = match &words {
            Some(words) => Outcome::Refused { errno, words: words.clone() },
            None => Outcome::Errno(errno),
        };
        let works = || Outcome::Works(String::new());
        let attempts = [
            ("devmem.netdev-family", works()),
            ("devmem.memory.udmabuf", works()),
            (bind, outcome),
        ];
        let attempts = attempts.map(|(name, outcome)| Attempt { name: name.into(), outcome });
        let facts =
            Facts { kernel_release: kernel.clone(), attempts: attempts.into(), ..Facts::default() };
        let Support::No { reason, remedy } = devmem.check(role, &facts).unwrap() else {
            panic!("{device} cannot do it, and the probe says it can");
        };
        assert!(reason.contains("EOPNOTSUPP"), "{device}: {reason}");
        assert!(words.is_none_or(|words| reason.contains(&words)), "{device}: {reason}");
        assert!(remedy.contains("mlx5, gve, bnxt or fbnic"), "{device}: {remedy}");
        // Recorded facts are read back as they were written.
        let json = serde_json::to_string(&facts).unwrap();
        assert_eq!(serde_json::from_str::<Facts>(&json).unwrap(), facts);
    }
}

#[test]
fn memory_that_is_requested_is_memory_that_is_probed() {
    let devmem = path::find(path::CATALOG, "devmem").unwrap();
    let works = |name: &str| Attempt { name: name.into(), outcome: Outcome::Works(String::new()) };
    let attempts = ["devmem.netdev-family", "devmem.memory.heap", "devmem.bind-rx"].map(works);
    let facts = Facts { attempts: attempts.into(), ..Facts::default() };
    let asked = |memory: &str| {
        let mut options = Options::default();
        options.0.insert("memory".into(), OptionValue::Word(memory.into()));
        {
            let cell = Cell::new("devmem", Half::plain("devmem"), Half::plain("devmem"));
            let job = HalfConfig { options, ..HalfConfig::stream(&cell, Role::Receiver) };
            (devmem.half(Role::Receiver).unwrap().check)(&job, &facts)
        }
    };
    assert_eq!(asked("heap"), Support::Yes);
    for memory in ["udmabuf", "udmabuf-huge", "gpu"] {
        assert!(!asked(memory).is_yes(), "{memory}");
    }
}

/// The figures of the published work are in every format.
#[test]
fn fragments_per_receive_are_reported() {
    let mut study = made_up::study();
    let mut counts = FragmentCounts::default();
    for (fragments, held, freed) in [
        (875, 875, false),
        (1100, 1975, true),
        (1025, 1025, true),
        (511, 511, false),
        (512, 1023, true),
    ] {
        counts.enter(fragments, held, freed);
    }
    let cell = study.header.baseline.clone();
    let of_cell = |trial: &&mut bytepath::record::Trial| trial.cell == cell;
    let mut measured = 0;
    for trial in study.trials.iter_mut().filter(of_cell) {
        let receiver = trial.roles.iter_mut().find(|record| record.role == Role::Receiver);
        if let Some(receiver) = receiver {
            receiver.fragments = Some(counts);
            measured += 1;
        }
    }
    assert!(measured >= 3);
    let analysis = analyse(&study, &Rules::default());
    let render = |name: &str| {
        let style = Style { width: 140, details: true, ..Style::default() };
        let subject = report::Subject::of(&study, &analysis, None);
        let mut out = Vec::new();
        report::find(name).unwrap().render(&subject, &style, &mut out).unwrap();
        String::from_utf8(out).unwrap()
    };
    let text = render("text");
    let table: Vec<&str> = text
        .split("Fragments per receive into device memory")
        .nth(1)
        .unwrap()
        .lines()
        .skip_while(|line| !line.trim_start().starts_with(&cell.0))
        .collect();
    let line: Vec<&str> = table[0].split_whitespace().collect();
    let calls = (5 * measured).to_string();
    let of = |count: u64| (count * measured).to_string();
    let (above, middle, below) = (of(2), of(2), of(1));
    let (gathered, avoided) = (of(2), of(2));
    let expected = [
        &cell.0, &*calls, "804.6", "511", "1100", &above, &middle, &below, &gathered, &avoided,
        "40%", "100%", "20%",
    ];
    // 2 of 5 calls returned more than 1024 fragments, among them both calls after which more than
    // that were held.
    assert_eq!(line, expected, "{text}");

    let json: serde_json::Value = serde_json::from_str(&render("json")).unwrap();
    let json = json.to_string();
    for part in ["\"above_1024\":", "\"frees_avoided\":", "\"above_share_of_gathered\":1.0"] {
        assert!(json.contains(part), "the json report lacks {part}");
    }
    let html = render("html");
    assert!(html.contains("id=\"fragments\"") && html.contains(">804.6<"));
    let csv = render("csv");
    for (metric, value) in [
        ("fragments.average", "804.6"),
        ("fragments.calls.above_1024", "2"),
        ("fragments.share.below_512", "0.2"),
        ("fragments.frees_avoided", "2"),
    ] {
        let row = csv.lines().find(|line| line.contains(&format!(",{metric},")));
        let row = row.unwrap_or_else(|| panic!("the csv report lacks {metric}"));
        assert!(row.contains(&format!(",{value}")), "{row}");
    }

    // A report on a study that received nothing into device memory does not mention it.
    let plain = made_up::study();
    let analysis = analyse(&plain, &Rules::default());
    let subject = report::Subject::of(&plain, &analysis, None);
    let mut out = Vec::new();
    report::find("html").unwrap().render(&subject, &Style::default(), &mut out).unwrap();
    assert!(!String::from_utf8(out).unwrap().contains("id=\"fragments\""));
}

/// In a guest with a kernel that has all of devmem, memory is available and only a device is
/// missing: the study has a row with the kernel's message.
#[test]
fn a_guest_of_a_new_kernel_lacks_nothing_but_a_nic() {
    let testbed = testbed::CATALOG.iter().find(|testbed| testbed.name() == "vm").unwrap();
    if let Support::No { reason, .. } = testbed.probe() {
        skip!("{reason}");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("guest.toml");
    let experiment = r#"
        testbed = "vm"
        blocks = 1
        warm-up = "100ms"
        window = "1s"
        meters = "none"
        profile = "none"
        design = "trials"
        baseline = { path = "socket" }
        [factors]
        path = ["socket", "devmem", "devmem:recycle-batch=1024", "devmem:memory=gpu"]
    "#;
    std::fs::write(&file, experiment).unwrap();
    let out = folder.path().join("study");
    let output = Command::new(env!("CARGO_BIN_EXE_bytepath"))
        .args(["run", file.to_str().unwrap(), "--study", out.to_str().unwrap()])
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{text}");
    let study = load(&out).unwrap();
    let facts = &study.header.facts[1];
    let release = facts.kernel_release.clone();
    if facts.attempt("devmem.bind-tx").and_then(Outcome::errno).is_none_or(|e| e == libc::EINVAL) {
        skip!("Linux {release} does not know how to bind for sending");
        return;
    }
    for memory in ["udmabuf", "heap"] {
        let outcome = facts.attempt(&format!("devmem.memory.{memory}")).unwrap();
        assert!(matches!(outcome, Outcome::Works(_)), "{memory} on {release}: {outcome:?}");
    }
    let reason = |cell: &str| {
        let trial = study.trials.iter().find(|trial| trial.cell.0 == cell);
        match &trial.unwrap_or_else(|| panic!("no cell {cell}")).status {
            TrialStatus::Unavailable { reason, .. } => reason.clone(),
            other => panic!("{cell}: {other:?}"),
        }
    };
    for cell in study.header.cells.iter().filter(|cell| cell.rx.path == "devmem") {
        let reason = reason(&cell.id.0);
        println!("{release}: {}: {reason}", cell.id);
        assert!(reason.contains("Driver does not support netmem TX"), "{reason}");
        let asks_for_gpu = cell.rx.options.word("memory") == "gpu";
        assert_eq!(reason.contains("libcuda"), asks_for_gpu, "{reason}");
    }
}
