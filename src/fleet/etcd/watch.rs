//! All watches on one stream of etcd's: what is to be watched in, changes out.
//!
//! ```text
//!   add ──► wanted ──► asked ──► started ──► reports
//!             │          │          │
//!             └──────────┴──────────┴── remove: cancelled, nothing more
//!                                   └── stream over, cancelled by etcd, went back: Ended
//! ```
//!
//! Nothing is taken up again: what has ended is listed again by the machine.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use capd_proto::fleet::engine::{Change, Revision};
use capd_proto::fleet::machine::WatchId;
use capd_proto::fleet::{Cell, Prefix};
use futures_util::stream::unfold;
use tokio::sync::{Notify, mpsc};
use tokio::time::timeout;
use tonic::Streaming;

use super::api::etcdserverpb::maintenance_client::MaintenanceClient;
use super::api::etcdserverpb::watch_client::WatchClient;
use super::api::etcdserverpb::watch_request::RequestUnion;
use super::api::etcdserverpb::{
    StatusRequest, WatchCancelRequest, WatchCreateRequest, WatchProgressRequest, WatchRequest, WatchResponse,
};
use super::api::mvccpb::event::EventType;
use super::ask::{header, item, range, revision, signed, store_id};
use super::status::Failure;
use super::{ASK_TIME, MESSAGE_BYTES_MAX, Shared, led};
use crate::fleet::engine::Report;

/// What is to be watched, and where each watch stands.
#[derive(Debug, Default)]
pub(super) struct Watches {
    table: Mutex<Table>,
    wake: Notify,
}

#[derive(Debug, Default)]
struct Table {
    /// By the number that etcd knows a watch by.
    watches: BTreeMap<i64, Watch>,
    numbers: BTreeMap<WatchId, i64>,
    last_number: i64,
    /// Asked for and not answered yet, in order.
    unanswered: VecDeque<i64>,
    /// Not asked for yet.
    unasked: BTreeSet<i64>,
    /// To be cancelled.
    gone: VecDeque<i64>,
    is_probed: bool,
}

#[derive(Debug)]
struct Watch {
    id: WatchId,
    first: Bytes,
    end: Bytes,
    after: Revision,
    /// That of the last response.
    seen: Revision,
}

impl Watches {
    pub(super) fn add(&self, id: WatchId, prefix: &Prefix, cell: &Cell, after: Revision) {
        let (first, end) = range(prefix, cell);
        let mut table = self.table();
        table.last_number += 1;
        let number = table.last_number;
        table.watches.insert(number, Watch { id, first, end, after, seen: Revision(0) });
        table.numbers.insert(id, number);
        table.unasked.insert(number);
        drop(table);
        self.wake.notify_one();
    }

    pub(super) fn remove(&self, id: WatchId) {
        let mut table = self.table();
        let Some(number) = table.numbers.remove(&id) else { return };
        table.watches.remove(&number);
        if !table.unasked.remove(&number) {
            table.gone.push_back(number);
        }
        drop(table);
        self.wake.notify_one();
    }

    pub(super) fn probe(&self) {
        self.table().is_probed = true;
        self.wake.notify_one();
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reports for as long as it is polled.
    pub(super) async fn report(&self, shared: &Shared, to: mpsc::Sender<Report>) {
        loop {
            while self.table().watches.is_empty() {
                self.wake.notified().await;
            }
            let (channel, number) = shared.channel();
            let failure = tokio::select! {
                over = self.carry(shared, channel, &to) => over,
                () = shared.replaced(number) => Some(Failure::Missing("the watches of a former connection")),
            };
            let Some(failure) = failure else { return };
            shared.note_silence(number, format!("watches ended: {failure}"));
            let ended = self.table().end_all();
            for id in ended {
                if to.send((id, Change::Ended)).await.is_err() {
                    return;
                }
            }
        }
    }

    /// Carries one stream to its end. `None` where nobody takes reports any more.
    async fn carry(
        &self,
        shared: &Shared,
        channel: tonic::transport::Channel,
        to: &mpsc::Sender<Report>,
    ) -> Option<Failure> {
        let (requests, queue) = mpsc::channel(REQUESTS_MAX);
        // etcd says nothing before the first request, not even that the stream is open.
        let mut is_all_said = self.fill(&requests);
        let queue = unfold(queue, |mut queue| async { queue.recv().await.map(|request| (request, queue)) });
        let mut client = WatchClient::new(channel.clone()).max_decoding_message_size(MESSAGE_BYTES_MAX);
        let mut responses = match timeout(ASK_TIME, client.watch(led(queue))).await {
            Ok(Ok(responses)) => responses.into_inner(),
            Ok(Err(status)) => return Some(status.into()),
            Err(_) => return Some(Failure::Silence(ASK_TIME)),
        };
        let mut status = Box::pin(version(channel));
        let mut is_asked = false;
        let mut store = None;
        loop {
            tokio::select! {
                biased;
                version = &mut status, if !is_asked => {
                    is_asked = true;
                    if version.is_some() {
                        shared.health().version = version;
                    }
                }
                () = self.wake.notified() => is_all_said = self.fill(&requests),
                Ok(permit) = requests.reserve(), if !is_all_said => {
                    match self.table().next_request() {
                        Some(request) => permit.send(request),
                        None => is_all_said = true,
                    }
                }
                response = next(&mut responses) => {
                    let reports = match response.and_then(|response| self.table().take(response, &mut store)) {
                        Ok(reports) => reports,
                        Err(failure) => return Some(failure),
                    };
                    for report in reports {
                        to.send(report).await.ok()?;
                    }
                }
            }
        }
    }

    /// Says as much as there is room for; whether that is all.
    fn fill(&self, requests: &mpsc::Sender<WatchRequest>) -> bool {
        let mut table = self.table();
        while let Ok(permit) = requests.try_reserve() {
            match table.next_request() {
                Some(request) => permit.send(request),
                None => return true,
            }
        }
        false
    }
}

impl Table {
    fn next_request(&mut self) -> Option<WatchRequest> {
        let union = if let Some(number) = self.gone.pop_front() {
            RequestUnion::CancelRequest(WatchCancelRequest { watch_id: number })
        } else if let Some(number) = self.unasked.pop_first() {
            self.unanswered.push_back(number);
            RequestUnion::CreateRequest(self.watches.get(&number)?.request(number))
        } else if std::mem::take(&mut self.is_probed) {
            RequestUnion::ProgressRequest(WatchProgressRequest {})
        } else {
            return None;
        };
        Some(WatchRequest { request_union: Some(union) })
    }

