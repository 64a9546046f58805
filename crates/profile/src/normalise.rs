//! Normalises names to those that a function has in any build, so that profiles of two kernels can
//! be compared.

use super::text::is_hexadecimal;
use super::{Frame, FrameKind};
use std::borrow::Cow;

/// Suffixes that compilers and linkers add to the name of a function, each possibly followed by a
/// number. `.isra`, `.constprop` and `.part` are GCC's clones, `.cold` is the rarely executed part
/// of a function, `.llvm` a static function that ThinLTO made global and `.lto_priv` the same by
/// GCC's LTO, `.localalias` and `.warm` are GCC's, `.cfi_jt` and `.cfi` Clang's.
const CLONES: &[&str] = &[
    "isra",
    "constprop",
    "part",
    "cold",
    "llvm",
    "lto_priv",
    "localalias",
    "warm",
    "cfi",
    "cfi_jt",
    "clone",
];

/// Returns the name of a function without what differs between two builds: an offset (`+0x1f`), the
/// kind in folded stacks (`_[k]`), a symbol version (`@@GLIBC_2.14`), the hash of a Rust crate and
/// the suffixes of clones. A name that consists only of these is left unchanged.
pub fn function(name: &str) -> &str {
    let mut rest = name.trim();
    loop {
        let shorter =
            without_kind(without_version(without_clone(without_hash(without_offset(rest)))));
        // The text before a suffix may end in a blank.
        let shorter = shorter.trim_end();
        if shorter == rest || shorter.is_empty() {
            return rest;
        }
        rest = shorter;
    }
}

/// Returns the name of a frame for comparing profiles: its function. Frames with only an address,
/// which differs in the next build, become one unresolved row per file.
pub fn of_frame(frame: &Frame) -> Cow<'_, str> {
    let name = function(&frame.function);
    if !is_address(name) {
        return Cow::Borrowed(name);
    }
    match module(&frame.module) {
        "" if frame.kind == FrameKind::Kernel => Cow::Borrowed("[kernel] unresolved"),
        "" => Cow::Borrowed("[unknown]"),
        file if file.starts_with('[') => Cow::Owned(format!("{file} unresolved")),
        file => Cow::Owned(format!("[{file}] unresolved")),
    }
}

/// Returns the name of a file without its folder: a library may be elsewhere.
pub fn module(path: &str) -> &str {
    let path = path.trim();
    // perf appends this to a file that was replaced while it ran.
    let path = path.strip_suffix(" (deleted)").unwrap_or(path);
    path.rsplit('/').next().unwrap_or(path)
}

/// Returns the name of a thread without its distinguishing numbers: `kworker/1:2` and `kworker/0:1`
/// become `kworker/*:*`, `iou-wrk-4711` becomes `iou-wrk-*`.
pub fn thread(name: &str) -> String {
    let mut short = String::with_capacity(name.len());
    let mut rest = name.trim();
    while let Some(c) = rest.chars().next() {
        let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
        if digits > 0 && short.ends_with(['/', '-', ':', 'u']) {
            short.push('*');
            rest = &rest[digits..];
        } else {
            short.push(c);
            rest = &rest[c.len_utf8()..];
        }
    }
    short
}

/// Returns whether a name is only an address, or states that it is unknown.
fn is_address(name: &str) -> bool {
    match name {
        "" | "[unknown]" | "??" | "(unknown)" => true,
        _ => match name.strip_prefix("0x").or_else(|| name.strip_prefix("0X")) {
            Some(digits) => is_hexadecimal(digits),
            // Without a prefix, only text as long as an address counts: `add` and `face` are
            // functions.
            None => {
                name.len() >= 8
                    && is_hexadecimal(name)
                    && name.contains(|c: char| c.is_ascii_digit())
            }
        },
    }
}

/// Removes `+0x1f` or `+0x1f/0x80` from the end.
fn without_offset(name: &str) -> &str {
    // Searching for one character is several times as fast as for a string.
    let Some((head, tail)) = name.rsplit_once('+') else { return name };
    let Some(tail) = tail.strip_prefix("0x") else { return name };
    let (offset, size) = tail.split_once("/0x").unwrap_or((tail, "0"));
    if is_hexadecimal(offset) && is_hexadecimal(size) { head } else { name }
}

/// Removes the `::h0123456789abcdef` that distinguishes two versions of a Rust crate in mangled
/// names.
fn without_hash(name: &str) -> &str {
    let split = name.len().checked_sub(16).and_then(|at| name.split_at_checked(at));
    let split = split.filter(|(_, hash)| is_hexadecimal(hash));
    split.and_then(|(head, _)| head.strip_suffix("::h")).unwrap_or(name)
}

/// Removes the `_[k]` that `stackcollapse-perf.pl --all` appends to a function (kernel, inlined,
/// compiled just in time, waking).
fn without_kind(name: &str) -> &str {
    ["_[k]", "_[i]", "_[j]", "_[w]"].iter().find_map(|kind| name.strip_suffix(kind)).unwrap_or(name)
}

