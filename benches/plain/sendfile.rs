//! sendfile(2) of a file in memory.

use super::{MESSAGE, memory};
use rustix::fs::{MemfdFlags, memfd_create, sendfile};
use std::fs::File;
use std::io::{self, Write};
use std::net::TcpStream;

/// Sends the file repeatedly.
pub fn send(stream: &TcpStream) -> io::Result<()> {
    let mut file = File::from(memfd_create("message", MemfdFlags::CLOEXEC)?);
    file.write_all(memory(MESSAGE)?)?;
    loop {
        let mut at = 0;
        while at < MESSAGE as u64 {
            let rest = MESSAGE - at as usize;
            sendfile(stream, &file, Some(&mut at), rest)?;
        }
    }
}
