//! Implements `capd init`: a folder in; a commented configuration, a key, and what to do next, out.

use std::fs::{DirBuilder, OpenOptions};
use std::io::{ErrorKind, Write as _};
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use capd::config::{Config, Sources};
use clap::Args;

use super::Failure;

#[derive(Args)]
pub(super) struct InitArgs {
    /// The folder of the configuration and of the sidecar's state; made if it is not there.
    #[arg(default_value = ".")]
    dir: PathBuf,
    /// What peers call this sidecar [default: the folder's name]
    #[arg(long, value_name = "NAME")]
    name: Option<String>,
    /// Where peers connect over QUIC [default: 0.0.0.0:7001, or the next port that is free]
    #[arg(long, value_name = "IP:PORT")]
    listen: Option<SocketAddr>,
}

/// Runs `capd init`.
pub(super) fn init(args: InitArgs) -> Result<(), Failure> {
    let made = DirBuilder::new().recursive(true).mode(0o700).create(&args.dir);
    made.map_err(|error| Failure::mistake(format!("{}: {error}", args.dir.display())))?;
    let file = args.dir.join("capd.toml");
    let dir = args.dir.canonicalize().map_err(Failure::runtime)?;
    let name = match args.name {
        Some(name) => name,
        None => name_of(&dir),
    };
    let listen = args.listen.unwrap_or_else(free);
    let text = text(&name, listen, dir.join(DECLARATION).exists());
    // Environment and flags are for a run; the file must be right by itself.
    Config::layer(Some((&file, &text)), &super::environment(), &[]).map_err(Failure::mistake)?;
    write_new(&file, &text)?;
    let sources =
        Sources { file: Some(file.clone()), environment: super::environment(), overrides: Vec::new() };
    let config = Config::load(&sources).map_err(Failure::mistake)?;
    let identity = capd::daemon::identity(&config).map_err(super::start_failure)?;
    let socket = config.listen.unix.map_or_else(String::new, |socket| {
        let socket = std::path::absolute(&socket).unwrap_or(socket);
        format!("  export CAPD_SOCKET={}\n", quoted(&socket))
    });
    let config = quoted(&file);
    print!(
        "wrote {}\nname  {name}\nDID   {}\n\nNext:\n  capd run --config {config}\n  capd pair --config {config}\n{socket}",
        file.display(),
        identity.did()
    );
    println!(
        "\n`capd run` runs the sidecar. `capd pair` lets it and a sidecar of another machine know each other. capctl finds the \
         sidecar by its socket."
    );
    Ok(())
}

/// Writes a file that must not be there.
fn write_new(file: &Path, text: &str) -> Result<(), Failure> {
    let opened = OpenOptions::new().write(true).create_new(true).mode(0o600).open(file);
    let written = opened.and_then(|mut new| new.write_all(text.as_bytes()));
    written.map_err(|error| match error.kind() {
        ErrorKind::AlreadyExists => Failure::mistake(format!(
            "{} exists, and capd init overwrites nothing; name another folder, or edit the file",
            file.display()
        )),
        _ => Failure::mistake(format!("{}: {error}", file.display())),
    })
}

/// The folder's name as far as it can be a name.
fn name_of(dir: &Path) -> String {
    let fits = |c: char| if c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-') { c } else { '-' };
    let name = dir.file_name().unwrap_or_default().to_string_lossy();
    let name: String = name.chars().map(fits).take(64).collect();
    if name.is_empty() { "agent".to_owned() } else { name }
}

/// The first port that nobody uses at the moment.
fn free() -> SocketAddr {
    let at = |port| SocketAddr::from((Ipv4Addr::UNSPECIFIED, port));
    let mut ports = PORTS.map(at);
    ports.find(|at| UdpSocket::bind(at).is_ok()).unwrap_or_else(|| at(*PORTS.start()))
}

fn text(name: &str, listen: SocketAddr, has_declaration: bool) -> String {
    let declaration = if has_declaration { "" } else { "# " };
    format!(
        r##"# The configuration of a sidecar. `capd config reference` lists every key.
# `capd config check --config FILE` checks a change.

[agent]
# What peers call this sidecar.
name = "{name}"
# The key, the journal, the audit log and the socket. A relative path starts at the folder of this file.
dir = "state"
# What your agent can do by running commands.
{declaration}capabilities = "{DECLARATION}"

[listen]
# Where peers connect, over QUIC (UDP). Only those of [[peers]] are admitted.
quic = "{listen}"
# For monitoring: /livez, /readyz and /metrics over HTTP, for anybody who reaches them.
# health = "127.0.0.1:9464"

# `capd pair` adds [[peers]]: who they are, where they are, and what your agent may call there.
# `capctl policy grant NAME CAPABILITY` adds [[allow]]: what a peer may call here. Without it, nothing.
"##
    )
}

/// A path as a shell takes it.
pub(super) fn quoted(path: &Path) -> String {
    let text = path.display().to_string();
    let is_plain =
        |c: char| c.is_ascii_alphanumeric() || matches!(c, '/' | '.' | '_' | '-' | '+' | ',' | ':' | '@');
    if !text.is_empty() && text.chars().all(is_plain) {
        text
    } else {
        format!("'{}'", text.replace('\'', r"'\''"))
    }
}

const DECLARATION: &str = "capabilities.yaml";
/// The ports that a sidecar gets for its peers.
const PORTS: std::ops::RangeInclusive<u16> = 7001..=7008;
