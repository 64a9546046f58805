//! Control messages of a receive into device memory, one per fragment (include/uapi/linux/uio.h,
//! include/uapi/asm-generic/socket.h).

/// The location of a piece of the stream. Pieces come in the order of the stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fragment {
    /// In a dmabuf, until its token is returned.
    Dmabuf {
        /// The number that the dmabuf was bound under.
        dmabuf: u32,
        /// Offset within it in bytes.
        offset: u64,
        /// Length in bytes.
        len: u32,
        token: u32,
    },
    /// In host memory: the device could not split the packet there, and the kernel copied the bytes
    /// into the buffer of the call.
    Linear {
        /// Length in bytes.
        len: u32,
    },
}

/// Invalid control messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the control message at byte {at} is malformed")]
pub struct Malformed {
    /// Offset of the message in bytes.
    pub at: usize,
}

/// `struct cmsghdr`: length (a native word), level, type.
const WORD: usize = size_of::<usize>();
const HEADER: usize = WORD + 8;

/// Bytes of `struct dmabuf_cmsg`.
const PAYLOAD: usize = 24;

/// Bytes of the control buffer that one fragment takes (`CMSG_SPACE`).
pub const SPACE: usize = aligned(HEADER) + aligned(PAYLOAD);

/// `SO_DEVMEM_LINEAR` and `SO_DEVMEM_DMABUF`, of which `SCM_DEVMEM_DMABUF` is
/// another name.
pub(super) const LINEAR: i32 = libc::SO_DEVMEM_LINEAR;
pub(super) const DMABUF: i32 = libc::SO_DEVMEM_DMABUF;

/// Returns the fragments among the control messages of recvmsg(2). Messages of other kinds are
/// skipped; the first malformed one ends the iteration.
pub fn fragments(control: &[u8]) -> Fragments<'_> {
    Fragments { control, at: 0 }
}

/// An iterator over fragments.
#[derive(Clone, Debug)]
pub struct Fragments<'a> {
    control: &'a [u8],
    at: usize,
}

impl Iterator for Fragments<'_> {
    type Item = Result<Fragment, Malformed>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        loop {
            let rest = self.control.get(self.at..)?;
            // As CMSG_NXTHDR does: less than a header left is the end.
            let header: &[u8; HEADER] = rest.first_chunk()?;
            let at = self.at;
            let len = usize::from_ne_bytes(part(header, 0));
            let Some(message) = rest.get(..len).filter(|_| len >= HEADER) else {
                self.at = self.control.len();
                return Some(Err(Malformed { at }));
            };
            // The last message may lack its padding.
            self.at = at + aligned(len).min(rest.len());
            let level = i32::from_ne_bytes(part(header, WORD));
            let kind = i32::from_ne_bytes(part(header, WORD + 4));
            if level != libc::SOL_SOCKET || !matches!(kind, LINEAR | DMABUF) {
                continue;
            }
            let payload = message.get(aligned(HEADER)..).and_then(|rest| rest.first_chunk());
            let Some(payload) = payload else {
                self.at = self.control.len();
                return Some(Err(Malformed { at }));
            };
            return Some(Ok(fragment(kind, payload)));
        }
    }
}

/// `struct dmabuf_cmsg`: frag_offset, frag_size, frag_token, dmabuf_id, flags.
#[inline]
fn fragment(kind: i32, payload: &[u8; PAYLOAD]) -> Fragment {
    let word = |at| u32::from_ne_bytes(part(payload, at));
    let len = word(8);
    match kind {
        LINEAR => Fragment::Linear { len },
        _ => Fragment::Dmabuf {
            dmabuf: word(16),
            offset: u64::from_ne_bytes(part(payload, 0)),
            len,
            token: word(12),
        },
    }
}

/// Returns N bytes of an array that is long enough for them.
#[inline]
fn part<const N: usize, const ALL: usize>(all: &[u8; ALL], at: usize) -> [u8; N] {
    let mut part = [0; N];
    part.copy_from_slice(&all[at..at + N]);
    part
}

/// `CMSG_ALIGN`.
const fn aligned(len: usize) -> usize {
    len.saturating_add(WORD - 1) & !(WORD - 1)
}

