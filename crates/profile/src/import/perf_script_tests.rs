use super::*;
use crate::Owner;

fn read(text: &str) -> Result<Profile, Fault> {
    super::read("t", Times::Kept, &mut text.as_bytes())
}

/// Stacks in folded form, outermost first, with their modules.
fn folded(profile: &Profile) -> Vec<String> {
    let mut lines: Vec<String> = profile
        .samples()
        .iter()
        .map(|sample| {
            let frames = profile.stack(sample.stack).iter().rev().map(|id| {
                let frame = profile.frame(*id);
                let mark = if frame.inlined { "*" } else { "" };
                format!("{}{mark}@{}", frame.function, frame.module)
            });
            let name = profile.thread(sample.thread).name.clone();
            let stack: Vec<String> = std::iter::once(name).chain(frames).collect();
            format!("{} {}", stack.join(";"), sample.weight)
        })
        .collect();
    lines.dedup();
    lines
}

const CHAINS: &str = "\
net rx 0 20550/20554 [001]  1811.125732:    2004008 cpu-clock: 
\tffffffff81d33305 write_null+0x5 ([kernel.kallsyms])
\tffffffff816b8b4a veth_xmit+0xca ([veth])
\t           f838f [unknown] (/usr/lib/libc.so.6)
\t            13a3 mix (inlined)
\t            13a3 work+0xf3 (/tmp/a dir/busy (deleted))

swapper     0 [000]  1811.128389:    2004008 cpu-clock: 
\tffffffff816bae83 operator+(int)+0x23 ([kernel.kallsyms])

";

#[test]
fn call_chains_are_read() {
    let profile = read(CHAINS).unwrap();
    assert!(recognises(CHAINS.as_bytes()));
    assert_eq!(
        folded(&profile),
        [
            "net rx 0;work@/tmp/a dir/busy (deleted);mix*@/tmp/a dir/busy (deleted);\
             0xf838f@/usr/lib/libc.so.6;veth_xmit@[veth];write_null@[kernel] 2004008",
            "swapper;operator+(int)@[kernel] 2004008",
        ]
    );
    let header = &profile.header;
    assert_eq!((header.event.as_str(), header.weight), ("cpu-clock", Weight::Nanoseconds));
    assert_eq!(header.period, Some(2_004_008.0));
    let [first, second] = profile.samples() else { panic!() };
    assert_eq!((first.cpu, first.time, second.time), (Some(1), Some(0.0), Some(0.002_657)));
    assert_eq!(second.owner, Owner::Idle);
    let thread = profile.thread(first.thread);
    assert_eq!((thread.pid, thread.tid), (20550, 20554));
    assert_eq!(profile.frames()[0].kind, FrameKind::Kernel);
}

#[test]
fn one_line_a_sample() {
    let text = "        net rx 0 20579  1812.360187:    5025125 cycles:P:  ffffffff81d335f7 read_zero+0x77 ([kernel.kallsyms])
     tx:1 (main) 20580  1812.387435:    5025126 cycles:P:      55b81434b233 spin+0x23 (/tmp/h1/busy)
";
    let profile = read(text).unwrap();
    assert!(recognises(text.as_bytes()));
    assert_eq!(
        folded(&profile),
        ["net rx 0;read_zero@[kernel] 5025125", "tx:1 (main);spin@/tmp/h1/busy 5025126"]
    );
    assert_eq!((profile.header.weight, profile.header.period), (Weight::Events, None));
}

#[test]
fn fields_may_be_left_out() {
    let frame = "\tffffffff81752b6a elf_load ([kernel.kallsyms])\n\t    7ff896ef2ad7 main\n\n";
    let stack = "main@;elf_load@[kernel]";
    for (head, name) in [
        ("busy \n", "busy"),
        ("net rx x 24923 page-faults: \n", "net rx x"),
        ("net rx 0 24923 \n", "net rx 0"),
        ("net rx 0 24923         17 page-faults: \n", "net rx 0"),
        ("net rx 0  1.000001: \n", "net rx"),
        ("", ""),
    ] {
        let text = format!("{head}{frame}{head}{frame}");
        let profile = read(&text).unwrap();
        assert!(recognises(text.as_bytes()), "{text}");
        let weight = profile.samples()[0].weight / profile.samples()[0].count as f64;
        assert_eq!(profile.count(), 2, "{text}");
        let expected = format!("{name};{stack} {}", profile.samples()[0].weight);
        assert_eq!(folded(&profile)[0], expected, "{text}");
        assert_eq!(weight, if head.contains(" 17 ") { 17.0 } else { 1.0 });
    }
    let flat = "        net rx x  ffffffff81d335f7 read_zero ([kernel.kallsyms])\n";
    assert_eq!(folded(&read(flat).unwrap()), ["net rx x;read_zero@[kernel] 1"]);
    let bare =
        "        net rx 0 24927    3344481   cpu-clock: \n     tx 24928    3344481   cpu-clock: \n";
    assert_eq!(folded(&read(bare).unwrap()), ["net rx 0 3344481", "tx 3344481"]);
    let symbols = "busy 7  1.000001: \n add (/bin/x)\n main+0x4 (/bin/x)\n\n";
    assert_eq!(folded(&read(symbols).unwrap()), ["busy;main@/bin/x;add@/bin/x 1"]);
    let sources =
        "busy 7  1.000001: \n\t 1239 add+0x3\n  busy.c:11\n\t 1300 main+0x4\n  x[1300]\n\n";
    assert_eq!(folded(&read(sources).unwrap()), ["busy;main@;add@ 1"]);
}

