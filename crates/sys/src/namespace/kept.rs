//! A network namespace without a process in it: what is made in it stays as long as a descriptor of
//! the namespace, or of a tap device in it, is open (a tap's file refers to the namespace in which
//! it was opened; drivers/net/tun.c).

use super::super::tap::Tap;
use super::{
    Attempted, EntryMode, Plan, Refused, Step, attempt, inside_new, privileged, send_request,
};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::mount::mount_change;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketFlags, SocketType,
};
use rustix::thread::{LinkNameSpaceType, UnshareFlags, move_into_link_name_space};
use std::ffi::CStr;
use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::process::{Child, Command};

/// A network namespace that is kept by descriptors. Dropping it, when no process is in it and no
/// queue of its taps is open, removes it.
#[derive(Debug)]
pub struct Kept {
    /// The user namespace that owns it; `None` if that is the caller's own.
    user: Option<OwnedFd>,
    network: OwnedFd,
    /// Files below `/proc/sys` and their content when the namespace was made.
    before: Vec<(&'static CStr, Vec<u8>)>,
}

/// Something to be made in a namespace, in the order given.
#[derive(Clone, Debug)]
pub enum Part {
    /// A tap device; its queues are handed over.
    Tap(Tap),
    /// A complete message to rtnetlink that requests an acknowledgement.
    Request(Vec<u8>),
    /// Text for a file below `/proc/sys`. If it cannot be written (as in containers), it stays as
    /// it is.
    Setting(&'static CStr, &'static [u8]),
}

/// A namespace and the descriptors made in it.
#[derive(Debug)]
pub struct Made {
    pub namespace: Kept,
    /// Queues of all taps, in the order of the parts.
    pub queues: Vec<OwnedFd>,
}

/// Most descriptors in one message (the kernel's limit SCM_MAX_FD, net/scm.h, is 253); two of them
/// are those of the namespaces.
const MOST: usize = 130;

/// Total bytes kept of the content of files to be restored.
const KEPT: usize = 1024;

/// Makes a network namespace and these parts in it. `restored` lists files below `/proc/sys` that
/// are written back whenever a process enters it.
///
/// A child does it, because without privileges only a single-threaded process can enter a new user
/// namespace; it has ended when this returns.
pub fn make(parts: Vec<Part>, restored: &[&'static CStr]) -> Result<Made, Refused> {
    let fail = |error| Refused { step: Step::HandOver, error };
    let (ours, theirs) = rustix::net::socketpair(
        AddressFamily::UNIX,
        SocketType::SEQPACKET,
        SocketFlags::CLOEXEC,
        None,
    )
    .map_err(|errno| fail(errno.into()))?;
    let files = restored.to_vec();
    let work = move || build(&parts, &files, &theirs);
    // The closure owns the child's end of the pair and is dropped when this returns, so that a
    // child that sent nothing shows as end of file below.
    inside_new(Step::HandOver, Box::new(work))?;
    receive(&ours, restored).map_err(fail)
}

/// Runs a program in a kept network namespace, with its own mount namespace; see [`super::spawn`]
/// for when it is killed.
pub fn spawn_into(command: Command, kept: &Kept) -> Result<Child, Refused> {
    let copy = kept.try_clone().map_err(|error| Refused { step: Step::HandOver, error })?;
    Plan::new(EntryMode::JoinKept(copy))?.spawn(command, None)
}

impl Kept {
    fn try_clone(&self) -> io::Result<Kept> {
        Ok(Kept {
            user: self.user.as_ref().map(OwnedFd::try_clone).transpose()?,
            network: self.network.try_clone()?,
            before: self.before.clone(),
        })
    }

    /// Runs in a child. System calls only.
    pub(super) fn enter(&self) -> Attempted {
        let join = |namespace: &OwnedFd, kind| move_into_link_name_space(namespace.as_fd(), kind);
        if let Some(user) = &self.user {
            attempt(Step::JoinPeer, join(user, Some(LinkNameSpaceType::User)))?;
        }
        attempt(Step::Namespaces, join(&self.network, Some(LinkNameSpaceType::Network)))?;
        for (file, text) in &self.before {
            // Whatever earlier processes here could not write still has its old value.
            let _ = super::write_file(file, text);
        }
        // If the namespace's own sysfs cannot be mounted, as in containers, `/sys` shows the
        // outside; mounts are still kept separate from those of other processes.
        if super::remount_sysfs().is_err() {
            attempt(Step::Namespaces, super::unshare(UnshareFlags::NEWNS))?;
            attempt(Step::Mounts, mount_change(c"/", super::PRIVATE))?;
        }
        Ok(())
    }
}

/// Runs in a child that is in the new namespace. System calls only.
fn build(parts: &[Part], restored: &[&CStr], socket: &OwnedFd) -> Attempted {
    let mut files: [Option<OwnedFd>; MOST] = [const { None }; MOST];
    let mut free = files.iter_mut();
    let mut keep = |file: OwnedFd| -> Attempted {
        let slot = free.next().ok_or((Step::HandOver, Errno::TOOMANYREFS))?;
        *slot = Some(file);
        Ok(())
    };
    let open =
        |path: &CStr| rustix::fs::open(path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty());
    keep(open(c"/proc/self/ns/user").map_err(|errno| (Step::HandOver, errno))?)?;
    keep(open(c"/proc/self/ns/net").map_err(|errno| (Step::HandOver, errno))?)?;
    for part in parts {
        match part {
            Part::Setting(file, text) => {
                let _ = super::write_file(file, text);
            }
            Part::Request(message) => attempt(Step::Join, send_request(message))?,
            Part::Tap(tap) => {
                for queue in 0..tap.queues {
                    let driver = Tap::open_driver().map_err(|e| (Step::OpenTap, number(&e)))?;
                    tap.attach(&driver, queue == 0).map_err(|e| (Step::Tap, number(&e)))?;
                    keep(driver)?;
                }
            }
        }
    }
    let mut texts = [0; KEPT];
    let mut length = 0;
    for file in restored {
        // A file that cannot be read is not restored either: its text stays empty.
        let room = texts.get_mut(length..).unwrap_or_default();
        length += open(file).and_then(|file| rustix::io::read(&file, room)).unwrap_or(0);
        // Separates texts: no file of /proc/sys contains a zero byte.
        length = (length + 1).min(KEPT);
    }
    attempt(Step::HandOver, send(socket, &files, texts.get(..length).unwrap_or_default()))
}

fn number(error: &io::Error) -> Errno {
    Errno::from_io_error(error).unwrap_or(Errno::IO)
}

fn send(socket: &OwnedFd, files: &[Option<OwnedFd>], text: &[u8]) -> Result<(), Errno> {
    let mut list = [socket.as_fd(); MOST];
    let mut count = 0;
    for (slot, file) in list.iter_mut().zip(files.iter().flatten()) {
        *slot = file.as_fd();
        count += 1;
    }
    let list: &[BorrowedFd] = list.get(..count).unwrap_or_default();
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MOST))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !control.push(SendAncillaryMessage::ScmRights(list)) {
        return Err(Errno::TOOMANYREFS);
    }
    rustix::net::sendmsg(socket, &[IoSlice::new(text)], &mut control, SendFlags::NOSIGNAL).map(drop)
}

