//! System calls of this architecture by number and name, as `syscalls(2)` has
//! them.

use syscalls::Sysno;

/// The name of a system call.
pub fn name(number: u32) -> Option<&'static str> {
    Sysno::new(number as usize).map(|call| call.name())
}

/// The number of a system call, if this architecture has it.
pub fn number(name: &str) -> Option<u32> {
    u32::try_from(name.parse::<Sysno>().ok()?.id()).ok()
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
}
