//! Finds the agents that the command line names, with the schemas of their declarations.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use capd::client::{Client, ClientError, Description, Offer, Query};
use capd::codegen::{Agent, Language, generate};
use capd::daemon;
use capd::declaration::Declaration;
use capd_proto::capability::{CapabilityId, CapabilityName, CapabilityPattern};
use capd_proto::code::Code;

use crate::args::GenArgs;
use crate::compat::{is_from, is_selected};
use crate::failure::{Exit, Failure};
use crate::{Sidecar, capability, names};

/// The agents to generate code for, each with the capabilities that were asked for.
///
/// **Errors:** usage: the file has a mistake, nobody has the name, or nothing is left; those of asking the sidecar.
pub(super) async fn find(sidecar: &Sidecar, args: &GenArgs) -> Result<Vec<Agent>, Failure> {
    let file = args.capabilities.clone().or_else(|| args.peer.as_deref().and_then(in_fleet));
    let mut agents = match file {
        Some(file) => vec![declared(&file)?],
        None => described(&sidecar.connect().await?, args).await?,
    };
    select(&mut agents, &args.ids)?;
    Ok(agents)
}

/// Where a fleet keeps the declaration of an agent, seen from its root; `None` when nothing is there.
fn in_fleet(name: &str) -> Option<PathBuf> {
    let name = agent_id(name)?;
    Some(Path::new("agents").join(name).join("capabilities.yaml")).filter(|file| file.is_file())
}

/// The id of `agent://ID` or `ID`: labels with dots between them, and so no path that leads elsewhere.
fn agent_id(name: &str) -> Option<&str> {
    let id = name.strip_prefix("agent://").unwrap_or(name);
    format!("{id}.x.x").parse::<CapabilityName>().is_ok().then_some(id)
}

fn declared(file: &Path) -> Result<Agent, Failure> {
    let declaration = Declaration::load(file).map_err(|mistakes| Failure::usage(mistakes.to_string()))?;
    daemon::check_schemas(&declaration).map_err(|error| Failure::usage(error.to_string()))?;
    let agent = Agent::declared(&declaration)
        .map_err(|error| Failure::usage(format!("{}: {error}", file.display())))?;
    if agent.capabilities.is_empty() {
        return Err(Failure::usage(format!("{} declares no capability", file.display()))
            .hint("list what the agent can do under capabilities"));
    }
    Ok(agent)
}

/// What the sidecar knows of its own agent and its peers.
async fn described(client: &Client, args: &GenArgs) -> Result<Vec<Agent>, Failure> {
    let offers = match client.query_all(&Query::new(CapabilityPattern::Any)).await {
        Ok(offers) => offers,
        // PROTOCOL 7.1: nothing to list is 4002, never an empty CAP_DECLARE.
        Err(ClientError::Refused(error)) if error.code == Code::CAPABILITY_NOT_FOUND => Vec::new(),
        Err(error) => return Err(error.into()),
    };
    let own = client.did().as_str().to_owned();
    let is_meant = |id: &CapabilityId| args.ids.is_empty() || args.ids.iter().any(|one| is_selected(id, one));
    let ids: BTreeSet<CapabilityId> =
        offers.iter().map(|offer| offer.id().clone()).filter(is_meant).collect();
    let mut by_provider: BTreeMap<String, Vec<Description>> = BTreeMap::new();
    let peer = match &args.peer {
        Some(peer) => Some((peer.as_str(), names::resolved(client, peer).await)),
        None => None,
    };
    for id in &ids {
        for description in client.describe(id).await? {
            let provider = description.offer.provider.clone().unwrap_or_else(|| own.clone());
            if peer.as_ref().is_none_or(|(peer, did)| {
                is_from(&description, did, &own) || is_peer(&description, peer, &own)
            }) {
                by_provider.entry(provider).or_default().push(description);
            }
        }
    }
    if by_provider.is_empty() {
        let failure = nothing(args, offers.len());
        return Err(match guess(client, args, &offers).await {
            Some(hint) => failure.hint(hint),
            None => failure,
        });
    }
    distinct(by_provider, args.lang.into())
}

