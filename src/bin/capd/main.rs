//! Runs `capd`: a command line in; a running sidecar, or one clear error and its exit code, out.

mod allocator;
mod dev;
mod init;
mod notify;
mod page;
mod pair;
mod run;

use std::ffi::OsString;
use std::io::{self, Write as _};
use std::path::PathBuf;
use std::process::ExitCode;

use capd::config::{Config, Sources};
use capd::manual::{CompletionArgs, ManArgs};
use capd::provider::process::confine::confine;
use capd_proto::identity::Identity;
use clap::{Args, CommandFactory as _, Parser, Subcommand};

/// The sidecar daemon: lets one agent safely call what another agent can do.
///
/// Exit codes: 0 stopped on request, 1 could not start or failed while running, 2 a mistake in the command line, the
/// configuration or the declaration, 70 a part of capd panicked (a bug; the last log line names it).
#[derive(Parser)]
#[command(name = "capd", version, arg_required_else_help = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Run the sidecar until SIGINT or SIGTERM; a second signal stops it at once.
    Run {
        #[command(flatten)]
        sources: SourceArgs,
        /// Print one JSON line with the DID and the bound addresses once everything listens.
        #[arg(long)]
        announce: bool,
        /// Stop as on SIGTERM when standard input ends, so that a parent process cannot leave the sidecar behind.
        #[arg(long)]
        stop_with_stdin: bool,
        #[command(flatten)]
        identity: IdentityArgs,
    },
    /// Write a commented configuration and a key into a folder, and say what to do next.
    Init(init::InitArgs),
    /// Let two sidecars know each other: one machine prints a code, the other uses it.
    Pair(pair::PairArgs),
    /// Run two sidecars and an example agent on loopback, make a first call, and stay until Ctrl-C.
    Dev(dev::DevArgs),
    /// Show a running sidecar in your browser: print a URL on this machine, and serve it until Ctrl-C.
    Page(page::PageArgs),
    /// Check and show the configuration without starting anything.
    Config {
        #[command(subcommand)]
        command: ConfigCommand,
    },
    /// Print the completions of capd for a shell.
    Completion(CompletionArgs),
    /// Print the manual page of capd, or write those of all its commands into a folder.
    Man(ManArgs),
    /// Drop rights and become a command; the daemon starts the commands of process providers with it.
    #[command(hide = true)]
    Confine {
        /// What is left of the rights, as JSON.
        #[arg(long)]
        spec: String,
        /// The command's file, its name, and its arguments.
        #[arg(last = true, required = true)]
        words: Vec<OsString>,
    },
    /// Print the DID of this sidecar's agent; make the key if there is none.
    Id {
        #[command(flatten)]
        sources: SourceArgs,
        #[command(flatten)]
        identity: IdentityArgs,
    },
}

#[derive(Subcommand)]
enum ConfigCommand {
    /// Check file, environment, flags and the declaration; report each mistake with its place and what is accepted.
    Check {
        #[command(flatten)]
        sources: SourceArgs,
    },
    /// Print every key's effective value and where it was set.
    Show {
        #[command(flatten)]
        sources: SourceArgs,
    },
    /// Print the reference of all keys as Markdown.
    Reference,
}

#[derive(Args, Clone)]
struct SourceArgs {
    /// The configuration file (TOML).
    #[arg(long, short, env = "CAPD_CONFIG", value_name = "FILE")]
    config: Option<PathBuf>,
    /// Set one key, over file and environment; repeatable.
    #[arg(long = "set", value_name = "KEY=VALUE", value_parser = key_value)]
    overrides: Vec<(String, String)>,
}

#[derive(Args, Clone, Copy)]
struct IdentityArgs {
    /// Make a new key, and so a new DID, even if the state of an earlier identity exists; an existing key is kept.
    #[arg(long)]
    new_identity: bool,
}

