//! Invocations in; two answers to each, answers to calls that were never given to it, and no manners, out.
//!
//! The client library lets nobody answer twice, so this agent writes its messages by hand.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use capd::net::{CloseReason, Host, Link, Route, Service, Settings, Spawn, System, Udp, local};
use capd_proto::cbor::json::{from_json, to_json};
use capd_proto::code::Code;
use capd_proto::envelope::{Draft, Envelope, Ext, MessageId, Recipients};
use capd_proto::message::{CapResult, Declare, Descriptor, ErrorBody, Invoke, Type};
use serde_json::json;
use tokio::time::sleep;

use super::machine::{Machine, World};
use super::plan::Plan;
use super::process::Process;
use super::provider::{ONCE, SCHEMAS, descriptors};

/// An agent that serves what a [`super::provider::Provider`] does, and breaks every rule about answers.
#[derive(Clone)]
pub struct Rude(Arc<Agent>);

struct Agent {
    machine: Arc<Machine>,
    world: World,
    descriptors: Vec<Descriptor>,
    process: Process,
    system: System,
    /// Whether it remembers ids, in the store that all providers share.
    remembers: bool,
    executions: AtomicU64,
}

impl Rude {
    pub fn new(machine: &Arc<Machine>, plan: &Plan, world: &World) -> Self {
        let process = Process::start(&world.panics);
        Self(Arc::new(Agent {
            machine: Arc::clone(machine),
            world: world.clone(),
            descriptors: descriptors(plan.retry_ms, plan.requires.then_some(SCHEMAS[0]), plan.remembers),
            system: process.system(&machine.wall, world.dice.u64(), Udp::real()),
            process,
            remembers: plan.remembers,
            executions: AtomicU64::new(0),
        }))
    }

    /// Serves, and again when the link is lost, for ever.
    pub async fn run(self) {
        loop {
            let stream = self.0.machine.dial().await;
            let host = Host::agent(Settings::default(), Arc::new(self.clone()), self.0.system.clone());
            if let Ok(link) = local::connect_stream(&host, stream).await {
                let raw = self.0.descriptors.iter().map(Descriptor::as_bytes).collect();
                let mut body = Vec::new();
                Declare::new(raw, None).encode(&mut body);
                // A link that takes no message is closing, which is waited for next.
                let _sent = link.notify(self.message(&link, Type::CapDeclare, None, &body));
                link.closed().await;
            }
            sleep(Duration::from_millis(20)).await;
        }
    }

    /// Ends the agent for good.
    pub fn end(&self) {
        self.0.process.kill();
    }

    fn message(&self, link: &Link, typ: Type, reply_to: Option<MessageId>, body: &[u8]) -> Bytes {
        let did = link.principal().as_str();
        let id = MessageId::new(self.0.machine.wall.now_ms(), self.0.world.dice.u64().to_be_bytes());
        let draft = Draft {
            id,
            typ: typ.code(),
            ts: id.ts_ms(),
            ttl: 60_000,
            from: did,
            to: Recipients::one(did),
            reply_to: reply_to.as_ref().map(|id| id.as_bytes().as_slice()),
            thread_id: None,
            body,
            ext: Ext::None,
        };
        let mut bytes = Vec::new();
        draft.write_unsigned(&mut bytes);
        bytes.into()
    }

    /// Answers a call as it should be answered, and then as it should not.
    async fn answer(self, link: Arc<Link>, route: Route, id: MessageId, outcome: Vec<u8>) {
        let dice = self.0.world.dice.fork();
        sleep(Duration::from_millis(dice.within(0..40))).await;
        let result = |result: &[u8]| {
            let mut body = Vec::new();
            CapResult::success(result).encode(&mut body);
            body
        };
        let mut refusal = Vec::new();
        ErrorBody::new(Code::UNAVAILABLE, "or rather not").encode(&mut refusal);
        let mut forged = Vec::new();
        from_json(&json!("nobody executed this"), &mut forged);
        let unknown = MessageId::new(id.ts_ms(), dice.u64().to_be_bytes());
        let mut answers = vec![
            (Type::CapResult, id, result(&outcome)),
            (Type::CapResult, id, result(&forged)),
            (Type::Error, id, refusal),
            (Type::CapResult, unknown, result(&forged)),
        ];
        if dice.chance(300) {
            // The unasked one comes first.
            answers.rotate_right(1);
        }
        for (typ, reply_to, body) in answers {
            // The link may have gone.
            let _sent = route.send(self.message(&link, typ, Some(reply_to), &body));
            sleep(Duration::from_millis(dice.pick(&[0, 0, 5, 200]))).await;
        }
    }
}

impl Service for Rude {
    fn on_open(&self, _link: &Arc<Link>) {}

    fn on_message(&self, link: &Arc<Link>, route: &Route, payload: Bytes) {
        let Ok(envelope) = Envelope::decode(&payload) else { return };
        let Some(body) = envelope.body().filter(|_| envelope.typ == Type::CapInvoke.code()) else { return };
        let Ok(invoke) = Invoke::decode(body) else { return };
        let number = to_json(invoke.params).ok().and_then(|params| params["call"].as_u64());
        let number = number.unwrap_or(u64::MAX);
        let execution = self.0.executions.fetch_add(1, Ordering::Relaxed);
        let is_once = invoke.id.as_deref() == Some(ONCE);
        let outcome = if is_once {
            json!({"call": number, "execution": execution, "rude": self.0.machine.index})
        } else {
            json!({"call": number})
        };
        let mut bytes = Vec::new();
        from_json(&outcome, &mut bytes);
        if is_once && self.0.remembers {
            bytes = self.0.world.remembered(envelope.id, bytes);
        }
        let name = format!("the rude provider beside sidecar {}", self.0.machine.index);
        self.0.world.oracle.executes(number, envelope.id, &name, &bytes);
        let answering = self.clone().answer(Arc::clone(link), route.clone(), envelope.id, bytes);
        self.0.process.spawn(Box::pin(answering));
    }

    fn on_reset(&self, _link: &Arc<Link>, _route: &Route) {}

    fn on_close(&self, _link: &Arc<Link>, _reason: &CloseReason) {}
}
