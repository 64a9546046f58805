//! Parses which CPUs the work runs on: a short form, parts by name, or both.

use super::options::{suggest, usage};
use bytepath_record::{CpuTurns, Facts, Fault, Placement, Role, SoftirqCpu, joined};

/// A placement and how ids name it (empty for the default).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlacementSpec {
    /// The CPUs.
    pub placement: Placement,
    /// Part of a cell's id.
    pub difference: String,
}

/// CPUs to choose from, the best first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Cpus {
    /// Both hosts share a machine.
    Shared(Vec<u32>),
    /// Each host has a machine of its own, the sender's first.
    Apart([Vec<u32>; 2]),
}

impl Cpus {
    /// Returns the CPUs of a role's host.
    pub fn of(&self, role: Role) -> &[u32] {
        match self {
            Cpus::Shared(cpus) => cpus,
            Cpus::Apart(cpus) => &cpus[role as usize],
        }
    }

    /// Returns the CPUs of the hosts with these facts and devices. If both hosts are on one
    /// machine, those that both may use. CPUs on the NUMA node of a role's device come first.
    pub fn of_hosts([sender, receiver]: [&Facts; 2], devices: &[Vec<String>; 2]) -> Cpus {
        let cpus = [by_preference(sender, &devices[0]), by_preference(receiver, &devices[1])];
        if sender.shares_machine(receiver) { Cpus::between(cpus) } else { Cpus::Apart(cpus) }
    }

    /// Like [`Self::of_hosts`], for both roles on this machine.
    pub fn of_machine(facts: &Facts, devices: &[Vec<String>; 2]) -> Cpus {
        Cpus::between(devices.each_ref().map(|devices| by_preference(facts, devices)))
    }

    /// Combines the CPUs of one machine that each role may use.
    fn between([sender, receiver]: [Vec<u32>; 2]) -> Cpus {
        let both: Vec<u32> = sender.iter().filter(|cpu| receiver.contains(cpu)).copied().collect();
        if both.is_empty() {
            return Cpus::Apart([sender, receiver]);
        }
        // Alternately, as they are assigned.
        let mut shared: Vec<u32> = Vec::with_capacity(both.len());
        for at in 0..both.len() {
            let preferred = if at % 2 == 0 { &sender } else { &receiver };
            let free = |cpu: &&u32| both.contains(cpu) && !shared.contains(cpu);
            shared.extend(preferred.iter().find(free).copied());
        }
        Cpus::Shared(shared)
    }

    /// Returns the default short form: `one` if the machine has only one CPU.
    pub fn usual(&self) -> &'static str {
        match self {
            Cpus::Shared(cpus) if cpus.len() == 1 => "one",
            _ => SHORT_FORMS[0].0,
        }
    }

    /// The CPU of a role's threads (0), or one for the softirqs of its device that runs none of
    /// the threads (1).
    fn nth(&self, at: usize, role: Role) -> Option<u32> {
        match self {
            Cpus::Shared(cpus) => nth(cpus, 2 * at + role as usize),
            Cpus::Apart(cpus) => nth(&cpus[role as usize], at),
        }
    }
}

/// Returns the CPUs that a host may use, best first: those on the NUMA node of its device before
/// others; among these the first thread of every core, then the siblings.
fn by_preference(facts: &Facts, devices: &[String]) -> Vec<u32> {
    let near = devices.iter().filter_map(|device| facts.cpus_near(device));
    let near: Vec<u32> = near.flatten().copied().collect();
    let mut cpus = facts.cpus.clone();
    let shares = |cpu: &u32| {
        let core = facts.siblings.iter().find(|core| core.contains(cpu));
        core.is_some_and(|core| core.iter().any(|other| other < cpu && facts.cpus.contains(other)))
    };
    cpus.sort_by_key(|cpu| (!near.contains(cpu), shares(cpu), *cpu));
    cpus
}

impl Default for Cpus {
    fn default() -> Cpus {
        Cpus::Shared(Vec::new())
    }
}

impl<T: AsRef<[u32]>> From<T> for Cpus {
    fn from(cpus: T) -> Cpus {
        Cpus::Shared(cpus.as_ref().to_vec())
    }
}

/// One of these CPUs; beyond the last, the next numbers. `None` if there are none.
fn nth(cpus: &[u32], at: usize) -> Option<u32> {
    let past = |last: &u32| last.saturating_add((at + 1).saturating_sub(cpus.len()) as u32);
    cpus.get(at).copied().or_else(|| cpus.iter().max().map(past))
}

