//! Keeps the tasks: messages in, each a call at most once; tasks by id, by context and by state out.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use a2a::{A2AError, TaskState, new_task_id};
use capd_bridge::sidecar::Sidecar;
use capd_client::net::Clock;
use capd_client::proto::envelope::MessageId;
use capd_client::{CallOptions, ClientError, Event, TypedCall};
use serde_json::Value;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, timeout};

use super::message::Ask;
use super::record::{Ended, Known, Record, Records};
use super::task::{End, Status, Task};

/// The tasks of all callers.
pub(super) struct Tasks(Arc<Inner>);

struct Inner {
    sidecar: Arc<Sidecar>,
    clock: Clock,
    table: Mutex<Table>,
    running: Arc<Semaphore>,
}

struct Table {
    by_id: HashMap<String, Arc<Task>>,
    /// All tasks, oldest first.
    order: VecDeque<String>,
    /// Tasks whose ends are in memory, oldest first, and how much they take.
    ends: VecDeque<(String, usize)>,
    ends_bytes: usize,
    records: Records,
    /// Lines written since the file was written anew.
    lines: usize,
}

/// Who sent a message, and what it says of itself.
#[derive(Clone, Debug)]
pub(super) struct Sender {
    pub(super) caller: String,
    pub(super) message: String,
    pub(super) context: Option<String>,
}

impl Tasks {
    pub(super) fn new(sidecar: Arc<Sidecar>, records: Records, known: Vec<Known>) -> Self {
        let mut table = Table {
            by_id: HashMap::new(),
            order: VecDeque::new(),
            ends: VecDeque::new(),
            ends_bytes: 0,
            records,
            lines: 0,
        };
        let mut open = Vec::new();
        for (record, ended) in known {
            let status = match ended {
                Some(ended) => Status::new(ended.state, ended.at_ms),
                None => Status::new(TaskState::Submitted, record.made_ms),
            };
            let is_open = !status.state.is_terminal();
            let task = Task::new(record, status);
            open.extend(is_open.then(|| Arc::clone(&task)));
            table.insert(&task);
        }
        let running = Arc::new(Semaphore::new(RUNNING_MAX));
        let inner = Arc::new(Inner { sidecar, clock: Clock::start(), table: Mutex::new(table), running });
        // Calls go on without us; what came of them is the sidecar's to tell.
        for task in open {
            let inner = Arc::clone(&inner);
            tokio::spawn(async move {
                let Ok(place) = Arc::clone(&inner.running).acquire_owned().await else { return };
                inner.follow(&task, place).await;
            });
        }
        Self(inner)
    }

    /// The task of a message: made, or the one that it was before.
    ///
    /// **Errors:** -32603 where too many tasks run, or the sidecar does not answer.
    pub(super) async fn begin(&self, sender: Sender, ask: Ask) -> Result<Arc<Task>, A2AError> {
        let Ok(place) = Arc::clone(&self.0.running).try_acquire_owned() else {
            return Err(A2AError::internal(format!(
                "not executed: {RUNNING_MAX} tasks are running; send the same message again later"
            )));
        };
        let inner = Arc::clone(&self.0);
        // A task of its own: where the client hangs up, the call goes on, and is recorded.
        let begun = tokio::spawn(async move { inner.begin(sender, ask, place).await });
        begun.await.map_err(|error| A2AError::internal(error.to_string()))?
    }

    /// The task of this id, if it is the caller's.
    ///
    /// **Errors:** -32001.
    pub(super) fn get(&self, caller: &str, id: &str) -> Result<Arc<Task>, A2AError> {
        let task = self.0.table().by_id.get(id).cloned().filter(|task| task.record.caller == caller);
        task.ok_or_else(|| A2AError::task_not_found(&id.chars().take(ID_SHOWN_MAX).collect::<String>()))
    }

    /// The caller's tasks.
    pub(super) fn of(&self, caller: &str) -> Vec<Arc<Task>> {
        let table = self.0.table();
        table.by_id.values().filter(|task| task.record.caller == caller).cloned().collect()
    }

    /// The status, with what came of the task, which may have to be asked for.
    pub(super) async fn whole(&self, task: &Arc<Task>) -> Status {
        let status = task.status.borrow().clone();
        if !status.state.is_terminal() || status.end.is_some() {
            return status;
        }
        if let Ok(place) = Arc::clone(&self.0.running).acquire_owned().await {
            // Without an answer the status still says how it ended.
            let _ = timeout(ASK_WAIT, self.0.follow(task, place)).await;
        }
        task.status.borrow().clone()
    }

