//! Implements `doctor`: a configuration in; faults that would break this agent's calls out, before they are made.
//!
//! Each check builds on those before it: the files, the sidecar that uses them, its peers, and the requirements of the
//! agent, proven here as the sidecar proves them.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use capd::client::{Client, ClientError, Description, Query, SchemaSide};
use capd::config::{Config, Peer};
use capd::declaration::{self, Declaration};
use capd::policy::cases::Declared;
use capd::schema::drift::{self, Finding, Needed, Offered, Requirement, Standing, Told};
use capd::schema::{Artifact, Artifacts, Keep};
use capd_proto::capability::{CapabilityId, CapabilityPattern};
use capd_proto::code::Code;
use capd_proto::identity::Did;
use capd_proto::message::PeerState;
use serde_json::{Value, json};

use crate::args::{DoctorArgs, SidecarArgs};
use crate::failure::{Exit, Failure};
use crate::{Sidecar, configuration, output};

/// Makes every check and prints what it found; fails as the worst of them does.
pub(crate) async fn run(sidecar: Sidecar, args: DoctorArgs, json: bool) -> Result<(), Failure> {
    let mut report = Report::default();
    if let Some((config, declaration)) = files(&args, &mut report) {
        let sidecar = beside(sidecar, &args, &config);
        if let Some(client) = linked(&sidecar, &mut report).await {
            grants(&client, &config, declaration.as_ref(), &mut report).await;
            peers(&client, &config, &mut report).await;
            let all: Vec<_> = declaration.iter().flat_map(|declaration| &declaration.requires).collect();
            for required in &all {
                requirement(&client, required, &all, &mut report).await;
            }
        }
    }
    report.print(json)?;
    report.verdict()
}

/// The configuration and the declaration, as far as they can be read.
fn files(args: &DoctorArgs, report: &mut Report) -> Option<(Config, Option<Declaration>)> {
    let file = configuration::file(args.config.as_ref());
    let about = file.as_ref().map_or_else(|| "without a file".to_owned(), |file| file.display().to_string());
    let config = match configuration::load(file) {
        Ok(config) => config,
        Err(mistakes) => {
            report.add(Check::failed("config", about, Exit::Usage, mistakes.to_string()));
            return None;
        }
    };
    let checked = match capd::daemon::check(&config) {
        Ok(warnings) if warnings.is_empty() => Check::ok("config", about, "no mistake in it"),
        Ok(warnings) => Check::warning("config", about, warnings.join("\n")),
        Err(error) => Check::failed("config", about, Exit::Usage, error.to_string()),
    };
    let is_ok = checked.state != State::Failed;
    report.add(checked);
    let load = |path: &PathBuf| Declaration::load(path).ok();
    let declaration = config.agent.capabilities.as_ref().filter(|_| is_ok).and_then(load);
    Some((config, declaration))
}

/// The sidecar that the command line names, or else the one of the configuration's file.
fn beside(sidecar: Sidecar, args: &DoctorArgs, config: &Config) -> Sidecar {
    let SidecarArgs { socket, context, address, .. } = &sidecar.0;
    let is_named = socket.is_some() || context.is_some() || address.is_some();
    if is_named || args.config.is_none() {
        return sidecar;
    }
    let socket = config.listen.unix.clone();
    Sidecar(SidecarArgs { socket, ..sidecar.0 })
}

async fn linked(sidecar: &Sidecar, report: &mut Report) -> Option<Client> {
    match sidecar.connect_for_people().await {
        Ok(client) => {
            report.add(Check::ok("sidecar", client.did().to_string(), "runs"));
            Some(client)
        }
        Err(failure) => {
            let exit = failure.exit;
            report.add(Check::failed("sidecar", String::new(), exit, failure.to_string()));
            None
        }
    }
}

/// What agents declare over their links, and rules that permit calls of it do not grant. What stands in the declaration was
/// looked at with the files.
async fn grants(client: &Client, config: &Config, declaration: Option<&Declaration>, report: &mut Report) {
    let Ok(rules) = capd::daemon::rules(config) else { return };
    let Ok(offers) = client.query_all(&Query::new(CapabilityPattern::Any)).await else { return };
    let is_in_file = |id: &CapabilityId| {
        declaration.is_some_and(|file| file.capabilities.iter().any(|declared| declared.id == *id))
    };
    for offer in offers.iter().filter(|offer| offer.is_local && !is_in_file(offer.id())) {
        let descriptor = &offer.descriptor;
        let declared = Declared {
            id: descriptor.id.clone(),
            category: descriptor.category.clone().unwrap_or_default(),
            permissions: descriptor.permissions.clone(),
        };
        for lack in rules.ungranted(&[declared]) {
            report.add(Check::warning("config", offer.id().to_string(), lack.to_string()));
        }
    }
}

