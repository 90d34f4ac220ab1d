//! Implements `describe`: a capability's id in; its providers and their schemas out.

use std::fmt::Write as _;

use capd::client::{Description, Offer, SchemaSide, descriptor_hashes, descriptor_json};
use serde_json::{Value, json};

use crate::args::DescribeArgs;
use crate::capability::Wanted;
use crate::failure::Failure;
use crate::{Sidecar, capability, list, names, output};

/// Describes the capability as each of its providers declares it.
pub(crate) async fn run(sidecar: &Sidecar, args: DescribeArgs, json: bool) -> Result<(), Failure> {
    let wanted = Wanted::read(&args.capability, None)?;
    let client = sidecar.connect_for_people().await?;
    let id = wanted.id(&client).await?;
    let descriptions = match client.describe(&id).await {
        Ok(descriptions) => descriptions,
        Err(error) => return Err(capability::not_found(&client, error, &args.capability).await),
    };
    if json {
        let documents: Vec<_> = descriptions.iter().map(Description::json).collect();
        return output::print_json(&json!({"id": id.to_string(), "providers": documents}));
    }
    let texts: Vec<_> = descriptions.iter().map(text).collect();
    output::print(&texts.join("\n"))
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
    let descriptor = descriptor_json(offer);
    let mut facts = vec![("provider", names::shown(&list::provider(offer)).into_owned())];
    if let (true, Some(did)) = (offer.is_local, &offer.provider) {
        facts[0].1 = format!("local, {did}");
    }
    for (key, name, unit) in [
        ("description", "description", ""),
        ("category", "category", ""),
        ("since", "since", ""),
        ("idempotent", "idempotent", ""),
        ("idempotency", "idempotency", ""),
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
    facts.extend(descriptor_hashes(offer).map(|(_, name, hash)| (name, format!("sha-256:{hash}"))));
    facts
}

fn side_text(name: &str, side: &SchemaSide, out: &mut String) {
    let _ = match side {
        SchemaSide::Checked { hash, .. } => {
            let pretty = output::pretty(&side.json()["schema"]);
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
        assert_eq!(SchemaSide::Undeclared.json()["checked"], false);
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
        assert_eq!(side.json()["schema"]["type"], "object");
    }
}
