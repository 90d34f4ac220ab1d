//! Shares what the bridges to other protocols need: the link to the sidecar, the log, HTTP in both directions, and the
//! import of what a peer lists.
//!
//! Read in this order: [`sidecar`] is the link, [`run`] starts and stops a bridge, [`http`] serves and asks, [`export`]
//! reads what may be called, [`import`] makes capabilities of what is listed. [`log`] writes the log, and [`text`] escapes foreign text.

pub mod export;
pub mod http;
pub mod import;
pub mod log;
pub mod run;
pub mod sidecar;
#[path = "../../../src/text.rs"]
pub mod text;
