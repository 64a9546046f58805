use super::*;
use bytepath_record::{Restoration, Setting, SettingValue};
use bytepath_sys::Roots;
use proptest::prelude::*;
use std::cell::Cell;
use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::rc::Rc;

/// A small machine: two CPUs, a device with two queues, a few sysctls.
const TREE: &[(&str, &str)] = &[
    ("proc/sys/kernel/random/boot_id", "1b4e28ba-2fa1-11d2-883f-0016d3cca427\n"),
    ("proc/sys/kernel/numa_balancing", "1\n"),
    ("proc/sys/net/core/rmem_max", "212992\n"),
    ("proc/sys/net/core/optmem_max", "20480\n"),
    ("proc/sys/net/ipv4/tcp_rmem", "4096\t131072\t6291456\n"),
    ("proc/sys/vm/nr_hugepages", "0\n"),
    ("proc/irq/24/smp_affinity_list", "0-1\n"),
    ("proc/self/mountinfo", "22 28 0:21 / /proc rw - proc proc rw\n"),
    ("sys/class/net/eth0/mtu", "1500\n"),
    ("proc/sys/net/ipv6/conf/eth0/mtu", "1500\n"),
    ("sys/class/net/eth0/upper_mv0", ""),
    ("sys/class/net/mv0/mtu", "1500\n"),
    ("sys/class/net/eth0/threaded", "0\n"),
    ("sys/class/net/eth0/queues/rx-0/rps_cpus", "00000000,00000000\n"),
    ("sys/class/net/eth0/queues/rx-1/rps_cpus", "00000000,00000003\n"),
    ("sys/class/net/eth0/queues/tx-0/xps_cpus", "00000000,00000001\n"),
    ("sys/devices/system/cpu/cpu0/cpufreq/scaling_governor", "schedutil\n"),
    ("sys/devices/system/cpu/cpu1/cpufreq/scaling_governor", "powersave\n"),
    ("sys/devices/system/cpu/cpu0/cpuidle/state0/latency", "0\n"),
    ("sys/devices/system/cpu/cpu0/cpuidle/state0/disable", "0\n"),
    ("sys/devices/system/cpu/cpu0/cpuidle/state1/latency", "133\n"),
    ("sys/devices/system/cpu/cpu0/cpuidle/state1/disable", "0\n"),
    ("sys/devices/system/cpu/cpu1/cpuidle/state1/latency", "133\n"),
    ("sys/devices/system/cpu/cpu1/cpuidle/state1/disable", "0\n"),
    ("sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages", "3\n"),
    ("sys/bus/dsa/devices/engine0.0/group_id", "-1\n"),
    ("sys/bus/dsa/devices/wq0.0/size", "0\n"),
    ("sys/bus/dsa/devices/wq0.0/state", "disabled\n"),
    ("sys/bus/dsa/drivers/user/bind", ""),
    ("sys/bus/dsa/drivers/user/unbind", ""),
];

/// The settings of the tests, and the files that each changes.
const LINES: &[(&str, &[&str])] = &[
    ("sysctl net.core.rmem_max=67108864", &["proc/sys/net/core/rmem_max"]),
    ("sysctl net.core.rmem_max=1000000", &["proc/sys/net/core/rmem_max"]),
    ("sysctl net.core.optmem_max=20480", &[]),
    ("sysctl net.ipv4.tcp_rmem=4096 131072 67108864", &["proc/sys/net/ipv4/tcp_rmem"]),
    ("sysctl kernel.numa_balancing=0", &["proc/sys/kernel/numa_balancing"]),
    ("mtu eth0 4148", &["sys/class/net/eth0/mtu"]),
    ("mtu eth0 4146", &["sys/class/net/eth0/mtu"]),
    ("mtu eth0 1400", &["sys/class/net/eth0/mtu"]),
    ("threaded-napi eth0 on", &["sys/class/net/eth0/threaded"]),
    ("irq 24 1", &["proc/irq/24/smp_affinity_list"]),
    (
        "rps eth0 1",
        &["sys/class/net/eth0/queues/rx-0/rps_cpus", "sys/class/net/eth0/queues/rx-1/rps_cpus"],
    ),
    ("xps eth0 0 none", &["sys/class/net/eth0/queues/tx-0/xps_cpus"]),
    (
        "governor all performance",
        &[
            "sys/devices/system/cpu/cpu0/cpufreq/scaling_governor",
            "sys/devices/system/cpu/cpu1/cpufreq/scaling_governor",
        ],
    ),
    (
        "idle all slower-than=10us",
        &[
            "sys/devices/system/cpu/cpu0/cpuidle/state1/disable",
            "sys/devices/system/cpu/cpu1/cpuidle/state1/disable",
        ],
    ),
    ("dsa engine0.0 group_id=0", &["sys/bus/dsa/devices/engine0.0/group_id"]),
    ("dsa wq0.0 size=128", &["sys/bus/dsa/devices/wq0.0/size"]),
    ("hugepages 2M 512", &["sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages"]),
];

struct Tree {
    dir: tempfile::TempDir,
}

impl Tree {
    fn new() -> Tree {
        let tree = Tree { dir: tempfile::tempdir().unwrap() };
        tree.put_all();
        let ns = tree.path("proc/self/ns");
        fs::create_dir_all(&ns).unwrap();
        std::os::unix::fs::symlink("net:[4026531840]", ns.join("net")).unwrap();
        tree
    }

    fn put_all(&self) {
        for (path, text) in TREE {
            self.put(path, text);
        }
    }

    fn path(&self, path: &str) -> PathBuf {
        self.dir.path().join(path)
    }

