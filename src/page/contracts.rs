//! Compares the versions of a capability, and tells what the agent requires.

use std::sync::Arc;

use axum::extract::{Path, State};
use capd_proto::capability::CapabilityName;
use serde_json::{Value, json};

use super::Shown;
use super::fault::{Fault, Json};
use crate::client::{Client, Description, Query, SchemaSide};
use crate::schema::compat::{self, Contract, Terms};

/// **Shape:** `{"versions": [{"id", "source"}], "cells": [[compatibility]]}`: a row for each caller, a column for each
/// provider, oldest first.
pub(super) async fn matrix(State(shown): State<Arc<Shown>>, Path(name): Path<String>) -> Result<Json, Fault> {
    let name: CapabilityName = name.parse().map_err(|error| Fault::bad(format!("{name:?}: {error}")))?;
    let client = shown.sidecar.connect().await?;
    let declared = declared(&client, &name).await?;
    // Proofs are bounded, and may still take long together.
    let work = move || {
        let cells = declared.iter().map(|caller| {
            let row =
                declared.iter().map(|provider| compat::compare(&caller.contract, &provider.contract).json());
            row.collect::<Vec<Value>>()
        });
        let cells: Vec<_> = cells.collect();
        let versions: Vec<_> =
            declared.iter().map(|one| json!({"id": one.id, "source": one.source})).collect();
        json!({"versions": versions, "cells": cells})
    };
    let document = shown.system.tasks.compute(work).await;
    document.map(Json).ok_or_else(|| Fault::away("the comparison was given up"))
}

pub(super) async fn requires(State(shown): State<Arc<Shown>>) -> Result<Json, Fault> {
    shown.sidecar.get("/v1/operator/requires").await.map(Json)
}

/// A version of a capability, as one agent or several declare it alike.
struct Declared {
    id: String,
    source: String,
    contract: Contract,
}

/// Every version that the sidecar knows, oldest first, those that say the same under one id once.
///
/// **Errors:** as the sidecar gives them; more versions than a matrix has.
async fn declared(client: &Client, name: &CapabilityName) -> Result<Vec<Declared>, Fault> {
    let offers = client.query_all(&Query::new(name.clone())).await?;
    let mut ids: Vec<_> = offers.into_iter().map(|offer| offer.descriptor.id).collect();
    ids.sort_by(|one, other| one.version.total_cmp(&other.version));
    ids.dedup();
    let mut declared: Vec<Declared> = Vec::new();
    for id in ids {
        for description in client.describe(&id).await? {
            let one = of_description(&description);
            if !declared.iter().any(|known| known.id == one.id && known.contract.is_same(&one.contract)) {
                declared.push(one);
            }
        }
        if declared.len() > VERSIONS_MAX {
            let detail = format!(
                "{name} has more than {VERSIONS_MAX} declarations; `capctl matrix` compares those that you name"
            );
            return Err(Fault::bad(detail));
        }
    }
    Ok(declared)
}

fn of_description(description: &Description) -> Declared {
    let Description { offer, input, output } = description;
    let [input, output] = [input, output].map(|side| match side {
        SchemaSide::Undeclared => Terms::Undeclared,
        SchemaSide::Checked { document, .. } => Terms::read_foreign(document),
        SchemaSide::Unknown { uri } => {
            Terms::Unknown { reason: format!("the sidecar has no schema under {uri}") }
        }
        SchemaSide::Unavailable { hash, reason } => Terms::Unknown { reason: format!("{hash}: {reason}") },
    });
    let source = if offer.is_local { "local".to_owned() } else { offer.provider.clone().unwrap_or_default() };
    Declared { id: offer.id().to_string(), source, contract: Contract { input, output } }
}

/// Most declarations of one matrix.
const VERSIONS_MAX: usize = 16;
