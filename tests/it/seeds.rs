//! The seeds of the fuzz targets `wire` and `trial`, one file per message, of `study` and of
//! `history` are the serialized form of today's records (INSTA_UPDATE=always writes them): a fuzzer
//! that starts from an older format hardly reaches new fields.

use crate::{made_up, rr};
use bytepath::record::wire::*;
use bytepath::record::*;
use bytepath::stats::{self, StudyPoints};
use bytepath::study::StudyWriter;
use serde::Serialize;
use serde_json::json;
use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;
use std::{env, fs};

#[test]
fn the_seeds_are_what_the_records_write() {
    hold("wire", "request", requests().iter().map(json));
    hold("wire", "reply", replies().iter().map(json));
    hold("trial", "trial", trials().iter().map(json));
    hold("study", "study", studies().iter().map(files));
    hold("history", "points", histories().iter().map(json));
}

/// Checks that each of them has a seed file with exactly its content.
fn hold(target: &str, name: &str, all: impl Iterator<Item = String>) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/seeds").join(target);
    let bless = env::var("INSTA_UPDATE").is_ok_and(|how| how == "always");
    for (n, text) in all.enumerate() {
        let path = folder.join(format!("{name}-{n:02}"));
        if bless {
            fs::write(&path, &text).unwrap();
        }
        let found = fs::read_to_string(&path).unwrap_or_default();
        assert!(found == text, "{} is out of date: INSTA_UPDATE=always writes it", path.display());
    }
}

fn json(record: &impl Serialize) -> String {
    serde_json::to_string(record).unwrap()
}

/// The files of a study and an observation, as the target reads them.
fn files(study: &Study) -> String {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("study");
    let mut writer = StudyWriter::create(&path, &study.header).unwrap();
    writer.append(&study.trials).unwrap();
    study.remarks.iter().for_each(|remark| writer.remark(remark).unwrap());
    let of_trial = |order| LoggedTrial { order, joules: 120.5, seconds: 3.0, readings: 3 };
    let log = PowerLog {
        column: None,
        schema: SCHEMA_VERSION,
        role: None,
        file: "meter.csv".into(),
        offset: 3600.25,
        explained: Some(0.9),
        rest: Some(35.0),
        trials: study.trials.iter().map(|trial| of_trial(trial.order)).collect(),
        remarks: vec!["a remark".into()],
    };
    writer.power_log(&log).unwrap();
    let files = ["experiment.toml", "hosts.json", "trials.jsonl", "remarks.txt", "power.json"]
        .map(|name| fs::read_to_string(path.join(name)).unwrap());
    let seen = fs::read("tests/data/observations/made-up.json").unwrap();
    let seen = json(&serde_json::from_slice::<Observation>(&seen).unwrap());
    format!("{}\0{seen}", files.join("\0"))
}

/// Small enough for a fuzzer: three cells in two blocks, and one trial with every field.
fn studies() -> [Study; 2] {
    [made_up::study(), rr::study()].map(|mut study| {
        study.header.cells.truncate(3);
        let cells: Vec<CellId> = study.header.cells.iter().map(|cell| cell.id.clone()).collect();
        study.trials.retain(|trial| trial.block < 2 && cells.contains(&trial.cell));
        // A fuzzer needs no smooth distribution.
        study.trials.iter_mut().filter_map(|t| t.latency.as_mut()).for_each(|l| *l = latency());
        let full = trials().into_iter().next().expect("it is measured");
        study.trials.push(Trial { block: 2, ..full });
        study.remarks.push("a remark".into());
        study
    })
}

/// Enough studies to find a change, which is in the middle.
fn histories() -> [BTreeMap<String, StudyPoints>; 2] {
    studies().map(|study| {
        let points = |n: u32| {
            let mut points = stats::points(&study);
            points.started_ms += u64::from(n);
            points.host.truncate(3);
            points.points.truncate(2);
            let factor = if n < 6 { 1.0 } else { 0.5 } + f64::from(n % 3) / 100.0;
            points.points.iter_mut().for_each(|point| point.mean *= factor);
            (format!("study-{n:02}"), points)
        };
        (0..12).map(points).collect()
    })
}

fn settings() -> LinkSettings {
    LinkSettings {
        adapters: 2,
        hds: Some(true),
        gro_max: Some(524_280),
        queue_length: Some(1000),
        tap: Some(TapSettings { queues: 2, macvtap: true, ..TapSettings::default() }),
        threaded_napi: true,
        rps: Some(1),
        asked: Some([("mtu".to_owned(), "4148".to_owned())].into()),
        ..LinkSettings::default()
    }
}

