//! The way in.

pub(in crate::daemon) mod admission;
