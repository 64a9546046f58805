//! The arithmetic that statistics and profiles share.

#![forbid(unsafe_code)]
