//! One call of an imported skill: an invocation in; its one result, with the truth of what ran, out.
//!
//! The call's id is the message's. A stream that breaks is asked about with GetTask before anything else. A message goes out
//! again only where the agent promises that it runs once, or its owner says that running it twice does no harm.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use capd_bridge::import::served::{Served, not_executed};
use capd_client::{Invocation, WireError};
use capd_proto::code::Code;
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::time::{sleep, sleep_until, timeout};

use super::agent::Skill;
use super::outcome::{Next, of_message, of_task};
use super::remote::{Remote, RemoteError, Said, Verb};

/// The agent as its card was last; none before it was read.
pub(super) type Current = watch::Receiver<Option<Arc<Remote>>>;

/// Makes a call.
///
/// **Errors:** 5002 when the agent has not run it, 5902 when it may have, 5001 when it failed, 5003 when its time ran out.
pub(super) async fn call(
    served: &Served,
    mut current: Current,
    invocation: Invocation,
) -> Result<Bytes, WireError> {
    let params = invocation.json()?;
    let (deadline, cancelled) = (invocation.deadline, invocation.cancelled.clone());
    let mut under_way = UnderWay { served, invocation: &invocation, remote: None, task: None };
    let ended = tokio::select! {
        biased;
        () = cancelled.cancelled() => None,
        ended = under_way.run(&params, &mut current) => Some(ended),
        () = sleep_until(deadline) => None,
    };
    ended.unwrap_or_else(|| {
        under_way.cancel();
        Err(if cancelled.is_cancelled() {
            WireError::new(Code::CANCELLED, "the call was cancelled")
        } else {
            under_way.late()
        })
    })
}

/// A call, and how far it got.
struct UnderWay<'a> {
    served: &'a Served,
    invocation: &'a Invocation,
    remote: Option<Arc<Remote>>,
    /// The agent's task, once it has named it.
    task: Option<String>,
}

/// How one attempt ended.
enum Attempt {
    Ended(Result<Bytes, WireError>),
    /// Nothing was sent.
    NotSent(String),
    /// The connection broke, or the answer is none.
    Broken(String),
}

