//! Answers REQUEST `doctor`: what the sidecar finds wrong with itself, each with its remedy.

use std::borrow::Cow;
use std::sync::Arc;

use capd_proto::fleet::Agent;
use capd_proto::identity::Did;
use capd_proto::message::{
    CheckState, DoctorCheck, DoctorPeer, DoctorReport, DoctorRequired, Response, Type,
};

use super::Desk;
use super::fleet::STOP_ONE;
use crate::daemon::context::inbound::is_for_the_agent;
use crate::daemon::context::{Inbound, Refusal};
use crate::fleet::Split;
use crate::health::{Source as _, State};
use crate::policy::cases::Declared;
use crate::policy::{Action, Caller, Subject, Verdict};
use crate::provider::process::Denial;
use crate::schema::Artifact;

impl Desk {
    /// Answers with every check. **Errors:** 4001 for anybody but the agent.
    pub(in crate::daemon) fn on_doctor(&self, inbound: &Inbound<'_>) -> Result<(), Refusal> {
        is_for_the_agent(inbound, "doctor")?;
        let mut checks = self.checked_parts();
        checks.extend(self.checked_identities());
        checks.extend(self.checked_commands());
        checks.extend(self.checked_grants());
        checks.extend(self.checked_peers());
        let report = DoctorReport {
            file: self.doctored_file(),
            peers: self.doctored_peers(),
            checks,
            requires: self.doctored_requires(),
        };
        let mut body = Vec::new();
        Response::Doctor(report).encode(&mut body);
        self.ctx.reply(inbound, Type::Response, &body);
        Ok(())
    }

