//! Files from public reports about other tools, cut to the relevant records (`tests/data/cases`),
//! and made-up variants of them (`made-up*`): each is read with the right figures, or refused with
//! a message that names what it is. The figures were worked out by hand.

use crate::shared::{bytepath, words};
use serde_json::Value;
use std::collections::BTreeSet;
use std::fmt::Write;
use std::path::{Path, PathBuf};

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/cases")
}

/// Runs `bytepath profile` on a case; returns the exit code, standard output and standard error.
fn profile(case: &str, options: &[&str]) -> (i32, String, String) {
    let file = folder().join(case).display().to_string();
    bytepath(&[&["profile", file.as_str()], options].concat())
}

/// Formats a profile: event, samples and weight; then its notes, and the functions with weight of
/// their own: that, and their total including callees if it is larger.
fn shown(json: &Value) -> String {
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let (event, samples) = (text(&json["event"]), &json["samples"]);
    let lost = match json["lost"].as_u64().unwrap() {
        0 => String::new(),
        lost => format!("{lost} lost, "),
    };
    let (total, unit) = (&json["total"], text(&json["unit"]));
    let mut shown = format!("{event}: {samples} samples, {lost}{total} {unit}");
    for note in json["notes"].as_array().into_iter().flatten() {
        write!(shown, "\n({})", text(note)).unwrap();
    }
    for function in json["functions"].as_array().unwrap() {
        let (own, all) = (&function["self"], &function["total"]);
        if own.as_f64().unwrap() > 0.0 {
            let more = if own == all { String::new() } else { format!(" of {all}") };
            let kernel = if function["kernel"] == true { " [k]" } else { "" };
            write!(shown, "\n{own}{more} {}{kernel}", text(&function["function"])).unwrap();
        }
    }
    shown.replace(".0 ", " ")
}

#[test]
fn files_that_are_profiles_have_these_figures() {
    let mut wrong = String::new();
    for (case, expected) in PROFILES {
        let (code, json, stderr) = profile(case, &["--json"]);
        let found = match code {
            0 => shown(&serde_json::from_str(&json).unwrap()),
            _ => stderr,
        };
        if found != *expected {
            writeln!(wrong, "{case}: {found}\ninstead of {expected}\n").unwrap();
        }
    }
    assert!(wrong.is_empty(), "{wrong}");
}

#[test]
fn files_that_are_no_profiles_are_refused_by_what_they_are() {
    for (case, expected) in REFUSED {
        let (code, stdout, stderr) = profile(case, &["--json"]);
        assert_eq!((code, stdout.as_str()), (6, ""), "{case}: {stderr}");
        assert!(words(&stderr).contains(expected), "{case}: {stderr}");
    }
}

#[test]
fn every_case_is_in_a_table() {
    let listed: Vec<&str> = PROFILES.iter().chain(REFUSED).map(|(case, _)| *case).collect();
    let readings = READINGS.iter().map(|(case, _)| *case);
    let listed: BTreeSet<String> = listed.into_iter().chain(readings).map(str::to_owned).collect();
    let mut found = BTreeSet::new();
    for group in std::fs::read_dir(folder()).unwrap().map(|entry| entry.unwrap()) {
        let group_name = group.file_name().into_string().unwrap();
        // Programs; tests/lab/observe_cases.rs runs them.
        if group_name == "17-observe" {
            continue;
        }
        let mut has_neighbour = false;
        for case in std::fs::read_dir(group.path()).unwrap() {
            let case = case.unwrap().file_name().into_string().unwrap();
            has_neighbour |= case.starts_with("made-up");
            found.insert(format!("{group_name}/{case}"));
        }
        assert!(has_neighbour, "{group_name}");
    }
    assert_eq!(found, listed);
}

/// Replies of firmware to `ipmitool dcmi power reading`.
#[test]
fn answers_of_management_controllers_mean_this() {
    for (case, expected) in READINGS {
        let text = std::fs::read_to_string(folder().join(case)).unwrap();
        let found = match bytepath::meter::dcmi_reading(&text) {
            Ok((watts, None)) => format!("{watts} W"),
            Ok((watts, Some(doubt))) => format!("{watts} W, but {doubt}"),
            Err(why) => why,
        };
        assert_eq!(found, *expected, "{case}");
    }
}

