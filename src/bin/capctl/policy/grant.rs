//! Implements `policy grant` and `policy revoke`: a peer and a capability in; the configuration changed and in force out.

use std::collections::BTreeSet;
use std::path::PathBuf;

use capd::client::Client;
use capd::config::edit::{Edit, EditError, File, NewGrant};
use capd::config::{Config, Peer};
use capd_proto::capability::CapabilityPattern;
use serde_json::json;

use crate::args::GrantArgs;
use crate::capability::{self, Wanted};
use crate::failure::{Exit, Failure};
use crate::{Sidecar, configuration, operate, output};

/// Lets a caller call a capability.
pub(super) async fn grant(sidecar: &Sidecar, args: &GrantArgs, json: bool) -> Result<(), Failure> {
    let Place { file, config, caller, capability } = Place::of(sidecar, args).await?;
    let mut edited = File::open(&file).map_err(failed)?;
    let grant = NewGrant {
        caller: caller.word.clone(),
        name: caller.peer_name.clone(),
        capability: capability.to_string(),
        permissions: args.permissions.clone(),
    };
    let edit = edited.grant(&grant).map_err(failed)?;
    let config = save(&edited, edit, config)?;
    let is_running = reloaded(sidecar, &config).await?;
    told("granted", &caller, &capability, (edit, &file), is_running.is_some(), json)?;
    if let Some(client) = is_running {
        lacks(&client, &caller, &capability).await;
        client.close().await;
    }
    Ok(())
}

/// Takes a grant back. **Errors:** another rule still allows it.
pub(super) async fn revoke(sidecar: &Sidecar, args: &GrantArgs, json: bool) -> Result<(), Failure> {
    let Place { file, config, caller, capability } = Place::of(sidecar, args).await?;
    let mut edited = File::open(&file).map_err(failed)?;
    let edit = edited.revoke(&caller.word, &capability.to_string()).map_err(failed)?;
    let config = save(&edited, edit, config)?;
    let client = reloaded(sidecar, &config).await?;
    told("revoked", &caller, &capability, (edit, &file), client.is_some(), json)?;
    let (Some(client), Some(did), CapabilityPattern::Name(name)) = (client, &caller.did, &capability) else {
        return Ok(());
    };
    // A name that nobody serves is decided on as well; without an answer nothing is known.
    let Ok(why) = client.policy_why(did, name, None).await else { return Ok(()) };
    client.close().await;
    let mut allowed = why.decisions.iter().filter(|decision| decision.allowed);
    match allowed.find(|decision| decision.action == "invoke") {
        None => Ok(()),
        Some(decision) => Err(Failure::unexpected(format!(
            "{} may still call {name}: {}",
            caller.shown(),
            output::one_line(&decision.reason)
        ))
        .exit(Exit::Refused)),
    }
}

/// Where a grant is written, and for whom.
struct Place {
    file: PathBuf,
    config: Config,
    caller: Caller,
    capability: CapabilityPattern,
}

/// Who may call.
struct Caller {
    /// As it is written in `callers`.
    word: String,
    did: Option<capd_proto::identity::Did>,
    peer_name: Option<String>,
}

impl Place {
    async fn of(sidecar: &Sidecar, args: &GrantArgs) -> Result<Self, Failure> {
        let file = match configuration::file(args.config.as_ref()) {
            Some(file) => file,
            None => file_of(sidecar).await?,
        };
        let config = configuration::load(Some(file.clone()))
            .map_err(|mistakes| Failure::usage(mistakes.to_string()))?;
        let caller = Caller::of(&args.caller, &config)?;
        let capability = capability(sidecar, &config, &args.capability).await?;
        Ok(Self { file, config, caller, capability })
    }
}

/// The configuration file of the sidecar that runs. **Errors:** usage, if none can be asked or it has none.
async fn file_of(sidecar: &Sidecar) -> Result<PathBuf, Failure> {
    let unnamed =
        |why: &str| Failure::usage(format!("a grant is written to the sidecar's configuration, and {why}"));
    let hint = "name it with --config FILE";
    let client = match sidecar.connect().await {
        Ok(client) => client,
        Err(failure) if failure.exit == Exit::Unavailable => {
            return Err(unnamed("no sidecar runs that says which file that is").hint(hint));
        }
        Err(failure) => return Err(failure),
    };
    let told = client.doctor().await?;
    client.close().await;
    let file = told.file.ok_or_else(|| unnamed("the running sidecar has no file").hint(hint))?;
    Ok(PathBuf::from(file.into_owned()))
}

/// What the command line means: a namespace, a whole name, or the end of a name that the sidecar or its files know.
async fn capability(sidecar: &Sidecar, config: &Config, text: &str) -> Result<CapabilityPattern, Failure> {
    if text.ends_with('*') {
        return text.parse().map_err(|error| Failure::usage(format!("{text:?}: {error}")));
    }
    let wanted = Wanted::of_all_versions(text, "a grant")?;
    if let Ok(name) = wanted.written().parse() {
        return Ok(CapabilityPattern::Name(name));
    }
    let mut names: BTreeSet<_> = super::cases::declared(config)?.into_iter().map(|one| one.id.name).collect();
    names.extend(config.allow.iter().flat_map(|grant| &grant.capabilities).filter_map(
        |granted| match granted {
            CapabilityPattern::Name(name) => Some(name.clone()),
            _ => None,
        },
    ));
    // A sidecar that does not run knows no more than its files.
    if let Ok(client) = configuration::beside(sidecar, config).connect().await {
        names.extend(capability::known(&client).await?);
        client.close().await;
    }
    wanted.among(&names).map(CapabilityPattern::Name)
}

