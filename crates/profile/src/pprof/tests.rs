use super::*;
use crate::{
    Builder, Frame, FrameKind, Header, Owner, Profile, Sample, Thread, Track, Weight, Work,
};
use message as pb;
use proptest::prelude::*;
use prost::Message;

fn any_frame() -> impl Strategy<Value = Frame> {
    let kind = prop::sample::select(vec![FrameKind::Kernel, FrameKind::User, FrameKind::Unknown]);
    let name = prop::sample::select(vec!["", "f", "tcp_recvmsg", "a<b>;c d", "0x1f"]);
    let module = prop::sample::select(vec!["", "[kernel]", "[veth]", "/bin/x"]);
    let build_id = prop::sample::select(vec!["", "0badcafe"]);
    (name, module, build_id, prop::bool::ANY, kind, prop::bool::ANY).prop_map(
        |(function, module, build_id, file, kind, inlined)| Frame {
            function: function.into(),
            module: module.into(),
            build_id: build_id.into(),
            file: if file { "net/ipv4/tcp.c".into() } else { String::new() },
            kind,
            inlined,
        },
    )
}

fn any_thread() -> impl Strategy<Value = Thread> {
    let name = prop::sample::select(vec!["", "net rx 0", "swapper"]);
    (name, 0_u32..3, any::<u32>()).prop_map(|(name, pid, tid)| Thread {
        name: name.into(),
        pid,
        tid,
    })
}

fn any_header() -> impl Strategy<Value = Header> {
    let weight = prop::sample::select(vec![
        Weight::Nanoseconds,
        Weight::Delay,
        Weight::Bytes,
        Weight::Events,
        Weight::Samples,
        Weight::Percent,
    ]);
    let number = prop::option::of(0.0..1e15_f64);
    let note = prop::sample::select(vec!["", "kernel 6.1", "bytepath:lost=7", "a\nb"]);
    let track = ("[a-z]{0,5}", prop::collection::vec((0.0..9.0_f64, any::<f64>()), 0..3))
        .prop_filter("NaN equals nothing", |(_, points)| points.iter().all(|p| !p.1.is_nan()))
        .prop_map(|(name, points)| Track { name, unit: "bytes/s".into(), points });
    (
        ("\\PC{0,9}", prop::sample::select(vec!["", "cycles:P", "cpu-clock"]), weight),
        (number.clone(), number.clone(), number.clone(), number),
        (prop::option::of(any::<u32>()), any::<u64>()),
        prop::collection::vec(note, 0..3),
        prop::collection::vec(track, 0..2),
    )
        .prop_map(
            |(
                (title, event, weight),
                (period, seconds, bytes, packets),
                (cpus, lost),
                notes,
                tracks,
            )| {
                let notes = notes.into_iter().map(str::to_owned).collect();
                Header {
                    title,
                    event: event.into(),
                    weight,
                    period,
                    seconds,
                    cpus,
                    lost,
                    work: Work { bytes, packets },
                    notes,
                    tracks,
                }
            },
        )
}

prop_compose! {
    fn any_profile()(
        header in any_header(),
        frames in prop::collection::vec(any_frame(), 1..8),
        threads in prop::collection::vec(any_thread(), 1..4),
        stacks in prop::collection::vec(prop::collection::vec(any::<prop::sample::Index>(), 0..6), 1..6),
        samples in prop::collection::vec((
            any::<prop::sample::Index>(), any::<prop::sample::Index>(), any::<prop::sample::Index>(),
            prop::option::of(any::<u32>()), prop::option::of(0.0..1e6_f64), any::<u64>(), -1e15..1e15_f64,
        ), 0..12),
    ) -> Profile {
        let mut builder = Builder::new(header);
        let frames: Vec<_> = frames.into_iter().map(|frame| builder.frame(frame)).collect();
        let threads: Vec<_> = threads.into_iter().map(|thread| builder.thread(thread)).collect();
        let stacks: Vec<_> = stacks
            .into_iter()
            .map(|stack| {
                let stack: Vec<_> = stack.into_iter().map(|index| *index.get(&frames)).collect();
                builder.stack(&stack)
            })
            .collect();
        for (stack, thread, owner, cpu, time, count, weight) in samples {
            builder.add(Sample {
                stack: *stack.get(&stacks),
                thread: *thread.get(&threads),
                owner: *owner.get(&Owner::all().collect::<Vec<_>>()),
                cpu,
                time,
                // Equal samples are merged.
                count: count >> 8,
                weight,
            });
        }
        builder.build()
    }
}

