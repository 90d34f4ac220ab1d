//! Invocations in; executions that the oracle counts, and answers of all manners, out.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use capd::client::{Client, Invocation, Options, WireError};
use capd::net::{Spawn, Udp};
use capd_proto::cbor::json::{from_json, to_json};
use capd_proto::code::Code;
use capd_proto::message::{Descriptor, DescriptorDraft, HashAlg, RetryPolicy, SchemaRef, SchemaSource};
use serde_json::json;
use tokio::time::sleep;

use super::dice::Dice;
use super::machine::{Machine, World};
use super::plan::{Manners, Plan};
use super::process::Process;

/// The capability whose calls run once.
pub const ONCE: &str = "org.simulation.once:1.0.0";
/// The capability that is declared idempotent.
pub const LOOK: &str = "org.simulation.look:1.0.0";
/// What providers take that tell their schemas: whatever callers send, said in two ways.
pub const SCHEMAS: [&str; 2] = [
    r#"{"type":"object","required":["call"]}"#,
    r#"{"type":"object","properties":{"call":{"type":"integer","minimum":0}}}"#,
];
/// What agents say that they were built against.
pub const REQUIRES: &str = r#"{"version": 1, "requires": [
    {"name": "org.simulation.once", "version": "1.0.0", "inputSchema": {"type": "object", "properties":
        {"call": {"type": "integer", "minimum": 0}}, "required": ["call"], "additionalProperties": false}},
    {"name": "org.simulation.look", "inputSchema": {"type": "object", "properties":
        {"call": {"type": "integer", "minimum": 0}}, "required": ["call"], "additionalProperties": false}}
]}"#;

/// An agent that serves beside a machine's sidecar, started again after each crash.
pub struct Provider {
    machine: Arc<Machine>,
    world: World,
    manners: Manners,
    retry_ms: Option<u64>,
    /// Whether it declares schemas.
    is_told: bool,
    /// Whether it remembers ids.
    remembers: bool,
    /// The process that runs, or ran last.
    process: Mutex<Process>,
    executions: AtomicU64,
}

impl Provider {
    pub fn new(machine: &Arc<Machine>, plan: &Plan, world: &World) -> Arc<Self> {
        Arc::new(Self {
            machine: Arc::clone(machine),
            world: world.clone(),
            manners: plan.manners,
            retry_ms: plan.retry_ms,
            is_told: plan.requires,
            remembers: plan.remembers,
            process: Mutex::new(Process::start(&world.panics)),
            executions: AtomicU64::new(0),
        })
    }

    pub fn is_beside(&self, machine: usize) -> bool {
        self.machine.index == machine
    }

    /// Has the agent's process crash after so many more polls; after none it crashes at once.
    pub fn crash_in(&self, polls: u64) {
        let process = self.process();
        if polls == 0 {
            process.kill();
        } else {
            process.crash_at(process.polls() + polls);
        }
    }

    /// The agent's process, dead or alive.
    pub fn process(&self) -> Process {
        self.process.lock().expect("nobody panics with it").clone()
    }

    /// Ends the agent for good.
    pub fn end(&self) {
        self.process().kill();
    }

    /// Runs the agent, and again after each crash, for ever.
    pub async fn run(self: Arc<Self>) {
        loop {
            let process = self.process();
            process.spawn(Box::pin(Arc::clone(&self).serve(process.clone())));
            process.ended().await;
            *self.process.lock().expect("nobody panics with it") = Process::start(&self.world.panics);
            self.world
                .oracle
                .tell(None, || format!("the provider beside sidecar {} crashes", self.machine.index));
            sleep(Duration::from_millis(self.world.dice.within(1..400))).await;
        }
    }

    async fn serve(self: Arc<Self>, process: Process) {
        loop {
            let system = process.system(&self.machine.wall, self.world.dice.u64(), Udp::real());
            let stream = self.machine.dial().await;
            if let Ok(client) = Client::connect_stream(stream, Options::default(), system).await
                && self.offer(&client).await
            {
                client.closed().await;
            }
            sleep(Duration::from_millis(20)).await;
        }
    }

    async fn offer(self: &Arc<Self>, client: &Client) -> bool {
        let provider = Arc::clone(self);
        let handler = move |invocation| Arc::clone(&provider).execute(invocation);
        // Each time it may be another schema, which has to be proven again.
        let schema = self.is_told.then(|| self.world.dice.pick(&SCHEMAS));
        let served = descriptors(self.retry_ms, schema, self.remembers);
        client.serve(256, handler).is_ok() && client.declare(&served).await.is_ok()
    }

    /// Counted when the call arrives: from here on it may have taken effect.
    fn execute(self: Arc<Self>, invocation: Invocation) -> impl Future<Output = Result<Bytes, WireError>> {
        let number = to_json(&invocation.params).ok().and_then(|params| params["call"].as_u64());
        let number = number.unwrap_or(u64::MAX);
        let execution = self.executions.fetch_add(1, Ordering::Relaxed);
        let is_once = invocation.capability.to_string() == ONCE;
        let outcome = if is_once {
            // Two executions never give one result, so that the oracle can tell them apart.
            json!({"call": number, "execution": execution, "machine": self.machine.index})
        } else {
            json!({"call": number})
        };
        let mut bytes = Vec::new();
        from_json(&outcome, &mut bytes);
        if is_once && self.remembers {
            bytes = self.world.remembered(invocation.id, bytes);
        }
        let name = format!("the provider beside sidecar {}", self.machine.index);
        self.world.oracle.executes(number, invocation.id, &name, &bytes);
        answer(self.manners, self.world.dice.fork(), invocation, bytes.into())
    }
}

/// One of the manners of answering.
async fn answer(
    manners: Manners,
    dice: Dice,
    invocation: Invocation,
    outcome: Bytes,
) -> Result<Bytes, WireError> {
    if dice.chance(200) {
        // Whether the caller hears of it changes nothing.
        let _sent = invocation.reporter.progress(50);
    }
    if dice.chance(manners.silent_permille) {
        invocation.cancelled.cancelled().await;
    }
    let longest_ms = if dice.chance(manners.slow_permille) { 3_000 } else { 30 };
    sleep(Duration::from_millis(dice.within(0..longest_ms))).await;
    if dice.chance(manners.failing_permille) {
        return Err(WireError { code: Code::INTERNAL_ERROR, message: "as told".to_owned(), details: None });
    }
    Ok(outcome)
}

/// What every provider declares, with the schema of its params if it tells one.
pub fn descriptors(retry_ms: Option<u64>, schema: Option<&str>, remembers: bool) -> Vec<Descriptor> {
    let descriptor = |id: &str| descriptor(id, remembers, retry_ms, schema);
    vec![descriptor(ONCE), descriptor(LOOK)]
}

fn descriptor(id: &str, remembers: bool, retry_ms: Option<u64>, schema: Option<&str>) -> Descriptor {
    let mut draft = DescriptorDraft::new(id.parse().expect("a constant capability id"));
    draft.idempotent = Some(id == LOOK);
    draft.by_id = remembers && id == ONCE;
    draft.input_schema = schema
        .map(|schema| SchemaSource::Ref(Box::new(SchemaRef::inline(HashAlg::Sha256, schema.as_bytes()))));
    draft.retry_policy = retry_ms.map(|retry_ms| RetryPolicy {
        max_attempts: Some(5),
        backoff_multiplier: Some(2.0),
        initial_delay_ms: Some(retry_ms),
        max_delay_ms: Some(1_000),
        retry_on: Vec::new(),
    });
    draft.finish().expect("a descriptor with nothing special")
}