const READINGS: &[(&str, &str)] = &[
    ("14-ipmitool/ffff.txt", "the controller reports 65535 W, which means no reading"),
    ("14-ipmitool/zero.txt", "the controller reports 0 W, which means no reading"),
    ("14-ipmitool/oneline.txt", "186 W"),
    (
        "14-ipmitool/openbmc.txt",
        "360 W, but the controller calls its power measurement 'deactivated', and measures",
    ),
    (
        "14-ipmitool/made-up.txt",
        "the controller calls its power measurement 'deactivated' and reports 0 W",
    ),
];

/// Thread names contain blanks, brackets, colons and numbers.
#[test]
fn threads_have_their_whole_names() {
    for (case, expected) in [
        (
            "03-comm-names/a.script",
            "\
3;gamma5 1000007
:1234;gamma6 1000008
CUPSManager cup;gamma7 1000009
G1 Conc#0 99 [3];gamma9 1000011
Hashed wheel timer #1;gamma2 1000004
Plex DLNA Serve;gamma1 1000003
V8 WorkerThread;gamma4 1000006
[ET_NET 0];main;alpha 1000001
foobar [worker];my_other_func;my_func 1000002
kworker/u8:3+ev;gamma10_[k] 1000012
t;gamma3 1000005
tokio: worker 12;gamma8 1000010
",
        ),
        (
            "03-comm-names/made-up.script",
            "\
12:34.5:;gamma 1000003
[001];beta 1000002
a b [x] 1/2 3;alpha 1000001
",
        ),
    ] {
        // The first line names the unit of the weights.
        let printed = profile(case, &["--to", "folded"]).1;
        let (unit, stacks) = printed.split_once('\n').unwrap();
        assert_eq!((unit, stacks), ("# weight=events event=cycles", expected), "{case}");
    }
}

/// A function is the same whatever tool printed it: only unequal shares differ.
#[test]
fn functions_of_different_formats_are_compared_by_name() {
    let file = |case: &str| folder().join(case).display().to_string();
    let (one, other) = ("06-perf-report/made-up-no-group.report", "06-perf-report/modifier.script");
    let (code, json, stderr) = bytepath(&["diff", &file(one), &file(other), "--format", "json"]);
    assert_eq!(code, 0, "{stderr}");
    let json: Value = serde_json::from_str(&json).unwrap();
    let rows = json["rows"].as_array().unwrap();
    let presence = |name: &str| {
        let row = rows.iter().find(|row| row["function"] == name);
        row.unwrap_or_else(|| panic!("no {name} in {json:#}"))["presence"].clone()
    };
    assert_eq!(presence("(anonymous namespace)::Worker::run"), "both");
}

const NOT_KNOWN: &str = "is not a profile of a known format (known formats: perf.data, pprof,";

