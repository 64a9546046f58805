use super::*;
use crate::{PairDeclaration, PathDeclaration, PathSpec, TestbedDeclaration, WorkloadDeclaration};
use bytepath_record::{Design, OptionKind, OptionSpec, Stopping, is_unsafe_to_display};
use std::time::Duration;

const DEPTH: &[OptionSpec] =
    &[OptionSpec::new("depth", OptionKind::Count(1, 64), "4").help("requests in flight")];

fn catalogues() -> Catalogues {
    let bed = |name, boots_kernels| TestbedDeclaration {
        name,
        options: &[],
        implied: &[],
        boots_kernels,
        link: if name == "wired" { "nic" } else { "wire" },
    };
    let pair = |name| PairDeclaration { name, tx: name, rx: name };
    Catalogues {
        paths: PathSpec {
            workloads: vec![WorkloadDeclaration { name: "stream", options: &[], most_mtu: None }],
            paths: vec![
                PathDeclaration { name: "socket", tx: Some(&[]), rx: Some(&[]) },
                PathDeclaration { name: "uring", tx: Some(DEPTH), rx: Some(DEPTH) },
                PathDeclaration { name: "splice", tx: Some(&[]), rx: None },
            ],
            pairs: vec![pair("socket"), pair("uring")],
        },
        testbeds: vec![bed("netns", false), bed("vm", true), bed("wired", false)],
        meters: vec!["cpu", "calls", "tcp-info", "locks"],
        usual_meters: vec!["cpu", "calls", "tcp-info"],
        cpus: [0, 1].into(),
        testbed: None,
        cores: None,
        workload: String::new(),
    }
}

#[test]
fn words_stand_for_several_meters_and_each_is_named_once() {
    let chosen = |words: &[&str]| catalogues().meters(words.iter().copied());
    assert_eq!(chosen(&["usual"]).unwrap(), ["cpu", "calls", "tcp-info"]);
    assert_eq!(chosen(&["usual", "locks", "cpu"]).unwrap(), ["cpu", "calls", "tcp-info", "locks"]);
    assert_eq!(chosen(&["all"]).unwrap(), ["cpu", "calls", "tcp-info", "locks"]);
    assert_eq!(chosen(&["none"]).unwrap(), [""; 0]);
    let fault = chosen(&["lock"]).unwrap_err().to_string();
    assert!(fault.contains("no meter 'lock'") && fault.contains("locks"), "{fault}");
}

/// A file names where its cells run, unless the caller did so already; the default link follows
/// from it.
#[test]
fn a_testbed_that_was_requested_wins_over_the_files() {
    let text = "testbed = 'vm'\n[factors]\npath = 'socket'\nmtu = 9000\n";
    let asked = parse_testbed("wired", &catalogues().testbeds).unwrap();
    let catalogues = Catalogues { testbed: Some(asked), ..catalogues() };
    let there = parse_experiment("x.toml", text, &catalogues).unwrap();
    assert_eq!((there.testbed.name, there.cells[0].link.preset.as_str()), ("wired", "nic"));
    assert_eq!(there.cells[0].link.mtu, 9000);
    let usual = read(text).unwrap();
    assert_eq!((usual.testbed.name, usual.cells[0].link.preset.as_str()), ("vm", "wire"));
}

/// A baseline and excludes may name placements that no longer exist.
#[test]
fn a_placement_that_was_requested_takes_the_place_of_the_files() {
    let text = "baseline = { path = 'socket', cores = 'together' }\n\
                [factors]\npath = ['socket', 'uring']\ncores = ['together', 'apart']\n\
                [[exclude]]\npath = 'uring'\ncores = 'apart'\n";
    let with = |cores: &str| {
        let catalogues = Catalogues { cores: Some(cores.to_owned()), ..catalogues() };
        parse_experiment("x.toml", text, &catalogues)
    };
    let ids = |experiment: Experiment| -> Vec<String> {
        assert_eq!(experiment.baseline, experiment.cells[0].id);
        experiment.cells.into_iter().map(|cell| cell.id.0).collect()
    };
    assert_eq!(ids(with("two").unwrap()), ["socket", "uring", "socket (again)"]);
    let apart = ids(with("apart").unwrap());
    assert_eq!(apart, ["socket cores=apart", "socket cores=apart (again)"], "the exclude holds");
    assert_eq!(ids(read(text).unwrap()).len(), 4);
    let unnamed = Catalogues { cores: Some("unpinned".to_owned()), ..catalogues() };
    let unnamed = parse_experiment("x.toml", "[factors]\npath = 'socket'\n", &unnamed).unwrap();
    assert_eq!(unnamed.cells[0].id.0, "socket cores=none");
    assert!(with("nowhere").unwrap_err().message.contains("nowhere"));
}

