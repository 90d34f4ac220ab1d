//! Import: what another protocol's peer lists in; capabilities of the sidecar's agent out.
//!
//! Read in this order: [`kind`] has the words of a protocol, [`tool`] reads what is listed, [`lock`] is what its owner
//! approved, [`drift`] compares both with the help of `words`; [`served`] keeps the capabilities declared, and [`show`]
//! tells people.

pub mod drift;
pub mod kind;
pub mod lock;
pub mod served;
pub mod show;
pub mod tool;
mod words;
