//! Meters of power, idle states and clocks on made-up machines, for which every number is known,
//! and on this machine as far as it has them.

use crate::machines::{Machine, meter, value};
use crate::schema::assert_fits;
use bytepath::host::survey;
use bytepath::meter::{self, Context, Output};
use bytepath::record::{Facts, Power, PowerSource, Rest, Scope, Support, Unit};
use bytepath::stats::power_log::Log;
use bytepath::sys::{pmu, powercap};
use bytepath_testing::skip;
use serde_json::json;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

fn context(machine: &Machine, source: PowerSource) -> Context {
    let options = json!(Power { source, ..Power::default() });
    Context { options, ..Context::idle(machine.roots()) }
}

fn facts(machine: &Machine) -> Facts {
    survey(&machine.roots())
}

fn measure(machine: &Machine, name: &str, source: PowerSource) -> Output {
    machine.measure(name, &context(machine, source))
}

fn assert_joules(output: &Output, expected: &[(&str, f64)]) {
    let joules = output.readings.iter().filter(|r| r.unit == Unit::Joules);
    let found: Vec<_> = joules.map(|r| (r.metric.as_str(), r.value)).collect();
    assert_eq!(found.len(), expected.len(), "{found:?}");
    for (name, joules) in expected {
        let value = value(output, name, &Scope::Machine);
        assert!((value - joules).abs() < 1e-6, "{name}: {value}, not {joules}");
    }
}

#[test]
fn a_server_whose_platform_counter_holds_all_the_others() {
    let machine = Machine::at_start("xeon-2s-rapl");
    let output = measure(&machine, "power", PowerSource::Auto);
    // The first package's counter wrapped.
    assert_joules(
        &output,
        &[
            ("power.package-0", 250.5),
            ("power.package-0.dram", 30.25),
            ("power.package-1", 200.0),
            ("power.package-1.dram", 25.0),
            ("power.psys", 620.0),
            ("power.energy", 620.0),
        ],
    );
    assert_eq!(output.warnings, [""; 0]);
    let watts = output.readings.iter().find(|r| r.metric == "power.watts").unwrap();
    assert!(watts.unit == Unit::Watts && watts.value > 620.0, "the test took less than a second");
}

#[test]
fn an_epyc_by_rapl_and_by_its_own_driver() {
    let machine = Machine::at_start("epyc-amd-energy");
    let output = measure(&machine, "power", PowerSource::Auto);
    let core = ("power.package-0.core", 60.0);
    assert_joules(&output, &[("power.package-0", 180.0), core, ("power.energy", 180.0)]);
    let machine = Machine::at_start("epyc-amd-energy");
    let output = measure(&machine, "power", PowerSource::Hwmon);
    assert_joules(&output, &[("power.amd.energy.Esocket0", 180.5), ("power.energy", 180.5)]);
}

#[test]
fn a_laptop_with_a_zone_shown_twice_and_a_platform_counter_that_lies() {
    let machine = Machine::at_start("laptop-battery");
    let names: Vec<_> = powercap::zones(&machine.dir.path().join("sys"));
    let names: Vec<_> = names.iter().map(|zone| zone.name.as_str()).collect();
    assert_eq!(names, ["package-0", "package-0/core", "package-0/uncore", "psys"]);
    let output = measure(&machine, "power", PowerSource::Auto);
    assert!((value(&output, "power.energy", &Scope::Machine) - 12.0).abs() < 1e-9);
    assert!(output.warnings[0].contains("shows 5.0 J, less than the 12.0 J"), "{output:?}");
    // The battery powers the whole machine while it discharges, and the graphics are a part.
    let machine = Machine::at_start("laptop-battery");
    let output = measure(&machine, "power", PowerSource::Hwmon);
    assert!((value(&output, "power.watts", &Scope::Machine) - 12.5).abs() < 0.1, "{output:?}");
    let status = machine.dir.path().join("sys/class/power_supply/BAT0/status");
    fs::write(status, "Charging\n").unwrap();
    let fault = (meter("power").start)(&context(&machine, PowerSource::Hwmon)).err().unwrap();
    assert!(fault.message.contains("sensors of parts alone: BAT0, amdgpu"), "{fault}");
}