/// The short forms, their other name, and what they mean.
pub const SHORT_FORMS: &[(&str, &str, &str)] = &[
    ("two", "two-cores", "sender and receiver on a CPU each"),
    ("one", "one-core", "both on one CPU"),
    ("none", "unpinned", "wherever the scheduler puts them"),
    ("together", "together", "each end on its own CPU, which also takes its device's interrupts"),
    ("apart", "apart", "each end on its own CPU, and the softirqs of its device on another"),
];

/// The parts of the work that can be named, and what each is.
pub const PARTS: [(&str, &str); 6] = [
    ("sender", "the sender's threads"),
    ("receiver", "the receiver's threads"),
    ("sender-softirq", "the kernel's work for the sender's device"),
    ("softirq", "the kernel's receive work: the link's polling thread, a NIC's interrupts, RPS"),
    ("io-wq", "io_uring's worker threads"),
    ("vhost", "the vhost thread of a virtual machine's device, and of the path vhost"),
];

/// Parses a placement: `two-cores` (the default) or another of [`SHORT_FORMS`], two CPU
/// numbers `S,R`, or parts by name as in `sender=0,receiver=1,softirq=1,io-wq=0`,
/// alone or after one of the others. A part goes to a CPU, is `free`, or goes where
/// the `sender` or the `receiver` is; flows or adapters take several CPUs in turn
/// (`receiver=0+1,softirq=receiver`). `cpus` are those that may be used; others are an
/// error.
pub fn parse_cores(text: &str, cpus: impl Into<Cpus>) -> Result<PlacementSpec, Fault> {
    let cpus = cpus.into();
    let cores = place(text, &cpus)?;
    let misplaced = Role::ALL.into_iter().find_map(|role| {
        let usable = cpus.of(role);
        let (part, cpu) = cores.placement.named_at(role).find(|(_, cpu)| !usable.contains(cpu))?;
        Some((part, cpu, usable))
    });
    let Some((part, cpu, usable)) = misplaced else { return Ok(cores) };
    if let Some(short) = short_form(text.trim()) {
        let text = format!("'{short}' takes more CPUs than the {} that may be used", usable.len());
        return Err(usage(text).remedy("--cores one-core, or --cores unpinned"));
    }
    Err(usage(format!("CPU {cpu} does not exist or may not be used ({part})"))
        .remedy(format!("this process may use {}", joined(usable, ", "))))
}

/// Like [`parse_cores`], but a missing CPU is not an error: an experiment
/// is written once for many machines. A short form that takes more CPUs than there are
/// continues with the next numbers.
pub fn read_cores(text: &str, cpus: impl Into<Cpus>) -> Result<PlacementSpec, Fault> {
    place(text, &cpus.into())
}

fn place(text: &str, cpus: &Cpus) -> Result<PlacementSpec, Fault> {
    let [Some(sender), Some(receiver)] = Role::ALL.map(|role| cpus.nth(0, role)) else {
        return Err(usage("it is not known which CPUs may be used")
            .remedy("mount proc on /proc, whose self/status tells"));
    };
    let words: Vec<&str> = text.split(',').map(str::trim).collect();
    let short = short_form(words[0]);
    let pinned = Placement::pinned(sender, receiver);
    let softirqs = |cpus: [Option<u32>; 2]| {
        let [sender_softirq, softirq] =
            cpus.map(|cpu| cpu.map_or(SoftirqCpu::Link, SoftirqCpu::Cpu));
        Placement { sender_softirq, softirq, ..pinned }
    };
    let (mut placement, parts) = match (short, &words[..]) {
        (Some("two"), [_, parts @ ..]) => (pinned, parts),
        (Some("one"), _) if matches!(cpus, Cpus::Apart(_)) => {
            let text = "two hosts cannot share a CPU, as 'one' requires";
            return Err(usage(text).remedy("write 'together': one CPU at each end"));
        }
        (Some("one"), [_, parts @ ..]) => (Placement::pinned(sender, sender), parts),
        (Some("together"), [_, parts @ ..]) => (softirqs([Some(sender), Some(receiver)]), parts),
        (Some("apart"), [_, parts @ ..]) => {
            (softirqs(Role::ALL.map(|role| cpus.nth(1, role))), parts)
        }
        (Some(_), [_, parts @ ..]) => (Placement::default(), parts),
        (None, [word, ..]) if word.contains('=') => (Placement::default(), &words[..]),
        (None, [sender, receiver, parts @ ..]) => {
            let cpu = |word: &str| word.parse().map_err(|_| wrong(text));
            (Placement::pinned(cpu(sender)?, cpu(receiver)?), parts)
        }
        _ => return Err(wrong(text)),
    };
    let mut requested: Vec<(&str, &str)> = Vec::new();
    for part in parts {
        let (part, value) = read_part(text, part)?;
        if requested.iter().any(|(other, _)| *other == part) {
            return Err(usage(format!("'{part}' is given twice in '{text}'")));
        }
        requested.push((part, value));
    }
    let of_roles = requested.iter().any(|(part, _)| matches!(*part, "sender" | "receiver"));
    let (short, base) = if of_roles { (None, Placement::default()) } else { (short, placement) };
    // The threads first: other parts may go where they are.
    requested.sort_by_key(|(part, _)| PARTS.iter().position(|(name, _)| name == part));
    for (part, value) in requested {
        put(&mut placement, text, part, value)?;
    }
    let difference = difference(&placement, short, &base);
    Ok(PlacementSpec { placement, difference })
}

