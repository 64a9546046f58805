//! Busy polling of an epoll instance while epoll_wait(2) waits: it polls the device queue from
//! which the last ready socket received. ioctl_eventpoll(2).

use rustix::event::epoll::{self, CreateFlags};
use std::io;
use std::os::fd::AsFd;

/// `struct epoll_params` (include/uapi/linux/eventpoll.h).
#[repr(C)]
struct Parameters {
    busy_poll_usecs: u32,
    busy_poll_budget: u16,
    prefer_busy_poll: u8,
    pad: u8,
}

/// `_IOW(0x8A, 0x01, struct epoll_params)`.
const EPIOCSPARAMS: u32 = 0x4008_8a01;

/// Makes waits poll for `microseconds` before they sleep (0: not at all), with up to `budget`
/// packets per turn (0: the kernel's default); with `prefer`, the queue's interrupts stay off
/// meanwhile. ENOTTY: before Linux 6.9; EINVAL: without `CONFIG_NET_RX_BUSY_POLL`, or longer than
/// 2^31 - 1; EPERM: more than 64 packets without `CAP_NET_ADMIN`.
pub fn set_busy_poll(
    epoll: impl AsFd,
    microseconds: u32,
    budget: u16,
    prefer: bool,
) -> io::Result<()> {
    let mut parameters = Parameters {
        busy_poll_usecs: microseconds,
        busy_poll_budget: budget,
        prefer_busy_poll: prefer.into(),
        pad: 0,
    };
    // SAFETY: the request reads the structure that its number encodes.
    unsafe { crate::ioctl(epoll, EPIOCSPARAMS, &raw mut parameters) }.map(drop)
}

/// Tries [`set_busy_poll`] on an instance that is closed at once.
pub fn try_busy_poll() -> io::Result<()> {
    set_busy_poll(epoll::create(CreateFlags::CLOEXEC)?, 1, 0, false)
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytepath_testing::skip;

    /// `_IOR(0x8A, 0x02, struct epoll_params)`.
    const EPIOCGPARAMS: u32 = 0x8008_8a02;

    #[test]
    fn the_kernel_has_what_was_set() {
        if let Err(e) = try_busy_poll() {
            skip!("busy polling by epoll: {e}");
            return;
        }
        let instance = epoll::create(CreateFlags::CLOEXEC).unwrap();
        set_busy_poll(&instance, 75, 16, true).unwrap();
        let mut got =
            Parameters { busy_poll_usecs: 0, busy_poll_budget: 0, prefer_busy_poll: 0, pad: 0 };
        // SAFETY: the request fills the structure that its number encodes.
        unsafe { crate::ioctl(&instance, EPIOCGPARAMS, &raw mut got) }.unwrap();
        let got = (got.busy_poll_usecs, got.busy_poll_budget, got.prefer_busy_poll);
        assert_eq!(got, (75, 16, 1));
        let refused = set_busy_poll(&instance, 1 << 31, 0, true).unwrap_err();
        assert_eq!(refused.raw_os_error(), Some(libc::EINVAL));
    }
}