proptest! {
    #[test]
    fn a_profile_comes_back_as_it_was(profile in any_profile()) {
        let bytes = encode(&profile);
        let back = decode("t", &bytes).unwrap();
        prop_assert_eq!(&back, &profile);
        prop_assert!(recognises(&bytes));
    }

    #[test]
    fn any_bytes_are_read_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let _ = decode("t", &bytes);
    }

    #[test]
    fn a_damaged_profile_is_read_or_refused(
        profile in any_profile(), at in any::<prop::sample::Index>(), byte in any::<u8>(),
    ) {
        let mut bytes = encode(&profile);
        let at = at.index(bytes.len());
        bytes[at] = byte;
        let _ = decode("t", &bytes);
    }
}

/// String table of a hand-made message.
fn table(strings: &[&str]) -> Vec<String> {
    strings.iter().map(|text| (*text).to_owned()).collect()
}

/// A profile as Go writes it: samples and nanoseconds, locations leaf first, no kinds.
fn of_go() -> pb::Profile {
    let kind = |r#type, unit| pb::ValueType { r#type, unit };
    let strings = [
        "",
        "samples",
        "count",
        "cpu",
        "nanoseconds",
        "main.work",
        "main.main",
        "/bin/app",
        "m.go",
    ];
    pb::Profile {
        sample_type: vec![kind(1, 2), kind(3, 4)],
        sample: vec![pb::Sample {
            location_id: vec![1, 2],
            value: vec![3, 30_000_000],
            label: vec![],
        }],
        mapping: vec![pb::Mapping { id: 1, filename: 7, ..Default::default() }],
        location: vec![
            pb::Location {
                id: 1,
                mapping_id: 1,
                line: vec![
                    pb::Line { function_id: 1, line: 4 },
                    pb::Line { function_id: 2, line: 9 },
                ],
                ..Default::default()
            },
            pb::Location { id: 2, mapping_id: 1, address: 0x40, ..Default::default() },
        ],
        function: vec![
            pb::Function { id: 1, name: 5, system_name: 5, filename: 8 },
            pb::Function { id: 2, name: 6, system_name: 6, filename: 8 },
        ],
        string_table: table(&strings),
        duration_nanos: 1_500_000_000,
        period_type: Some(kind(3, 4)),
        period: 10_000_000,
        ..Default::default()
    }
}

#[test]
fn profiles_of_go_are_read() {
    let profile = decode("cpu.pb.gz", &of_go().encode_to_vec()).unwrap();
    let header = &profile.header;
    assert_eq!((header.title.as_str(), header.event.as_str()), ("cpu.pb.gz", "cpu"));
    assert_eq!((header.weight, header.period), (Weight::Nanoseconds, Some(1e7)));
    assert_eq!(header.seconds, Some(1.5));
    assert_eq!((profile.count(), profile.total()), (3, 3e7));
    let stack = profile.stack(profile.samples()[0].stack);
    let names: Vec<_> = stack
        .iter()
        .map(|id| profile.frame(*id))
        .map(|frame| (frame.function.as_str(), frame.inlined, frame.kind))
        .collect();
    let user = FrameKind::User;
    assert_eq!(
        names,
        [("main.work", true, user), ("main.main", false, user), ("0x40", false, user)]
    );
}

#[test]
fn the_default_sample_type_is_taken() {
    let mut message = of_go();
    message.default_sample_type = 1;
    let profile = decode("t", &message.encode_to_vec()).unwrap();
    assert_eq!((profile.header.weight, profile.total()), (Weight::Samples, 3.0));
    assert_eq!(profile.header.notes, ["left out: the values of cpu (nanoseconds)"]);
}

