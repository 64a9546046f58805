//! The worker threads of io_uring (io-wq): where they may run.

use io_uring::IoUring;
use std::io;

/// Pins to one CPU the workers that io_uring starts for the calling thread, for every ring that
/// this thread drives, now and later (`IORING_REGISTER_IOWQ_AFF`, Linux 5.14;
/// io_uring_register(2)). Workers belong to the submitting thread and not to a ring
/// (io_uring/tctx.c), so the ring that this request needs is closed at once. EINVAL: no such CPU,
/// or an older kernel.
pub fn pin_workers(cpu: u32) -> io::Result<()> {
    if cpu as usize >= libc::CPU_SETSIZE as usize {
        return Err(io::Error::from_raw_os_error(libc::EINVAL));
    }
    // SAFETY: cpu_set_t is an array of integers, for which zeros are a value.
    let mut set: libc::cpu_set_t = unsafe { std::mem::zeroed() };
    // SAFETY: the CPU was checked against the size of the set.
    unsafe { libc::CPU_SET(cpu as usize, &mut set) };
    IoUring::new(1)?.submitter().register_iowq_aff(&set)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::thread;
    use bytepath_testing::skip;
    use io_uring::{opcode, squeue, types};
    use std::fs;
    use std::os::fd::AsRawFd;

    /// Reads a file through a worker and returns which CPUs that worker may use.
    fn cpus_of_a_worker() -> String {
        let file = fs::File::open("/proc/self/exe").unwrap();
        let mut buffer = vec![0u8; 64];
        let mut ring = IoUring::new(1).unwrap();
        let fd = types::Fd(file.as_raw_fd());
        let read = opcode::Read::new(fd, buffer.as_mut_ptr(), buffer.len() as u32).build();
        let read = read.flags(squeue::Flags::ASYNC);
        // SAFETY: file and buffer live until the one completion has come.
        unsafe { ring.submission().push(&read).unwrap() };
        ring.submit_and_wait(1).unwrap();
        assert_eq!(ring.completion().next().unwrap().result(), 64);
        let name = format!("iou-wrk-{}", thread::id());
        for task in fs::read_dir("/proc/self/task").unwrap() {
            let dir = task.unwrap().path();
            if crate::procfs::name(&dir).is_some_and(|comm| comm == name) {
                let status = fs::read_to_string(dir.join("status")).unwrap();
                let line = status.lines().find_map(|l| l.strip_prefix("Cpus_allowed_list:"));
                return line.unwrap().trim().to_owned();
            }
        }
        panic!("no worker called {name}");
    }

    #[test]
    fn workers_stay_on_the_cpu_that_was_named() {
        if let Err(e) = IoUring::new(1) {
            skip!("io_uring_setup: {e}");
            return;
        }
        for cpu in thread::allowed().unwrap() {
            let seen = std::thread::spawn(move || {
                pin_workers(cpu).unwrap();
                cpus_of_a_worker()
            });
            assert_eq!(seen.join().unwrap(), cpu.to_string());
        }
        assert_eq!(pin_workers(1 << 20).unwrap_err().raw_os_error(), Some(libc::EINVAL));
    }
}