impl UnderWay<'_> {
    async fn run(&mut self, params: &Value, current: &mut Current) -> Result<Bytes, WireError> {
        let (mut not_sent, mut pause, mut may_have_run) = (0, PAUSE_MIN, false);
        // Once a message may have arrived, a later one that did not says nothing of it.
        let told = |error: WireError, may_have_run: bool| {
            if may_have_run && error.code == Code::UNAVAILABLE { unknown(&error.message) } else { error }
        };
        loop {
            let remote = known(current).await.map_err(|error| told(error, may_have_run))?;
            let name = &self.served.tool.name;
            let skill = remote.skills.get(name).cloned();
            let gone = || not_executed(format!("the agent no longer lists skill {name:?}"));
            let skill = skill.ok_or_else(|| told(gone(), may_have_run))?;
            self.remote = Some(Arc::clone(&remote));
            let broken = match self.attempt(&remote, &skill, params).await {
                Attempt::Ended(ended) => return ended.map_err(|error| told(error, may_have_run)),
                Attempt::NotSent(why) if not_sent >= NOT_SENT_MAX => {
                    return Err(told(not_executed(&why), may_have_run));
                }
                Attempt::NotSent(_) => {
                    not_sent += 1;
                    sleep(PAUSE_MIN * not_sent).await;
                    continue;
                }
                Attempt::Broken(why) => why,
            };
            if let Some(ended) = self.ask(&remote, &skill).await {
                return ended;
            }
            if !remote.promises && !self.served.is_idempotent {
                return Err(unknown(&broken));
            }
            may_have_run = true;
            self.task = None;
            sleep(pause).await;
            pause = (pause * 2).min(PAUSE_MAX);
        }
    }

    /// Sends the message, and listens to what becomes of it.
    async fn attempt(&mut self, remote: &Remote, skill: &Skill, params: &Value) -> Attempt {
        let verb = if remote.streams { Verb::Stream } else { Verb::Send };
        let said = match remote.ask(verb, self.message(skill, params), &self.invocation.trace).await {
            Ok(said) => said,
            Err(error) => return of_error(error),
        };
        let mut stream = match said {
            Said::Document(document) => return self.hear(&document, skill).unwrap_or_else(still_running),
            Said::Updates(stream) => stream,
        };
        // What the stream has said of the task so far.
        let mut task = json!({});
        loop {
            let update = match stream.next().await {
                Ok(Some(data)) => remote.update(&data),
                Ok(None) => return still_running(),
                Err(error) => return Attempt::Broken(error.to_string()),
            };
            let update = match update {
                Ok(update) => update,
                // An error within a stream says how the stream ended, not how the task did.
                Err(error) => return Attempt::Broken(error.to_string()),
            };
            merge(&mut task, &update);
            let heard = if update.get("message").is_some() { &update } else { &json!({"task": task}) };
            if let Some(ended) = self.hear(heard, skill) {
                return ended;
            }
        }
    }

    /// What a response says; none while the task runs.
    fn hear(&mut self, response: &Value, skill: &Skill) -> Option<Attempt> {
        if let Some(message) = response.get("message") {
            return Some(Attempt::Ended(Ok(of_message(message))));
        }
        let task = response.get("task")?;
        if let Some(id) = task["id"].as_str() {
            self.task = Some(id.chars().take(TASK_ID_CHARS_MAX).collect());
        }
        self.next(task, skill).map(Attempt::Ended)
    }

    fn next(&self, task: &Value, skill: &Skill) -> Option<Result<Bytes, WireError>> {
        let reporter = &self.invocation.reporter;
        match of_task(task, skill.is_capability) {
            Next::End(ended) => Some(ended),
            Next::Input(prompt) => {
                // A report that is not sent is no reason to fail the call.
                let _ = reporter.input_required(&prompt);
                let message = format!("the agent asks for input that no agent can give here: {prompt}");
                // Behind another capd somebody else may give it.
                (!skill.is_capability).then(|| Err(WireError::new(Code::INTERNAL_ERROR, message)))
            }
            Next::Wait => {
                let facts = &task["metadata"][crate::extension::URI];
                match facts["pct"].as_u64().and_then(|pct| u8::try_from(pct).ok()) {
                    Some(pct) => drop(reporter.progress(pct)),
                    None => {
                        let said = task["status"]["message"]["parts"][0]["text"].as_str();
                        let said = said.map(|text| text.chars().take(SAID_CHARS_MAX).collect::<String>());
                        drop(reporter.processing(said.as_deref(), None));
                    }
                }
                None
            }
        }
    }

    /// Asks for the task until it has ended; none where the agent does not know it, or it was never named.
    async fn ask(&mut self, remote: &Remote, skill: &Skill) -> Option<Result<Bytes, WireError>> {
        let id = self.task.clone()?;
        let mut pause = PAUSE_MIN;
        loop {
            match remote.ask(Verb::Get, json!({"id": id}), &self.invocation.trace).await {
                Ok(Said::Document(task)) => {
                    if let Some(ended) = self.next(&task, skill) {
                        return Some(ended);
                    }
                }
                // It knows no such task: a restart has taken its memory.
                Err(RemoteError::Answered { code: TASK_NOT_FOUND | HTTP_NOT_FOUND, .. }) => return None,
                // Asking does no harm, so it goes on until the call's deadline.
                Ok(Said::Updates(_)) | Err(_) => {}
            }
            sleep(pause).await;
            pause = (pause * 2).min(PAUSE_MAX);
        }
    }

    fn message(&self, skill: &Skill, params: &Value) -> Value {
        let mut message = json!({"messageId": self.invocation.id.to_string(), "role": "ROLE_USER"});
        if skill.is_capability {
            message["parts"] =
                json!([{"data": {"capability": skill.id, "params": params}, "mediaType": JSON}]);
        } else {
            let text = params["text"].as_str().map(|text| json!({"text": text}));
            let data = params.get("data").map(|data| json!({"data": data, "mediaType": JSON}));
            let parts: Vec<_> = text.into_iter().chain(data).collect();
            message["parts"] = if parts.is_empty() { json!([{"text": ""}]) } else { parts.into() };
            message["metadata"] = json!({"skillId": skill.id});
            if let Some(context) = params["contextId"].as_str() {
                message["contextId"] = context.into();
            }
        }
        json!({"message": message, "configuration": {"returnImmediately": true}})
    }

    /// The end of a call whose time ran out.
    fn late(&self) -> WireError {
        if self.remote.is_some() && self.task.is_none() {
            let message = "the agent named no task in time; whether it runs the message is unknown";
            return WireError::new(Code::INTERRUPTED, message);
        }
        WireError::new(Code::TIMEOUT, "the agent did not answer in time")
    }

    /// Asks the agent to stop, without waiting.
    fn cancel(&self) {
        if let (Some(remote), Some(id)) = (self.remote.clone(), self.task.clone()) {
            let trace = self.invocation.trace.clone();
            tokio::spawn(async move {
                let asked = timeout(CANCEL_WAIT, remote.ask(Verb::Cancel, json!({"id": id}), &trace)).await;
                if !matches!(asked, Ok(Ok(_))) {
                    tracing::debug!(?asked, "the agent was not told of a cancelled task");
                }
            });
        }
    }
}

