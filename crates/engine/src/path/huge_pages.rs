//! Reserved huge pages of 2 MiB that paths allocate their memory from: how many a cell takes, and
//! whether enough are free. Both ends on one machine take pages from the same nodes, and so do
//! devices on the same node.

use crate::workload::HalfConfig;
use bytepath_record::{Facts, Role, Support, distinct, free_huge_pages, huge_pages, joined};
use bytepath_sys::memory::HUGE_PAGE;
use std::fmt::Display;

/// Huge pages that a half takes for the flows over one adapter.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HugePages {
    pub count: usize,
    /// NUMA node that must provide them; `None` if any may.
    pub node: Option<u32>,
}

impl HugePages {
    /// Pages of `areas` areas of `bytes` each.
    pub(super) fn of(areas: u32, bytes: usize, node: Option<u32>) -> HugePages {
        HugePages { count: bytes.div_ceil(HUGE_PAGE).saturating_mul(areas as usize), node }
    }
}

/// Huge pages that one half of a cell takes, on a host with these facts.
#[derive(Clone, Copy, Debug)]
pub struct PagesTaken<'f> {
    /// Role whose end takes them.
    pub role: Role,
    pub facts: &'f Facts,
    pub pages: HugePages,
}

impl PagesTaken<'_> {
    /// Identifies the machine that provides them. If its name could not be read, no other role
    /// shares it.
    fn machine(&self) -> (&str, Option<Role>) {
        let name = self.facts.machine.as_str();
        (name, name.is_empty().then_some(self.role))
    }
}

/// Checks whether enough huge pages are free for all halves of a cell together, on each machine
/// and, if they require one, on each NUMA node.
pub fn check_huge_pages(all: &[PagesTaken]) -> Support {
    let of_nodes = all.iter().filter(|one| one.pages.node.is_some());
    let of_nodes = of_nodes.map(|one| (one.machine(), one.pages.node));
    let places = of_nodes.chain(all.iter().map(|one| (one.machine(), None)));
    let judge = |(machine, node): ((&str, Option<Role>), Option<u32>)| {
        let is_here = |one: &&PagesTaken| {
            one.pages.count > 0
                && one.machine() == machine
                && (node.is_none() || one.pages.node == node)
        };
        check_at(node, &all.iter().filter(is_here).copied().collect::<Vec<_>>())
    };
    distinct(places).into_iter().map(judge).fold(Support::Yes, Support::and)
}

/// Checks one node or one machine. A host that reports no counts is not refused.
fn check_at(node: Option<u32>, all: &[PagesTaken]) -> Support {
    let shown = all
        .iter()
        .filter_map(|one| Some((one.facts.number::<usize>(&free_huge_pages(node))?, one.facts)));
    // Pages reserved on behalf of one of two ends on the same machine are available to both, so the
    // larger count applies.
    let Some((free, facts)) = shown.max_by_key(|(free, _)| *free) else { return Support::Yes };
    let needed = all.iter().fold(0_usize, |sum, one| sum.saturating_add(one.pages.count));
    // Pages that others use must stay reserved, too.
    let reserved = facts.number::<usize>(&huge_pages(node)).unwrap_or(free);
    let pages = reserved.saturating_sub(free).saturating_add(needed);
    let remedy = match is_guest(facts) {
        true => reserve_at_boot(pages),
        false => reserve(pages.saturating_mul(HUGE_PAGE), node),
    };
    let whose = match distinct(all.iter().map(|one| one.role)).as_slice() {
        [role] => format!("the {role}'s memory"),
        _ => "the memory of both ends".to_owned(),
    };
    let counts = joined(all.iter().map(|one| one.pages.count), " + ");
    let place = node.map_or(String::new(), |node| format!(" of NUMA node {node}"));
    let reason = format!("{whose} takes {counts} huge pages of 2 MiB{place}, and {free} are free");
    super::refuse_if(free < needed, reason, remedy)
}

/// Returns how many flows cross the adapter with this index.
pub(super) fn flows_over(job: &HalfConfig, adapter: u32) -> u32 {
    (adapter..job.flows).step_by(job.adapters.max(1) as usize).count() as u32
}

/// True if the study boots this host, so that settings and commands on the machine do not affect
/// it.
pub(super) fn is_guest(facts: &Facts) -> bool {
    facts.booted.is_some()
}

/// Remedy: how to boot a guest with this many huge pages.
pub(super) fn reserve_at_boot(pages: impl Display) -> String {
    format!("boot the guest with {pages} huge pages: --kernel 'NAME=SOURCE hugepages={pages}'")
}

/// Remedy: how to reserve huge pages for this many bytes, on the NUMA node of a NIC if it has one.
pub(super) fn reserve(bytes: usize, node: Option<u32>) -> String {
    let pages = bytes.div_ceil(HUGE_PAGE);
    match node {
        Some(node) => format!(
            "reserve {pages} huge pages on node {node}, that of the NIC: --set 'hugepages 2M \
             node={node} {pages}'"
        ),
        None => format!("reserve {pages} huge pages: sysctl vm.nr_hugepages={pages}"),
    }
}