    fn put(&self, path: &str, text: &str) {
        let path = self.path(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    fn host(&self) -> ThisMachine {
        ThisMachine::new(Roots::recorded(self.dir.path()))
    }

    fn place(&self) -> StateFolder {
        StateFolder::at(self.path("state"))
    }

    fn restore(&self) -> Vec<RestorationRow> {
        restore(&self.place(), self.host()).unwrap()
    }

    /// A device upon another one has no larger MTU.
    fn follow_mtu(&self) {
        let number = |path: &str| -> u64 {
            fs::read_to_string(self.path(path)).unwrap().trim().parse().unwrap()
        };
        let below = number("sys/class/net/eth0/mtu");
        self.put("proc/sys/net/ipv6/conf/eth0/mtu", &format!("{below}\n"));
        if number("sys/class/net/mv0/mtu") > below {
            self.put("sys/class/net/mv0/mtu", &format!("{below}\n"));
        }
    }

    /// Every file of the machine with its content.
    fn snapshot(&self) -> BTreeMap<PathBuf, Vec<u8>> {
        fn walk(folder: &Path, found: &mut BTreeMap<PathBuf, Vec<u8>>) {
            for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
                let path = entry.path();
                if path.is_dir() {
                    walk(&path, found);
                } else if !path.is_symlink() {
                    found.insert(path.clone(), fs::read(path).unwrap());
                }
            }
        }
        let mut found = BTreeMap::new();
        walk(&self.path("proc"), &mut found);
        walk(&self.path("sys"), &mut found);
        found
    }
}

fn wanted(lines: &[&str]) -> Vec<WantedSetting> {
    let want = |line: &&str| line.parse::<Setting>().unwrap().into();
    lines.iter().map(want).collect()
}

/// Steps left until a process dies; at 0 it is dead.
type Fuse = Rc<Cell<u32>>;

fn burn(fuse: &Fuse) -> bool {
    match fuse.get() {
        0 => false,
        left => {
            fuse.set(left - 1);
            true
        }
    }
}

/// A machine whose user dies: from then on nothing is read or written. Each part
/// of a setting is a step of its own. It finds at most this many huge pages.
struct Mortal<'t> {
    tree: &'t Tree,
    host: ThisMachine,
    fuse: Fuse,
    pages: u64,
    /// An MTU is rounded up to a multiple of this, as drivers do with rings.
    rounds_to: u64,
    /// Number of writes to refuse first, and the error text.
    refusals: (u32, &'static str),
    /// A part whose writes always fail.
    refuses: &'static str,
}

impl<'t> Mortal<'t> {
    /// A machine that follows every request until it dies.
    fn new(tree: &'t Tree, fuse: &Fuse) -> Self {
        let (host, fuse) = (tree.host(), fuse.clone());
        Mortal { tree, host, fuse, pages: u64::MAX, rounds_to: 1, refusals: (0, ""), refuses: "" }
    }

    /// A machine that rounds and does not die.
    fn rounding(tree: &'t Tree, rounds_to: u64) -> Self {
        Mortal { rounds_to, ..Mortal::new(tree, &Rc::new(Cell::new(u32::MAX))) }
    }
}

fn dead() -> Fault {
    Fault::failed("killed")
}

impl Machine for Mortal<'_> {
    fn read(&mut self, setting: &Setting) -> Result<Option<SettingValue>, Fault> {
        if burn(&self.fuse) { self.host.read(setting) } else { Err(dead()) }
    }

    fn goal(&mut self, setting: &Setting, before: &SettingValue) -> Result<SettingValue, Fault> {
        self.host.goal(setting, before)
    }

    fn write(&mut self, setting: &Setting, to: &SettingValue) -> Result<(), Fault> {
        let (left, words) = &mut self.refusals;
        if *left > 0 {
            *left -= 1;
            return Err(Fault::failed(*words));
        }
        for (name, text) in &to.0 {
            if !burn(&self.fuse) {
                return Err(dead());
            }
            if name == self.refuses {
                return Err(Fault::failed(format!("{name} is held")));
            }
            let text = match (name.as_str(), text.parse::<u64>()) {
                ("pages", Ok(requested)) => requested.min(self.pages).to_string(),
                ("mtu", Ok(requested)) => requested.next_multiple_of(self.rounds_to).to_string(),
                _ => text.clone(),
            };
            self.host.write(setting, &SettingValue::one(name, text))?;
            if name == "mtu" {
                self.tree.follow_mtu();
            }
        }
        Ok(())
    }

    fn same(&self, setting: &Setting, a: &str, b: &str) -> bool {
        self.host.same(setting, a, b)
    }

    fn identity(&self) -> Identity {
        self.host.identity()
    }

    fn has_namespace(&self, namespace: &str) -> bool {
        self.host.has_namespace(namespace)
    }
}

/// A journal whose last line is torn by its writer's death.
struct Torn {
    file: JournalFile,
    fuse: Fuse,
    /// How much of the last line reaches the disk.
    part: f64,
}

impl JournalStorage for Torn {
    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        let was_alive = self.fuse.get() > 0;
        if burn(&self.fuse) && self.fuse.get() > 0 {
            return self.file.append(bytes);
        }
        if was_alive {
            let part = (bytes.len() as f64 * self.part) as usize;
            self.file.append(&bytes[..part.min(bytes.len())])?;
        }
        Err(io::Error::other("killed"))
    }

    fn discard(&mut self) -> io::Result<()> {
        if burn(&self.fuse) { self.file.discard() } else { Err(io::Error::other("killed")) }
    }
}

/// Applies and undoes, as a run does, but dies after this many steps. True if it completed.
fn run(tree: &Tree, lines: &[WantedSetting], steps: u32, part: f64, rounds_to: u64) -> bool {
    let fuse = Rc::new(Cell::new(steps));
    let place = tree.place();
    let lock = place.lock().unwrap();
    let journal = Torn { file: place.create(&lock).unwrap(), fuse: fuse.clone(), part };
    let machine = Mortal { rounds_to, ..Mortal::new(tree, &fuse) };
    let Ok(mut engine) = Engine::begin(machine, journal, Vec::new(), 0) else { return false };
    let _ = engine.apply(lines);
    engine.undo_from(0, JournalOrigin::Here);
    let _ = engine.finish();
    fuse.get() > 0
}

/// A machine on which a run died, and its state before the run.
fn left_behind_by_a_run() -> (Tree, BTreeMap<PathBuf, Vec<u8>>) {
    let lines = wanted(&["sysctl net.core.rmem_max=1000000"]);
    let left_behind = (1..20).find_map(|steps| {
        let tree = Tree::new();
        let before = tree.snapshot();
        run(&tree, &lines, steps, 1.0, 1);
        (tree.snapshot() != before).then_some((tree, before))
    });
    left_behind.expect("a run that died in time")
}

#[test]
fn what_the_kernel_holds_for_a_while_is_restored_once_it_lets_go() {
    let provider = "can't disable tcp-data-split while device has memory provider enabled";
    // A provider for longer than all else is waited for.
    let longer = 1 + (RELEASE.as_millis() / AGAIN.as_millis()) as u32;
    let by_restore = |machine: Mortal, place: &StateFolder| restore(place, machine).unwrap();
    let by_next_run =
        |machine: Mortal, place: &StateFolder| Applied::apply(place, machine, &[]).unwrap().1;
    let held = [(3, "it is held"), (longer, provider)];
    for (refusals, is_run) in held.into_iter().flat_map(|held| [(held, false), (held, true)]) {
        let (tree, before) = left_behind_by_a_run();
        let fuse = Rc::new(Cell::new(u32::MAX));
        let machine = Mortal { refusals, ..Mortal::new(&tree, &fuse) };
        let rows = match is_run {
            true => by_next_run(machine, &tree.place()),
            false => by_restore(machine, &tree.place()),
        };
        assert_eq!(rows.len(), 1, "{rows:?}");
        assert_eq!(rows[0].outcome, Restoration::Restored, "{rows:?}");
        assert_eq!(tree.snapshot(), before);
    }
}