const REFUSED: &[(&str, &str)] = &[
    (
        "06-perf-report/gdefault.report",
        "the table is of a group of events (anon group { cpu-clock, page-faults }): print one for each, by perf report --no-group",
    ),
    (
        "06-perf-report/hier.report",
        "is of perf report --hierarchy, in which each share is in several rows: print it without --hierarchy",
    ),
    (
        "06-perf-report/made-up-separator-first.report",
        "has ';' between its columns, and perf report -t replaces that in names: print it without -t",
    ),
    (
        "06-perf-report/made-up-separator.report",
        "has ',' between its columns, and perf report -t replaces that in names: print it without -t",
    ),
    (
        "06-perf-report/made-up-tree.report",
        "is of perf report --hierarchy, in which each share is in several rows: print it without --hierarchy",
    ),
    (
        "07-legacy-heap/goroutine.txt",
        "it looks like a profile of Go as text (get it without debug=1: then it is pprof)",
    ),
    (
        "07-legacy-heap/heap1.heap",
        "it looks like a heap profile of gperftools (pprof -proto PROGRAM FILE converts it)",
    ),
    (
        "07-legacy-heap/je.heap",
        "it looks like a heap profile of jemalloc (jeprof --collapsed PROGRAM FILE converts it)",
    ),
    (
        "07-legacy-heap/made-up-contention.txt",
        "it looks like a profile of Go as text (get it without debug=1: then it is pprof)",
    ),
    (
        "07-legacy-heap/made-up-growth.heap",
        "it looks like a heap profile of gperftools (pprof -proto PROGRAM FILE converts it)",
    ),
    (
        "07-legacy-heap/mutex.txt",
        "it looks like a profile of Go as text (get it without debug=1: then it is pprof)",
    ),
    (
        "07-legacy-heap/real-gperftools.heap",
        "it looks like a heap profile of gperftools (pprof -proto PROGRAM FILE converts it)",
    ),
    (
        "08-other-text/bccprofile.txt",
        "it looks like stacks of bcc's profile (its option -f prints them folded)",
    ),
    (
        "08-other-text/bpftrace-map.txt",
        "it looks like stacks of bpftrace (stackcollapse-bpftrace.pl converts them)",
    ),
    (
        "08-other-text/bpftrace.txt",
        "it looks like stacks of bpftrace (stackcollapse-bpftrace.pl converts them)",
    ),
    ("08-other-text/callgrind.txt", NOT_KNOWN),
    (
        "08-other-text/gprof.txt",
        "it looks like a table of gprof (perf record and perf script make a profile)",
    ),
    (
        "08-other-text/made-up-ftrace.txt",
        "it looks like a trace of ftrace (perf record and perf script make a profile)",
    ),
    ("08-other-text/made-up-smaps.txt", NOT_KNOWN),
    ("08-other-text/made-up-top.txt", NOT_KNOWN),
    ("08-other-text/maps.txt", NOT_KNOWN),
    ("08-other-text/opreport.txt", NOT_KNOWN),
    ("08-other-text/strace-c.txt", NOT_KNOWN),
    ("08-other-text/syslog.txt", NOT_KNOWN),
    ("08-other-text/tracecmd.txt", NOT_KNOWN),
    ("08-other-text/turbostat.txt", NOT_KNOWN),
    ("10-folded/bad.folded", NOT_KNOWN),
    ("10-folded/comments.folded", NOT_KNOWN),
    (
        "10-folded/difffolded.folded",
        "has two numbers in each line, as difffolded.pl writes them: compare the profiles that it is of by bytepath diff",
    ),
    (
        "10-folded/made-up-diff.folded",
        "has two numbers in each line, as difffolded.pl writes them: compare the profiles that it is of by bytepath diff",
    ),
    ("10-folded/single.folded", NOT_KNOWN),
    ("16-fields/made-up-comm-tid.script", NOT_KNOWN),
];

