//! Runs `capctl`: a command line in; a request to the sidecar, its outcome, and an exit code out.

mod again;
mod args;
mod audit;
mod backup;
mod bench;
mod call;
mod calls;
mod capability;
mod cddl;
mod compat;
mod configuration;
mod context;
mod decode;
mod describe;
mod diagnostic;
mod doctor;
mod drain;
mod duration;
mod failure;
mod fleet;
mod gen_code;
mod hash;
mod hex;
mod input;
mod list;
mod metrics;
mod moment;
mod names;
mod operate;
mod output;
mod peers;
mod policy;
mod reach;
mod serve;
mod subtype;
mod terminal;
mod time;
mod timeline;
mod top;
mod verbs;
mod watch;

use std::process::ExitCode;

use capd::client::{Client, Options};
use serde_json::json;

use args::{Args, CddlCommand, Command, ConfigCommand, ContextCommand, SidecarArgs};
use failure::Failure;

fn main() -> ExitCode {
    let args = match args::parse(std::env::args_os()) {
        Ok(args) => args,
        Err(error) if error.use_stderr() && wants_json() => {
            let text = error.render().to_string();
            let message = text.trim_start_matches("error: ").split("\n\n").next().unwrap_or_default();
            return end(&Failure::usage(message), true);
        }
        Err(error) if error.use_stderr() => {
            // It quotes the command line, which may have been pasted from what a peer said.
            output::note(error.render().to_string().trim_end());
            return ExitCode::from(failure::Exit::Usage as u8);
        }
        Err(error) => error.exit(),
    };
    let json = args.json;
    match run(args) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => end(&failure, json),
    }
}

fn run(args: Args) -> Result<(), Failure> {
    let Args { sidecar, json, wide, command } = args;
    if json || wide {
        names::hide();
    }
    let sidecar = Sidecar(sidecar);
    match command {
        Command::Call(call) => wait_for(call::run(&sidecar, call, json)),
        Command::Metrics => wait_for(metrics::run(&sidecar, json)),
        Command::Top(top) => wait_for(top::run(&sidecar, top, json)),
        Command::Calls(calls) => wait_for(calls::run(&sidecar, calls, json)),
        Command::Bench(bench) => wait_for(bench::run(&sidecar, bench, json)),
        Command::Audit(command) => wait_for(audit::run(&sidecar, command, json)),
        Command::Ls(ls) => wait_for(list::ls(&sidecar, ls, json)),
        Command::Doctor(doctor) => wait_for(doctor::run(sidecar, doctor, json)),
        Command::Describe(describe) => wait_for(describe::run(&sidecar, describe, json)),
        Command::Serve(serve) => wait_for(serve::run(&sidecar, serve, json)),
        Command::Cancel(cancel) => wait_for(reach::cancel(&sidecar, cancel, json)),
        Command::Ping(ping) => wait_for(reach::ping(&sidecar, ping, json)),
        Command::Id => wait_for(reach::id(&sidecar, json)),
        Command::Diff(diff) => wait_for(compat::diff(&sidecar, diff, json)),
        Command::Check(check) => wait_for(compat::check(&sidecar, check, json)),
        Command::Matrix(matrix) => wait_for(compat::matrix(&sidecar, matrix, json)),
        Command::Decode(decode) => decode::run(&decode, json),
        Command::Gen(args) => wait_for(gen_code::run(&sidecar, args, json)),
        Command::Cddl(CddlCommand::Check(check)) => cddl::check(&check, json),
        Command::Hash(args) => hash::run(&args, json),
        Command::Subtype(subtype) => subtype::run(&subtype, json),
        Command::Policy(command) => policy::run(&sidecar, &command, json),
        Command::Reload => wait_for(operate::reload(&sidecar, json)),
        Command::Config(ConfigCommand::Diff) => wait_for(operate::diff(&sidecar, json)),
        Command::Drain(args) => wait_for(drain::run(&sidecar, args, json)),
        Command::Backup(args) => wait_for(backup::backup(&sidecar, args, json)),
        Command::Restore(args) => backup::restore(&args, json),
        Command::Fleet(command) => fleet::run(&sidecar, command, json),
        Command::Context(command) => contexts(&sidecar.0, &command, json),
        Command::Completion(args) => output::print(&args.print("capctl", &args::command())),
        Command::Man(args) => match args.print(args::command()) {
            Ok(page) => output::print(&page),
            Err(error) => Err(Failure::usage(error)),
        },
    }
}

