//! The subtype proof against pairs whose answer is known, and against the validator on pairs and values made up.

#![allow(clippy::unwrap_used, reason = "a test target's helper functions; a panic is its failure")]

mod bounds;
mod corpus;
#[allow(dead_code, reason = "the fuzz body uses the rest")]
mod generate;
mod hard;
mod large;
mod machine;
mod property;
mod support;
mod tables;
mod values;
