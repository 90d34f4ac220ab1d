//! A process provider: one call's params as JSON on stdin in, its review as JSON on stdout out.
//!
//! `code-review 2.0.0` answers as version 2.0.0 of the capability does. `capd dev review` is the same program.

#[path = "review/mod.rs"]
mod review;

use std::io::{stdin, stdout};
use std::process::ExitCode;

fn main() -> ExitCode {
    let api = std::env::args().nth(1).unwrap_or_else(|| "2.0.0".to_owned());
    match review::answer(&api, stdin().lock(), stdout().lock()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("{message}");
            ExitCode::FAILURE
        }
    }
}
