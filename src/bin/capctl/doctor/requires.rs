//! Checks what the agent requires: served, in range, and proven as the sidecar proves it.

use std::collections::BTreeSet;
use std::sync::Arc;

use capd::client::{Client, ClientError, Description, Offer, Query, SchemaSide};
use capd::schema::drift::{self, Finding, Needed, Offered, Requirement, Standing, Told};
use capd::schema::{Artifact, Artifacts, Keep};
use capd_proto::capability::CapabilityId;
use capd_proto::code::Code;
use capd_proto::message::DoctorRequired;

use super::report::{Check, Report};
use crate::failure::{Exit, Failure};

/// Checks everything that the sidecar's agent requires.
pub(super) async fn all(client: &Client, requires: &[DoctorRequired<'_>], report: &mut Report) {
    let artifacts = Artifacts::default();
    let requirements: Vec<_> = requires.iter().filter_map(|required| read(required, &artifacts)).collect();
    for (requirement, is_cut) in &requirements {
        one(client, requirement, &requirements, &artifacts, report).await;
        if *is_cut {
            let text = "its schemas are too large to be told, so only its versions are checked";
            report.add(Check::warning("requires", requirement.to_string(), text));
        }
    }
}

/// A requirement as the sidecar told it, and whether it lacks a schema.
fn read(required: &DoctorRequired<'_>, artifacts: &Artifacts) -> Option<(Requirement, bool)> {
    let kept = |schema: &Option<std::borrow::Cow<'_, [u8]>>| -> Option<Arc<Artifact>> {
        artifacts.declare(schema.as_ref()?.to_vec()).ok()
    };
    let needed = Needed { input: kept(&required.input), output: kept(&required.output) };
    let version = required.range.as_ref().and_then(|range| range.parse().ok());
    Some((Requirement { name: required.name.parse().ok()?, version, needed }, required.is_cut))
}

async fn one(
    client: &Client,
    requirement: &Requirement,
    all: &[(Requirement, bool)],
    artifacts: &Artifacts,
    report: &mut Report,
) {
    let about = requirement.to_string();
    let offers = match client.query_all(&Query::new(requirement.name.clone())).await {
        Ok(offers) => offers,
        Err(error) => {
            let check = match error {
                ClientError::Refused(wire) if wire.code == Code::CAPABILITY_NOT_FOUND => {
                    let remedy = format!(
                        "start its provider; if a peer serves it, run there: capctl policy grant {} {}",
                        client.did(),
                        requirement.name
                    );
                    Check::failed("requires", about, Exit::Unavailable, "nobody serves it to this agent")
                        .remedy(remedy)
                }
                error => Check::of("requires", about, &Failure::from(error)),
            };
            return report.add(check);
        }
    };
    let ids: BTreeSet<CapabilityId> = offers
        .iter()
        .filter(|offer| requirement.is_about(&offer.descriptor.served))
        .map(|offer| offer.id().clone())
        .collect();
    if ids.is_empty() {
        return report.add(out_of_range(about, &offers));
    }
    for id in ids {
        match client.describe(&id).await {
            Ok(descriptions) => {
                for description in descriptions {
                    report.add(proven(requirement, &description, artifacts));
                }
            }
            Err(error) => {
                report.add(Check::of("requires", about.clone(), &Failure::from(error)));
            }
        }
    }
    let others = all.iter().map(|(other, _)| other).filter(|other| other.name == requirement.name);
    let others: Vec<_> = others.collect();
    for offer in &offers {
        let served = &offer.descriptor.served;
        let outside = requirement.outside(served);
        // It may be met by another requirement of the name.
        if let Some(finding) = outside.filter(|_| !others.iter().any(|other| other.is_about(served))) {
            let about = format!("{} of {}", offer.id(), offer.provider.as_deref().unwrap_or_default());
            let code = drift::code(std::slice::from_ref(&finding)).0;
            report.add(Check::warning(
                "requires",
                about,
                format!("{finding}: calls of it are refused ({code})"),
            ));
        }
    }
}

/// A requirement of versions that nobody serves.
fn out_of_range(about: String, offers: &[Offer]) -> Check {
    let ids: BTreeSet<_> = offers.iter().map(|offer| offer.id()).collect();
    let served: Vec<_> = ids.iter().take(SHOWN_MAX).map(|id| id.version.to_string()).collect();
    let more = ids.len().saturating_sub(SHOWN_MAX);
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    let text = format!("served, but in none of these versions: {}{more}", served.join(", "));
    Check::failed("requires", about, Exit::Unavailable, text)
        .remedy("build the agent against a version that is served, and change version under requires in capabilities.yaml")
}

/// Whether one provider keeps to a requirement.
fn proven(requirement: &Requirement, description: &Description, artifacts: &Artifacts) -> Check {
    let offered =
        Offered { input: told(&description.input, artifacts), output: told(&description.output, artifacts) };
    let provider = description.offer.provider.clone().unwrap_or_default();
    let about = format!("{} of {provider}", description.offer.id());
    match drift::prove(&requirement.needed, &offered) {
        Standing::Proven => Check::ok("requires", about, "proven"),
        Standing::Untold => {
            let text = "it does not publish its schemas: calls pass, and only their payloads are checked";
            Check::warning("requires", about, text)
        }
        Standing::Broken(findings) => {
            let text: Vec<_> = findings.iter().map(Finding::to_string).collect();
            let remedy = format!(
                "build the agent against the new schema (capctl describe {}), or have the provider serve the old one",
                description.offer.id()
            );
            let check =
                Check::failed("requires", about, Exit::SchemaViolation, text.join("; ")).remedy(remedy);
            check.broken(drift::code(&findings), findings)
        }
    }
}

fn told(side: &SchemaSide, artifacts: &Artifacts) -> Told {
    match side {
        SchemaSide::Checked { hash, document } => {
            artifacts.insert(*hash, document.clone(), Keep::Cached).map_or(Told::Unknown, Told::Schema)
        }
        SchemaSide::Undeclared => Told::Anything,
        SchemaSide::Unknown { .. } | SchemaSide::Unavailable { .. } => Told::Unknown,
    }
}

/// Versions that are shown.
const SHOWN_MAX: usize = 8;
