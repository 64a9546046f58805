//! Tests of amounts, units and the order of rows.

use super::*;
use crate::subsystem::Subsystem;
use crate::{
    Builder, Frame, FrameKind, Header, Owner, Profile, Sample, Thread, Weight, Work, import,
};
use bytepath_record::unit::GIB;
use bytepath_record::{Fault, Role};

/// A sample: stack leaf first, thread, owner, weight.
type Made<'a> = (&'a [&'a str], &'a str, Owner, f64);

fn profile(header: Header, samples: &[Made]) -> Profile {
    let mut builder = Builder::new(header);
    for (stack, thread, owner, weight) in samples {
        let frames: Vec<_> = stack
            .iter()
            .map(|name| {
                let (module, function) = name.split_once('!').unwrap_or(("", name));
                let kind = if module.is_empty() { FrameKind::Kernel } else { FrameKind::User };
                let (function, module) = (function.to_owned(), module.to_owned());
                builder.frame(Frame { function, module, kind, ..Frame::default() })
            })
            .collect();
        let stack = builder.stack(&frames);
        let thread = builder.thread(Thread { name: (*thread).into(), ..Thread::default() });
        let (owner, weight) = (*owner, *weight);
        builder.add(Sample { stack, thread, owner, cpu: None, time: None, count: 1, weight });
    }
    builder.build()
}

fn simple(samples: &[(&[&str], f64)]) -> Vec<Profile> {
    let made: Vec<Made> = samples.iter().map(|(s, w)| (*s, "t", Owner::Unknown, *w)).collect();
    vec![profile(Header::default(), &made)]
}

fn rows(diff: &Diff) -> Vec<(String, f64, f64, f64)> {
    let row = |r: &Row| (r.function.clone(), r.amount.with, r.amount.without, r.amount.saved);
    diff.rows.iter().map(row).collect()
}

fn row(function: &str, with: f64, without: f64) -> (String, f64, f64, f64) {
    (function.to_owned(), with, without, without - with)
}

#[test]
fn the_pair_of_2002_comes_out_row_for_row() {
    let read = |name: &str| {
        let path = format!("{}/../../tests/data/affinity-2002/{name}", env!("CARGO_MANIFEST_DIR"));
        let file = std::fs::File::open(path).unwrap();
        vec![import::read(name, &mut std::io::BufReader::new(file)).unwrap()]
    };
    let diff = diff(&read("baseline.txt"), &read("affinity.txt"), &Options::default()).unwrap();
    let lines: String = diff
        .rows
        .iter()
        .map(|r| {
            let Pair { with, without, saved, .. } = r.amount;
            format!("{} {with} {without} {saved}\n", r.function)
        })
        .collect();
    assert_eq!(lines, include_str!("../../../../tests/data/affinity-2002/savings.txt"));
    assert_eq!((diff.per, diff.unit.as_str(), diff.idle), (Per::None, "samples", None));
}

#[test]
fn self_is_the_leaf_and_total_counts_recursion_once() {
    let without = simple(&[(&["f", "g", "f", "main"], 4.0), (&["g", "main"], 2.0)]);
    let with = simple(&[(&["f", "main"], 1.0)]);
    let own = diff(&without, &with, &Options::default()).unwrap();
    assert_eq!(rows(&own), [row("f", 1.0, 4.0), row("g", 0.0, 2.0)]);
    let options = Options { measure: Measure::Total, ..Options::default() };
    let all = diff(&without, &with, &options).unwrap();
    assert_eq!(
        rows(&all),
        [row("g", 0.0, 6.0), row("main", 1.0, 6.0), row("f", 1.0, 4.0)]
            .into_iter()
            .collect::<Vec<_>>()
    );
    assert_eq!(all.total, Pair::new(6.0, 1.0));
}

