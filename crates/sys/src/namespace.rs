//! Processes in anonymous network namespaces: network_namespaces(7), user_namespaces(7),
//! unshare(2).
//!
//! Nothing is bound to a name (as `ip netns` does in `/run/netns`). A namespace lives exactly as
//! long as the last process in it, and its devices live as long as the namespace; so whatever ends
//! the process, SIGKILL included, removes everything, and a later start has nothing to clean up.

mod kept;

pub use kept::{Kept, Made, Part, make, spawn_into};

use rustix::fs::{CWD, Mode, OFlags};
use rustix::io::Errno;
use rustix::mount::{
    FsMountFlags, FsOpenFlags, MountAttrFlags, MountFlags, MountPropagationFlags, MoveMountFlags,
    OpenTreeFlags, fsconfig_create, fsmount, fsopen, mount, mount_change, move_mount, open_tree,
};
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType};
use rustix::process::{Pid, Signal};
use rustix::thread::{CapabilitySet, LinkNameSpaceType, UnshareFlags};
use std::ffi::CStr;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command};

/// Which namespaces a child gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Enter {
    /// A new network and a new mount namespace; without privileges also a new user namespace, in
    /// which the caller is root.
    New,
    /// Like `New`, but owned by the user namespace of this process, a child of ours that was
    /// spawned with [`Enter::New`]: creating a veth pair across two network namespaces requires
    /// privilege over both.
    Beside(u32),
}

/// Steps of a child between fork and exec, in this order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, strum::Display, strum::FromRepr)]
#[repr(u8)]
pub enum Step {
    /// Find the user namespace of the process to join.
    #[strum(to_string = "finding the other host's user namespace")]
    FindPeer,
    /// Create a user namespace (only if the caller is unprivileged).
    #[strum(to_string = "creating a user namespace")]
    UserNamespace,
    /// Map the caller to root in it.
    #[strum(to_string = "mapping the user to root in a user namespace")]
    IdMap,
    /// Join the peer's user namespace (only if the caller is unprivileged).
    #[strum(to_string = "joining the other host's user namespace")]
    JoinPeer,
    /// Create the network and the mount namespace.
    #[strum(to_string = "creating a network namespace")]
    Namespaces,
    /// Keep mounts made in it from propagating to the outside.
    #[strum(to_string = "making mounts private")]
    Mounts,
    /// Show the namespace's own devices in `/sys`.
    #[strum(to_string = "showing the namespace's own devices in /sys")]
    Sysfs,
    /// Arrange to die with the parent.
    #[strum(to_string = "tying the child to its parent")]
    DeathSignal,
    /// Make a device, in a rehearsal.
    #[strum(to_string = "creating a veth pair")]
    Device,
    /// Open the device that makes taps, in a namespace to be kept.
    #[strum(to_string = "opening /dev/net/tun")]
    OpenTap,
    /// Make a tap there, or a queue of one.
    #[strum(to_string = "creating a tap device")]
    Tap,
    /// Join the devices made there.
    #[strum(to_string = "joining devices by a bridge")]
    Join,
    /// Hand over descriptors of the namespace.
    #[strum(to_string = "handing over descriptors of a namespace")]
    HandOver,
    #[strum(to_string = "running the program")]
    Program,
}

/// Why a child could not be put into its own namespaces.
#[derive(Debug, thiserror::Error)]
#[error("{step}: {error}")]
pub struct Refused {
    pub step: Step,
    /// The error that the kernel returned.
    pub error: io::Error,
}

/// Returns whether this process may create network namespaces without a user namespace: root with
/// CAP_SYS_ADMIN and CAP_NET_ADMIN. Another user with these capabilities would lose them on exec,
/// and counts as unprivileged.
pub fn privileged() -> bool {
    let needed = CapabilitySet::SYS_ADMIN | CapabilitySet::NET_ADMIN;
    let has = rustix::thread::capabilities(None).is_ok_and(|sets| sets.effective.contains(needed));
    has && rustix::process::geteuid().is_root()
}

/// Runs a program in its own namespaces. When this returns, the namespaces exist and the program
/// has been started in them.
///
/// The child is killed when the **thread** that calls this ends (`PR_SET_PDEATHSIG`, prctl(2)), so
/// call it from a thread that lives as long as the child should. The kernel clears that setting if
/// the program is setuid or has file capabilities; such a program has to exit on its own at end of
/// file on its standard input.
pub fn spawn(command: Command, enter: Enter) -> Result<Child, Refused> {
    Plan::new(EntryMode::of(enter)?)?.spawn(command, None)
}

