//! A call in; whether its caller may make it at this moment out.

pub mod rate;