fn is_peer(description: &Description, peer: &str, own: &str) -> bool {
    let is_named = |id: &str| {
        let rest = description
            .offer
            .id()
            .name
            .as_str()
            .strip_prefix("agent.")
            .and_then(|rest| rest.strip_prefix(id));
        rest.is_some_and(|rest| rest.starts_with('.') && !rest[1..].contains('.'))
    };
    is_from(description, peer, own) || agent_id(peer).is_some_and(is_named)
}

/// The peer or the capability that was meant, if one is near.
async fn guess(client: &Client, args: &GenArgs, offers: &[Offer]) -> Option<String> {
    if let Some(peer) = &args.peer {
        return names::guess(client, peer).await;
    }
    let names = offers.iter().map(|offer| offer.id().name.clone()).collect();
    let name = args.ids.first()?.split([':', '@']).next()?;
    Some(capability::guess(name, &names)).filter(|hint| hint.starts_with("did you mean"))
}

fn nothing(args: &GenArgs, known: usize) -> Failure {
    let failure = match (&args.peer, args.ids.is_empty()) {
        _ if known == 0 => Failure::usage("the sidecar knows no capability"),
        (Some(peer), true) => Failure::usage(format!("the sidecar knows nothing of {peer:?}")),
        (Some(peer), false) => Failure::usage(format!(
            "{peer:?} does not declare {}, as far as the sidecar knows",
            args.ids.join(" or ")
        )),
        (None, _) => {
            Failure::usage(format!("nobody declares {}, as far as the sidecar knows", args.ids.join(" or ")))
        }
    };
    failure
        .exit(Exit::Refused)
        .hint("capctl ls shows every capability and its provider; capctl ls --peers shows who is connected")
}

/// Agents whose files are not each other's: anybody may put another agent's name into those of its capabilities.
fn distinct(
    by_provider: BTreeMap<String, Vec<Description>>,
    language: Language,
) -> Result<Vec<Agent>, Failure> {
    let mut agents = Vec::new();
    let mut paths = BTreeMap::new();
    for (provider, descriptions) in by_provider {
        let agent = Agent::described(&provider, &descriptions).map_err(|error| {
            Failure::usage(format!("{provider}: {error}"))
                .hint("name the capabilities that you want, to leave it out")
        })?;
        *paths.entry(generate(language, &agent).path).or_insert(0_usize) += 1;
        agents.push((provider, agent));
    }
    let is_shared =
        |agent: &Agent| paths.get(&generate(language, agent).path).is_some_and(|count| *count > 1);
    let renamed = agents.into_iter().map(|(provider, agent)| {
        if is_shared(&agent) { Agent { name: Some(provider), ..agent } } else { agent }
    });
    Ok(renamed.collect())
}

/// Leaves the capabilities that `ids` name, and the agents that have any.
///
/// **Errors:** usage, for an id that names nothing.
fn select(agents: &mut Vec<Agent>, ids: &[String]) -> Result<(), Failure> {
    if ids.is_empty() {
        return Ok(());
    }
    let known = || agents.iter().flat_map(|agent| &agent.capabilities).map(|capability| &capability.id);
    if let Some(unknown) = ids.iter().find(|id| !known().any(|one| is_selected(one, id))) {
        let mut shown: Vec<_> = known().map(ToString::to_string).collect();
        shown.sort_unstable();
        let more = shown.len().saturating_sub(SHOWN_MAX);
        shown.truncate(SHOWN_MAX);
        let rest = if more > 0 { format!(", and {more} more") } else { String::new() };
        return Err(Failure::usage(format!("{unknown:?} names no capability that is declared"))
            .exit(Exit::Refused)
            .hint(format!("declared are {}{rest}", shown.join(", "))));
    }
    for agent in agents.iter_mut() {
        agent.capabilities.retain(|capability| ids.iter().any(|id| is_selected(&capability.id, id)));
    }
    agents.retain(|agent| !agent.capabilities.is_empty());
    Ok(())
}

/// Most capabilities that an error lists.
const SHOWN_MAX: usize = 20;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_that_is_a_path_is_no_agent() {
        assert_eq!(agent_id("agent://pr-reviewer"), Some("pr-reviewer"));
        assert_eq!(agent_id("team.pr-reviewer"), Some("team.pr-reviewer"));
        for name in ["../x", "agent://../../x", "a/b", "", ".", "..", "a..b", "a b", "-a"] {
            assert_eq!(agent_id(name), None, "{name:?}");
        }
    }
}