/// One of [`SHORT_FORMS`], by its first name.
fn short_form(word: &str) -> Option<&'static str> {
    let form = SHORT_FORMS.iter().find(|(name, other, _)| [*name, *other].contains(&word));
    form.map(|(name, ..)| *name)
}

/// Parses one `PART=VALUE` word.
fn read_part<'t>(text: &str, word: &'t str) -> Result<(&'static str, &'t str), Fault> {
    let (name, value) = word.split_once('=').ok_or_else(|| wrong(text))?;
    let name = name.trim();
    let Some((part, _)) = PARTS.iter().find(|(part, _)| *part == name) else {
        let fault = usage(format!("'{name}' in '{text}' is not a part of the work"));
        return Err(suggest(fault, name, PARTS.map(|(part, _)| part)));
    };
    Ok((part, value.trim()))
}

fn put(placement: &mut Placement, text: &str, part: &str, value: &str) -> Result<(), Fault> {
    let with = |role: Role| match &placement.cpus(role)[..] {
        [] => {
            let text = format!("{part} cannot go with the {role}, which has no CPU");
            Err(usage(text).remedy(format!("give the {role} a CPU, or {part} a number")))
        }
        cpus => Ok(cpus.to_vec()),
    };
    let number = |word: &str| {
        word.parse().map_err(|_| {
            usage(format!("'{value}' in '{text}' is not a place for '{part}'"))
                .remedy("write a CPU number, several as in 0+1, free, sender or receiver")
        })
    };
    let cpus: Vec<u32> = match value {
        "free" => Vec::new(),
        "sender" if part != "sender" => with(Role::Sender)?,
        "receiver" if part != "receiver" => with(Role::Receiver)?,
        numbers => numbers.split('+').map(number).collect::<Result<_, _>>()?,
    };
    let (cpu, turns) = match cpus[..] {
        [] => (None, CpuTurns::NONE),
        [cpu] => (Some(cpu), CpuTurns::NONE),
        [cpu, ref more @ ..] if more.iter().all(|other| *other == cpu) => {
            let text = format!("'{value}' in '{text}' is CPU {cpu} each time");
            return Err(usage(text).remedy(format!("write {part}={cpu}")));
        }
        _ => (None, CpuTurns::try_from(cpus)?),
    };
    let several = turns != CpuTurns::NONE;
    let softirq = match cpu {
        _ if several => SoftirqCpu::Turns(turns),
        Some(cpu) => SoftirqCpu::Cpu(cpu),
        None => SoftirqCpu::Free,
    };
    match part {
        "sender" => (placement.sender, placement.sender_turns) = (cpu, turns),
        "receiver" => (placement.receiver, placement.receiver_turns) = (cpu, turns),
        "sender-softirq" => placement.sender_softirq = softirq,
        "softirq" => placement.softirq = softirq,
        _ if several => {
            let text = format!("'{part}' in '{text}' takes one CPU, not {turns}");
            return Err(usage(text).remedy("name one"));
        }
        "io-wq" => placement.io_wq = cpu,
        _ => placement.vhost = cpu,
    }
    Ok(())
}