#[test]
fn a_machine_without_a_source_says_so_and_gives_no_figure() {
    let machine = Machine::at_start("arm-server-psci");
    let Support::No { reason, remedy } = (meter("power").probe)(&facts(&machine)) else {
        panic!("there is no source")
    };
    for part in ["RAPL", "PMU power", "hwmon"] {
        assert!(reason.contains(part), "{reason}");
    }
    assert!(remedy.contains("csv=FILE"), "{remedy}");
    assert_eq!(measure(&machine, "power", PowerSource::Auto), Output::default());
    for source in [PowerSource::Rapl, PowerSource::Perf, PowerSource::Hwmon] {
        assert!(!meter::power_support(&facts(&machine), &source).is_yes());
        assert!((meter("power").start)(&context(&machine, source)).is_err());
    }
    for name in ["xeon-2s-rapl", "epyc-amd-energy", "laptop-battery"] {
        assert!((meter("power").probe)(&facts(&Machine::at_start(name))).is_yes(), "{name}");
    }
}

#[test]
fn idle_power_is_subtracted_and_reported() {
    let machine = Machine::at_start("epyc-amd-energy");
    let rest = Rest::Given { watts: 50.0 };
    let power = Power { source: PowerSource::Rapl, rest, ..Power::default() };
    let context = Context { options: json!(power), ..context(&machine, PowerSource::Rapl) };
    let running = (meter("power").start)(&context).unwrap();
    machine.lay("stop");
    let output = running.stop().unwrap();
    let read = |metric| value(&output, metric, &Scope::Machine);
    let seconds = read("power.energy") / read("power.watts");
    assert!((read("power.energy") + 50.0 * seconds - 180.0).abs() < 1e-6);
    assert_eq!(read("power.rest"), 50.0);
}

#[test]
fn counters_that_are_nonsense_are_reported_by_their_path() {
    let machine = Machine::at_start("epyc-amd-energy");
    let path = machine.dir.path().join("sys/class/powercap/intel-rapl:0/energy_uj");
    fs::write(&path, "a lot\n").unwrap();
    let fault = (meter("power").start)(&context(&machine, PowerSource::Rapl)).err().unwrap();
    assert!(fault.message.contains("intel-rapl:0/energy_uj is not a number"), "{fault}");
}

#[test]
fn events_that_perf_offers() {
    let machine = Machine::at_start("xeon-2s-rapl");
    let offered = pmu::offered(&machine.dir.path().join("sys"), "power");
    let names: Vec<_> = offered.iter().map(|event| event.name.as_str()).collect();
    assert_eq!(names, ["energy-pkg", "energy-psys", "energy-ram"]);
    assert_eq!((offered[0].cpus.as_slice(), offered[0].measure.as_str()), (&[0, 2][..], "Joules"));
    assert!((offered[0].scale * f64::from(1u32 << 16) * f64::from(1u32 << 16) - 1.0).abs() < 1e-12);
}

#[test]
fn the_time_stamp_counter_of_this_machine_counts() {
    let sys = Path::new("/sys");
    let Some(tsc) = pmu::offered(sys, "msr").into_iter().find(|event| event.name == "tsc") else {
        skip!("no msr/tsc/ here");
        return;
    };
    let counter = match tsc.open(0, sys) {
        Ok(counter) => counter,
        Err(e) => return skip!("perf is not for this user: {e}"),
    };
    let before = counter.read().unwrap();
    let begin = std::time::Instant::now();
    while begin.elapsed().as_millis() < 20 {}
    let rate = (counter.read().unwrap() - before) as f64 / begin.elapsed().as_secs_f64();
    assert!((5e8..2e10).contains(&rate), "{rate} Hz");
}

#[test]
fn idle_states_of_a_server() {
    let machine = Machine::at_start("xeon-2s-rapl");
    let output = measure(&machine, "cstates", PowerSource::Auto);
    let read = |metric: &str, cpu| value(&output, metric, &Scope::Cpu(cpu));
    // The window of a test lasts as long as the test, so only shares are compared.
    assert!((read("cstate.C6", 1) / read("cstate.C1", 1) - 4.0).abs() < 1e-9);
    assert!((read("cstate.C1", 2) / read("cstate.POLL", 2) - 50.0).abs() < 1e-9);
    assert_eq!((read("cstate.C6", 0), read("cstate.C6.entries", 0)), (0.0, 0.0));
    assert_eq!(read("cstate.C1.entries", 3), 900.0);
    assert_eq!((read("cstate.C6.rejected", 1), read("cstate.C1E.above", 0)), (2.0, 20.0));
    assert!(
        !output
            .readings
            .iter()
            .any(|r| r.metric == "cstate.C6.rejected" && r.scope == Scope::Cpu(2))
    );
    // Hardware residency counters cannot be opened in a tree of files, and that is reported.
    assert!(
        output.warnings.iter().any(|w| w.contains("no residency by the hardware")),
        "{output:?}"
    );
    assert!(output.readings.iter().all(|r| !r.metric.starts_with("cstate.hw")));
}