fn read(text: &str) -> Result<Experiment, Fault> {
    parse_experiment("x.toml", text, &catalogues())
}

fn ids(text: &str) -> Vec<String> {
    read(text).unwrap().cells.into_iter().map(|cell| cell.id.0).collect()
}

const FULL: &str = r#"
title = "GRO and the core layout"
workload = "stream"
testbed = "netns"
baseline = { path = "socket", gro = true, cores = "two" }
blocks = 12
warm-up = "500ms"
window = "2s"
seed = 7
margin = "3%"
confidence = 0.9
roi = { throughput = 1.5, power = 2 }
design = "slices:250ms"
stop = { within = "1%", at-least = 6 }
meters = ["cpu", "calls"]
profile = "all:rate=97,window=1s"
settings = { profile = "quiet", set = ["mtu eth0 4148"] }

[factors]
path = ["socket", "uring"]
gro = [true, "off"]
cores = ["two", "one"]
threaded-napi = false
read-size = "1024K"

[[exclude]]
path = "uring"
gro = "off"

[[exclude]]
path = "uring"
cores = ["one"]
"#;

#[test]
fn a_file_is_read() {
    let x = read(FULL).unwrap();
    assert_eq!((x.title.as_str(), x.testbed.text.as_str()), ("GRO and the core layout", "netns"));
    let layout = &x.layout;
    assert_eq!((layout.blocks, layout.seed), (Some(12), Some(7)));
    assert_eq!(
        (layout.warm_up, layout.window),
        (Duration::from_millis(500), Duration::from_secs(2))
    );
    assert_eq!(layout.design, Some(Design::Slices { slice: 0.25 }));
    assert_eq!(layout.stopping, Some(Stopping { within: 0.01, at_least: 6 }));
    let j = x.judgement;
    assert_eq!((j.margin, j.confidence, j.roi_throughput, j.roi_power), (0.03, 0.9, 1.5, 2.0));
    assert_eq!(x.meters, ["cpu", "calls"]);
    assert_eq!(x.profiling, crate::parse_profile("all:rate=97,window=1s").unwrap());
    let ids: Vec<&str> = x.cells.iter().map(|cell| cell.id.0.as_str()).collect();
    assert_eq!(
        ids,
        [
            "socket threaded-napi=off",
            "socket threaded-napi=off cores=one",
            "socket gro=off,threaded-napi=off",
            "socket gro=off,threaded-napi=off cores=one",
            "uring threaded-napi=off",
            "socket threaded-napi=off (again)",
        ]
    );
    assert_eq!(x.baseline.0, ids[0]);
    assert!(x.cells[5].null && x.cells[5].levels == x.cells[0].levels);
    let levels: Vec<(&str, &str)> =
        x.cells[3].levels.iter().map(|(k, v)| (k.as_str(), v.as_str())).collect();
    assert_eq!(levels, [("cores", "one"), ("gro", "off"), ("path", "socket")]);
    assert_eq!(x.cells[3].placement.receiver, Some(0));
}

