//! An authority key and an agent in; memberships, revocations, and the etcd commands that go with them out.
//!
//! [`ask`] asks a running sidecar about its fleet. Nothing here speaks to etcd: the authority key and the rights to administer etcd need never be on one machine.

mod ask;

use std::fs;
use std::io;
use std::path::Path;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use capd::fleet::file::File;
use capd::net::{self, KeyFileError};
use capd_proto::capability::CapabilityPattern;
use capd_proto::fleet::{Agent, Cell, Key, Membership, Revocation};
use capd_proto::identity::Identity;
use serde_json::json;

use crate::args::{AdmitArgs, AuthorityArgs, FleetCommand, RevokeArgs};
use crate::audit;
use crate::failure::Failure;
use crate::{Sidecar, output, time, wait_for};

/// Runs a command of the authority, or asks the sidecar.
///
/// **Errors:** usage, for a file that is missing, exposed or there already, and for an agent that is none; for questions,
/// what the sidecar or its registry says.
pub(crate) fn run(sidecar: &Sidecar, command: FleetCommand, json: bool) -> Result<(), Failure> {
    match command {
        FleetCommand::Ls => wait_for(ask::ls(sidecar, json)),
        FleetCommand::Why(args) => wait_for(ask::why(sidecar, args, json)),
        FleetCommand::Doctor => wait_for(ask::doctor(sidecar, json)),
        FleetCommand::Init(args) => init(&args, json),
        FleetCommand::Admit(args) => admit(&args, json),
        FleetCommand::Revoke(args) => revoke(&args, json),
    }
}

fn init(args: &AuthorityArgs, json: bool) -> Result<(), Failure> {
    let (cell, file) = (&args.cell, args.file());
    // An authority that was replaced by mistake would end every membership of its cell.
    if file.exists() {
        return Err(Failure::usage(format!("{}: the file exists", file.display()))
            .hint("an authority key is made once; to make another one, name another file with --authority"));
    }
    let seed = net::load_or_create(&file).map_err(|error| Failure::usage(error.to_string()))?;
    let authority = seed.identity().did().to_string();
    let role = role(cell);
    let commands = [
        format!("etcdctl role add {role}"),
        format!("etcdctl role grant-permission {role} --prefix=true readwrite {}", root(cell)),
    ];
    if json {
        return output::print_json(&json!({
            "cell": cell.as_str(),
            "authority": authority,
            "key_file": file.display().to_string(),
            "etcd": commands,
        }));
    }
    output::print(&format!(
        "authority  {authority}\nkey file   {}\n\n\
         # If all agents of the cell trust each other, one etcd role serves them all:\n{}\n",
        file.display(),
        commands.join("\n")
    ))
}

fn admit(args: &AdmitArgs, json: bool) -> Result<(), Failure> {
    let authority = authority(&args.authority)?;
    let (cell, agent) = (&args.authority.cell, agent(&args.agent)?);
    let now_ms = audit::now_ms();
    let membership = Membership {
        agent,
        cell: cell.clone(),
        serves: args.serves.clone(),
        not_before_ms: now_ms.saturating_sub(CLOCK_SLACK_MS),
        not_after_ms: now_ms.saturating_add(u64::from(args.days) * DAY_MS),
        // It only has to grow, and the authority keeps nothing but its key.
        serial: now_ms,
    };
    let signed = membership.sign(&authority).map_err(|error| {
        Failure::usage(format!("--serves: {error}"))
            .hint("use a namespace such as org.example.* for many names")
    })?;
    let text = BASE64_STANDARD.encode(&signed);
    if let Some(file) = &args.output {
        write(file, &text)?;
    }
    let commands = rights(cell, &agent, &args.serves);
    let serves: Vec<_> = args.serves.iter().map(ToString::to_string).collect();
    if json {
        return output::print_json(&json!({
            "agent": agent.did().to_string(),
            "cell": cell.as_str(),
            "serves": serves,
            "serial": membership.serial,
            "not_before": time::utc(membership.not_before_ms),
            "not_after": time::utc(membership.not_after_ms),
            "membership": text,
            "etcd": commands,
        }));
    }
    let serves = if serves.is_empty() { "nothing".to_owned() } else { serves.join(", ") };
    let until = time::utc(membership.not_after_ms);
    output::print(&format!(
        "agent       {}\nserves      {serves}\nuntil       {until}\nmembership  {text}\n\n\
         # If teams share the cell, give the agent an etcd user of its own, which can write its own keys only:\n{}\n",
        agent.did(),
        commands.join("\n")
    ))
}

