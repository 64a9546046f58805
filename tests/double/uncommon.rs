//! Rare socket calls, with known numbers of bytes.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};
use std::time::Duration;

/// Moves 3000 bytes through a pair of sockets by preadv2(2) and pwritev2(2) at the offset -1.
pub fn positioned() {
    let (one, other) = std::os::unix::net::UnixStream::pair().unwrap();
    let mut room = [7u8; 3000];
    let piece = libc::iovec { iov_base: room.as_mut_ptr().cast(), iov_len: room.len() };
    // SAFETY: one piece, which is `room`.
    assert_eq!(unsafe { libc::pwritev2(one.as_raw_fd(), &piece, 1, -1, 0) }, 3000);
    // SAFETY: as above.
    assert_eq!(unsafe { libc::preadv2(other.as_raw_fd(), &piece, 1, -1, 0) }, 3000);
}

/// Makes a connection by TCP Fast Open that carries 4000 bytes.
pub fn fast_open() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    bytepath::sys::tcp::set_int(listener.as_fd(), libc::IPPROTO_TCP, libc::TCP_FASTOPEN, 5)
        .unwrap();
    let SocketAddr::V4(to) = listener.local_addr().unwrap() else { panic!("an IPv4 listener") };
    let socket = stream_socket(0);
    use rustix::net::{SendFlags, sendto};
    let fast = SendFlags::from_bits_retain(libc::MSG_FASTOPEN as u32);
    assert_eq!(sendto(&socket, &[1; 1000], fast, &to), Ok(1000));
    let mut accepted = listener.accept().unwrap().0;
    TcpStream::from(socket).write_all(&[2; 3000]).unwrap();
    let mut all = Vec::new();
    accepted.read_to_end(&mut all).unwrap();
    assert_eq!(all.len(), 4000);
}

/// Makes an MPTCP connection that carries 5000 bytes, and stays long enough to be observed: 50
/// times as long as that takes on a busy machine.
pub fn multipath() {
    const MPTCP: i32 = 262;
    let listener = TcpListener::from(stream_socket(MPTCP));
    let any: SocketAddr = "127.0.0.1:0".parse().unwrap();
    rustix::net::bind(&listener, &any).unwrap();
    rustix::net::listen(&listener, 1).unwrap();
    let mut client = TcpStream::from(stream_socket(MPTCP));
    rustix::net::connect(&client, &listener.local_addr().unwrap()).unwrap();
    let mut server = listener.accept().unwrap().0;
    client.write_all(&[3; 5000]).unwrap();
    server.read_exact(&mut [0; 5000]).unwrap();
    std::thread::sleep(Duration::from_secs(3));
}

/// Starts a child that outlives its parent until it is killed.
pub fn left_behind() {
    // SAFETY: the child only makes system calls.
    let pid = unsafe { libc::fork() };
    if pid == 0 {
        // Nobody shall wait for its end at a pipe that it inherited.
        // SAFETY: closes what this process no longer uses, and waits.
        unsafe {
            libc::close(0);
            libc::close(1);
            libc::close(2);
            libc::sleep(600);
            libc::_exit(0)
        }
    }
    println!("\nchild {pid}");
}

/// Maps the ring of a packet socket.
pub fn ring() {
    // SAFETY: no pointers are involved; a new descriptor is returned.
    let socket = unsafe { libc::socket(libc::AF_PACKET, libc::SOCK_RAW, 0) };
    assert!(socket >= 0, "{}", std::io::Error::last_os_error());
    // SAFETY: it was opened just now and nothing else owns it.
    let socket = unsafe { OwnedFd::from_raw_fd(socket) };
    // struct tpacket_req: block size and number, frame size and number.
    let request = [4096u32, 1, 2048, 2];
    // SAFETY: the kernel reads 16 bytes of `request`.
    let set = unsafe {
        let value = request.as_ptr().cast();
        libc::setsockopt(socket.as_raw_fd(), libc::SOL_PACKET, libc::PACKET_RX_RING, value, 16)
    };
    assert_eq!(set, 0, "{}", std::io::Error::last_os_error());
    let (prot, flags) = (rustix::mm::ProtFlags::READ, rustix::mm::MapFlags::SHARED);
    // SAFETY: a new mapping at an address of the kernel's choice; nothing refers to it.
    unsafe { rustix::mm::mmap(std::ptr::null_mut(), 4096, prot, flags, &socket, 0).unwrap() };
}

