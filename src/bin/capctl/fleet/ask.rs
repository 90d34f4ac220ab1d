//! Implements `fleet ls`, `fleet why` and `fleet doctor`: a sidecar in; its view of the registry out.

use capd::client::Client;
use capd_proto::message::{FleetCandidate, FleetName, FleetReport, FleetRequest};
use serde_json::{Value, json};

use crate::args::WhyNameArgs;
use crate::capability::Wanted;
use crate::doctor::{Check, Report};
use crate::failure::{Exit, Failure};
use crate::{Sidecar, output};

/// Lists the names of the registry, and who registered each.
pub(super) async fn ls(sidecar: &Sidecar, json: bool) -> Result<(), Failure> {
    let report = asked(sidecar, &FleetRequest::Names).await?;
    if let Some(error) = report.error.as_deref().filter(|_| report.names.is_empty()) {
        return Err(unreadable(&report, error));
    }
    if json {
        return report.names.iter().try_for_each(|name| output::print_json(&name_json(name)));
    }
    if report.names.is_empty() {
        output::note(&format!("nobody has registered a name in cell {}", report.cell));
        return Ok(());
    }
    output::print(&names_table(&report.names))
}

/// Explains who is called for a name, and why others are not.
pub(super) async fn why(sidecar: &Sidecar, args: WhyNameArgs, json: bool) -> Result<(), Failure> {
    let wanted = Wanted::of_all_versions(&args.name, "fleet why")?;
    let client = sidecar.connect_for_people().await?;
    let name = wanted.name(&client).await?;
    let report = ask(&client, &FleetRequest::Why { name: name.as_str().into() }).await?;
    let Some(name) = report.names.first() else {
        return Err(Failure::unexpected("the sidecar's answer names nothing".to_owned()));
    };
    if json {
        return output::print_json(&name_json(name));
    }
    output::print(&why_text(name))
}

/// Checks the sidecar's part in its fleet; fails as the worst check does.
pub(super) async fn doctor(sidecar: &Sidecar, json: bool) -> Result<(), Failure> {
    let report = asked(sidecar, &FleetRequest::Status).await?;
    let mut found = Report::default();
    for check in checks(&report) {
        found.add(check);
    }
    found.print(json)?;
    found.verdict()
}

async fn asked(sidecar: &Sidecar, request: &FleetRequest<'_>) -> Result<FleetReport<'static>, Failure> {
    ask(&sidecar.connect_for_people().await?, request).await
}

async fn ask(client: &Client, request: &FleetRequest<'_>) -> Result<FleetReport<'static>, Failure> {
    let report = client.fleet(request).await?;
    if report.cell.is_empty() {
        return Err(Failure::usage("the sidecar is in no fleet")
            .hint("set fleet.cell in its capd.toml; docs/fleet.md begins with two sidecars"));
    }
    Ok(report)
}

fn unreadable(report: &FleetReport<'_>, error: &str) -> Failure {
    let registry = &report.registry;
    Failure::unexpected(format!("the registry {registry} cannot be read: {error}")).exit(Exit::Unavailable)
}

fn names_table(names: &[FleetName<'_>]) -> String {
    let row = |name: &FleetName<'_>| {
        let dids: Vec<_> = name.candidates.iter().map(|candidate| candidate.did.to_string()).collect();
        let shown = dids.iter().take(SHOWN).cloned().collect::<Vec<_>>().join(", ");
        let more = dids.len().saturating_sub(SHOWN);
        let shown = if more == 0 { shown } else { format!("{shown}, and {more} more") };
        vec![name.name.to_string(), dids.len().to_string(), shown]
    };
    let rows: Vec<_> = names.iter().map(row).collect();
    output::table(&["NAME", "PROVIDERS", "REGISTERED BY"], &rows)
}

fn why_text(name: &FleetName<'_>) -> String {
    let mut text = String::new();
    if let Some(note) = &name.note {
        text = format!("{}: {note}\n", name.name);
    }
    if name.candidates.is_empty() {
        return text;
    }
    let row = |candidate: &FleetCandidate<'_>| {
        vec![
            candidate.did.to_string(),
            candidate.state.as_deref().unwrap_or("registered").to_owned(),
            candidate.links.unwrap_or_default().to_string(),
            candidate.versions.join(", "),
            candidate.addresses.join(", "),
            candidate.reason.as_deref().unwrap_or_default().to_owned(),
        ]
    };
    let rows: Vec<_> = name.candidates.iter().map(row).collect();
    text + &output::table(&["PROVIDER", "STATE", "LINKS", "VERSIONS", "ADDRESSES", "WHY"], &rows)
}

fn name_json(name: &FleetName<'_>) -> Value {
    let candidate = |candidate: &FleetCandidate<'_>| {
        let mut value = json!({"did": candidate.did});
        let mut set = |key: &str, of: Option<Value>| {
            if let Some(of) = of {
                value[key] = of;
            }
        };
        set("state", candidate.state.as_ref().map(|state| json!(state)));
        set("reason", candidate.reason.as_ref().map(|reason| json!(reason)));
        set("zone", candidate.zone.as_ref().map(|zone| json!(zone)));
        set("links", candidate.links.map(|links| json!(links)));
        set("incarnation", candidate.incarnation.map(|incarnation| json!(incarnation)));
        set("versions", (!candidate.versions.is_empty()).then(|| json!(candidate.versions)));
        set("addresses", (!candidate.addresses.is_empty()).then(|| json!(candidate.addresses)));
        value
    };
    let candidates: Vec<_> = name.candidates.iter().map(candidate).collect();
    json!({"name": name.name, "note": name.note, "candidates": candidates})
}

