//! devmem: to be written.