const PROFILES: &[(&str, &str)] = &[
    (
        "01-cxx-script/a.script",
        "\
cycles:u: 11 samples, 40776523 events
30776523 std::_Function_handler<void (lib::Align&), run_it(int, char**)::{lambda()#1}::operator()() const::{lambda(lib::Align&)#1}>::_M_invoke
1000000 foo<(some_enum)0>::bar
1000000 foo<(some_enum)1>::bar
1000000 (anonymous namespace)::Worker::run(int, char const*) const
1000000 std::__1::__function::__func<E::Impl::create(int, std::__1::function<void (unsigned int)>, E::Trig, unsigned int)::$_5, std::__1::allocator<E::Impl::create(int, std::__1::function<void (unsigned int)>, E::Trig, unsigned int)::$_5>, void (unsigned int)>::operator()
1000000 void alpha<int>(int, int)
1000000 void beta<int>(int, int)
1000000 operator<< <std::char_traits<char> >
1000000 Foo::operator()(int)
1000000 RegExp:[&<>\\\"\\']
1000000 LazyCompile:*render /srv/a;b/page.js:12",
    ),
    (
        "01-cxx-script/b.script",
        "\
cycles:u: 8 samples, 8000000 events
3000000 (anonymous namespace)::work(int)
3000000 0x5574a37dd38e
1000000 ns::(anonymous namespace)::work(int)
1000000 (anonymous namespace)::inner(int)",
    ),
    (
        "01-cxx-script/flat.script",
        "\
cycles:u: 4 samples, 4000000 events
2000000 (anonymous namespace)::work(int)
1000000 void alpha<int>(int, int)
1000000 foo<(some_enum)0>::bar",
    ),
    (
        "01-cxx-script/made-up.script",
        "\
cycles:u: 7 samples, 7000000 events
2000000 (anonymous namespace)::Pool<(anonymous namespace)::Job>::run() const
1000000 <alloc::vec::Vec<u8> as core::ops::drop::Drop>::drop
1000000 main.(*T[go.shape.int]).Spin
1000000 Op::operator->()
1000000 0x5574a37dd38e
1000000 beef",
    ),
    (
        "02-dso-spaces/a.script",
        "\
cpu-clock: 5 samples, 1302396 nanoseconds
300000 vkQueueSubmit
300000 do_work(int)
300000 0x7f0000001234
201198 of 402396 java.lang.String.hashCode
201198 __schedule [k]",
    ),
    (
        "02-dso-spaces/b.script",
        "\
cpu-clock: 15 samples, 1500 nanoseconds
100 f_jit
100 f_anon
100 __vdso_gettimeofday
100 f_heap
100 f_stack
100 f_vsys
100 f_uprobes
100 f_mod [k]
100 f_guest [k]
100 f_bpf [k]
100 bpf_prog_abc [k]
100 f_vdso32
100 f_stacktid
100 f_unk
100 f_unkk [k]",
    ),
    (
        "02-dso-spaces/made-up.script",
        "\
cpu-clock: 8 samples, 800 nanoseconds
100 f_tid
100 f_map
100 f_scudo
100 f_dev
100 f_ko [k]
100 f_text [k]
100 f_brackets
100 f_arm64 [k]",
    ),
    (
        "03-comm-names/a.script",
        "\
cycles: 12 samples, 12000078 events
1000012 gamma10 [k]
1000011 gamma9
1000010 gamma8
1000009 gamma7
1000008 gamma6
1000007 gamma5
1000006 gamma4
1000005 gamma3
1000004 gamma2
1000003 gamma1
1000002 my_func
1000001 alpha",
    ),
    (
        "03-comm-names/made-up.script",
        "\
cycles: 3 samples, 3000006 events
1000003 gamma
1000002 beta
1000001 alpha",
    ),
    ("04-tracepoints/a.script", "syscalls:sys_enter_brk: 3 samples, 3 samples"),
    (
        "04-tracepoints/b.script",
        "\
mm_pagevec_free: 1 samples, 1 samples
(left out: 2 samples of the event kfree)",
    ),
    (
        "04-tracepoints/c.script",
        "\
kmem:kmalloc: 2 samples, 2 samples
(left out: 1 samples of the event probe:tcp_sendmsg)
2 kmalloc [k]",
    ),
    (
        "04-tracepoints/d.script",
        "\
offcpu-time: 1 samples, 1050000 delay
1050000 schedule [k]",
    ),
    (
        "04-tracepoints/made-up.script",
        "\
sched:sched_switch: 2 samples, 2 samples
(left out: 1 samples of the event net:net_dev_xmit)",
    ),
    (
        "05-simpleperf-tabs/a.script",
        "\
task-clock:u: 2 samples, 2000000 nanoseconds
2000000 alpha",
    ),
    (
        "05-simpleperf-tabs/made-up.script",
        "\
cpu-clock: 1 samples, 1000000 nanoseconds
1000000 schedule [k]",
    ),
    (
        "06-perf-report/made-up-no-group.report",
        "\
cpu-clock: 73 samples, 146307213 nanoseconds
(left out: the table of the event page-faults)
(weights are shares rounded to 0.01 %)
(numbers of samples follow from shares)
87784327.8 (anonymous namespace)::Worker::run
58522885.2 kmem_cache_free [k]",
    ),
    (
        "06-perf-report/made-up-tabs.report",
        "\
cpu-clock: 50 samples, 100000000 nanoseconds
(weights are shares rounded to 0.01 %)
(numbers of samples follow from shares)
60000000 alpha<int, char>
40000000 _int_free",
    ),
    (
        "06-perf-report/made-up-terms.report",
        "\
cpu-clock/freq=499/u: 50 samples, 100000000 nanoseconds
(weights are shares rounded to 0.01 %)
(numbers of samples follow from shares)
74000000 Op::operator->
26000000 alpha<int>",
    ),
    (
        "06-perf-report/modifier.script",
        "\
cpu-clock/freq=499/: 10 samples, 20040080 nanoseconds
4008016 (anonymous namespace)::Worker::run
4008016 outer::(anonymous namespace)::deep
4008016 alpha<int>
4008016 Op::operator long
2004008 Op::operator()
2004008 Op::operator<<",
    ),
    (
        "06-perf-report/v.report",
        "\
cpu-clock: 74 samples, 148311421.65920004 nanoseconds
(weights are shares rounded to 0.01 %)
(numbers of samples follow from shares)
20034869.5792 (anonymous namespace)::Worker::run(int, char const*) const
18032865.5872 outer::(anonymous namespace)::deep(int)
14028857.6032 Op::operator()(int)
14028857.6032 foo<(some_enum)1>::bar(int)
12026853.6112 (anonymous namespace)::helper(int)
12026853.6112 Op::operator<(int) const
12026853.6112 void alpha<int>(int, int)
10024849.619199999 Op::operator long()
10024849.619199999 foo<(some_enum)0>::bar(int)
8022845.6272 Op::operator<<(int)
8022845.6272 void alpha<long>(long, int)
6006011.976 std::_Function_handler<void (int), main::{lambda(int)#1}>::_M_invoke(std::_Any_data const&, int&&)
4004007.9840000006 irqentry_exit_to_user_mode [k]",
    ),
    (
        "09-mail-cxx/a.mail",
        "\
: 0 samples, 100.00000000000001 percent
(left out: 3 lines of other text)
(weights are shares rounded to 0.01 %)
41.51 core::ptr::drop_in_place<alloc::vec::Vec<u8>>
20.16 alpha<int>
12.11 <alloc::vec::Vec<T> as core::clone::Clone>::clone
10.46 Op::operator<
9.46 Op::operator->
4.3 copy_user_enhanced_fast_string [k]
2 (anonymous namespace)::Worker::run",
    ),
    (
        "09-mail-cxx/made-up.mail",
        "\
: 0 samples, 100 percent
(left out: 2 lines of other text)
(weights are shares rounded to 0.01 %)
55.5 std::vector<std::vector<int>>::operator[]
30.25 operator>>
14.25 tcp_sendmsg [k]",
    ),
    (
        "10-folded/async.folded",
        "\
: 10 samples, 10 samples
7 libc.so [k]
3 x",
    ),
    (
        "10-folded/austin.folded",
        "\
: 150 samples, 150 samples
100 main.py:f:12
50 main.py:g:13",
    ),
    (
        "10-folded/bom.folded",
        "\
: 11 samples, 11 samples
6 g
5 f",
    ),
    (
        "10-folded/c1.folded",
        "\
: 7 samples, 7 samples
4 b
3 a",
    ),
    (
        "10-folded/crlf.folded",
        "\
: 11 samples, 11 samples
6 g
5 f",
    ),
    (
        "10-folded/empties.folded",
        "\
: 11 samples, 11 samples
6 g
5 f",
    ),
    (
        "10-folded/made-up-marks.folded",
        "\
: 10 samples, 10 samples
10 Main.work",
    ),
    (
        "10-folded/pyspy.folded",
        "\
: 40 samples, 40 samples
30 f (app.py:12)
10 g (app.py:20)",
    ),
    (
        "11-perfview/a.script",
        "\
cpu-clock/freq=999/: 3 samples, 3003003 nanoseconds
(left out: 1 samples of the event block:block_rq_issue/call-graph=no/)
(left out: 1 samples of the event sched:sched_process_exec)
2002002 do_idle [k]
1001001 schedule [k]",
    ),
    (
        "11-perfview/made-up.script",
        "\
task-clock/period=2002002/u: 2 samples, 4004004 nanoseconds
4004004 main",
    ),
    (
        "12-task-events/a.script",
        "\
cpu-clock: 2 samples, 2002002 nanoseconds
2002002 work",
    ),
    (
        "12-task-events/c.script",
        "\
cpu-clock: 2 samples, 2002002 nanoseconds
2002002 work",
    ),
    (
        "12-task-events/made-up.script",
        "\
cpu-clock: 2 samples, 12 lost, 2002002 nanoseconds
2002002 work",
    ),
    (
        "15-bpf-module/a.script",
        "\
cycles: 2 samples, 41669642 events
20834821 bpf_prog_2b956549c660136a_uni_l4lb [k]
20834821 bpf_trampoline_6442508800 [k]",
    ),
    (
        "15-bpf-module/made-up.script",
        "\
cycles: 2 samples, 41669642 events
20834821 bpf_dispatcher_xdp_func [k]
20834821 bpf_prog_load",
    ),
    (
        "16-fields/comm-tid-time-period-ip-sym.script",
        "\
: 15 samples, 30060120 events
30060120 main",
    ),
    (
        "16-fields/flat-comm-tid-time-period-ip-sym.script",
        "\
: 60 samples, 120240480 events
120240480 main",
    ),
    (
        "16-fields/made-up-comm-period-ip-sym.script",
        "\
: 2 samples, 4008016 events
4008016 main",
    ),
    (
        "16-fields/made-up-flat-comm-ip-sym.script",
        "\
: 3 samples, 3 samples
2 main
1 (anonymous namespace)::f(int)",
    ),
    (
        "16-fields/made-up-flat-comm-number.script",
        "\
: 2 samples, 2 samples
1 main
1 f",
    ),
    (
        "16-fields/made-up-flat-event-period.script",
        "\
cpu-clock: 2 samples, 3006012 nanoseconds
2004008 main
1002004 f",
    ),
    (
        "16-fields/made-up-ip-dso.script",
        "\
: 2 samples, 2 samples
2 0x167145",
    ),
    (
        "16-fields/made-up-period-ip-sym-dso.script",
        "\
: 2 samples, 3006012 events
2004008 main
1002004 f",
    ),
    (
        "18-pprof/made-up-block.pb.gz",
        "\
delay: 4 samples, 31000000 delay
30000000 runtime.chanrecv1
1000000 of 31000000 main.main",
    ),
    (
        "18-pprof/made-up-cpu-only.pb.gz",
        "\
cpu: 10 samples, 100000000 nanoseconds
70000000 f
30000000 g",
    ),
    ("18-pprof/made-up-empty.pb.gz", "delay: 0 samples, 0 delay"),
    (
        "18-pprof/made-up-heap.pb.gz",
        "\
inuse_space: 1 samples, 1048576 bytes
(left out: the values of inuse_objects (count))
1048576 alloc",
    ),
    (
        "18-pprof/made-up-threads.pb.gz",
        "\
threadcreate: 5 samples, 5 events
5 0x1000",
    ),
    (
        "18-pprof/made-up-wall.pb.gz",
        "\
wall: 2 samples, 20000000 delay
20000000 sleep",
    ),
    (
        "18-pprof/mutex.pb.gz",
        "\
delay: 19 samples, 526132812 delay
526132812 sync.(*Mutex).Unlock",
    ),
    (
        "19-lost-layout/empty-line.script",
        "\
cpu-clock:u: 2 samples, 500000 nanoseconds
500000 main",
    ),
    (
        "19-lost-layout/made-up-no-indent.script",
        "\
cpu-clock:u: 2 samples, 500000 nanoseconds
500000 main",
    ),
];
