//! Memory in which several threads, or a device, copy at the same time, and the ways in which a
//! processor copies.
//!
//! [`Memory`] is never referred to by Rust references: reading bytes while they are copied returns
//! old ones, new ones or a mixture, as with any DMA, and nothing worse.

use super::memory::Region;
use std::io;
use std::sync::atomic::{AtomicU8, Ordering};

/// A private anonymous mapping with every page present.
#[derive(Debug)]
pub struct Memory {
    /// Accessed only by memmove(3), by copy instructions in assembly and by atomics: several
    /// threads and a device use it at the same time.
    region: Region,
}

/// How the processor copies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Method {
    /// memmove(3) of the C library, which chooses by size and processor.
    Memmove,
    /// The instruction `rep movsb`.
    RepMovsb,
    /// Stores that bypass the caches (`movntps`), fenced at the end.
    NonTemporal,
}

/// A part of a [`Memory`].
#[derive(Clone, Copy, Debug)]
pub struct Piece<'a> {
    pub memory: &'a Memory,
    pub at: usize,
}

impl Memory {
    /// Maps `len` bytes of zeros.
    pub fn new(len: usize) -> io::Result<Memory> {
        Ok(Memory { region: Region::new(len, false)? })
    }

    /// Its length in bytes.
    #[allow(clippy::len_without_is_empty, reason = "no memory is empty")]
    pub fn len(&self) -> usize {
        self.region.len()
    }

    /// The address of a byte, as seen by a device that shares the address space.
    pub fn address(&self, at: usize) -> u64 {
        self.start() as u64 + at as u64
    }

    /// Returns the offset of an address, or `None` if it is outside this memory.
    pub fn offset(&self, address: u64) -> Option<usize> {
        let at = usize::try_from(address.checked_sub(self.address(0))?).ok()?;
        (at < self.len()).then_some(at)
    }

    /// Copies bytes in. Panics beyond the end.
    pub fn write(&self, at: usize, bytes: &[u8]) {
        self.check(at, bytes.len());
        // SAFETY: the range is within the mapping, and `bytes` is borrowed.
        unsafe { move_bytes(bytes.as_ptr(), self.start().add(at), bytes.len()) };
    }

    /// Copies bytes out. Panics beyond the end.
    pub fn read(&self, at: usize, bytes: &mut [u8]) {
        self.check(at, bytes.len());
        // SAFETY: the range is within the mapping, and `bytes` is borrowed.
        unsafe { move_bytes(self.start().add(at), bytes.as_mut_ptr(), bytes.len()) };
    }

    /// Reads a byte, and orders all writes before its publication before this read.
    pub(crate) fn acquire(&self, at: usize) -> u8 {
        self.atom(at).load(Ordering::Acquire)
    }

    /// Publishes a byte after all earlier writes.
    pub fn publish(&self, at: usize, byte: u8) {
        self.atom(at).store(byte, Ordering::Release);
    }

    fn atom(&self, at: usize) -> &AtomicU8 {
        self.check(at, 1);
        // SAFETY: the byte is within the mapping, which lives as long as the reference; an
        // AtomicU8 has the size and alignment of a byte.
        unsafe { AtomicU8::from_ptr(self.start().add(at)) }
    }

    fn start(&self) -> *mut u8 {
        self.region.start().as_ptr()
    }

    fn check(&self, at: usize, len: usize) {
        assert!(at.checked_add(len).is_some_and(|end| end <= self.len()), "beyond the memory");
    }
}

impl Method {
    /// Whether this processor supports it.
    pub fn available(self) -> bool {
        self == Method::Memmove || cfg!(target_arch = "x86_64")
    }

    /// Copies `len` bytes. Overlapping pieces are moved as by memmove(3), whatever the method.
    /// Panics beyond the end of a memory.
    pub fn copy(self, from: Piece, to: Piece, len: usize) {
        from.memory.check(from.at, len);
        to.memory.check(to.at, len);
        let apart = from.memory.address(from.at).abs_diff(to.memory.address(to.at)) >= len as u64;
        // SAFETY: both ranges were checked, and the mappings are borrowed.
        unsafe {
            let source = from.memory.start().add(from.at).cast_const();
            let target = to.memory.start().add(to.at);
            match self {
                #[cfg(target_arch = "x86_64")]
                Method::RepMovsb if apart => rep_movsb(source, target, len),
                #[cfg(target_arch = "x86_64")]
                Method::NonTemporal if apart => non_temporal(source, target, len),
                _ => move_bytes(source, target, len),
            }
        }
    }
}