fn revoke(args: &RevokeArgs, json: bool) -> Result<(), Failure> {
    let authority = authority(&args.authority)?;
    let (cell, agent) = (&args.authority.cell, agent(&args.agent)?);
    let at_ms = audit::now_ms();
    // Serials are times: this ends what was signed until now, and nothing that is signed later.
    let revocation = Revocation { agent, cell: cell.clone(), serial_min: at_ms.saturating_add(1), at_ms };
    let signed = revocation.sign(&authority);
    if let Some(file) = &args.file {
        File::revoke(file, cell.clone(), agent, &signed).map_err(|error| {
            Failure::usage(error.to_string())
                .hint("name the file that fleet.file of the cell's sidecars names")
        })?;
    }
    let value = BASE64_STANDARD.encode(signed);
    let key = Key::Revocation(agent).path(cell);
    let command = format!("printf %s {value} | base64 -d | etcdctl put {key}");
    if json {
        return output::print_json(&json!({
            "agent": agent.did().to_string(),
            "cell": cell.as_str(),
            "serial_min": revocation.serial_min,
            "key": key,
            "value": value,
            "file": args.file.as_ref().map(|file| file.display().to_string()),
            "etcd": [command],
        }));
    }
    let (did, until) = (agent.did(), time::utc(at_ms));
    let ends = format!("agent  {did}\nends   every membership that was signed until {until}\n");
    if let Some(file) = &args.file {
        return output::print(&format!("{ends}file   {}: published\n", file.display()));
    }
    output::print(&format!(
        "{ends}\n\
         # Sidecars refuse the agent as soon as this is in etcd. To let it back in, run capctl fleet admit later:\n{command}\n"
    ))
}

/// What lets an agent read its cell and write its own keys, and no others.
fn rights(cell: &Cell, agent: &Agent, serves: &[CapabilityPattern]) -> Vec<String> {
    let root = root(cell);
    let mut commands =
        vec![format!("etcdctl user add {agent} --no-password"), format!("etcdctl role add {agent}")];
    let mut grant = |what: String| {
        commands.push(format!("etcdctl role grant-permission {agent} {what}"));
    };
    for part in ["n/", "d/", "i/"] {
        grant(format!("--prefix=true read {root}{part}"));
    }
    grant(format!("readwrite {}", Key::Fence(*agent).path(cell)));
    let of_name = |name: &str| format!("readwrite {}", own_key(cell, agent, name));
    let mut has_namespace = false;
    for pattern in serves {
        match pattern {
            CapabilityPattern::Name(name) => grant(of_name(name.as_str())),
            CapabilityPattern::Namespace(_) | CapabilityPattern::Any => has_namespace = true,
        }
    }
    commands.push(format!("etcdctl user grant-role {agent} {agent}"));
    if has_namespace {
        // etcd knows keys and prefixes, and a name stands in the middle of a key.
        let line = of_name("NAME");
        commands.push(format!(
            "# and for each NAME of a namespace that it serves: etcdctl role grant-permission {agent} {line}"
        ));
    }
    commands
}

/// The key that an agent registers a name under; also of text that is no name, to show its form.
fn own_key(cell: &Cell, agent: &Agent, name: &str) -> String {
    let example = "a.b.c".parse().expect("it is a name");
    Key::registration(example, *agent).path(cell).replacen("/a.b.c/", &format!("/{name}/"), 1)
}

fn authority(args: &AuthorityArgs) -> Result<Identity, Failure> {
    let file = args.file();
    let seed = net::key_file::load(&file).map_err(|error| {
        let failure = Failure::usage(error.to_string());
        match error {
            KeyFileError::Io { source, .. } if source.kind() == io::ErrorKind::NotFound => failure.hint(format!(
                "to make the authority of a new cell: capctl fleet init --cell {}; else name its file with --authority",
                args.cell
            )),
            KeyFileError::Io { .. } | KeyFileError::Exposed { .. } | KeyFileError::Malformed { .. } => failure,
        }
    })?;
    Ok(seed.identity())
}

fn agent(did: &str) -> Result<Agent, Failure> {
    Agent::from_did(did).map_err(|error| {
        Failure::usage(format!("{did}: {error}"))
            .hint("a member is named by its did:key; capctl id prints it beside the agent's sidecar")
    })
}

fn write(file: &Path, text: &str) -> Result<(), Failure> {
    fs::write(file, format!("{text}\n"))
        .map_err(|error| Failure::usage(format!("{}: {error}", file.display())))
}

fn root(cell: &Cell) -> String {
    format!("/capd/1/{cell}/")
}

fn role(cell: &Cell) -> String {
    format!("capd-{cell}")
}

const DAY_MS: u64 = 24 * 60 * 60 * 1_000;
/// A sidecar's clock may be behind that of the authority by so much. **Units:** milliseconds.
const CLOCK_SLACK_MS: u64 = 5 * 60 * 1_000;