impl IdentityArgs {
    /// The agent's identity, made if it may be.
    fn of(self, config: &Config) -> Result<Identity, Failure> {
        let identity = if self.new_identity { capd::daemon::new_identity } else { capd::daemon::identity };
        identity(config).map_err(start_failure)
    }
}

impl SourceArgs {
    fn load(self) -> Result<Config, Failure> {
        let sources = Sources { file: self.config, environment: environment(), overrides: self.overrides };
        Config::load(&sources).map_err(Failure::mistake)
    }
}

/// The environment, as far as it can hold settings.
fn environment() -> Vec<(String, String)> {
    // HOME and XDG_STATE_HOME say where the state directory is; what is not UTF-8 can be no setting of ours.
    let texts =
        |(name, value): (OsString, OsString)| Some((name.into_string().ok()?, value.into_string().ok()?));
    std::env::vars_os().filter_map(texts).collect()
}

/// What ends the program other than well: the sentence for stderr, unless it was written, and the exit code.
struct Failure {
    message: String,
    exit_code: u8,
}

impl Failure {
    fn mistake(error: impl ToString) -> Self {
        Self { message: error.to_string(), exit_code: 2 }
    }

    fn runtime(error: impl ToString) -> Self {
        Self { message: error.to_string(), exit_code: 1 }
    }

    /// What stderr is told.
    fn line(&self) -> String {
        format!("capd: {}\n", capd::text::shown(&self.message))
    }
}

fn main() -> ExitCode {
    let words: Vec<_> = std::env::args_os().collect();
    let cli = Cli::try_parse_from(&words)
        .unwrap_or_else(|error| capd::suggest::verb(&Cli::command(), &words, error).exit());
    let outcome = match cli.command {
        Command::Run { sources, announce, stop_with_stdin, identity } => {
            allocator::set();
            run::run(sources, identity, run::Ways { announce, stop_with_stdin })
        }
        Command::Init(args) => init::init(args),
        Command::Pair(args) => pair::pair(args),
        Command::Dev(args) => dev::dev(args),
        Command::Page(args) => page::page(args),
        Command::Config { command } => config(command),
        Command::Id { sources, identity } => id(sources, identity),
        Command::Completion(args) => show(&args.print("capd", &Cli::command())),
        Command::Man(args) => {
            args.print(Cli::command()).map_err(Failure::runtime).and_then(|text| show(&text))
        }
        Command::Confine { spec, words } => Err(Failure::runtime(confine(&spec, &words))),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            if !failure.message.is_empty() {
                eprint!("{}", failure.line());
            }
            ExitCode::from(failure.exit_code)
        }
    }
}

fn start_failure(error: capd::daemon::StartError) -> Failure {
    if error.is_mistake() { Failure::mistake(error) } else { Failure::runtime(error) }
}

fn config(command: ConfigCommand) -> Result<(), Failure> {
    match command {
        ConfigCommand::Check { sources } => {
            let config = sources.load()?;
            for warning in capd::daemon::check(&config).map_err(start_failure)? {
                println!("warning: {warning}");
            }
            println!("the configuration has no mistakes");
        }
        ConfigCommand::Show { sources } => {
            for entry in sources.load()?.effective() {
                println!("{} = {}  # {}", entry.key, entry.value, entry.origin);
            }
        }
        ConfigCommand::Reference => print!("{}", capd::config::reference()),
    }
    Ok(())
}

/// Prints a text; a reader that has seen enough of it is no failure.
fn show(text: &str) -> Result<(), Failure> {
    match io::stdout().write_all(text.as_bytes()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(Failure::runtime(error)),
        Ok(()) | Err(_) => Ok(()),
    }
}

fn id(sources: SourceArgs, identity: IdentityArgs) -> Result<(), Failure> {
    println!("{}", identity.of(&sources.load()?)?.did());
    Ok(())
}

fn key_value(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((key, value)) if !key.is_empty() => Ok((key.to_owned(), value.to_owned())),
        _ => Err(format!("{text:?} is not KEY=VALUE")),
    }
}
