//! Output of `readprofile`: ticks by function without call stacks, as readprofile(8) prints them
//! (`ticks symbol load`, with `-v` preceded by an address), and in the form `symbol [address]:
//! ticks` in which such lists were circulated:
//!
//! ```text
//! ffffffff8106e4e0 default_idle        2301   12.5163
//! tcp_sendmsg [c02a1b40]: 1204
//! ```

use super::format::{Importer, Times};
use super::lines::{Lines, first_lines};
use super::number::whole;
use crate::text::{is_hexadecimal, quote};
use crate::{Builder, Frame, FrameKind, Header, Profile, Sample, Thread};
use bytepath_record::Fault;
use std::io::BufRead;

/// Matching lines that a file needs to be recognised.
const TELLING: usize = 8;

/// See the module documentation.
pub(super) static FORMAT: Importer = Importer {
    name: "readprofile",
    summary: "ticks by function: `symbol [address]: ticks`, or what readprofile(8) prints",
    certain: false,
    recognises,
    read,
};

fn recognises(head: &[u8]) -> bool {
    let lines = first_lines(head).map(String::from_utf8_lossy);
    let mut lines = lines.filter(|line| !is_blank(line)).take(TELLING).peekable();
    lines.peek().is_some() && lines.all(|line| entry(&line).is_some())
}

fn read(title: &str, _: Times, input: &mut dyn BufRead) -> Result<Profile, Fault> {
    let mut builder = Builder::new(Header { title: title.to_owned(), ..Header::default() });
    let mut lines = Lines::new(title, input);
    let mut line = Vec::new();
    let (mut total, mut is_empty) = (0u64, true);
    while lines.next(&mut line)? {
        let text = String::from_utf8_lossy(&line);
        if is_blank(&text) {
            continue;
        }
        let entry = entry(&text).ok_or_else(|| {
            lines
                .fault(format!("{} is not a function and its ticks", quote(&line)))
                .remedy("lines are `symbol [address]: ticks`, or what readprofile prints")
        })?;
        if entry.is_total() {
            continue;
        }
        add(&mut builder, &mut total, entry.symbol, entry.ticks).map_err(|e| lines.fault(e))?;
        is_empty = false;
    }
    match is_empty {
        true => Err(lines.whole("holds no line of a function and its ticks")),
        false => Ok(builder.build()),
    }
}

/// Adds the ticks of a function, also to `total`; errors if that overflows.
pub(super) fn add(
    builder: &mut Builder,
    total: &mut u64,
    symbol: &str,
    ticks: u64,
) -> Result<(), &'static str> {
    *total = total.checked_add(ticks).ok_or("more ticks than can be counted")?;
    let (frame, thread) = (builder.frame(frame(symbol)), builder.thread(Thread::default()));
    let stack = builder.stack(&[frame]);
    let (count, weight) = (ticks, ticks as f64);
    builder.add(Sample { stack, thread, count, weight, ..Sample::default() });
    Ok(())
}

/// Parses `symbol [address]: ticks`, which prose does not look like.
pub(super) fn addressed(line: &str) -> Option<Entry<'_>> {
    listed(line).filter(|entry| line.contains('[') && !entry.symbol.contains('['))
}

#[derive(Debug, PartialEq, Eq)]
pub(super) struct Entry<'a> {
    pub(super) symbol: &'a str,
    pub(super) ticks: u64,
    /// Whether it has the form of readprofile(8).
    own: bool,
}

impl Entry<'_> {
    /// Returns whether this is the sum in the last line of readprofile(8).
    fn is_total(&self) -> bool {
        self.own && self.symbol == "total"
    }
}

fn is_blank(line: &str) -> bool {
    let line = line.trim();
    line.is_empty() || line.starts_with('#')
}

fn entry(line: &str) -> Option<Entry<'_>> {
    let line = line.trim();
    listed(line).or_else(|| printed(line))
}

/// Parses `symbol [address]: ticks` or `symbol: ticks`.
fn listed(line: &str) -> Option<Entry<'_>> {
    let (name, ticks) = line.rsplit_once(':')?;
    let ticks = whole(ticks.trim())?;
    let name = name.trim_end();
    let symbol = match name.strip_suffix(']').and_then(|name| name.rsplit_once('[')) {
        Some((symbol, address)) if is_hex(address) => symbol.trim_end(),
        _ => name,
    };
    is_symbol(symbol).then_some(Entry { symbol, ticks, own: false })
}

/// Parses `ticks symbol load` or `address symbol ticks load`.
fn printed(line: &str) -> Option<Entry<'_>> {
    let mut words: Vec<&str> = line.split_ascii_whitespace().take(5).collect();
    if words.len() == 4 && is_hex(words.first()?) && is_symbol(words.get(1)?) {
        words.remove(0);
        words.swap(0, 1);
    }
    let [ticks, symbol, load] = words.as_slice() else { return None };
    let number = |c: char| c.is_ascii_digit() || ".,".contains(c);
    let fine = load.contains(|c: char| c.is_ascii_digit()) && load.chars().all(number);
    let entry = Entry { symbol, ticks: whole(ticks.trim())?, own: true };
    (fine && is_symbol(symbol)).then_some(entry)
}

fn is_hex(text: &str) -> bool {
    let digits = text.strip_prefix("0x").unwrap_or(text);
    digits.len() <= 16 && is_hexadecimal(digits)
}

