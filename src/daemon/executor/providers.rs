//! Registers providers: declarations from files and from agents on local links in, providers that serve them out.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use ahash::HashMap;
use capd_proto::code::Code;
use capd_proto::envelope::{Draft, Encoded, Envelope, Ext, MessageId};
use capd_proto::identity::Did;
use capd_proto::limits::EXT_CAPABILITY_ID;
use capd_proto::message::{self, CapResult, Declare, Descriptor, ErrorBody, RateLimit, Request, Type};
use capd_proto::rate::Rate;

use super::Executor;
use super::former::ByAgents;
use crate::daemon::account::Account;
use crate::daemon::account::meter::CallLimit;
use crate::daemon::context::seal::ANSWER_TTL_MS;
use crate::daemon::context::wire::{EMPTY_MAP, text, with_fields};
use crate::daemon::context::{Ctx, Inbound, Outbound, Refusal, lock};
use crate::daemon::directory::hashes::completed;
use crate::declaration::{self, CommandMode, Declared, HttpTarget};
use crate::net::{Link, LinkId};
use crate::provider::http::{self, HttpProvider, HttpSpec};
use crate::provider::link::{Answered, LinkProvider, Wire};
use crate::provider::process::confine::{Confinement, Ground, Groups};
use crate::provider::process::{
    Confined, Denial, ProcessProvider, ProcessSpec, Spawn, WarmProvider, WarmSpec,
};
use crate::provider::{AgentResult, Invocation, Provider};
use crate::registry::snapshot::{Entry, Event, Origin, ProviderId};
use crate::schema::Fingerprint;

/// Where a declaration's commands run, and what confines them.
pub(in crate::daemon) struct Place {
    /// Their working directory: where the declaration lies.
    pub(in crate::daemon) dir: PathBuf,
    /// The program that confines them.
    pub(in crate::daemon) helper: Option<PathBuf>,
    /// What all of them have in common.
    pub(in crate::daemon) ground: Ground,
    /// Where the processes of each call are bounded together.
    pub(in crate::daemon) groups: Option<Arc<Groups>>,
}

impl Place {
    /// Tells the log how a declared capability is served, and with which rights.
    pub(in crate::daemon) fn tell(&self, declared: &Declared) {
        if let Some(program) = declared.command.as_ref().and_then(|words| words.first()) {
            if let Some(Confined { confinement, .. }) = self.confined(&declared.permissions) {
                let (id, files, sockets) = (&declared.id, confinement.files, confinement.sockets);
                let (network, unix) = (sockets.internet, sockets.unix);
                tracing::info!(capability = %id, %files, network, unix_sockets = unix, "rights of a command");
            }
            match declared.mode {
                CommandMode::PerCall => {
                    tracing::info!(capability = %declared.id, command = program, "serving by process");
                }
                CommandMode::Persistent => {
                    tracing::info!(capability = %declared.id, command = program, "serving by a persistent process");
                }
            }
        } else if let Some(target) = &declared.http {
            tracing::info!(capability = %declared.id, url = target.url, "serving by HTTP");
        }
    }

    /// The rights of a command whose capability declares these permissions.
    fn confined(&self, permissions: &[String]) -> Option<Confined> {
        let helper = self.helper.clone()?;
        let confinement = Confinement::of(permissions, self.ground.clone());
        Some(Confined { helper, confinement, groups: self.groups.clone() })
    }
}

/// What serves calls here.
#[derive(Default)]
pub(in crate::daemon) struct Providers {
    next: AtomicU64,
    serving: Mutex<BTreeMap<ProviderId, Arc<dyn Provider>>>,
    agents: Mutex<HashMap<LinkId, Agent>>,
    former: Arc<ByAgents>,
}

/// An agent on a local link that has declared capabilities.
#[derive(Clone)]
struct Agent {
    id: ProviderId,
    provider: Arc<LinkProvider<AgentWire>>,
}

