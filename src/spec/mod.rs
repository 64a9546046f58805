//! spec: to be written.