/// Like [`spawn`], in a network namespace that already exists, with its own mount namespace in
/// which `/sys` shows that namespace's devices. Requires CAP_SYS_ADMIN.
pub fn spawn_in(command: Command, network: OwnedFd) -> Result<Child, Refused> {
    Plan::new(EntryMode::Resident(network))?.spawn(command, None)
}

/// Does everything that [`spawn`] does with [`Enter::New`], sends one request to rtnetlink from
/// inside, and ends without running any program. `request` is a complete netlink message that
/// requests an acknowledgement.
pub fn rehearse(request: Vec<u8>) -> Result<(), Refused> {
    inside_new(Step::Device, Box::new(move || attempt(Step::Device, send_request(&request))))
}

/// Work of a child between fork and exec: system calls only.
type Work = Box<dyn FnMut() -> Attempted + Send + Sync>;

/// Does everything that [`spawn`] does with [`Enter::New`], does `work` inside, and ends without
/// running any program. `step` is reported for a child that is killed.
fn inside_new(step: Step, work: Work) -> Result<(), Refused> {
    // The name of the program does not matter: the child ends before exec.
    let command = Command::new("/proc/self/exe");
    let mut child = Plan::new(EntryMode::of(Enter::New)?)?.spawn(command, Some(work))?;
    let fail = |error| Refused { step, error };
    let status = child.wait().map_err(fail)?;
    if status.success() { Ok(()) } else { Err(fail(io::Error::other(status.to_string()))) }
}

/// Everything the child needs, prepared before the fork: between fork and exec only system calls
/// are allowed, because another thread of the parent may have held the allocator's lock at that
/// moment.
struct Plan {
    mode: EntryMode,
    parent: Pid,
    /// Where the child writes the step that failed; `std` passes only the
    /// error number.
    failed_step: OwnedFd,
    step_reader: OwnedFd,
}

enum EntryMode {
    Privileged,
    Resident(OwnedFd),
    NewUser {
        uid_map: Vec<u8>,
        gid_map: Vec<u8>,
    },
    JoinUser(OwnedFd),
    /// Joins an existing namespace.
    JoinKept(Kept),
}

impl EntryMode {
    fn of(enter: Enter) -> Result<EntryMode, Refused> {
        Ok(match enter {
            _ if privileged() => EntryMode::Privileged,
            Enter::New => EntryMode::NewUser {
                uid_map: format!("0 {} 1\n", rustix::process::geteuid()).into_bytes(),
                gid_map: format!("0 {} 1\n", rustix::process::getegid()).into_bytes(),
            },
            Enter::Beside(pid) => {
                let namespace = std::fs::File::open(format!("/proc/{pid}/ns/user"));
                let fail = |error| Refused { step: Step::FindPeer, error };
                EntryMode::JoinUser(namespace.map_err(fail)?.into())
            }
        })
    }
}

impl Plan {
    fn new(mode: EntryMode) -> Result<Plan, Refused> {
        use rustix::pipe::{PipeFlags, pipe_with};
        let (step_reader, failed_step) = pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK)
            .map_err(|errno| Refused { step: Step::Program, error: errno.into() })?;
        Ok(Plan { mode, parent: rustix::process::getpid(), failed_step, step_reader })
    }

    /// Runs the program, or does `work` in its place and ends.
    fn spawn(self, mut command: Command, work: Option<Work>) -> Result<Child, Refused> {
        let Plan { mode, parent, failed_step, step_reader } = self;
        let mut work = work;
        let mut inside = move || {
            enter(&mode, parent)?;
            match &mut work {
                Some(work) => work().map(|()| end_now()),
                None => Ok(()),
            }
        };
        let hook = move || {
            inside().map_err(|(step, errno): (Step, Errno)| {
                // Without this byte the step stays unknown; the error number still arrives.
                let _ = rustix::io::write(&failed_step, &[step as u8]);
                io::Error::from(errno)
            })
        };
        // SAFETY: the hook makes system calls only. It allocates nothing, takes
        // no lock, and reads memory that was prepared before the fork.
        unsafe { command.pre_exec(hook) };
        command.spawn().map_err(|error| {
            let mut byte = [Step::Program as u8];
            let _ = rustix::io::read(&step_reader, &mut byte);
            Refused { step: Step::from_repr(byte[0]).unwrap_or(Step::Program), error }
        })
    }
}

type Attempted = Result<(), (Step, Errno)>;

fn attempt(step: Step, result: Result<(), Errno>) -> Attempted {
    result.map_err(|errno| (step, errno))
}

