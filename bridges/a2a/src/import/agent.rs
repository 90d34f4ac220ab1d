//! Reads an agent's card: JSON in; where and how it is asked, and its skills as tools, out.

use std::collections::BTreeMap;

use capd_bridge::http::client::Place;
use capd_bridge::import::tool::{Listed, Quarantined};
use serde_json::{Map, Value, json};

use super::KIND;
use crate::extension::{self, Schemas};
use crate::signing;

/// What a card says.
#[derive(Debug, PartialEq)]
pub(super) struct Agent {
    pub(super) interface: Interface,
    /// Whether it streams updates.
    pub(super) streams: bool,
    /// Whether it promises that the same message never runs twice.
    pub(super) promises: bool,
    /// The DID whose key signed the card.
    pub(super) signer: Option<String>,
    pub(super) listed: Listed,
    /// The skill behind each tool's name.
    pub(super) skills: BTreeMap<String, Skill>,
}

/// How an agent is asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Interface {
    pub(super) place: Place,
    pub(super) binding: Binding,
    /// Which of several agents at one place.
    pub(super) tenant: Option<String>,
}

/// A binding of the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Binding {
    JsonRpc,
    Rest,
}

/// A skill, as messages name it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Skill {
    /// Its id on the card.
    pub(super) id: String,
    /// Whether it is a capability behind another capd, so that params go as they are.
    pub(super) is_capability: bool,
}

impl Agent {
    /// Reads a card that came from `home`. An interface elsewhere is used only if `any_origin`.
    ///
    /// **Errors:** what of it cannot be used, and what is accepted.
    pub(super) fn read(card: &Value, home: &Place, any_origin: bool) -> Result<Self, String> {
        let signer = signing::signer(card)?;
        let interface = interface(card, home, any_origin)?;
        let extensions = card["capabilities"]["extensions"].as_array().into_iter().flatten();
        let ours = extensions.map(|entry| (entry["uri"].as_str(), &entry["params"]));
        let ours = ours.into_iter().find_map(|(uri, params)| (uri == Some(extension::URI)).then_some(params));
        let required = card["capabilities"]["extensions"].as_array().into_iter().flatten();
        let foreign = required.filter(|entry| entry["required"] == true && entry["uri"] != extension::URI);
        if let Some(uri) = foreign.into_iter().find_map(|entry| entry["uri"].as_str()) {
            return Err(format!("the agent requires the extension {uri}, which is not spoken here"));
        }
        let (mut listed, mut skills) = (Listed::new(&KIND), BTreeMap::new());
        for skill in card["skills"].as_array().into_iter().flatten() {
            take(skill, ours, &mut listed, &mut skills);
        }
        let promise = ours.map(|params| &params["promise"]["key"]);
        let promises = promise == Some(&json!(["caller", "messageId"]));
        let streams = card["capabilities"]["streaming"] == true;
        Ok(Self { interface, streams, promises, signer, listed, skills })
    }
}

/// The first interface of a binding and a version that are spoken here.
fn interface(card: &Value, home: &Place, any_origin: bool) -> Result<Interface, String> {
    let (mut found, mut elsewhere) = (Vec::new(), None);
    for entry in card["supportedInterfaces"].as_array().into_iter().flatten().take(INTERFACES_MAX) {
        let text = |key: &str| entry[key].as_str().unwrap_or_default();
        let (binding, version) = (text("protocolBinding"), text("protocolVersion"));
        found.push(format!("{binding} {version}"));
        let binding = match binding {
            "JSONRPC" => Binding::JsonRpc,
            "HTTP+JSON" => Binding::Rest,
            _ => continue,
        };
        if version != a2a::VERSION && !version.starts_with("1.0.") {
            continue;
        }
        let Ok(place) = Place::parse(text("url")) else { continue };
        if !any_origin && !place.has_origin_of(home) {
            elsewhere = Some(place);
            continue;
        }
        let tenant = entry["tenant"].as_str().filter(|tenant| !tenant.is_empty()).map(str::to_owned);
        return Ok(Interface { place, binding, tenant });
    }
    if let Some(place) = elsewhere {
        return Err(format!(
            "the card of {home} names {place}, another origin; import the agent from there, or use --any-origin"
        ));
    }
    let found = if found.is_empty() { "no interface".to_owned() } else { found.join(", ") };
    Err(format!("the card has {found}; accepted: JSONRPC or HTTP+JSON, of version 1.0, over http or https"))
}

fn take(skill: &Value, ours: Option<&Value>, listed: &mut Listed, skills: &mut BTreeMap<String, Skill>) {
    let Some(id) = skill["id"].as_str() else {
        let (name, reason) = ("a skill without an id".to_owned(), "its id is missing or no text".to_owned());
        listed.quarantined.push(Quarantined { name, reason });
        return;
    };
    let entry = ours.and_then(|params| params["skills"].get(id));
    let (name, schemas) = match entry.map(Schemas::read) {
        Some(Ok(schemas)) => (id.split_once(':').map_or(id, |(name, _)| name), Some(schemas)),
        Some(Err(reason)) => {
            listed.quarantined.push(Quarantined { name: id.to_owned(), reason });
            return;
        }
        None => (id, None),
    };
    let before = listed.tools.len();
    listed.take(&tool(name, skill, schemas.as_ref()));
    if listed.tools.len() > before {
        skills.insert(name.to_owned(), Skill { id: id.to_owned(), is_capability: schemas.is_some() });
    }
}

