//! Sends what changes as one stream of events (`text/event-stream`).
//!
//! The next event is made when the connection takes it, from what there is then: a browser that is slow gets fewer events,
//! and nothing piles up for it.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::Arc;

use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::Response;
use bytes::Bytes;
use futures_util::stream::unfold;
use serde_json::{Value, json};
use tokio::sync::{Semaphore, SemaphorePermit, watch};

use super::Shown;
use super::fault::Fault;
use super::overview::Tick;

/// Two events a second: `overview`, and `calls` with the calls that are new or have changed.
///
/// **Errors:** 503 when too many streams are open.
pub(super) async fn events(State(shown): State<Arc<Shown>>) -> Result<Response, Fault> {
    let place = STREAMS.try_acquire().map_err(|_| {
        let detail = format!("{STREAMS_MAX} windows show this page already; close one");
        Fault::new(StatusCode::SERVICE_UNAVAILABLE, detail)
    })?;
    let stream = Stream { ticks: shown.watch.subscribe(), sent: BTreeMap::new(), _place: place };
    let pieces = unfold(stream, |mut stream| async move {
        let piece = stream.next().await?;
        Some((Ok::<_, Infallible>(piece), stream))
    });
    let mut response = Response::new(Body::from_stream(pieces));
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    Ok(response)
}

struct Stream {
    ticks: watch::Receiver<Arc<Tick>>,
    /// What was sent of each call that is still among the newest.
    sent: BTreeMap<String, u64>,
    _place: SemaphorePermit<'static>,
}

impl Stream {
    async fn next(&mut self) -> Option<Bytes> {
        self.ticks.changed().await.ok()?;
        let tick = Arc::clone(&self.ticks.borrow_and_update());
        let mut text = event("overview", &tick.overview);
        let changed = self.changed(&tick.calls);
        if !changed.is_empty() {
            text += &event("calls", &json!({"calls": changed}));
        }
        Some(text.into())
    }

    /// The calls that are new to this stream, or have changed.
    fn changed(&mut self, calls: &[(String, Value)]) -> Vec<Value> {
        let mut sent = BTreeMap::new();
        let mut changed = Vec::new();
        for (key, call) in calls {
            let mut hasher = DefaultHasher::new();
            call.to_string().hash(&mut hasher);
            let digest = hasher.finish();
            if self.sent.get(key) != Some(&digest) {
                changed.push(call.clone());
            }
            sent.insert(key.clone(), digest);
        }
        self.sent = sent;
        changed
    }
}

fn event(name: &str, data: &Value) -> String {
    format!("event: {name}\ndata: {data}\n\n")
}

/// Places for streams, of all pages of this process.
static STREAMS: Semaphore = Semaphore::const_new(STREAMS_MAX);
/// Streams that are open at once.
const STREAMS_MAX: usize = 8;

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_slow_reader_gets_the_present_and_only_what_changed() {
        let (sender, ticks) = watch::channel(Arc::new(Tick::default()));
        let place = STREAMS.acquire().await.unwrap();
        let mut stream = Stream { ticks, sent: BTreeMap::new(), _place: place };
        let tick = |at: u64, calls: &[(&str, u64)]| {
            let calls =
                calls.iter().map(|(key, state)| ((*key).to_owned(), json!({"id": key, "state": state})));
            Arc::new(Tick { overview: json!({"at_ms": at}), calls: calls.collect() })
        };
        let mut text = async |tick| {
            sender.send_replace(tick);
            String::from_utf8(stream.next().await.unwrap().to_vec()).unwrap()
        };
        let first = text(tick(1, &[("a", 1), ("b", 1)])).await;
        assert!(
            first.contains("\"at_ms\":1") && first.contains("\"id\":\"a\"") && first.contains("\"id\":\"b\"")
        );
        for at in 2..50 {
            sender.send_replace(tick(at, &[("a", 1), ("b", 2)]));
        }
        let next = text(tick(50, &[("a", 1), ("b", 3)])).await;
        assert!(next.contains("\"at_ms\":50") && next.contains("\"state\":3"), "{next}");
        assert!(!next.contains("\"id\":\"a\"") && !next.contains("\"state\":2"), "{next}");
        assert!(!text(tick(51, &[("a", 1), ("b", 3)])).await.contains("event: calls"));
    }
}
