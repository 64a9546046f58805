//! Folded stacks: `thread;outermost;...;leaf weight`, in the form of `stackcollapse-perf.pl
//! --kernel --inline`. A comment before them states what weights count, unless they are samples: `#
//! weight=nanoseconds period=1000000 event=cpu-clock`.

use super::Exporter;
use crate::{Frame, FrameKind, Header, Profile, StackId, ThreadId, Weight};
use std::collections::HashMap;
use std::io::{self, Write};

/// See the module documentation.
pub(super) static FORMAT: Exporter = Exporter {
    name: "folded",
    summary: "one stack a line with its weight, for flamegraph.pl, inferno, grep",
    extension: "folded",
    write,
    binary: false,
};

fn write(profile: &Profile, out: &mut dyn Write) -> io::Result<()> {
    let Header { weight, period, event, .. } = &profile.header;
    if *weight != Weight::Samples {
        let period = period.map_or(String::new(), |period| format!(" period={period}"));
        // One word, so that no reader mistakes its end for a weight.
        let event = event.replace(|c: char| c.is_whitespace() || c.is_control(), "_");
        writeln!(out, "# weight={weight}{period} event={event}")?;
    }
    for (stack, weight) in fold(profile) {
        // A whole number then has no point, any other all of its digits.
        writeln!(out, "{stack} {weight}")?;
    }
    Ok(())
}

/// Returns every stack with its weight, sorted by text; equal ones are merged.
pub(crate) fn fold(profile: &Profile) -> Vec<(String, f64)> {
    let names: Vec<String> = profile.frames().iter().map(name).collect();
    let mut weights: HashMap<(ThreadId, StackId), f64> = HashMap::new();
    for sample in profile.samples() {
        *weights.entry((sample.thread, sample.stack)).or_default() += sample.weight;
    }
    let mut lines: Vec<(String, f64)> = weights
        .into_iter()
        .map(|((thread, stack), weight)| {
            let mut line = clean(&profile.thread(thread).name);
            if line.is_empty() {
                line.push_str("[unknown]");
            }
            for frame in profile.stack(stack).iter().rev() {
                line.push(';');
                line.push_str(names.get(frame.0 as usize).map_or("", String::as_str));
            }
            (unmistakable(line), weight)
        })
        .collect();
    lines.sort_by(|a, b| a.0.cmp(&b.0).then(a.1.total_cmp(&b.1)));
    // Threads with the same name become one.
    lines.dedup_by(|later, earlier| {
        let same = later.0 == earlier.0;
        if same {
            earlier.1 += later.1;
        }
        same
    });
    lines
}

/// Returns a function's name with the mark of its kind.
fn name(frame: &Frame) -> String {
    let mut name = clean(&frame.function);
    if name.is_empty() {
        name.push_str("[unknown]");
    }
    match (frame.inlined, frame.kind) {
        (true, _) => name.push_str("_[i]"),
        (false, FrameKind::Kernel) => name.push_str("_[k]"),
        _ => {}
    }
    name
}

/// Replaces characters that have a meaning in the format or are not text.
fn clean(name: &str) -> String {
    let text = name.replace(';', ":").replace(char::is_control, " ");
    // Trim last: a control character may have been at the edge.
    text.trim().to_owned()
}

/// Changes a stack that readers would misread: as a comment (`# ...`), or with its last word as a
/// weight (from two numbers at the end, flamegraph.pl and inferno draw a difference).
fn unmistakable(mut stack: String) -> String {
    if stack.starts_with('#') {
        stack.insert(0, '_');
    }
    if let Some(at) = stack.rfind(' ') {
        let tail = stack.get(at + 1..).unwrap_or_default();
        if tail.chars().all(|c| c.is_ascii_digit() || c == '.') {
            stack.replace_range(at..=at, "_");
        }
    }
    stack
}

#[cfg(test)]
mod tests {
    use super::{clean, unmistakable};

    #[test]
    fn stacks_are_neither_comments_nor_differences() {
        for (stack, safe) in [
            ("# a;b", "_# a;b"),
            ("net rx 0", "net rx_0"),
            ("net rx 0;f", "net rx 0;f"),
            ("a;f 1.5", "a;f_1.5"),
            ("a", "a"),
        ] {
            assert_eq!(unmistakable(stack.into()), safe);
        }
        assert_eq!(clean("\u{2}# a;b\n"), "# a:b");
    }
}