/// What is right and wrong with a sidecar's part in its fleet.
fn checks(report: &FleetReport<'_>) -> Vec<Check> {
    let (cell, registry) = (report.cell.to_string(), report.registry.to_string());
    let mut checks = vec![match &report.error {
        Some(error) => {
            Check::failed("registry", registry, Exit::Unavailable, format!("does not answer: {error}"))
        }
        None => {
            let took_ms = report.took_us.unwrap_or_default() as f64 / 1_000.0;
            let version =
                report.version.as_ref().map(|version| format!("version {version}, ")).unwrap_or_default();
            let revision = report.revision.unwrap_or_default();
            Check::ok(
                "registry",
                registry,
                format!("{version}revision {revision}, answers in {took_ms:.1} ms"),
            )
        }
    }];
    checks.push(match report.stale_ms.unwrap_or_default() {
        0 => Check::ok("current", cell.clone(), "what is known of the registry is current"),
        stale_ms => {
            let text = format!(
                "what is known of the registry is {} s old; known providers are called",
                stale_ms / 1_000
            );
            Check::warning("current", cell.clone(), text)
        }
    });
    checks.push(match report.revocations_age_ms {
        Some(age_ms) => {
            Check::ok("revocations", cell.clone(), format!("known as of {} s ago", age_ms / 1_000))
        }
        None => Check::failed(
            "revocations",
            cell.clone(),
            Exit::Unavailable,
            "not known yet, so no link between members opens: the registry must be read once",
        ),
    });
    checks.push(match (report.incarnation, &*report.health) {
        (_, "failed") => {
            Check::failed("identity", cell.clone(), Exit::Unavailable, report.detail.to_string())
        }
        (Some(incarnation), _) => Check::ok(
            "identity",
            cell.clone(),
            format!("the registry knows this process as incarnation {incarnation}"),
        ),
        (None, _) => Check::warning("identity", cell.clone(), "the registry does not know this process yet"),
    });
    checks.push(match report.generation {
        Some(generation) => Check::ok("registration", cell.clone(), format!("generation {generation} is registered")),
        None => Check::warning(
            "registration",
            cell.clone(),
            "nothing is registered: the agent serves nothing public, fleet.addresses is empty, or the registry refuses it",
        ),
    });
    if report.is_frozen {
        let text = "much of the registry vanished at once, and nothing of it is dropped; check the registry";
        checks.push(Check::warning("frozen", cell.clone(), text));
    }
    for (did, text) in &report.split {
        let remedy = "stop one of the two; a second machine needs a key of its own: capd init";
        checks.push(Check::warning("split", did.to_string(), text.to_string()).remedy(remedy));
    }
    for (why, count) in &report.refused {
        let text =
            format!("{count} registrations or memberships did not count: {why}; the audit log names them");
        checks.push(Check::warning("refused", cell.clone(), text));
    }
    checks
}

/// Providers of one name that a line shows.
const SHOWN: usize = 3;

#[cfg(test)]
mod tests {
    use super::*;

