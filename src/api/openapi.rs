//! Answers `GET /openapi.json`: the routes, and one path for each callable capability, with its schemas.

use std::sync::Arc;

use axum::extract::State;
use capd_proto::capability::CapabilityPattern;
use capd_proto::message::SchemaSource;
use serde_json::{Value, json};

use super::Api;
use super::body::Json;
use super::capabilities::everything;
use super::problem::Problem;
use crate::client::{Client, Offer, newest};

pub(super) async fn document(State(api): State<Arc<Api>>) -> Result<Json, Problem> {
    let client = api.client().await?;
    let mut document = routes();
    document["info"]["version"] = env!("CARGO_PKG_VERSION").into();
    let template = document["paths"]["/v1/call/{target}"]["post"].clone();
    for offer in newest(everything(&client, CapabilityPattern::Any).await?) {
        let path = format!("/v1/call/{}", offer.id().name);
        document["paths"][path] = json!({"post": operation(&api, &client, &offer, &template).await});
    }
    Ok(Json(document))
}

/// What of the document is the same everywhere.
pub(super) fn routes() -> Value {
    // A test reads it.
    serde_json::from_str(include_str!("openapi.json")).expect("a constant that a test parses")
}

/// The operation that calls one capability.
async fn operation(api: &Api, client: &Client, offer: &Offer, template: &Value) -> Value {
    let mut operation = template.clone();
    let descriptor = &offer.descriptor;
    operation["operationId"] = format!("call_{}", offer.id().name).into();
    operation["summary"] = format!("Call {}", offer.id()).into();
    operation["tags"] = json!(["capabilities"]);
    if let Some(description) = &descriptor.description {
        operation["description"] = description.clone().into();
    }
    if let Some(parameters) = operation["parameters"].as_array_mut() {
        parameters.retain(|parameter| parameter["$ref"] != "#/components/parameters/target");
    }
    for (side, place) in [
        (&descriptor.input_schema, "/requestBody/content/application~1json/schema"),
        (&descriptor.output_schema, "/responses/200/content/application~1json/schema"),
    ] {
        if let (Some(schema), Some(place)) = (embedded(api, client, side).await, operation.pointer_mut(place))
        {
            *place = schema;
        }
    }
    operation
}

/// A schema whose references are to itself, wherever it stands.
async fn embedded(api: &Api, client: &Client, source: &Option<SchemaSource>) -> Option<Value> {
    let mut schema = api.document(client, source).await?;
    let SchemaSource::Ref(reference) = source.as_ref()? else { return None };
    if let Some(members) = schema.as_object_mut() {
        members.entry("$id").or_insert_with(|| format!("urn:capd:{}", reference.hash).into());
    }
    Some(schema)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_fixed_part_is_a_document_whose_references_lead_somewhere() {
        let document = routes();
        assert_eq!(document["openapi"], "3.1.0");
        let text = document.to_string();
        let references = text.split("\"$ref\":\"#").skip(1).filter_map(|rest| rest.split('"').next());
        let mut count = 0;
        for reference in references {
            assert!(document.pointer(reference).is_some(), "{reference}");
            count += 1;
        }
        assert!(count > 50, "{count}");
    }
}
