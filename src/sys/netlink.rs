//! netlink: to be written.