/// Remedy if huge pages of a NIC's node may not be requested.
pub(super) const MAY_CHOOSE_NODE: &str = "give the container CAP_SYS_NICE (docker run --cap-add \
     SYS_NICE), without which its seccomp profile refuses set_mempolicy, or allow that there";

#[cfg(test)]
mod tests {
    use super::*;
    use bytepath_record::LINK_NODE;

    /// A machine with `all` huge pages, of which `free` are free.
    fn facts(all: &str, free: &str) -> Facts {
        let mut facts = Facts { machine: "one".into(), ..Facts::default() };
        facts.settings.insert(huge_pages(None), all.into());
        facts.settings.insert(free_huge_pages(None), free.into());
        facts
    }

    /// The same machine with a device on a NUMA node, on which `free` pages are free.
    fn on_node(facts: &Facts, node: u32, free: &str) -> Facts {
        let mut facts = facts.clone();
        facts.settings.insert(LINK_NODE.into(), node.to_string());
        facts.settings.insert(free_huge_pages(Some(node)), free.into());
        facts
    }

    /// Pages taken by an area of this many pages for the device of the facts.
    fn area(role: Role, facts: &Facts, pages: usize) -> PagesTaken<'_> {
        PagesTaken {
            role,
            facts,
            pages: HugePages::of(1, pages * HUGE_PAGE, facts.node_of_pages()),
        }
    }

    /// Each end takes 32 pages for its device.
    fn ends<'f>(facts: [&'f Facts; 2]) -> [PagesTaken<'f>; 2] {
        Role::ALL.map(|role| area(role, facts[role as usize], 32))
    }

    fn refusal(all: &[PagesTaken]) -> (String, String) {
        match check_huge_pages(all) {
            Support::No { reason, remedy } => (reason, remedy),
            Support::Yes => panic!("{all:?}"),
        }
    }

    #[test]
    fn huge_pages_are_those_of_all_adapters_unless_each_has_a_node() {
        let both = |one: &Facts, other: &Facts| {
            check_huge_pages(&[one, other].map(|facts| area(Role::Receiver, facts, 1))).is_yes()
        };
        let mut one = facts("1", "1");
        assert!(!both(&one, &one));
        one.settings.insert(LINK_NODE.into(), "0".into());
        assert!(!both(&one, &one), "it is the only node");
        let two = facts("2", "2");
        let [one, other] = [0, 1].map(|node| on_node(&two, node, "1"));
        assert!(both(&one, &other));
        assert!(!both(&other, &other), "two devices of one node");
    }

    #[test]
    fn both_ends_on_one_machine_take_from_the_same_pages() {
        let one = on_node(&facts("100", "80"), 1, "40");
        let [alone, _] = ends([&one, &one]);
        assert_eq!(check_huge_pages(&[alone]), Support::Yes);
        let (reason, remedy) = refusal(&ends([&one, &one]));
        let words =
            "the memory of both ends takes 32 + 32 huge pages of 2 MiB of NUMA node 1, and 40 are";
        assert!(reason.starts_with(words), "{reason}");
        assert!(remedy.contains("hugepages 2M node=1 64"), "{remedy}");
        let apart = Facts { machine: "another".into(), ..one.clone() };
        assert_eq!(check_huge_pages(&ends([&one, &apart])), Support::Yes);
        let other = on_node(&one, 0, "40");
        assert_eq!(check_huge_pages(&ends([&one, &other])), Support::Yes, "nodes of their own");
        let promised = |facts: &Facts| {
            let mut facts = facts.clone();
            facts.settings.insert(free_huge_pages(None), "60".into());
            facts
        };
        let (reason, _) = refusal(&ends([&promised(&one), &promised(&other)]));
        assert!(reason.ends_with("32 + 32 huge pages of 2 MiB, and 60 are free"), "{reason}");
    }

    #[test]
    fn machines_without_a_name_are_not_one() {
        let unnamed = Facts { machine: String::new(), ..facts("40", "40") };
        assert_eq!(check_huge_pages(&ends([&unnamed, &unnamed])), Support::Yes);
        let adapters = [32, 32].map(|pages| area(Role::Receiver, &unnamed, pages));
        let (reason, _) = refusal(&adapters);
        assert!(reason.starts_with("the receiver's memory takes 32 + 32 huge pages"), "{reason}");
    }

    #[test]
    fn what_is_reserved_for_one_end_is_there_for_both_of_a_machine() {
        let (before, after) = (facts("0", "0"), facts("64", "64"));
        let ends = [area(Role::Sender, &before, 32), area(Role::Receiver, &after, 32)];
        assert_eq!(check_huge_pages(&ends), Support::Yes);
    }

    #[test]
    fn the_remedy_leaves_others_the_huge_pages_that_they_have_taken() {
        let (reason, remedy) = refusal(&[area(Role::Receiver, &facts("20", "5"), 32)]);
        assert!(remedy.ends_with("sysctl vm.nr_hugepages=47"), "{remedy}");
        assert!(reason.starts_with("the receiver's memory takes 32 huge pages"), "{reason}");
    }
}