impl Caller {
    /// **Errors:** no peer and no group has this name.
    fn of(text: &str, config: &Config) -> Result<Self, Failure> {
        if text == "*" || config.groups.iter().any(|group| text == format!("group:{}", group.name)) {
            return Ok(Self { word: text.to_owned(), did: None, peer_name: None });
        }
        let is_it = |peer: &&Peer| {
            peer.did == text || peer.name.as_ref().is_some_and(|name| name.eq_ignore_ascii_case(text))
        };
        let Some(peer) = config.peers.iter().find(is_it) else {
            let names: Vec<_> =
                config.peers.iter().map(|peer| peer.name.as_ref().unwrap_or(&peer.did)).collect();
            let known = names.iter().map(|name| name.as_str()).collect::<Vec<_>>().join(", ");
            let failure = Failure::usage(format!("{text:?} is no peer of this configuration"));
            let failure = failure.exit(Exit::Refused);
            if let Some(meant) = capd::text::nearest(text, names.iter().map(|name| name.as_str())) {
                return Err(failure.hint(format!("did you mean {meant:?}?")));
            }
            return Err(if known.is_empty() {
                failure.hint("there is none; `capd pair` adds one")
            } else {
                failure.hint(format!("its peers: {known}"))
            });
        };
        Ok(Self { word: peer.did.clone(), did: peer.did.parse().ok(), peer_name: peer.name.clone() })
    }

    fn shown(&self) -> &str {
        self.peer_name.as_deref().unwrap_or(&self.word)
    }
}

fn failed(error: EditError) -> Failure {
    match error {
        EditError::Write { .. } => Failure::unexpected(error.to_string()),
        EditError::Mistakes(_) | EditError::Toml { .. } | EditError::Inline { .. } => {
            Failure::usage(error.to_string())
        }
    }
}

fn save(file: &File, edit: Edit, config: Config) -> Result<Config, Failure> {
    match edit {
        Edit::Unchanged => Ok(config),
        Edit::Changed => file.save(&configuration::environment()).map_err(failed),
    }
}

/// Reloads the running sidecar. `None` if none runs: it reads the file when it starts.
async fn reloaded(sidecar: &Sidecar, config: &Config) -> Result<Option<Client>, Failure> {
    let written =
        |failure: Failure| failure.hint("the file is written, and the sidecar's rules are unchanged");
    let client = match configuration::beside(sidecar, config).connect().await {
        Ok(client) => client,
        Err(failure) if failure.exit == Exit::Unavailable => return Ok(None),
        Err(failure) => return Err(written(failure)),
    };
    let reloaded = operate::reloaded(&client, false).await.map_err(written)?;
    if reloaded.applied { Ok(Some(client)) } else { Err(operate::needs_restart(&reloaded)) }
}

fn told(
    what: &str,
    caller: &Caller,
    capability: &CapabilityPattern,
    (edit, file): (Edit, &std::path::Path),
    is_running: bool,
    json: bool,
) -> Result<(), Failure> {
    let capability = capability.to_string();
    if json {
        return output::print_json(&json!({
            "caller": caller.word,
            "name": caller.peer_name,
            "capability": capability,
            "changed": edit == Edit::Changed,
            "in_force": is_running,
        }));
    }
    let place = file.display();
    let state = match (edit, what) {
        (Edit::Changed, _) => format!("{what}: {} {capability}, in {place}", caller.shown()),
        (Edit::Unchanged, "granted") => format!("{place} grants {} {capability} already", caller.shown()),
        (Edit::Unchanged, _) => {
            format!("{place} has no grant of {capability} for {} alone", caller.shown())
        }
    };
    output::print(&state)?;
    if !is_running {
        output::note("the sidecar does not run; the grant counts once it does");
    }
    Ok(())
}

/// Says what else a call needs: a capability may declare permissions that the grant does not bring.
async fn lacks(client: &Client, caller: &Caller, capability: &CapabilityPattern) {
    let (Some(did), CapabilityPattern::Name(name)) = (&caller.did, capability) else { return };
    match client.policy_why(did, name, None).await {
        // Only the name is decided on: no version of it is there.
        Ok(why) if why.decisions.iter().all(|decision| !decision.capability.contains(':')) => {
            let known = capability::known(client).await.unwrap_or_default();
            let guess = Some(capability::guess(name.as_str(), &known));
            let guess = guess.filter(|guess| guess.starts_with("did you mean"));
            let guess = guess.map(|guess| format!("; {guess}")).unwrap_or_default();
            output::note(&format!("nobody serves {name} here yet{guess}"));
        }
        Ok(why) => {
            let missing = why.decisions.iter().flat_map(|decision| &decision.missing);
            let mut missing: Vec<_> =
                missing.map(|permission| format!("--permission {permission}")).collect();
            missing.sort();
            missing.dedup();
            if !missing.is_empty() {
                let again = format!("capctl policy grant {} {name} {}", caller.shown(), missing.join(" "));
                output::note(&format!(
                    "{name} also needs permissions; to grant them: {}",
                    output::one_line(&again)
                ));
            }
        }
        // The grant stands; there is nothing to add.
        Err(_) => {}
    }
}