/// Returns how ids name a placement: `cores=0/1/softirq=1`. With commas in place of the slashes it
/// parses as the same placement. Leaves out what follows from the base.
fn difference(placement: &Placement, short: Option<&str>, base: &Placement) -> String {
    let Placement { sender, receiver, io_wq, vhost, .. } = *placement;
    let mut words = vec![match (short, sender, receiver) {
        (Some(name), ..) => name.to_owned(),
        (_, Some(sender), Some(receiver)) => format!("{sender}/{receiver}"),
        _ => "none".to_owned(),
    }];
    if sender.is_none() || receiver.is_none() {
        for role in Role::ALL {
            let cpus = placement.cpus(role);
            words.extend((!cpus.is_empty()).then(|| format!("{role}={}", joined(cpus, "+"))));
        }
    }
    for (part, role) in [("sender-softirq", Role::Sender), ("softirq", Role::Receiver)] {
        match placement.softirq(role) {
            softirq if softirq == base.softirq(role) => {}
            SoftirqCpu::Link => {}
            SoftirqCpu::Free => words.push(format!("{part}=free")),
            SoftirqCpu::Cpu(cpu) => words.push(format!("{part}={cpu}")),
            SoftirqCpu::Turns(cpus) => words.push(format!("{part}={cpus}")),
        }
    }
    words.extend(io_wq.map(|cpu| format!("io-wq={cpu}")));
    words.extend(vhost.map(|cpu| format!("vhost={cpu}")));
    let words = words.join("/");
    if words == SHORT_FORMS[0].0 { String::new() } else { format!("cores={words}") }
}