    /// Asks for a task's call to be cancelled, and waits a little for its end.
    ///
    /// **Errors:** -32002 for one that has ended; -32603 where the sidecar cannot be asked.
    pub(super) async fn cancel(&self, task: &Arc<Task>) -> Result<(), A2AError> {
        let id: Option<MessageId> = task.record.task.parse().ok();
        let id = id.filter(|_| !task.status.borrow().state.is_terminal());
        let id = id.ok_or_else(|| A2AError::task_not_cancelable(&task.record.task))?;
        let failed = |error: ClientError| A2AError::internal(format!("the sidecar cannot be asked: {error}"));
        let client = self.0.sidecar.client_by(Instant::now() + ASK_WAIT).await.map_err(failed)?;
        client.cancel(id).await.map_err(failed)?;
        let mut status = task.status.subscribe();
        // A provider that does not stop is still running, which the task says.
        let _ = timeout(CANCEL_WAIT, status.wait_for(|status| status.state.is_terminal())).await;
        Ok(())
    }
}

impl Inner {
    fn table(&self) -> MutexGuard<'_, Table> {
        // The table changes in single steps, so a panic leaves none half done.
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn begin(
        self: Arc<Self>,
        sender: Sender,
        ask: Ask,
        place: OwnedSemaphorePermit,
    ) -> Result<Arc<Task>, A2AError> {
        let begun = self.start(&sender, &ask).await;
        Ok(match begun {
            Ok((id, call)) => {
                let (task, is_new) = self.made(id, sender, ask.capability);
                if is_new {
                    let (inner, driven) = (Arc::clone(&self), Arc::clone(&task));
                    tokio::spawn(async move { inner.drive(&driven, call, true, place).await });
                }
                task
            }
            Err(error @ (ClientError::Refused(_) | ClientError::Result(_) | ClientError::Invalid(_))) => {
                self.refused(sender, ask.capability, &error)
            }
            // The same message may have run before, which only the sidecar knows.
            Err(error) => {
                return Err(A2AError::internal(format!(
                    "unknown whether the message was executed: {error}; send the same message again, it never runs twice"
                )));
            }
        })
    }

    async fn start(&self, sender: &Sender, ask: &Ask) -> Result<(MessageId, TypedCall<Value>), ClientError> {
        let client = self.sidecar.client_by(Instant::now() + ASK_WAIT).await?;
        let options = CallOptions {
            // A caller's name has no slash, so no two pairs have one key.
            key: Some(format!("a2a/{}/{}", sender.caller, sender.message)),
            thread: sender.context.clone(),
            ..CallOptions::default()
        };
        let mut call = client.start(&ask.capability, &ask.params, options)?;
        call.keep_on_drop();
        Ok((call.accepted().await?, call))
    }

    /// The task of a call that the sidecar has taken in, and whether it is new.
    fn made(&self, id: MessageId, sender: Sender, capability: String) -> (Arc<Task>, bool) {
        let mut table = self.table();
        let id = id.to_string();
        if let Some(task) = table.by_id.get(&id) {
            return (Arc::clone(task), false);
        }
        let now_ms = self.clock.wall_ms();
        let context = sender.context.unwrap_or_else(|| id.clone());
        let (caller, message) = (sender.caller, sender.message);
        let record = Record { task: id, caller, context, message, capability, made_ms: now_ms };
        let task = Task::new(record, Status::new(TaskState::Submitted, now_ms));
        table.records.made(&task.record);
        table.lines += 1;
        table.insert(&task);
        table.compact();
        (task, true)
    }

    /// A call that the sidecar refused: a task of this process alone, since nothing ran.
    fn refused(&self, sender: Sender, capability: String, error: &ClientError) -> Arc<Task> {
        let now_ms = self.clock.wall_ms();
        let id = new_task_id();
        let record = Record {
            context: sender.context.unwrap_or_else(|| id.clone()),
            task: id,
            caller: sender.caller,
            message: sender.message,
            capability,
            made_ms: now_ms,
        };
        let mut status = Status::new(TaskState::Submitted, now_ms);
        status.end(End::of(&Err(error.clone())), now_ms);
        log(&record, &status);
        let task = Task::new(record, status);
        let mut table = self.table();
        table.insert(&task);
        table.keep_end(&task);
        task
    }

