//! Reads the agent's seed from its key file, and makes no new identity if there was one before.

use std::path::Path;

use capd_proto::identity::Identity;

use super::{StartError, create_dir};
use crate::config::Config;
use crate::net::{self, Seed};

/// The seed in the key file, which is made on a first start.
///
/// **Errors:** the file cannot be used, or it is missing and something of an earlier identity is there.
pub(super) fn seed(config: &Config) -> Result<Seed, StartError> {
    create_dir(&config.agent.dir)?;
    is_known(config)?;
    Ok(net::load_or_create(&config.agent.key_file)?)
}

/// The same, but a file that is missing is made in any case.
pub(super) fn new_seed(config: &Config) -> Result<Seed, StartError> {
    create_dir(&config.agent.dir)?;
    Ok(net::load_or_create(&config.agent.key_file)?)
}

/// The agent's identity, if its key file is there and can be used.
pub(super) fn existing(config: &Config) -> Option<Identity> {
    net::key_file::load(&config.agent.key_file).ok().map(|seed| seed.identity())
}

/// **Errors:** the key file is missing, and something of an earlier identity is there: the key was lost, or is looked for in
/// the wrong place. Peers know the agent by its key, and what the journal remembers was done under it.
pub(super) fn is_known(config: &Config) -> Result<(), StartError> {
    let key_file = &config.agent.key_file;
    // What cannot be looked at is told when it is read.
    if key_file.try_exists().unwrap_or(true) {
        return Ok(());
    }
    let journal = JOURNAL_FILES.map(|name| config.agent.dir.join(name));
    let found = journal.into_iter().chain(config.audit.file.clone()).find(|path| is_there(path));
    match found {
        None => Ok(()),
        Some(found) => Err(StartError::NewIdentity { key_file: key_file.clone(), found }),
    }
}

fn is_there(path: &Path) -> bool {
    path.try_exists().unwrap_or(true)
}

/// What a journal leaves in its folder.
const JOURNAL_FILES: [&str; 3] = ["journal.db", "journal.db-wal", "journal.mark"];
