//! pipe: to be written.
