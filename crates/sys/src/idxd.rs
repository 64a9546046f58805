//! Work queues of Intel's Data Streaming Accelerator as programs see them (driver idxd):
//! `/dev/dsa/wqD.Q`, descriptors and completion records (include/uapi/linux/idxd.h,
//! drivers/dma/idxd/cdev.c, and the DSA architecture specification, Intel 341204).
//!
//! A [`WorkQueue`] builds every descriptor itself, from memories that it keeps alive, so no caller
//! can make a device write where it must not. Its portal is a device's, or software that takes the
//! same 64 bytes ([`Device`]).

use super::copying::{Memory, Piece};
use super::memory::MappedMemory;
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// A descriptor: 64 bytes, little-endian.
#[repr(align(64))]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Descriptor(pub [u64; 8]);

/// Bytes of a descriptor.
pub const DESCRIPTOR: usize = 64;
/// Bytes of a completion record.
pub const RECORD: usize = 32;

/// `DSA_OPCODE_BATCH`: run the descriptors of a list.
pub const BATCH: u8 = 1;
/// `DSA_OPCODE_MEMMOVE`.
pub const MEMMOVE: u8 = 3;

/// Wait for a page that is not present, if the queue allows it (`IDXD_OP_FLAG_BOF`).
pub const BLOCK_ON_FAULT: u32 = 0x2;
/// The completion address is valid (`IDXD_OP_FLAG_CRAV`).
pub const RECORD_VALID: u32 = 0x4;
/// A completion record is requested (`IDXD_OP_FLAG_RCR`).
pub const RECORD_REQUESTED: u32 = 0x8;
/// Write to the cache instead of memory (`IDXD_OP_FLAG_CC`).
pub const TO_CACHE: u32 = 0x100;

impl Descriptor {
    /// Makes a descriptor from flags, operation, completion record, source (or list), target, and
    /// size in bytes (or number of descriptors).
    pub fn new(flags: u32, operation: u8, [record, source, target]: [u64; 3], size: u32) -> Self {
        let what = u64::from(flags & 0xff_ffff) << 32 | u64::from(operation) << 56;
        Descriptor([what, record, source, target, size.into(), 0, 0, 0])
    }

    pub fn operation(&self) -> u8 {
        (self.0[0] >> 56) as u8
    }

    pub fn flags(&self) -> u32 {
        (self.0[0] >> 32) as u32 & 0xff_ffff
    }

    /// Addresses of completion record, source (or list), and target.
    pub fn addresses(&self) -> [u64; 3] {
        [self.0[1], self.0[2], self.0[3]]
    }

    /// Number of bytes, or of descriptors.
    pub fn size(&self) -> u32 {
        self.0[4] as u32
    }

    /// Returns the descriptor as it is laid out in memory.
    pub fn bytes(&self) -> [u8; DESCRIPTOR] {
        let mut bytes = [0; DESCRIPTOR];
        for (part, word) in bytes.chunks_exact_mut(8).zip(self.0) {
            part.copy_from_slice(&word.to_le_bytes());
        }
        bytes
    }