/// Runs in the child. System calls only.
fn enter(mode: &EntryMode, parent: Pid) -> Attempted {
    match mode {
        EntryMode::Privileged => {}
        EntryMode::Resident(network) => {
            let kind = Some(LinkNameSpaceType::Network);
            let joined = rustix::thread::move_into_link_name_space(network.as_fd(), kind);
            attempt(Step::Namespaces, joined)?;
            attempt(Step::Sysfs, remount_sysfs())?;
        }
        EntryMode::NewUser { uid_map, gid_map } => {
            attempt(Step::UserNamespace, unshare(UnshareFlags::NEWUSER))?;
            // setgroups(2) has to be given up before an unprivileged user may
            // write a group map (user_namespaces(7), CVE-2014-8989).
            attempt(Step::IdMap, write_file(c"/proc/self/setgroups", b"deny"))?;
            attempt(Step::IdMap, write_file(c"/proc/self/uid_map", uid_map))?;
            attempt(Step::IdMap, write_file(c"/proc/self/gid_map", gid_map))?;
        }
        EntryMode::JoinUser(namespace) => {
            let user = Some(LinkNameSpaceType::User);
            let joined = rustix::thread::move_into_link_name_space(namespace.as_fd(), user);
            attempt(Step::JoinPeer, joined)?;
        }
        EntryMode::JoinKept(kept) => kept.enter()?,
    }
    if !matches!(mode, EntryMode::Resident(_) | EntryMode::JoinKept(_)) {
        attempt(Step::Namespaces, unshare(UnshareFlags::NEWNET | UnshareFlags::NEWNS))?;
        attempt(Step::Mounts, mount_change(c"/", PRIVATE))?;
    }
    // This must be last, because a change of credentials clears it (kernel/cred.c).
    let kill = rustix::process::set_parent_process_death_signal(Some(Signal::KILL));
    attempt(Step::DeathSignal, kill)?;
    // A parent that died before the line above sends no signal.
    let orphaned = rustix::process::getppid() != Some(parent);
    attempt(Step::DeathSignal, if orphaned { Err(Errno::SRCH) } else { Ok(()) })
}

const PRIVATE: MountPropagationFlags =
    MountPropagationFlags::PRIVATE.union(MountPropagationFlags::REC);

/// Other mounts below `/sys` that must stay visible there.
const BELOW_SYS: &[(&CStr, &CStr)] = &[
    (c"fs/cgroup", c"/sys/fs/cgroup"),
    (c"fs/bpf", c"/sys/fs/bpf"),
    (c"kernel/debug", c"/sys/kernel/debug"),
    (c"kernel/tracing", c"/sys/kernel/tracing"),
];

/// Gives the calling thread a mount namespace in which `/sys` shows the devices of its network
/// namespace. System calls only, so that a child may call it before exec.
pub(super) fn remount_sysfs() -> Result<(), Errno> {
    unshare(UnshareFlags::NEWNS)?;
    mount_change(c"/", PRIVATE)?;
    let old = rustix::fs::open(c"/sys", OFlags::PATH | OFlags::CLOEXEC, Mode::empty())?;
    mount(c"sysfs", c"/sys", c"sysfs", MountFlags::NOSUID | MountFlags::NODEV, None::<&CStr>)?;
    for (below, target) in BELOW_SYS {
        let flags = OpenTreeFlags::OPEN_TREE_CLONE
            | OpenTreeFlags::OPEN_TREE_CLOEXEC
            | OpenTreeFlags::AT_RECURSIVE;
        // Not every kernel has all of them.
        if let Ok(tree) = open_tree(&old, *below, flags) {
            let _ = move_mount(tree, c"", CWD, *target, MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH);
        }
    }
    Ok(())
}

fn unshare(flags: UnshareFlags) -> Result<(), Errno> {
    // SAFETY: only CLONE_FILES can invalidate owned descriptors, and it is never among the flags.
    unsafe { rustix::thread::unshare_unsafe(flags) }
}

fn write_file(path: &CStr, content: &[u8]) -> Result<(), Errno> {
    let file = rustix::fs::open(path, OFlags::WRONLY | OFlags::CLOEXEC, Mode::empty())?;
    rustix::io::write(&file, content).map(drop)
}

/// Sends a netlink message and reads its acknowledgement (netlink(7)).
fn send_request(message: &[u8]) -> Result<(), Errno> {
    let socket = rustix::net::socket_with(
        AddressFamily::NETLINK,
        SocketType::RAW,
        SocketFlags::CLOEXEC,
        None,
    )?;
    rustix::net::send(&socket, message, SendFlags::empty())?;
    let mut answer = [0u8; 4096];
    let (len, _) = rustix::net::recv(&socket, &mut answer, RecvFlags::empty())?;
    // struct nlmsghdr (16 bytes), then the int of struct nlmsgerr.
    match answer[..len.min(answer.len())].get(16..20) {
        Some(&[a, b, c, d]) => match i32::from_ne_bytes([a, b, c, d]) {
            0 => Ok(()),
            code => Err(Errno::from_raw_os_error(code.saturating_neg())),
        },
        _ => Err(Errno::PROTO),
    }
}

