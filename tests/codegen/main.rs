//! Declarations in; generated files that are what was reviewed, out. `.ci/codegen` compiles those.
//!
//! `CAPD_GOLDEN=write cargo test --test codegen` writes them anew, to be reviewed as a diff.

#![allow(clippy::unwrap_used, reason = "these are tests, though not all of it stands in a test function")]

mod draw;
mod golden;
mod hostile;