#[test]
fn what_was_waited_for_in_vain_is_named() {
    let (tree, before) = left_behind_by_a_run();
    let fuse = Rc::new(Cell::new(u32::MAX));
    let refusals = (u32::MAX, "the device has a memory provider");
    let rows = restore(&tree.place(), Mortal { refusals, ..Mortal::new(&tree, &fuse) }).unwrap();
    assert_eq!(rows.len(), 1, "{rows:?}");
    assert!(rows[0].is_pending(), "{rows:?}");
    let note = &rows[0].note;
    assert!(note.contains("memory provider; that was waited for 10 s: end what"), "{note}");
    assert_ne!(tree.snapshot(), before);
}

/// The first run waits for it, and goes on without; those after it do not wait once more.
#[test]
fn a_run_goes_on_without_what_it_waited_for_in_vain() {
    let tree = Tree::new();
    let before = tree.snapshot();
    killed_after_applying(&tree, &["sysctl net.core.rmem_max=1000000"]);
    let (place, fuse) = (tree.place(), Rc::new(Cell::new(u32::MAX)));
    let refusing = |times| {
        let refusals = (times, "the device has a memory provider");
        Mortal { refusals, ..Mortal::new(&tree, &fuse) }
    };
    let (applied, rows) = Applied::apply(&place, refusing(u32::MAX), &[]).unwrap();
    assert!(rows.len() == 1 && rows[0].is_pending(), "{rows:?}");
    assert!(rows[0].note.contains("provider; that was waited for 10 s: end what"), "{rows:?}");
    drop(applied);
    // A retry would restore it.
    let (applied, rows) = Applied::apply(&place, refusing(1), &wanted(&["mtu eth0 4148"])).unwrap();
    assert!(rows.len() == 1 && rows[0].is_pending(), "{rows:?}");
    assert!(rows[0].note.ends_with("memory provider"), "{rows:?}");
    assert_eq!(applied.records()[0].to_string(), "mtu eth0: 1500 -> 4148");
    drop(applied);
    let journal = place.read().unwrap().unwrap();
    let pending: Vec<_> = journal.changes.iter().filter(|change| !change.undone).collect();
    assert!(pending.len() == 1 && pending[0].kept, "{pending:?}");
    // An explicit restore retries it.
    let rows = restore(&place, refusing(1)).unwrap();
    assert!(rows.len() == 1 && rows[0].outcome == Restoration::Restored, "{rows:?}");
    assert_eq!(tree.snapshot(), before);
}

/// Restores what is in the journal, but dies after this many steps.
fn restore_until(tree: &Tree, steps: u32, part: f64, rounds_to: u64) {
    let place = tree.place();
    let lock = place.lock().unwrap();
    let Some(chronicle) = place.read().unwrap() else { return };
    let fuse = Rc::new(Cell::new(steps));
    let machine = Mortal { rounds_to, ..Mortal::new(tree, &fuse) };
    let origin = JournalOrigin::of(&chronicle, &machine);
    let journal = Torn { file: place.reopen(&lock).unwrap(), fuse, part };
    let mut engine = Engine::inherit(machine, journal, chronicle.changes);
    engine.undo_from(0, origin);
    let _ = engine.finish();
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(8))]

    /// The promise of the whole folder. Whatever is set, whether or not the kernel rounds it and
    /// moves something else along, and wherever the process
    /// is killed (before a line of the journal, in the middle of it, after it,
    /// between two parts of one setting, before or after it is read back, while it
    /// is undone, while a restore undoes it), a restore gives the very files that
    /// were there; and a file that someone else wrote meanwhile stays theirs.
    #[test]
    fn killed_at_every_step(
        chosen in prop::collection::vec(0..LINES.len(), 1..6),
        part in 0.0..1.0f64,
        second in 0..20u32,
        foreign in proptest::option::of(0..6usize),
        rounds_to in prop::sample::select(vec![1, 4, 1000]),
    ) {
        let tree = Tree::new();
        let before = tree.snapshot();
        let lines: Vec<&str> = chosen.iter().map(|at| LINES[*at].0).collect();
        let changed: Vec<&str> = chosen.iter().flat_map(|at| LINES[*at].1).copied().collect();
        let wanted = wanted(&lines);
        for steps in 0.. {
            let whole = run(&tree, &wanted, steps, part, rounds_to);
            let mut expected = before.clone();
            if whole {
                prop_assert_eq!(&tree.snapshot(), &expected, "a run that ended left something");
                prop_assert!(!tree.place().journal().exists());
                break;
            }
            let theirs = foreign.and_then(|at| changed.get(at % changed.len().max(1)));
            if let Some(file) = theirs {
                tree.put(file, "777\n");
                expected.insert(tree.path(file), b"777\n".to_vec());
            }
            restore_until(&tree, second, part, rounds_to);
            let restore = || restore(&tree.place(), Mortal::rounding(&tree, rounds_to)).unwrap();
            let rows = restore();
            prop_assert_eq!(&tree.snapshot(), &expected, "killed at step {}: {:?}", steps, rows);
            prop_assert!(rows.iter().all(|row| !row.is_pending()), "{:?}", rows);
            prop_assert_eq!(restore(), Vec::new(), "twice is once");
            tree.put_all();
        }
    }
}

#[test]
fn what_was_set_is_reported_and_restored() {
    let tree = Tree::new();
    let before = tree.snapshot();
    let lines: Vec<&str> = LINES.iter().map(|(line, _)| *line).collect();
    let (applied, rows) = Applied::apply(&tree.place(), tree.host(), &wanted(&lines)).unwrap();
    assert!(rows.is_empty());
    let texts: Vec<String> = applied
        .records()
        .iter()
        .map(|r| format!("{}: {} -> {}", r.setting.subject(), r.before, r.after))
        .collect();
    assert_eq!(
        texts[..4],
        [
            "net.core.rmem_max: 212992 -> 67108864",
            "net.core.rmem_max: 67108864 -> 1000000",
            "net.core.optmem_max: 20480 -> 20480",
            "net.ipv4.tcp_rmem: 4096 131072 6291456 -> 4096 131072 67108864",
        ]
    );
    assert_ne!(tree.snapshot(), before);
    let journal = fs::read_to_string(tree.place().journal()).unwrap();
    assert_eq!(journal.matches("\"intent\"").count(), LINES.len() - 1, "one had nothing to do");
    let rows = applied.undo();
    assert!(rows.iter().all(|row| row.outcome == Restoration::Restored), "{rows:?}");
    assert_eq!(rows[0].setting.subject(), "huge pages of 2M", "the last one first");
    assert_eq!(tree.snapshot(), before);
}