fn end_now() {
    // SAFETY: _exit(2) runs no handlers and no destructors, which must not run in a child that
    // shares the parent's memory image.
    unsafe { libc::_exit(0) }
}

/// sysfs as seen from the caller's network namespace. `/sys` shows the devices of the namespace of
/// the process that mounted it, which for a child of [`spawn`] is the outside. This mounts a
/// separate sysfs and attaches it nowhere (fsmount(2), Linux 5.2): dropping the value unmounts it.
#[derive(Debug)]
pub struct Sysfs(OwnedFd);

impl Sysfs {
    /// Mounts it. EPERM: the caller lacks CAP_SYS_ADMIN in the user namespace that owns its mount
    /// and network namespaces, or `/sys` is masked, as in most containers.
    pub fn open() -> io::Result<Sysfs> {
        let context = fsopen(c"sysfs", FsOpenFlags::FSOPEN_CLOEXEC)?;
        fsconfig_create(&context)?;
        let flags = MountAttrFlags::MOUNT_ATTR_NOSUID
            | MountAttrFlags::MOUNT_ATTR_NODEV
            | MountAttrFlags::MOUNT_ATTR_NOEXEC;
        Ok(Sysfs(fsmount(&context, FsMountFlags::FSMOUNT_CLOEXEC, flags)?))
    }

    /// Reads an attribute; the path is relative to `/sys`. Trailing whitespace is dropped.
    pub fn read(&self, path: &str) -> io::Result<String> {
        let file = self.file(path, OFlags::RDONLY)?;
        Ok(io::read_to_string(std::fs::File::from(file))?.trim_end().to_string())
    }

    /// Writes an attribute in one call, as sysfs requires.
    pub fn write(&self, path: &str, value: &str) -> io::Result<()> {
        let file = self.file(path, OFlags::WRONLY)?;
        Ok(rustix::io::write(&file, value.as_bytes()).map(drop)?)
    }

    fn file(&self, path: &str, flags: OFlags) -> io::Result<OwnedFd> {
        Ok(rustix::fs::openat(&self.0, path, flags | OFlags::CLOEXEC, Mode::empty())?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn net(pid: u32) -> std::path::PathBuf {
        std::fs::read_link(format!("/proc/{pid}/ns/net")).unwrap()
    }

    fn sleeper() -> Command {
        let mut command = Command::new("sleep");
        command.arg("60");
        command
    }

    #[test]
    fn each_child_has_a_network_namespace_of_its_own() {
        let mut first = spawn(sleeper(), Enter::New).unwrap();
        let mut second = spawn(sleeper(), Enter::Beside(first.id())).unwrap();
        let (own, a, b) = (net(std::process::id()), net(first.id()), net(second.id()));
        let user = |pid| std::fs::read_link(format!("/proc/{pid}/ns/user")).unwrap();
        let (user_a, user_b) = (user(first.id()), user(second.id()));
        for child in [&mut first, &mut second] {
            child.kill().unwrap();
            child.wait().unwrap();
        }
        assert!(own != a && own != b && a != b, "{own:?} {a:?} {b:?}");
        assert_eq!(user_a, user_b);
    }

    #[test]
    fn a_child_dies_with_the_thread_that_made_it() {
        use std::os::unix::process::ExitStatusExt;
        let make = || spawn(sleeper(), Enter::New).unwrap();
        let mut child = std::thread::spawn(make).join().unwrap();
        assert_eq!(child.wait().unwrap().signal(), Some(libc::SIGKILL));
    }

    #[test]
    fn the_step_that_failed_is_named() {
        let refused = spawn(Command::new("/no/such/program"), Enter::New).unwrap_err();
        assert_eq!(refused.step, Step::Program);
        assert_eq!(refused.error.kind(), io::ErrorKind::NotFound);
        // An invalid request that rtnetlink refuses: a message type that does not exist.
        let mut message = vec![0u8; 16];
        message[0] = 16;
        message[4..8].copy_from_slice(&[0xff, 0x3f, 5, 0]);
        let refused = rehearse(message).unwrap_err();
        assert_eq!(refused.step, Step::Device, "{refused}");
        assert_eq!(refused.error.raw_os_error(), Some(libc::EOPNOTSUPP), "{refused}");
    }
}
