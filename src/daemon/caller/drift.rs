//! Proves the providers of the agent's calls: a pass through the gate, or a refusal.
//!
//! [`Gate`](crate::schema::drift::Gate) remembers decisions. This module makes each decision once, however many calls
//! wait for it, and away from the links. At start it reports requirements that nobody serves.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Arc, Mutex};

use capd_proto::capability::CapabilityId;
use capd_proto::cbor::json::from_json;
use capd_proto::code::Code;
use capd_proto::identity::Did;
use capd_proto::message::{ContentHash, Descriptor, SchemaSide, SchemaSource};
use serde_json::json;
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

use super::Caller;
use crate::changes::Changes;
use crate::daemon::account::audit::Audited;
use crate::daemon::account::meter::Verdict;
use crate::daemon::context::{Refusal, lock};
use crate::schema::drift::gate::{Case, Passage, Question};
use crate::schema::drift::{self, Fault, Finding, Gate, Offered, Requirement, Standing, Told};
use crate::schema::{Artifact, Side};
use crate::store::audit::{self, Kind, Record};

/// The gate, and the work of deciding.
pub(in crate::daemon) struct Drift {
    pub(super) gate: Gate,
    /// Counts replacements of what is required.
    pub(super) replaced: Changes,
    /// Cases that are being decided; the token is set when one is.
    under_way: Mutex<HashMap<Case, CancellationToken>>,
    /// Peers of which something is being proven ahead of calls.
    pub(super) ahead: Mutex<BTreeSet<Did>>,
    /// One proof at a time, so that peers who change their schemas all at once take no more than that.
    proving: Semaphore,
    /// Requirements and peers about whom the log has said that nothing is proven.
    told: Mutex<BTreeSet<(String, Did)>>,
    /// Schemas that their peers could not be asked for, and until when they are not asked again.
    /// **Units:** monotonic milliseconds.
    unseen: Mutex<BTreeMap<ContentHash, u64>>,
}

/// What keeps a call from its provider.
pub(in crate::daemon) enum Barrier {
    /// Nobody has decided yet whether it may pass.
    Undecided(Box<Question>),
    /// A schema that its provider has.
    Schema(ContentHash),
    /// It may not pass.
    Refused(Box<Shut>),
}

/// Why a call may not pass.
pub(in crate::daemon) struct Shut {
    /// What its caller is told.
    pub(in crate::daemon) refusal: Refusal,
    /// Whom it was to go to.
    pub(in crate::daemon) provider: Did,
    standing: Arc<Standing>,
}

impl Drift {
    pub(in crate::daemon) fn new(gate: Gate) -> Self {
        Self {
            gate,
            replaced: Changes::default(),
            under_way: Mutex::default(),
            ahead: Mutex::default(),
            proving: Semaphore::new(1),
            told: Mutex::default(),
            unseen: Mutex::default(),
        }
    }

    /// Whether anything is required of a capability of this name.
    pub(super) fn is_before(&self, name: &str) -> bool {
        self.gate.is_before(name)
    }
}

impl Caller {
    /// Replaces what the agent requires; what peers serve is held against it at once.
    pub(in crate::daemon) fn replace_requirements(&self, requirements: Vec<Requirement>) {
        self.drift.gate.replace(requirements);
        self.drift.replaced.changed();
    }

    /// Whether a call may go to a provider, and what its payloads are then to fit besides the provider's schemas.
    pub(in crate::daemon) fn pass(
        &self,
        descriptor: &Descriptor,
        offered: &Offered,
        provider: &Did,
    ) -> Result<Option<Arc<Requirement>>, Barrier> {
        match self.drift.gate.passage(descriptor.id.name.as_str(), &descriptor.served, offered) {
            Passage::Free => Ok(None),
            Passage::Open(requirement) => Ok(Some(requirement)),
            Passage::Unproven(requirement) => {
                self.tell_unproven(&requirement, provider);
                Ok(Some(requirement))
            }
            Passage::Undecided(question) => Err(Barrier::Undecided(Box::new(question))),
            Passage::Shut(requirement, standing) => {
                let shut = Shut::new(&requirement, standing, &descriptor.id, provider);
                Err(Barrier::Refused(Box::new(shut)))
            }
        }
    }

