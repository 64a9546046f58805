//! Parses a kernel: `[NAME=]SOURCE [COMMAND LINE]`.

use super::options::usage;
use bytepath_record::{Fault, Kernel};

/// Longest addition to the command line; x86 supports 2048 bytes in total (`COMMAND_LINE_SIZE`).
const LONGEST_CMDLINE: usize = 1024;

/// Parses a kernel. `patched=./bzImage mitigations=off` is the image `./bzImage`, named "patched",
/// with `mitigations=off` on its command line. Without a name it is named after the last part of
/// its source.
pub fn parse_kernel(text: &str) -> Result<Kernel, Fault> {
    let text = text.trim();
    let example = "write NAME=SOURCE: stock=/boot/vmlinuz-6.1.0, new=debian:newest, \
                   fast=./bzImage mitigations=off";
    if text.is_empty() || text.chars().any(char::is_control) {
        return Err(usage(format!("'{text}' names no kernel")).remedy(example));
    }
    let (first, cmdline) = text.split_once(' ').unwrap_or((text, ""));
    let (name, source) = match first.split_once('=') {
        // A path may contain the equals sign; a name contains no slash.
        Some((name, source)) if !name.contains('/') => (Some(name), source),
        _ => (None, first),
    };
    let cmdline = cmdline.trim();
    if source.is_empty() {
        return Err(usage(format!("kernel '{text}' has no source")).remedy(example));
    }
    if cmdline.len() > LONGEST_CMDLINE || !cmdline.is_ascii() {
        let wrong = format!("a command line is plain ASCII of at most {LONGEST_CMDLINE} bytes");
        return Err(usage(wrong).remedy(example));
    }
    let name = match name {
        Some(name) => name,
        None if !cmdline.is_empty() => {
            return Err(usage(format!("kernel '{text}' has a command line and no name"))
                .remedy(format!("write NAME={text}")));
        }
        None => called(source),
    };
    let fine = |c: char| c.is_ascii_alphanumeric() || "._+~-".contains(c);
    if name.is_empty() || name.len() > 64 || !name.chars().all(fine) {
        let wrong = format!("'{name}' is not a valid kernel name (letters, digits and ._+~-)");
        return Err(usage(wrong).remedy(example));
    }
    Ok(Kernel { cmdline: cmdline.to_owned(), ..Kernel::named(name, source) })
}

/// Names a kernel by its source: `/boot/vmlinuz-6.1.0` is `6.1.0`, `debian:newest` is `newest`.
fn called(source: &str) -> &str {
    let last = source.rsplit(['/', ':']).next().unwrap_or(source);
    let last = last.strip_suffix(".deb").unwrap_or(last);
    last.strip_prefix("vmlinuz-").unwrap_or(last)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn name_source_and_command_line_are_distinguished() {
        let read = |text: &str| {
            let kernel = parse_kernel(text).unwrap();
            [kernel.name, kernel.source, kernel.cmdline]
        };
        assert_eq!(read("stock=/boot/vmlinuz-6.1"), ["stock", "/boot/vmlinuz-6.1", ""]);
        assert_eq!(read("/boot/vmlinuz-6.1"), ["6.1", "/boot/vmlinuz-6.1", ""]);
        assert_eq!(read("debian:newest"), ["newest", "debian:newest", ""]);
        assert_eq!(read("/srv/a=b/bzImage"), ["bzImage", "/srv/a=b/bzImage", ""]);
        assert_eq!(
            read(" off=debian:6.1  mitigations=off quiet "),
            ["off", "debian:6.1", "mitigations=off quiet"]
        );
    }

    #[test]
    fn what_names_no_kernel_is_explained() {
        let wrong = |text: &str| parse_kernel(text).unwrap_err().to_string();
        assert!(wrong("").contains("names no kernel"));
        assert!(wrong("stock=").contains("has no source"));
        assert!(wrong("debian:newest quiet").contains("write NAME=debian:newest quiet"));
        assert!(wrong("a b=./x").contains("no name"));
        assert!(wrong("st&ck=./x").contains("'st&ck' is not a valid kernel name"));
        assert!(wrong("a=./x \u{e9}").contains("plain ASCII"));
        assert!(wrong(&format!("a=./x {}", "y".repeat(2000))).contains("at most 1024"));
        assert!(wrong("a=b\nc").contains("names no kernel"));
    }
}
