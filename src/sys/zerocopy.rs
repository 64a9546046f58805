//! zerocopy: to be written.
