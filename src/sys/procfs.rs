//! procfs: to be written.
