//! tee(2) from a pipe that was filled once into a second one, and splice(2) from
//! there into the socket.

use super::{MESSAGE, memory};
use rustix::pipe::{SpliceFlags, fcntl_setpipe_size, pipe, splice, tee};
use std::fs::File;
use std::io::{self, Write};
use std::net::TcpStream;

/// Sends the pipe's pages repeatedly.
pub fn send(stream: &TcpStream) -> io::Result<()> {
    let (source, fill) = pipe()?;
    let (out, through) = pipe()?;
    fcntl_setpipe_size(&fill, MESSAGE)?;
    fcntl_setpipe_size(&through, MESSAGE)?;
    File::from(fill.try_clone()?).write_all(memory(MESSAGE)?)?;
    loop {
        let mut held = tee(&source, &through, MESSAGE, SpliceFlags::empty())?;
        while held > 0 {
            held -= splice(&out, None, stream, None, held, SpliceFlags::MORE)?;
        }
    }
}