    /// Makes a descriptor from its bytes in memory.
    pub fn of(bytes: &[u8; DESCRIPTOR]) -> Descriptor {
        let mut words = [0; 8];
        for (word, part) in words.iter_mut().zip(bytes.as_chunks().0) {
            *word = u64::from_le_bytes(*part);
        }
        Descriptor(words)
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Record {
    /// `enum dsa_completion_status`; bit 7 is set if a page fault was caused by a write. 0 while
    /// the descriptor is in flight.
    pub status: u8,
    /// For a copy: 1 if it was made from the end to the beginning.
    pub result: u8,
    /// Number of bytes, or of descriptors of a batch, that are done.
    pub completed: u32,
    /// The address of a page fault.
    pub fault: u64,
}

impl Record {
    /// Reads the record in a memory; `None` while the descriptor is in flight.
    fn read(memory: &Memory, at: usize) -> Option<Record> {
        let status = memory.acquire(at);
        if status == 0 {
            return None;
        }
        let mut bytes = [0; RECORD];
        memory.read(at, &mut bytes);
        let [_, result, _, _, a, b, c, d, fault @ ..] = bytes;
        let fault = fault.first_chunk().copied().map_or(0, u64::from_le_bytes);
        Some(Record { status, result, completed: u32::from_le_bytes([a, b, c, d]), fault })
    }

    /// Writes the record as a device does: the status last.
    pub fn write(&self, memory: &Memory, at: usize) {
        let mut bytes = [0; RECORD];
        bytes[1] = self.result;
        bytes[4..8].copy_from_slice(&self.completed.to_le_bytes());
        bytes[8..16].copy_from_slice(&self.fault.to_le_bytes());
        memory.write(at + 1, &bytes[1..]);
        memory.publish(at, self.status);
    }
}

/// Software that takes the place of a device.
pub trait Device: Send {
    /// Takes a descriptor; returns false if the queue is full, as ENQCMD reports it.
    fn post(&mut self, descriptor: [u8; DESCRIPTOR]) -> bool;
}

/// How descriptors get into a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Submission {
    /// MOVDIR64B: no one else uses the queue, and it never asks to retry.
    Dedicated,
    /// ENQCMD: others use the queue, too, and it may be full.
    Shared,
    /// write(2), for kernels that let only CAP_SYS_RAWIO map the portal (Linux 6.10, if
    /// `user_submission_safe` is false). Devices of the first version then accept no batches.
    Write,
}

/// Returns which of the two instructions this processor supports (CPUID 7, ECX 28 and 29).
pub fn instructions() -> [(Submission, bool); 2] {
    // SAFETY: every x86-64 processor has CPUID. Newer compilers no longer ask; the oldest does.
    #[allow(unused_unsafe)]
    #[cfg(target_arch = "x86_64")]
    let bits = unsafe { core::arch::x86_64::__cpuid_count(7, 0) }.ecx;
    #[cfg(not(target_arch = "x86_64"))]
    let bits = 0_u32;
    [(Submission::Dedicated, bits >> 28 & 1 == 1), (Submission::Shared, bits >> 29 & 1 == 1)]
}

/// Bytes of a queue's portal: one page, and the device takes descriptors at each of its lines
/// alike.
const PORTAL: usize = 4096;

/// Lines between the start of one submitter and that of the next: odd, so that each of as many
/// submitters as there are lines starts at its own, and far enough that they do not meet at once.
const APART: usize = 17;

/// The order in which one submitter uses the lines of a portal. Each store goes to the line after
/// the last one's, as the kernel's own do (idxd_wq_portal_addr, drivers/dma/idxd/idxd.h), which was
/// measured to be faster (its commit a9c171527a34), and several submitters to a shared queue
/// usually start at different lines.
struct Lines {
    next: usize,
}

impl Lines {
    fn of_submitter(number: usize) -> Lines {
        Lines { next: number.wrapping_mul(APART * DESCRIPTOR) % PORTAL }
    }

    /// Returns the offset in the page at which the next descriptor is stored.
    fn step(&mut self) -> usize {
        let at = self.next;
        self.next = (at + DESCRIPTOR) % PORTAL;
        at
    }
}

/// Returns a number that no other queue of this process has, nor, as a rule, one of a process that
/// was started at about the same time.
fn submitter() -> usize {
    static OPENED: AtomicUsize = AtomicUsize::new(0);
    number_of(std::process::id() as usize, OPENED.fetch_add(1, Ordering::Relaxed))
}

/// Number of the Nth queue of a process. Numbers of one process are half the number of lines, plus
/// one, apart, so that its second queue does not start where the next process has its first.
fn number_of(process: usize, queue: usize) -> usize {
    process.wrapping_add(queue.wrapping_mul(33))
}

enum Portal {
    Mapped(MappedMemory, Lines, Submission),
    Written(File),
    Software(Box<dyn Device>),
}

/// Memories of one process that an engine copies between; their indices are their numbers.
pub type Memories = Arc<[Memory]>;

/// Parameters of a queue: memories, slots for copies, copies per batch, and flags of each copy.
pub type Setup = (Memories, usize, usize, u32);

/// A location: the number of the memory, and the first byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// Number of the memory.
    pub memory: usize,
    /// Offset of the first byte in it.
    pub at: usize,
}

impl Place {
    /// Looks up this place in `memories`. Panics if there is no such memory.
    pub fn of(self, memories: &[Memory]) -> Piece<'_> {
        Piece { memory: &memories[self.memory], at: self.at }
    }

    /// Returns the address of `len` bytes here. Panics if they extend beyond the end of the memory.
    pub fn address(self, memories: &[Memory], len: usize) -> u64 {
        let memory = &memories[self.memory];
        assert!(self.at.checked_add(len).is_some_and(|end| end <= memory.len()));
        memory.address(self.at)
    }
}

