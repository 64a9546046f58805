//! Root qdiscs as texts, and whether one can be restored from its text.

use bytepath_sys::netlink::Netlink;
use bytepath_sys::qdisc::{Qdisc, ROOT};
use std::io;

/// Returns a link's root qdisc as `fq_codel handle=8001: options=...`, or `none` without one.
pub(super) fn root_text(netlink: &mut Netlink, index: u32) -> io::Result<String> {
    let all = netlink.qdiscs(index)?;
    let root = all.iter().find(|qdisc| qdisc.parent == ROOT);
    Ok(root.map_or("none".into(), |root| qdisc_text(root, &all)))
}

/// Qdiscs without classes, filters or state worth keeping: recreating them with the options that
/// they reported restores them.
const CLASSLESS: &[&str] =
    &["pfifo", "bfifo", "pfifo_fast", "noqueue", "fq", "fq_codel", "codel", "sfq", "fq_pie", "pie"];

/// Formats a qdisc as `fq_codel handle=8001: options=...`; handle 0 is the kernel's own.
pub(super) fn qdisc_text(root: &Qdisc, all: &[Qdisc]) -> String {
    let hex: String = root.options.iter().map(|byte| format!("{byte:02x}")).collect();
    let mut text = format!("{} handle={:x}:", root.kind, root.handle >> 16);
    if all.iter().any(|qdisc| qdisc.parent != ROOT && qdisc.handle != 0) {
        text.push_str(" with-children");
    }
    if !hex.is_empty() {
        text.push_str(&format!(" options={hex}"));
    }
    text
}

/// True if the kernel itself chose this qdisc.
pub(super) fn is_kernels_own(root: &str) -> bool {
    root.split(' ').any(|word| word == "handle=0:")
}

/// Returns why a qdisc could not be restored, or `None` if it could.
pub(super) fn irreplaceable(root: &str) -> Option<String> {
    let kind = root.split(' ').next().unwrap_or_default();
    if kind == "none" {
        return Some("the device is down, and gets its queueing discipline when it is up".into());
    }
    if root.split(' ').any(|word| word == "with-children") {
        return Some(format!("{kind} has child disciplines that could not be restored"));
    }
    (!is_kernels_own(root) && !CLASSLESS.contains(&kind))
        .then(|| format!("{kind} was set up there by someone else and could not be restored"))
}

/// True if two qdiscs differ at most in the handle and one of them is the kernel's own (handle 0).
/// If the kernel's default has changed since, its former choice can only be restored by name.
pub(super) fn defaults(a: &str, b: &str) -> bool {
    let rest = |text: &str| -> Vec<String> {
        text.split(' ').filter(|word| !word.starts_with("handle=")).map(str::to_owned).collect()
    };
    a.contains(' ')
        && b.contains(' ')
        && (is_kernels_own(a) || is_kernels_own(b))
        && rest(a) == rest(b)
}

pub(super) fn set_root(netlink: &mut Netlink, index: u32, text: &str) -> io::Result<()> {
    let kind = text.split(' ').next().unwrap_or_default();
    let word = |name: &str| text.split(' ').find_map(|word| word.strip_prefix(name));
    let Some(handle) = word("handle=") else {
        return netlink.replace_root_qdisc(index, kind, 0, &[]);
    };
    let handle = u32::from_str_radix(handle.trim_end_matches(':'), 16).unwrap_or(0) << 16;
    let options = unhex(word("options=").unwrap_or_default());
    if handle == 0 {
        // The kernel puts its own qdisc back by itself; check that it is the same.
        let _ = netlink.delete_root_qdisc(index);
        let all = netlink.qdiscs(index)?;
        let root = all.iter().find(|qdisc| qdisc.parent == ROOT);
        if root.is_some_and(|root| root.kind == kind && root.options == options) {
            return Ok(());
        }
    }
    netlink.replace_root_qdisc(index, kind, handle, &options)
}

fn unhex(text: &str) -> Vec<u8> {
    let digits: Vec<u32> = text.chars().filter_map(|c| c.to_digit(16)).collect();
    digits.chunks_exact(2).map(|pair| (pair[0] << 4 | pair[1]) as u8).collect()
}