#[test]
fn what_is_left_out_has_the_same_default_as_a_flag() {
    let x = read("factors = { path = 'socket' }").unwrap();
    assert_eq!(x.layout, Layout::default());
    assert_eq!(x.judgement, Judgement::default());
    assert_eq!(x.meters, ["cpu", "calls", "tcp-info"]);
    assert_eq!(x.profiling, None, "profiles have to be asked for");
    assert_eq!(x.testbed.text, "netns");
    // A single cell is compared with itself.
    let ids: Vec<&str> = x.cells.iter().map(|cell| cell.id.0.as_str()).collect();
    assert_eq!(ids, ["socket", "socket (again)"]);
    assert!(x.cells[0].levels.is_empty(), "nothing is varied");
}

#[test]
fn a_level_that_is_the_default_has_no_name_in_the_id() {
    assert_eq!(
        ids("[factors]\npath = ['socket', 'uring:depth=4', 'uring:depth=8']\nmtu = [4148, 9000]"),
        [
            "socket",
            "socket mtu=9000",
            "uring",
            "uring mtu=9000",
            "uring:depth=8+uring:depth=8",
            "uring:depth=8+uring:depth=8 mtu=9000",
            "socket (again)",
        ]
    );
}

#[test]
fn halves_are_factors_of_their_own() {
    let text = "baseline = 'socket'\n[factors]\nrx = ['socket', 'uring']\ntx = ['uring', 'socket', 'splice']";
    let x = read(text).unwrap();
    let ids: Vec<&str> = x.cells.iter().map(|cell| cell.id.0.as_str()).collect();
    assert_eq!(
        ids,
        [
            "uring+socket",
            "socket",
            "splice+socket",
            "uring",
            "socket+uring",
            "splice+uring",
            "socket (again)"
        ]
    );
    assert_eq!(x.baseline.0, "socket");
}

#[test]
fn a_cpu_that_is_not_there_is_not_an_error() {
    let x = read("[factors]\npath = 'socket'\ncores = ['two', '0,63']").unwrap();
    assert_eq!(x.cells[1].placement.receiver, Some(63));
    let one = Catalogues { cpus: [3].into(), ..catalogues() };
    let x = parse_experiment("x", "factors = { path = 'socket', cores = ['one', 'two'] }", &one);
    assert_eq!(x.unwrap().cells[1].placement.receiver, Some(4));
    let x = parse_experiment("x", "factors = { path = 'socket' }", &one).unwrap();
    assert_eq!(x.cells[0].placement.receiver, Some(3), "the default fits the machine");
}

#[test]
fn options_of_the_link_go_over_the_link() {
    let x = read("[factors]\npath='socket'\nlink=['wire', 'offload:tso=off', 'big-tcp']\nmtu=9000")
        .unwrap();
    let ids: Vec<&str> = x.cells.iter().map(|cell| cell.id.0.as_str()).collect();
    assert_eq!(
        ids[..3],
        ["socket mtu=9000", "socket link=offload,mtu=9000,tso=off", "socket link=big-tcp,mtu=9000"]
    );
    assert_eq!(x.cells[2].link.gso_max, Some(524_280));
}