#[test]
fn ties_are_ordered_by_presence() {
    let without = simple(&[(&["gone"], 5.0), (&["b"], 8.0), (&["a"], 9.0), (&["also"], 5.0)]);
    let with = simple(&[(&["b"], 3.0), (&["a"], 4.0), (&["new"], 1.0)]);
    let diff = diff(&without, &with, &Options::default()).unwrap();
    let names: Vec<&str> = diff.rows.iter().map(|r| r.function.as_str()).collect();
    assert_eq!(names, ["b", "a", "also", "gone", "new"]);
    let presence: Vec<Presence> = diff.rows.iter().map(|r| r.presence).collect();
    use Presence::*;
    assert_eq!(presence, [Both, Both, Vanished, Vanished, Appeared]);
    assert_eq!(diff.appeared, ["new"]);
    assert_eq!(diff.vanished, ["also", "gone"]);
}

#[test]
fn matches_names_across_builds_but_not_across_programs() {
    let without = simple(&[
        (&["tcp_ack.isra.0"], 3.0),
        (&["tcp_ack.cold"], 1.0),
        (&["/usr/lib/a.so!run"], 1.0),
        (&["b!run"], 2.0),
    ]);
    let with = simple(&[(&["tcp_ack"], 1.0), (&["/opt/a.so!run"], 1.0), (&["b!run"], 1.0)]);
    let apart = diff(&without, &with, &Options::default()).unwrap();
    assert_eq!(
        rows(&apart),
        [row("tcp_ack", 1.0, 4.0), row("run", 1.0, 2.0), row("run", 1.0, 1.0)]
    );
    assert_eq!(apart.rows[1].module, "b");
    // If one side does not record the files, names have to do.
    let bare = simple(&[(&["tcp_ack"], 1.0), (&["run"], 2.0)]);
    let together = diff(&without, &bare, &Options::default()).unwrap();
    assert_eq!(rows(&together), [row("tcp_ack", 1.0, 4.0), row("run", 2.0, 3.0)]);
}

fn measured(weight: Weight, event: &str, samples: &[(&[&str], f64)]) -> Profile {
    let made: Vec<Made> = samples.iter().map(|(s, w)| (*s, "t", Owner::Unknown, *w)).collect();
    let header = Header {
        title: "p".into(),
        event: event.into(),
        weight,
        seconds: Some(4.0),
        work: Work { bytes: Some(2.0 * GIB), packets: Some(1000.0) },
        ..Header::default()
    };
    profile(header, &made)
}

fn with_per(a: &[Profile], b: &[Profile], per: Option<Per>) -> Result<Diff, Fault> {
    diff(a, b, &Options { per, ..Options::default() })
}

#[test]
fn amounts_are_divided_by_the_work() {
    let a = [measured(Weight::Nanoseconds, "cpu-clock", &[(&["f"], 6e9), (&["g"], 2e9)])];
    let twice = [a[0].clone(), a[0].clone()];
    let b = [measured(Weight::Nanoseconds, "cpu-clock", &[(&["f"], 2e9), (&["g"], 2e9)])];
    for (per, unit, with, without) in [
        (None, "CPU-s/GiB", 1.0, 3.0),
        (Some(Per::Gib), "CPU-s/GiB", 1.0, 3.0),
        (Some(Per::Packet), "CPU-ns/packet", 2e6, 6e6),
        (Some(Per::Second), "CPU-s/s", 0.5, 1.5),
        (Some(Per::Run), "CPU-s/run", 2.0, 6.0),
        (Some(Per::Sample), "% of the samples", 50.0, 75.0),
        (Some(Per::None), "CPU-s", 2.0, 6.0),
    ] {
        let diff = with_per(&a, &b, per).unwrap();
        assert_eq!(diff.unit, unit);
        let f = diff.rows.iter().find(|r| r.function == "f").unwrap().amount;
        assert!(
            (f.with - with).abs() < 1e-9 && (f.without - without).abs() < 1e-9,
            "{unit}: {f:?}"
        );
        // Two identical trials do not change what is divided by their work.
        if per != Some(Per::None) {
            let doubled = with_per(&twice, &b, per).unwrap();
            let f = doubled.rows.iter().find(|r| r.function == "f").unwrap().amount;
            assert!((f.without - without).abs() < 1e-9, "{unit}: {f:?}");
        }
    }
    let notes = with_per(&twice, &b, Some(Per::None)).unwrap().notes;
    assert!(notes[0].contains("2 profiles before and 1 after"), "{notes:?}");
}

