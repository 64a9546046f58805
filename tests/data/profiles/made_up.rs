//! Profiles of a made-up study: a cell that copies, and one that maps pages.

use bytepath::math::Random;
use bytepath::profile::waterfall::Trials;
use bytepath::profile::{
    Builder, Explanation, Frame, FrameKind, Header, Owner, Profile, Sample, Thread, Weight, Work,
    WorkUnit, explain, subsystem::Rules,
};
use bytepath::record::Role;

/// Functions of the sender and the receiver: stack from the root, CPU seconds per GiB in the cell
/// that copies and in the one that maps.
const STACKS: &[(Role, &[&str], f64, f64)] = &[
    (Role::Sender, &["main", "send", "do_syscall_64", "tcp_sendmsg", "_copy_from_iter"], 0.11, 0.0),
    (Role::Sender, &["main", "splice", "do_syscall_64", "splice_to_socket"], 0.0, 0.02),
    (Role::Sender, &["main", "send", "do_syscall_64", "tcp_sendmsg"], 0.05, 0.05),
    (
        Role::Receiver,
        &["main", "recv", "do_syscall_64", "tcp_recvmsg", "_copy_to_iter"],
        0.14,
        0.01,
    ),
    (Role::Receiver, &["main", "recv", "do_syscall_64", "tcp_recvmsg"], 0.03, 0.02),
    (
        Role::Receiver,
        &["main", "getsockopt", "do_syscall_64", "tcp_zerocopy_receive", "vm_insert_pages"],
        0.0,
        0.06,
    ),
    (Role::Receiver, &["main", "touch"], 0.02, 0.02),
];

/// Packets in the 4 GiB of a trial: 64 KiB each.
pub const PACKETS: f64 = 65536.0;

/// One profile trial of 4 GiB. `noise` is a relative error added to every function's cost.
pub fn trial(title: &str, maps: bool, noise: f64, hostile: &str) -> Profile {
    let mut builder = Builder::new(Header {
        title: title.to_owned(),
        event: "cpu-clock".into(),
        weight: Weight::Nanoseconds,
        work: Work { bytes: Some(4.0 * 1073741824.0), packets: Some(PACKETS) },
        ..Header::default()
    });
    for (i, (role, stack, copies, with)) in STACKS.iter().enumerate() {
        let cost = if maps { *with } else { *copies };
        if cost == 0.0 {
            continue;
        }
        let mut ids: Vec<_> = stack
            .iter()
            .map(|name| {
                let user = ["main", "send", "recv", "splice", "getsockopt", "touch"];
                let kind = if user.contains(name) { FrameKind::User } else { FrameKind::Kernel };
                let function = format!("{name}{}", if *name == "main" { hostile } else { "" });
                builder.frame(Frame { function, kind, ..Frame::default() })
            })
            .collect();
        ids.reverse();
        let stack = builder.stack(&ids);
        let thread = builder.thread(Thread { name: role.to_string(), ..Thread::default() });
        // Neighbours err in opposite directions.
        let off = 1.0 + if i % 2 == 0 { noise } else { -noise };
        builder.add(Sample {
            stack,
            thread,
            owner: Owner::Role(*role),
            cpu: Some(*role as u32),
            time: None,
            count: 100,
            weight: cost * off * 4e9,
        });
    }
    builder.build()
}

/// Compares `trials` trials of each cell, with errors of a few percent, per GiB.
pub fn explanation(trials: usize, hostile: &str) -> Explanation {
    explanation_per(WorkUnit::Gib, trials, hostile)
}

/// Like [`explanation`], per any unit of work.
pub fn explanation_per(unit: WorkUnit, trials: usize, hostile: &str) -> Explanation {
    let of = |maps| -> Vec<Profile> {
        let noise = [0.0, 0.03, -0.02];
        (0..trials).map(|i| trial(&format!("trial {i}"), maps, noise[i % 3], hostile)).collect()
    };
    let (copies, maps) = (of(false), of(true));
    let cell = |name| format!("{name}{hostile}");
    let scale = match unit {
        WorkUnit::Gib => 1.0,
        WorkUnit::Packet => 4e9 / PACKETS,
        WorkUnit::Run => 4.0,
    };
    let metered = |mean: f64| -> Vec<f64> {
        let noise = [0.0, 0.002, -0.002];
        (0..trials).map(|i| (mean + noise[i % 3]) * scale).collect()
    };
    let (copying, mapping) = (metered(0.36), metered(0.19));
    explain(
        &Trials { cell: &cell("socket"), profiles: &copies, metered: &copying },
        &[Trials { cell: &cell("tcp-zerocopy-receive"), profiles: &maps, metered: &mapping }],
        Rules::built_in(),
        unit,
    )
    .unwrap()
}

/// A baseline and this many other cells of a study, each with a few hundred functions in stacks as
/// deep and as uneven as those of a kernel that moves a stream.
pub fn realistic(others: usize) -> Explanation {
    let cells: Vec<String> = (0..=others).map(|at| format!("path-{at}")).collect();
    let profiles: Vec<Vec<Profile>> =
        cells.iter().zip(0..).map(|(cell, at)| vec![grown(cell, at)]).collect();
    let trials: Vec<Trials> = cells
        .iter()
        .zip(&profiles)
        .map(|(cell, profiles)| Trials { cell, profiles, metered: &[] })
        .collect();
    explain(&trials[0], &trials[1..], Rules::built_in(), WorkUnit::Gib).unwrap()
}

/// A profile whose stacks branch at random: most of its weight is in a few of them, and the larger
/// branches are the same for all seeds.
fn grown(title: &str, seed: u64) -> Profile {
    const FIRST: [&str; 8] = ["tcp", "skb", "__netif", "io_uring", "ip", "net", "sock", "napi"];
    const THEN: [&str; 9] =
        ["receive", "sendmsg", "queue", "alloc", "copy", "zerocopy", "process", "free", "poll"];
    const LAST: [&str; 6] = ["locked", "established", "core", "fast_path", "bulk", "slow"];
    let mut builder = Builder::new(Header {
        title: title.to_owned(),
        event: "cpu-clock".into(),
        weight: Weight::Nanoseconds,
        work: Work { bytes: Some(4.0 * 1073741824.0), packets: Some(PACKETS) },
        ..Header::default()
    });
    let mut chance = Random::new(7);
    let mut own = Random::new(seed);
    let mut open: Vec<(Role, Vec<String>, f64)> =
        Role::ALL.map(|role| (role, vec!["bytepath".to_owned()], 4e9)).to_vec();
    while let Some((role, stack, weight)) = open.pop() {
        let deep = stack.len() > 28 || weight < 2e6;
        let branches = if deep { 0 } else { 1 + chance.below(2) };
        let mut left = weight;
        for _ in 0..branches {
            let name = [FIRST[chance.below(8)], THEN[chance.below(9)], LAST[chance.below(6)]];
            let part = left * (0.74 + 0.25 * chance.uniform()) * (0.95 + 0.05 * own.uniform());
            left -= part;
            open.push((role, [&stack[..], &[name.join("_")]].concat(), part));
        }
        let frame = |function: &String| Frame {
            function: function.clone(),
            kind: FrameKind::Kernel,
            ..Frame::default()
        };
        let ids: Vec<_> = stack.iter().rev().map(|name| builder.frame(frame(name))).collect();
        let stack = builder.stack(&ids);
        let thread = builder.thread(Thread { name: role.to_string(), ..Thread::default() });
        let owner = Owner::Role(role);
        builder.add(Sample { stack, thread, owner, cpu: None, time: None, count: 1, weight: left });
    }
    builder.build()
}