fn receive(socket: &OwnedFd, restored: &[&'static CStr]) -> io::Result<Made> {
    let mut text = [0; KEPT];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MOST))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut parts = [IoSliceMut::new(&mut text)];
    let got =
        rustix::net::recvmsg(socket, &mut parts, &mut control, RecvFlags::CMSG_CLOEXEC)?.bytes;
    let mut files = control.drain().flat_map(|message| match message {
        RecvAncillaryMessage::ScmRights(files) => files.collect::<Vec<_>>(),
        _ => Vec::new(),
    });
    let (user, network) = (files.next(), files.next());
    let network = network.ok_or(io::ErrorKind::UnexpectedEof)?;
    let queues = files.collect();
    let texts = text.get(..got).unwrap_or_default().split(|byte| *byte == 0);
    let before = restored.iter().copied().zip(texts.map(<[u8]>::to_vec));
    let before = before.filter(|(_, text)| !text.is_empty()).collect();
    // A process cannot join its own user namespace (setns(2)), and need not.
    let user = user.filter(|_| !privileged());
    Ok(Made { namespace: Kept { user, network, before }, queues })
}

#[cfg(test)]
mod tests {
    use super::super::super::bridge::{bridge_message, port_message};
    use super::super::super::tap;
    use super::*;
    use bytepath_testing::skip;

