//! Makes the rules from the configuration's groups, grants and policy files, with warnings.

use std::collections::BTreeSet;
use std::io::Read as _;
use std::path::{Path, PathBuf};

use capd_proto::identity::Did;

use crate::config::{self, Admit, Config};
use crate::declaration::Declaration;
use crate::net;
use crate::policy::rules::FILE_BYTES_MAX;
use crate::policy::{Action, Grant, Mistake, Mistakes, Rules, Source, Who, cases};

/// The rules that a configuration makes. Reads its policy files, and the agent's key if it can: without one, the own agent's
/// rule is not among them.
///
/// **Errors:** every mistake.
pub(in crate::daemon) fn rules(config: &Config) -> Result<Rules, Mistakes> {
    let key_file = &config.agent.key_file;
    // A key that cannot be read is for a start to tell.
    let seed = if key_file.exists() { net::load_or_create(key_file).ok() } else { None };
    rules_of(config, seed.map(|seed| seed.identity().did().clone()))
}

/// The rules for the agent of this DID.
pub(in crate::daemon) fn rules_of(config: &Config, own: Option<Did>) -> Result<Rules, Mistakes> {
    let mut mistakes = Vec::new();
    let mut files = Vec::new();
    for path in &config.policy.files {
        match read(path) {
            Ok(text) => files.push((path.clone(), text)),
            Err(problem) => mistakes.push(Mistake { file: path.clone(), line: 0, problem }),
        }
    }
    let groups = config.groups.iter().map(|group| {
        let members: Result<Vec<_>, _> = group.members.iter().map(|member| did(member)).collect();
        members.map(|members| (group.name.clone(), members))
    });
    let groups = taken(groups, "groups", &mut mistakes);
    let grants = taken(config.allow.iter().map(grant), "allow", &mut mistakes);
    if !mistakes.is_empty() {
        return Err(Mistakes(mistakes));
    }
    Rules::new(&Source { own, groups, grants, files })
}

/// Likely mistakes in a configuration's rules, one sentence each.
pub fn warnings(config: &Config, rules: &Rules) -> Vec<String> {
    let mut warnings: Vec<_> = rules.warnings().iter().map(ToString::to_string).collect();
    // Members of a fleet are admitted without a list.
    if config.peer.admit == Admit::Any || config.fleet.is_some() {
        return warnings;
    }
    let named = config.allow.iter().flat_map(|grant| &grant.callers).filter_map(|caller| match caller {
        config::Caller::Did(did) => Some(did),
        config::Caller::Anyone | config::Caller::Group(_) => None,
    });
    let named = named.chain(config.groups.iter().flat_map(|group| &group.members));
    // A DID of another method is that of a peer which calls itself so.
    let named: BTreeSet<_> = named.filter(|did| did.starts_with("did:key:")).collect();
    for did in named {
        if !config.peers.iter().any(|peer| peer.did == *did) {
            warnings.push(format!("{did} has a grant but is not in [[peers]], so it is not admitted"));
        }
    }
    warnings
}

/// What a declaration's capabilities declare that rules which permit calls of them do not grant, one sentence each.
pub(in crate::daemon) fn ungranted(rules: &Rules, declaration: &Declaration) -> Vec<String> {
    let declared = declaration.capabilities.iter().map(|declared| cases::Declared {
        id: declared.id.clone(),
        category: declared.category.clone().unwrap_or_default(),
        permissions: declared.permissions.clone(),
    });
    rules.ungranted(&declared.collect::<Vec<_>>()).iter().map(ToString::to_string).collect()
}

/// Whether rules leave peers nothing to call.
pub(in crate::daemon) fn is_closed(config: &Config) -> bool {
    config.allow.is_empty() && config.policy.files.is_empty()
}

/// What could be read; the rest are mistakes.
fn taken<T>(all: impl Iterator<Item = Result<T, String>>, key: &str, mistakes: &mut Vec<Mistake>) -> Vec<T> {
    let (good, bad): (Vec<_>, Vec<_>) = all.partition(Result::is_ok);
    let wrong = bad.into_iter().filter_map(Result::err);
    mistakes.extend(wrong.map(|problem| Mistake { file: PathBuf::from(key), line: 0, problem }));
    good.into_iter().flatten().collect()
}

fn grant(grant: &config::Grant) -> Result<Grant, String> {
    let who = |caller: &config::Caller| match caller {
        config::Caller::Anyone => Ok(Who::Anyone),
        config::Caller::Did(text) => did(text).map(Who::Caller),
        config::Caller::Group(name) => Ok(Who::Group(name.clone())),
    };
    let action = |action: &config::Action| match action {
        config::Action::Query => Action::Query,
        config::Action::Invoke => Action::Invoke,
    };
    Ok(Grant {
        callers: grant.callers.iter().map(who).collect::<Result<_, _>>()?,
        capabilities: grant.capabilities.clone(),
        actions: grant.actions.iter().map(action).collect(),
        permissions: grant.permissions.clone(),
    })
}

fn did(text: &str) -> Result<Did, String> {
    Did::parse(text).map_err(|error| format!("{text:?} is no DID: {error}"))
}

fn read(path: &Path) -> Result<String, String> {
    let mut text = String::new();
    let file = std::fs::File::open(path).map_err(|error| format!("cannot be opened: {error}"))?;
    let read = file.take(FILE_BYTES_MAX + 1).read_to_string(&mut text);
    match read {
        Err(error) => Err(format!("cannot be read: {error}")),
        Ok(length) if length as u64 > FILE_BYTES_MAX => {
            Err(format!("too large; accepted: at most {FILE_BYTES_MAX} bytes"))
        }
        Ok(_) => Ok(text),
    }
}