fn cell() -> Cell {
    let options = [
        ("ring".to_owned(), OptionValue::Number(1024)),
        ("zc".to_owned(), OptionValue::Flag(true)),
        ("mode".to_owned(), OptionValue::Word("bundle".into())),
    ];
    let half = |path: &str| Half {
        path: path.into(),
        options: Options(options.clone().into_iter().collect()),
    };
    Cell {
        id: CellId("uring ring=1K".into()),
        workload: Activity::default(),
        stream: Stream {
            flows: 2,
            message_size: 1 << 20,
            read_size: 1 << 19,
            send_buffer: None,
            receive_buffer: Some(1 << 22),
            congestion: "cubic".into(),
            touch: Touch::Verify,
            tls: Tls::Kernel,
            ..Stream::default()
        },
        tx: half("uring"),
        rx: half("socket"),
        link: settings(),
        placement: Placement {
            softirq: SoftirqCpu::Cpu(1),
            io_wq: Some(0),
            ..Placement::pinned(0, 1)
        },
        levels: [("mtu".to_owned(), "9000".to_owned())].into(),
        kernel: None,
        settings: Vec::new(),
        null: true,
    }
}

fn requests() -> Vec<Request> {
    let token = || Token("00112233445566778899aabbccddeeff".into());
    let address = "10.0.0.1".parse().expect("an address");
    let sampling = Sampling { event: "cycles".into(), rate: 999, cpus: vec![0, 1] };
    let end = LinkEnd {
        peer: Some(("bp1".into(), 4242)),
        settings: settings(),
        softirq_cpu: Some(1),
        softirq_required: true,
        ..LinkEnd::plain("bp0", address, 24)
    };
    let listen = Listen {
        cell: Box::new(cell()),
        address,
        devices: Vec::new(),
        token: token(),
        ports: Some(Ports { low: 5000, high: 5009 }),
        secret: Some(Secret([[1; 28], [2; 28]])),
    };
    let connect = Connect {
        cell: Box::new(cell()),
        peers: vec![(address, 40_000).into()],
        devices: vec!["bp0".into()],
        token: token(),
        ports: None,
        secret: None,
    };
    let profile = MeterRequest { name: "profile".into(), options: json!(sampling) };
    let pack = PackProfile {
        title: "socket".into(),
        bytes: 1 << 30,
        packets: Some(1e6),
        agents: [Some(4242), None],
        guest: Some((Role::Receiver, 77)),
        placement: Box::new(Placement::pinned(0, 1)),
    };
    vec![
        Hello {}.into(),
        SetUpLink { end: Box::new(end.clone()) }.into(),
        SteerLink { end: Box::new(end) }.into(),
        ListAddresses {}.into(),
        Survey { device: Some("bp0".into()), meters: true }.into(),
        MeasureCeiling { cpu: None, size: 1 << 20 }.into(),
        listen.into(),
        connect.into(),
        Accept {}.into(),
        Start { meters: vec!["cpu".into(), profile], alone: true, qemu: Some(77) }.into(),
        Pace { hold: false }.into(),
        Pass { seconds: 0.25 }.into(),
        OpenWindow { at: Some(1 << 40) }.into(),
        CloseWindow { at: None }.into(),
        Stop {}.into(),
        Finish { timeout: 2.5 }.into(),
        ReadClock {}.into(),
        FindRoute { to: "fd00::1".parse().expect("an address") }.into(),
        ListenForProbe { address, ports: None, token: token() }.into(),
        Probe { address, port: 5001, token: token(), mtu: [1500, 9000] }.into(),
        EndProbe {}.into(),
        Ping {}.into(),
        FindDevice { address }.into(),
        FindNic { device: "eth0".into() }.into(),
        AwaitCarrier { device: "eth0".into(), timeout: 10.0 }.into(),
        SetSysctls { values: vec![(SysctlName::new("net.core.rmem_max").unwrap(), "1".into())] }
            .into(),
        ReadFacts {}.into(),
        AwaitWindow { timeout: 2.0 }.into(),
        CountFrames { device: "bp0".into() }.into(),
        PriceSample { event: Some("cycles".into()), cpu: None }.into(),
        pack.into(),
        FetchPart { at: 1 << 22 }.into(),
        ApplySettings { settings: wanted() }.into(),
        UndoAll {}.into(),
        PrepareSettings { settings: wanted() }.into(),
        UndoPrepared {}.into(),
        RestoreLeftBehind {}.into(),
        CheckSettings { settings: wanted() }.into(),
        PreviewSettings { settings: wanted() }.into(),
        ReadFingerprint {}.into(),
        Examine {}.into(),
        HoldGpu { gpu: "0000:65:00.0".into() }.into(),
        CheckDevice { device: "eth0".into() }.into(),
    ]
}