#[test]
fn blanks_may_stand_for_tabs() {
    let text = CHAINS.replace('\t', "        ").replace('\n', "\r\n");
    assert_eq!(folded(&read(&text).unwrap()), folded(&read(CHAINS).unwrap()));
}

#[test]
fn of_several_events_the_first_is_read() {
    let text = format!(
        "# hostname : box\n# nrcpus online : 2\n{CHAINS}busy 7 [000] 1812.000001: 3 page-faults: \n\t1239 main ([x])\n\n\
         busy 7 [000] 1812.000002: PERF_RECORD_LOST lost 12\n"
    );
    let profile = read(&text).unwrap();
    assert_eq!(profile.count(), 2);
    assert_eq!(
        profile.header.notes,
        ["hostname: box", "left out: 1 samples of the event page-faults"]
    );
    assert_eq!((profile.header.cpus, profile.header.lost), (Some(2), 12));
}

#[test]
fn garbage_is_refused_by_line() {
    for (text, line) in [
        ("hello\nworld\n", 2),
        ("\n\nsome prose here\n", 3),
        (&format!("{CHAINS}nonsense of a sort\nand more\n"), 12),
        (&format!("{CHAINS}\t\u{1}+0x1f\n\t+0x1\n"), 12),
    ] {
        let error = read(text).unwrap_err();
        assert!(error.message.starts_with(&format!("t, line {line}: ")), "{error}");
    }
    assert!(read("").unwrap_err().message.contains("no sample"));
    assert!(!recognises(b"dear all,\nsee below\n"));
}

#[test]
fn names_that_begin_with_parentheses_are_not_addresses() {
    let text = "app 5 1.000001: 7 cycles: \n\
        \t5574a37dd36e (anonymous namespace)::work(int) (/opt/app)\n\
        \t5574a37dd300 (anonymous namespace)::work(int)+0x2e (/opt/app)\n\
        \t5574a37dd310 ns::(anonymous namespace)::g (/opt/app)\n\
        \t5574a37dd320 (/opt/app)\n\tadd (/opt/app)\n\n";
    let names: Vec<String> =
        read(text).unwrap().frames().iter().map(|frame| frame.function.clone()).collect();
    assert_eq!(
        names,
        [
            "(anonymous namespace)::work(int)",
            "ns::(anonymous namespace)::g",
            "0x5574a37dd320",
            "add"
        ]
    );
}

#[test]
fn task_events_are_no_samples() {
    let record = "java     0 [000]     0.000000: PERF_RECORD_COMM: java:1221/1225\n";
    let text = format!("{record}{CHAINS}{record}");
    let profile = read(&text).unwrap();
    assert_eq!((profile.count(), profile.header.event.as_str()), (2, "cpu-clock"));
    assert!(profile.header.notes.is_empty(), "{:?}", profile.header.notes);
    assert!(recognises(text.as_bytes()));
}

#[test]
fn a_period_needs_no_event() {
    let chain = "burn  7504  2347.337874:    2004008 \n\t            117c main\n\n";
    let flat = "            burn  7648  2349.431390:    2004008      55c890b4517c main\n";
    for text in [chain, flat] {
        let text = text.repeat(3);
        assert!(recognises(text.as_bytes()), "{text}");
        let profile = read(&text).unwrap();
        assert_eq!((profile.count(), profile.header.weight), (3, Weight::Events), "{text}");
        assert_eq!(profile.header.period, Some(2_004_008.0), "{text}");
        assert_eq!(profile.frames()[0].function, "main", "{text}");
    }
    for fields in ["burn", "burn  7648"] {
        for text in [
            format!("            {fields}      55c890b4517c main\n"),
            format!("            {fields}    2004008      55c890b4517c main\n"),
            format!("{fields}    2004008 \n\t55c890b4517c main (/bin/x)\n\n"),
        ] {
            let text = text.repeat(2);
            assert!(recognises(text.as_bytes()), "{text}");
            let profile = read(&text).unwrap();
            let sum: f64 = profile.samples().iter().map(|sample| sample.weight).sum();
            let weight = if text.contains("2004008") { 4_008_016.0 } else { 2.0 };
            assert_eq!((profile.count(), sum), (2, weight), "{text}");
            let tid = if fields.contains("7648") { 7648 } else { 0 };
            assert_eq!(profile.thread(profile.samples()[0].thread).tid, tid, "{text}");
        }
    }
}

