//! Answers `GET /v1/tools`: the callable capabilities as tools of a language model.

use std::sync::Arc;

use axum::extract::State;
use axum::http::Uri;
use capd_proto::message::SchemaSource;
use serde_json::Value;

use super::Api;
use super::body::Json;
use super::capabilities::{everything, pattern};
use super::problem::Problem;
use super::query::Query;
use crate::client::{Client, ToolFormat, ToolList, newest};

pub(super) async fn list(State(api): State<Arc<Api>>, uri: Uri) -> Result<Json, Problem> {
    let query = Query::read(uri.query(), &["format", "namespace"])?;
    let mut tools = ToolList::new(query.parsed("format")?.unwrap_or(ToolFormat::OpenAi));
    let client = api.client().await?;
    for offer in newest(everything(&client, pattern(query.text("namespace"))?).await?) {
        let input = api.document(&client, &offer.descriptor.input_schema).await;
        let output = match tools.shows_results() {
            true => api.document(&client, &offer.descriptor.output_schema).await,
            false => None,
        };
        tools.add(&offer, input, output);
    }
    Ok(Json(tools.json()))
}

impl Api {
    /// The document of one side's schema, as JSON.
    pub(super) async fn document(&self, client: &Client, source: &Option<SchemaSource>) -> Option<Value> {
        let Some(SchemaSource::Ref(schema)) = source else { return None };
        let artifact = self.fetched(client, &schema.hash).await?;
        serde_json::from_slice(artifact.document()).ok()
    }
}