async fn peers(client: &Client, config: &Config, report: &mut Report) {
    for peer in &config.peers {
        let Ok(did) = peer.did.parse() else { continue };
        let about = peer.did.clone();
        let check = match crate::peers::ping(client, &did, PING_WAIT).await {
            Ok(time) => Check::ok("peer", about, format!("{:.3} ms", time.as_secs_f64() * 1_000.0)),
            // It is its own to connect.
            Err(error) if peer.addresses.is_empty() => {
                let why = known(client, &peer.did).await.unwrap_or_else(|| error.to_string());
                Check::warning("peer", about, format!("not connected: {why}"))
            }
            Err(error) => Check::failed("peer", about, Exit::Unavailable, error.to_string()),
        };
        let answers = check.state == State::Ok;
        report.add(check);
        if answers {
            withheld(client, peer, &did, report).await;
        }
    }
    strangers(client, config, report).await;
}

/// What the sidecar knows of why calls do not reach a peer.
async fn known(client: &Client, did: &str) -> Option<String> {
    // Without an answer the check says what it found by itself.
    let peers = client.peers().await.ok()?;
    peers.into_iter().find(|peer| peer.did == did).and_then(crate::peers::reason)
}

/// Who asked for a link not long ago and is not configured.
async fn strangers(client: &Client, config: &Config, report: &mut Report) {
    for peer in client.peers().await.unwrap_or_default() {
        let is_configured = config.peers.iter().any(|known| known.did == peer.did);
        if peer.state == PeerState::Refused && !is_configured {
            let about = peer.did.to_string();
            report.add(Check::warning("peer", about, crate::peers::reason(peer).unwrap_or_default()));
        }
    }
}

/// What a peer declares and its `serves` does not allow: the sidecar never calls it.
async fn withheld(client: &Client, peer: &Peer, did: &Did, report: &mut Report) {
    // A name is enough of a peer that declares many; a refusal says that it serves nothing to this agent.
    let query =
        Query { to: Some(did.clone()), limit: Some(DECLARED_MAX), ..Query::new(CapabilityPattern::Any) };
    let Ok(page) = client.query(&query).await else { return };
    let is_allowed = |name: &str| peer.serves.iter().any(|pattern| pattern.matches(name));
    let names = page.offers.iter().map(|offer| offer.id().name.as_str());
    let names: BTreeSet<_> = names.filter(|name| !is_allowed(name)).collect();
    if names.is_empty() {
        return;
    }
    let shown: Vec<_> = names.iter().copied().take(SHOWN_MAX).collect();
    let more = names.len() - shown.len();
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    let shown = shown.join(", ");
    let text =
        format!("declares {shown}{more}: never called, since its serves in [[peers]] does not allow it");
    report.add(Check::warning("peer", peer.did.clone(), text));
}