/// Makes calls like 32-bit programs, by `int 0x80`: 100 bytes by write, 200 by socketcall's send,
/// 300 and 400 by sendmmsg, all received by read.
#[cfg(target_arch = "x86_64")]
pub fn compat() {
    use std::os::unix::net::UnixDatagram;
    // Numbers of arch/x86/entry/syscalls/syscall_32.tbl; send is 9 in linux/net.h.
    const READ: usize = 3;
    const WRITE: usize = 4;
    const SOCKETCALL: usize = 102;
    const SENDMMSG: usize = 345;
    const SEND: usize = 9;
    let (prot, size) = (rustix::mm::ProtFlags::READ | rustix::mm::ProtFlags::WRITE, 16 << 10);
    let low = rustix::mm::MapFlags::PRIVATE | rustix::mm::MapFlags::from_bits_retain(0x40);
    // SAFETY: a new mapping; MAP_32BIT (0x40) puts it within the reach of 32-bit pointers.
    let memory = unsafe { rustix::mm::mmap_anonymous(std::ptr::null_mut(), size, prot, low) };
    let memory = memory.unwrap() as usize;
    let put = |at: usize, words: &[u32]| {
        for (i, word) in words.iter().enumerate() {
            // SAFETY: within the mapping and aligned; nothing else refers to it.
            unsafe { std::ptr::write((memory + at + 4 * i) as *mut u32, *word) };
        }
        memory + at
    };
    let (one, other) = UnixDatagram::pair().unwrap();
    let (from, to) = (one.as_raw_fd() as usize, other.as_raw_fd() as usize);
    let bytes = memory + 8192;
    assert_eq!(call32(WRITE, [from, bytes, 100, 0]), 100);
    let arguments = put(0, &[from as u32, bytes as u32, 200, 0]);
    assert_eq!(call32(SOCKETCALL, [SEND, arguments, 0, 0]), 200);
    let pieces = put(64, &[bytes as u32, 300, bytes as u32, 400]);
    // struct mmsghdr of 32 bytes: name, its length, pieces, their number, control, its length,
    // flags, bytes sent.
    let message = |piece: usize| [0, 0, piece as u32, 1, 0, 0, 0, 0];
    let vector = put(128, &[message(pieces), message(pieces + 8)].concat());
    assert_eq!(call32(SENDMMSG, [from, vector, 2, 0]), 2);
    for length in [100, 200, 300, 400] {
        assert_eq!(call32(READ, [to, bytes, 4096, 0]), length);
    }
}

#[cfg(not(target_arch = "x86_64"))]
pub fn compat() {}

#[cfg(target_arch = "x86_64")]
fn call32(number: usize, [a, b, c, d]: [usize; 4]) -> isize {
    let result: i32;
    // SAFETY: the calls made here read and write only the mapping of `compat`; int 0x80 keeps
    // all registers but rax (r8 to r11 were cleared before Linux 4.17). rbx belongs to LLVM.
    unsafe {
        std::arch::asm!(
            "xchg rbx, {b}", "int 0x80", "xchg rbx, {b}",
            b = inout(reg) a => _,
            inlateout("eax") number as i32 => result,
            in("rcx") b, in("rdx") c, in("rsi") d,
            out("r8") _, out("r9") _, out("r10") _, out("r11") _,
        );
    }
    result as isize
}

fn stream_socket(protocol: i32) -> OwnedFd {
    // SAFETY: no pointers are involved; a new descriptor is returned.
    let socket = unsafe { libc::socket(libc::AF_INET, libc::SOCK_STREAM, protocol) };
    assert!(socket >= 0, "{}", std::io::Error::last_os_error());
    // SAFETY: it was opened just now and nothing else owns it.
    unsafe { OwnedFd::from_raw_fd(socket) }
}
