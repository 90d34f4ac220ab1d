//! Answers `GET /v1/capabilities`: pages of callable capabilities, or one of them with its schemas and providers.

use std::sync::Arc;

use axum::extract::{Path, State};
use axum::http::Uri;
use capd_proto::capability::{CapabilityId, CapabilityName, CapabilityPattern};
use capd_proto::code::Code;
use capd_proto::limits::QUERY_LIMIT_MAX;
use serde_json::{Value, json};

use super::Api;
use super::body::Json;
use super::problem::Problem;
use super::query::Query;
use crate::client::{self, Client, ClientError, Description, Page, descriptor_hashes, descriptor_json};

pub(super) async fn list(State(api): State<Arc<Api>>, uri: Uri) -> Result<Json, Problem> {
    let query = Query::read(uri.query(), &["namespace", "q", "limit", "cursor"])?;
    let limit = query.parsed("limit")?.unwrap_or(LIMIT_DEFAULT);
    if !(1..=QUERY_LIMIT_MAX).contains(&limit) {
        return Err(Problem::bad(format!("limit={limit}; accepted: 1 to {QUERY_LIMIT_MAX}")));
    }
    let mut wanted = client::Query::new(pattern(query.text("namespace"))?);
    wanted.cursor = query.text("cursor").map(str::to_owned);
    wanted.limit = Some(limit);
    wanted.words = query.text("q").map(str::to_owned);
    let client = api.client().await?;
    let page = page(&client, &wanted).await?;
    let found: Vec<_> = page.offers.iter().map(descriptor_json).collect();
    let mut document = json!({"capabilities": found});
    if let Some(next) = page.next_cursor {
        document["next_cursor"] = next.into();
    }
    Ok(Json(document))
}

pub(super) async fn describe(State(api): State<Arc<Api>>, Path(id): Path<String>) -> Result<Json, Problem> {
    let client = api.client().await?;
    let id = match id.contains(':') {
        true => parsed(&id)?,
        false => newest(&client, parsed(&id)?).await?,
    };
    let descriptions = client.describe(&id).await.map_err(|error| Problem::of_request(&error))?;
    Ok(Json(document(&id, &descriptions)))
}

/// The namespace whose capabilities are asked for; without one, everything.
pub(super) fn pattern(namespace: Option<&str>) -> Result<CapabilityPattern, Problem> {
    let Some(namespace) = namespace else { return Ok(CapabilityPattern::Any) };
    let text = format!("{}.*", namespace.trim_end_matches(".*"));
    text.parse().map_err(|error| Problem::bad(format!("namespace={namespace:?}: {error}")))
}

/// A page; one of nothing is empty.
async fn page(client: &Client, query: &client::Query) -> Result<Page, Problem> {
    match client.query(query).await {
        // PROTOCOL 7.1: nothing to list is 4002, never an empty CAP_DECLARE.
        Err(ClientError::Refused(error)) if error.code == Code::CAPABILITY_NOT_FOUND => {
            Ok(Page { offers: Vec::new(), next_cursor: None })
        }
        page => page.map_err(|error| Problem::of_request(&error)),
    }
}

/// Everything that a pattern names.
pub(super) async fn everything(
    client: &Client,
    pattern: CapabilityPattern,
) -> Result<Vec<client::Offer>, Problem> {
    match client.query_all(&client::Query::new(pattern)).await {
        Err(ClientError::Refused(error)) if error.code == Code::CAPABILITY_NOT_FOUND => Ok(Vec::new()),
        offers => offers.map_err(|error| Problem::of_request(&error)),
    }
}

/// The newest release of a name, or, where there is none, its newest version.
async fn newest(client: &Client, name: CapabilityName) -> Result<CapabilityId, Problem> {
    let offers = client.query_all(&client::Query::new(name.clone())).await;
    let offers = offers.map_err(|error| Problem::of_request(&error))?;
    let release = offers.iter().find(|offer| !offer.id().version.is_prerelease());
    let found = release.or(offers.first()).map(|offer| offer.id().clone());
    found.ok_or_else(|| Problem::refused(Code::CAPABILITY_NOT_FOUND, format!("nobody serves {name}")))
}

fn parsed<T: std::str::FromStr<Err: std::fmt::Display>>(text: &str) -> Result<T, Problem> {
    text.parse().map_err(|error| Problem::bad(format!("{text:?}: {error}")))
}

/// A capability as its first provider declares it, and what each of them says.
fn document(id: &CapabilityId, descriptions: &[Description]) -> Value {
    let mut document = json!({
        "id": id.to_string(),
        "name": id.name.as_str(),
        "version": id.version.to_string(),
    });
    if let Some(first) = descriptions.first() {
        let descriptor = descriptor_json(&first.offer);
        for key in SHOWN {
            if !descriptor[key].is_null() {
                document[key] = descriptor[key].clone();
            }
        }
        document["input"] = first.input.json();
        document["output"] = first.output.json();
        for (key, _, hash) in descriptor_hashes(&first.offer) {
            document[key] = hash.into();
        }
    }
    let providers = descriptions.iter().map(|description| {
        let mut provider = description.json();
        provider["did"] = description.offer.provider.clone().into();
        provider["local"] = description.offer.is_local.into();
        provider
    });
    document["providers"] = providers.collect();
    document
}

/// What a description shows of the first descriptor, under the descriptor's own names.
const SHOWN: [&str; 14] = [
    "description",
    "category",
    "since",
    "idempotent",
    "idempotency",
    "timeout_ms",
    "permissions",
    "rate_limit",
    "retry_policy",
    "supported_ranges",
    "min_schema_version",
    "deprecated_ranges",
    "deprecated_versions",
    "instructions",
];
/// Capabilities on a page, unless the request says otherwise.
const LIMIT_DEFAULT: u64 = 100;