async fn requirement(
    client: &Client,
    required: &declaration::Required,
    all: &[&declaration::Required],
    report: &mut Report,
) {
    let artifacts = Artifacts::default();
    let kept = |schema: &Option<declaration::SchemaSource>| -> Option<Arc<Artifact>> {
        artifacts.declare(schema.as_ref()?.bytes.clone()).ok()
    };
    let needed = Needed { input: kept(&required.input_schema), output: kept(&required.output_schema) };
    let requirement = Requirement { name: required.name.clone(), version: required.version.clone(), needed };
    let about = requirement.to_string();
    let offers = match client.query_all(&Query::new(required.name.clone())).await {
        Ok(offers) => offers,
        Err(error) => {
            let check = match error {
                ClientError::Refused(wire) if wire.code == Code::CAPABILITY_NOT_FOUND => {
                    Check::failed("requires", about, Exit::Unavailable, "nobody serves it")
                }
                error => {
                    let failure = Failure::from(error);
                    Check::failed("requires", about, failure.exit, failure.to_string())
                }
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
        return report.add(Check::failed(
            "requires",
            about,
            Exit::Unavailable,
            "served, but in none of these versions",
        ));
    }
    for id in ids {
        match client.describe(&id).await {
            Ok(descriptions) => {
                for description in descriptions {
                    report.add(proven(&requirement, &description, &artifacts));
                }
            }
            Err(error) => {
                let failure = Failure::from(error);
                report.add(Check::failed("requires", about.clone(), failure.exit, failure.to_string()));
            }
        }
    }
    let others = all.iter().filter(|other| other.name == required.name);
    let others: Vec<_> = others.map(|other| range_of(other)).collect();
    for offer in &offers {
        let served = &offer.descriptor.served;
        let outside = requirement.outside(served);
        // It may be met by another requirement of the name.
        if let Some(finding) = outside.filter(|_| !others.iter().any(|other| other.is_about(served))) {
            let about = format!("{} of {}", offer.id(), offer.provider.clone().unwrap_or_default());
            let code = drift::code(std::slice::from_ref(&finding)).0;
            report.add(Check::warning(
                "requires",
                about,
                format!("{finding}: calls of it are refused ({code})"),
            ));
        }
    }
}

/// A requirement's name and range alone.
fn range_of(required: &declaration::Required) -> Requirement {
    let (name, version) = (required.name.clone(), required.version.clone());
    Requirement { name, version, needed: Needed::default() }
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
            let check = Check::failed("requires", about, Exit::SchemaViolation, text.join("\n"));
            Check { code: Some(drift::code(&findings)), findings, ..check }
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

/// What was found, in the order in which it was looked at.
#[derive(Default)]
pub(crate) struct Report {
    checks: Vec<Check>,
}

/// One check and what came of it.
pub(crate) struct Check {
    check: &'static str,
    about: String,
    state: State,
    text: String,
    exit: Exit,
    code: Option<Code>,
    findings: Vec<Finding>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Ok,
    Warning,
    Failed,
}

impl State {
    const fn as_str(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Warning => "warning",
            Self::Failed => "failed",
        }
    }
}

impl Check {
    fn new(check: &'static str, about: String, state: State, exit: Exit, text: String) -> Self {
        Self { check, about, state, text, exit, code: None, findings: Vec::new() }
    }

    pub(crate) fn ok(check: &'static str, about: String, text: impl Into<String>) -> Self {
        Self::new(check, about, State::Ok, Exit::OutputClosed, text.into())
    }

    pub(crate) fn warning(check: &'static str, about: String, text: impl Into<String>) -> Self {
        Self::new(check, about, State::Warning, Exit::OutputClosed, text.into())
    }

    pub(crate) fn failed(check: &'static str, about: String, exit: Exit, text: impl Into<String>) -> Self {
        Self::new(check, about, State::Failed, exit, text.into())
    }

    pub(crate) fn json(&self) -> Value {
        let mut line = json!({
            "check": self.check, "about": self.about, "state": self.state.as_str(), "text": self.text,
        });
        if let Some(code) = self.code {
            line["code"] = json!(code.0);
            line["findings"] = self.findings.iter().map(Finding::json).collect();
        }
        line
    }
}

impl Report {
    pub(crate) fn add(&mut self, check: Check) {
        self.checks.push(check);
    }

    pub(crate) fn print(&self, json: bool) -> Result<(), Failure> {
        if json {
            return self.checks.iter().try_for_each(|check| output::print_json(&check.json()));
        }
        let rows = self.checks.iter().flat_map(|check| {
            let mut cells = [check.state.as_str(), check.check, &check.about];
            let lines = check.text.lines().map(move |line| {
                let row = cells.iter().chain([&line]).map(|cell| (*cell).to_owned()).collect();
                // Further lines of the same check stand under its first.
                cells = ["", "", ""];
                row
            });
            lines.collect::<Vec<Vec<String>>>()
        });
        output::print(&output::table(&["STATE", "CHECK", "ABOUT", "FOUND"], &rows.collect::<Vec<_>>()))
    }

    /// The worst failure: of the files, of a contract, of anything else, of what is not there.
    pub(crate) fn verdict(&self) -> Result<(), Failure> {
        let failed: Vec<_> = self.checks.iter().filter(|check| check.state == State::Failed).collect();
        let worst = [Exit::Usage, Exit::SchemaViolation, Exit::Refused, Exit::Unexpected, Exit::Unavailable];
        let exit = worst.into_iter().find(|exit| failed.iter().any(|check| check.exit == *exit));
        match exit.or_else(|| failed.first().map(|check| check.exit)) {
            None => Ok(()),
            Some(exit) => {
                let text = format!("{} of {} checks failed", failed.len(), self.checks.len());
                Err(Failure::unexpected(text).exit(exit))
            }
        }
    }
}

/// Capabilities of one peer that are looked at.
const DECLARED_MAX: u64 = 1_000;
/// Names of one peer that are shown.
const SHOWN_MAX: usize = 3;
/// How long each peer is waited for.
const PING_WAIT: Duration = Duration::from_secs(5);