/// Removes the version of a library's symbol.
fn without_version(name: &str) -> &str {
    match name.find('@') {
        // `@plt` is different code than the function itself.
        Some(at) if at > 0 && !name[at..].starts_with("@plt") => &name[..at],
        _ => name,
    }
}

/// Removes one `.suffix` or `.suffix.123` of [`CLONES`].
fn without_clone(name: &str) -> &str {
    let Some((head, last)) = name.rsplit_once('.') else { return name };
    if CLONES.contains(&last) {
        return head;
    }
    let number = is_hexadecimal(last);
    match head.rsplit_once('.') {
        Some((function, ending)) if number && CLONES.contains(&ending) => function,
        // One of several static functions with the same name: `poll.7`.
        _ if last.bytes().all(|b| b.is_ascii_digit()) && !last.is_empty() => head,
        _ => name,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_builds_add_goes() {
        for (name, expected) in [
            ("tcp_sendmsg", "tcp_sendmsg"),
            ("tcp_v4_rcv.isra.0", "tcp_v4_rcv"),
            ("tcp_v4_rcv.isra.0.cold", "tcp_v4_rcv"),
            ("tcp_ack.constprop.12.isra.3", "tcp_ack"),
            ("skb_put.part.0", "skb_put"),
            ("__alloc_skb.cold", "__alloc_skb"),
            ("ip_rcv.llvm.1234567890", "ip_rcv"),
            ("ip_rcv.llvm.12ab34cd", "ip_rcv"),
            ("poll.lto_priv.0", "poll"),
            ("poll.lto_priv.0.lto_priv.1", "poll"),
            ("inet_send_prepare.localalias", "inet_send_prepare"),
            ("poll.7", "poll"),
            ("schedule+0x1f", "schedule"),
            ("schedule+0x1f/0x80", "schedule"),
            ("schedule+0x1f/0x80_[k]", "schedule"),
            ("tcp_ack.isra.0_[k]", "tcp_ack"),
            ("memcpy@@GLIBC_2.14", "memcpy"),
            ("memcpy@GLIBC_2.2.5", "memcpy"),
            ("memcpy@plt", "memcpy@plt"),
            ("core::fmt::write::h0123456789abcdef", "core::fmt::write"),
            ("core::fmt::write::hash", "core::fmt::write::hash"),
            ("  USER ", "USER"),
            // Text that merely looks similar is kept.
            (".cold", ".cold"),
            ("a+0x", "a+0x"),
            ("operator+", "operator+"),
            ("core::fmt::write", "core::fmt::write"),
            ("<T as Into<U>>::into", "<T as Into<U>>::into"),
            ("v1.2.party", "v1.2.party"),
            ("@", "@"),
            ("", ""),
            ("_[k]", "_[k]"),
        ] {
            assert_eq!(function(name), expected, "{name}");
        }
    }

    #[test]
    fn addresses_become_the_file_they_are_in() {
        for (name, module, kind, expected) in [
            ("0x7f12ab", "/usr/lib/libc.so.6", FrameKind::User, "[libc.so.6] unresolved"),
            ("ffffffff81000000", "", FrameKind::Kernel, "[kernel] unresolved"),
            ("[unknown]", "[veth]", FrameKind::Kernel, "[veth] unresolved"),
            ("0x10+0x4", "", FrameKind::User, "[unknown]"),
            ("0x10", "/tmp/a.out (deleted)", FrameKind::User, "[a.out] unresolved"),
            ("deadbeef", "/bin/x", FrameKind::User, "deadbeef"),
            ("add", "/bin/x", FrameKind::User, "add"),
        ] {
            let frame =
                Frame { function: name.into(), module: module.into(), kind, ..Frame::default() };
            assert_eq!(of_frame(&frame), expected, "{name} in {module}");
        }
    }

    #[test]
    fn threads_of_a_kind_have_one_name() {
        for (name, expected) in [
            ("kworker/1:2-events", "kworker/*:*-events"),
            ("kworker/u8:3", "kworker/u*:*"),
            ("ksoftirqd/0", "ksoftirqd/*"),
            ("iou-wrk-4711", "iou-wrk-*"),
            ("napi/byte0-5", "napi/byte0-*"),
            ("swapper", "swapper"),
            ("h264", "h264"),
            ("7z", "7z"),
            ("f\u{fc}nf-5", "f\u{fc}nf-*"),
        ] {
            assert_eq!(thread(name), expected, "{name}");
        }
    }

    proptest::proptest! {
        #[test]
        fn any_name_has_a_shortest_form(name: String, ending in "(\\.[a-z0-9_]{1,5}|\\+0x[0-9a-f/x]{0,5}|_\\[k\\]|@+[A-Z]){0,3}") {
            for name in [name.clone(), ending.clone(), format!("{name}{ending}")] {
                let short = function(&name);
                proptest::prop_assert_eq!(function(short), short);
                proptest::prop_assert!(short.is_empty() == name.trim().is_empty());
                let once = thread(&name);
                proptest::prop_assert_eq!(&thread(&once), &once);
            }
        }
    }
}
