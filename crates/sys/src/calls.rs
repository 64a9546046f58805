//! System calls of this architecture by number and name, as in `syscalls(2)`, and those of 32-bit
//! programs, which it also runs.

use syscalls::Sysno;

/// System calls of 32-bit programs.
#[cfg(not(target_arch = "aarch64"))]
type Compat = syscalls::x86::Sysno;
#[cfg(target_arch = "aarch64")]
type Compat = syscalls::arm::Sysno;

/// The name of a system call.
pub fn name(number: u32) -> Option<&'static str> {
    Sysno::new(number as usize).map(|call| call.name())
}

/// The number of a system call, if this architecture has it.
pub fn number(name: &str) -> Option<u32> {
    u32::try_from(name.parse::<Sysno>().ok()?.id()).ok()
}

/// The name of a system call of a 32-bit program: i386 on x86-64, arm on arm64.
pub fn compat_name(number: u32) -> Option<&'static str> {
    Compat::new(number as usize).map(|call| call.name())
}

/// The number of a system call in a 32-bit program.
pub fn compat_number(name: &str) -> Option<u32> {
    u32::try_from(name.parse::<Compat>().ok()?.id()).ok()
}

/// Above every number in use, with room for later ones.
pub const LIMIT: u32 = 512;

const _: () = assert!(Sysno::last().id() < LIMIT as i32);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_numbers_belong_together() {
        for (expected, number_of) in
            [("read", libc::SYS_read), ("recvmsg", libc::SYS_recvmsg), ("clone3", libc::SYS_clone3)]
        {
            let value = u32::try_from(number_of).unwrap();
            assert_eq!(name(value), Some(expected));
            assert_eq!(number(expected), Some(value));
        }
        assert_eq!((name(511), number("none such")), (None, None));
    }

    #[test]
    #[cfg(target_arch = "x86_64")]
    fn calls_of_32_bit_programs_have_numbers_of_their_own() {
        // arch/x86/entry/syscalls/syscall_32.tbl.
        for (number, name) in [(4, "write"), (102, "socketcall"), (371, "recvfrom")] {
            assert_eq!(compat_name(number), Some(name));
            assert_eq!(compat_number(name), Some(number));
        }
    }
}
