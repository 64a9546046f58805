//! errqueue: to be written.
