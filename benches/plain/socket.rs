//! send(2) and recv(2).

use super::{MESSAGE, Window, memory};
use std::io::{self, Read, Write};
use std::net::TcpStream;

/// Sends the message repeatedly.
pub fn send(mut stream: &TcpStream) -> io::Result<()> {
    let message = memory(MESSAGE)?;
    loop {
        stream.write_all(message)?;
    }
}

/// Reads into one buffer.
pub fn receive(mut stream: &TcpStream, window: &mut Window) -> io::Result<()> {
    let buffer = memory(MESSAGE)?;
    while window.count(stream.read(buffer)?) {}
    Ok(())
}
