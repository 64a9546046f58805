//! Page-aligned memory, prefaulted before anything is timed.

use crate::check;
use rustix::fs::{MemfdFlags, memfd_create, sendfile};
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap, mmap_anonymous, munmap};
use std::fs::File;
use std::io;
use std::ops::{Deref, DerefMut};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::FileExt;
use std::ptr::NonNull;
use std::slice;
use thiserror::Error;

/// Bytes of a huge page for `Region::on_huge_pages`.
pub const HUGE_PAGE: usize = 2 << 20;

/// The access of most mappings.
pub(super) const READ_WRITE: ProtFlags = ProtFlags::READ.union(ProtFlags::WRITE);

/// A private anonymous mapping with every page touched. Its bytes never move, so the kernel may
/// hold references to its pages while it lives.
#[derive(Debug)]
pub struct Region {
    memory: MappedMemory,
    /// Number of bytes requested.
    len: usize,
}

impl Region {
    /// Maps at least `len` zeroed bytes, rounded up to whole pages. With `huge`, requests
    /// transparent huge pages (advice only).
    pub fn new(len: usize, huge: bool) -> io::Result<Self> {
        let page = rustix::param::page_size();
        let mut region = Region::map(len, page, MapFlags::PRIVATE)?;
        if huge {
            let start = region.memory.start.as_ptr().cast();
            // SAFETY: the range is the mapping just made; huge-page advice changes no content. A
            // kernel without THP returns EINVAL: no harm.
            let _ = unsafe { madvise(start, region.memory.len, Advice::LinuxHugepage) };
        }
        region.memory.touch(page);
        Ok(region)
    }

    /// Maps at least `len` zeroed bytes, rounded up to whole huge pages of 2 MiB that the
    /// administrator has reserved (`vm.nr_hugepages`, `MAP_HUGETLB`), on `node` if that is given.
    /// ENOMEM: too few of them are free there.
    pub(crate) fn on_huge_pages(len: usize, node: Option<u32>) -> io::Result<Self> {
        let flags = MapFlags::PRIVATE | MapFlags::HUGETLB | MapFlags::HUGE_2MB;
        let mut region = Region::map(len, HUGE_PAGE, flags)?;
        region.len = region.memory.len;
        region.memory.take_huge_pages(node)?;
        Ok(region)
    }

    /// Maps `len` bytes, rounded up to whole pages of size `page`. ENOMEM: they do not fit.
    fn map(len: usize, page: usize, flags: MapFlags) -> io::Result<Self> {
        let mapped = len.max(1).checked_next_multiple_of(page);
        let mapped = mapped.ok_or_else(|| io::Error::from_raw_os_error(libc::ENOMEM))?;
        // SAFETY: a fresh anonymous mapping at an address chosen by the kernel overlaps nothing.
        let start = unsafe { mmap_anonymous(std::ptr::null_mut(), mapped, READ_WRITE, flags)? };
        let start = NonNull::new(start.cast::<u8>()).expect("mmap never returns null");
        Ok(Region { memory: MappedMemory { start, len: mapped }, len })
    }

    /// Its length in bytes, without making a reference to them.
    #[allow(clippy::len_without_is_empty, reason = "no mapping is empty")]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Address of the first byte.
    pub fn as_ptr(&self) -> *const u8 {
        self.memory.start.as_ptr()
    }

    /// Like [`Self::as_ptr`], for callers that share the memory with the kernel and therefore must
    /// not make references to it.
    pub(super) fn start(&self) -> NonNull<u8> {
        self.memory.start
    }

    /// Returns the whole mapping, for callers that only share it with the kernel.
    pub(super) fn into_shared(self) -> MappedMemory {
        self.memory
    }
}

impl Deref for Region {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        // SAFETY: these bytes are mapped, readable and initialized.
        unsafe { slice::from_raw_parts(self.memory.start.as_ptr(), self.len) }
    }
}

impl DerefMut for Region {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above, and `&mut self` makes the access exclusive.
        unsafe { slice::from_raw_parts_mut(self.memory.start.as_ptr(), self.len) }
    }
}