#[test]
fn a_drop_and_a_panic_restore_too() {
    let tree = Tree::new();
    let before = tree.snapshot();
    let apply = || Applied::apply(&tree.place(), tree.host(), &wanted(&["mtu eth0 4148"])).unwrap();
    drop(apply());
    assert_eq!(tree.snapshot(), before);
    let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        let _applied = apply();
        panic!("in the middle of a study");
    }));
    assert!(panicked.is_err());
    assert_eq!(tree.snapshot(), before);
}

#[test]
fn a_mandatory_setting_that_cannot_be_made_is_an_error_before_anything_changes() {
    let tree = Tree::new();
    let before = tree.snapshot();
    let lines = ["mtu eth0 4148", "sysctl net.core.no_such_thing=1"];
    let refusal = Applied::apply(&tree.place(), tree.host(), &wanted(&lines)).err().unwrap();
    assert!(refusal.message.contains("no sysctl net.core.no_such_thing"), "{refusal}");
    assert_eq!(tree.snapshot(), before);
    // The same as an option of a profile is a row with its reason.
    let mut optional = wanted(&lines);
    optional[1].optional = true;
    let (applied, _) = Applied::apply(&tree.place(), tree.host(), &optional).unwrap();
    assert!(applied.records()[0].skipped.is_none());
    assert!(applied.records()[1].skipped.as_ref().unwrap().contains("no sysctl"));
}

/// A kernel that accepts a value and applies another one.
#[test]
fn what_does_not_say_what_was_requested_is_undone() {
    let tree = Tree::new();
    fs::remove_file(tree.path("proc/sys/net/core/optmem_max")).unwrap();
    std::os::unix::fs::symlink("/dev/null", tree.path("proc/sys/net/core/optmem_max")).unwrap();
    let before = tree.snapshot();
    let lines = ["mtu eth0 4148", "sysctl net.core.optmem_max=1048576"];
    let refusal = Applied::apply(&tree.place(), tree.host(), &wanted(&lines)).err().unwrap();
    assert!(refusal.message.contains("the kernel accepted it, but it reads"), "{refusal}");
    assert_eq!(tree.snapshot(), before, "the MTU was restored");
    assert!(tree.restore().is_empty());
}

#[test]
fn huge_pages_of_which_fewer_were_found_are_an_error_and_given_back() {
    let tree = Tree::new();
    let before = tree.snapshot();
    for optional in [false, true] {
        let mut lines = wanted(&["mtu eth0 4148", "hugepages 2M 512"]);
        lines[1].optional = optional;
        let place = tree.place();
        let lock = place.lock().unwrap();
        let fuse = Rc::new(Cell::new(u32::MAX));
        let file = place.create(&lock).unwrap();
        let machine = Mortal { pages: 60, ..Mortal::new(&tree, &fuse) };
        let mut engine =
            Engine::begin(machine, Torn { file, fuse, part: 1.0 }, Vec::new(), 0).unwrap();
        let said = match engine.apply(&lines) {
            Err(fault) => fault.to_string(),
            Ok(records) => records[1].skipped.clone().expect("it is skipped"),
        };
        assert!(said.contains("but it reads 60 now"), "{said}");
        assert_eq!(said.contains("fragmented"), !optional, "{said}");
        engine.undo_from(0, JournalOrigin::Here);
        engine.finish().unwrap();
        drop(lock);
        assert_eq!(tree.snapshot(), before, "the three that were there, and the MTU");
    }
}

/// The number is journalled: the pages go back when the device is gone, too.
#[test]
fn huge_pages_of_the_node_of_a_device_go_back_without_it() {
    let tree = Tree::new();
    let pages = |node| format!("sys/devices/system/node/node{node}/hugepages/hugepages-2048kB");
    (0..2).for_each(|node| tree.put(&format!("{}/nr_hugepages", pages(node)), "3\n"));
    tree.put("sys/class/net/eth0/device/numa_node", "1\n");
    tree.put("sys/class/net/eth1/device/numa_node", "-1\n");
    let lines = ["hugepages 2M 3", "hugepages 2M node=eth0 128", "hugepages 2M node=eth1 128"];
    let mut lines = wanted(&lines);
    let before = tree.snapshot();
    let refused = Applied::apply(&tree.place(), tree.host(), &lines).map(drop).unwrap_err();
    assert!(refused.message.contains("eth1 reports no NUMA node"), "{refused}");
    assert!(refused.remedy.unwrap().contains("leave out node=eth1"));
    assert_eq!(tree.snapshot(), before, "nothing was set before it");

    lines[2].optional = true;
    let (applied, _) = Applied::apply(&tree.place(), tree.host(), &lines).unwrap();
    let records = applied.records();
    assert_eq!(records[1].to_string(), "huge pages of 2M of node 1: 3 -> 128");
    assert_eq!(records[1].setting, "hugepages 2M node=1 128".parse().unwrap());
    assert_eq!(records[2].skipped.as_deref(), Some("eth1 reports no NUMA node"));
    drop(applied);
    assert_eq!(tree.snapshot(), before);

    killed_after_applying(&tree, &["hugepages 2M node=eth0 128"]);
    assert_ne!(tree.snapshot(), before);
    fs::remove_dir_all(tree.path("sys/class/net/eth0")).unwrap();
    let rows = tree.restore();
    assert_eq!(rows.len(), 1, "{rows:?}");
    assert_eq!(rows[0].outcome, Restoration::Restored);
    let node = |node| fs::read_to_string(tree.path(&format!("{}/nr_hugepages", pages(node))));
    assert_eq!([0, 1].map(|at| node(at).unwrap().trim().to_owned()), ["3", "3"]);
}

/// On a machine of one node devices report none.
#[test]
fn huge_pages_of_a_device_are_of_the_only_node() {
    let tree = Tree::new();
    let pages = "sys/devices/system/node/node0/hugepages/hugepages-2048kB/nr_hugepages";
    tree.put(pages, "3\n");
    tree.put("sys/class/net/eth0/device/numa_node", "-1\n");
    let lines = wanted(&["hugepages 2M node=eth0 128"]);
    let (applied, _) = Applied::apply(&tree.place(), tree.host(), &lines).unwrap();
    assert_eq!(applied.records()[0].to_string(), "huge pages of 2M of node 0: 3 -> 128");
}

