//! Implements `describe`: a capability's id in; its providers and their schemas out.

use std::fmt::Write as _;

use capd::client::{Description, Offer, SchemaSide};
use capd::schema::Fingerprint;
use serde_json::{Value, json};

use crate::args::DescribeArgs;
use crate::failure::Failure;
use crate::{Sidecar, list, output};

/// Describes the capability as each of its providers declares it.
pub(crate) async fn run(sidecar: &Sidecar, args: DescribeArgs, json: bool) -> Result<(), Failure> {
    let client = sidecar.connect().await?;
    let descriptions = client.describe(&args.id).await?;
    if json {
        let documents: Vec<_> = descriptions.iter().map(document).collect();
        return output::print_json(&json!({"id": args.id.to_string(), "providers": documents}));
    }
    let texts: Vec<_> = descriptions.iter().map(text).collect();
    output::print(&texts.join("\n"))
}

fn document(description: &Description) -> Value {
    let mut document = json!({
        "descriptor": list::descriptor(&description.offer),
        "input": side_document(&description.input),
        "output": side_document(&description.output),
    });
    for (key, _, hash) in hashes(&description.offer) {
        document[key] = hash.into();
    }
    document
}

/// The hashes that the descriptor says, in the spelling of `capctl hash`: key, name and hash of each.
fn hashes(offer: &Offer) -> impl Iterator<Item = (&'static str, &'static str, String)> {
    let descriptor = &offer.descriptor;
    [("static_hash", "static hash", descriptor.static_hash), ("lineage", "lineage", descriptor.lineage)]
        .into_iter()
        .filter_map(|(key, name, hash)| Some((key, name, Fingerprint(hash?).to_string())))
}

fn side_document(side: &SchemaSide) -> Value {
    match side {
        SchemaSide::Checked { hash, document } => {
            json!({"checked": true, "hash": hash.to_string(), "schema": schema(document)})
        }
        SchemaSide::Undeclared => json!({"checked": false, "reason": "no schema is declared"}),
        SchemaSide::Unknown { uri } => {
            json!({"checked": false, "reason": "the sidecar has no schema under this URI", "uri": uri})
        }
        SchemaSide::Unavailable { hash, reason } => {
            json!({"checked": true, "hash": hash.to_string(), "unavailable": reason})
        }
    }
}

fn text(description: &Description) -> String {
    let Description { offer, input, output } = description;
    let mut text = format!("{}\n", offer.id());
    for (name, value) in facts(offer) {
        let _ = writeln!(text, "  {name:<14}{}", output::one_line(&value));
    }
    side_text("input", input, &mut text);
    side_text("output", output, &mut text);
    text
}

/// What the descriptor says besides id and schemas, in the order that matters to a caller.
fn facts(offer: &Offer) -> Vec<(&'static str, String)> {
    let descriptor = list::descriptor(offer);
    let mut facts = vec![("provider", list::provider(offer))];
    if let (true, Some(did)) = (offer.is_local, &offer.provider) {
        facts[0].1 = format!("local, {did}");
    }
    for (key, name, unit) in [
        ("description", "description", ""),
        ("category", "category", ""),
        ("since", "since", ""),
        ("idempotent", "idempotent", ""),
        ("timeout_ms", "timeout", " ms"),
        ("permissions", "permissions", ""),
        ("rate_limit", "rate limit", ""),
        ("supported_ranges", "also serves", ""),
        ("min_schema_version", "none below", ""),
        ("deprecated_ranges", "deprecated", ""),
        ("deprecated_versions", "deprecated", ""),
        ("notes", "notes", ""),
    ] {
        let value = match &descriptor[key] {
            Value::Null => continue,
            Value::String(text) => text.clone(),
            Value::Array(items) => {
                let items =
                    items.iter().map(|item| item.as_str().map_or_else(|| item.to_string(), str::to_owned));
                items.collect::<Vec<_>>().join(", ")
            }
            other => other.to_string(),
        };
        facts.push((name, format!("{value}{unit}")));
    }
    facts.extend(hashes(offer).map(|(_, name, hash)| (name, hash)));
    facts
}

fn side_text(name: &str, side: &SchemaSide, out: &mut String) {
    let _ = match side {
        SchemaSide::Checked { hash, document } => {
            let pretty = output::pretty(&schema(document));
            let indented = pretty.lines().map(|line| format!("    {line}\n")).collect::<String>();
            write!(out, "  {name} is checked against {hash}:\n{indented}")
        }
        SchemaSide::Undeclared => writeln!(out, "  {name} is unchecked: no schema is declared"),
        SchemaSide::Unknown { uri } => {
            writeln!(out, "  {name} is unchecked: no schema is known under {}", output::one_line(uri))
        }
        SchemaSide::Unavailable { hash, reason } => {
            let reason = output::one_line(reason);
            writeln!(out, "  {name} cannot be checked against {hash}, so calls are refused: {reason}")
        }
    };
}

/// A schema document as JSON; one that is not JSON is shown as text.
fn schema(document: &[u8]) -> Value {
    serde_json::from_slice(document).unwrap_or_else(|_| String::from_utf8_lossy(document).into_owned().into())
}

#[cfg(test)]
mod tests {
    use capd_proto::message::{ContentHash, HashAlg};

    use super::*;

    #[test]
    fn a_side_without_a_schema_says_that_it_is_unchecked() {
        let mut text = String::new();
        side_text("input", &SchemaSide::Undeclared, &mut text);
        side_text(
            "output",
            &SchemaSide::Unknown { uri: "https://example.org/out.json".to_owned() },
            &mut text,
        );
        assert_eq!(
            text,
            "  input is unchecked: no schema is declared\n  \
             output is unchecked: no schema is known under https://example.org/out.json\n"
        );
        assert_eq!(side_document(&SchemaSide::Undeclared)["checked"], false);
    }

    #[test]
    fn a_schema_is_shown_with_its_hash() {
        let side = SchemaSide::Checked {
            hash: ContentHash::of(HashAlg::Sha256, br#"{"type":"object"}"#),
            document: bytes::Bytes::from_static(br#"{"type":"object"}"#),
        };
        let mut text = String::new();
        side_text("input", &side, &mut text);
        assert!(text.starts_with("  input is checked against sha-256:"), "{text}");
        assert!(text.ends_with(":\n    {\n      \"type\": \"object\"\n    }\n"), "{text}");
        assert_eq!(side_document(&side)["schema"]["type"], "object");
    }
}