#[test]
fn idle_states_of_an_arm_server_and_a_cpu_that_went_away() {
    let machine = Machine::at_start("arm-server-psci");
    let running = (meter("cstates").start)(&context(&machine, PowerSource::Auto)).unwrap();
    machine.lay("stop");
    // The file of a CPU that goes offline no longer contains a number.
    let time = machine.dir.path().join("sys/devices/system/cpu/cpu1/cpuidle/state0/time");
    fs::write(time, "").unwrap();
    let output = running.stop().unwrap();
    assert_eq!(value(&output, "cstate.cpu-sleep-0.entries", &Scope::Cpu(0)), 100.0);
    assert_eq!(output.warnings, ["cstates: left out, not online throughout: CPU 1"]);
}

#[test]
fn clocks_as_cpufreq_shows_them() {
    let machine = Machine::at_start("xeon-2s-rapl");
    let output = measure(&machine, "frequency", PowerSource::Auto);
    assert_eq!(value(&output, "frequency.shown", &Scope::Cpu(3)), 2.5e9);
    assert!(output.readings.iter().all(|r| r.unit == Unit::Hertz));
    assert!((meter("frequency").probe)(&facts(&machine)).is_yes());
    let facts = facts(&Machine::at_start("arm-server-psci"));
    assert!(!(meter("frequency").probe)(&facts).is_yes());
}

/// Runs bytepath; returns its exit code and both output streams.
fn bytepath(arguments: &[&str]) -> (Option<i32>, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_bytepath")).args(arguments).output().unwrap();
    let text = [output.stdout, output.stderr].concat();
    (output.status.code(), String::from_utf8_lossy(&text).into_owned())
}

/// Runs a study of two paths with whole trials of half a second.
fn study(folder: &Path, more: &[&str]) -> (Option<i32>, String) {
    let folder = folder.display().to_string();
    let common = [
        "run",
        "--path",
        "socket",
        "--path",
        "msg-zerocopy",
        "--blocks",
        "2",
        "--window",
        "500ms",
        "--warm-up",
        "100ms",
        "--design",
        "trials",
        "--profile",
        "none",
        "--seed",
        "7",
        "--study",
        &folder,
    ];
    bytepath(&[&common[..], more].concat())
}

/// The trials that ran to their end. If other programs use the CPUs, a stream may stall for too
/// long, and its trial fails, as it should.
fn trials(folder: &Path) -> Vec<serde_json::Value> {
    let text = fs::read_to_string(folder.join("trials.jsonl")).unwrap();
    let all = text.lines().map(|line| serde_json::from_str(line).unwrap());
    let ran: Vec<serde_json::Value> =
        all.filter(|t: &serde_json::Value| t["status"]["is"] != "failed").collect();
    assert!(!ran.is_empty(), "{text}");
    ran
}

/// Whether a study ended: its trials may have failed (5) because the machine is busy.
fn ended(code: Option<i32>) -> bool {
    matches!(code, Some(0 | 5))
}

#[test]
fn a_program_that_prints_watts_gives_joules_per_gib() {
    let dir = tempfile::tempdir().unwrap();
    let script = dir.path().join("watts.sh");
    fs::write(&script, "while :; do echo 80.5 W; sleep 0.05; done\n").unwrap();
    let folder = dir.path().join("study");
    let source = format!("command=sh {},rest=30", script.display());
    let (code, text) = study(&folder, &["--power", &source]);
    assert!(ended(code), "{text}");
    for trial in trials(&folder) {
        let readings = trial["readings"].as_array().unwrap();
        let read = |name: &str| {
            let found = readings.iter().find(|r| r["metric"] == name);
            found.unwrap_or_else(|| panic!("no {name}: {}", trial["warnings"]))["value"]
                .as_f64()
                .unwrap()
        };
        assert!((read("power.watts") - 50.5).abs() < 0.01, "{}", read("power.watts"));
        assert!(read("power.readings") >= 2.0);
    }
}