#[test]
fn profiles_of_perf_data_converter_are_read() {
    let mut message = of_go();
    message.string_table.extend(table(&[
        "pid",
        "tid",
        "comm",
        "nginx",
        "timestamp_ns",
        "[kernel.kallsyms]",
    ]));
    let label = |key, str, num| pb::Label { key, str, num, num_unit: 0 };
    message.mapping[0].filename = 14;
    message.sample[0].label =
        vec![label(9, 0, 7), label(10, 0, 8), label(11, 12, 0), label(13, 0, 5_000_000_000)];
    let mut later = message.sample[0].clone();
    later.label[3].num += 250_000_000;
    message.sample.push(later);
    let profile = decode("t", &message.encode_to_vec()).unwrap();
    assert_eq!(profile.threads(), [Thread { name: "nginx".into(), pid: 7, tid: 8 }]);
    assert_eq!(profile.frames()[0].kind, FrameKind::Kernel);
    assert_eq!(profile.frames()[0].module, "[kernel]");
    let times: Vec<_> = profile.samples().iter().map(|sample| sample.time).collect();
    assert_eq!(times, [Some(0.0), Some(0.25)]);
}

#[test]
fn what_does_not_hold_together_is_refused() {
    type Spoil = fn(&mut pb::Profile);
    let spoil: [(&str, Spoil); 6] = [
        ("location 9", |m| m.sample[0].location_id.push(9)),
        ("function 9", |m| m.location[0].line[0].function_id = 9),
        ("mapping 9", |m| m.location[0].mapping_id = 9),
        ("string 99", |m| m.function[0].name = 99),
        ("has 1 values", |m| m.sample[0].value.truncate(1)),
        ("no sample type", |m| m.sample_type.clear()),
    ];
    for (word, spoil) in spoil {
        let mut message = of_go();
        spoil(&mut message);
        let error = decode("t", &message.encode_to_vec()).unwrap_err();
        assert!(error.message.starts_with("t: ") && error.message.contains(word), "{error}");
    }
    let mut bomb = of_go();
    bomb.location[0].line = vec![pb::Line { function_id: 1, line: 0 }; 10_000];
    bomb.sample = (2..500)
        .map(|n| pb::Sample { location_id: vec![1; n], value: vec![1, 1], label: vec![] })
        .collect();
    let error = decode("t", &bomb.encode_to_vec()).unwrap_err();
    assert!(error.message.contains("proportion"), "{error}");
    let newer = {
        let mut message = of_go();
        message.string_table.push("bytepath:format=9".into());
        message.comment.push(9);
        message.encode_to_vec()
    };
    assert!(decode("t", &newer).unwrap_err().message.contains("newer bytepath"));
}

/// A profile of another program with these types and one sample with these values.
fn of_types(types: &[(&str, &str)], values: &[i64], period: i64) -> Profile {
    let mut message = of_go();
    let mut types_of = Vec::new();
    for (name, unit) in types {
        let at = message.string_table.len() as i64;
        message.string_table.extend([(*name).to_owned(), (*unit).to_owned()]);
        types_of.push(pb::ValueType { r#type: at, unit: at + 1 });
    }
    message.period_type = types_of.last().copied();
    message.sample_type = types_of;
    message.default_sample_type = 0;
    message.period = period;
    message.sample.truncate(1);
    message.sample[0].value = values.to_vec();
    decode("t", &message.encode_to_vec()).unwrap()
}

#[test]
fn only_times_of_a_cpu_are_cpu_time() {
    for (types, weight) in [
        (("cpu", "nanoseconds"), Weight::Nanoseconds),
        (("cpu-time", "milliseconds"), Weight::Nanoseconds),
        (("delay", "nanoseconds"), Weight::Delay),
        (("wall", "nanoseconds"), Weight::Delay),
        (("time", "microseconds"), Weight::Delay),
        (("inuse_space", "bytes"), Weight::Bytes),
        (("inuse_objects", "count"), Weight::Events),
    ] {
        let profile = of_types(&[("samples", "count"), types], &[3, 40], 0);
        assert_eq!((profile.header.weight, profile.count()), (weight, 3), "{types:?}");
    }
}

#[test]
fn numbers_of_samples_are_recorded_or_follow_from_the_period() {
    let mutex = of_types(&[("contentions", "count"), ("delay", "nanoseconds")], &[14, 500], 1);
    assert_eq!((mutex.count(), mutex.total()), (14, 500.0));
    // CPU profiles of others may have only the time.
    let cpu = of_types(&[("cpu", "nanoseconds")], &[70_000_000], 10_000_000);
    assert_eq!((cpu.count(), cpu.header.period), (7, Some(1e7)));
    let threads = of_types(&[("threadcreate", "count")], &[5], 1);
    assert_eq!((threads.count(), threads.total()), (5, 5.0));
}