#[test]
fn repeated_profiles_without_work_are_means_of_a_run() {
    let run = |seconds: f64| {
        let samples: &[(&[&str], f64)] = &[(&["f"], seconds * 1e9)];
        let mut profile = measured(Weight::Nanoseconds, "cpu-clock", samples);
        profile.header.work = Work::default();
        profile
    };
    // The same program three times and once: nothing has changed.
    let found = with_per(&[run(1.0), run(1.1), run(0.9)], &[run(1.0)], None).unwrap();
    assert_eq!((found.per, found.unit.as_str()), (Per::Run, "CPU-s/run"));
    assert!((found.total.without - 1.0).abs() < 1e-9 && found.total.saved.abs() < 1e-9);
    let found = with_per(&[run(1.0), run(1.1)], &[run(2.0), run(2.1)], None).unwrap();
    assert!((found.total.saved + 1.0).abs() < 1e-9 && found.total.half_width.is_some());
    // One of each stays as it is.
    assert_eq!(with_per(&[run(1.0)], &[run(2.0)], None).unwrap().per, Per::None);
}

#[test]
fn two_builds_of_a_program_are_one() {
    let build = |title: &str, frame: &str, weight: f64| {
        let header = Header { title: title.into(), ..Header::default() };
        vec![profile(header, &[(&[frame], "t", Owner::Unknown, weight)])]
    };
    let before = build("./old/server-1 -p 80", "/opt/old/server-1!main", 3.0);
    let after = build("./server-2", "server-2!main", 5.0);
    let found = diff(&before, &after, &Options::default()).unwrap();
    assert_eq!(rows(&found), [row("main", 5.0, 3.0)]);
    assert!(found.appeared.is_empty() && found.notes[0].contains("server-1 and server-2"));
    // A library with another name is a different one.
    let other = build("./server-2", "libother.so!main", 5.0);
    assert_eq!(diff(&before, &other, &Options::default()).unwrap().rows.len(), 2);
}

#[test]
fn repeated_profiles_are_means_with_an_interval() {
    let of = |samples: &[(&[&str], f64)], gib: f64| {
        let mut profile = measured(Weight::Nanoseconds, "cpu-clock", samples);
        profile.header.work.bytes = Some(gib * GIB);
        profile
    };
    // CPU-s/GiB of f: 1, 2, 3 before the change and 3, 5, 7 after it; g is in one of them.
    let a = [of(&[(&["f"], 2e9)], 2.0), of(&[(&["f"], 2e9)], 1.0), of(&[(&["f"], 12e9)], 4.0)];
    let b = [
        of(&[(&["f"], 3e9)], 1.0),
        of(&[(&["f"], 5e9), (&["g"], 3e9)], 1.0),
        of(&[(&["f"], 7e9)], 1.0),
    ];
    let found = with_per(&a, &b, None).unwrap();
    let row = |name: &str| found.rows.iter().find(|r| r.function == name).unwrap().amount;
    let near = |a: f64, b: f64| (a - b).abs() < 1e-9;
    let f = row("f");
    assert!(near(f.without, 2.0) && near(f.with, 5.0) && near(f.saved, -3.0), "{f:?}");
    // By hand as in the test of the interval itself: t is between 3.1824 and 3.26.
    let t = f.half_width.unwrap() / (5.0f64 / 3.0).sqrt();
    assert!(t > 3.1824 && t < 3.26 && f.in_doubt(), "{t}");
    // Two trials without g are two zeros: mean 1, standard error 1, two degrees of freedom.
    let g = row("g");
    assert!(near(g.with, 1.0) && (g.half_width.unwrap() - 4.302_652_7).abs() < 1e-5, "{g:?}");
    assert!(near(found.total.with, 6.0) && found.total.half_width.is_some());
    // Flame graphs have the same amounts: each profile is divided by its own work.
    assert_eq!(found.scales[0].len(), 3);
    assert!(near(found.scales[0][2] * 12e9, 1.0), "{:?}", found.scales);
    // Sums have no interval, nor has a side with one profile.
    for (b, per) in [(&b[..], Some(Per::None)), (&b, Some(Per::Sample)), (&b[..1], None)] {
        let found = with_per(&a, b, per).unwrap();
        assert!(found.rows.iter().all(|r| r.amount.half_width.is_none()), "{per:?}");
    }
    assert_eq!(with_per(&a, &b, Some(Per::None)).unwrap().total.without, 16.0);
}