/// A mapping: of a [`Region`], or of part of a file or device. The latter is shared with other
/// processes and never accessed through Rust references, because others change it at any time.
#[derive(Debug)]
pub struct MappedMemory {
    start: NonNull<u8>,
    len: usize,
}

// SAFETY: a mapping is not tied to a thread; code that reads or writes through its address is
// responsible for that.
unsafe impl Send for MappedMemory {}
// SAFETY: as above: only the address is shared.
unsafe impl Sync for MappedMemory {}

impl MappedMemory {
    /// Maps `len` bytes from an offset on, with every page present (`MAP_POPULATE`).
    pub fn new(file: BorrowedFd, offset: u64, len: usize) -> io::Result<Self> {
        Self::map(file, offset, len, READ_WRITE, MapFlags::POPULATE)
    }

    /// Maps `len` bytes from the start for this access; pages are mapped as they are touched.
    pub(super) fn on_demand(file: impl AsFd, len: usize, access: ProtFlags) -> io::Result<Self> {
        Self::map(file, 0, len, access, MapFlags::empty())
    }

    fn map(
        file: impl AsFd,
        offset: u64,
        len: usize,
        access: ProtFlags,
        flags: MapFlags,
    ) -> io::Result<Self> {
        let flags = flags | MapFlags::SHARED;
        // SAFETY: a fresh mapping at an address chosen by the kernel overlaps nothing.
        let start = unsafe { mmap(std::ptr::null_mut(), len, access, flags, file, offset)? };
        let start = NonNull::new(start.cast::<u8>()).expect("mmap never returns null");
        Ok(MappedMemory { start, len })
    }

    /// Writes one byte of every page, so that no page fault occurs later.
    fn touch(&mut self, page: usize) {
        for offset in (0..self.len).step_by(page) {
            // SAFETY: the offset lies within the mapping, which is writable.
            unsafe { self.start.as_ptr().add(offset).write_volatile(0) };
        }
    }

    /// Touches a new mapping of huge pages, which are allocated on `node` if that is given. They
    /// were reserved when the mapping was made, so this cannot fail with SIGBUS. ENOMEM: the node
    /// had too few.
    pub(super) fn take_huge_pages(&mut self, node: Option<u32>) -> io::Result<()> {
        let Some(node) = node else {
            self.touch(HUGE_PAGE);
            return Ok(());
        };
        on_node(node, || self.touch(HUGE_PAGE))?;
        for offset in (0..self.len).step_by(HUGE_PAGE) {
            // SAFETY: the offset lies within the mapping.
            let address = unsafe { self.start.as_ptr().add(offset) };
            if node_of(address)? != node {
                return Err(io::Error::from_raw_os_error(libc::ENOMEM));
            }
        }
        Ok(())
    }

    /// Address of the first byte.
    pub(super) fn start(&self) -> NonNull<u8> {
        self.start
    }

    /// Its length in bytes.
    #[allow(clippy::len_without_is_empty, reason = "the kernel maps no empty ranges")]
    pub fn len(&self) -> usize {
        self.len
    }
}

impl Drop for MappedMemory {
    fn drop(&mut self) {
        // SAFETY: the mapping is ours and no longer borrowed. Pages that the kernel still refers to
        // live on until it releases them.
        let _ = unsafe { munmap(self.start.as_ptr().cast(), self.len) };
    }
}

/// Choosing the NUMA node of memory is not allowed here.
#[derive(Debug, Error)]
#[error("the NUMA node of memory may not be chosen (set_mempolicy): {0}")]
pub struct NodeRefused(pub io::Error);

/// Whether memory could not be allocated because choosing its NUMA node is not allowed, as in
/// containers whose seccomp profile reserves set_mempolicy(2) for CAP_SYS_NICE.
pub fn is_node_refused(error: &io::Error) -> bool {
    error.get_ref().is_some_and(|cause| cause.is::<NodeRefused>())
}