#[test]
fn a_log_with_another_clock_is_aligned_with_a_study() {
    let dir = tempfile::tempdir().unwrap();
    let folder = dir.path().join("study");
    let (code, text) = study(&folder, &[]);
    assert!(ended(code), "{text}");
    let trials = trials(&folder);
    let spans: Vec<(f64, f64, bool)> = trials
        .iter()
        .map(|trial| {
            let span = &trial["spans"][0];
            let begin = span["begin"].as_f64().unwrap();
            let end = begin + span["length"].as_f64().unwrap();
            (begin, end, trial["cell"] == "msg-zerocopy")
        })
        .collect();
    let count = spans.len();
    // Ten seconds of rest on both sides; the log's clock is an hour and 2.5 s behind.
    let (first, last) = (spans[0].0 - 10.0, spans[count - 1].1 + 10.0);
    let mut log = String::from("Time,Power (W)\n");
    for step in 0..((last - first) / 0.05) as u64 {
        let now = first + step as f64 * 0.05;
        let flows = spans.iter().find(|(begin, end, _)| (begin - 0.1..*end).contains(&now));
        let above = flows.map_or(0.0, |(.., zerocopy)| if *zerocopy { 90.0 } else { 60.0 });
        let noise = f64::from((step * 7919 % 13) as u32) / 6.0 - 1.0;
        log += &format!("{:.3},{:.2}\n", now - 3602.5, 100.0 + above + noise);
    }
    let file: PathBuf = dir.path().join("meter.csv");
    fs::write(&file, log).unwrap();
    let (study, file) = (folder.display().to_string(), file.display().to_string());
    let (code, text) = bytepath(&["attach", &study, &file, "--rest", "measure"]);
    assert_eq!(code, Some(0), "{text}");
    let flat = text.split_whitespace().collect::<Vec<_>>().join(" ");
    let source = format!("power is from the log meter.csv ('Power (W)'), {count} trials");
    assert!(flat.contains(&source), "{text}");
    let kept: serde_json::Value =
        serde_json::from_str(&fs::read_to_string(folder.join("power.json")).unwrap()).unwrap();
    assert_fits("power", &kept);
    let offset = kept["offset"].as_f64().unwrap();
    assert!((offset - 3602.5).abs() < 0.06, "{offset}");
    assert!((kept["rest"].as_f64().unwrap() - 100.0).abs() < 0.5, "{kept}");
    for (logged, (.., zerocopy)) in kept["trials"].as_array().unwrap().iter().zip(&spans) {
        let seconds = logged["seconds"].as_f64().unwrap();
        let watts = logged["joules"].as_f64().unwrap() / seconds;
        let expected = if *zerocopy { 90.0 } else { 60.0 };
        // The edges of a window contain some rest if the offset is slightly off.
        let edge = expected * 0.06 / seconds;
        assert!((watts - expected).abs() < 1.0 + edge, "{watts}, not {expected} ({seconds} s)");
    }
    // Attached power is there whenever the study is shown.
    let (_, csv) = bytepath(&["show", &study, "--format", "csv"]);
    assert_eq!(csv.lines().filter(|line| line.contains(",power.watts,")).count(), count, "{csv}");
    // It cannot be attached to one role: the hosts share the machine.
    let (code, text) = bytepath(&["attach", &study, &file, "--role", "sender"]);
    assert_eq!(code, Some(2), "{text}");
    assert!(text.contains("their hosts share a machine"), "{text}");
    // A log of another time is refused, and the attached one stays.
    let other = dir.path().join("other.csv");
    fs::write(&other, "0,5\n1,6\n2,7\n").unwrap();
    let (code, text) = bytepath(&["attach", &study, &other.display().to_string()]);
    assert_eq!(code, Some(6), "{text}");
    assert!(text.contains("covers 2 s"), "{text}");
}

