//! A call in; what the program that serves it answered out.

pub mod process;
