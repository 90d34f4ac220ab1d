//! Serves calls by a command: invocations in, one process each, outcomes out. Implements [`Provider`].

use std::collections::HashMap;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use capd_proto::cbor::json;
use capd_proto::code::Code;
use tokio_util::sync::CancellationToken;

use super::{Denial, Process, ProcessCall, ProcessError, ProcessSpec};
use crate::provider::ticket::Ticket;
use crate::provider::{CallKey, Invocation, Outcome, Provider};

/// A capability that is served by running its command once per call.
pub struct ProcessProvider {
    process: Arc<Process>,
    running: Arc<Mutex<HashMap<CallKey, CancellationToken>>>,
    spawn: Spawn,
}

/// Runs a task to its end.
pub type Spawn = Box<dyn Fn(Pin<Box<dyn Future<Output = ()> + Send>>) + Send + Sync>;

impl ProcessProvider {
    /// A provider for `spec`; `spawn` runs a task for each of its processes.
    pub fn new(spec: ProcessSpec, spawn: Spawn) -> Self {
        Self { process: Arc::new(Process::new(spec)), running: Arc::default(), spawn }
    }
}

impl Provider for ProcessProvider {
    fn invoke(&self, invocation: Invocation, ticket: Ticket) {
        let cancel = CancellationToken::new();
        let (process, running) = (Arc::clone(&self.process), Arc::clone(&self.running));
        lock(&running).insert(invocation.key.clone(), cancel.clone());
        (self.spawn)(Box::pin(async move {
            let outcome = run(&process, &invocation, &cancel).await;
            lock(&running).remove(&invocation.key);
            ticket.finish(outcome);
        }));
    }

    fn cancel(&self, key: &CallKey) {
        if let Some(cancel) = lock(&self.running).get(key) {
            cancel.cancel();
        }
    }

    fn in_flight(&self) -> usize {
        lock(&self.running).len()
    }

    fn denial(&self) -> Option<Denial> {
        self.process.denial()
    }
}

async fn run(process: &Process, invocation: &Invocation, cancel: &CancellationToken) -> Outcome {
    let input = match json::to_json(&invocation.params) {
        Ok(params) => params.to_string().into_bytes(),
        Err(error) => return failure(Code::SCHEMA_VIOLATION, error.to_string()),
    };
    let (id, capability) = (invocation.key.id.to_string(), invocation.capability.to_string());
    let call = ProcessCall {
        id: &id,
        capability: &capability,
        caller: invocation.key.from.as_str(),
        input,
        deadline: invocation.deadline,
    };
    match process.run(call, cancel).await {
        Ok(output) => match serde_json::from_slice(&output) {
            Ok(value) => {
                let mut result = Vec::with_capacity(output.len());
                json::from_json(&value, &mut result);
                Outcome::Success(Bytes::from(result))
            }
            Err(error) => failure(
                Code::INTERNAL_ERROR,
                format!("the provider's output is not one JSON document: {error}"),
            ),
        },
        // The call has ended already, and this end of its process is no answer but our own doing.
        Err(ProcessError::Cancelled | ProcessError::Timeout) if cancel.is_cancelled() => Outcome::Lost,
        Err(error) => failure(error.code(), error.to_string()),
    }
}

fn failure(code: Code, message: String) -> Outcome {
    Outcome::Failure { code, message }
}

fn lock(
    running: &Mutex<HashMap<CallKey, CancellationToken>>,
) -> MutexGuard<'_, HashMap<CallKey, CancellationToken>> {
    running.lock().unwrap_or_else(PoisonError::into_inner)
}