/// A refused value that the driver rounded is in force: it has to go as well.
#[test]
fn what_a_driver_rounded_is_refused_and_restored() {
    let tree = Tree::new();
    let before = tree.snapshot();
    let lock = tree.place().lock().unwrap();
    let fuse = Rc::new(Cell::new(u32::MAX));
    let file = tree.place().create(&lock).unwrap();
    let machine = Mortal { pages: 0, rounds_to: 4, ..Mortal::new(&tree, &fuse) };
    let mut engine = Engine::begin(machine, Torn { file, fuse, part: 1.0 }, Vec::new(), 0).unwrap();
    let refusal = engine.apply(&wanted(&["mtu eth0 4146"])).unwrap_err().to_string();
    assert!(refusal.contains("but it reads 4148 now"), "{refusal}");
    let rows = engine.undo_from(0, JournalOrigin::Here);
    engine.finish().unwrap();
    assert!(rows.iter().all(|row| row.outcome == Restoration::Restored), "{rows:?}");
    drop(lock);
    assert_eq!(tree.snapshot(), before);
}

/// A write that fails half-way has changed some parts; the fault lists the outcome of each.
#[test]
fn what_a_refused_write_changed_is_restored_and_named() {
    let tree = Tree::new();
    let before = tree.snapshot();
    let lines = wanted(&["mtu eth0 4148", "governor all performance"]);
    let fuse = Rc::new(Cell::new(u32::MAX));
    let machine = Mortal { refuses: "cpu1", ..Mortal::new(&tree, &fuse) };
    let said = Applied::apply(&tree.place(), machine, &lines).err().unwrap().to_string();
    assert!(said.contains("cpu1 is held; governor cpu0: restored: schedutil"), "{said}");
    assert!(said.contains("; mtu eth0: restored: 1500 (was set to 4148)"), "{said}");
    assert_eq!(tree.snapshot(), before);
    assert!(!tree.place().journal().exists());
}

/// A switch that cannot be turned back keeps its entry, and keeps no one else from setting things.
#[test]
fn what_can_never_be_restored_blocks_itself_alone() {
    let tree = Tree::new();
    killed_after_applying(&tree, &["sysctl net.core.rmem_max=67108864", "mtu eth0 4148"]);
    let fuse = Rc::new(Cell::new(u32::MAX));
    let refusing = || Mortal { refusals: (u32::MAX, "it is held"), ..Mortal::new(&tree, &fuse) };
    let place = tree.place();
    let (applied, rows) =
        Applied::apply(&place, refusing(), &wanted(&["sysctl net.core.optmem_max=20480"])).unwrap();
    assert_eq!(rows.iter().filter(|row| row.is_pending()).count(), 2, "{rows:?}");
    assert!(applied.undo().is_empty(), "what is not ours is not reported as ours");
    let refusal = Applied::apply(&place, refusing(), &wanted(&["mtu eth0 9000"])).err().unwrap();
    let said = "settings of an earlier run are still in force: mtu eth0: 1500 -> 4148";
    assert!(refusal.message.contains(said), "{refusal}");
    // Once the kernel accepts it, everything is restored.
    let rows = tree.restore();
    assert!(rows.iter().all(|row| row.outcome == Restoration::Restored), "{rows:?}");
    assert_eq!(rows.len(), 2);
    assert!(!place.journal().exists());
}

/// Settings of a run that was killed, and then the device is pulled out.
#[test]
fn what_has_vanished_is_reported_and_the_rest_restored() {
    let tree = Tree::new();
    let lines = ["mtu eth0 4148", "governor all performance", "sysctl net.core.rmem_max=1"];
    killed_after_applying(&tree, &lines);
    fs::remove_dir_all(tree.path("sys/class/net/eth0")).unwrap();
    fs::remove_dir_all(tree.path("sys/devices/system/cpu/cpu1")).unwrap();
    let texts: Vec<String> = tree.restore().iter().map(ToString::to_string).collect();
    assert_eq!(
        texts,
        [
            "net.core.rmem_max: restored: 212992 (was set to 1)",
            "governor: restored: cpu0 schedutil, cpu1 powersave (was set to performance): \
             cpu1 is no longer there",
            "mtu eth0: gone: it no longer exists",
        ]
    );
    assert!(!tree.place().journal().exists());
}

#[test]
fn a_foreign_value_is_left_alone_by_name() {
    let tree = Tree::new();
    killed_after_applying(&tree, &["sysctl net.core.rmem_max=67108864", "mtu eth0 4148"]);
    tree.put("proc/sys/net/core/rmem_max", "5000000\n");
    let texts: Vec<String> = tree.restore().iter().map(ToString::to_string).collect();
    assert_eq!(
        texts,
        [
            "mtu eth0: restored: 1500 (was set to 4148)",
            "net.core.rmem_max: left alone: is 5000000 now, not the 67108864 that bytepath had set",
        ]
    );
}

#[test]
fn after_a_reboot_nothing_is_written() {
    let tree = Tree::new();
    killed_after_applying(&tree, &["sysctl net.core.rmem_max=67108864", "mtu eth0 4148"]);
    tree.put("proc/sys/kernel/random/boot_id", "another\n");
    tree.put("sys/class/net/eth0/mtu", "1500\n");
    let rows = tree.restore();
    let texts: Vec<String> = rows.iter().map(ToString::to_string).collect();
    assert_eq!(texts[0], "mtu eth0: already restored: 1500: the machine was rebooted since");
    assert!(texts[1].ends_with("the machine was rebooted since, and it is 67108864 now"));
    assert_eq!(fs::read(tree.path("proc/sys/net/core/rmem_max")).unwrap(), b"67108864");
}

/// Network settings of another namespace are not written into this one.
#[test]
fn another_network_namespace_is_not_this_one() {
    let tree = Tree::new();
    killed_after_applying(&tree, &["mtu eth0 4148", "sysctl kernel.numa_balancing=0"]);
    let enter = |inode: &str| {
        let link = tree.path("proc/self/ns/net");
        fs::remove_file(&link).unwrap();
        std::os::unix::fs::symlink(format!("net:[{inode}]"), link).unwrap();
    };
    enter("1");
    tree.put("proc/self/mountinfo", "9 8 0:4 net:[4026531840] /run/netns/x rw - nsfs nsfs rw\n");
    let rows = tree.restore();
    let outcomes: Vec<Restoration> = rows.iter().map(|row| row.outcome).collect();
    assert_eq!(outcomes, [Restoration::Restored, Restoration::Elsewhere]);
    // Its journal stays, and no one else may set anything meanwhile.
    let refusal = Applied::apply(&tree.place(), tree.host(), &wanted(&["mtu eth0 9000"]));
    assert!(refusal.err().unwrap().message.contains("still in force: mtu eth0"));
    enter("4026531840");
    assert_eq!(tree.restore()[0].outcome, Restoration::Restored);
    assert!(tree.restore().is_empty());
    // A namespace that is gone took its settings with it.
    killed_after_applying(&tree, &["mtu eth0 4148"]);
    enter("1");
    tree.put("proc/self/mountinfo", "");
    assert_eq!(tree.restore()[0].outcome, Restoration::Gone);
}

