//! Device memory TCP: payload that a NIC reads from and writes to a dmabuf
//! (Documentation/networking/devmem.rst; net/core/devmem.c, tcp_recvmsg_dmabuf()
//! in net/ipv4/tcp.c, sock_devmem_dontneed() in net/core/sock.c).
//!
//! [`bind`] binds a dmabuf to queues of a device, [`socket`] receives, frees and sends, [`message`]
//! parses what a receive reports, and [`tokens`] keeps track of what has to be returned.

pub mod bind;
pub mod message;
pub mod socket;
pub mod tokens;

pub use bind::{Binding, Refusal, bind_receive, bind_send, netdev_family, stand_in};
pub use message::{Fragment, Malformed, fragments};
pub use socket::{Arrived, Control, ETOOSMALL, Received, Socket};
pub use tokens::{Freer, Held, Lent, TokenRange};
