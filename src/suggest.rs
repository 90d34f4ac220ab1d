//! Suggests the verb that was meant, where a command line has one that is not there.

use std::ffi::{OsStr, OsString};

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Command, Error};

use crate::text::nearest;

/// The error with the nearest verb in it, where clap knows none that is similar: to clap, two letters that are swapped are
/// two mistakes.
pub fn verb(command: &Command, words: &[OsString], mut error: Error) -> Error {
    let is_unknown = error.kind() == ErrorKind::InvalidSubcommand;
    let Some(ContextValue::String(unknown)) = error.get(ContextKind::InvalidSubcommand) else { return error };
    if !is_unknown || error.get(ContextKind::SuggestedSubcommand).is_some() {
        return error;
    }
    let mut parent = command;
    for word in words.iter().filter_map(|word| word.to_str()) {
        match parent.find_subcommand(OsStr::new(word)) {
            Some(below) => parent = below,
            None if word == unknown => break,
            None => {}
        }
    }
    let names = parent.get_subcommands().filter(|below| !below.is_hide_set()).map(Command::get_name);
    if let Some(meant) = nearest(unknown, names) {
        let meant = ContextValue::Strings(vec![meant.to_owned()]);
        error.insert(ContextKind::SuggestedSubcommand, meant);
    }
    error
}
