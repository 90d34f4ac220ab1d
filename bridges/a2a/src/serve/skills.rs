//! What the sidecar lists in; skills in a stable order out.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use capd_bridge::export::{Choice, Reader};
use capd_bridge::sidecar::Sidecar;
use capd_client::ClientError;
use capd_client::proto::capability::{CapabilityId, CapabilityName};
use tokio::time::Instant;

use crate::extension::Schemas;

/// One capability as a skill.
#[derive(Debug)]
pub(super) struct Skill {
    pub(super) id: CapabilityId,
    pub(super) description: String,
    pub(super) tags: Vec<String>,
    pub(super) schemas: Schemas,
}

/// All skills, by their names.
pub(super) type Skills = BTreeMap<CapabilityName, Skill>;

/// The skills of a sidecar, read again when they are old.
pub(super) struct Catalog {
    choice: Choice,
    reader: Reader,
    read: tokio::sync::Mutex<Option<(Instant, Arc<Skills>)>>,
}

impl Catalog {
    pub(super) fn new(choice: Choice) -> Self {
        Self { reader: Reader::new(choice.clone()), choice, read: tokio::sync::Mutex::default() }
    }

    /// The skills, as they are or were a moment ago.
    ///
    /// **Errors:** those of the sidecar.
    pub(super) async fn skills(&self, sidecar: &Sidecar) -> Result<Arc<Skills>, ClientError> {
        self.not_older_than(FRESH, sidecar).await
    }

    /// What a text names: a skill's id, or a capability's name, whose version is chosen here.
    ///
    /// A capability that nobody serves at the moment is a skill as well: its call is refused, or was recorded before.
    ///
    /// **Errors:** why it is no skill.
    pub(super) async fn named(&self, text: &str, sidecar: &Sidecar) -> Result<String, String> {
        let (name, version) =
            text.split_once(':').map_or((text, None), |(name, version)| (name, Some(version)));
        let name: CapabilityName = name.parse().map_err(|error| format!("{text:?} is no skill: {error}"))?;
        let is_chosen = self.choice.patterns.iter().any(|pattern| pattern.matches(name.as_str()));
        let pinned = self.choice.pins.get(&name).map(ToString::to_string);
        if !is_chosen
            || (pinned.is_some() && version.is_some_and(|version| pinned.as_deref() != Some(version)))
        {
            return Err(format!("{text:?} is not offered here; the agent card lists the skills"));
        }
        if let Some(version) = version.map(str::to_owned).or(pinned) {
            return Ok(format!("{name}:{version}"));
        }
        let skills = self.not_older_than(KNOWN_FOR, sidecar).await;
        let listed = skills.ok().and_then(|skills| skills.get(&name).map(|skill| skill.id.to_string()));
        Ok(listed.unwrap_or_else(|| name.to_string()))
    }

    /// The one skill that there is; none where there are none, or several.
    pub(super) async fn only(&self, sidecar: &Sidecar) -> Option<String> {
        let skills = self.not_older_than(KNOWN_FOR, sidecar).await.ok()?;
        let mut ids = skills.values().map(|skill| skill.id.to_string());
        ids.next().filter(|_| ids.next().is_none())
    }

    async fn not_older_than(&self, age: Duration, sidecar: &Sidecar) -> Result<Arc<Skills>, ClientError> {
        let mut read = self.read.lock().await;
        if let Some((_, skills)) = read.as_ref().filter(|(at, _)| at.elapsed() < age) {
            return Ok(Arc::clone(skills));
        }
        let client = sidecar.client().await?;
        let mut skills = Skills::new();
        for offer in self.reader.offers(&client).await? {
            let descriptor = &offer.descriptor;
            let schemas = Schemas {
                input: self.reader.document(&client, descriptor.input_schema.as_ref()).await?,
                output: self.reader.document(&client, descriptor.output_schema.as_ref()).await?,
                is_idempotent: descriptor.idempotent,
            };
            let id = descriptor.id.clone();
            let description = descriptor.description.clone().unwrap_or_else(|| id.to_string());
            let tags = vec![descriptor.category.clone().unwrap_or_else(|| "capability".to_owned())];
            skills.insert(id.name.clone(), Skill { id, description, tags, schemas });
        }
        let skills = Arc::new(skills);
        *read = Some((Instant::now(), Arc::clone(&skills)));
        Ok(skills)
    }
}

/// How old the skills may be that a card shows.
const FRESH: Duration = Duration::from_millis(500);
/// How old they may be where a message names one without a version.
const KNOWN_FOR: Duration = Duration::from_secs(5);