/// Writes fragments as the kernel does, for tests and fake kernels.
pub fn encode(fragments: &[Fragment], control: &mut Vec<u8>) {
    for fragment in fragments {
        let (kind, offset, len, token, dmabuf) = match *fragment {
            Fragment::Dmabuf { dmabuf, offset, len, token } => (DMABUF, offset, len, token, dmabuf),
            Fragment::Linear { len } => (LINEAR, 0, len, 0, 0),
        };
        control.extend((aligned(HEADER) + PAYLOAD).to_ne_bytes());
        control.extend(libc::SOL_SOCKET.to_ne_bytes());
        control.extend(kind.to_ne_bytes());
        control.resize(control.len().next_multiple_of(WORD), 0);
        control.extend(offset.to_ne_bytes());
        for word in [len, token, dmabuf, 0] {
            control.extend(word.to_ne_bytes());
        }
        control.resize(control.len().next_multiple_of(WORD), 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn all(control: &[u8]) -> Result<Vec<Fragment>, Malformed> {
        fragments(control).collect()
    }

    #[test]
    fn the_sizes_are_those_of_the_c_library() {
        assert_eq!(PAYLOAD, size_of::<libc::dmabuf_cmsg>());
        assert_eq!(HEADER, size_of::<libc::cmsghdr>());
        assert_eq!((LINEAR, DMABUF), (78, 79), "asm-generic/socket.h");
    }

    /// A message as the kernel lays it out on a 64-bit little-endian machine, written out byte by
    /// byte.
    #[test]
    #[cfg(all(target_endian = "little", target_pointer_width = "64"))]
    fn a_message_is_read_by_its_bytes() {
        let mut control = vec![40, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 79, 0, 0, 0];
        control.extend([0, 0x30, 0, 0, 1, 0, 0, 0]); // offset
        control.extend([0, 0x10, 0, 0, 5, 0, 0, 0]); // size, token
        control.extend([3, 0, 0, 0, 0, 0, 0, 0]); // dmabuf, flags
        let expected = Fragment::Dmabuf { dmabuf: 3, offset: 0x1_0000_3000, len: 4096, token: 5 };
        assert_eq!(all(&control), Ok(vec![expected]));
        let mut written = Vec::new();
        encode(&[expected], &mut written);
        assert_eq!(written, control);
        assert_eq!(written.len(), SPACE);
    }

    #[test]
    fn messages_of_others_are_passed_over() {
        let mut control = Vec::new();
        control.extend((HEADER + 4).to_ne_bytes());
        // SOL_TCP, TCP_CM_INQ.
        control.extend([libc::SOL_TCP.to_ne_bytes(), 36i32.to_ne_bytes()].concat());
        control.extend(77u32.to_ne_bytes());
        control.resize(control.len().next_multiple_of(WORD), 0);
        encode(&[Fragment::Linear { len: 12 }], &mut control);
        assert_eq!(all(&control), Ok(vec![Fragment::Linear { len: 12 }]));
    }

    #[test]
    fn what_cannot_be_true_is_refused_where_it_stands() {
        let mut control = Vec::new();
        encode(&[Fragment::Linear { len: 1 }, Fragment::Linear { len: 2 }], &mut control);
        for (len, good) in [(0usize, 1), (HEADER - 1, 1), (HEADER, 1), (1 << 40, 1)] {
            let mut wrong = control.clone();
            wrong[SPACE..SPACE + WORD].copy_from_slice(&len.to_ne_bytes());
            let read: Vec<_> = fragments(&wrong).collect();
            assert_eq!(read.len(), good + 1, "{len}");
            assert_eq!(read[1], Err(Malformed { at: SPACE }), "{len}");
        }
        assert_eq!(all(&control[..SPACE + HEADER - 1]).unwrap().len(), 1);
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(parts in prop::collection::vec(
            prop_oneof![
                any::<u32>().prop_map(|len| Fragment::Linear { len }),
                any::<(u32, u64, u32, u32)>().prop_map(|(dmabuf, offset, len, token)| {
                    Fragment::Dmabuf { dmabuf, offset, len, token }
                }),
            ],
            0..50,
        )) {
            let mut control = Vec::new();
            encode(&parts, &mut control);
            prop_assert_eq!(control.len(), parts.len() * SPACE);
            prop_assert_eq!(all(&control), Ok(parts));
        }

        #[test]
        fn any_bytes_are_read_to_an_end(control in prop::collection::vec(any::<u8>(), 0..400)) {
            let read = fragments(&control).count();
            prop_assert!(read <= control.len() / HEADER + 1);
        }
    }
}