    /// What a descriptor tells of its schemas.
    pub(super) fn offered(&self, descriptor: &Descriptor) -> Result<Offered, Barrier> {
        let name = descriptor.id.name.as_str();
        let told = |source: Option<&SchemaSource>| match source {
            None => Ok(Told::Anything),
            // PROTOCOL 7.2: looked up among what was imported; when it is not there, that side is unchecked.
            Some(SchemaSource::Url(url)) => {
                Ok(self.directory.artifacts.find_uri(url).map_or(Told::Unknown, Told::Schema))
            }
            Some(SchemaSource::Ref(schema)) => match self.directory.artifacts.find(&schema.hash) {
                Some(artifact) => Ok(Told::Schema(artifact)),
                None if self.drift.is_before(name) && self.is_unseen(&schema.hash) => Ok(Told::Unknown),
                None => Err(Barrier::Schema(schema.hash)),
            },
        };
        Ok(Offered {
            input: told(descriptor.input_schema.as_ref())?,
            output: told(descriptor.output_schema.as_ref())?,
        })
    }

    /// Fetches the schema that a call misses. A peer that cannot be asked for it leaves a required capability unproven,
    /// and every other call refused.
    pub(super) async fn fetch_for_call(
        &self,
        name: &str,
        peer: &Did,
        hash: ContentHash,
    ) -> Result<(), Refusal> {
        let Err(refusal) = self.directory.fetch_schema(peer, hash).await else { return Ok(()) };
        let is_mute = matches!(refusal.code, Code::TIMEOUT | Code::UNKNOWN_TYPE | Code::ENDPOINT_UNREACHABLE);
        // One whose link is gone is asked when it is back.
        if !self.drift.is_before(name) || !is_mute || self.directory.peers.link(peer).is_none() {
            return Err(refusal);
        }
        let mut unseen = lock(&self.drift.unseen);
        if unseen.len() >= UNSEEN_MAX {
            unseen.pop_first();
        }
        unseen.insert(hash, self.ctx.clock.monotonic_ms().saturating_add(UNSEEN_MS));
        Ok(())
    }

    fn is_unseen(&self, hash: &ContentHash) -> bool {
        let until_ms = lock(&self.drift.unseen).get(hash).copied();
        until_ms.is_some_and(|until_ms| self.ctx.clock.monotonic_ms() < until_ms)
    }

    /// Decides a case, or waits until it is decided.
    pub(super) async fn prove(self: &Arc<Self>, question: Question, provider: &Did) {
        while self.drift.gate.decided(&question.case).is_none() {
            let (ended, is_ours) = {
                let mut under_way = lock(&self.drift.under_way);
                match under_way.get(&question.case) {
                    Some(ended) => (ended.clone(), false),
                    None => {
                        let ended = CancellationToken::new();
                        under_way.insert(question.case.clone(), ended.clone());
                        (ended, true)
                    }
                }
            };
            if is_ours {
                // A task of its own: a call that gives up takes nobody's proof with it.
                let caller = Arc::clone(self);
                let (question, provider) = (question.clone(), provider.clone());
                let case = question.case.clone();
                self.ctx.spawn(async move {
                    let _proof = Proof { drift: &caller.drift, case };
                    caller.decide(question, &provider).await;
                });
            }
            ended.cancelled().await;
        }
    }

    async fn decide(&self, question: Question, provider: &Did) {
        let Ok(_alone) = self.drift.proving.acquire().await else { return };
        let Question { case, requirement, offered } = question;
        let (needed, told) = (requirement.needed.clone(), offered);
        let proven = self.ctx.tasks.compute(move || drift::prove(&needed, &told)).await;
        let standing = self.drift.gate.decide(case, proven.unwrap_or_else(panicked));
        self.account.meter.proved(verdict(&standing));
        match &*standing {
            Standing::Proven => tracing::debug!(%requirement, %provider, "a requirement is proven"),
            Standing::Untold => self.tell_unproven(&requirement, provider),
            Standing::Broken(findings) => {
                let findings = words(findings);
                tracing::warn!(%requirement, %provider, findings, "a provider does not meet a requirement");
            }
        }
    }

    /// Says once that nothing is known of a requirement at a peer.
    fn tell_unproven(&self, requirement: &Requirement, provider: &Did) {
        let is_new = {
            let mut told = lock(&self.drift.told);
            told.len() < TOLD_MAX && told.insert((requirement.to_string(), provider.clone()))
        };
        if is_new {
            tracing::warn!(
                %requirement,
                %provider,
                "the provider does not publish its schemas: calls pass unproven, and their payloads are checked"
            );
        }
    }

