//! namespace: to be written.
