//! Answers what clients ask: a method and its params in; a document, or a stream of updates, out.

use std::sync::Arc;

use a2a::{
    A2AError, CancelTaskRequest, GetTaskRequest, ListTasksRequest, ListTasksResponse, SendMessageRequest,
    SendMessageResponse, SubscribeToTaskRequest, methods,
};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::Server;
use super::message::{ask, invalid};
use super::task::Task;
use super::tasks::Sender;

/// What a request is answered with.
pub(super) enum Reply {
    /// At once.
    Document(Value),
    /// The task's updates, until it ends.
    Stream(Arc<Task>),
}

impl Server {
    /// Answers a method of the protocol.
    ///
    /// **Errors:** those of the protocol.
    pub(super) async fn answer(&self, caller: &str, method: &str, params: Value) -> Result<Reply, A2AError> {
        match method {
            methods::SEND_MESSAGE => self.send(caller, read(params)?).await,
            methods::SEND_STREAMING_MESSAGE => Ok(Reply::Stream(self.begin(caller, &read(params)?).await?)),
            methods::GET_TASK => self.get_task(caller, &read(params)?).await,
            methods::LIST_TASKS => self.list_tasks(caller, &read(params)?).await,
            methods::CANCEL_TASK => self.cancel_task(caller, &read(params)?).await,
            methods::SUBSCRIBE_TO_TASK => self.subscribe(caller, &read(params)?),
            methods::CREATE_PUSH_CONFIG
            | methods::GET_PUSH_CONFIG
            | methods::LIST_PUSH_CONFIGS
            | methods::DELETE_PUSH_CONFIG => Err(A2AError::push_notification_not_supported()),
            methods::GET_EXTENDED_AGENT_CARD => Err(A2AError::unsupported_operation(
                "there is no extended card; the public one lists every skill",
            )),
            unknown => {
                Err(A2AError::method_not_found(&unknown.chars().take(METHOD_SHOWN_MAX).collect::<String>()))
            }
        }
    }

    async fn send(&self, caller: &str, request: SendMessageRequest) -> Result<Reply, A2AError> {
        let task = self.begin(caller, &request).await?;
        let returns_at_once =
            request.configuration.and_then(|chosen| chosen.return_immediately) == Some(true);
        if !returns_at_once {
            let mut status = task.status.subscribe();
            // The table holds the other end.
            let _ = status.wait_for(super::task::Status::is_settled).await;
        }
        let status = self.tasks.whole(&task).await;
        document(&SendMessageResponse::Task(task.wire(&status, true)))
    }

    async fn begin(&self, caller: &str, request: &SendMessageRequest) -> Result<Arc<Task>, A2AError> {
        check_tenant(request.tenant.as_deref())?;
        if request.configuration.as_ref().is_some_and(|chosen| chosen.task_push_notification_config.is_some())
        {
            return Err(A2AError::push_notification_not_supported());
        }
        if let Some(id) = &request.message.task_id {
            self.tasks.get(caller, id)?;
            return Err(A2AError::unsupported_operation(format!(
                "task {id} is one call and takes no further message; send a message without taskId"
            )));
        }
        let ask = ask(request, &self.catalog, &self.sidecar).await?;
        let sender = Sender {
            caller: caller.to_owned(),
            message: request.message.message_id.clone(),
            context: request.message.context_id.clone(),
        };
        self.tasks.begin(sender, ask).await
    }

    async fn get_task(&self, caller: &str, request: &GetTaskRequest) -> Result<Reply, A2AError> {
        check_tenant(request.tenant.as_deref())?;
        check_history(request.history_length)?;
        let task = self.tasks.get(caller, &request.id)?;
        let status = self.tasks.whole(&task).await;
        document(&task.wire(&status, true))
    }

    async fn cancel_task(&self, caller: &str, request: &CancelTaskRequest) -> Result<Reply, A2AError> {
        check_tenant(request.tenant.as_deref())?;
        let task = self.tasks.get(caller, &request.id)?;
        self.tasks.cancel(&task).await?;
        let status = self.tasks.whole(&task).await;
        document(&task.wire(&status, true))
    }

