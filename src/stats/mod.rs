//! stats: to be written.
