//! System calls whose numbers are known, made by the double while bytepath observes it.

use std::fs::File;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::{AsFd, AsRawFd};
use std::time::Duration;

pub const READS: u64 = 1000;
pub const WRITES: u64 = 700;
pub const FAILURES: u64 = 50;
pub const SIZE: u64 = 512;

/// Makes known numbers of calls in four threads and three children.
pub fn family() {
    let work = |times: u64, reads: bool| {
        let (zero, null) = (File::open("/dev/zero").unwrap(), File::create("/dev/null").unwrap());
        let mut bytes = [0u8; SIZE as usize];
        for _ in 0..times * READS * u64::from(reads) {
            assert_eq!(rustix::io::read(&zero, &mut bytes), Ok(SIZE as usize));
        }
        for _ in 0..times * WRITES {
            assert_eq!(rustix::io::write(&null, &bytes), Ok(SIZE as usize));
        }
        for _ in 0..times * FAILURES {
            // SAFETY: there is no descriptor of this number to close.
            assert_eq!(unsafe { libc::close(-1) }, -1);
        }
    };
    let threads: Vec<_> = (0..4u64)
        .map(|i| {
            let thread = std::thread::Builder::new().name(format!("known-{i}"));
            thread.spawn(move || work(i + 1, true)).unwrap()
        })
        .collect();
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    let null = File::create("/dev/null").unwrap();
    for times in 1..=3 {
        // SAFETY: the child only makes system calls and exits.
        let pid = unsafe { libc::fork() };
        if pid == 0 {
            let bytes = [0u8; SIZE as usize];
            for _ in 0..times * WRITES {
                let _ = rustix::io::write(&null, &bytes);
            }
            // SAFETY: exits at once, without running the parent's destructors.
            unsafe { libc::_exit(0) };
        }
        println!("\nchild {pid}");
        // SAFETY: waits for the child just made; no status is requested.
        assert_eq!(unsafe { libc::waitpid(pid, std::ptr::null_mut(), 0) }, pid);
    }
    std::process::exit(7);
}

/// Sends and receives in every manner that needs no special device.
pub fn sockets() {
    use rustix::net::{RecvFlags, SendFlags, recv, send};
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let out = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let into = listener.accept().unwrap().0;
    let data = vec![5u8; 64 << 10];
    let mut room = vec![0u8; 64 << 10];
    let take = |room: &mut [u8], mut left: usize| {
        while left > 0 {
            let n = left.min(room.len());
            left -= recv(&into, &mut room[..n], RecvFlags::empty()).unwrap().0;
        }
    };
    // Four writes, 40 000 bytes; peek at 100, discard 5 000.
    for _ in 0..4 {
        assert_eq!(rustix::io::write(&out, &data[..10_000]), Ok(10_000));
    }
    assert_eq!(recv(&into, &mut room[..100], RecvFlags::PEEK).unwrap().0, 100);
    let waited = RecvFlags::TRUNC | RecvFlags::WAITALL;
    assert_eq!(recv(&into, &mut room[..5_000], waited).unwrap().0, 5_000);
    take(&mut room, 35_000);
    // One message in three pieces.
    let pieces = [&data[..1_000], &data[..2_000], &data[..7_000]].map(std::io::IoSlice::new);
    let mut control = rustix::net::SendAncillaryBuffer::default();
    let sent = rustix::net::sendmsg(&out, &pieces, &mut control, SendFlags::empty());
    assert_eq!(sent, Ok(10_000));
    take(&mut room, 10_000);
    // By reference, as far as the caller can know.
    bytepath::sys::tcp::set_int(out.as_fd(), libc::SOL_SOCKET, libc::SO_ZEROCOPY, 1).unwrap();
    let zerocopy = SendFlags::from_bits_retain(libc::MSG_ZEROCOPY as u32);
    assert_eq!(send(&out, &data[..20_000], zerocopy), Ok(20_000));
    take(&mut room, 20_000);
    let mut file = tempfile::tempfile().unwrap();
    file.write_all(&data[..8_192]).unwrap();
    let mut from = 0;
    assert_eq!(rustix::fs::sendfile(&out, &file, Some(&mut from), 8_192), Ok(8_192));
    take(&mut room, 8_192);
    // Several messages at once: 100, 200 and 300 bytes.
    let (one, other) = std::os::unix::net::UnixDatagram::pair().unwrap();
    let mut pieces = [100, 200, 300]
        .map(|length| libc::iovec { iov_base: room.as_mut_ptr().cast(), iov_len: length });
    // SAFETY: all zeros are a valid, empty message.
    let mut vector: [libc::mmsghdr; 3] = unsafe { std::mem::zeroed() };
    for (message, piece) in vector.iter_mut().zip(&mut pieces) {
        message.msg_hdr.msg_iov = piece;
        message.msg_hdr.msg_iovlen = 1;
    }
    // SAFETY: three messages, each of one piece within `room`.
    let sent = unsafe { libc::sendmmsg(one.as_raw_fd(), vector.as_mut_ptr(), 3, 0) };
    assert_eq!(sent, 3);
    pieces.iter_mut().for_each(|piece| piece.iov_len = 1000);
    // SAFETY: as above; every piece is 1000 bytes of `room`.
    let received = unsafe {
        libc::recvmmsg(other.as_raw_fd(), vector.as_mut_ptr(), 3, 0, std::ptr::null_mut())
    };
    assert_eq!((received, vector.map(|m| m.msg_len)), (3, [100, 200, 300]));
    // Another kind of socket.
    let (left, mut right) = std::os::unix::net::UnixStream::pair().unwrap();
    assert_eq!(send(&left, &data[..3_000], SendFlags::empty()), Ok(3_000));
    right.read_exact(&mut room[..3_000]).unwrap();
}

/// Writes in three threads until standard input ends.
pub fn endless() {
    for i in 0..3 {
        let null = File::create("/dev/null").unwrap();
        let thread = std::thread::Builder::new().name(format!("endless-{i}"));
        let run = move || {
            loop {
                rustix::io::write(&null, &[0; SIZE as usize]).unwrap();
                std::thread::sleep(Duration::from_micros(100));
            }
        };
        thread.spawn(run).unwrap();
    }
    println!("\nready");
    let _ = std::io::stdin().read(&mut [0; 1]);
}