/// A copy of `len` bytes from one place to another. The places of one copy may overlap; those of
/// different copies in flight must not, or either one's bytes may result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Copy {
    pub from: Place,
    pub to: Place,
    /// Number of bytes, at least one.
    pub len: u32,
}

/// An open work queue. It owns the records and lists of descriptors; each slot has one of each:
/// slots below `depth` are for copies, the others for batches.
pub struct WorkQueue {
    // Dropped first: closing the device waits for operations in flight (idxd_file_dev_release).
    portal: Portal,
    memories: Memories,
    records: Arc<Memory>,
    lists: Arc<Memory>,
    depth: usize,
    batch: usize,
    flags: u32,
}

impl WorkQueue {
    /// Opens `/dev/dsa/wqD.Q`. EBUSY: another program uses the dedicated queue. EPERM: only
    /// CAP_SYS_RAWIO may map the portal, and this kernel has no other way in. EOPNOTSUPP: the
    /// processor lacks the instruction.
    pub fn open(path: &Path, shared: bool, setup: Setup) -> io::Result<WorkQueue> {
        let file = OpenOptions::new().read(true).write(true).open(path)?;
        let way = if shared { Submission::Shared } else { Submission::Dedicated };
        let portal = match MappedMemory::new(file.as_fd(), 0, PORTAL) {
            Ok(_) if !instructions().contains(&(way, true)) => {
                return Err(io::Error::from_raw_os_error(libc::EOPNOTSUPP));
            }
            Ok(page) => Portal::Mapped(page, Lines::of_submitter(submitter()), way),
            Err(e) if e.raw_os_error() == Some(libc::EPERM) => Portal::Written(file),
            Err(e) => return Err(e),
        };
        WorkQueue::of(setup, |_, _| Ok(portal))?
    }

    /// Makes a queue whose device is software, which `device` makes from the memory of the records
    /// and that of the lists. The inner error is that of `device`.
    pub fn software<E>(
        setup: Setup,
        device: impl FnOnce(&Arc<Memory>, &Arc<Memory>) -> Result<Box<dyn Device>, E>,
    ) -> io::Result<Result<WorkQueue, E>> {
        WorkQueue::of(setup, |records, lists| device(records, lists).map(Portal::Software))
    }

    fn of<E>(
        (memories, depth, batch, flags): Setup,
        portal: impl FnOnce(&Arc<Memory>, &Arc<Memory>) -> Result<Portal, E>,
    ) -> io::Result<Result<WorkQueue, E>> {
        let records = Arc::new(Memory::new(2 * depth * RECORD)?);
        let lists = Arc::new(Memory::new(depth * batch.max(1) * DESCRIPTOR)?);
        let portal = portal(&records, &lists);
        Ok(portal.map(|portal| WorkQueue { portal, memories, records, lists, depth, batch, flags }))
    }

    /// How descriptors are submitted; `None` for software.
    pub fn submission(&self) -> Option<Submission> {
        match &self.portal {
            Portal::Mapped(.., submission) => Some(*submission),
            Portal::Written(_) => Some(Submission::Write),
            Portal::Software(_) => None,
        }
    }

    /// Submits a copy with the record of `slot`; returns false if the queue is full. Never inlined,
    /// so that profiles show its time.
    #[inline(never)]
    pub fn post(&mut self, slot: usize, copy: &Copy) -> io::Result<bool> {
        let descriptor = self.descriptor(slot, copy);
        self.submit(&descriptor)
    }

    /// Submits copies, each with its slot, as a batch with the record of slot `depth + list`;
    /// returns false if the queue is full. Panics if there are more than a batch can hold.
    #[inline(never)]
    pub fn post_batch(&mut self, list: usize, copies: &[(usize, Copy)]) -> io::Result<bool> {
        assert!(list < self.depth && copies.len() <= self.batch);
        let start = list * self.batch * DESCRIPTOR;
        for (n, (slot, copy)) in copies.iter().enumerate() {
            let descriptor = self.descriptor(*slot, copy);
            self.lists.write(start + n * DESCRIPTOR, &descriptor.bytes());
        }
        let addresses = [self.cleared(self.depth + list), self.lists.address(start), 0];
        let flags = RECORD_VALID | RECORD_REQUESTED;
        let size = u32::try_from(copies.len()).unwrap_or(u32::MAX);
        self.submit(&Descriptor::new(flags, BATCH, addresses, size))
    }