/// Runs `run`; pages allocated meanwhile come from this NUMA node, if it has any left
/// (set_mempolicy(2), MPOL_PREFERRED). EINVAL: there is no such node.
fn on_node<T>(node: u32, run: impl FnOnce() -> T) -> io::Result<T> {
    let mut nodes = [0; NODES / 64];
    let word = nodes.get_mut(node as usize / 64);
    *word.ok_or(io::Error::from_raw_os_error(libc::EINVAL))? = 1 << (node % 64);
    let before = Policy::of_thread().map_err(named_if_refused)?;
    Policy { mode: libc::MPOL_PREFERRED, nodes }.set().map_err(named_if_refused)?;
    let result = run();
    before.set()?;
    Ok(result)
}

/// A refusal never comes from the kernel itself, which lets every thread choose its memory policy.
fn named_if_refused(error: io::Error) -> io::Error {
    match error.raw_os_error() {
        Some(libc::EPERM | libc::EACCES | libc::ENOSYS) => {
            io::Error::new(error.kind(), NodeRefused(error))
        }
        _ => error,
    }
}

/// Returns the node of the page at an address, which must be present.
fn node_of(address: *const u8) -> io::Result<u32> {
    let mut node = 0_i32;
    /// `MPOL_F_NODE | MPOL_F_ADDR` (include/uapi/linux/mempolicy.h).
    const NODE_OF_ADDRESS: usize = 1 | 2;
    // SAFETY: the kernel writes a number and no mask; the address is only looked up.
    check(unsafe {
        libc::syscall(
            libc::SYS_get_mempolicy,
            &raw mut node,
            0_usize,
            0_usize,
            address,
            NODE_OF_ADDRESS,
        )
    })?;
    u32::try_from(node).map_err(|_| io::ErrorKind::InvalidData.into())
}

/// Most NUMA nodes that a kernel can be built for (`CONFIG_NODES_SHIFT`).
const NODES: usize = 1024;

/// Memory policy of a thread: where the kernel allocates pages that it touches first.
#[derive(Debug, PartialEq, Eq)]
struct Policy {
    mode: i32,
    nodes: [u64; NODES / 64],
}

impl Policy {
    /// Returns the policy of this thread.
    fn of_thread() -> io::Result<Policy> {
        let mut policy = Policy { mode: 0, nodes: [0; NODES / 64] };
        let nodes = policy.nodes.as_mut_ptr();
        // SAFETY: the kernel writes the mode and a mask of one bit less than the size passed.
        check(unsafe {
            libc::syscall(
                libc::SYS_get_mempolicy,
                &raw mut policy.mode,
                nodes,
                NODES + 1,
                0_usize,
                0_usize,
            )
        })?;
        Ok(policy)
    }

    /// Makes this the policy of the thread.
    fn set(&self) -> io::Result<()> {
        // SAFETY: the kernel reads a mask of one bit less than the size passed.
        let set = unsafe {
            libc::syscall(libc::SYS_set_mempolicy, self.mode, self.nodes.as_ptr(), NODES + 1)
        };
        check(set).map(drop)
    }
}

/// A file that exists only in memory (memfd_create(2)), as a source for sendfile(2).
#[derive(Debug)]
pub struct MemoryFile(File);

impl MemoryFile {
    /// Makes an empty file. The name appears only in `/proc/PID/fd`.
    pub fn new(name: &str) -> io::Result<Self> {
        Ok(MemoryFile(File::from(memfd_create(name, MemfdFlags::CLOEXEC)?)))
    }

