//! Predicts, before a study runs, how many huge pages will be free once its settings and its cells'
//! are made, and whether they suffice for both ends. Pure.

use super::nics::halves;
use super::preflight::{OtherDevice, facts_over};
use bytepath_engine::path::{self, DataPath, PagesTaken};
use bytepath_record::{
    Cell, Facts, Fault, NumaNode, Role, Setting, SettingRecord, free_huge_pages, huge_pages,
};
use bytepath_sys::attribute;
use bytepath_sys::memory::HUGE_PAGE;

/// Enters the huge pages of a role's host that will be free once the settings of a study are made.
pub(super) fn reserve(role: Role, facts: &mut Facts, settings: &[SettingRecord]) {
    let made = settings.iter().filter(|record| record.skipped.is_none());
    for record in made.filter(|record| record.host.is_none_or(|host| host == role)) {
        enter(facts, &record.setting);
    }
}

/// Errors if huge pages are missing of those that a cell takes at both ends, over the first device
/// of each and the `others` that its flows cross.
pub(super) fn missing(
    paths: &[&'static DataPath],
    cell: &Cell,
    first: &[Facts],
    others: &[OtherDevice],
) -> Option<Fault> {
    let mut taken = Vec::new();
    for (role, of_host) in Role::ALL.into_iter().zip(first) {
        let halves = halves(paths, cell, role).ok()?;
        for adapter in 0..cell.link.adapters {
            let facts = facts_over(role, adapter, others).unwrap_or(of_host);
            let pages = halves.iter().map(|(half, job)| (half.huge_pages)(job, facts, adapter));
            taken.extend(pages.map(|pages| PagesTaken { role, facts, pages }));
        }
    }
    path::check_huge_pages(&taken).refusal()
}

/// Enters the huge pages that will be free once a setting of a host is made, if it reserves any.
pub(super) fn enter(facts: &mut Facts, setting: &Setting) {
    match setting {
        Setting::HugePages { size, node, count } if *size == HUGE_PAGE as u64 => {
            let node = match node {
                // A machine with one node has no counts per node, and its devices report no node.
                Some(NumaNode::Of(_)) if nodes_with_pages(facts).is_empty() => None,
                Some(NumaNode::Of(device)) => match facts.number(&format!("nic.{device}.node")) {
                    None => return,
                    node => node,
                },
                Some(NumaNode::Number(node)) => Some(*node),
                None => None,
            };
            free_pages(facts, node, *count);
        }
        Setting::Sysctl { name, value } if name.as_str() == "vm.nr_hugepages" => {
            if let Ok(count) = value.parse() {
                free_pages(facts, None, count);
            }
        }
        _ => {}
    }
}

/// Enters how many huge pages will be free once a node, or the machine (`None`), has `count` of
/// them.
fn free_pages(facts: &mut Facts, node: Option<u32>, count: u64) {
    // A machine with one node has only the machine's counts.
    let node = node.filter(|node| facts.setting(&free_huge_pages(Some(*node))).is_some());
    let Some(before) = facts.number::<u64>(&huge_pages(node)) else { return };
    let (new, gone) = (count.saturating_sub(before), before.saturating_sub(count));
    // A node's pages are part of the machine's, which the kernel allocates and frees on the nodes
    // in turn (mm/hugetlb.c, `set_max_huge_pages`); which node comes first is unknown.
    let mut changes = vec![(None, new, gone)];
    match node {
        Some(_) => changes.push((node, new, gone)),
        None => {
            let nodes = nodes_with_pages(facts);
            let parts = nodes.len().max(1) as u64;
            let part = |node| (Some(node), new / parts, gone.div_ceil(parts));
            changes.extend(nodes.into_iter().map(part));
        }
    }
    for name in [huge_pages, free_huge_pages] {
        let mut most = u64::MAX;
        for (place, new, gone) in &changes {
            let Some(now) = facts.number::<u64>(&name(*place)) else { continue };
            let then = now.saturating_add(*new).saturating_sub(*gone).min(most);
            facts.settings.insert(name(*place), then.to_string());
            most = if place.is_none() { then } else { most };
        }
    }
}

/// Returns the NUMA nodes of a host that report their huge pages and have memory.
fn nodes_with_pages(facts: &Facts) -> Vec<u32> {
    let memory = facts.setting("numa.memory").map(attribute::list);
    let has_memory = |node: &u32| memory.as_ref().is_none_or(|nodes| nodes.contains(node));
    let all = facts.settings.keys().filter_map(|name| name.strip_prefix("numa.node"));
    let all = all.filter_map(|name| name.strip_suffix(".hugepages.2M.free")?.parse().ok());
    all.filter(has_memory).collect()
}

#[cfg(test)]
mod tests {
    use super::super::preflight::survey_devices;
    use super::super::preflight::tests::cell_of;
    use super::*;
    use bytepath_record::{LINK_NODE, WantedSetting};
    use bytepath_sys::Roots;
    use std::path::Path;

    #[test]
    fn pages_that_a_setting_will_reserve_are_free() {
        let mut facts = Facts::default();
        free_pages(&mut facts, None, 128);
        assert_eq!(facts.setting(&free_huge_pages(None)), None, "a host that shows none");
        facts.settings.insert(huge_pages(None), "20".into());
        facts.settings.insert(free_huge_pages(None), "5".into());
        free_pages(&mut facts, None, 128);
        assert_eq!(facts.number(&free_huge_pages(None)), Some(113), "15 are taken");
        let mut of_one_node = facts.clone();
        free_pages(&mut of_one_node, Some(0), 28);
        assert_eq!(of_one_node.number(&free_huge_pages(None)), Some(13), "its node is the machine");
        for (node, all, free) in [(0, "118", "105"), (1, "10", "8")] {
            facts.settings.insert(huge_pages(Some(node)), all.into());
            facts.settings.insert(free_huge_pages(Some(node)), free.into());
        }
        let record = |line: &str, skipped: Option<&str>| {
            let wanted = WantedSetting::from(line.parse::<Setting>().unwrap());
            SettingRecord { skipped: skipped.map(str::to_owned), ..SettingRecord::from(&wanted) }
        };
        let surveyed = |records: &[SettingRecord]| {
            let mut facts = facts.clone();
            reserve(Role::Sender, &mut facts, records);
            [None, Some(1)].map(|node| facts.number::<u64>(&free_huge_pages(node)).unwrap())
        };
        let of_node = record("hugepages 2M node=1 256", None);
        assert_eq!(surveyed(&[of_node]), [359, 254], "two of it are taken, and the rest is new");
        let of_machine = record("hugepages 2M 192", None);
        assert_eq!(surveyed(&[of_machine]), [177, 40], "half of those that are new");
        let fewer = record("hugepages 2M 64", None);
        assert_eq!(surveyed(&[fewer]), [49, 0], "each loses some in turn");
        let without = record("hugepages 2M node=eth1 256", Some("eth1 reports no NUMA node"));
        assert_eq!(surveyed(&[without]), [113, 8]);
    }

    /// Writes a file below a made-up `/sys`.
    fn write(root: &Path, file: &str, text: &str) {
        let file = root.join("sys").join(file);
        std::fs::create_dir_all(file.parent().unwrap()).unwrap();
        std::fs::write(file, text).unwrap();
    }

    /// Facts of a machine from a made-up `/sys`: two NUMA nodes with these numbers of huge pages,
    /// all free, and these NICs on these nodes.
    fn recorded(pages: [u64; 2], nics: &[(&str, u32)]) -> Facts {
        let dir = tempfile::tempdir().unwrap();
        let write = |file: String, text: String| write(dir.path(), &file, &text);
        let reserve = |folder: &str, count: u64| {
            for name in ["nr_hugepages", "free_hugepages"] {
                write(format!("{folder}/hugepages-2048kB/{name}"), format!("{count}\n"));
            }
        };
        for nodes in ["online", "has_memory"] {
            write(format!("devices/system/node/{nodes}"), "0-1\n".into());
        }
        reserve("kernel/mm/hugepages", pages.iter().sum());
        for (node, count) in pages.into_iter().enumerate() {
            write(format!("devices/system/node/node{node}/cpulist"), format!("{node}\n"));
            reserve(&format!("devices/system/node/node{node}/hugepages"), count);
        }
        for (nic, node) in nics {
            write(format!("class/net/{nic}/device/numa_node"), format!("{node}\n"));
        }
        // A real machine is identified by its boot.
        Facts { machine: "made up".into(), ..bytepath_host::survey(&Roots::recorded(dir.path())) }
    }

    /// Returns why huge pages are missing for a cell that receives by `zcrx` and sends by `devmem`,
    /// 64 MiB each over each adapter, on this machine; `ends` names the NICs of each end.
    fn missing(machine: &Facts, ends: [&[&str]; 2], settings: &[SettingRecord]) -> Option<String> {
        let over = |device: &str| {
            let mut facts = machine.clone();
            let node = machine.settings[&format!("nic.{device}.node")].clone();
            facts.settings.insert(LINK_NODE.into(), node);
            facts
        };
        let devices = ends.map(|names| names.iter().map(|name| (*name).to_owned()).collect());
        let (mut facts, mut others) = survey_devices(&devices, over);
        let others_too = others.iter_mut().map(|other| (other.role, &mut other.facts));
        for (role, facts) in Role::ALL.into_iter().zip(&mut facts).chain(others_too) {
            reserve(role, facts, settings);
        }
        let mut cell = cell_of("devmem:memory=udmabuf-huge+zcrx:memory=huge");
        let adapters = ends[0].len() as u32;
        (cell.link.adapters, cell.stream.flows) = (adapters, adapters);
        cell.stream.message_size = 64 << 20;
        super::missing(path::CATALOG, &cell, &facts, &others).map(|obstacle| obstacle.to_string())
    }

    #[test]
    fn both_ends_and_all_devices_of_a_node_need_huge_pages_of_it() {
        let nics = [("eth1", 1), ("eth2", 1), ("eth3", 0), ("eth4", 0)];
        let with = |pages, ends| missing(&recorded(pages, &nics), ends, &[]);
        // One node serves both ends.
        assert_eq!(with([0, 64], [&["eth1"], &["eth2"]]), None);
        let why = with([64, 63], [&["eth1"], &["eth2"]]).unwrap();
        let words =
            "the memory of both ends takes 32 + 32 huge pages of 2 MiB of NUMA node 1, and 63";
        assert!(why.contains(words) && why.contains("hugepages 2M node=1 64"), "{why}");
        assert_eq!(with([32, 32], [&["eth1"], &["eth3"]]), None, "each has a node of its own");
        let why = with([31, 96], [&["eth1"], &["eth3"]]).unwrap();
        assert!(
            why.contains("the receiver's memory takes 32 huge pages of 2 MiB of NUMA node 0"),
            "{why}"
        );
        // Two devices of one end are on one node.
        assert_eq!(with([64, 64], [&["eth1", "eth2"], &["eth3", "eth4"]]), None);
        let why = with([64, 63], [&["eth1", "eth2"], &["eth3", "eth4"]]).unwrap();
        assert!(why.contains("the sender's memory takes 32 + 32 huge pages"), "{why}");
    }

    #[test]
    fn a_dry_run_counts_on_each_nodes_part_of_the_pages_that_the_machine_will_reserve() {
        let machine = recorded([0, 0], &[("eth1", 1), ("eth2", 1)]);
        let with = |lines: &[&str]| {
            let record = |line: &&str| {
                SettingRecord::from(&WantedSetting::from(line.parse::<Setting>().unwrap()))
            };
            let records: Vec<SettingRecord> = lines.iter().map(record).collect();
            missing(&machine, [&["eth1"], &["eth2"]], &records)
        };
        assert!(with(&["hugepages 2M 64"]).unwrap().contains("of NUMA node 1, and 32 are free"));
        assert_eq!(with(&["hugepages 2M 128"]), None);
        assert_eq!(with(&["hugepages 2M node=eth1 64"]), None);
        assert!(with(&["hugepages 2M node=0 128"]).unwrap().contains("and 0 are free"));
        assert_eq!(with(&["hugepages 2M 2", "hugepages 2M node=eth2 64"]), None);
    }

    #[test]
    fn pages_of_a_devices_node_are_of_the_only_node_there_is() {
        let dir = tempfile::tempdir().unwrap();
        for (file, text) in [
            ("devices/system/node/online", "0\n"),
            ("devices/system/node/has_memory", "0\n"),
            ("kernel/mm/hugepages/hugepages-2048kB/nr_hugepages", "3\n"),
            ("kernel/mm/hugepages/hugepages-2048kB/free_hugepages", "2\n"),
            ("class/net/eth1/device/numa_node", "-1\n"),
        ] {
            write(dir.path(), file, text);
        }
        let machine = bytepath_host::survey(&Roots::recorded(dir.path()));
        // A veth reports nothing at all.
        for device in ["eth1", "veth0"] {
            let mut facts = machine.clone();
            enter(&mut facts, &format!("hugepages 2M node={device} 64").parse().unwrap());
            assert_eq!(facts.number(&free_huge_pages(None)), Some(63), "{device}");
        }
    }

    #[test]
    fn a_node_without_memory_gets_no_part_of_the_machines_pages() {
        let mut facts = recorded([0, 0], &[]);
        let free = |facts: &Facts| {
            let mut facts = facts.clone();
            free_pages(&mut facts, None, 64);
            [0, 1].map(|node| facts.number::<u64>(&free_huge_pages(Some(node))).unwrap())
        };
        assert_eq!((facts.setting("numa.memory"), free(&facts)), (Some("0-1"), [32, 32]));
        facts.settings.insert("numa.memory".into(), "1".into());
        assert_eq!(free(&facts), [0, 64]);
    }
}