/// Wrong files, each with the place, cause and remedy that its error must contain.
#[test]
#[expect(clippy::too_many_lines, reason = "a table")]
fn every_error_has_a_place_a_cause_and_a_remedy() {
    let cases = [
        ("title = ", "x.toml:1:", "not valid TOML"),
        ("title = 'a\nb'", "x.toml:2:3: ", "not valid TOML"),
        ("a = 1\na = 2", "x.toml:2:1: ", "duplicate key"),
        (
            "blcoks = 3",
            "x.toml:1:1: ",
            "blcoks = 3: unknown field `blcoks` (did you mean 'blocks'?)",
        ),
        ("\n  zzz = 3", "x.toml:2:3: ", "(choose from title, workload"),
        ("blocks = 0", "x.toml:1:10: ", "outside 1 to 1000"),
        (
            "blocks = '5'",
            "x.toml:1:10: ",
            "blocks = '5': invalid type: string \"5\" (write an integer)",
        ),
        ("blocks = 99999999999999999999", "x.toml:1:10: ", "blocks = 99999"),
        ("workload = 'rr'", "x.toml:1:12: ", "there is no workload 'rr'"),
        ("testbed = 'netsn'", "x.toml:1:11: ", "did you mean 'netns'?"),
        ("window = '1ms'", "x.toml:1:10: ", "100ms to 60m"),
        ("window = true", "x.toml:1:10: ", "window = true: write a duration, such as \"3s\""),
        ("warm-up = '2h'", "x.toml:1:11: ", "a warm-up lasts at most 60m"),
        ("warm-up = '2d'", "x.toml:1:11: ", "is not a duration (write 3s, 250ms, 2m)"),
        ("margin = 2", "x.toml:1:10: ", "not a share from 0.01% to 50% (write \"2%\")"),
        ("margin = '0%'", "x.toml:1:10: ", "not a share from 0.01% to 50%"),
        ("margin = nan", "x.toml:1:10: ", "not a share"),
        ("confidence = '5%'", "x.toml:1:14: ", "not a share from 50% to 99.99% (write \"50%\")"),
        (
            "roi = 2",
            "x.toml:1:7: ",
            "roi = 2: invalid type: integer `2` (write a table of throughput and power)",
        ),
        ("roi = { throughput = inf }", "x.toml:1:22: ", "outside 0 to 10"),
        ("roi = { thruput = 1 }", "x.toml:1:9: ", "did you mean 'throughput'?"),
        ("design = 'slcies'", "x.toml:1:10: ", "did you mean 'slices'?"),
        ("design = 'slices:10s'", "x.toml:1:10: ", "longer than the window"),
        (
            "stop = { at-least = 3 }",
            "x.toml:1:8: ",
            "stop = { at-least = 3 }: missing field `within`",
        ),
        ("stop = { within = '1%' }\nblocks = 3", "x.toml:1:8: ", "at least 5 of 3 blocks"),
        ("meters = ['cpus']", "x.toml:1:11: ", "no meter 'cpus' (did you mean 'cpu'?)"),
        ("profile = 'larges'", "x.toml:1:11: ", "did you mean 'largest'?"),
        ("profile = 'all:rat=5'", "x.toml:1:11: ", "did you mean 'rate'?"),
        (
            "profile = 499",
            "x.toml:1:11: ",
            "profile = 499: invalid type: integer `499` (write a quoted string)",
        ),
        ("title = 'x'", "x.toml:1:1: ", "has no 'factors' (write [factors] with path"),
        ("[factors]\nmtu = 1500", "x.toml:1:1: ", "names no path"),
        ("[factors]\npath = 'sockte'", "x.toml:2:8: ", "no path 'sockte' (did you mean 'socket'?)"),
        ("[factors]\npath = ['socket',\n 'uring:dpth=3']", "x.toml:3:2: ", "did you mean 'depth'"),
        ("[factors]\npath = 'uring:depth=0'", "x.toml:2:8: ", "0 is outside 1 to 64"),
        ("[factors]\ntx = 'socket'", "x.toml:2:1: ", "'tx' requires 'rx'"),
        ("[factors]\nrx = 'splice'\ntx = 'splice'", "x.toml:2:6: ", "has no receiver half"),
        ("[factors]\npath='socket'\nrx='socket'", "x.toml:3:1: ", "contradicts 'path'"),
        ("[factors]\npath='socket'\nred-size='1M'", "x.toml:3:1: ", "did you mean 'read-size'?"),
        (
            "[factors]\npath='socket'\nmtu=[1500, 99999]",
            "x.toml:3:12: ",
            "99999 is outside 576 to 65535",
        ),
        (
            "[factors]\npath='socket'\nmtu=1.5",
            "x.toml:3:5: ",
            "mtu=1.5: invalid type: floating point `1.5` (write a string, an integer",
        ),
        ("[factors]\nmtu=1979-05-27", "x.toml:2:5: ", "mtu=1979-05-27: invalid type: date (write"),
        ("[factors]\npath='socket'\nmtu=-1", "x.toml:3:5: ", "not a whole number"),
        ("[factors]\npath='socket'\nmtu=[]", "x.toml:3:5: ", "has no levels"),
        (
            "[factors]\npath='socket'\ngro=['on', true]",
            "x.toml:3:12: ",
            "'on' is the same level as 'on'",
        ),
        (
            "[factors]\npath='socket'\nread-size=['1M', '1024K']",
            "x.toml:3:18: ",
            "same level as '1M'",
        ),
        ("[factors]\npath=['uring', 'uring+uring']", "x.toml:2:16: ", "same level"),
        ("[factors]\npath='socket'\nlink=['wire', 'wier']", "x.toml:3:15: ", "'wire'"),
        ("[factors]\npath='socket'\ncores='left'", "x.toml:3:7: ", "'left' is not a placement"),
        (
            "[factors]\npath='socket'\ngro=['on','off']",
            "x.toml:1:1: ",
            "gro = off: threaded-napi requires gro",
        ),
        (
            "[factors]\npath='socket'\nlink=['wire','wire:mtu=9000']\nmtu=1500",
            "x.toml:1:1: ",
            "given twice",
        ),
        (
            "[factors]\npath='socket'\nlink=['wire','big-tcp']\ntso='on'\nmtu=1500\nthreaded-napi=false\ngso-max=[524280,'auto']\ngro-max=[524280,'auto']\nqdisc='none'",
            "",
            "",
        ),
        ("[factors]\npath='socket'\nflows=256\nread-size='1G'", "x.toml:1:1: ", "flows = 256"),
        ("exclude = {}\n[factors]\npath='socket'", "x.toml:1:11: ", "would exclude everything"),
        (
            "exclude = {path='socket'}\n[factors]\npath='socket'",
            "x.toml:2:1: ",
            "nothing is left to run",
        ),
        (
            "exclude = {path='uring'}\n[factors]\npath='socket'",
            "x.toml:1:17: ",
            "'uring' is not a level of 'path' in [factors]",
        ),
        (
            "exclude = {mtu=1500}\n[factors]\npath='socket'",
            "x.toml:1:12: ",
            "'mtu' is not among [factors] (they are path)",
        ),
        ("exclude = {mtus=1500}\n[factors]\npath='socket'", "x.toml:1:12: ", "did you mean 'mtu'?"),
        (
            "exclude = 3\n[factors]\npath='socket'",
            "x.toml:1:11: ",
            "'exclude' takes a table (write exclude = {",
        ),
        (
            "exclude = {path=[]}\n[factors]\npath='socket'",
            "x.toml:1:17: ",
            "no level of 'path' is given",
        ),
        ("baseline = 'uring'\n[factors]\npath='socket'", "x.toml:1:12: ", "not among the cells"),
        (
            "baseline = 'socket'\n[factors]\npath='socket'\nmtu=[1500,9000]",
            "x.toml:1:12: ",
            "2 cells have the levels of the baseline (give its mtu too: one is 'path = socket, mtu = 1500')",
        ),
        (
            "baseline = {path='socket'}\n[factors]\npath=['socket','uring']\nmtu=[1500,9000]",
            "x.toml:1:12: ",
            "give its mtu too",
        ),
        (
            "baseline = {mtu=1400}\n[factors]\npath='socket'\nmtu=[1500,9000]",
            "x.toml:1:17: ",
            "'1400' is not a level",
        ),
        ("baseline = 3\n[factors]\npath='socket'", "x.toml:1:12: ", "there is no path '3'"),
    ];
    for (text, place, words) in cases {
        if place.is_empty() {
            read(text).unwrap_or_else(|fault| panic!("{text}\n{fault}"));
            continue;
        }
        let fault = read(text).expect_err(text);
        assert!(fault.to_string().starts_with(place), "{text}\n{fault}");
        assert!(fault.to_string().contains(words), "{text}\n{fault}");
        assert_eq!(fault.to_string().lines().count(), 1, "{fault}");
        assert_eq!(fault.kind, bytepath_record::FaultKind::Usage);
    }
}