    fn subscribe(&self, caller: &str, request: &SubscribeToTaskRequest) -> Result<Reply, A2AError> {
        check_tenant(request.tenant.as_deref())?;
        let task = self.tasks.get(caller, &request.id)?;
        if task.status.borrow().state.is_terminal() {
            return Err(A2AError::unsupported_operation(format!(
                "task {} has ended; ask for it with GetTask",
                request.id
            )));
        }
        Ok(Reply::Stream(task))
    }

    async fn list_tasks(&self, caller: &str, request: &ListTasksRequest) -> Result<Reply, A2AError> {
        check_tenant(request.tenant.as_deref())?;
        check_history(request.history_length)?;
        let size = request.page_size.unwrap_or(PAGE_DEFAULT);
        if !(1..=PAGE_MAX).contains(&size) {
            return Err(invalid("pageSize", &format!("{size}; accepted: 1 to {PAGE_MAX}")));
        }
        let after = request.page_token.as_deref().filter(|token| !token.is_empty()).map(place).transpose()?;
        let since =
            request.status_timestamp_after.map(|time| u64::try_from(time.timestamp_millis()).unwrap_or(0));
        let mut found: Vec<_> = self.tasks.of(caller).into_iter().map(|task| (key(&task), task)).collect();
        found.retain(|((at_ms, _), task)| {
            request.context_id.as_ref().is_none_or(|context| *context == task.record.context)
                && request.status.as_ref().is_none_or(|state| *state == task.status.borrow().state)
                && since.is_none_or(|since| *at_ms > since)
        });
        // The task that changed last comes first.
        found.sort_by(|(a, _), (b, _)| b.cmp(a));
        let total = found.len();
        let size_of_page = usize::try_from(size).unwrap_or(usize::MAX);
        let mut rest =
            found.into_iter().filter(|(key, _)| after.as_ref().is_none_or(|after| key < after)).peekable();
        let (mut tasks, mut last) = (Vec::new(), None);
        for (key, task) in rest.by_ref().take(size_of_page) {
            let with_artifacts = request.include_artifacts == Some(true);
            let status =
                if with_artifacts { self.tasks.whole(&task).await } else { task.status.borrow().clone() };
            tasks.push(task.wire(&status, with_artifacts));
            last = Some(key);
        }
        let next = rest.peek().and(last).map(|(at_ms, id)| format!("{at_ms}.{id}"));
        let total_size = i32::try_from(total).unwrap_or(i32::MAX);
        let page_size = i32::try_from(tasks.len()).unwrap_or(i32::MAX);
        document(&ListTasksResponse {
            tasks,
            next_page_token: next.unwrap_or_default(),
            page_size,
            total_size,
        })
    }
}

/// When a task changed last, and its id.
fn key(task: &Task) -> (u64, String) {
    (task.status.borrow().at_ms, task.record.task.clone())
}

fn place(token: &str) -> Result<(u64, String), A2AError> {
    let read = token.split_once('.').and_then(|(at, id)| Some((at.parse().ok()?, id.to_owned())));
    read.ok_or_else(|| invalid("pageToken", "it is not of a page of this list"))
}

fn check_tenant(tenant: Option<&str>) -> Result<(), A2AError> {
    match tenant {
        None | Some("") => Ok(()),
        Some(_) => Err(invalid("tenant", "there are no tenants here; leave it out")),
    }
}

fn check_history(length: Option<i32>) -> Result<(), A2AError> {
    match length {
        Some(length) if length < 0 => {
            Err(invalid("historyLength", &format!("{length}; accepted: 0 or more")))
        }
        _ => Ok(()),
    }
}

fn read<T: DeserializeOwned>(params: Value) -> Result<T, A2AError> {
    serde_json::from_value(params).map_err(|error| A2AError::invalid_params(error.to_string()))
}

fn document(content: &impl Serialize) -> Result<Reply, A2AError> {
    let content = serde_json::to_value(content).map_err(|error| A2AError::internal(error.to_string()))?;
    Ok(Reply::Document(content))
}

/// Tasks on a page. **Source:** A2A 1.0, list tasks.
const PAGE_DEFAULT: i32 = 50;
const PAGE_MAX: i32 = 100;
const METHOD_SHOWN_MAX: usize = 64;