#[test]
fn refuses_incomparable_profiles_with_a_remedy() {
    let bare = simple(&[(&["f"], 1.0)]);
    let ns = [measured(Weight::Nanoseconds, "cpu-clock", &[(&["f"], 1.0)])];
    let cycles = [measured(Weight::Events, "cycles", &[(&["f"], 1.0)])];
    let misses = [measured(Weight::Events, "cache-misses", &[(&["f"], 1.0)])];
    let percent = [measured(Weight::Percent, "", &[(&["f"], 100.0)])];
    for (a, b, per, expected) in [
        (&bare[..], &bare[..], Some(Per::Gib), "how many bytes"),
        (&bare, &bare, Some(Per::Packet), "how many packets"),
        (&bare, &bare, Some(Per::Second), "how many seconds"),
        (&bare, &ns, None, "samples before, nanoseconds of cpu-clock after"),
        (&cycles, &misses, None, "events of cycles before, events of cache-misses after"),
        (&percent, &percent, Some(Per::Gib), "percentages of an unknown total"),
        (&[], &bare, None, "no profile before"),
    ] {
        let fault = with_per(a, b, per).unwrap_err();
        assert!(fault.message.contains(expected), "{fault}");
    }
    let mixed = [ns[0].clone(), cycles[0].clone()];
    let fault = with_per(&mixed, &ns, None).unwrap_err();
    assert!(fault.message.contains("before are of different kinds"), "{fault}");
    // Shares can always be compared; differences are noted.
    let shares = with_per(&cycles, &misses, Some(Per::Sample)).unwrap();
    assert_eq!(rows(&shares), [row("f", 100.0, 100.0)]);
    assert!(shares.notes[0].contains("different events"), "{:?}", shares.notes);
    assert!(with_per(&percent, &percent, None).is_ok());
    let endless = simple(&[(&["f"], f64::INFINITY)]);
    assert!(with_per(&endless, &bare, None).is_err());
}

#[test]
fn nothing_in_nothing_out() {
    let empty = [profile(Header::default(), &[])];
    for per in [None, Some(Per::Sample)] {
        let diff = with_per(&empty, &empty, per).unwrap();
        assert_eq!((diff.rows.len(), diff.total, diff.classified), (0, Pair::default(), None));
        assert!(diff.notes[0].contains("has no sample"));
    }
}