fn wanted() -> Vec<WantedSetting> {
    let of = |name: &str, value: &str| Setting::Sysctl {
        name: SysctlName::new(name).unwrap(),
        value: value.to_owned(),
    };
    let optional = WantedSetting {
        profile: Some("latency".into()),
        optional: true,
        host: Some(Role::Sender),
        ..of("net.core.busy_poll", "50").into()
    };
    vec![of("net.ipv4.tcp_rmem", "4096 131072 6291456").into(), optional]
}

fn record() -> SettingRecord {
    let of = |value: &str| SettingValue([("value".to_owned(), value.to_owned())].into());
    let WantedSetting { setting, profile, host, .. } = wanted().remove(1);
    SettingRecord { setting, profile, before: of("0"), after: of("50"), skipped: None, host }
}

fn row() -> RestorationRow {
    let SettingRecord { setting, before, after: set, host, .. } = record();
    let outcome = Restoration::LeftAlone;
    RestorationRow { setting, before, set, outcome, note: "now 100".into(), host }
}

fn hops() -> Hops {
    Hops { offered: 1 << 20, received: 1 << 19, device_dropped: 7, ..Hops::default() }
}

fn readings() -> Vec<Reading> {
    let link = Scope::Link(Role::Sender, "bp0".into());
    [
        ("cpu.wall", Unit::Seconds, 3.000_123, Scope::Machine),
        ("cpu.busy", Unit::Seconds, 0.1 + 0.2, Scope::Cpu(1)),
        ("tcp.cwnd", Unit::Count, 10.0, Scope::Flow(Role::Sender, 0)),
        ("link.rx_bytes", Unit::Bytes, 1e12, link),
        ("uring.hit", Unit::Ratio, 0.5, Scope::Role(Role::Receiver)),
    ]
    .map(|(metric, unit, value, scope)| Reading::sum(metric, unit, value, scope))
    .into()
}

fn series() -> Vec<Series> {
    vec![Series {
        metric: "throughput".into(),
        unit: Unit::BytesPerSecond,
        scope: Scope::Flow(Role::Receiver, 0),
        step: 0.1,
        values: vec![1.5e9, 2e9, 0.0],
    }]
}

fn threads() -> Vec<ThreadTime> {
    vec![ThreadTime {
        name: "rx-0".into(),
        tid: 77,
        run: 1.25,
        wait: 0.001,
        user: 0.25,
        system: 1.0,
        voluntary: 12,
        involuntary: 3,
    }]
}

fn fragments() -> FragmentCounts {
    let mut fragments = FragmentCounts::default();
    fragments.enter(875, 875, false);
    fragments.enter(1025, 1900, true);
    fragments
}

fn latency() -> Latency {
    let mut latency = Latency::default();
    (0..24).for_each(|n| latency.record(Duration::from_nanos(900 << n)));
    latency
}

fn role_record() -> RoleRecord {
    let mut ledger = Ledger::default();
    ledger.enter(Manner::Copied, 4096, 1, "recv");
    ledger.enter(Manner::NotCopied, 1 << 30, 4096, "mapped");
    ledger.enter(Manner::Unknown, 7, 1, "send");
    RoleRecord {
        role: Role::Receiver,
        total_bytes: ledger.delivered,
        count: 1 << 29,
        window: 3.0,
        ledger,
        calls: vec![CallRow {
            name: "recv".into(),
            calls: 9,
            errors: 1,
            bytes: 4096,
            total: 0.5,
            min: 1e-6,
            avg: 1.12e-4,
            max: 3.71e-4,
            stddev_percent: 0.03,
        }],
        calls_by_thread: vec![ThreadCalls { thread: "receiver/1".into(), calls: Vec::new() }],
        sizes: SizeDistribution {
            count: 9,
            min: 1,
            mean: 512.5,
            max: 4096,
            percentiles: vec![(50.0, 512), (99.0, 4096)],
        },
        fragments: Some(fragments()),
        latency: None,
        hops: Some(hops()),
        threads: threads(),
        witness: Some(ProvenWitness::Copied),
        notes: vec!["a note".into()],
    }
}

fn facts() -> Facts {
    Facts {
        machine: "2c3f".into(),
        cpus: vec![0, 1],
        memory: 1 << 34,
        page_size: 4096,
        privileges: Privileges {
            euid: 0,
            user_namespace: true,
            capabilities: vec!["NET_ADMIN".into()],
        },
        settings: [("net.core.rmem_max".to_owned(), "212992".to_owned())].into(),
        attempts: vec![
            Attempt { name: "io_uring.setup".into(), outcome: Outcome::Works("64".into()) },
            Attempt { name: "zcrx".into(), outcome: Outcome::Errno(95) },
            Attempt { name: "dsa".into(), outcome: Outcome::Missing("no device".into()) },
        ],
        ..Facts::default()
    }
}

