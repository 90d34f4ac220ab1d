//! Builds the whole command line, and parses it: each verb has the options, examples and exit codes that apply to it.

use std::ffi::OsString;

use clap::error::ErrorKind;
use clap::{ArgMatches, Args as _, Command, CommandFactory as _, FromArgMatches as _};

use super::{Args, SidecarArgs};
use crate::verbs::{self, Asks};

/// The command line of `capctl`.
pub(crate) fn command() -> Command {
    let command = Args::command().after_help(verbs::after_help_of_all());
    command.mut_subcommands(|verb| {
        let name = verb.get_name().to_owned();
        if !verb.has_subcommands() {
            return completed(verb, &name);
        }
        let verb = verb.after_help(verbs::after_help_of_group(&name));
        verb.mut_subcommands(|below| {
            let name = format!("{name} {}", below.get_name());
            completed(below, &name)
        })
    })
}

/// A verb with what it has in common with others of its kind.
fn completed(verb: Command, name: &str) -> Command {
    let Some(known) = verbs::find(name) else { return verb };
    let verb = verb.after_help(known.after_help());
    // What asks no sidecar has no use for its place.
    if known.asks == Asks::Nobody {
        return verb;
    }
    let about = verb.get_about().cloned().unwrap_or_default();
    // The options bring a description of themselves, which is not the verb's.
    SidecarArgs::augment_args(verb).about(about).long_about(None)
}

/// Parses the words of a command line, the program's name first.
///
/// Options of the sidecar stand before or after the verb. Before it they are taken by every verb, so that an alias of
/// the program can hold them.
pub(crate) fn parse(words: impl IntoIterator<Item = OsString>) -> Result<Args, clap::Error> {
    let mut command = command();
    let words: Vec<_> = words.into_iter().collect();
    let matches = command
        .try_get_matches_from_mut(&words)
        .map_err(|error| capd::suggest::verb(&command, &words, error))?;
    let mut args = Args::from_arg_matches(&matches).map_err(|error| error.format(&mut command))?;
    let verb = innermost(&matches);
    if verb.try_contains_id("socket").is_ok() {
        let below = SidecarArgs::from_arg_matches(verb).map_err(|error| error.format(&mut command))?;
        args.sidecar = both(args.sidecar, below)
            .map_err(|message| command.error(ErrorKind::ArgumentConflict, message))?;
    }
    Ok(args)
}

fn innermost(matches: &ArgMatches) -> &ArgMatches {
    matches.subcommand().map_or(matches, |(_, below)| innermost(below))
}

/// The options before and after the verb as one. **Errors:** both name a sidecar.
fn both(before: SidecarArgs, after: SidecarArgs) -> Result<SidecarArgs, &'static str> {
    let names =
        |args: &SidecarArgs| args.socket.is_some() || args.context.is_some() || args.address.is_some();
    if names(&before) && names(&after) {
        return Err(
            "two sidecars are named, before and after the verb; use --socket, --address or --context once",
        );
    }
    Ok(SidecarArgs {
        socket: after.socket.or(before.socket),
        context: after.context.or(before.context),
        address: after.address.or(before.address),
        token_file: after.token_file.or(before.token_file),
        any_owner: after.any_owner || before.any_owner,
    })
}
