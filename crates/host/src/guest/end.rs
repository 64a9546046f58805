//! How a guest ended, derived from its console and from the end of the process that
//! ran it.

use crate::ending;
use std::process::ExitStatus;

/// Lines of the console that a fault quotes.
const QUOTED: usize = 6;

/// How a guest ended, in words: `exit` is how its qemu did, if it has, and `words`
/// the last that qemu said itself.
pub(super) fn describe(console: &str, exit: Option<ExitStatus>, words: Option<&str>) -> String {
    let how = match (panic(console), exit) {
        (Some(words), _) => format!("the guest's kernel panicked: {words}"),
        (None, Some(status)) if status.success() && words.is_none() => switched_off(console),
        (None, Some(status)) => {
            let words = words.map(|line| format!(": {line}")).unwrap_or_default();
            format!("the guest's qemu {}{words}", ending(status))
        }
        (None, None) => "the guest closed its port".to_owned(),
    };
    format!("{how}; {}", shows(console, "ended with"))
}

/// What a kernel said when it gave up, if it did (kernel/panic.c).
pub(super) fn panic(console: &str) -> Option<String> {
    console.lines().rev().find_map(|line| {
        let (_, words) = line.split_once("Kernel panic - not syncing: ")?;
        Some(words.trim().to_owned())
    })
}

/// The end of a machine that is not restarted when it wants to be. An orderly one
/// says on the console what it is about to do (kernel/reboot.c); a processor that
/// cannot continue (a triple fault) says nothing.
fn switched_off(console: &str) -> String {
    let said = |words: &str| console.contains(words);
    let how = if said("reboot: Restarting system") {
        "the guest restarted"
    } else if said("reboot: Power down") {
        "the guest powered off"
    } else {
        "the guest was reset without a message from its kernel"
    };
    how.to_owned()
}

/// What a console shows, as the end of a sentence: `its console VERB: a | b`.
pub(super) fn shows(console: &str, verb: &str) -> String {
    match quoted(console).as_str() {
        "" => "its console shows nothing".to_owned(),
        lines => format!("its console {verb}: {lines}"),
    }
}

/// The last lines of a console on one line, without what a terminal would do.
pub(super) fn quoted(console: &str) -> String {
    let clean = |line: &str| -> String {
        line.chars().filter(|c| !c.is_control()).collect::<String>().trim().to_owned()
    };
    let lines: Vec<String> = console.lines().map(clean).filter(|line| !line.is_empty()).collect();
    let first = lines.len().saturating_sub(QUOTED);
    lines.get(first..).unwrap_or_default().join(" | ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::process::ExitStatusExt;

    #[test]
    fn a_console_is_quoted_on_one_line() {
        assert_eq!(quoted(""), "");
        assert_eq!(quoted("a\r\n\n  b \u{1b}[1m\n"), "a | b [1m");
        let many: String = (0..100).map(|n| format!("line {n}\n")).collect();
        assert_eq!(quoted(&many).split(" | ").count(), QUOTED);
        assert!(quoted(&many).ends_with("line 99"));
    }

    #[test]
    fn every_end_has_its_words() {
        let clean = Some(ExitStatus::from_raw(0));
        let killed = Some(ExitStatus::from_raw(9));
        let oops =
            "Oops: 0002\n[  1.5] Kernel panic - not syncing: Fatal exception \n[ 1.6] Rebooting";
        let refused = "qemu: no such device";
        let terminated = "qemu: terminating on signal 15 from pid 1";
        for (console, exit, words, expected) in [
            (oops, clean, None, "the guest's kernel panicked: Fatal exception; its console ended"),
            ("[1] reboot: Restarting system\n", clean, None, "the guest restarted; its console"),
            ("[1] reboot: Power down", clean, None, "the guest powered off; its"),
            ("booting", clean, None, "the guest was reset without a message from its kernel; its"),
            ("", killed, None, "the guest's qemu killed by signal 9 (SIGKILL); its console shows"),
            ("", Some(ExitStatus::from_raw(256)), Some(refused), "exited with code 1: qemu: no"),
            ("", clean, Some(terminated), "exited with code 0: qemu: terminating on signal 15"),
            ("", None, None, "the guest closed its port; its console shows nothing"),
        ] {
            let text = describe(console, exit, words);
            assert!(text.contains(expected), "{text}");
        }
        assert!(describe(oops, None, None).ends_with("| [ 1.6] Rebooting"));
    }
}