    /// The configuration file, so that whoever asks from another folder can change it.
    fn doctored_file(&self) -> Option<Cow<'static, str>> {
        let config = self.ctx.config();
        let file = config.sources()?.file.as_ref()?;
        let file = std::path::absolute(file).ok()?.into_os_string().into_string().ok()?;
        Some(Cow::Owned(file))
    }

    fn doctored_peers(&self) -> Vec<DoctorPeer<'static>> {
        let config = self.ctx.config();
        let peer = |peer: &crate::config::Peer| DoctorPeer {
            did: Cow::Owned(peer.did.clone()),
            is_dialled: !peer.addresses.is_empty(),
            serves: peer.serves.iter().map(|pattern| Cow::Owned(pattern.to_string())).collect(),
        };
        config.peers.iter().map(peer).collect()
    }

    /// Parts that write, and others that cannot do their work.
    fn checked_parts(&self) -> Vec<DoctorCheck<'static>> {
        let parts = self.parts().into_iter();
        // Agents come and go, and each peer is a check of its own.
        let shown = parts.filter(|part| match part.name {
            "journal" | "audit" => true,
            "registry" => part.state != State::Ok,
            name => part.state == State::Failed && name != "peers",
        });
        let check = |part: crate::health::Part| {
            let state = match part.state {
                State::Ok => CheckState::Ok,
                State::Degraded => CheckState::Warning,
                State::Failed => CheckState::Failed,
            };
            let remedy = match part.name {
                "journal" => "free space on the disk of agent.dir; the next write shows that it works again",
                "audit" => "free space on the disk of agent.dir, or remove old records: capctl audit prune",
                "registry" if part.state == State::Failed => STOP_ONE,
                "registry" => "run: capctl fleet doctor",
                "listeners" => "wait until it has stopped, then start it: capd run",
                _ => "the sidecar's log says why",
            };
            let remedy = (part.state != State::Ok).then_some(Cow::Borrowed(remedy));
            DoctorCheck { remedy, ..found(part.name, String::new(), state, part.detail) }
        };
        shown.map(check).collect()
    }

    /// Members of the fleet of which two processes live.
    fn checked_identities(&self) -> Vec<DoctorCheck<'static>> {
        let splits = self.fleet.registry().map(crate::fleet::Fleet::splits).unwrap_or_default().into_iter();
        let check = |(agent, split): (Agent, Split)| {
            let check = found("identity", agent.did().to_string(), CheckState::Warning, self.split(&split));
            DoctorCheck { remedy: Some(STOP_ONE.into()), ..check }
        };
        splits.take(CHECKS_MAX).map(check).collect()
    }

    /// Commands that failed because of their confinement, and have not succeeded since.
    fn checked_commands(&self) -> Vec<DoctorCheck<'static>> {
        let denials = self.executor.providers.denials();
        let check = |Denial { capability, denied }: Denial| {
            let remedy = match denied.permission() {
                Some(permission) => format!(
                    "declare {permission} under permissions of the capability, grant it to its callers, and run: capctl reload"
                ),
                None => "move it out of the sidecar's own files: no permission opens them".to_owned(),
            };
            let text = format!("confinement denied {denied} to its command");
            let check = found("command", capability, CheckState::Warning, text);
            DoctorCheck { remedy: Some(remedy.into()), ..check }
        };
        denials.into_iter().take(CHECKS_MAX).map(check).collect()
    }

    /// Rules that permit calls of a capability without the permissions that it declares.
    fn checked_grants(&self) -> Vec<DoctorCheck<'static>> {
        let lacks = self.door.policy.rules().ungranted(&self.served());
        let check = |lack: crate::policy::Mistake| {
            let remedy = "add the permission to this rule, then run: capctl reload";
            let check = found("policy", String::new(), CheckState::Warning, lack.to_string());
            DoctorCheck { remedy: Some(remedy.into()), ..check }
        };
        lacks.into_iter().take(CHECKS_MAX).map(check).collect()
    }

    /// Peers that may call nothing that is served here, or lack a permission for it.
    fn checked_peers(&self) -> Vec<DoctorCheck<'static>> {
        let served = self.served();
        let config = self.ctx.config();
        let peers = config.peers.iter().filter_map(|peer| Did::parse(&peer.did).ok());
        let checks = peers.take(PEERS_MAX).filter_map(|peer| self.checked_peer(&peer, &served));
        checks.take(CHECKS_MAX).collect()
    }

    fn checked_peer(&self, peer: &Did, served: &[Declared]) -> Option<DoctorCheck<'static>> {
        let rules = self.door.policy.rules();
        let mut ungranted = None;
        for declared in served.iter().take(SERVED_MAX) {
            let Declared { id, category, permissions } = declared;
            let (name, version, provider) = (id.name.as_str(), Some(&id.version), self.ctx.did().as_str());
            let subject = Subject { name, version, category, permissions, provider };
            let verdict = rules.decide(Caller { did: peer, alias: None }, Action::Invoke, &subject);
            let grant = format!("capctl policy grant {peer} {name}");
            match &verdict {
                Verdict::Permitted { .. } => return None,
                Verdict::Unpermitted { missing, .. } => {
                    let flags = missing.iter().map(|missing| format!(" --permission {missing}"));
                    let remedy = format!("{grant}{}", flags.collect::<String>());
                    let check =
                        found("policy", peer.to_string(), CheckState::Warning, format!("{name}: {verdict}"));
                    return Some(DoctorCheck { remedy: Some(remedy.into()), ..check });
                }
                Verdict::Ungranted => drop(ungranted.get_or_insert(grant)),
                // Somebody wrote that down.
                Verdict::Forbidden { .. } | Verdict::Failed { .. } => {}
            }
        }
        let text = "may call nothing that is served here: no rule grants it";
        let check = found("policy", peer.to_string(), CheckState::Warning, text.to_owned());
        Some(DoctorCheck { remedy: Some(ungranted?.into()), ..check })
    }

    /// What the agent requires, with its schemas as far as they fit an answer.
    fn doctored_requires(&self) -> Vec<DoctorRequired<'static>> {
        let mut left = SCHEMAS_BYTES_MAX;
        let all = self.caller.requirements().into_iter().take(REQUIRED_MAX);
        let required = all.map(|requirement| {
            let mut is_cut = false;
            let mut schema = |artifact: &Option<Arc<Artifact>>| {
                let bytes = artifact.as_ref()?.document();
                let Some(rest) = left.checked_sub(bytes.len()) else {
                    is_cut = true;
                    return None;
                };
                left = rest;
                Some(Cow::Owned(bytes.to_vec()))
            };
            let (input, output) = (schema(&requirement.needed.input), schema(&requirement.needed.output));
            DoctorRequired {
                name: Cow::Owned(requirement.name.to_string()),
                range: requirement.version.as_ref().map(|range| Cow::Owned(range.to_string())),
                input,
                output,
                is_cut,
            }
        });
        required.collect()
    }
}

fn found(check: &'static str, about: String, state: CheckState, text: String) -> DoctorCheck<'static> {
    DoctorCheck { check: check.into(), about: about.into(), state, text: text.into(), remedy: None }
}

/// Checks of one kind in an answer.
const CHECKS_MAX: usize = 64;
/// Peers that are looked at.
const PEERS_MAX: usize = 256;
/// Served capabilities that are looked at for each peer.
const SERVED_MAX: usize = 64;
/// Requirements in an answer.
const REQUIRED_MAX: usize = 1_024;
/// Bytes of all schemas in an answer.
const SCHEMAS_BYTES_MAX: usize = 512 * 1024;
