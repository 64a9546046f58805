//! Requests of rtnetlink(7) whose messages are encoded here and not by bindings.

/// A request of the family with its type, flags and answer.
macro_rules! request {
    ($name:ident, $kind:expr, $flags:expr, $reply:ty, $decode:expr) => {
        struct $name(Vec<u8>);

        impl netlink_bindings::traits::NetlinkRequest for $name {
            fn protocol(&self) -> netlink_bindings::traits::Protocol {
                netlink_bindings::traits::Protocol::Raw {
                    protonum: libc::NETLINK_ROUTE as u16,
                    request_type: $kind,
                }
            }

            fn flags(&self) -> u16 {
                $flags as u16
            }

            fn payload(&self) -> &[u8] {
                &self.0
            }

            type ReplyType<'buf> = $reply;

            fn decode_reply(message: &[u8]) -> Self::ReplyType<'_> {
                ($decode)(message)
            }
        }
    };
}

pub(super) use request;