    /// Writes all bytes at an offset; the file grows as needed. If pages are in a socket's queue by
    /// reference, their bytes change there, too.
    pub fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        self.0.write_all_at(bytes, offset)
    }

    /// Sends up to `len` bytes from an offset on, by reference to the file's pages (sendfile(2));
    /// waits while the socket has no room. A process that does not ignore SIGPIPE is killed by it
    /// if the connection is closed.
    #[inline]
    pub fn send(&self, socket: BorrowedFd, offset: u64, len: usize) -> io::Result<usize> {
        let mut offset = offset;
        Ok(sendfile(socket, &self.0, Some(&mut offset), len)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_region_is_aligned_and_writable() {
        let mut region = Region::new(10_000, true).unwrap();
        assert_eq!(region.len(), 10_000);
        assert_eq!(region.as_ptr() as usize % rustix::param::page_size(), 0);
        region.fill(7);
        assert!(region.iter().all(|b| *b == 7));
    }

    #[test]
    fn more_than_there_are_addresses_is_refused() {
        for len in [usize::MAX, usize::MAX - 4094] {
            for region in [Region::new(len, false), Region::on_huge_pages(len, None)] {
                assert_eq!(region.unwrap_err().raw_os_error(), Some(libc::ENOMEM), "{len}");
            }
        }
    }

    #[test]
    fn pages_are_of_the_node_that_is_named() {
        let before = match Policy::of_thread() {
            Ok(before) => before,
            Err(e) => return bytepath_testing::skip!("get_mempolicy: {e}"),
        };
        let region = on_node(0, || Region::new(1 << 20, false)).unwrap().unwrap();
        assert_eq!(node_of(region.as_ptr()).unwrap(), 0);
        assert_eq!(Policy::of_thread().unwrap(), before);
        for absent in [NODES as u32 - 1, NODES as u32, u32::MAX] {
            let refused = on_node(absent, || ()).unwrap_err();
            assert_eq!(refused.raw_os_error(), Some(libc::EINVAL), "node {absent}");
        }
        assert_eq!(Policy::of_thread().unwrap(), before);
    }

    /// As the profiles of container engines refuse it to processes without CAP_SYS_NICE.
    #[test]
    fn a_node_that_a_seccomp_filter_refuses_is_named() {
        let refused = std::thread::spawn(|| {
            forbid_set_mempolicy().unwrap();
            on_node(0, || ()).unwrap_err()
        });
        let refused = refused.join().unwrap();
        assert!(is_node_refused(&refused), "{refused:?}");
        assert_eq!(refused.kind(), io::ErrorKind::PermissionDenied);
        assert!(refused.to_string().contains("set_mempolicy"), "{refused}");
        assert!(!is_node_refused(&io::Error::from_raw_os_error(libc::EPERM)));
    }

    /// Makes set_mempolicy(2) return EPERM in this thread until it ends (seccomp(2)).
    fn forbid_set_mempolicy() -> io::Result<()> {
        let statement =
            |code: u32, k: u32, jf: u8| libc::sock_filter { code: code as u16, jt: 0, jf, k };
        let mut filter = [
            // Load the call's number (`seccomp_data.nr`), and skip the next instruction unless it
            // is this one.
            statement(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0),
            statement(libc::BPF_JMP | libc::BPF_JEQ, libc::SYS_set_mempolicy as u32, 1),
            statement(libc::BPF_RET, libc::SECCOMP_RET_ERRNO | libc::EPERM as u32, 0),
            statement(libc::BPF_RET, libc::SECCOMP_RET_ALLOW, 0),
        ];
        let program = libc::sock_fprog { len: filter.len() as u16, filter: filter.as_mut_ptr() };
        // SAFETY: both calls read their arguments, which are live, and concern only this thread.
        unsafe {
            check(libc::syscall(libc::SYS_prctl, libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))?;
            let mode = libc::SECCOMP_SET_MODE_FILTER;
            check(libc::syscall(libc::SYS_seccomp, mode, 0, &raw const program))?;
        }
        Ok(())
    }

    #[test]
    fn a_page_sent_from_a_file_changes_with_the_file() {
        use std::io::Read;
        use std::os::fd::AsFd;
        use std::os::unix::net::UnixStream;
        let (tx, mut rx) = UnixStream::pair().unwrap();
        let file = MemoryFile::new("test").unwrap();
        file.write_at(&[1; 8192], 0).unwrap();
        assert_eq!(file.send(tx.as_fd(), 4096, 8192).unwrap(), 4096);
        file.write_at(&[2; 100], 4096).unwrap();
        let mut page = [0; 4096];
        rx.read_exact(&mut page).unwrap();
        assert_eq!((page[..100] == [2; 100], page[100..] == [1; 3996]), (true, true));
    }
}
