use super::*;
use crate::Owner;

fn read(text: &str) -> Result<Profile, Fault> {
    super::read("t", Times::Kept, &mut text.as_bytes())
}

/// Stacks as folded text, outermost first, with their modules.
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
