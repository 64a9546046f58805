//! uring: to be written.