#[test]
fn an_exclude_that_excludes_nothing_is_an_error() {
    // The second exclude rules out nothing more, once both are read as one table.
    let text = "[factors]\npath=['socket','uring']\nmtu=[1500,9000]\n[[exclude]]\npath='uring'\nmtu=1500\n[[exclude]]\npath='uring'\nmtu=1500\n";
    assert_eq!(read(text).unwrap().cells.len(), 4, "said twice is not a contradiction");
}

#[test]
fn the_same_cell_twice_is_an_error() {
    let text = "[factors]\npath='socket'\nlink=['wire','offload']\nmtu=[4148]\nlink2=1";
    assert!(read(text).is_err());
    // A preset's own value and the same value typed explicitly are the same cell.
    let text = "[factors]\npath='socket'\nlink=['offload','offload:mtu=1500']";
    assert!(read(text).unwrap_err().to_string().contains("same level"));
}

#[test]
fn hostile_text_in_a_file_gives_one_plain_line() {
    let long = format!("[factors]\npath = '{}'", "x".repeat(5000));
    let fault = read(&long).unwrap_err().to_string();
    assert!(fault.contains("longer than 200 characters") && fault.len() < 300, "{fault}");
    let fault = read("[factors]\npath = \"a\\u001b[31m\\nb\"").unwrap_err().to_string();
    assert!(!fault.chars().any(char::is_control), "{fault:?}");
    let fault = read("title = \"a\\nb\"").unwrap_err().to_string();
    assert!(fault.contains("one line"), "{fault}");
}