/// Takes an update of a stream into what is known of its task.
fn merge(task: &mut Value, update: &Value) {
    if let Some(whole) = update.get("task") {
        *task = whole.clone();
    } else if let Some(change) = update.get("statusUpdate") {
        task["id"] = change["taskId"].clone();
        task["contextId"] = change["contextId"].clone();
        task["status"] = change["status"].clone();
        if change["metadata"].is_object() {
            task["metadata"] = change["metadata"].clone();
        }
    } else if let Some(change) = update.get("artifactUpdate") {
        task["id"] = change["taskId"].clone();
        let artifact = &change["artifact"];
        let artifacts = match &mut task["artifacts"] {
            Value::Array(artifacts) => artifacts,
            other => {
                *other = json!([]);
                other.as_array_mut().expect("it was just made one")
            }
        };
        let at = artifacts.iter().position(|known| known["artifactId"] == artifact["artifactId"]);
        match at {
            None if artifacts.len() < ARTIFACTS_MAX => artifacts.push(artifact.clone()),
            None => {}
            Some(at) if change["append"] == true => {
                let (known, more) = (&mut artifacts[at]["parts"], artifact["parts"].as_array());
                if let (Value::Array(parts), Some(more)) = (known, more) {
                    parts.extend(more.iter().take(PARTS_MAX.saturating_sub(parts.len())).cloned());
                }
            }
            Some(at) => artifacts[at] = artifact.clone(),
        }
    }
}

/// The task was taken, and is asked for.
fn still_running() -> Attempt {
    Attempt::Broken("the agent's answer ended before the task did".to_owned())
}

fn of_error(error: RemoteError) -> Attempt {
    match error {
        RemoteError::NotSent(why) => Attempt::NotSent(why),
        RemoteError::Broken(why) => Attempt::Broken(why),
        error @ RemoteError::Answered { .. } if error.is_refusal() => {
            Attempt::Ended(Err(not_executed(error.to_string())))
        }
        // An error of its own says nothing about what ran before it.
        error @ RemoteError::Answered { .. } => Attempt::Broken(error.to_string()),
    }
}

/// The agent, once its card was read.
fn unknown(why: &str) -> WireError {
    WireError::new(Code::INTERRUPTED, format!("whether the agent ran the task is unknown: {why}"))
}

async fn known(current: &mut Current) -> Result<Arc<Remote>, WireError> {
    let wait = async {
        match current.wait_for(Option::is_some).await {
            Ok(remote) => remote.clone().ok_or_else(|| not_executed("the agent is not known")),
            Err(_) => Err(not_executed("the bridge is stopping")),
        }
    };
    let waited = timeout(CARD_WAIT, wait).await;
    waited.unwrap_or_else(|_| {
        Err(not_executed("the agent's card was not read yet; it is being asked for again"))
    })
}

const JSON: &str = "application/json";
/// **Source:** A2A 1.0, error codes.
const TASK_NOT_FOUND: i64 = -32_001;
const HTTP_NOT_FOUND: i64 = 404;
/// How long a call waits for a card that is being read.
const CARD_WAIT: Duration = Duration::from_secs(20);
const CANCEL_WAIT: Duration = Duration::from_secs(10);
/// How often a message is tried to be sent to an agent that takes no connections.
const NOT_SENT_MAX: u32 = 10;
/// Pauses between questions for a task, and before a message goes out again.
const PAUSE_MIN: Duration = Duration::from_millis(100);
const PAUSE_MAX: Duration = Duration::from_secs(2);
const TASK_ID_CHARS_MAX: usize = 256;
const SAID_CHARS_MAX: usize = 2_000;
/// Artifacts of a task, and parts of an artifact, that are kept.
const ARTIFACTS_MAX: usize = 1_000;
const PARTS_MAX: usize = 10_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn updates_of_a_stream_make_up_the_task() {
        let mut task = json!({});
        for update in [
            json!({"task": {"id": "t", "contextId": "c", "status": {"state": "TASK_STATE_SUBMITTED"}}}),
            json!({"artifactUpdate": {"taskId": "t", "artifact": {"artifactId": "a", "parts": [{"text": "1"}]}}}),
            json!({"artifactUpdate": {"taskId": "t", "append": true, "artifact": {"artifactId": "a", "parts": [{"text": "2"}]}}}),
            json!({"artifactUpdate": {"taskId": "t", "artifact": {"artifactId": "b", "parts": []}}}),
            json!({"statusUpdate": {"taskId": "t", "contextId": "c", "status": {"state": "TASK_STATE_COMPLETED"}}}),
        ] {
            merge(&mut task, &update);
        }
        let artifacts = json!([
            {"artifactId": "a", "parts": [{"text": "1"}, {"text": "2"}]},
            {"artifactId": "b", "parts": []},
        ]);
        assert_eq!(
            (&task["artifacts"], &task["status"]["state"]),
            (&artifacts, &json!("TASK_STATE_COMPLETED"))
        );
    }
}