    /// Returns the completion record of a slot; `None` while its descriptor is in flight.
    pub fn record(&self, slot: usize) -> Option<Record> {
        Record::read(&self.records, slot * RECORD)
    }

    fn descriptor(&self, slot: usize, copy: &Copy) -> Descriptor {
        assert!(slot < self.depth);
        let len = copy.len as usize;
        let [from, to] = [copy.from, copy.to].map(|place| place.address(&self.memories, len));
        let flags = self.flags | RECORD_VALID | RECORD_REQUESTED;
        Descriptor::new(flags, MEMMOVE, [self.cleared(slot), from, to], copy.len)
    }

    /// Clears the status of a slot's record, and returns the record's address.
    fn cleared(&self, slot: usize) -> u64 {
        self.records.publish(slot * RECORD, 0);
        self.records.address(slot * RECORD)
    }

    fn submit(&mut self, descriptor: &Descriptor) -> io::Result<bool> {
        match &mut self.portal {
            Portal::Software(device) => Ok(device.post(descriptor.bytes())),
            Portal::Written(file) => match file.write(&descriptor.bytes()) {
                Ok(_) => Ok(true),
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => Ok(false),
                Err(e) => Err(e),
            },
            Portal::Mapped(page, lines, submission) => {
                // SAFETY: the line is within the mapped page, which covers all steps. The
                // descriptor's record, list and copies are within memories of ours, whose ranges
                // were checked, and which live until the device is closed, which waits for
                // operations in flight.
                Ok(unsafe {
                    let line = page.start().as_ptr().add(lines.step());
                    store(line, descriptor, *submission)
                })
            }
        }
    }
}

/// Stores a descriptor atomically; returns false if the queue asks to retry.
///
/// # Safety
/// `line` is writable and begins at a multiple of 64. The caller is responsible for what a device
/// does with the descriptor.
#[cfg(target_arch = "x86_64")]
unsafe fn store(line: *mut u8, descriptor: &Descriptor, submission: Submission) -> bool {
    let refused: u8;
    // SAFETY: by the caller's promise. The device must see earlier stores, those of the bytes to be
    // copied and of the cleared record, first: the store of a descriptor is not ordered with
    // others.
    unsafe {
        if submission == Submission::Shared {
            std::arch::asm!(
                "sfence",
                "enqcmd {line}, [{descriptor}]",
                "setz {refused}",
                line = in(reg) line,
                descriptor = in(reg) descriptor,
                refused = out(reg_byte) refused,
                options(nostack),
            );
        } else {
            std::arch::asm!(
                "sfence",
                "movdir64b {line}, [{descriptor}]",
                line = in(reg) line,
                descriptor = in(reg) descriptor,
                options(nostack, preserves_flags),
            );
            refused = 0;
        }
    }
    refused == 0
}

