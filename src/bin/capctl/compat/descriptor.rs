//! Reads descriptors as JSON: one, several, or the output of `capctl describe --json`; declarations with their schemas
//! out.

use std::path::Path;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use capd::schema::compat::{Contract, Terms};
use capd_proto::capability::CapabilityId;
use capd_proto::negotiate::Served;
use serde_json::Value;

use super::operand::Held;
use crate::failure::Failure;

/// Reads descriptors.
///
/// **Shape:** a descriptor; a list of them, or `{"capabilities": [..]}`; `{"id", "providers": [{"descriptor", "input",
/// "output"}]}`. A schema of a descriptor may stand in it as itself, or as the `inline` of its reference.
///
/// **Errors:** usage, with the file and what is wrong in it.
pub(super) fn read(json: &Value, path: &Path) -> Result<Vec<Held>, Failure> {
    if let Some(providers) = json["providers"].as_array() {
        return providers.iter().map(|provider| described(provider, path)).collect();
    }
    let several = json.as_array().or_else(|| json["capabilities"].as_array());
    match several {
        Some(several) => several.iter().map(|descriptor| plain(descriptor, path)).collect(),
        None => plain(json, path).map(|held| vec![held]),
    }
}

fn described(provider: &Value, path: &Path) -> Result<Held, Failure> {
    let side = |side: &Value| match side {
        Value::Null => Ok(Terms::Undeclared),
        side if !side["schema"].is_null() => schema(&side["schema"], path),
        side if side["hash"].is_null() && side["uri"].is_null() => Ok(Terms::Undeclared),
        side => Ok(absent(side["hash"].as_str().or_else(|| side["uri"].as_str()).unwrap_or_default())),
    };
    let contract = Contract { input: side(&provider["input"])?, output: side(&provider["output"])? };
    held(&provider["descriptor"], contract, path)
}

fn plain(descriptor: &Value, path: &Path) -> Result<Held, Failure> {
    let side = |side: &Value| match side {
        Value::Null => Ok(Terms::Undeclared),
        // PROTOCOL 7.2: the seed revision's plain URL.
        Value::String(uri) => Ok(absent(uri)),
        Value::Object(reference) if reference.contains_key("hash") => match &reference.get("inline") {
            Some(Value::String(text)) => inline(text, path),
            Some(inline @ (Value::Object(_) | Value::Bool(_))) => schema(inline, path),
            Some(_) | None => Ok(absent("its hash")),
        },
        itself => schema(itself, path),
    };
    let contract =
        Contract { input: side(&descriptor["input_schema"])?, output: side(&descriptor["output_schema"])? };
    held(descriptor, contract, path)
}

fn held(descriptor: &Value, contract: Contract, path: &Path) -> Result<Held, Failure> {
    let wrong = |problem: String| Failure::usage(format!("{}: {problem}", path.display()));
    let text = descriptor["id"].as_str().ok_or_else(|| {
        wrong("no descriptor".to_owned()).hint(
            "accepted: a capabilities.yaml, a descriptor as JSON, or what capctl describe --json prints",
        )
    })?;
    let id: CapabilityId = text.parse().map_err(|error| wrong(format!("id {text:?}: {error}")))?;
    Ok(Held {
        served: Served::only(id.version.clone()),
        id,
        source: path.display().to_string(),
        place: None,
        contract,
        idempotent: descriptor["idempotent"] == true,
        by_id: descriptor["idempotency"] == "by-id",
    })
}

/// A document's exact bytes, as JSON text or as the base64url that byte strings have in JSON.
fn inline(text: &str, path: &Path) -> Result<Terms, Failure> {
    let bytes = match serde_json::from_str::<Value>(text) {
        Ok(_) => text.as_bytes().to_vec(),
        Err(_) => URL_SAFE_NO_PAD
            .decode(text)
            .map_err(|_| Failure::usage(format!("{}: `inline` is no schema", path.display())))?,
    };
    compiled(&bytes, path)
}

fn schema(schema: &Value, path: &Path) -> Result<Terms, Failure> {
    compiled(schema.to_string().as_bytes(), path)
}

fn compiled(bytes: &[u8], path: &Path) -> Result<Terms, Failure> {
    Terms::read(bytes).map_err(|error| Failure::usage(format!("{}: {error}", path.display())))
}

fn absent(named: &str) -> Terms {
    Terms::Unknown { reason: format!("the file has no document for {named}") }
}