    fn candidate(
        seed: u8,
        state: Option<&'static str>,
        reason: Option<&'static str>,
    ) -> FleetCandidate<'static> {
        FleetCandidate {
            did: format!("did:key:z6Mk{seed}").into(),
            state: state.map(Into::into),
            reason: reason.map(Into::into),
            links: state.map(|state| u64::from(state == "linked")),
            versions: state.map(|_| vec!["1.2.0".into()]).unwrap_or_default(),
            addresses: state.map(|_| vec![format!("quic://192.0.2.{seed}:7001").into()]).unwrap_or_default(),
            ..FleetCandidate::default()
        }
    }

    fn lines(text: &str) -> Vec<&str> {
        text.lines().collect()
    }

    #[test]
    fn names_are_shown_with_their_first_providers() {
        let candidates = (1..=5).map(|seed| candidate(seed, None, None)).collect();
        let names = [
            FleetName { name: "org.example.ask".into(), note: None, candidates },
            FleetName {
                name: "org.example.once".into(),
                note: None,
                candidates: vec![candidate(1, None, None)],
            },
        ];
        assert_eq!(
            lines(&names_table(&names)),
            [
                "NAME              PROVIDERS  REGISTERED BY",
                "org.example.ask   5          did:key:z6Mk1, did:key:z6Mk2, did:key:z6Mk3, and 2 more",
                "org.example.once  1          did:key:z6Mk1"
            ]
        );
    }

    #[test]
    fn each_candidate_is_shown_with_its_state_and_the_reason() {
        let candidates = vec![
            candidate(1, Some("linked"), None),
            candidate(2, Some("spare"), Some("not needed: number 2 in this sidecar's order")),
            candidate(3, Some("failed"), Some("quic://192.0.2.3:7001: no answer in time")),
        ];
        let name = FleetName { name: "org.example.ask".into(), note: None, candidates };
        assert_eq!(
            lines(&why_text(&name)),
            [
                "PROVIDER       STATE   LINKS  VERSIONS  ADDRESSES              WHY",
                "did:key:z6Mk1  linked  1      1.2.0     quic://192.0.2.1:7001",
                "did:key:z6Mk2  spare   0      1.2.0     quic://192.0.2.2:7001  not needed: number 2 in this sidecar's order",
                "did:key:z6Mk3  failed  0      1.2.0     quic://192.0.2.3:7001  quic://192.0.2.3:7001: no answer in time"
            ]
        );
        let note = Some("nobody has registered it".into());
        let nobody = FleetName { name: "org.example.none".into(), note, candidates: Vec::new() };
        assert_eq!(why_text(&nobody), "org.example.none: nobody has registered it\n");
    }

    #[test]
    fn a_doctor_tells_of_the_registry_its_age_the_identity_and_what_does_not_count() {
        let well = FleetReport {
            cell: "prod".into(),
            health: "ok".into(),
            registry: "/var/lib/capd/fleet.db".into(),
            revision: Some(12),
            took_us: Some(1_500),
            incarnation: Some(7),
            generation: Some(2),
            stale_ms: Some(0),
            revocations_age_ms: Some(3_000),
            ..FleetReport::default()
        };
        let ill = FleetReport {
            health: "failed".into(),
            detail: "another process has this identity; stop one of the two".into(),
            error: Some("database is locked".into()),
            stale_ms: Some(90_000),
            revocations_age_ms: None,
            generation: None,
            is_frozen: true,
            refused: vec![("signature".into(), 3)],
            split: vec![("did:key:z6Mk3".into(), "two processes have its identity".into())],
            ..well.clone()
        };
        let found = |report: &FleetReport<'_>| -> Vec<_> {
            let line = |check: &Check| {
                let json = check.json();
                let text = |key: &str| json[key].as_str().unwrap_or_default().to_owned();
                (text("state"), text("check"), text("text"))
            };
            checks(report).iter().map(line).collect()
        };
        let owned = |rows: &[(&str, &str, &str)]| -> Vec<_> {
            rows.iter()
                .map(|(state, check, text)| ((*state).to_owned(), (*check).to_owned(), (*text).to_owned()))
                .collect()
        };
        assert_eq!(
            found(&well),
            owned(&[
                ("ok", "registry", "revision 12, answers in 1.5 ms"),
                ("ok", "current", "what is known of the registry is current"),
                ("ok", "revocations", "known as of 3 s ago"),
                ("ok", "identity", "the registry knows this process as incarnation 7"),
                ("ok", "registration", "generation 2 is registered")
            ])
        );
        assert_eq!(
            found(&ill),
            owned(&[
                ("failed", "registry", "does not answer: database is locked"),
                (
                    "warning",
                    "current",
                    "what is known of the registry is 90 s old; known providers are called"
                ),
                (
                    "failed",
                    "revocations",
                    "not known yet, so no link between members opens: the registry must be read once"
                ),
                ("failed", "identity", "another process has this identity; stop one of the two"),
                (
                    "warning",
                    "registration",
                    "nothing is registered: the agent serves nothing public, fleet.addresses is empty, or the registry refuses it"
                ),
                (
                    "warning",
                    "frozen",
                    "much of the registry vanished at once, and nothing of it is dropped; check the registry"
                ),
                ("warning", "split", "two processes have its identity"),
                (
                    "warning",
                    "refused",
                    "3 registrations or memberships did not count: signature; the audit log names them"
                )
            ])
        );
    }
}
