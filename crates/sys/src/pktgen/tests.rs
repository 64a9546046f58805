//! Parsing of what pktgen prints, and the real pktgen if the kernel has it.

use super::*;
use crate::bpf::xdp::{Dropper, Mark, Mode};
use crate::test_net::pair;
use bytepath_testing::skip;
use std::time::Instant;

fn job(device: &str) -> Job {
    Job {
        device: device.to_owned(),
        cpus: vec![0],
        size: 60,
        counts: vec![1000],
        burst: 1,
        clones: 0,
        rates: vec![],
        hardware: [[2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 2]],
        addresses: [Ipv4Addr::new(198, 18, 0, 1), Ipv4Addr::new(198, 18, 0, 2)],
        ports: [9, 9],
    }
}

/// Printed by Linux 7.3.
const PRINTED: &str = include_str!("../../../../fuzz/seeds/procfs/pktgen-device");

#[test]
fn what_it_prints_is_read() {
    let ended =
        Progress { sent: 1000, errors: 0, idle: Duration::from_micros(25), rate: Some(41273) };
    assert_eq!(parse(PRINTED), Ok(ended));
    // While it runs, the last line is the result of the last command.
    let (running, _) = PRINTED.split_once("Result:").unwrap();
    let running = format!("{running}Result: OK: burst=32\n").replace("errors: 0", "errors: 17");
    assert_eq!(parse(&running), Ok(Progress { errors: 17, rate: None, ..ended }));
    for label in ["Current:", "pkts-sofar:", "errors:", "idle:"] {
        let error = parse(&PRINTED.replace(label, "x")).unwrap_err();
        assert!(error.to_string().contains(label), "{error}");
    }
    let too_large = PRINTED.replace("pkts-sofar: 1000", "pkts-sofar: 99999999999999999999");
    assert!(parse(&too_large).is_err());
}

#[test]
fn a_thread_is_at_work_that_has_a_device() {
    let folder = tempfile::tempdir().unwrap();
    assert_eq!(threads_at_work(folder.path()), [""; 0]);
    let files = folder.path().join(FOLDER);
    fs::create_dir_all(&files).unwrap();
    for (name, text) in [
        ("kpktgend_0", "Running: \nStopped: byte0@0 \nResult: OK: add_device=byte0@0\n"),
        ("kpktgend_1", "Running: \nStopped: \nResult: NA\n"),
        ("kpktgend_2", "Running: byte0@1 \nStopped: \nResult: OK: start\n"),
        ("byte0@0", "Running: x\n"),
        ("pgctrl", "Packet Generator for packet performance testing.\n"),
    ] {
        fs::write(files.join(name), text).unwrap();
    }
    let mut found = threads_at_work(folder.path());
    found.sort();
    assert_eq!(found, ["kpktgend_0", "kpktgend_2"]);
}

#[test]
fn a_folder_without_pktgen_and_a_name_that_is_a_path_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    assert!(!is_there(folder.path()));
    let refused = Generator::new(folder.path(), &job("one")).unwrap_err();
    assert!(refused.to_string().contains("kpktgend_0: rem_device_all: No such file"), "{refused}");
    let refused = Generator::new(folder.path(), &job("../one")).unwrap_err();
    assert_eq!(refused.error.kind(), io::ErrorKind::InvalidInput, "{refused}");
}

#[test]
fn every_thread_has_a_queue_of_its_own() {
    let job = Job { burst: 32, rates: vec![0, 1000], ..job("one") };
    let of = |queue| settings(&job, queue);
    for wanted in ["pkt_size 60", "src_mac 02:00:00:00:00:01", "dst_min 198.18.0.2", "burst 32"] {
        assert!(of(0).contains(&wanted.to_owned()), "{wanted}: {:?}", of(0));
    }
    for wanted in ["queue_map_min 1", "ratep 1000", "udp_src_max 10", "udp_dst_max 9", "count 0"] {
        assert!(of(1).contains(&wanted.to_owned()), "{wanted}: {:?}", of(1));
    }
}

/// The real pktgen, on a veth pair whose other end counts.
fn real() -> Option<Dropper> {
    let [_, other] = pair()?;
    if !is_there("/proc/thread-self".as_ref()) {
        skip!("the kernel has no pktgen");
        return None;
    }
    let mark = Mark { at: 12, bytes: [8, 0, 0x45, 0] };
    Dropper::attach(other, mark, Mode::Native).map_err(|e| skip!("no XDP: {e}")).ok()
}

const PROC: &str = "/proc/thread-self";

#[test]
fn it_generates_as_many_as_requested() {
    let Some(dropper) = real() else { return };
    let generator = Generator::new(PROC.as_ref(), &job("one")).unwrap();
    assert_eq!(generator.progress(0).unwrap(), Progress::default());
    generator.run().unwrap();
    let progress = generator.progress(0).unwrap();
    assert_eq!((progress.sent + progress.errors, progress.rate.is_some()), (1000, true));
    assert_eq!(dropper.count().unwrap().frames, progress.sent, "{progress:?}");
}

/// Two generators of one thread, which alternates between them.
#[test]
fn one_thread_may_serve_several() {
    let Some(dropper) = real() else { return };
    let job = Job { cpus: vec![0, 0], counts: vec![300, 500], ..job("one") };
    let generator = Generator::new(PROC.as_ref(), &job).unwrap();
    generator.run().unwrap();
    let all = [0, 1].map(|number| generator.progress(number).unwrap());
    assert_eq!(all.map(|one| one.sent + one.errors), [300, 500]);
    assert_eq!(dropper.count().unwrap().frames, all[0].sent + all[1].sent);
}

#[test]
fn it_ends_on_request() {
    let Some(_dropper) = real() else { return };
    let generator = Generator::new(PROC.as_ref(), &Job { counts: vec![], ..job("one") }).unwrap();
    std::thread::scope(|scope| {
        // Child threads share the namespace of this thread, and so its files.
        let running = scope.spawn(|| generator.run());
        let deadline = Instant::now() + Duration::from_secs(20);
        while generator.progress(0).unwrap().sent == 0 {
            assert!(Instant::now() < deadline, "it does not begin");
            std::thread::sleep(Duration::from_millis(10));
        }
        generator.stop().unwrap();
        running.join().unwrap().unwrap();
    });
}

#[test]
fn a_burst_is_refused_where_buffers_cannot_be_shared() {
    let Some(_dropper) = real() else { return };
    for job in [Job { burst: 2, ..job("one") }, Job { clones: 1, ..job("one") }] {
        let refused = Generator::new(PROC.as_ref(), &job).unwrap_err();
        assert_eq!(refused.error.raw_os_error(), Some(libc::EOPNOTSUPP), "{refused}");
    }
}