#[test]
fn a_source_that_is_not_there_is_an_error_before_the_study() {
    let dir = tempfile::tempdir().unwrap();
    let folder = dir.path().join("study");
    let (code, text) = study(&folder, &["--power", "csv=/no/such/log.csv"]);
    assert_eq!(code, Some(6), "{text}");
    assert!(text.contains("/no/such/log.csv") && !folder.exists(), "{text}");
    let (code, text) = study(&folder, &["--power", "rapls"]);
    assert!(code == Some(2) && text.contains("did you mean 'rapl'?"), "{text}");
}

/// Logs as written by meters, home automation and spreadsheets, of 100.5 W unless noted: what is
/// read from each, or why nothing is. No figure is made from a unit, a mark or a column that could
/// mean something else.
#[test]
fn logs_of_other_programs_are_read_right_or_refused() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/power/logs");
    let expected: &[(&str, Result<f64, &str>)] = &[
        ("backwards.csv", Err("the time goes backwards")),
        ("bignum.csv", Err("line 2 has 3 cells")),
        ("bom.csv", Ok(100.5)),
        ("comma-in-comma.csv", Err("line 2 has 3 cells")),
        ("comment.csv", Ok(100.5)),
        ("crlf.csv", Ok(100.5)),
        ("dup-times.csv", Ok(100.5)),
        ("extra-cells.csv", Err("line 2 has 3 cells")),
        ("gaps.csv", Err("line 2: '' is not a power")),
        ("iso-space.csv", Ok(100.5)),
        ("kw.csv", Ok(100.5)),
        ("made-up-quoted-thousands.csv", Ok(1150.25)),
        ("made-up-sources.csv", Err("several of its columns are power: choose --column")),
        ("made-up-suffixes.csv", Ok(150.25)),
        ("made-up-va-first.csv", Ok(150.25)),
        ("made-up-va.csv", Err("none of its columns is active power")),
        ("made-up-var.csv", Err("none of its columns is active power")),
        ("ms.csv", Ok(100.5)),
        ("nan.csv", Err("line 2: 'NaN' is not a power")),
        ("ns.csv", Ok(100.5)),
        ("nul.csv", Err("line 22 has only 1 of 2 cells")),
        ("nvidia-smi.csv", Err("'2026/11/25 15:42:26.902' is not a time")),
        ("partial-last.csv", Ok(100.5)),
        ("pf-first.csv", Ok(150.25)),
        ("plain.csv", Ok(100.5)),
        ("quoted.csv", Ok(100.5)),
        ("rfc3339-offset.csv", Ok(100.5)),
        ("rfc3339.csv", Ok(100.5)),
        ("semicolon-de-date.csv", Err("'25.11.2026 15:42:26,902' is not a time")),
        ("semicolon-de.csv", Ok(100.5)),
        ("thousands.csv", Err("line 2 has 3 cells")),
        ("turbostat.txt", Err("several of its columns are power: choose --column 'PkgWatt'")),
        ("u-kw2.csv", Ok(150.25)),
        ("u-microwatts.csv", Ok(150.25)),
        ("u-mw.csv", Ok(150.25)),
        ("u-pf.csv", Err("none of its columns is active power")),
        ("u-powerkw.csv", Ok(150.25)),
        ("u-uw.csv", Ok(150.25)),
        ("u-wh.csv", Err("none of its columns is active power")),
        ("utf16.csv", Err("not text")),
        ("v-kwsuffix.csv", Ok(150.25)),
        ("v-wsuffix.csv", Ok(150.25)),
        ("volts-first-noheader.csv", Err("4 columns and no heading")),
    ];
    let count = fs::read_dir(&folder).unwrap().count();
    assert_eq!(count, expected.len(), "each log is in the table");
    for (name, expected) in expected {
        let bytes = fs::read(folder.join(name)).unwrap();
        let text = String::from_utf8(bytes).map_err(|_| "not text".to_owned());
        let log = text.and_then(|text| Log::parse(&text, None));
        match (log, expected) {
            (Ok(log), Ok(watts)) => {
                let powers = log.points().iter().map(|(_, watts)| *watts);
                let low = powers.clone().fold(f64::INFINITY, f64::min);
                assert!((low - watts).abs() < 1e-6, "{name}: {low} and not {watts}");
            }
            (Err(why), Err(expected)) => assert!(why.contains(expected), "{name}: {why}"),
            (log, _) => panic!("{name}: {log:?}"),
        }
    }
}