#[test]
fn a_level_is_one_line_even_where_spaces_do_not_count() {
    let baseline = "baseline = { path = 'socket', read-size = '256K' }";
    // The remedy of the baseline's error lists the levels.
    for level in ["16M\\t", "\\n16M", "16M\\u0085", "\\u202816M"] {
        let sizes = format!("read-size = ['512K', '1M', '2M', '4M', \"{level}\", '3M', '64M']");
        let fault = read(&format!("{baseline}\n[factors]\npath = 'socket'\n{sizes}"));
        let fault = fault.unwrap_err().to_string();
        assert!(!fault.contains(is_unsafe_to_display), "{fault:?}");
        assert!(fault.starts_with("x.toml:4:") && fault.contains("one line"), "{fault}");
    }
}

#[test]
fn columns_count_characters() {
    let fault = read("title = 'äöü' # ✂\nroi = { 'ü' = 1 }").unwrap_err().to_string();
    assert!(fault.starts_with("x.toml:2:9: "), "{fault}");
    let fault = read("baseline = { 'äöü' = 1 }\nfactors={path='socket'}").unwrap_err().to_string();
    assert!(fault.starts_with("x.toml:1:14: "), "{fault}");
    let fault = read("'ä' = 1").unwrap_err().to_string();
    assert!(fault.starts_with("x.toml:1:1: "), "{fault}");
}

#[test]
fn a_product_without_end_is_refused() {
    let sizes: Vec<String> = (0..200).map(|n| (4096 + n).to_string()).collect();
    let sizes = sizes.join(",");
    let text = format!("[factors]\npath='socket'\nread-size=[{sizes}]\nmessage-size=[{sizes}]");
    assert!(read(&text).unwrap_err().to_string().contains("more than 20000 combinations"));
}

/// The levels are counted before they are parsed: a hundred thousand would otherwise take minutes.
#[test]
fn more_levels_than_cells_are_refused_at_once() {
    let sizes: Vec<String> = (0..100_000).map(|n| (4096 + n).to_string()).collect();
    for others in ["path = 'socket'", "path = []"] {
        let text = format!("[factors]\n{others}\nread-size = [{}]", sizes.join(","));
        let started = std::time::Instant::now();
        let fault = read(&text).unwrap_err().to_string();
        assert!(fault.contains("more than 20000 combinations"), "{fault}");
        assert!(started.elapsed() < Duration::from_secs(5), "{:?}", started.elapsed());
    }
}

