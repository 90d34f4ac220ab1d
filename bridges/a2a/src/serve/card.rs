//! Tells what there is: skills in; the signed agent card out.

use std::collections::HashMap;

use a2a::{
    AgentCapabilities, AgentCard, AgentExtension, AgentInterface, AgentSkill, HttpAuthSecurityScheme,
    SecurityScheme, TRANSPORT_PROTOCOL_HTTP_JSON, TRANSPORT_PROTOCOL_JSONRPC,
};
use capd_client::ClientError;
use serde_json::{Map, Value};

use super::Server;
use super::route::RPC;
use super::skills::Skills;
use crate::{extension, signing};

impl Server {
    /// The card, as it is or was a moment ago.
    ///
    /// **Errors:** those of the sidecar.
    pub(super) async fn card(&self) -> Result<Value, ClientError> {
        let skills = self.catalog.skills(&self.sidecar).await?;
        let agent = self.sidecar.client().await?.did().to_string();
        let card = AgentCard {
            name: self.name.clone(),
            description: format!(
                "Capabilities that {agent} may call, as skills. Send one data part {{\"capability\": SKILL, \"params\": …}}. \
                 A message with the same messageId never runs twice."
            ),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            supported_interfaces: vec![
                AgentInterface::new(format!("{}{RPC}", self.url), TRANSPORT_PROTOCOL_JSONRPC),
                AgentInterface::new(self.url.clone(), TRANSPORT_PROTOCOL_HTTP_JSON),
            ],
            capabilities: AgentCapabilities {
                streaming: Some(true),
                push_notifications: Some(false),
                extensions: Some(vec![extension(&agent, &skills)]),
                extended_agent_card: Some(false),
            },
            default_input_modes: vec![JSON.to_owned()],
            default_output_modes: vec![JSON.to_owned()],
            skills: skills.values().take(SKILLS_MAX).map(skill).collect(),
            provider: None,
            documentation_url: None,
            icon_url: None,
            security_schemes: self.callers.are_known().then(schemes),
            security_requirements: self
                .callers
                .are_known()
                .then(|| vec![HashMap::from([(BEARER.to_owned(), Vec::new())])]),
            signatures: None,
        };
        let mut card = serde_json::to_value(card).map_err(|error| ClientError::Answer(error.to_string()))?;
        signing::sign(&mut card, &self.key);
        Ok(card)
    }
}

fn skill(skill: &super::skills::Skill) -> AgentSkill {
    AgentSkill {
        id: skill.id.to_string(),
        name: skill.id.name.to_string(),
        description: skill.description.clone(),
        tags: skill.tags.clone(),
        examples: None,
        input_modes: None,
        output_modes: None,
        security_requirements: None,
    }
}

/// Schemas come for as many skills as the card has room for; the others are called without.
fn extension(agent: &str, skills: &Skills) -> AgentExtension {
    let (mut entries, mut bytes) = (Map::new(), 0);
    for skill in skills.values().take(SKILLS_MAX) {
        let entry = skill.schemas.json();
        bytes += entry.to_string().len();
        if bytes > SCHEMAS_BYTES_MAX {
            tracing::warn!(skill = %skill.id, "the card has no room for the schemas of this skill and those after it");
            break;
        }
        entries.insert(skill.id.to_string(), entry);
    }
    let params = match extension::params(agent, entries) {
        Value::Object(fields) => Some(fields.into_iter().collect()),
        _ => None,
    };
    AgentExtension {
        uri: extension::URI.to_owned(),
        description: Some("Schemas and versions of skills; the same message never runs twice.".to_owned()),
        required: None,
        params,
    }
}

fn schemes() -> HashMap<String, SecurityScheme> {
    let scheme =
        HttpAuthSecurityScheme { scheme: "Bearer".to_owned(), description: None, bearer_format: None };
    HashMap::from([(BEARER.to_owned(), SecurityScheme::HttpAuth(scheme))])
}

const BEARER: &str = "bearer";
/// The media type of every part.
pub(super) const JSON: &str = "application/json";
/// Skills on one card.
const SKILLS_MAX: usize = 1_000;
/// Bytes of schemas on one card.
const SCHEMAS_BYTES_MAX: usize = 4 * 1024 * 1024;
