//! What the sidecar lists in; tools in a stable order out.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use capd_bridge::export::{Choice, Reader};
use capd_bridge::sidecar::Sidecar;
use capd_client::proto::capability::CapabilityId;
use capd_client::proto::message::SchemaSource;
use capd_client::{Client, ClientError, Offer};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use tokio::sync::watch;
use tokio::time::Instant;

use super::names::{nearest, tool_name};
use super::schema::{self, Arguments};
use crate::content;
use crate::era::Era;

/// One capability as a tool.
#[derive(Debug)]
pub(super) struct Tool {
    pub(super) name: String,
    pub(super) id: CapabilityId,
    pub(super) description: String,
    pub(super) arguments: Arguments,
    pub(super) output: Output,
    is_idempotent: bool,
}

/// What a tool's results are.
#[derive(Debug, PartialEq)]
pub(super) enum Output {
    /// Anything.
    Undeclared,
    /// What fits this schema.
    Schema(Value),
    /// Content blocks of an imported tool.
    Blocks,
}

/// All tools, by their names.
pub(super) type Tools = BTreeMap<String, Arc<Tool>>;

/// The tools of a sidecar, read again when they are old.
pub(super) struct Catalog {
    reader: Reader,
    read: tokio::sync::Mutex<Option<Read>>,
    /// Every tool that was ever listed: a client may call one whose provider is away, or ask again with its key.
    shown: Mutex<HashMap<String, Arc<Tool>>>,
    changes: watch::Sender<[u8; 32]>,
}

struct Read {
    at: Instant,
    tools: Arc<Tools>,
}

impl Catalog {
    pub(super) fn new(choice: Choice) -> Self {
        let changes = watch::Sender::new([0; 32]);
        Self {
            reader: Reader::new(choice),
            read: tokio::sync::Mutex::default(),
            shown: Mutex::default(),
            changes,
        }
    }

    /// The tools, as they are or were a moment ago.
    ///
    /// **Errors:** those of the sidecar.
    pub(super) async fn tools(&self, sidecar: &Sidecar) -> Result<Arc<Tools>, ClientError> {
        self.not_older_than(FRESH, sidecar).await
    }

    /// The tool of this name, looked for once more where there is none.
    ///
    /// **Errors:** those of the sidecar.
    pub(super) async fn tool(
        &self,
        name: &str,
        sidecar: &Sidecar,
    ) -> Result<Result<Arc<Tool>, Unknown>, ClientError> {
        if let Some(tool) = self.not_older_than(KNOWN_FOR, sidecar).await?.get(name) {
            return Ok(Ok(Arc::clone(tool)));
        }
        let tools = self.not_older_than(FRESH_MIN, sidecar).await?;
        let unknown = || Unknown {
            name: name.to_owned(),
            nearest: nearest(name, tools.keys().map(String::as_str)).map(str::to_owned),
        };
        let shown = || self.shown.lock().unwrap_or_else(PoisonError::into_inner).get(name).cloned();
        Ok(tools.get(name).cloned().or_else(shown).ok_or_else(unknown))
    }

    /// Tells when the tools have changed. The value is of no meaning.
    pub(super) fn changes(&self) -> watch::Receiver<[u8; 32]> {
        self.changes.subscribe()
    }

    /// Reads the tools again and again, as long as somebody wants to hear of changes.
    pub(super) async fn follow(&self, sidecar: &Sidecar) {
        loop {
            tokio::time::sleep(FOLLOWED_EVERY).await;
            if self.changes.receiver_count() > 0
                && let Err(error) = self.not_older_than(FRESH_MIN, sidecar).await
            {
                tracing::debug!(%error, "the sidecar's capabilities were not read");
            }
        }
    }