fn wrong(text: &str) -> Fault {
    usage(format!("'{text}' is not a placement")).remedy(
        "write two-cores, one-core, together, apart, unpinned, two CPU numbers (sender,receiver), or \
         parts as in sender=0,receiver=1,softirq=1,io-wq=0",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn placed(text: &str) -> Placement {
        parse_cores(text, [0, 1, 2]).unwrap().placement
    }

    #[test]
    fn threads_and_adapters_take_several_cpus_in_turn() {
        let turns = |cpus: &[u32]| CpuTurns::try_from(cpus.to_vec()).unwrap();
        let spread = placed("sender=0,receiver=1+2,softirq=receiver");
        assert_eq!((spread.sender, spread.receiver), (Some(0), None));
        assert_eq!(spread.receiver_turns, turns(&[1, 2]));
        assert_eq!(spread.softirq, SoftirqCpu::Turns(turns(&[1, 2])));
        for (text, id) in [
            ("sender=0,receiver=1+2,softirq=receiver", "none/sender=0/receiver=1+2/softirq=1+2"),
            ("two,softirq=1+0", "two/softirq=1+0"),
            ("receiver=2+0,sender=1+2", "none/sender=1+2/receiver=2+0"),
        ] {
            let spec = parse_cores(text, [0, 1, 2]).unwrap();
            assert_eq!(spec.difference, format!("cores={id}"));
            assert_eq!(placed(&id.replace('/', ",")), spec.placement, "{id} is read as the same");
        }
        let refused = |text: &str| parse_cores(text, [0, 1]).unwrap_err().to_string();
        assert!(refused("two,softirq=0+7").contains("CPU 7 does not exist"));
        assert!(refused("two,softirq=0+x").contains("'0+x' in 'two,softirq=0+x' is not a place"));
        assert!(refused("two,io-wq=0+1").contains("takes one CPU, not 0+1"));
    }

    #[test]
    fn placements() {
        let cpus = |text: &str, allowed: &[u32]| {
            parse_cores(text, allowed).map(|c| (c.placement.sender, c.placement.receiver))
        };
        assert_eq!(cpus("two", &[0, 1, 2]).unwrap(), (Some(0), Some(1)));
        assert_eq!(cpus("two-cores", &[0, 1, 2]).unwrap(), (Some(0), Some(1)));
        assert_eq!(cpus("one", &[3]).unwrap(), (Some(3), Some(3)));
        assert_eq!(cpus("one-core", &[3]).unwrap(), (Some(3), Some(3)));
        assert_eq!(cpus("none", &[0]).unwrap(), (None, None));
        assert_eq!(cpus("unpinned", &[0]).unwrap(), (None, None));
        assert_eq!(cpus("2, 0", &[0, 2]).unwrap(), (Some(2), Some(0)));
        let elsewhere = |text: &str| read_cores(text, [0]).unwrap().placement;
        assert_eq!(elsewhere("0,7"), Placement::pinned(0, 7));
        assert_eq!(elsewhere("two"), Placement::pinned(0, 1));
        assert!(cpus("two", &[0]).unwrap_err().remedy.unwrap().contains("one-core"));
        assert!(cpus("0,7", &[0, 1]).unwrap_err().message.contains("CPU 7"));
        assert!(cpus("left", &[0, 1]).unwrap_err().message.contains("'left'"));
    }

    #[test]
    fn parts_by_name_alone_and_after_a_short_form() {
        let all =
            Placement { softirq: SoftirqCpu::Cpu(1), io_wq: Some(0), ..Placement::pinned(0, 1) };
        assert_eq!(placed("sender=0,receiver=1,softirq=1,io-wq=0"), all);
        assert_eq!(placed("two-cores, softirq = receiver, io-wq=sender"), all);
        assert_eq!(placed("0,1,softirq=1,io-wq=sender"), all);
        let free = Placement { softirq: SoftirqCpu::Free, ..Placement::pinned(0, 1) };
        assert_eq!(placed("two-cores,softirq=free"), free);
        let half = Placement { receiver: Some(2), ..Placement::default() };
        assert_eq!(placed("receiver=2"), half);
        assert_eq!(placed("unpinned,receiver=2"), half);
        assert_eq!(placed("one-core,receiver=free").receiver, None);
        assert_eq!(placed("two,vhost=2").vhost, Some(2));
    }

    #[test]
    fn threads_and_softirqs_of_each_end_together_or_apart() {
        let four = |sender, receiver, sender_softirq, softirq| Placement {
            sender_softirq: SoftirqCpu::Cpu(sender_softirq),
            softirq: SoftirqCpu::Cpu(softirq),
            ..Placement::pinned(sender, receiver)
        };
        let placed = |text: &str, cpus: &Cpus| {
            let cores = parse_cores(text, cpus.clone());
            cores.map(|cores| (cores.placement, cores.difference))
        };
        let one = Cpus::from([0, 1, 4, 5]);
        assert_eq!(placed("together", &one), Ok((four(0, 1, 0, 1), "cores=together".into())));
        assert_eq!(placed("apart", &one), Ok((four(0, 1, 4, 5), "cores=apart".into())));
        // On a machine each, the numbers of both may be the same.
        let two = Cpus::Apart([vec![8, 9], vec![2, 3]]);
        assert_eq!(placed("together", &two).unwrap().0, four(8, 2, 8, 2));
        assert_eq!(placed("apart", &two).unwrap().0, four(8, 2, 9, 3));
        assert_eq!(placed("two", &two).unwrap().0, Placement::pinned(8, 2));
        assert!(placed("one", &two).unwrap_err().to_string().contains("together"));
        assert!(placed("sender=2,receiver=2", &two).unwrap_err().message.contains("CPU 2"));
        // CPUs that do not exist are numbered on, for a machine that has them.
        let small = Cpus::from([0, 1]);
        let wrong = placed("apart", &small).unwrap_err();
        assert!(wrong.message.contains("more CPUs than the 2"), "{wrong}");
        assert_eq!(read_cores("apart", small).unwrap().placement, four(0, 1, 2, 3));
    }

    #[test]
    fn cpus_are_those_of_the_hosts() {
        let facts = |machine: &str, cpus: &[u32]| Facts {
            machine: machine.into(),
            cpus: cpus.to_vec(),
            siblings: vec![vec![0, 4], vec![1, 5]],
            ..Facts::default()
        };
        let of = |one: &Facts, other: &Facts| Cpus::of_hosts([one, other], &Default::default());
        let (a, b) = (facts("a", &[0, 1, 4, 5, 9]), facts("b", &[4, 5]));
        // Threads of one core come last, unless their siblings may not be used.
        assert_eq!(of(&a, &b), Cpus::Apart([vec![0, 1, 9, 4, 5], vec![4, 5]]));
        // Two places of one machine have its CPUs between them.
        assert_eq!(of(&a, &a), Cpus::Shared(vec![0, 1, 9, 4, 5]));
        assert_eq!(of(&a, &facts("a", &[1, 9])), Cpus::Shared(vec![1, 9]));
        let elsewhere = facts("a", &[6]);
        assert_eq!(of(&a, &elsewhere), Cpus::Apart([vec![0, 1, 9, 4, 5], vec![6]]));
        assert_eq!([Cpus::from([3]).usual(), of(&b, &elsewhere).usual()], ["one", "two"]);
        // Two hosts whose names could not be read are two; one of them is itself.
        let unnamed = facts("", &[0, 1]);
        assert_eq!(of(&unnamed, &unnamed), Cpus::Apart([vec![0, 1], vec![0, 1]]));
        assert_eq!(Cpus::of_machine(&unnamed, &Default::default()), Cpus::Shared(vec![0, 1]));
    }

    #[test]
    fn cpus_near_the_nic_come_first() {
        let machine = |name: &str| Facts {
            machine: name.into(),
            cpus: (0..8).collect(),
            siblings: vec![vec![0, 2], vec![4, 6], vec![5, 7]],
            nodes: [(0, vec![0, 1, 2, 3]), (1, vec![4, 5, 6, 7])].into(),
            settings: [("nic.eth0.node", "0"), ("nic.eth1.node", "1"), ("nic.eth2.node", "-1")]
                .map(|(name, value)| (name.to_owned(), value.to_owned()))
                .into(),
            ..Facts::default()
        };
        let (a, b) = (machine("a"), machine("b"));
        let on = |device: &str| vec![device.to_owned()];
        let of = |a, b, devices: [Vec<String>; 2]| Cpus::of_hosts([a, b], &devices);
        let near_1 = vec![4, 5, 6, 7, 0, 1, 3, 2];
        let near_0 = vec![0, 1, 3, 2, 4, 5, 6, 7];
        assert_eq!(
            of(&a, &b, [on("eth1"), on("eth0")]),
            Cpus::Apart([near_1.clone(), near_0.clone()])
        );
        assert_eq!(of(&a, &a, [on("eth1"), on("eth1")]), Cpus::Shared(near_1));
        // A NIC on each node of one machine: each end has CPUs of its own.
        let both = of(&a, &a, [on("eth0"), on("eth1")]);
        assert_eq!(both, Cpus::Shared(vec![0, 4, 1, 5, 3, 6, 2, 7]));
        let apart = parse_cores("apart", both).unwrap().placement;
        assert_eq!((apart.sender, apart.sender_softirq), (Some(0), SoftirqCpu::Cpu(1)));
        assert_eq!((apart.receiver, apart.softirq), (Some(4), SoftirqCpu::Cpu(5)));
        // NICs of an end on both nodes: each CPU is near one of them.
        let of_both_nodes = ["eth0", "eth1"].map(str::to_owned).to_vec();
        assert_eq!(
            of(&a, &b, [of_both_nodes, on("eth0")]),
            Cpus::Apart([vec![0, 1, 3, 4, 5, 2, 6, 7], near_0.clone()])
        );
        // No node, or one that is not known, changes nothing.
        let plain = Cpus::Shared(vec![0, 1, 3, 4, 5, 2, 6, 7]);
        assert_eq!(of(&a, &a, [on("eth2"), on("eth9")]), plain);
    }

    #[test]
    fn every_id_reads_back_as_its_placement() {
        for text in [
            "two",
            "one",
            "none",
            "2,0",
            "two,softirq=0",
            "one,softirq=free",
            "0,1,softirq=2,io-wq=1,vhost=2",
            "receiver=1",
            "sender=1,softirq=0",
            "two,receiver=2",
            "together",
            "apart",
            "apart,softirq=0",
            "together,receiver=2",
            "two,sender-softirq=sender,softirq=free",
        ] {
            let read = read_cores(text, [0, 1, 2]).unwrap();
            let id = read.difference.strip_prefix("cores=").unwrap_or("two");
            assert!(!id.contains([',', ' ']), "{id}");
            assert_eq!(
                read_cores(&id.replace('/', ","), [0, 1, 2]),
                Ok(read.clone()),
                "{text}: {id}"
            );
        }
        let id = |text: &str| read_cores(text, [0, 1]).unwrap().difference;
        assert_eq!(
            [id("two-cores"), id("one-core"), id("unpinned")],
            ["", "cores=one", "cores=none"]
        );
        assert_eq!(id("1,0"), "cores=1/0");
        assert_eq!(id("two,softirq=sender"), "cores=two/softirq=0");
    }

    #[test]
    fn errors_say_what_would_be_right() {
        let wrong = |text: &str| parse_cores(text, [0, 1]).unwrap_err().to_string();
        assert!(wrong("softirc=1").contains("did you mean 'softirq'?"), "{}", wrong("softirc=1"));
        assert!(wrong("softirq=5").contains("CPU 5") && wrong("softirq=5").contains("(softirq)"));
        assert!(wrong("softirq=all").contains("'all'"));
        assert!(wrong("sender=0,sender=1").contains("twice"));
        assert!(wrong("unpinned,softirq=receiver").contains("has no CPU"));
        assert!(wrong("sender=sender").contains("not a place"));
        for text in ["", ",", "0", "0,1,2", "two,one", "sender", "0,softirq=1"] {
            assert!(wrong(text).contains("is not a placement"), "{text}: {}", wrong(text));
        }
    }
}
