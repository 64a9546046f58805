//! The messages between host and guest over one serial port. They are framed, and each frame
//! belongs to a session. A session is one or two hosts inside the guest, raised for one trial; it
//! carries its agents' pipes as bytes. So a guest can run several sessions at once, and each trial
//! gets fresh agents.
//!
//! A frame is session (4 bytes), length (4) and kind (1), all little-endian, followed by as many
//! bytes as the length says.

use bytepath_record::Fault;
use serde::{Deserialize, Serialize};
use std::io::{self, Read, Write};

/// Most bytes in a frame.
pub(super) const LARGEST: usize = 1 << 16;

#[derive(Clone, Debug, PartialEq)]
pub struct Frame {
    /// Number of the session; 0 is the guest itself.
    pub session: u32,
    pub message: Message,
}

/// The content of a frame, and who sends it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Message {
    /// Guest: it is ready.
    Ready(Ready),
    /// Host: raise a session with this layout.
    Raise(Layout),
    /// Guest: the session is raised; the process ids of its agents, in the guest.
    Raised(Vec<u32>),
    /// Guest: the session cannot be raised.
    Refused(Fault),
    /// Bytes to or from the first or the second agent of a session.
    #[serde(skip)]
    Bytes(usize, Vec<u8>),
    /// Guest: an agent has ended; the text says how. No more bytes of it follow.
    Ended(usize, String),
    /// Host: take the session down.
    Lower,
    /// Guest: the session is down.
    Lowered,
}

/// A guest's report about itself once it is ready.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Ready {
    /// Version and build of bytepath in the guest.
    pub build: String,
    /// `uname -r`.
    pub release: String,
    /// Seconds since its kernel began.
    pub uptime: f64,
    /// Problems that were not fatal, such as modules that could not be loaded.
    pub notes: Vec<String>,
}

/// The hosts of a session.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Layout {
    /// Two hosts: each agent has its own namespace.
    Pair,
    /// Like [`Layout::Pair`], and each host has a NIC of each of `pairs` pairs. `pair` is the name
    /// of a [`super::NicPair`], `parameters` are those of its module.
    #[serde(rename = "cards")]
    Nics { pair: String, pairs: u32, parameters: String },
    /// One host, whose link is the guest's own network device.
    One,
    /// No host: a program. Its output and its errors are sent as the bytes of the first and the
    /// second agent.
    #[cfg(feature = "test-support")]
    Command(GuestCommand),
}

/// A program to run in a guest.
#[cfg(feature = "test-support")]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GuestCommand {
    /// Its path in the guest, then its arguments.
    pub words: Vec<String>,
    /// Environment variables, in addition to those of the first process.
    pub environment: Vec<(String, String)>,
}

/// Kind of a frame that carries a message in JSON. If it carries an agent's bytes, the kind is the
/// agent's index.
const CONTROL: u8 = 2;

impl Frame {
    /// Writes the frame in one call.
    pub fn write(&self, out: &mut impl Write) -> io::Result<()> {
        let (kind, body) = self.message.encode()?;
        if body.len() > LARGEST {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "a frame is too long"));
        }
        let mut bytes = Vec::with_capacity(body.len() + 9);
        bytes.extend_from_slice(&self.session.to_le_bytes());
        bytes.extend_from_slice(&(body.len() as u32).to_le_bytes());
        bytes.push(kind);
        bytes.extend_from_slice(&body);
        out.write_all(&bytes)?;
        out.flush()
    }

    /// Reads a frame. `UnexpectedEof` if the input ends, also before the first byte.
    pub fn read(input: &mut impl Read) -> io::Result<Frame> {
        let mut head = [0; 9];
        input.read_exact(&mut head)?;
        let [a, b, c, d, e, f, g, h, kind] = head;
        let length = u32::from_le_bytes([e, f, g, h]) as usize;
        if length > LARGEST {
            return Err(invalid("a frame is too long"));
        }
        let mut body = vec![0; length];
        input.read_exact(&mut body)?;
        Ok(Frame {
            session: u32::from_le_bytes([a, b, c, d]),
            message: Message::decode(kind, body)?,
        })
    }
}

impl Message {
    fn encode(&self) -> io::Result<(u8, Vec<u8>)> {
        Ok(match self {
            Message::Bytes(agent @ 0..2, bytes) => (*agent as u8, bytes.clone()),
            control => (CONTROL, serde_json::to_vec(control)?),
        })
    }

    fn decode(kind: u8, body: Vec<u8>) -> io::Result<Message> {
        match kind {
            0 | 1 => Ok(Message::Bytes(kind.into(), body)),
            CONTROL => match serde_json::from_slice(&body)? {
                Message::Ended(2.., _) => Err(invalid("a session has no third agent")),
                message => Ok(message),
            },
            _ => Err(invalid("a frame of an unknown kind")),
        }
    }
}

fn invalid(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn all() -> Vec<Message> {
        let ready = Ready {
            build: "1".into(),
            release: "7.3".into(),
            uptime: 2.5,
            notes: vec!["a module".into()],
        };
        vec![
            Message::Ready(ready),
            Message::Raise(Layout::Pair),
            Message::Raise(Layout::Nics {
                pair: "zcnic".into(),
                pairs: 2,
                parameters: "queues=2".into(),
            }),
            Message::Raise(Layout::One),
            #[cfg(feature = "test-support")]
            Message::Raise(Layout::Command(GuestCommand {
                words: vec!["/bin/true".into()],
                environment: vec![("A".into(), "b".into())],
            })),
            Message::Raised(vec![76, 77]),
            Message::Refused(Fault::failed("no").remedy("yes")),
            Message::Bytes(0, vec![]),
            Message::Bytes(1, vec![0, 255, 10]),
            Message::Ended(0, "exited with code 1".into()),
            Message::Ended(1, String::new()),
            Message::Lower,
            Message::Lowered,
        ]
    }

    #[test]
    fn frames_are_read_as_written() {
        let frames = (7..).zip(all()).map(|(session, message)| Frame { session, message });
        let frames: Vec<Frame> = frames.collect();
        let mut bytes = Vec::new();
        for frame in &frames {
            frame.write(&mut bytes).unwrap();
        }
        let mut rest = bytes.as_slice();
        for frame in &frames {
            assert_eq!(Frame::read(&mut rest).unwrap(), *frame);
        }
        let end = Frame::read(&mut rest).unwrap_err();
        assert_eq!(end.kind(), io::ErrorKind::UnexpectedEof);
    }

    #[test]
    fn too_long_is_refused_at_both_ends() {
        let frame = Frame { session: 1, message: Message::Bytes(0, vec![0; LARGEST + 1]) };
        assert!(frame.write(&mut Vec::new()).is_err());
        let mut bytes = [0; 9];
        bytes[4..8].copy_from_slice(&u32::MAX.to_le_bytes());
        assert_eq!(Frame::read(&mut &bytes[..]).unwrap_err().kind(), io::ErrorKind::InvalidData);
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_without_a_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let mut rest = bytes.as_slice();
            while Frame::read(&mut rest).is_ok() {}
        }
    }
}