    async fn drive(
        &self,
        task: &Arc<Task>,
        mut call: TypedCall<Value>,
        is_begun: bool,
        _place: OwnedSemaphorePermit,
    ) {
        call.keep_on_drop();
        // One that was begun here has been accepted already.
        let mut is_known = is_begun;
        while let Some(event) = call.event().await {
            is_known |= matches!(event, Event::Accepted { .. });
            task.status.send_modify(|status| status.hear(event, self.clock.wall_ms()));
        }
        let end = match call.answer().await {
            // The question was refused, which says nothing of the call.
            Err(ClientError::Refused(error)) if !is_known => End::forgotten(&error),
            outcome => End::of(&outcome),
        };
        self.ended(task, end);
    }

    /// Asks for a call that was made before.
    async fn follow(&self, task: &Arc<Task>, place: OwnedSemaphorePermit) {
        let Ok(id) = task.record.task.parse::<MessageId>() else { return };
        match self.sidecar.client_by(Instant::now() + LINK_WAIT).await {
            Ok(client) => self.drive(task, client.follow(id), false, place).await,
            Err(error) => {
                tracing::warn!(task = task.record.task, %error, "the sidecar was not asked for a task")
            }
        }
    }

    fn ended(&self, task: &Arc<Task>, end: End) {
        let was_open = !task.status.borrow().state.is_terminal();
        task.status.send_modify(|status| status.end(end, self.clock.wall_ms()));
        let status = task.status.borrow().clone();
        let mut table = self.table();
        if was_open {
            log(&task.record, &status);
            let ended = Ended { task: task.record.task.clone(), state: status.state, at_ms: status.at_ms };
            table.records.ended(&ended);
            table.lines += 1;
        }
        table.keep_end(task);
    }
}

impl Table {
    fn insert(&mut self, task: &Arc<Task>) {
        let id = task.record.task.clone();
        self.by_id.insert(id.clone(), Arc::clone(task));
        self.order.push_back(id);
        let mut looked_at = self.order.len();
        while self.order.len() > TASKS_MAX && looked_at > 0 {
            looked_at -= 1;
            let Some(oldest) = self.order.pop_front() else { return };
            let has_ended =
                self.by_id.get(&oldest).is_none_or(|task| task.status.borrow().state.is_terminal());
            if has_ended {
                self.by_id.remove(&oldest);
            } else {
                self.order.push_back(oldest);
            }
        }
    }

    /// Remembers a task's end, and forgets older ones when all take too much.
    fn keep_end(&mut self, task: &Arc<Task>) {
        let bytes = task.status.borrow().end.as_ref().map_or(0, |end| end.bytes);
        self.ends.push_back((task.record.task.clone(), bytes));
        self.ends_bytes += bytes;
        while self.ends_bytes > ENDS_BYTES_MAX && self.ends.len() > 1 {
            let Some((oldest, bytes)) = self.ends.pop_front() else { return };
            self.ends_bytes -= bytes;
            if let Some(task) =
                self.by_id.get(&oldest).filter(|task| task.record.task.parse::<MessageId>().is_ok())
            {
                task.status.send_if_modified(|status| {
                    status.end = None;
                    false
                });
            }
        }
    }

    /// Writes the record anew once most of it is of no use.
    fn compact(&mut self) {
        if self.lines < 4 * TASKS_MAX {
            return;
        }
        self.lines = 0;
        let tasks = self.order.iter().filter_map(|id| self.by_id.get(id));
        let known: Vec<Known> = tasks
            .filter(|task| task.record.task.parse::<MessageId>().is_ok())
            .map(|task| {
                let status = task.status.borrow();
                let (state, at_ms) = (status.state.clone(), status.at_ms);
                let ended =
                    state.is_terminal().then(|| Ended { task: task.record.task.clone(), state, at_ms });
                (task.record.clone(), ended)
            })
            .collect();
        self.records.rewrite(&known);
    }
}

fn log(record: &Record, status: &Status) {
    tracing::info!(
        task = record.task,
        caller = record.caller,
        message = record.message,
        capability = record.capability,
        state = ?status.state,
        ms = status.at_ms.saturating_sub(record.made_ms),
        "a task ended"
    );
}

/// Tasks that are running, or being asked for, at once.
const RUNNING_MAX: usize = 1_024;
/// Tasks that are remembered.
const TASKS_MAX: usize = 10_000;
/// Bytes of results that are remembered; the sidecar has the others.
const ENDS_BYTES_MAX: usize = 64 * 1024 * 1024;
/// How long a sidecar that is away is waited for while a client waits.
const ASK_WAIT: Duration = Duration::from_secs(5);
/// How long it is waited for where nobody does.
const LINK_WAIT: Duration = Duration::from_secs(3_600);
/// How long a cancelled call may take to end before its task is told as it is.
const CANCEL_WAIT: Duration = Duration::from_secs(5);
const ID_SHOWN_MAX: usize = 64;