/// The sidecar that the command line, the environment and contexts.toml name; linked to when it is needed.
struct Sidecar(SidecarArgs);

impl Sidecar {
    /// A link to the sidecar. **Errors:** usage, unavailable, or refused.
    async fn connect(&self) -> Result<Client, Failure> {
        let choice = context::choose(&self.0, &variable)?;
        let any_owner = self.0.any_owner;
        let options = Options { agent_name: "capctl".to_owned(), any_owner, ..Options::default() };
        Client::connect(choice.endpoint()?, options).await.map_err(Failure::from)
    }

    /// The same for a verb that shows peers to people.
    async fn connect_for_people(&self) -> Result<Client, Failure> {
        let client = self.connect().await?;
        names::learn(&client).await;
        Ok(client)
    }
}

fn contexts(flags: &SidecarArgs, command: &ContextCommand, json: bool) -> Result<(), Failure> {
    let file = || {
        let no_home =
            || Failure::usage("contexts.toml has no place: neither XDG_CONFIG_HOME nor HOME is set");
        context::path(&variable).ok_or_else(no_home)
    };
    match command {
        ContextCommand::Ls => {
            let contexts = context::load(&file()?)?;
            let lines = contexts.entries.iter().map(|(name, entry)| {
                let is_current = contexts.current.as_ref() == Some(name);
                (name, is_current, entry)
            });
            if json {
                for (name, is_current, entry) in lines {
                    output::print_json(&json!({"name": name, "current": is_current, "context": entry}))?;
                }
                return Ok(());
            }
            let rows: Vec<_> = lines
                .map(|(name, is_current, entry)| {
                    let place = context::Choice { entry: entry.clone(), source: String::new() }.place();
                    vec![if is_current { "*" } else { "" }.to_owned(), name.clone(), place]
                })
                .collect();
            output::print_table(&output::table(&["", "NAME", "SIDECAR"], &rows))?;
        }
        ContextCommand::Show => {
            let choice = context::choose(flags, &variable)?;
            if json {
                output::print_json(&json!({"source": choice.source, "context": choice.entry}))?;
            } else {
                output::print(&format!("{}  ({})", choice.place(), choice.source))?;
            }
        }
        ContextCommand::Use { name } => {
            let file = file()?;
            let mut contexts = context::load(&file)?;
            if !contexts.entries.contains_key(name) {
                return Err(context::unknown(name, Some(&file), contexts.entries.keys()));
            }
            contexts.current = Some(name.clone());
            context::store(&file, &contexts)?;
        }
        ContextCommand::Set { name } => {
            let file = file()?;
            let mut contexts = context::load(&file)?;
            contexts.entries.insert(name.clone(), context::entry_of(flags)?);
            contexts.current.get_or_insert_with(|| name.clone());
            context::store(&file, &contexts)?;
        }
    }
    Ok(())
}

fn wait_for(work: impl Future<Output = Result<(), Failure>>) -> Result<(), Failure> {
    tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(work)
}

fn end(failure: &Failure, json: bool) -> ExitCode {
    if failure.has_words() {
        if json {
            output::note(&output::json_line(&failure.json()))
        } else {
            output::complain(&failure.to_string())
        }
    }
    ExitCode::from(failure.exit as u8)
}

fn variable(name: &str) -> Option<std::ffi::OsString> {
    std::env::var_os(name)
}

/// Whether a command line that does not parse asks for JSON.
fn wants_json() -> bool {
    std::env::args_os().take_while(|arg| arg != "--").any(|arg| arg == "--json")
}