/// Returns whether this can be the name of a function: one word with a suitable first character.
fn is_symbol(text: &str) -> bool {
    let first = text.chars().next();
    first.is_some_and(|c| c.is_alphabetic() || "_.*$<".contains(c))
        && !text.contains(|c: char| c.is_whitespace() || c == ';' || c.is_control())
}

/// Returns the frame of a kernel function. readprofile sees no others, except for one line in which
/// some kernels counted everything outside of the kernel.
fn frame(symbol: &str) -> Frame {
    let (kind, module) = match symbol {
        "USER" => (FrameKind::User, ""),
        _ => (FrameKind::Kernel, "[kernel]"),
    };
    Frame { function: symbol.to_owned(), module: module.to_owned(), kind, ..Frame::default() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &[u8]) -> Result<Profile, Fault> {
        super::read("list", Times::Kept, &mut &text[..])
    }

    fn ticks(profile: &Profile) -> Vec<(String, u64)> {
        let name = |s: &Sample| profile.frame(profile.stack(s.stack)[0]).function.clone();
        profile.samples().iter().map(|s| (name(s), s.count)).collect()
    }

    #[test]
    fn every_form_of_a_line() {
        for (line, symbol, count) in [
            ("poll_idle [c0105280]: 72241", "poll_idle", 72241),
            ("poll_idle [0xffffffff81000000]:\t72241\r", "poll_idle", 72241),
            ("poll_idle: 72241", "poll_idle", 72241),
            ("poll_idle [c0105280]: 72,241", "poll_idle", 72241),
            ("poll_idle [c0105280]: 1.072.241", "poll_idle", 1_072_241),
            ("  1234 default_idle                     25.7083", "default_idle", 1234),
            ("  1,234 default_idle                     25,7083", "default_idle", 1234),
            ("c0105280 default_idle    1234  25.7083", "default_idle", 1234),
            ("     3 *unknown*", "", 0),
            ("     3 *unknown*  0.0000", "*unknown*", 3),
        ] {
            let found = entry(line).map(|e| (e.symbol.to_owned(), e.ticks));
            let expected = (!symbol.is_empty()).then(|| (symbol.to_owned(), count));
            assert_eq!(found, expected, "{line}");
        }
    }

    #[test]
    fn lines_add_up_and_the_sum_is_not_a_function() {
        let text = b"# two\n\n 7 schedule 0.5\n 3 schedule 0.5\n 4 total 0.1\n";
        let profile = read(text).unwrap();
        assert_eq!(ticks(&profile), [("schedule".to_owned(), 10)]);
        assert_eq!(profile.total(), 10.0);
        // In the other form this may be a function's name.
        assert_eq!(ticks(&read(b"total: 4\n").unwrap()), [("total".to_owned(), 4)]);
    }

    #[test]
    fn garbage_is_refused_by_line() {
        for (text, line) in [
            (&b"a: 1\nb: two\n"[..], 2),
            (b"a: 1\n\n: 3\n", 3),
            (b"a: -1\n", 1),
            (b"a: 12,34\n", 1),
            (b"a: 1,234.567\n", 1),
            (b"a;b: 12\n", 1),
            (b"a: 99999999999999999999\n", 1),
            (b"a: 18446744073709551615\nb: 1\n", 2),
            (b"\xff\xfe\x00", 1),
            (b"\x1b[2Ja b c d\n", 1),
        ] {
            let fault = read(text).unwrap_err();
            assert!(fault.message.starts_with(&format!("list, line {line}: ")), "{fault}");
            assert!(!fault.message.contains('\x1b'), "{fault}");
        }
        let long = vec![b'a'; 1 << 20];
        assert!(read(&long).unwrap_err().message.len() < 200);
    }

    #[test]
    fn it_knows_its_own() {
        assert!(recognises(b"poll_idle [c0105280]: 72241\nschedule [c01]: 9\n"));
        assert!(recognises(b"  1234 default_idle   25.7083\n"));
        for other in [
            &b""[..],
            b"\n\n",
            b"main;f;g 12\n",
            b"swapper     0 [000] 12.5: 1 cycles:\n\tffff poll_idle ([kernel])\n",
            b"# Samples: 4\n    12.50%  iperf3  [kernel]  [k] memcpy\n",
            b"PERFILE2",
            b"\x1f\x8b\x08",
            b"a: 1\nfree text\n",
        ] {
            assert!(!recognises(other), "{:?}", String::from_utf8_lossy(other));
        }
    }

    proptest::proptest! {
        #[test]
        fn any_bytes_are_a_profile_or_a_fault(bytes: Vec<u8>, lines in "([a-z:\\[\\] 0-9.,]{0,12}\n){0,6}") {
            for input in [&bytes[..], lines.as_bytes()] {
                let _ = recognises(input);
                match read(input) {
                    Ok(profile) => proptest::prop_assert!(profile.total() >= 0.0),
                    Err(fault) => proptest::prop_assert!(fault.message.contains("line ")),
                }
            }
        }

        #[test]
        fn what_is_listed_is_read(ticks in proptest::collection::vec(0u64..1 << 50, 1..20)) {
            let line = |(i, n): (usize, &u64)| format!("f{i} [c0{i:06x}]: {n}\n");
            let text: String = ticks.iter().enumerate().map(line).collect();
            proptest::prop_assert!(recognises(text.as_bytes()));
            let profile = read(text.as_bytes()).unwrap();
            let counts: Vec<u64> = profile.samples().iter().map(|s| s.count).collect();
            proptest::prop_assert_eq!(counts, ticks);
        }
    }
}