/// Calls memmove(3) in the C library: other threads may copy at the same time.
///
/// # Safety
/// Both ranges are mapped throughout the call.
unsafe fn move_bytes(source: *const u8, target: *mut u8, len: usize) {
    // SAFETY: by the caller's promise.
    unsafe { libc::memmove(target.cast(), source.cast(), len) };
}

/// # Safety
/// Both ranges are mapped throughout the call, and do not overlap.
#[cfg(target_arch = "x86_64")]
unsafe fn rep_movsb(source: *const u8, target: *mut u8, len: usize) {
    // SAFETY: by the caller's promise; the direction flag is clear in Rust.
    unsafe {
        std::arch::asm!(
            "rep movsb",
            inout("rcx") len => _,
            inout("rsi") source => _,
            inout("rdi") target => _,
            options(nostack, preserves_flags),
        );
    }
}

/// # Safety
/// Both ranges are mapped throughout the call, and do not overlap.
#[cfg(target_arch = "x86_64")]
unsafe fn non_temporal(source: *const u8, target: *mut u8, len: usize) {
    // Only whole cache lines of the target; the processor would read a partial one to fill it up.
    let before = target.align_offset(64).min(len);
    let lines = (len - before) / 64 * 64;
    // SAFETY: the three parts make up the ranges, which are mapped by the caller's promise.
    unsafe {
        move_bytes(source, target, before);
        if lines > 0 {
            std::arch::asm!(
                "2:",
                "movups xmm0, [{source}]",
                "movups xmm1, [{source} + 16]",
                "movups xmm2, [{source} + 32]",
                "movups xmm3, [{source} + 48]",
                "movntps [{target}], xmm0",
                "movntps [{target} + 16], xmm1",
                "movntps [{target} + 32], xmm2",
                "movntps [{target} + 48], xmm3",
                "add {source}, 64",
                "add {target}, 64",
                "sub {left}, 64",
                "jnz 2b",
                source = inout(reg) source.add(before) => _,
                target = inout(reg) target.add(before) => _,
                left = inout(reg) lines => _,
                out("xmm0") _, out("xmm1") _, out("xmm2") _, out("xmm3") _,
                options(nostack),
            );
        }
        let done = before + lines;
        move_bytes(source.add(done), target.add(done), len - done);
        // These stores are not ordered with anything else.
        std::arch::asm!("sfence", options(nostack, preserves_flags));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const METHODS: [Method; 3] = [Method::Memmove, Method::RepMovsb, Method::NonTemporal];

    #[test]
    fn every_method_copies_every_byte_and_no_other() {
        let [source, target] = [(); 2].map(|()| Memory::new(4096).unwrap());
        let bytes: Vec<u8> = (0..4096_u32).map(|n| (n * 7 + n / 251) as u8).collect();
        source.write(0, &bytes);
        for method in METHODS.into_iter().filter(|method| method.available()) {
            for (from, to, len) in
                [(0, 0, 4096), (1, 3, 1), (5, 64, 64), (7, 9, 1000), (0, 1, 0), (64, 63, 129)]
            {
                target.write(0, &[0xee; 4096]);
                let piece = |memory, at| Piece { memory, at };
                method.copy(piece(&source, from), piece(&target, to), len);
                let mut expected = vec![0xee; 4096];
                expected[to..to + len].copy_from_slice(&bytes[from..from + len]);
                let mut found = vec![0; 4096];
                target.read(0, &mut found);
                assert!(found == expected, "{method:?} {from} {to} {len}");
            }
        }
    }

    #[test]
    fn pieces_that_overlap_are_moved() {
        for method in METHODS {
            let memory = Memory::new(4096).unwrap();
            memory.write(0, b"abcdef");
            method.copy(Piece { memory: &memory, at: 0 }, Piece { memory: &memory, at: 2 }, 6);
            let mut found = [0; 8];
            memory.read(0, &mut found);
            assert_eq!(&found, b"ababcdef", "{method:?}");
        }
    }

    #[test]
    fn addresses_lead_back() {
        let memory = Memory::new(100).unwrap();
        assert_eq!(memory.offset(memory.address(99)), Some(99));
        assert_eq!(memory.offset(memory.address(100)), None);
        assert_eq!(memory.offset(memory.address(0) - 1), None);
    }

    #[test]
    #[should_panic(expected = "beyond the memory")]
    fn nothing_is_copied_beyond_the_end() {
        let memory = Memory::new(64).unwrap();
        Method::Memmove.copy(
            Piece { memory: &memory, at: 1 },
            Piece { memory: &memory, at: 0 },
            64,
        );
    }
}
