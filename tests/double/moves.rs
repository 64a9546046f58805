//! Moves a number of bytes through sockets, in manners that copy and in others.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream, UdpSocket};

const PIECE: usize = 64 << 10;

/// Uses write and send at one end, read at the other.
pub fn copied(bytes: u64) {
    let (mut out, mut into) = connected();
    let sender = std::thread::spawn(move || {
        let data = vec![7u8; PIECE];
        for i in 0..bytes / PIECE as u64 {
            match i % 2 {
                0 => out.write_all(&data).unwrap(),
                _ => assert_eq!(
                    rustix::net::send(&out, &data, rustix::net::SendFlags::empty()),
                    Ok(PIECE)
                ),
            }
        }
    });
    let mut room = vec![0u8; PIECE];
    let mut left = bytes;
    while left > 0 {
        let taken = into.read(&mut room).unwrap();
        assert!(taken > 0);
        left -= taken as u64;
    }
    sender.join().unwrap();
}

/// Uses sendfile at one end; discards unread at the other.
pub fn reference(bytes: u64) {
    let (out, into) = connected();
    let mut file = tempfile::tempfile_in("/tmp").unwrap();
    file.write_all(&vec![7u8; PIECE]).unwrap();
    let sender = std::thread::spawn(move || {
        for _ in 0..bytes / PIECE as u64 {
            let mut from = 0;
            while from < PIECE as u64 {
                let rest = PIECE - from as usize;
                rustix::fs::sendfile(&out, &file, Some(&mut from), rest).unwrap();
            }
        }
    });
    let mut room = vec![0u8; PIECE];
    let mut left = bytes;
    while left > 0 {
        let flags = rustix::net::RecvFlags::TRUNC;
        let taken = rustix::net::recv(&into, &mut room[..], flags).unwrap().1;
        assert!(taken > 0);
        left -= taken as u64;
    }
    sender.join().unwrap();
}

/// Sends datagrams of which only the beginning is received.
pub fn truncated(bytes: u64) {
    let (one, other) =
        (UdpSocket::bind("127.0.0.1:0").unwrap(), UdpSocket::bind("127.0.0.1:0").unwrap());
    one.connect(other.local_addr().unwrap()).unwrap();
    let (data, mut room) = (vec![7u8; PIECE / 2], [0u8; 1000]);
    for _ in 0..bytes / data.len() as u64 {
        assert_eq!(one.send(&data).unwrap(), data.len());
        let flags = rustix::net::RecvFlags::TRUNC;
        assert_eq!(rustix::net::recv(&other, &mut room[..], flags).unwrap().1, data.len());
    }
}

fn connected() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let out = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    (out, listener.accept().unwrap().0)
}