/// The skill in the form of a tool.
fn tool(name: &str, skill: &Value, schemas: Option<&Schemas>) -> Value {
    let text = |key: &str| skill[key].as_str().unwrap_or_default();
    let description = match (text("name"), text("description")) {
        (name, "") => name.to_owned(),
        (label, words) if label == name || label.is_empty() => words.to_owned(),
        (label, words) => format!("{label}: {words}"),
    };
    let parsed = |schema: &str| serde_json::from_str::<Value>(schema).unwrap_or_default();
    let (input, output) = match schemas {
        // A capability without a schema takes anything.
        Some(schemas) => (
            schemas.input.clone().unwrap_or_else(|| json!({})),
            Some(schemas.output.clone().unwrap_or_else(|| json!({}))),
        ),
        None => (parsed(LOOSE_PARAMS), Some(parsed(LOOSE_RESULT))),
    };
    let mut tool = Map::new();
    tool.insert("name".to_owned(), name.into());
    tool.insert("description".to_owned(), description.into());
    tool.insert("inputSchema".to_owned(), input);
    tool.extend(output.map(|output| ("outputSchema".to_owned(), output)));
    let said = ["tags", "examples", "inputModes", "outputModes"].into_iter();
    let said: Map<_, _> = said.filter_map(|key| Some((key.to_owned(), skill.get(key)?.clone()))).collect();
    if !said.is_empty() {
        tool.insert("annotations".to_owned(), Value::Object(said));
    }
    Value::Object(tool)
}

/// What a skill without schemas takes.
pub(super) const LOOSE_PARAMS: &str = include_str!("params.json");
/// What it gives.
pub(super) const LOOSE_RESULT: &str = include_str!("result.json");
/// Interfaces of one card that are looked at.
const INTERFACES_MAX: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;

    fn card() -> Value {
        json!({
            "name": "a",
            "capabilities": {"streaming": true},
            "supportedInterfaces": [
                {"url": "https://a.example/grpc", "protocolBinding": "GRPC", "protocolVersion": "1.0"},
                {"url": "https://a.example/old", "protocolBinding": "JSONRPC", "protocolVersion": "0.3"},
                {"url": "https://a.example/a2a", "protocolBinding": "HTTP+JSON", "protocolVersion": "1.0"},
            ],
            "skills": [
                {"id": "book_flight", "name": "Book a flight", "description": "Books one", "tags": ["travel"]},
                {"name": "no id"},
            ],
        })
    }

    fn read(card: &Value) -> Result<Agent, String> {
        Agent::read(card, &Place::parse("https://a.example/").unwrap(), false)
    }

    #[test]
    fn an_agent_of_anybody_has_loose_schemas_and_the_first_interface_that_is_spoken_here() {
        let agent = read(&card()).unwrap();
        assert_eq!((agent.interface.binding, agent.interface.place.path()), (Binding::Rest, "/a2a"));
        assert!(agent.streams && !agent.promises && agent.signer.is_none());
        let tool = &agent.listed.tools[0];
        assert_eq!(tool.description.as_deref(), Some("Book a flight: Books one"));
        assert_eq!(tool.input["properties"]["text"]["type"], "string");
        assert!(!agent.skills["book_flight"].is_capability);
        assert_eq!(agent.listed.quarantined.len(), 1);
    }

    #[test]
    fn an_agent_behind_capd_keeps_its_schemas_and_the_version_is_no_part_of_the_name() {
        let schema = json!({"type": "object", "properties": {"n": {"type": "integer"}}});
        let schemas = Schemas { input: Some(schema.clone()), output: None, is_idempotent: false };
        let mut card = card();
        card["skills"][0]["id"] = "org.example.words:1.2.0".into();
        let skills = Map::from_iter([("org.example.words:1.2.0".to_owned(), schemas.json())]);
        card["capabilities"]["extensions"] =
            json!([{"uri": extension::URI, "params": extension::params("did:key:z", skills)}]);
        let agent = read(&card).unwrap();
        assert!(agent.promises);
        assert_eq!(
            (agent.listed.tools[0].name.as_str(), &agent.listed.tools[0].input),
            ("org.example.words", &schema)
        );
        let skill = Skill { id: "org.example.words:1.2.0".to_owned(), is_capability: true };
        assert_eq!(agent.skills["org.example.words"], skill);
        card["capabilities"]["extensions"][0]["params"]["skills"]["org.example.words:1.2.0"]["input"]["schema"] =
            json!({});
        assert!(read(&card).unwrap().listed.tools.is_empty(), "a schema that is not what its hash says");
    }

    #[test]
    fn another_origin_another_version_and_a_required_extension_are_refused() {
        let mut other = card();
        other["supportedInterfaces"][2]["url"] = "https://b.example/a2a".into();
        assert!(read(&other).unwrap_err().contains("--any-origin"));
        assert!(Agent::read(&other, &Place::parse("https://a.example/").unwrap(), true).is_ok());
        other["supportedInterfaces"][2]["protocolVersion"] = "2.0".into();
        assert!(read(&other).unwrap_err().contains("JSONRPC 0.3, HTTP+JSON 2.0"));
        let mut strict = card();
        strict["capabilities"]["extensions"] = json!([{"uri": "https://x.example/pay", "required": true}]);
        assert!(read(&strict).unwrap_err().contains("https://x.example/pay"));
    }
}