    /// Accounts for a call that was not sent.
    pub(super) fn audit_drift(&self, shut: &Shut, call: Audited<'_>) {
        let Refusal { code, message, .. } = &shut.refusal;
        tracing::warn!(
            target: "audit",
            kind = Kind::Drift.as_str(),
            %code,
            id = %call.id,
            capability = call.capability,
            peer = call.peer,
            reason = message,
            "a call was not sent: its provider does not meet what the agent requires"
        );
        let findings: Vec<_> = shut.findings().iter().map(audited).collect();
        self.account.audit.record(call.of(Record::drift(self.ctx.clock.wall_ms(), code.0, &findings)));
    }
}

impl Shut {
    fn new(requirement: &Requirement, standing: Arc<Standing>, id: &CapabilityId, provider: &Did) -> Self {
        let refusal = refusal(requirement, findings(&standing), id, provider);
        Self { refusal, standing, provider: provider.clone() }
    }

    fn findings(&self) -> &[Finding] {
        findings(&self.standing)
    }
}

fn findings(standing: &Standing) -> &[Finding] {
    match standing {
        Standing::Broken(findings) => findings,
        Standing::Proven | Standing::Untold => &[],
    }
}

fn verdict(standing: &Standing) -> Verdict {
    match standing {
        Standing::Proven => Verdict::Proven,
        Standing::Untold => Verdict::Unpublished,
        Standing::Broken(findings) if drift::code(findings) == Code::SCHEMA_DRIFT => Verdict::Drifted,
        Standing::Broken(_) => Verdict::Unknown,
    }
}

/// A finding as it stands in an audit record.
fn audited(finding: &Finding) -> audit::Finding {
    let side = match finding.side {
        Side::Request => SchemaSide::Request,
        Side::Response => SchemaSide::Response,
    };
    match &finding.fault {
        Fault::Refuted { witness, path, rule, .. } => {
            audit::Finding { side, path: path.clone(), rule: rule.clone(), witness: witness.clone() }
        }
        Fault::Version { served, .. } => audit::Finding {
            side,
            path: "/".to_owned(),
            rule: drift::VERSION_RULE.to_owned(),
            witness: Some(json!(served)),
        },
        Fault::Unknown { path, construct } => {
            audit::Finding { side, path: path.clone(), rule: construct.clone(), witness: None }
        }
    }
}

/// The schemas that a call's payloads are held against.
///
/// What the agent was built against, where it says so: once that is proven, it is the narrower side of both.
pub(super) fn held_against(
    requirement: Option<&Requirement>,
    offered: &Offered,
) -> (Option<Arc<Artifact>>, Option<Arc<Artifact>>) {
    let needed = requirement.map(|requirement| &requirement.needed);
    let input = needed.and_then(|needed| needed.input.as_ref()).or(offered.input.schema());
    let output = offered.output.schema().or(needed.and_then(|needed| needed.output.as_ref()));
    (input.cloned(), output.cloned())
}

/// 4902 or 4903 with every finding.
fn refusal(
    requirement: &Requirement,
    findings: &[Finding],
    capability: &CapabilityId,
    provider: &Did,
) -> Refusal {
    let code = drift::code(findings);
    let message = if code == Code::SCHEMA_DRIFT {
        format!("{capability} has drifted from what this agent requires: {}", words(findings))
    } else {
        format!("{capability} cannot be proven to be what this agent requires: {}", words(findings))
    };
    let found = json!({
        "capability": capability.to_string(),
        "provider": provider.as_str(),
        "required": requirement.to_string(),
        "findings": findings.iter().map(Finding::json).collect::<Vec<_>>(),
    });
    let mut details = Vec::new();
    from_json(&found, &mut details);
    Refusal::new(code, message).with_details(details)
}

fn words(findings: &[Finding]) -> String {
    findings.iter().map(Finding::to_string).collect::<Vec<_>>().join("; ")
}

/// A proof that panicked is none.
fn panicked() -> Standing {
    let fault = Fault::Unknown { path: "/".to_owned(), construct: "the schema".to_owned() };
    Standing::Broken(vec![Finding { side: Side::Request, fault }])
}

/// A case that is being decided until it is dropped.
struct Proof<'a> {
    drift: &'a Drift,
    case: Case,
}

impl Drop for Proof<'_> {
    fn drop(&mut self) {
        if let Some(ended) = lock(&self.drift.under_way).remove(&self.case) {
            ended.cancel();
        }
    }
}

/// Requirements and peers that the log has told of.
const TOLD_MAX: usize = 1_024;
/// Schemas that could not be asked for, at once.
const UNSEEN_MAX: usize = 256;
/// How long a schema that could not be asked for is not asked for again, in milliseconds.
const UNSEEN_MS: u64 = 60_000;
