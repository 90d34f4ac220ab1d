//! Shows what runs beside what the file says, and what a reload would change.

use std::sync::Arc;

use axum::extract::State;
use axum::http::StatusCode;
use capd_proto::message::Reloaded;
use serde_json::{Value, json};

use super::Shown;
use super::fault::{Fault, Json};
use crate::client::ClientError;

/// **Shape:** `{"keys": [{"key", "value", "origin"}], ? "difference", ? "fault"}`: what runs, and the difference that a reload
/// would make, or why the file cannot be read.
pub(super) async fn configuration(State(shown): State<Arc<Shown>>) -> Result<Json, Fault> {
    let mut document = shown.sidecar.get("/v1/operator/configuration").await?;
    match shown.sidecar.connect().await?.reload(true).await {
        Ok(reloaded) => document["difference"] = difference(&reloaded),
        Err(error) => document["fault"] = misread(error).detail().into(),
    }
    Ok(Json(document))
}

/// **Shape:** `{"applied", "rules", "changes": [{"key", "from", "to", "takes"}], "omitted", "warnings"}`.
pub(super) fn difference(reloaded: &Reloaded<'_>) -> Value {
    let changes = reloaded.changes.iter().map(|change| {
        json!({"key": change.key, "from": change.from, "to": change.to, "takes": change.takes.as_str()})
    });
    json!({
        "applied": reloaded.applied,
        "rules": reloaded.rules,
        "changes": changes.collect::<Vec<_>>(),
        "omitted": reloaded.omitted,
        "warnings": reloaded.warnings,
    })
}

/// Why a file cannot be applied, with each of its mistakes on a line.
pub(super) fn misread(error: ClientError) -> Fault {
    let mistakes = match &error {
        ClientError::Refused(wire) => wire.details_json().map(|details| details["mistakes"].clone()),
        _ => None,
    };
    let Some(Value::Array(mistakes)) = mistakes else { return error.into() };
    let line = |mistake: &Value| {
        let (file, line) = (mistake["file"].as_str().unwrap_or_default(), &mistake["line"]);
        let (key, problem) =
            (mistake["key"].as_str().unwrap_or_default(), mistake["problem"].as_str().unwrap_or_default());
        format!("{file}:{line}: {key}: {problem}")
    };
    let lines: Vec<_> = mistakes.iter().map(line).collect();
    Fault::new(StatusCode::UNPROCESSABLE_ENTITY, lines.join("\n"))
}
