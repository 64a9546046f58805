//! The files of a study's folder: their names, records that are used only in them, and the faults
//! of reading and writing them.

use bytepath_record::{
    CellId, CopyCeiling, Facts, Fault, KernelHosts, Load, RestorationRow, Role, SettingRecord,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::io;
use std::path::Path;

pub(super) const EXPERIMENT: &str = "experiment.toml";
pub(super) const HOSTS: &str = "hosts.json";
pub(super) const AFTER: &str = "hosts-after.json";
pub(super) const LOADS: &str = "loads.json";
pub(super) const TRIALS: &str = "trials.jsonl";
pub(super) const REMARKS: &str = "remarks.txt";
pub(super) const PROFILES: &str = "profiles";

/// The most bytes read of any file but `trials.jsonl`.
pub(super) const MOST: u64 = 64 << 20;

/// The most bytes of `trials.jsonl`, and of one of its lines, for readers and writers.
pub(super) const MOST_TRIALS: u64 = 1 << 30;
pub(super) const LONGEST_LINE: u64 = 16 << 20;

/// Largest profile that a study takes, bytes.
pub(crate) const LARGEST_PROFILE: u64 = 1 << 30;

/// `hosts.json`: what the hosts are.
#[derive(Serialize, Deserialize, JsonSchema)]
pub struct Hosts {
    /// Version of this record.
    pub schema: u32,
    /// Facts of the sender's and of the receiver's host.
    pub facts: Vec<Facts>,
    /// The same for every kernel that cells name.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub kernels: Vec<KernelHosts>,
    /// Memory-copy bandwidth of one core, measured at the start.
    pub ceiling: Option<CopyCeiling>,
    /// Settings of the host that were made for the study, from what to what.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub settings: Vec<SettingRecord>,
    /// What the controller's host was set to when the first trial began.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub fingerprint: BTreeMap<String, String>,
}

/// `loads.json`: rates that are a part of the peak, as they were found before the first block.
#[derive(Serialize, Deserialize, JsonSchema)]
pub struct Loads {
    /// Version of this record.
    pub schema: u32,
    pub loads: Vec<Load>,
}

/// `hosts-after.json`: what the hosts were when the run ended, however it ended.
#[derive(Serialize, Deserialize, JsonSchema)]
pub struct HostsAfter {
    /// Version of this record.
    pub schema: u32,
    /// What the controller's host was set to after the last trial, before the
    /// study's own settings were restored.
    pub fingerprint: BTreeMap<String, String>,
    /// The outcome of the study's own settings, the last one first.
    pub settings: Vec<RestorationRow>,
}

/// The hosts that a log may cover: both, or one role's.
pub(super) const LOGS: [Option<Role>; 3] = [None, Some(Role::Sender), Some(Role::Receiver)];

/// The file of the readings of such a log.
pub(super) fn power_file(role: Option<Role>) -> String {
    role.map_or_else(|| "power.json".to_owned(), |role| format!("power-{role}.json"))
}

/// Returns the fault of a file or folder of a study or fleet that could not be accessed.
pub fn storage(verb: &str, path: &Path, error: &io::Error) -> Fault {
    let fault = Fault::storage(format!("cannot {verb} {}: {error}", path.display()));
    match error.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded | io::ErrorKind::FileTooLarge => {
            fault.remedy("free some space; the trials before this one are kept")
        }
        io::ErrorKind::PermissionDenied if verb != "read" => {
            fault.remedy("choose another folder (that of a study: --study DIR)")
        }
        _ => fault,
    }
}

/// Longest stem of a file's name, bytes: with number and extension it must stay below the 255 that
/// file systems allow.
const LONGEST_STEM: usize = 180;

/// Returns `CELL-N.pb.gz`, with the cell's ID encoded so that no two are the same and none leads
/// out of its folder: a blank becomes `_`, anything else unusual `%` and its code.
pub(crate) fn profile_file(cell: &CellId, number: u32) -> String {
    let mut stem = String::new();
    for (at, byte) in cell.0.bytes().enumerate() {
        match byte {
            b' ' => stem.push('_'),
            b'.' if at > 0 => stem.push('.'),
            b'+' | b'-' | b'=' | b',' => stem.push(char::from(byte)),
            _ if byte.is_ascii_alphanumeric() => stem.push(char::from(byte)),
            _ => stem.push_str(&format!("%{byte:02X}")),
        }
    }
    if stem.len() > LONGEST_STEM {
        stem.truncate(LONGEST_STEM - 17);
        stem.push_str(&format!("-{:016x}", fnv(cell.0.as_bytes())));
    }
    format!("{stem}-{number}.pb.gz")
}

/// FNV-1a: the same on every machine and in every version.
fn fnv(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cells_have_distinct_file_names() {
        let name = |cell: &str| profile_file(&CellId(cell.into()), 3);
        assert_eq!(name("uring:depth=8+uring mtu=9000"), "uring%3Adepth=8+uring_mtu=9000-3.pb.gz");
        assert_eq!(name("../../etc"), "%2E.%2F..%2Fetc-3.pb.gz");
        assert_ne!(name("a b"), name("a_b"));
        let long = |last: char| name(&format!("{}{last}", "x/".repeat(400)));
        assert!(long('a').len() < 255 && long('a') != long('b'));
        assert!(name("é\n").is_ascii());
    }
}
