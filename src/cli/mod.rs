//! cli: to be written.
