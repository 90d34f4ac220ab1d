//! Tests the executor's table without a sidecar: which waiters wake when a call leaves it.

use std::task::Poll;
use std::time::Duration;

use bytes::Bytes;
use capd_proto::envelope::MessageId;
use capd_proto::identity::Identity;
use capd_proto::ledger::Limits;

use super::*;
use crate::provider::ticket::Ticket;

struct Idle;

impl Provider for Idle {
    fn invoke(&self, _invocation: Invocation, _ticket: Ticket) {}

    fn cancel(&self, _key: &CallKey) {}

    fn in_flight(&self) -> usize {
        0
    }
}

fn table() -> Table {
    let max = 16;
    let limits = Limits {
        calls_max: max,
        calls_per_peer_max: max,
        kept_bytes_max: max,
        kept_bytes_per_peer_max: max,
        idempotent_bytes_max: max,
        idempotent_bytes_per_peer_max: max,
    };
    Table::new(Ledger::new(limits))
}

fn running(key: &CallKey) -> Box<Running> {
    let invocation = Invocation {
        key: key.clone(),
        capability: "org.example.once:1.0.0".parse().unwrap(),
        names_id: true,
        envelope: Bytes::new(),
        params: Bytes::new(),
        deadline: tokio::time::Instant::now() + Duration::from_secs(60),
    };
    Box::new(Running {
        machine: Machine::new(false, 60_000),
        stage: Stage::Recording { waiting: None },
        row: Some(Row(1)),
        invocation,
        params_bytes: 0,
        session: None,
        traced: Traced::default(),
        timeline: Timeline::default(),
        serving: Serving { provider: Arc::new(Idle), others: Candidates::new(), output: None },
        is_deprecated: false,
        signed: false,
        moments: Moments { expires_at_ms: 60_000, started_us: 0, deadline_ms: 60_000 },
    })
}

#[tokio::test]
async fn a_call_that_the_journal_refuses_wakes_a_shutdown_that_waits_for_it() {
    let table = table();
    let from = Identity::from_seed([1; 32]).did().clone();
    let key = CallKey { from, id: MessageId([1; 16]) };
    lock(&table.calls).start(key.clone(), running(&key));
    let mut idle = std::pin::pin!(table.idle());
    assert_eq!(polled(idle.as_mut()).await, Poll::Pending);
    table.take_back(&key);
    assert_eq!(polled(idle.as_mut()).await, Poll::Ready(()), "it sleeps out its drain");
}

/// Polls once, as an executor does that was woken.
async fn polled<F: Future + Unpin>(mut work: F) -> Poll<F::Output> {
    std::future::poll_fn(|context| Poll::Ready(std::pin::Pin::new(&mut work).poll(context))).await
}