#[test]
fn arguments_of_a_tracepoint_are_no_frame() {
    let text = "f 9566 [001] 1.191157: mm_pagevec_free: page=0xffffea0026 pfn=647377360 order=0\n";
    let profile = read(&text.repeat(2)).unwrap();
    assert_eq!((profile.count(), profile.frames().len()), (2, 0));
}

#[test]
fn a_blank_line_and_lost_indentation_keep_the_frames() {
    let blank = CHAINS.replacen("cpu-clock: \n", "cpu-clock: \n\n", 1);
    let flush = CHAINS.replace('\t', "").replace("           f838f", "00000000000f838f");
    let flush = flush.replace("            13a3", "00000000000013a3");
    for text in [blank, flush] {
        let profile = read(&text).unwrap();
        assert_eq!((profile.count(), folded(&profile).len()), (2, 2), "{text}");
        assert!(recognises(text.as_bytes()), "{text}");
    }
}

#[test]
fn other_texts_are_not_recognised() {
    for text in [
        "heap profile:  25601: 104861696 [ 51870: 209116368] @ heapprofile\n 25600: 104857600 [ \
         50850: 208281600] @ 0x55bb9b73a1ca\n\nMAPPED_LIBRARIES:\n55bb9b739000-55bb9b73a000 r--p \
         00000000 00:00 10019014    /opt/app\n",
        "Flat profile:\n\nEach sample counts as 0.01 seconds.\n  %   cumulative   self\n time   \
         seconds\n 33.34      0.02     0.02     7208     0.00     0.00  open\n",
        "# tracer: function\n#\n     bash-977   [000] 17284.993652: sys_close <-fastpath\n     \
         bash-977   [000] 17284.993653: fput <-sys_close\n",
        "Nov 25 15:00:01 host CRON[123]: (root) CMD (true)\nNov 25 15:00:02 host kernel: up\n",
        "5650a7d6d000-5650a7d6f000 r--p 00000000 08:01 131      /usr/bin/cat\n5650a7d6f000-5650 r\n",
        "note: this is prose\nand: so is this\n",
    ] {
        assert!(!recognises(text.as_bytes()), "{text}");
    }
}

#[test]
fn frames_that_nothing_separates_are_refused() {
    let flat = "    55c890b45177 main\n    55c890b45188 f\n    55c890b45177 main\n";
    let error = read(flat).unwrap_err();
    assert!(error.message.contains("3 samples or one of 3 frames"), "{error}");
    let chains = "\t    55c890b45177 f\n\t    55c890b45188 main\n\n\t    55c890b45188 main\n\n";
    assert_eq!(read(chains).unwrap().samples().len(), 2);
}

#[test]
fn lists_of_tasks_are_not_samples() {
    let tasks = "#      pid      tid     ppid  comm\n         0        0       -1 |swapper\n      \
                 2239     2239       -1 |sh\n      2241     2241     2239 | cat\n";
    assert!(!recognises(tasks.as_bytes()));
}

#[test]
fn source_lines_below_samples_of_one_line() {
    let text = "sh  7  1.000001: cpu-clock:  7f0643911d81 strtoll\n  strtol_l.c:472\n\
                sh  7  1.000002: cpu-clock:  560388ea0417 main\n  dash[15417]\n";
    let profile = read(text).unwrap();
    assert_eq!(profile.samples().len(), 2);
}

#[test]
fn times_with_few_digits_and_events_that_are_named_twice() {
    let text = "app 100/100 [000] 11371.1: 100 cpu-clock:\n\t    7b0da4f360 f_jit ([JIT app cache])\n\n\
                app 100/100 [000] 11371.2: 100 cpu-clock:\n\t    7b0da4f360 f_jit ([JIT app cache])\n\n";
    let profile = read(text).unwrap();
    assert_eq!((profile.samples().len(), profile.frames().len()), (2, 1));
    assert_eq!((profile.header.event.as_str(), profile.total()), ("cpu-clock", 200.0));
    let text = "app 7/7 [017] 7911704.926324:     offcpu-time:       1050000 offcpu-time: \n\
                \tffffffff813b3b4e schedule+0x1 ([kernel.kallsyms])\n\n";
    let profile = read(text).unwrap();
    assert_eq!((profile.samples().len(), profile.total()), (1, 1_050_000.0));
    assert_eq!(profile.header.event, "offcpu-time");
}

/// One address in a hundred of a program has no letter among its digits, and what follows it
/// then reads like the name of an event.
#[test]
fn an_address_of_digits_alone_is_no_counter() {
    let text = "app 7/7 1.5: 2000000 cpu-clock:\n\t    558123456789 alloc::drop\n\n".repeat(3);
    let profile = crate::import::read("t", &mut text.as_bytes()).unwrap();
    assert_eq!(profile.samples().iter().map(|sample| sample.count).sum::<u64>(), 3);
    assert!((crate::import::perf_stat::FORMAT.recognises)(text.as_bytes()), "it looks like one");
}