fn fault() -> Fault {
    Fault::new(FaultKind::PeerLost, "recv: connection reset").remedy("see the other agent")
}

fn replies() -> Vec<Reply> {
    vec![
        Reply::Hello(Identity { schema: SCHEMA_VERSION, build: "0.1.0".into(), pid: 4242 }),
        Reply::Accept(()),
        Reply::Survey(Box::new(facts())),
        Reply::MeasureCeiling(CopyCeiling {
            workload: 5e10,
            workload_size: 1 << 20,
            memory: 1.25e10,
            memory_size: 1 << 28,
        }),
        Reply::Listen("10.0.0.1:40000".parse().unwrap()),
        Reply::CloseWindow(WindowRecord {
            readings: readings(),
            series: series(),
            threads: threads(),
            warnings: vec!["softnet: CPU 1 dropped 3 packets".into()],
            edges: [1 << 40, u64::MAX],
        }),
        Reply::Finish(RoleEnd {
            record: Box::new(role_record()),
            witness: Some(ProvenWitness::Shared),
            readings: Vec::new(),
        }),
        Reply::Failed(fault()),
        Reply::Lost(fault()),
        Reply::ReadClock(ClockReading { monotonic: 1 << 40, realtime: u64::MAX }),
        Reply::FindRoute(Route {
            device: "eth0".into(),
            source: Some("10.0.0.2".parse().expect("an address")),
            gateway: None,
            mtu: 1500,
            own: false,
        }),
        Reply::ListenForProbe(5001),
        Reply::Probe(Contact::Made { forth: Passage::Whole, back: Passage::UpTo(1400), mtu: 1500 }),
        Reply::Probe(Contact::Failed { error: "no route".into() }),
        Reply::EndProbe(ProbeResult { half_open: true, accepted: 1, mtu: Some(1500) }),
        Reply::Ping(()),
        Reply::FindDevice("bp0".into()),
        Reply::ListAddresses(vec![HostAddress {
            device: "lo".into(),
            address: "127.0.0.1".parse().unwrap(),
            prefix: 8,
        }]),
        Reply::FindNic(Some(Nic {
            device: "eth0".into(),
            queues: 8,
            unpaired: 2,
            interrupts: vec![40, 41],
        })),
        Reply::FindNic(None),
        Reply::SetUpLink(vec!["no RPS".into()]),
        Reply::SteerLink(Vec::new()),
        Reply::CountFrames(Box::new(hops())),
        Reply::PackProfile(ProfileSize { bytes: 12, samples: 3, lost: 0, notes: Vec::new() }),
        Reply::FetchPart(Bytes(vec![0, 255, 16])),
        Reply::ApplySettings((vec![record()], vec![row()])),
        Reply::HoldGpu(()),
    ]
}

fn clock(offset: f64) -> HostClock {
    HostClock { offset, error: 0.000_125, drift: -1e-6, wall: 0.5 }
}

fn trials() -> Vec<Trial> {
    let unavailable =
        TrialStatus::Unavailable { reason: "no device".into(), remedy: "a NIC with zcrx".into() };
    let rejected = TrialStatus::Rejected { events: vec!["CPU 1 lost 12 % to steal".into()] };
    [TrialStatus::Measured, rejected, unavailable, TrialStatus::Failed { fault: fault() }]
        .map(|status| Trial {
            schema: SCHEMA_VERSION,
            cell: CellId("socket".into()),
            block: 1,
            order: 7,
            started_ms: 1_800_000_000_123,
            status,
            work: Work::Exchanges,
            window: 3.000_01,
            count: 1 << 34,
            latency: Some(latency()),
            offered: Some(20_000.5),
            hops: Some(hops()),
            spans: vec![TimeSpan { begin: 1_800_000_001.5, length: 3.000_01 }],
            clocks: Some(Clocks {
                sender: clock(-1e6),
                receiver: clock(0.25),
                opened: 0.002,
                closed: -0.001,
                error: 0.0005,
            }),
            label: "copied".into(),
            roles: vec![role_record()],
            readings: readings(),
            series: series(),
            warnings: vec!["a warning".into()],
            disturbances: vec!["other processes used 61% of CPU 0".into()],
            prepared: vec![record()],
            profile: None,
            pair: None,
        })
        .into()
}
