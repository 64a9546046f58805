//! Requests of netlink(7) whose messages are encoded here instead of by bindings, and the
//! attributes of their answers.

use netlink_bindings::traits::{NetlinkRequest, Protocol};

/// A request whose message is encoded here; its answers are not decoded.
pub(super) struct RawRequest {
    pub protocol: Protocol,
    pub flags: i32,
    pub payload: Vec<u8>,
}

impl RawRequest {
    /// Makes a request to rtnetlink.
    pub(super) fn route(request_type: u16, flags: i32, payload: Vec<u8>) -> RawRequest {
        let protonum = libc::NETLINK_ROUTE as u16;
        RawRequest { protocol: Protocol::Raw { protonum, request_type }, flags, payload }
    }
}

impl NetlinkRequest for RawRequest {
    fn protocol(&self) -> Protocol {
        self.protocol
    }

    fn flags(&self) -> u16 {
        self.flags as u16
    }

    fn payload(&self) -> &[u8] {
        &self.payload
    }

    type ReplyType<'buf> = &'buf [u8];

    fn decode_reply(message: &[u8]) -> Self::ReplyType<'_> {
        message
    }
}

/// Appends an attribute (`struct nlattr`) to a message.
pub(super) fn push_attribute(message: &mut Vec<u8>, kind: u16, value: &[u8]) {
    // The bindings leave it to the next attribute to pad the one before it.
    message.resize(message.len().next_multiple_of(4), 0);
    message.extend(((4 + value.len()) as u16).to_ne_bytes());
    message.extend(kind.to_ne_bytes());
    message.extend(value);
    message.resize(message.len().next_multiple_of(4), 0);
}

/// Returns the attributes of a message, up to the first truncated one.
pub(super) fn attributes(mut rest: &[u8]) -> impl Iterator<Item = (u16, &[u8])> {
    std::iter::from_fn(move || {
        let &[a, b, c, d] = rest.first_chunk::<4>()?;
        let length = usize::from(u16::from_ne_bytes([a, b]));
        let value = rest.get(4..length)?;
        rest = rest.get(length.next_multiple_of(4)..).unwrap_or_default();
        Some((u16::from_ne_bytes([c, d]) & 0x3fff, value))
    })
}

/// Parses a number of 32 or 64 bits, as in attributes of type `uint`.
pub(super) fn uint(value: &[u8]) -> Option<u64> {
    match *value {
        [a, b, c, d] => Some(u32::from_ne_bytes([a, b, c, d]).into()),
        [a, b, c, d, e, f, g, h] => Some(u64::from_ne_bytes([a, b, c, d, e, f, g, h])),
        _ => None,
    }
}