#[test]
fn groups_rows_and_separates_idle() {
    let tx = Owner::Role(Role::Sender);
    let samples: &[Made] = &[
        (&["tcp_ack"], "kworker/0:1", tx, 1.0),
        (&["tcp_ack"], "kworker/1:7", Owner::Ksoftirqd, 2.0),
        (&["pv_native_safe_halt"], "swapper/0", Owner::Unknown, 7.0),
        (&["memcpy"], "cron", Owner::Foreign, 4.0),
    ];
    let side = [profile(Header::default(), samples)];
    let none = simple(&[]);
    let grouped = |by| {
        let diff = diff(&side, &none, &Options { by, ..Options::default() }).unwrap();
        assert_eq!(diff.idle, Some(Pair::new(7.0, 0.0)));
        assert_eq!(diff.foreign, Some(Pair::new(4.0, 0.0)));
        let row = |r: Row| (r.group, r.amount.without);
        diff.rows.into_iter().map(row).collect::<Vec<_>>()
    };
    let text = |group: &str, amount: f64| (group.to_owned(), amount);
    assert_eq!(grouped(GroupBy::None), [text("", 3.0)]);
    assert_eq!(grouped(GroupBy::Thread), [text("kworker/*:*", 3.0)]);
    assert_eq!(grouped(GroupBy::Role), [text("ksoftirqd", 2.0), text("sender", 1.0)]);
    assert_eq!(grouped(GroupBy::Subsystem), [text("tcp", 3.0)]);
    let totals = |by| {
        let diff = diff(&none, &side, &Options { by, ..Options::default() }).unwrap();
        let total = |group: GroupTotal| (group.group, group.amount.with);
        diff.groups.into_iter().map(total).collect::<Vec<_>>()
    };
    assert_eq!(totals(GroupBy::None), []);
    assert_eq!(totals(GroupBy::Role), [text("ksoftirqd", 2.0), text("sender", 1.0)]);
    let options = Options { idle: true, foreign: true, ..Options::default() };
    let kept = diff(&side, &none, &options).unwrap();
    assert_eq!((kept.idle, kept.foreign, kept.total.without), (None, None, 14.0));
    assert_eq!(kept.rows[0].function, "pv_native_safe_halt");
    assert_eq!(kept.rows[0].subsystem, Some(Subsystem::Idle));
}

/// A group that a profile lacks counts as zero there.
#[test]
fn totals_of_groups_are_means_with_intervals() {
    let made = |tcp: f64, copy: f64| -> Profile {
        let samples: &[Made] =
            &[(&["tcp_ack"], "t", Owner::Unknown, tcp), (&["memcpy"], "t", Owner::Unknown, copy)];
        profile(Header::default(), if copy > 0.0 { samples } else { &samples[..1] })
    };
    let before = [made(10.0, 4.0), made(12.0, 0.0)];
    let after = [made(20.0, 0.0), made(22.0, 0.0)];
    let options = Options { by: GroupBy::Subsystem, per: Some(Per::Run), ..Options::default() };
    let diff = diff(&before, &after, &options).unwrap();
    let totals: Vec<_> =
        diff.groups.iter().map(|g| (g.group.as_str(), g.amount.without, g.amount.with)).collect();
    assert_eq!(totals, [("tcp", 11.0, 21.0), ("copy", 2.0, 0.0)]);
    let same = |row: &Row| diff.groups.iter().any(|group| group.amount == row.amount);
    assert!(diff.rows.iter().all(same), "{:?}", diff.groups);
}

#[test]
fn keeps_the_rows_that_differ_most() {
    let without = simple(&[(&["gain"], 9.0), (&["same"], 5.0), (&["one"], 2.0), (&["two"], 2.0)]);
    let with = simple(&[(&["same"], 5.0), (&["loss"], 7.0), (&["one"], 1.0), (&["two"], 1.0)]);
    let kept = |top, threshold| {
        let mut diff = diff(&without, &with, &Options::default()).unwrap();
        diff.keep(top, threshold);
        let names: Vec<String> = diff.rows.iter().map(|r| r.function.clone()).collect();
        (names.join(" "), diff.left_out)
    };
    let left = |rows, without, with| Some(LeftOut { rows, amount: Pair::new(without, with) });
    assert_eq!(kept(None, 0.0), ("gain one two same loss".to_owned(), None));
    assert_eq!(kept(Some(2), 0.0), ("gain loss".to_owned(), left(3, 9.0, 7.0)));
    assert_eq!(kept(Some(3), 0.0), ("gain one loss".to_owned(), left(2, 7.0, 6.0)));
    assert_eq!(kept(Some(0), 0.0), (String::new(), left(5, 18.0, 14.0)));
    // A quarter of 18 is 4.5.
    assert_eq!(kept(None, 0.25), ("gain loss".to_owned(), left(3, 9.0, 7.0)));
    assert_eq!(kept(Some(9), 0.0).1, None);
}