#[test]
fn a_run_finds_and_restores_what_another_left_behind() {
    let tree = Tree::new();
    let before = tree.snapshot();
    killed_after_applying(&tree, &["mtu eth0 4148"]);
    let chronicle = left_behind(&tree.place()).unwrap();
    assert_eq!(chronicle.begin.unwrap().pid, std::process::id());
    let (applied, rows) =
        Applied::apply(&tree.place(), tree.host(), &wanted(&["mtu eth0 9000"])).unwrap();
    assert_eq!(rows[0].outcome, Restoration::Restored);
    assert_eq!(applied.records()[0].before.to_string(), "1500");
    assert!(left_behind(&tree.place()).is_none(), "this one is at work");
    applied.undo();
    assert_eq!(tree.snapshot(), before);
}

/// With adaptive coalescing a driver changes its timers itself: that is not a foreign change.
#[test]
fn waits_of_a_driver_that_adapts_are_restored() {
    let engine = Engine::inherit(Tree::new().host(), Nowhere, Vec::new());
    let set = |adaptive: &str| journal::Change {
        number: 0,
        link: None,
        setting: "coalescing eth0 adaptive-rx=on".parse().unwrap(),
        before: SettingValue::one("rx-usecs", "30"),
        set: SettingValue::one("adaptive-rx", adaptive),
        verified: true,
        undone: false,
        kept: false,
    };
    assert!(engine.is_ours(&set("on"), "rx-usecs", ("30", "30", "64")));
    assert!(!engine.is_ours(&set("off"), "rx-usecs", ("30", "30", "64")));
    assert!(!engine.is_ours(&set("on"), "tx-usecs", ("30", "30", "64")));
}

#[test]
fn one_bytepath_at_a_time() {
    let tree = Tree::new();
    let (applied, _) = Applied::apply(&tree.place(), tree.host(), &[]).unwrap();
    for refusal in [
        Applied::apply(&tree.place(), tree.host(), &[]).err().unwrap(),
        restore(&tree.place(), tree.host()).unwrap_err(),
    ] {
        let who = format!("another bytepath (process {})", std::process::id());
        assert!(refusal.message.starts_with(&who), "{refusal}");
    }
    applied.undo();
    assert!(Applied::apply(&tree.place(), tree.host(), &[]).is_ok());
}

#[test]
fn a_preview_changes_nothing() {
    let tree = Tree::new();
    let before = tree.snapshot();
    let lines = ["mtu eth0 4148", "mtu mv0 1500", "sysctl net.core.none=1"];
    let records = preview(tree.host(), &wanted(&lines));
    assert_eq!(records[0].after.to_string(), "4148");
    assert_eq!(records[1].after, records[1].before);
    assert!(records[2].skipped.is_some());
    assert_eq!(tree.snapshot(), before);
    assert!(!tree.path("state").exists());
}

/// Makes settings one after the other, as a run does.
#[test]
fn a_preview_of_several_settings_of_the_same_goes_on_from_the_one_before() {
    let tree = Tree::new();
    let texts = |lines: &[&str]| -> Vec<String> {
        preview(tree.host(), &wanted(lines)).iter().map(ToString::to_string).collect()
    };
    let twice = texts(&["mtu eth0 4148", "sysctl net.core.rmem_max=1", "mtu eth0 4148"]);
    assert_eq!(
        twice,
        ["mtu eth0: 1500 -> 4148", "net.core.rmem_max: 212992 -> 1", "mtu eth0: 4148 already"]
    );
    let back = texts(&["mtu eth0 4148", "mtu eth0 1500", "rps eth0 0 1", "rps eth0 1 0"]);
    assert_eq!(back[1], "mtu eth0: 4148 -> 1500");
    let (applied, _) = Applied::apply(
        &tree.place(),
        tree.host(),
        &wanted(&["mtu eth0 4148", "mtu eth0 1500", "rps eth0 0 1", "rps eth0 1 0"]),
    )
    .unwrap();
    let made: Vec<String> = applied.records().iter().map(ToString::to_string).collect();
    assert_eq!(made, back);
}

/// Leaves the tree and the journal as a killed run does.
fn killed_after_applying(tree: &Tree, lines: &[&str]) {
    let place = tree.place();
    let lock = place.lock().unwrap();
    let journal = place.create(&lock).unwrap();
    let mut engine = Engine::begin(tree.host(), journal, Vec::new(), 0).unwrap();
    engine.apply(&wanted(lines)).unwrap();
}

#[test]
fn what_is_prepared_goes_before_what_lasts() {
    let tree = Tree::new();
    let before = tree.snapshot();
    let lasting = wanted(&["sysctl net.core.rmem_max=67108864"]);
    let (mut applied, _) = Applied::apply(&tree.place(), tree.host(), &lasting).unwrap();
    let usual = tree.snapshot();
    let asked = wanted(&["mtu eth0 4148", "threaded-napi eth0 on"]);
    for _ in 0..2 {
        assert_eq!(applied.prepare(&asked).unwrap().len(), 2);
        assert_ne!(tree.snapshot(), usual);
        // What a crash would leave to be restored.
        let chronicle = tree.place().read().unwrap().unwrap();
        assert_eq!(chronicle.changes.iter().filter(|change| !change.undone).count(), 3);
        let rows = applied.unprepare();
        let rows: Vec<String> = rows.iter().map(|row| row.setting.to_string()).collect();
        assert_eq!(rows, ["threaded-napi eth0 on", "mtu eth0 4148"]);
        assert_eq!(tree.snapshot(), usual);
    }
    // One that does not say what was requested takes the others of its kind with it, and
    // nothing else.
    let stubborn = tree.path("sys/class/net/eth0/threaded");
    let kept = fs::read(&stubborn).unwrap();
    fs::remove_file(&stubborn).unwrap();
    std::os::unix::fs::symlink("/dev/null", &stubborn).unwrap();
    let refused = applied.prepare(&asked).unwrap_err();
    assert!(refused.message.contains("threaded-napi eth0 on"), "{refused}");
    fs::remove_file(&stubborn).unwrap();
    fs::write(&stubborn, kept).unwrap();
    assert_eq!(tree.snapshot(), usual);
    applied.prepare(&asked).unwrap();
    assert_eq!(applied.records().len(), 1, "a preparation is not a setting of the study");
    assert_eq!(applied.undo().len(), 3);
    assert_eq!(tree.snapshot(), before);
    assert!(tree.place().read().unwrap().is_none());
}

