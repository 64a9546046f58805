//! The threads that work for a role: those of its flows, and helpers and kernel threads that work
//! for them. Used by `threads` and `counters`.

use super::Context;
use bytepath_profile::attribution::is_virtual_cpu;
use bytepath_record::{Role, Work};
use bytepath_sys::netlink::Netlink;
use bytepath_sys::{pktgen, procfs, vhost};
use std::path::{Path, PathBuf};

/// A thread that works for a role.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Worker {
    /// Its folder below `/proc`.
    pub dir: PathBuf,
    pub tid: u32,
    pub name: String,
}

impl Worker {
    /// Returns the name of its kind of threads.
    pub(crate) fn group(&self) -> &'static str {
        let group = GROUPS.iter().find(|(start, _)| self.name.starts_with(start));
        group.map_or("flows", |(_, group)| group)
    }

    /// Like [`Worker::group`], for threads that run a guest.
    pub(crate) fn group_in_qemu(&self) -> &'static str {
        match self.name.as_str() {
            name if name.starts_with(vhost::WORKER) => "vhost",
            name if is_virtual_cpu(name) => "vCPU",
            _ => "qemu",
        }
    }

    /// Reads the thread of this id in a folder of threads. `None` if it has ended.
    fn read(folder: &Path, tid: u32) -> Option<Worker> {
        let dir = folder.join(tid.to_string());
        let name = procfs::name(&dir)?;
        Some(Worker { dir, tid, name })
    }
}

impl From<(PathBuf, u32, String)> for Worker {
    fn from((dir, tid, name): (PathBuf, u32, String)) -> Worker {
        Worker { dir, tid, name }
    }
}

/// Prefixes of names of kernel threads, and their groups.
const GROUPS: [(&str, &str); 5] = [
    ("iou-wrk-", "io_uring"),
    ("iou-sqp-", "io_uring"),
    (vhost::WORKER, "vhost"),
    (pktgen::THREAD, "pktgen"),
    ("napi/", "napi"),
];

/// Returns the threads of the flows, the kernel's workers among the threads of this process, and,
/// if the flows carry frames, those of vhost and pktgen, which may be kernel threads.
pub(crate) fn of_role(context: &Context) -> Vec<Worker> {
    let proc = &context.roots.proc;
    let tasks = proc.join("self/task");
    let flow = |thread: &super::ThreadTag| Worker {
        dir: tasks.join(thread.tid.to_string()),
        tid: thread.tid,
        name: thread.name.clone(),
    };
    let own: Vec<u32> = context.threads.iter().map(|thread| thread.tid).collect();
    let mut all: Vec<Worker> = context.threads.iter().map(flow).collect();
    all.extend(of_process(&tasks, &own));
    if context.work == Work::Packets {
        all.extend(of_frames(proc, &own, context.role));
    }
    // Last, because it reads every kernel thread: 0.5 ms for a hundred.
    for device in &context.devices {
        all.extend(polling_threads(proc, device).into_iter().map(Worker::from));
    }
    all
}

/// Returns the threads of this process that are not in `known` and work for flows: workers and
/// submission threads of io_uring, workers of vhost, and helpers of the flows' threads, which are
/// named after them.
pub(crate) fn of_process(tasks: &Path, known: &[u32]) -> Vec<Worker> {
    const LEADS: [&str; 5] = ["iou-wrk-", "iou-sqp-", vhost::WORKER, "sender/", "receiver/"];
    let is_ours = |worker: &Worker| LEADS.iter().any(|lead| worker.name.starts_with(lead));
    unknown(tasks, known).filter(is_ours).collect()
}

/// Returns the kernel threads that move frames for a role: the vhost workers that its threads
/// requested (since Linux 6.4 these are threads of the process itself), and pktgen's threads that
/// have a device to send on. pktgen's threads in other network namespaces have the same names and
/// sleep: [`at_work`] removes them.
fn of_frames(proc: &Path, own: &[u32], role: Role) -> Vec<Worker> {
    let mut all = vhost::kernel_workers(proc, own);
    if role == Role::Sender {
        let names = pktgen::threads_at_work(proc);
        all.extend(procfs::kernel_threads_named(proc, |name| names.iter().any(|one| one == name)));
    }
    all.into_iter().map(Worker::from).collect()
}