    const WMEM: &CStr = c"/proc/sys/net/ipv4/tcp_wmem";

    fn words(kept: &Kept, script: &str) -> String {
        let mut command = Command::new("sh");
        command.args(["-c", script]).stdout(std::process::Stdio::piped());
        let child = spawn_into(command, kept).unwrap();
        let output = child.wait_with_output().unwrap();
        String::from_utf8(output.stdout).unwrap()
    }

    #[test]
    fn a_namespace_outlives_its_maker_and_is_entered_as_it_was_made() {
        let made = make(vec![], &[WMEM]).unwrap();
        let [(_, before)] = made.namespace.before.as_slice() else { panic!("{made:?}") };
        let before = String::from_utf8(before.clone()).unwrap();
        let change = "echo 4096 8192 16384 > /proc/sys/net/ipv4/tcp_wmem; \
                      cat /proc/sys/net/ipv4/tcp_wmem; readlink /proc/self/ns/net";
        let first = words(&made.namespace, change);
        let read = "cat /proc/sys/net/ipv4/tcp_wmem; readlink /proc/self/ns/net";
        let second = words(&made.namespace, read);
        let [first, second] = [&first, &second].map(|text| text.split_once('\n').unwrap());
        assert_eq!((first.0, second.0), ("4096\t8192\t16384", before.trim_end()));
        assert_eq!(first.1, second.1, "it is one namespace");
        let own = std::fs::read_link("/proc/self/ns/net").unwrap();
        assert_ne!(first.1.trim(), own.to_str().unwrap());
    }

    #[test]
    fn taps_are_joined_and_die_with_their_queues() {
        if let Err(refused) = make(vec![Part::Tap(Tap::new("a", 2, 1, 0).unwrap())], &[]) {
            skip!("{refused}");
            return;
        }
        let tap = |name, index| Part::Tap(Tap::new(name, index, 2, tap::VNET_HDR).unwrap());
        let parts = vec![
            tap("left", 2),
            tap("right", 3),
            Part::Request(bridge_message("both", 4).unwrap()),
            Part::Request(port_message(2, 9000, Some(4))),
            Part::Request(port_message(3, 9000, Some(4))),
        ];
        let Made { namespace, mut queues } = make(parts, &[]).unwrap();
        assert_eq!(queues.len(), 4);
        let devices = "tail -n +3 /proc/net/dev | cut -d: -f1 | tr -d ' ' | sort | xargs";
        assert_eq!(words(&namespace, devices), "both left lo right\n");
        drop(queues.split_off(2));
        assert_eq!(words(&namespace, devices), "both left lo\n");
        drop(queues);
        assert_eq!(words(&namespace, devices), "both lo\n");
    }

    #[test]
    fn what_the_kernel_refuses_is_named_by_its_step() {
        let port = || Part::Request(port_message(77, 1500, None));
        let refused = make(vec![port()], &[]).unwrap_err();
        assert_eq!((refused.step, refused.error.raw_os_error()), (Step::Join, Some(libc::ENODEV)));
    }
}