/// There is no kernel for this tree, so the state stays; what was written says what would
/// have been done.
#[test]
fn a_part_of_dsa_is_enabled_by_its_driver() {
    let tree = Tree::new();
    let setting: Setting = "dsa wq0.0 state=enabled".parse().unwrap();
    let goal = SettingValue::one("state", "enabled");
    let mut host = tree.host();
    assert_eq!(host.goal(&setting, &SettingValue::one("state", "disabled")).unwrap(), goal);
    host.write(&setting, &goal).unwrap();
    assert_eq!(fs::read_to_string(tree.path("sys/bus/dsa/drivers/user/bind")).unwrap(), "wq0.0");
    host.write(&setting, &SettingValue::one("state", "disabled\n")).unwrap();
    assert_eq!(fs::read_to_string(tree.path("sys/bus/dsa/drivers/user/unbind")).unwrap(), "wq0.0");
    let state = host.read(&setting).unwrap().unwrap();
    assert_eq!(state.get("state").map(str::trim), Some("disabled"));
    let error = Applied::apply(&tree.place(), host, &[setting.into()]).err().unwrap();
    assert!(error.message.contains("the kernel accepted it, but it reads"), "{error}");
    assert_eq!(tree.host().read(&"dsa wq9.9 size=1".parse().unwrap()).unwrap(), None);
}

/// A machine with a DSA that is in use: the kernel resets the configuration of a part when that is
/// disabled, and takes no configuration before.
struct InUse<'t>(&'t Tree, ThisMachine);

const DSA_PARTS: &[(&str, &[(&str, &str)])] = &[
    ("dsa0", &[("state", "disabled\n")]),
    ("engine0.0", &[("group_id", "-1\n")]),
    ("wq0.0", &[("state", "disabled\n"), ("size", "0\n"), ("type", "none\n"), ("name", "\n")]),
    ("wq0.1", &[("state", "disabled\n"), ("size", "0\n"), ("type", "none\n"), ("name", "\n")]),
];

impl InUse<'_> {
    fn file(part: &str, attribute: &str) -> String {
        format!("sys/bus/dsa/devices/{part}/{attribute}")
    }

    fn is_enabled(&self, part: &str) -> bool {
        let path = self.0.path(&Self::file(part, "state"));
        fs::read_to_string(path).is_ok_and(|text| text.trim() == "enabled")
    }

    /// What the kernel does once a part was bound to its driver or unbound.
    fn bound(&self, part: &str, text: &str) {
        self.0.put(&Self::file(part, "state"), &format!("{}\n", text.trim()));
        if text.trim() == "enabled" {
            assert!(part == "dsa0" || self.is_enabled("dsa0"), "{part} before its device");
            return;
        }
        for (name, attributes) in DSA_PARTS.iter().filter(|p| part == "dsa0" || p.0 == part) {
            for (attribute, text) in *attributes {
                self.0.put(&Self::file(name, attribute), text);
            }
        }
    }
}

impl Machine for InUse<'_> {
    fn read(&mut self, setting: &Setting) -> Result<Option<SettingValue>, Fault> {
        self.1.read(setting)
    }

    fn goal(&mut self, setting: &Setting, before: &SettingValue) -> Result<SettingValue, Fault> {
        self.1.goal(setting, before)
    }

    fn write(&mut self, setting: &Setting, to: &SettingValue) -> Result<(), Fault> {
        for (name, text) in &to.0 {
            self.1.write(setting, &SettingValue::one(name, text))?;
            let Setting::Dsa { part, .. } = setting else { continue };
            match name.strip_suffix("state").map(str::trim) {
                Some("") => self.bound(part.as_str(), text),
                Some(queue) => self.bound(queue, text),
                None => assert!(!self.is_enabled("dsa0"), "{name} of an enabled device"),
            }
        }
        Ok(())
    }

    fn same(&self, setting: &Setting, a: &str, b: &str) -> bool {
        self.1.same(setting, a, b)
    }

    fn identity(&self) -> Identity {
        self.1.identity()
    }

    fn has_namespace(&self, namespace: &str) -> bool {
        self.1.has_namespace(namespace)
    }
}

#[test]
fn a_dsa_that_is_in_use_comes_back_with_its_configuration_and_its_queues() {
    let tree = Tree::new();
    for (part, attribute, text) in [
        ("dsa0", "state", "enabled"),
        ("engine0.0", "group_id", "0"),
        ("wq0.0", "state", "enabled"),
        ("wq0.0", "size", "16"),
        ("wq0.0", "type", "user"),
        ("wq0.0", "name", "app"),
        ("wq0.1", "state", "enabled"),
        ("wq0.1", "size", "8"),
        ("wq0.1", "type", "kernel"),
        ("wq0.1", "name", "dmaengine"),
    ] {
        tree.put(&InUse::file(part, attribute), &format!("{text}\n"));
    }
    for driver in ["idxd", "user", "dmaengine"] {
        for action in ["bind", "unbind"] {
            tree.put(&format!("sys/bus/dsa/drivers/{driver}/{action}"), "");
        }
    }
    let devices = || {
        let all = tree.snapshot().into_iter();
        let trimmed = all.map(|(path, text)| (path, String::from_utf8(text).unwrap()));
        let of_devices = trimmed.filter(|(path, _)| path.to_string_lossy().contains("dsa/devices"));
        of_devices.map(|(path, text)| (path, text.trim().to_owned())).collect::<BTreeMap<_, _>>()
    };
    let before = devices();
    let lines = [
        "dsa dsa0 state=disabled",
        "dsa wq0.0 size=128",
        "dsa wq0.0 type=user",
        "dsa dsa0 state=enabled",
    ];
    let machine = InUse(&tree, tree.host());
    let (applied, _) = Applied::apply(&tree.place(), machine, &wanted(&lines)).unwrap();
    assert_eq!(devices()[&tree.path(&InUse::file("wq0.0", "size"))], "128");
    assert_eq!(devices()[&tree.path(&InUse::file("wq0.1", "state"))], "disabled");
    let rows = applied.undo();
    let is_back = |row: &RestorationRow| {
        matches!(row.outcome, Restoration::Restored | Restoration::AlreadyBack)
    };
    assert!(rows.iter().all(is_back), "{rows:?}");
    assert_eq!(devices(), before);
    let bound = fs::read_to_string(tree.path("sys/bus/dsa/drivers/dmaengine/bind")).unwrap();
    assert_eq!(bound, "wq0.1", "by the driver of its type");
}