#[test]
fn a_long_key_or_value_is_not_repeated_whole() {
    let long = "k".repeat(1 << 20);
    let factors = "[factors]\npath = 'socket'\n";
    for text in [
        format!("{long} = 1"),
        format!("{long} = "),
        format!("'{long}' = 'a\\\n"),
        format!("{factors}{long} = 1"),
        format!("{factors}cores = {{ {long} = 1 }}"),
        format!("roi = {{ {long} = 1 }}"),
        format!("settings = {{ {long} = 1 }}"),
        format!("settings = '{long}'"),
        format!("settings = {{ set = '{long}' }}"),
        format!("meters = '{long}'"),
        format!("baseline = '{long}'\n{factors}"),
        format!("blocks = '{long}'"),
        format!("margin = '{long}'"),
        format!("window = '{long}'"),
        format!("design = '{long}'"),
        format!("profile = '{long}'"),
        format!("power = '{long}'"),
        format!("testbed = '{long}'"),
        format!("workload = '{long}'"),
        format!("baseline = {{ {long} = 1 }}\n{factors}"),
    ] {
        let fault = read(&text).unwrap_err().to_string();
        assert!(fault.len() < 1500, "{} bytes: {}", fault.len(), &text[..20]);
    }
}

#[test]
fn ten_thousand_cells_are_planned_in_a_moment() {
    let sizes: Vec<String> = (0..100).map(|n| (4096 + n).to_string()).collect();
    let sizes = sizes.join(",");
    let text = format!("[factors]\npath='socket'\nread-size=[{sizes}]\nmessage-size=[{sizes}]");
    let x = read(&text).unwrap();
    assert_eq!(x.cells.len(), 10_001);
    assert_eq!(x.cells[101].id.0, "socket message-size=4097 read-size=4097");
}

#[test]
fn slices_are_the_default_where_all_cells_can_be_open_at_once() {
    let cells =
        |factors: &str| read(&format!("[factors]\npath='socket'\n{factors}")).unwrap().cells;
    let (few, window) = (cells("mtu=[1500,9000]"), Duration::from_secs(1));
    assert_eq!(default_design(&few, window), Design::Slices { slice: 0.1 });
    let large = cells("message-size='1G'\nread-size='1G'\nmtu=[1500,9000,4148,8000]");
    assert_eq!(default_design(&large, window), Design::Trials, "8 GiB of buffers");
    let mtus: Vec<String> = (1500..1570).map(|mtu| mtu.to_string()).collect();
    let many = format!("mtu=[{}]", mtus.join(","));
    assert_eq!(default_design(&cells(&many), window), Design::Trials, "too many cells");
    let fault = read(&format!("design='slices'\n[factors]\npath='socket'\n{many}")).unwrap_err();
    assert!(fault.to_string().starts_with("x.toml:1:8: slices keep all 71 cells"), "{fault}");
}

#[test]
fn settings_of_the_host() {
    let settings = |value: &str| {
        read(&format!("settings = {value}\n[factors]\npath = \"socket\"\n"))
            .map(|experiment| experiment.settings)
            .map_err(|fault| fault.to_string())
    };
    let wanted = settings(r#"["quiet", "battle-of-zcs:device=eth0"]"#).unwrap();
    assert!(wanted.iter().any(|want| want.profile.as_deref() == Some("battle-of-zcs:device=eth0")));
    let wanted = settings(r#"{ profile = "quiet", set = "mtu eth0 4148" }"#).unwrap();
    assert!(wanted.last().is_some_and(|want| want.profile.is_none() && !want.optional));
    assert_eq!(settings("{}").unwrap(), []);
    for (value, says) in [
        (r#""quite""#, "x.toml:1:12: there is no settings profile 'quite' (did you mean"),
        (r#"{ set = ["mtu eth0 4148", "mtu eth0"] }"#, "setting 'mtu eth0': it lacks the bytes"),
        ("{ sets = [] }", "settings has no key 'sets' (did you mean 'set'?)"),
        ("{ set = 3 }", "x.toml:1:20"),
    ] {
        let text = settings(value).unwrap_err();
        assert!(text.contains(says), "{value}: {text}");
    }
}