/// The way to an agent on a local link.
struct AgentWire {
    ctx: Arc<Ctx>,
    account: Arc<Account>,
    link: Arc<Link>,
}

impl Wire for AgentWire {
    fn invoke(&self, invocation: &Invocation) -> bool {
        if invocation.names_id {
            return self.link.request(invocation.envelope.clone()).is_ok();
        }
        self.with_chosen_id(invocation).is_some_and(|envelope| self.link.request(envelope).is_ok())
    }

    fn calls_max(&self) -> usize {
        self.ctx.config().limits.calls_in_flight_per_provider_max
    }

    fn overloaded(&self) {
        self.account.meter.refused(CallLimit::CallsPerProvider);
    }

    fn cancel(&self, id: MessageId) {
        let mut body = Vec::new();
        Request::Cancel { target: id }.encode(&mut body);
        let message = Outbound {
            id: self.ctx.fresh_id(self.ctx.clock.wall_ms()),
            typ: Type::Request,
            to: self.link.principal().as_str(),
            reply_to: None,
            thread_id: None,
            ttl_ms: ANSWER_TTL_MS,
            body: &body,
            ext: Ext::None,
        };
        if let Err(error) = self.link.notify(self.ctx.seal(&message, &self.link)) {
            tracing::debug!(link = %self.link.id(), %error, "a cancel did not reach a provider");
        }
    }
}

impl AgentWire {
    /// A call's envelope with the chosen capability id in `ext`: an agent that serves several versions learns it there.
    fn with_chosen_id(&self, invocation: &Invocation) -> Option<Encoded> {
        let envelope = Envelope::decode(&invocation.envelope).ok()?;
        let chosen = text(&invocation.capability.to_string());
        let ext = with_fields(envelope.ext.unwrap_or(EMPTY_MAP), &[(EXT_CAPABILITY_ID, &chosen)]);
        let draft = Draft { ext: Ext::Raw(&ext), ..Draft::of(&envelope)? };
        let body = invocation.envelope.slice_ref(draft.body);
        Some(self.ctx.pass_on(draft, &body, false).0)
    }
}

impl Providers {
    /// Calls in flight with the agent that has most.
    pub(in crate::daemon) fn agents_busiest(&self) -> usize {
        lock(&self.agents).values().map(|agent| agent.provider.in_flight()).max().unwrap_or(0)
    }

    /// Commands that confinement kept from something when they failed last.
    pub(in crate::daemon) fn denials(&self) -> Vec<Denial> {
        lock(&self.serving).values().filter_map(|provider| provider.denial()).collect()
    }

    /// The provider behind an entry of the registry; `None` once it has left.
    pub(super) fn serving(&self, id: ProviderId) -> Option<Arc<dyn Provider>> {
        lock(&self.serving).get(&id).cloned()
    }

    /// Drops every provider, and with it the calls that it has.
    pub(in crate::daemon) fn let_go(&self) {
        let serving = std::mem::take(&mut *lock(&self.serving));
        let agents = std::mem::take(&mut *lock(&self.agents));
        // Their tickets answer as they go, and what that needs must not be locked.
        drop((serving, agents));
    }

    fn add(&self, provider: Arc<dyn Provider>) -> ProviderId {
        let id = ProviderId(self.next.fetch_add(1, Ordering::Relaxed));
        lock(&self.serving).insert(id, provider);
        id
    }

    fn agent(&self, link: &Link) -> Option<Agent> {
        lock(&self.agents).get(&link.id()).cloned()
    }
}

/// A declared capability, ready to serve.
pub(in crate::daemon) struct Prepared {
    pub(in crate::daemon) descriptor: Arc<Descriptor>,
    provider: Arc<dyn Provider>,
}

/// The schema at fault, if one is, and what is wrong.
type Fault<'a> = (Option<&'a declaration::SchemaSource>, String);