/// A NIC whose driver renews all interrupts when its number of queues changes: with other numbers,
/// for any CPU. `spare` ones come besides, but only at boot. While the file `late` has a number, so
/// many requests for queues bring only one of them.
struct Renewing<'t>(&'t Tree, ThisMachine);

impl Renewing<'_> {
    fn has(&self, queues: u32, spare: u32) {
        let device = self.0.path("sys/class/net/eth1");
        let first = fs::read_dir(device.join("device/msi_irqs")).map_or(40, |old| 60 + old.count());
        let _ = fs::remove_dir_all(&device);
        self.0.put("sys/class/net/eth1/combined", &queues.to_string());
        for queue in 0..queues {
            self.0.put(&format!("sys/class/net/eth1/queues/rx-{queue}/rps_cpus"), "0\n");
        }
        for irq in (first..).take((queues + spare) as usize) {
            self.0.put(&format!("sys/class/net/eth1/device/msi_irqs/{irq}"), "msix\n");
            self.0.put(&format!("proc/irq/{irq}/smp_affinity_list"), "0-3\n");
        }
    }

    fn steering(&self) -> SettingValue {
        queues::steering(&Roots::recorded(self.0.dir.path()), "eth1")
    }
}

impl Machine for Renewing<'_> {
    fn read(&mut self, _: &Setting) -> Result<Option<SettingValue>, Fault> {
        let mut parts = self.steering();
        let now = fs::read_to_string(self.0.path("sys/class/net/eth1/combined")).unwrap();
        parts.0.insert("combined".into(), now);
        Ok(Some(parts))
    }

    fn goal(&mut self, setting: &Setting, _: &SettingValue) -> Result<SettingValue, Fault> {
        Ok(access::parts_of(setting))
    }

    fn write(&mut self, _: &Setting, to: &SettingValue) -> Result<(), Fault> {
        let late: u32 =
            fs::read_to_string(self.0.path("late")).map_or(0, |text| text.parse().unwrap());
        if let Some(count) = to.get("combined") {
            self.has(if late > 0 { 1 } else { count.parse().unwrap() }, 0);
            self.0.put("sys/class/net/eth1/combined", count);
            self.0.put("late", &late.saturating_sub(1).to_string());
        }
        queues::steer(&Roots::recorded(self.0.dir.path()), "eth1", to).unwrap();
        Ok(())
    }

    fn same(&self, setting: &Setting, a: &str, b: &str) -> bool {
        self.1.same(setting, a, b)
    }

    fn identity(&self) -> Identity {
        self.1.identity()
    }

    fn has_namespace(&self, namespace: &str) -> bool {
        self.1.has_namespace(namespace)
    }
}

/// Also of those that were moved meanwhile, as irqbalance does: they are renewed once more.
#[test]
fn interrupts_that_a_driver_renews_with_its_queues_serve_the_cpus_that_they_did() {
    let tree = Tree::new();
    let card = || Renewing(&tree, tree.host());
    let pin = |place: usize, cpus: &str| {
        let mut all: Vec<_> = fs::read_dir(tree.path("sys/class/net/eth1/device/msi_irqs"))
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        all.sort();
        tree.put(&format!("proc/irq/{}/smp_affinity_list", all[place]), cpus);
    };
    for spare in [0, 1] {
        card().has(4, spare);
        (0..4).for_each(|place| pin(place, &format!("{place}\n")));
        tree.put("sys/class/net/eth1/queues/rx-3/rps_cpus", "3\n");
        let before = card().steering();
        assert_eq!(before.get("interrupt 2"), Some("2\n"));
        let lines = wanted(&["channels eth1 combined=2"]);
        let (applied, _) = Applied::apply(&tree.place(), card(), &lines).unwrap();
        assert_eq!(card().steering().get("interrupt 1"), Some("0-3\n"));
        pin(1, "2\n");
        let [row] = applied.undo().try_into().unwrap();
        assert_eq!(row.outcome, Restoration::Restored, "{row}");
        assert_eq!(row.note, ["", "interrupt 4 is no longer there"][spare as usize]);
        let mut expected = before;
        expected.0.retain(|name, _| name != "interrupt 4");
        assert_eq!(card().steering(), expected);
        assert!(!tree.place().journal().exists());
    }
}

/// As hv_netvsc creates them in the background.
#[test]
fn queues_that_a_driver_creates_later_get_back_what_serves_them() {
    let tree = Tree::new();
    let card = || Renewing(&tree, tree.host());
    card().has(4, 0);
    tree.put("sys/class/net/eth1/queues/rx-3/rps_cpus", "3\n");
    let before = card().steering();
    let lines = wanted(&["channels eth1 combined=2"]);
    let (applied, _) = Applied::apply(&tree.place(), card(), &lines).unwrap();
    tree.put("late", "3");
    let [row] = applied.undo().try_into().unwrap();
    assert_eq!((row.outcome, &row.note[..]), (Restoration::Restored, ""), "{row}");
    assert_eq!(card().steering(), before);
}

/// What a run gives up is no reason for the next one to give up what was restored then, and set
/// again.
#[test]
fn what_was_restored_and_set_again_is_waited_for() {
    let tree = Tree::new();
    let before = tree.snapshot();
    killed_after_applying(&tree, &["sysctl net.core.rmem_max=1000000", "mtu eth0 4148"]);
    let place = tree.place();
    let refusing = |fuse: &Fuse, times| Mortal {
        refusals: (times, "it is held"),
        refuses: "value",
        ..Mortal::new(&tree, fuse)
    };
    let outcomes = |rows: &[RestorationRow]| -> Vec<(String, Restoration)> {
        rows.iter().map(|row| (row.setting.subject(), row.outcome)).collect()
    };
    let expected =
        [("mtu eth0", Restoration::Restored), ("net.core.rmem_max", Restoration::Failed)];
    let expected = expected.map(|(subject, outcome)| (subject.to_owned(), outcome)).to_vec();
    let fuse = Rc::new(Cell::new(u32::MAX));
    let lines = wanted(&["mtu eth0 4148"]);
    let (applied, rows) = Applied::apply(&place, refusing(&fuse, 0), &lines).unwrap();
    assert_eq!(outcomes(&rows), expected);
    // The run is killed.
    fuse.set(0);
    drop(applied);
    let fuse = Rc::new(Cell::new(u32::MAX));
    let (applied, rows) = Applied::apply(&place, refusing(&fuse, 3), &[]).unwrap();
    assert_eq!(outcomes(&rows), expected, "the MTU was waited for");
    drop(applied);
    tree.restore();
    assert_eq!(tree.snapshot(), before);
}