    async fn not_older_than(&self, age: Duration, sidecar: &Sidecar) -> Result<Arc<Tools>, ClientError> {
        let mut read = self.read.lock().await;
        if let Some(read) = read.as_ref().filter(|read| read.at.elapsed() < age) {
            return Ok(Arc::clone(&read.tools));
        }
        let tools = Arc::new(self.read(&sidecar.client().await?).await?);
        self.changes.send_if_modified(|known| {
            let digest = digest(&tools);
            let is_first = *known == [0; 32];
            std::mem::replace(known, digest) != digest && !is_first
        });
        {
            let mut shown = self.shown.lock().unwrap_or_else(PoisonError::into_inner);
            if shown.len() > SHOWN_MAX {
                shown.clear();
            }
            shown.extend(tools.iter().map(|(name, tool)| (name.clone(), Arc::clone(tool))));
        }
        *read = Some(Read { at: Instant::now(), tools: Arc::clone(&tools) });
        Ok(tools)
    }

    async fn read(&self, client: &Client) -> Result<Tools, ClientError> {
        let mut tools = Tools::new();
        for offer in self.reader.offers(client).await? {
            let tool = self.of_offer(client, &offer).await?;
            tools.insert(tool.name.clone(), Arc::new(tool));
        }
        Ok(tools)
    }

    async fn of_offer(&self, client: &Client, offer: &Offer) -> Result<Tool, ClientError> {
        let descriptor = &offer.descriptor;
        let input = self.reader.document(client, descriptor.input_schema.as_ref()).await?;
        let output = match &descriptor.output_schema {
            Some(SchemaSource::Ref(schema)) if schema.hash == content::hash() => Output::Blocks,
            source => match self.reader.document(client, source.as_ref()).await? {
                None => Output::Undeclared,
                Some(schema) => Output::Schema(schema::inlined(&schema)),
            },
        };
        Ok(Tool {
            name: tool_name(descriptor.id.name.as_str()),
            id: descriptor.id.clone(),
            description: descriptor.description.clone().unwrap_or_else(|| descriptor.id.to_string()),
            arguments: schema::arguments(input.as_ref()),
            output,
            is_idempotent: descriptor.idempotent,
        })
    }
}

impl Tool {
    /// The definition, as clients of an era take it.
    pub(super) fn definition(&self, era: Era) -> Value {
        let mut definition = json!({
            "name": self.name,
            "title": self.id.to_string(),
            "description": self.description,
            "inputSchema": self.arguments.schema,
            "annotations": {"title": self.id.to_string(), "idempotentHint": self.is_idempotent},
        });
        if let Some(schema) = self.output_schema(era) {
            definition["outputSchema"] = schema;
        }
        definition
    }

    /// What structured results fit; none where results are not structured for clients of this era.
    pub(super) fn output_schema(&self, era: Era) -> Option<Value> {
        match (&self.output, era) {
            (Output::Schema(schema), Era::Modern) => Some(schema.clone()),
            (Output::Schema(schema), Era::Legacy(_)) => schema::as_object(schema),
            (Output::Undeclared | Output::Blocks, _) => None,
        }
    }
}

/// A tool that is not there.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("Unknown tool: {name}{}", .nearest.as_ref().map(|name| format!("; did you mean {name:?}?")).unwrap_or_default())]
pub(super) struct Unknown {
    name: String,
    nearest: Option<String>,
}

fn digest(tools: &Tools) -> [u8; 32] {
    let mut digest = Sha256::new();
    for tool in tools.values() {
        digest.update(tool.definition(Era::Modern).to_string());
        digest.update([0]);
    }
    digest.finalize().into()
}

/// How old the tools may be that a list shows.
const FRESH: Duration = Duration::from_millis(500);
/// How old they may be where something is amiss with them.
const FRESH_MIN: Duration = Duration::from_millis(50);
/// How old they may be for a call of a known tool.
const KNOWN_FOR: Duration = Duration::from_secs(10);
/// How often they are read for those who want to hear of changes.
const FOLLOWED_EVERY: Duration = Duration::from_secs(3);
/// Tools that are remembered although nobody offers them any more.
const SHOWN_MAX: usize = 20_000;