    /// Forgets everything; what was watched.
    fn end_all(&mut self) -> Vec<WatchId> {
        let last_number = self.last_number;
        let ended = std::mem::take(self);
        self.last_number = last_number;
        ended.numbers.into_keys().collect()
    }

    fn end(&mut self, number: i64) -> Option<Report> {
        let watch = self.watches.remove(&number)?;
        self.numbers.remove(&watch.id);
        Some((watch.id, Change::Ended))
    }

    /// Takes in a response. **Errors:** one after which nothing of the stream counts.
    fn take(&mut self, response: WatchResponse, store: &mut Option<u64>) -> Result<Vec<Report>, Failure> {
        let WatchResponse { header: of, watch_id, created, canceled, events, .. } = response;
        let of = header(of)?;
        if *store.get_or_insert(of.cluster_id) != of.cluster_id {
            return Err(Failure::Missing("the cluster id that it had"));
        }
        let at = revision(of.revision);
        // A refused request is answered without its number by some versions; requests are answered in order.
        let number = match created {
            true => self.answered(watch_id).unwrap_or(watch_id),
            false => watch_id,
        };
        if canceled {
            return Ok(self.end(number).into_iter().collect());
        }
        if number == EVERY_WATCH {
            return Ok(self.progress(at));
        }
        let Some(watch) = self.watches.get_mut(&number) else { return Ok(Vec::new()) };
        // FLEET 5: a response below the last one is a store that went back, or one of etcd's known bugs.
        if at < watch.seen.max(watch.after) {
            return Ok(self.end(number).into_iter().collect());
        }
        watch.seen = at;
        let id = watch.id;
        if created {
            // What happened since the list is still to come, and is below the store's revision.
            let started = Change::Started { store: store_id(&of), revision: watch.after };
            return Ok(vec![(id, started)]);
        }
        if events.is_empty() {
            return Ok(vec![(id, Change::Progress { revision: at })]);
        }
        let changes = events.into_iter().filter_map(|event| {
            let is_put = event.r#type() == EventType::Put;
            let of = item(event.kv?, is_put)?;
            let revision = of.mark.modified;
            Some(match is_put {
                true => Change::Put { revision, item: of },
                false => Change::Delete { revision, path: of.path },
            })
        });
        Ok(changes.map(|change| (id, change)).collect())
    }

    /// Which request is answered; those before it stay.
    fn answered(&mut self, watch_id: i64) -> Option<i64> {
        if watch_id == EVERY_WATCH {
            return self.unanswered.pop_front();
        }
        self.unanswered.retain(|number| *number != watch_id);
        None
    }

    fn progress(&self, at: Revision) -> Vec<Report> {
        let started = self.watches.values().filter(|watch| watch.seen > Revision(0));
        started.map(|watch| (watch.id, Change::Progress { revision: at })).collect()
    }
}

impl Watch {
    fn request(&self, number: i64) -> WatchCreateRequest {
        WatchCreateRequest {
            key: self.first.clone(),
            range_end: self.end.clone(),
            start_revision: signed(self.after).saturating_add(1),
            watch_id: number,
            // A change of many keys at once comes in parts, none of which is too long for us.
            fragment: true,
            ..WatchCreateRequest::default()
        }
    }
}

async fn next(responses: &mut Streaming<WatchResponse>) -> Result<WatchResponse, Failure> {
    responses.message().await?.ok_or(Failure::Missing("a reason why it closed the stream"))
}

/// The version of the member that we are connected to.
async fn version(channel: tonic::transport::Channel) -> Option<String> {
    let asked = led(StatusRequest {});
    let status = timeout(ASK_TIME, MaintenanceClient::new(channel).status(asked)).await.ok()?.ok()?;
    Some(status.into_inner().version)
}

/// What stands for all watches in a response.
const EVERY_WATCH: i64 = -1;
/// Requests that wait for the stream.
const REQUESTS_MAX: usize = 64;