impl Executor {
    /// Makes what serves a declared capability: its command, or the program that listens for it. `None` for one without
    /// either, which is left to an agent that will declare it.
    pub(in crate::daemon) fn prepare_declared<'a>(
        &self,
        declared: &'a Declared,
        hashes: Option<(Fingerprint, Fingerprint)>,
        place: &Place,
    ) -> Result<Option<Prepared>, Fault<'a>> {
        if declared.command.is_none() && declared.http.is_none() {
            return Ok(None);
        }
        let mut draft = declared.draft();
        let taken = |schema: Option<&'a declaration::SchemaSource>| {
            let taken = |schema: &'a declaration::SchemaSource| {
                let taken = self.directory.declared_schema(&schema.bytes);
                taken.map_err(|error| (Some(schema), error.to_string()))
            };
            schema.map(taken).transpose()
        };
        draft.input_schema = taken(declared.input_schema.as_ref())?;
        draft.output_schema = taken(declared.output_schema.as_ref())?;
        draft.static_hash = hashes.map(|(static_hash, _)| static_hash.0);
        draft.lineage = hashes.map(|(_, lineage)| lineage.0);
        let descriptor = draft.finish().map_err(|error| (None, error.to_string()))?;
        let provider = match (declared.command.as_deref().and_then(<[String]>::split_first), &declared.http) {
            (Some((program, args)), _) => self.process(declared, program, args, place),
            (None, Some(target)) => self.listener(declared, target, place)?,
            (None, None) => return Ok(None),
        };
        Ok(Some(Prepared { descriptor: Arc::new(descriptor), provider }))
    }

    /// Serves what was prepared in place of what is `withdrawn`, whose calls in flight go on; gives what the former is
    /// known by, in its order.
    pub(in crate::daemon) fn serve_prepared(
        &self,
        prepared: Vec<Prepared>,
        withdrawn: &[ProviderId],
    ) -> Vec<ProviderId> {
        let mut events = Vec::with_capacity(prepared.len() + withdrawn.len());
        let mut ids = Vec::with_capacity(prepared.len());
        for Prepared { descriptor, provider } in prepared {
            provider.begin();
            let id = self.providers.add(provider);
            ids.push(id);
            events.push(Event::Declared { origin: Origin::Local(id), descriptors: vec![descriptor] });
        }
        for id in withdrawn {
            // Calls that run hold their provider.
            lock(&self.providers.serving).remove(id);
            events.push(Event::Gone(Origin::Local(*id)));
        }
        self.own.serve_all(&self.directory.registry, events);
        ids
    }

    fn process(
        &self,
        declared: &Declared,
        program: &str,
        args: &[String],
        place: &Place,
    ) -> Arc<dyn Provider> {
        let spec = ProcessSpec {
            program: program.to_owned(),
            args: args.to_vec(),
            dir: place.dir.clone(),
            concurrency: declared.concurrency.unwrap_or(match declared.mode {
                CommandMode::PerCall => PROCESSES_DEFAULT,
                CommandMode::Persistent => 1,
            }),
            queue_max: PROCESS_QUEUE_MAX,
            output_bytes_max: self.message_bytes_max(),
            tell_stderr: declared.tell_stderr,
            confined: place.confined(&declared.permissions),
        };
        let tasks = self.ctx.tasks.clone();
        let spawn: Spawn = Box::new(move |task| tasks.spawn(task));
        match declared.mode {
            CommandMode::PerCall => Arc::new(ProcessProvider::new(spec, spawn)),
            CommandMode::Persistent => {
                let answer_within = declared.timeout_ms.unwrap_or(self.ctx.call_timeout_ms());
                let spec = WarmSpec {
                    process: spec,
                    capability: declared.id.to_string(),
                    idempotent: declared.idempotent || declared.by_id,
                    answer_within: Duration::from_millis(answer_within),
                };
                Arc::new(WarmProvider::new(spec, spawn, self.ctx.shutdown.clone()))
            }
        }
    }

    fn listener<'a>(
        &self,
        declared: &Declared,
        target: &HttpTarget,
        place: &Place,
    ) -> Result<Arc<dyn Provider>, Fault<'a>> {
        let failed = |error: String| (None, format!("{}: http: {error}", declared.id));
        let listens = http::Place::parse(&target.url, target.allow_remote);
        let headers = target.headers_file.as_ref().map(|file| http::load_headers(&place.dir.join(file)));
        let spec = HttpSpec {
            place: listens.map_err(|error| failed(error.to_string()))?,
            headers: headers.transpose().map_err(|error| failed(error.to_string()))?.unwrap_or_default(),
            idempotent: declared.idempotent || declared.by_id,
            concurrency: declared.concurrency.unwrap_or(REQUESTS_DEFAULT),
            queue_max: PROCESS_QUEUE_MAX,
            answer_bytes_max: self.message_bytes_max(),
        };
        let tasks = self.ctx.tasks.clone();
        Ok(Arc::new(HttpProvider::new(spec, Box::new(move |task| tasks.spawn(task)))))
    }

    /// CAP_DECLARE unasked: an agent on a local link says all that it serves. **Source:** PROTOCOL 7.2.
    pub(in crate::daemon) fn on_declare(&self, inbound: &Inbound<'_>) -> Result<(), Refusal> {
        if !inbound.link.kind().is_local() {
            return Err(Refusal::new(
                Code::BAD_REQUEST,
                "capabilities are declared on a local link, or asked for",
            ));
        }
        let declare = Declare::decode(inbound.body).map_err(Refusal::of)?;
        declare.check_format().map_err(Refusal::of)?;
        let mut descriptors = Vec::new();
        for descriptor in declare.descriptors().map_err(Refusal::of)? {
            if descriptors.iter().any(|other: &Descriptor| other.id == descriptor.id) {
                return Err(Refusal::new(Code::BAD_REQUEST, format!("{} is declared twice", descriptor.id)));
            }
            check_rate(&descriptor)?;
            let descriptor = Arc::new(self.directory.own_schemas(descriptor)?);
            if !self.own.may_declare(&descriptor) {
                let message = format!("a policy forbids the agent to declare {}", descriptor.id);
                return Err(Refusal::new(Code::UNAUTHORIZED, message));
            }
            descriptors.push(Arc::unwrap_or_clone(descriptor));
        }
        let descriptors =
            completed(descriptors, &self.directory.artifacts)?.into_iter().map(Arc::new).collect::<Vec<_>>();
        let agent = self.providers.agent(inbound.link).unwrap_or_else(|| self.new_agent(inbound.link));
        tracing::info!(link = %inbound.link.id(), capabilities = descriptors.len(), "an agent serves");
        self.warn_of_others(agent.id, &descriptors);
        self.providers.former.take(&self.ctx, &descriptors, &self.directory.artifacts);
        self.own.serve(
            &self.directory.registry,
            Event::Declared { origin: Origin::Local(agent.id), descriptors },
        );
        Ok(())
    }

    /// Agents that serve the same share its calls; of two that serve different things under one id, one gets none.
    fn warn_of_others(&self, agent: ProviderId, descriptors: &[Arc<Descriptor>]) {
        let snapshot = self.directory.snapshot();
        for descriptor in descriptors {
            let is_other = |entry: &Entry| {
                matches!(entry.origin, Origin::Local(other) if other != agent)
                    && entry.descriptor.id == descriptor.id
                    && entry.descriptor != *descriptor
            };
            if snapshot.entries(descriptor.id.name.as_str()).iter().any(is_other) {
                tracing::warn!(
                    capability = %descriptor.id,
                    "two providers of this sidecar declare one capability differently: only the first gets calls"
                );
            }
        }
    }

    fn new_agent(&self, link: &Arc<Link>) -> Agent {
        let wire = AgentWire {
            ctx: Arc::clone(&self.ctx),
            account: Arc::clone(&self.account),
            link: Arc::clone(link),
        };
        let provider = Arc::new(LinkProvider::new(wire));
        let id = self.providers.add(provider.clone());
        let agent = Agent { id, provider };
        lock(&self.providers.agents).insert(link.id(), agent.clone());
        agent
    }

    /// CAP_RESULT from an agent that serves. `false` when the agent serves no such call.
    pub(in crate::daemon) fn on_agent_result(
        &self,
        inbound: &Inbound<'_>,
        id: &MessageId,
    ) -> Result<(), Refusal> {
        let result = CapResult::decode_checked(inbound.checked_body()).map_err(Refusal::of)?;
        let ended = match result.outcome {
            message::Outcome::Success(result) => Ok(inbound.body.slice_ref(result)),
            message::Outcome::Error(error) => Err(error.code),
        };
        let is_timed = result.execution_time_ms.is_some();
        // The ledger counts what it keeps of it.
        let body = Encoded::item_of(inbound.payload, inbound.body);
        let result = AgentResult { body, ended, is_timed };
        let is_to = self.answered_by(inbound);
        let answered =
            self.providers.agent(inbound.link).map(|agent| agent.provider.on_result(id, is_to, result));
        match answered {
            Some(Answered::Taken) => Ok(()),
            // PROTOCOL 8: dropped, audited, and said to the provider.
            Some(Answered::Unknown) | None => {
                self.account.audit_agents_surplus(inbound.link, id, self.table.answered(*id));
                Err(Refusal::new(Code::BAD_REQUEST, "no call with this id waits for a result"))
            }
        }
    }

    /// Whose call an agent's answer may end: that of the caller it is addressed to. An answer to the sidecar itself is for
    /// whoever made the call.
    fn answered_by(&self, inbound: &Inbound<'_>) -> impl Fn(&Did) -> bool {
        let is_ours = inbound.is_for(self.ctx.did());
        move |caller| is_ours || inbound.is_for(caller)
    }

    /// ERROR from an agent that serves: it refuses the call.
    pub(in crate::daemon) fn on_agent_error(
        &self,
        inbound: &Inbound<'_>,
        id: &MessageId,
        error: &ErrorBody<'_>,
    ) {
        if let Some(agent) = self.providers.agent(inbound.link) {
            let is_to = self.answered_by(inbound);
            agent.provider.on_error(id, is_to, error.code, error.message.to_string());
        }
    }

    /// PROCESSING, PROGRESS, INPUT_REQUIRED from an agent that serves.
    pub(in crate::daemon) fn on_agent_progress(
        self: &Arc<Self>,
        inbound: &Inbound<'_>,
        id: &MessageId,
        typ: Type,
    ) {
        let is_to = self.answered_by(inbound);
        let call = self.providers.agent(inbound.link).and_then(|agent| agent.provider.call_of(id, is_to));
        if let Some(key) = call {
            self.relay_progress(&key, typ, inbound.body);
        }
    }

    /// PROTOCOL 7.2: closing the link withdraws what was declared on it.
    pub(in crate::daemon) fn withdraw(&self, link: &Link) {
        let Some(agent) = lock(&self.providers.agents).remove(&link.id()) else { return };
        lock(&self.providers.serving).remove(&agent.id);
        self.own.serve(&self.directory.registry, Event::Gone(Origin::Local(agent.id)));
        agent.provider.on_close();
    }
}

/// Serves nothing under a limit that nobody could keep.
fn check_rate(descriptor: &Descriptor) -> Result<(), Refusal> {
    let Some(RateLimit { requests, period, burst }) = &descriptor.rate_limit else { return Ok(()) };
    Rate::new(*requests, period, *burst).map(drop).map_err(|error| {
        Refusal::new(Code::BAD_REQUEST, format!("`rate_limit` of {}: {error}", descriptor.id))
    })
}

/// Processes of one capability at once, unless its declaration says otherwise.
const PROCESSES_DEFAULT: usize = 4;
/// Requests of one capability at once, unless its declaration says otherwise.
const REQUESTS_DEFAULT: usize = 64;
/// Calls that wait for a process, or for a request, of one capability.
const PROCESS_QUEUE_MAX: usize = 1_024;
