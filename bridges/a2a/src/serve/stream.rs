//! Tells a task's updates as server-sent events: a task in; its state at first, then each change until its end, out.

use std::sync::Arc;
use std::time::Duration;

use a2a::StreamResponse;
use bytes::Bytes;
use serde_json::Value;
use tokio::sync::mpsc;
use tokio::time::timeout;

use super::task::Task;

/// The events of a task, each put into `form`.
///
/// A reader that is slow misses states in between, never the end.
pub(super) fn events(
    task: Arc<Task>,
    form: impl Fn(Value) -> Value + Send + Sync + 'static,
) -> mpsc::Receiver<Bytes> {
    let (out, events) = mpsc::channel(EVENTS_MAX);
    let mut changes = task.status.subscribe();
    tokio::spawn(async move {
        let mut known = changes.borrow_and_update().clone();
        let mut updates = vec![StreamResponse::Task(task.wire(&known, true))];
        loop {
            for update in updates.drain(..) {
                let update = form(serde_json::to_value(update).unwrap_or_default());
                // JSON has no line ends between its quotes, so one line is one update.
                if out.send(format!("data: {update}\n\n").into()).await.is_err() {
                    return;
                }
            }
            if known.state.is_terminal() {
                return;
            }
            tokio::select! {
                () = out.closed() => return,
                changed = timeout(KEEP_ALIVE, changes.changed()) => match changed {
                    Ok(Ok(())) => {
                        let status = changes.borrow_and_update().clone();
                        updates = task.updates(&known, &status);
                        known = status;
                    }
                    Ok(Err(_)) => return,
                    Err(_) if out.send(Bytes::from_static(b":\n\n")).await.is_err() => return,
                    Err(_) => {}
                },
            }
        }
    });
    events
}

/// Events that wait for a slow reader.
const EVENTS_MAX: usize = 16;
/// How often a comment shows that the stream is alive.
const KEEP_ALIVE: Duration = Duration::from_secs(15);