/// Returns the threads that run the peer, if it is a guest of this host: those of its qemu, which
/// include vhost's workers since Linux 6.4, and vhost's kernel threads for it.
pub(crate) fn of_guest(context: &Context) -> Vec<Worker> {
    let Some(qemu) = context.qemu else { return Vec::new() };
    let proc = &context.roots.proc;
    let kernels = vhost::kernel_workers(proc, &[qemu]).into_iter().map(Worker::from);
    of_qemu(proc, qemu, &[]).into_iter().chain(kernels).collect()
}

/// Returns the threads of a qemu that are not in `known`: it starts helpers as it needs them.
pub(crate) fn of_qemu(proc: &Path, qemu: u32, known: &[u32]) -> Vec<Worker> {
    unknown(&proc.join(format!("{qemu}/task")), known).collect()
}

/// Returns the threads of a process that are not in `known`.
fn unknown(tasks: &Path, known: &[u32]) -> impl Iterator<Item = Worker> {
    let threads = procfs::numbered(tasks).unwrap_or_default().into_iter();
    let unknown = threads.filter(|tid| !known.contains(tid));
    unknown.filter_map(|tid| Worker::read(tasks, tid))
}

/// Removes pktgen's threads of other namespaces: of those with the same name, the one that ran
/// longest is ours.
pub(crate) fn at_work<T>(
    all: Vec<T>,
    name: impl Fn(&T) -> &str,
    run: impl Fn(&T) -> f64,
) -> Vec<T> {
    let mut kept: Vec<T> = Vec::new();
    for one in all {
        let is_twin = |known: &T| name(known) == name(&one);
        match kept.iter().position(is_twin).filter(|_| name(&one).starts_with(pktgen::THREAD)) {
            Some(at) if run(&kept[at]) < run(&one) => kept[at] = one,
            Some(_) => {}
            None => kept.push(one),
        }
    }
    kept
}

/// Returns the kernel threads that poll for a device: folder below `/proc`, id, name. A device of
/// another namespace may have the same name, so the ids are checked if the kernel reports them
/// (Linux 6.8).
pub(crate) fn polling_threads(proc: &Path, device: &str) -> Vec<(PathBuf, u32, String)> {
    let mut found = procfs::napi_threads(proc, device);
    let mut netlink = Netlink::new();
    let link = netlink.link(device).ok().flatten();
    if let Some(napis) = link.and_then(|link| netlink.napis(link.index).ok()) {
        found.retain(|(_, id, _)| napis.iter().any(|napi| napi.thread == Some(*id)));
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytepath_sys::Roots;
    use std::fs;

    #[test]
    fn keeps_the_busiest_pktgen_thread_of_a_name() {
        // An idle one waited long for an emulated CPU; engines of one name are all ours.
        let all = vec![
            ("kpktgend_0", 0.03),
            ("kpktgend_0", 0.9),
            ("kpktgend_1", 0.001),
            ("kpktgend_0", 0.02),
            ("iou-wrk-7", 0.1),
            ("iou-wrk-7", 0.2),
        ];
        let kept = at_work(all, |one| one.0, |one| one.1);
        let expected =
            [("kpktgend_0", 0.9), ("kpktgend_1", 0.001), ("iou-wrk-7", 0.1), ("iou-wrk-7", 0.2)];
        assert_eq!(kept, expected);
    }

    #[test]
    fn finds_pktgen_threads_with_a_device() {
        let dir = tempfile::tempdir().unwrap();
        let proc = dir.path().join("proc");
        for (file, text) in [
            ("2/comm", "kthreadd\n"),
            ("2/task/2/children", "40 41 42 43 "),
            ("40/comm", "kpktgend_0\n"),
            ("41/comm", "kpktgend_1\n"),
            ("42/comm", "kpktgend_0\n"),
            ("43/comm", "vhost-7\n"),
            ("net/pktgen/kpktgend_0", "Running: byte0@0 \nStopped: \nResult: NA\n"),
            ("net/pktgen/kpktgend_1", "Running: \nStopped: \nResult: NA\n"),
        ] {
            let path = proc.join(file);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        let found = |role, work| {
            let context = Context { role, work, ..Context::idle(Roots::recorded(dir.path())) };
            let found = of_role(&context).into_iter().map(|one| (one.tid, one.group()));
            found.collect::<Vec<_>>()
        };
        assert_eq!(found(Role::Sender, Work::Packets), [(40, "pktgen"), (42, "pktgen")]);
        assert_eq!(found(Role::Receiver, Work::Packets), []);
        assert_eq!(found(Role::Sender, Work::Bytes), []);
        assert_eq!(of_frames(&proc, &[7], Role::Receiver)[0].group(), "vhost");
    }
}