#[cfg(not(target_arch = "x86_64"))]
unsafe fn store(_: *mut u8, _: &Descriptor, _: Submission) -> bool {
    unreachable!("a queue is not opened without the instruction")
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytepath_testing::skip;

    #[test]
    fn a_descriptor_has_the_layout_of_the_header() {
        let made = Descriptor::new(0x10e, MEMMOVE, [0x1000, 0x2000, 0x3000], 77);
        let bytes = made.bytes();
        // flags:24 and opcode:8 are the second word; the other fields are separate.
        assert_eq!(bytes[..8], [0, 0, 0, 0, 0x0e, 0x01, 0, 3]);
        assert_eq!(bytes[8..16], 0x1000_u64.to_le_bytes());
        assert_eq!(bytes[16..24], 0x2000_u64.to_le_bytes());
        assert_eq!(bytes[24..32], 0x3000_u64.to_le_bytes());
        assert_eq!(bytes[32..40], [77, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!(Descriptor::of(&bytes), made);
        assert_eq!((made.operation(), made.flags(), made.size()), (MEMMOVE, 0x10e, 77));
        assert_eq!((size_of::<Descriptor>(), align_of::<Descriptor>()), (64, 64));
    }

    #[test]
    fn a_record_is_there_when_its_status_is() {
        let memory = Memory::new(RECORD).unwrap();
        assert_eq!(Record::read(&memory, 0), None);
        let record = Record { status: 0x83, result: 1, completed: 4096, fault: 0xdead_b000 };
        record.write(&memory, 0);
        assert_eq!(Record::read(&memory, 0), Some(record));
        let mut bytes = [0; RECORD];
        memory.read(0, &mut bytes);
        assert_eq!(bytes[..8], [0x83, 1, 0, 0, 0, 16, 0, 0]);
    }

    #[test]
    fn submitters_step_through_all_lines_of_a_portal_and_begin_apart() {
        let count = PORTAL / DESCRIPTOR;
        let turn = |submitter| {
            let mut lines = Lines::of_submitter(submitter);
            (0..=count).map(|_| lines.step()).collect::<Vec<usize>>()
        };
        let first = turn(0);
        let expected: Vec<usize> = (0..count).map(|line| line * 64).collect();
        assert_eq!(first[..count], expected, "each line once, in order");
        assert_eq!((first[count - 1], first[count]), (4096 - 64, 0), "the page begins again");
        let mut starts = std::collections::BTreeSet::new();
        for submitter in 0..count {
            let lines = turn(submitter);
            assert!(lines.iter().all(|at| at % 64 == 0 && at + 64 <= 4096), "{lines:?}");
            assert_eq!(lines[0], lines[count], "{lines:?}");
            // As long as they submit at the same rate, no two are at one line.
            assert!(starts.insert(lines[0]), "submitter {submitter} begins where another does");
        }
        assert_eq!(turn(count), first);
        turn(usize::MAX);
        assert_ne!(submitter(), submitter());
        // With two queues for each of half as many processes as there are lines, all but the last
        // start at different lines.
        let queues = (0..count / 2).flat_map(|process| [0, 1].map(|n| number_of(process, n)));
        let starts: std::collections::BTreeSet<usize> = queues.map(|n| turn(n)[0]).collect();
        assert_eq!(starts.len(), count - 1, "{starts:?}");
    }

    /// MOVDIR64B stores to memory as it does to a portal.
    #[test]
    #[cfg(target_arch = "x86_64")]
    fn a_descriptor_is_stored_in_one_piece() {
        if !instructions().contains(&(Submission::Dedicated, true)) {
            return skip!("the processor has no MOVDIR64B");
        }
        let memory = Memory::new(4096).unwrap();
        let made = Descriptor::new(0xc, MEMMOVE, [1, 2, 3], 4);
        // SAFETY: the memory is a page of ours, and no device's.
        let taken = unsafe { store(memory.address(0) as *mut u8, &made, Submission::Dedicated) };
        let mut bytes = [0; DESCRIPTOR];
        settle();
        memory.read(0, &mut bytes);
        assert!(taken);
        assert_eq!(Descriptor::of(&bytes), made);
    }

    /// Waits until what MOVDIR64B has stored is in memory: it is not ordered with later accesses.
    #[cfg(target_arch = "x86_64")]
    fn settle() {
        // SAFETY: a fence changes nothing.
        unsafe { std::arch::asm!("sfence", options(nostack, preserves_flags)) };
    }

    /// A queue whose portal is a page of a file: each descriptor is in the line after the previous
    /// one.
    #[test]
    #[cfg(target_arch = "x86_64")]
    fn descriptors_are_stored_line_by_line() {
        if !instructions().contains(&(Submission::Dedicated, true)) {
            return skip!("the processor has no MOVDIR64B");
        }
        let file = tempfile::tempfile().unwrap();
        file.set_len(PORTAL as u64).unwrap();
        let page = MappedMemory::new(file.as_fd(), 0, PORTAL).unwrap();
        let portal = Portal::Mapped(page, Lines::of_submitter(0), Submission::Dedicated);
        let memories = Memories::from([Memory::new(4096).unwrap()]);
        let queue = WorkQueue::of((memories, 1, 1, 0), |_, _| Ok::<_, ()>(portal));
        let mut queue = queue.unwrap().unwrap();
        let place = |at| Place { memory: 0, at };
        for len in 1..=65 {
            assert!(queue.post(0, &Copy { from: place(0), to: place(2048), len }).unwrap());
        }
        settle();
        let size = |line: usize| {
            let mut bytes = [0; DESCRIPTOR];
            std::os::unix::fs::FileExt::read_exact_at(&file, &mut bytes, (line * 64) as u64)
                .unwrap();
            Descriptor::of(&bytes).size()
        };
        assert_eq!([size(0), size(1), size(62), size(63)], [65, 2, 63, 64]);
    }
}
