//! One question in, one request or a few to etcd, the answer out.

use bytes::Bytes;
use capd_proto::fleet::engine::{Ask, EngineError, Item, LeaseId, Mark, Page, Revision, StoreId, Told};
use capd_proto::fleet::{Fence, Key, Prefix};
use futures_util::stream;
use tonic::transport::Channel;

use super::api::etcdserverpb::compare::{CompareResult, CompareTarget, TargetUnion};
use super::api::etcdserverpb::kv_client::KvClient;
use super::api::etcdserverpb::lease_client::LeaseClient;
use super::api::etcdserverpb::request_op::Request;
use super::api::etcdserverpb::response_op::Response;
use super::api::etcdserverpb::{
    Compare, DeleteRangeRequest, LeaseGrantRequest, LeaseKeepAliveRequest, LeaseRevokeRequest, PutRequest,
    RangeRequest, RangeResponse, RequestOp, ResponseHeader, TxnRequest, TxnResponse,
};
use super::api::mvccpb::KeyValue;
use super::status::Failure;
use super::{MESSAGE_BYTES_MAX, Shared, led};

impl Shared {
    /// Asks, and waits for the answer.
    pub(super) async fn answer(&self, channel: Channel, ask: Ask) -> Result<Told, Failure> {
        match ask {
            Ask::ReadFence => {
                let range = RangeRequest { key: self.fence_key(), ..RangeRequest::default() };
                let found = kv(channel).range(led(range)).await?.into_inner();
                Ok(Told::Stands(
                    found.kvs.into_iter().next().map(|kv| (copied(&kv.value), revision(kv.mod_revision))),
                ))
            }
            Ask::Claim { fence, read } => {
                let at = read.map_or(0, |Revision(at)| i64::try_from(at).unwrap_or(i64::MAX));
                let stands = equal(self.fence_key(), CompareTarget::Mod, TargetUnion::ModRevision(at));
                let put = put(self.fence_key(), Bytes::copy_from_slice(&fence.encode()), 0);
                self.transact(channel, vec![stands], vec![put]).await.map(|_| Told::Done)
            }
            Ask::Register { fence, ttl_ms, puts } => self.register(channel, fence, ttl_ms, puts).await,
            Ask::Replace { lease: LeaseId(lease), fence, stands, puts, gone } => {
                let mut compare = vec![self.is_ours(&fence)];
                compare.extend(stands.map(|(key, at)| {
                    let at = TargetUnion::ModRevision(signed(at));
                    equal(self.key(&key), CompareTarget::Mod, at)
                }));
                let gone = gone.iter().map(|key| delete(self.key(key))).collect::<Vec<_>>();
                let puts = self.puts(puts, lease);
                // Together they may be more than etcd does in one step. The values come last: the revision is theirs.
                let mut at = Revision(0);
                for operations in [gone, puts].into_iter().filter(|operations| !operations.is_empty()) {
                    let done = self.transact(channel.clone(), compare.clone(), operations).await;
                    // What stood may be gone by the first step.
                    compare.truncate(1);
                    at = done.map_err(|failure| match failure.error() {
                        EngineError::Fenced(Some(by)) if by[..] == fence.encode() => EngineError::Gone.into(),
                        _ => failure,
                    })?;
                }
                Ok(Told::Held { lease: LeaseId(lease), revision: at })
            }
            Ask::Renew(LeaseId(lease)) => renew(channel, lease).await,
            Ask::Withdraw(LeaseId(lease)) => match revoke(channel, lease).await {
                Err(failure) if failure.error() != EngineError::Gone => Err(failure),
                Ok(()) | Err(_) => Ok(Told::Done),
            },
            Ask::List { prefix, after, at, values } => {
                self.list(channel, &prefix, after, at, values).await.map(Told::Page)
            }
        }
    }

    async fn register(
        &self,
        channel: Channel,
        fence: Fence,
        ttl_ms: u64,
        puts: Vec<(Key, Bytes)>,
    ) -> Result<Told, Failure> {
        let ttl = i64::try_from(ttl_ms.div_ceil(1_000)).unwrap_or(i64::MAX);
        let grant = led(LeaseGrantRequest { ttl, id: 0 });
        let lease = LeaseClient::new(channel.clone()).lease_grant(grant).await?.into_inner().id;
        let puts = self.puts(puts, lease);
        match self.transact(channel.clone(), vec![self.is_ours(&fence)], puts).await {
            Ok(revision) => Ok(Told::Held { lease: LeaseId(lease), revision }),
            Err(failure) => {
                // What nobody renews ends by itself; this way it ends now, also if it was put after all.
                let _ends_by_itself = revoke(channel, lease).await;
                Err(failure)
            }
        }
    }

    /// All of these operations in one step, if all that is compared holds. Returns the revision of the step.
    async fn transact(
        &self,
        channel: Channel,
        compare: Vec<Compare>,
        operations: Vec<Request>,
    ) -> Result<Revision, Failure> {
        let fence = RangeRequest { key: self.fence_key(), ..RangeRequest::default() };
        let wrap = |request| RequestOp { request: Some(request) };
        let request = TxnRequest {
            compare,
            success: operations.into_iter().map(wrap).collect(),
            failure: vec![wrap(Request::RequestRange(fence))],
        };
        let TxnResponse { header, succeeded, responses } = kv(channel).txn(led(request)).await?.into_inner();
        if succeeded {
            return Ok(revision(self::header(header)?.revision));
        }
        let stands = responses.into_iter().find_map(|response| match response.response {
            Some(Response::ResponseRange(range)) => range.kvs.into_iter().next(),
            Some(Response::ResponsePut(_) | Response::ResponseDeleteRange(_)) | None => None,
        });
        Err(EngineError::Fenced(stands.map(|kv| copied(&kv.value))).into())
    }

    /// One page; smaller ones where somebody has put what is too long for a page of the usual length.
    async fn list(
        &self,
        channel: Channel,
        prefix: &Prefix,
        after: Option<String>,
        at: Option<Revision>,
        values: bool,
    ) -> Result<Page, Failure> {
        let (first, end) = range(prefix, &self.cell);
        let mut key = after.map_or(first, |after| following(after.as_bytes()));
        let mut page: Option<Page> = None;
        let mut limits = PAGES.into_iter();
        let mut limit = PAGE_KEYS;
        let mut keys_only = !values;
        loop {
            let request = RangeRequest {
                key: key.clone(),
                range_end: end.clone(),
                limit,
                revision: page.as_ref().map(|page| page.revision).or(at).map_or(0, signed),
                keys_only,
                ..RangeRequest::default()
            };
            let found = kv(channel.clone()).range(led(request)).await.map_err(Failure::from);
            let RangeResponse { header, kvs, more, count } = match found {
                Ok(found) => found.into_inner(),
                Err(failure) if failure.is_too_long() && !keys_only => {
                    // A single value that is longer than any answer: its key is read without it.
                    match limits.next() {
                        Some(smaller) => limit = smaller,
                        None => keys_only = true,
                    }
                    continue;
                }
                Err(failure) => return Err(failure),
            };
            let header = self::header(header)?;
            let last = kvs.last().map(|kv| following(&kv.key));
            let page = page.get_or_insert_with(|| Page {
                store: store_id(&header),
                revision: at.unwrap_or(revision(header.revision)),
                items: Vec::new(),
                count: u64::try_from(count).unwrap_or(0),
                has_more: more,
            });
            page.has_more = more;
            // Text alone can name where the next page begins, and only a rogue puts anything else.
            page.items.extend(kvs.into_iter().filter_map(|kv| item(kv, values)));
            match last {
                Some(next) if more && page.items.is_empty() => key = next,
                Some(_) | None => return Ok(page.clone()),
            }
        }
    }

    fn key(&self, key: &Key) -> Bytes {
        key.path(&self.cell).into()
    }

    fn fence_key(&self) -> Bytes {
        self.key(&Key::Fence(self.agent))
    }

    fn is_ours(&self, fence: &Fence) -> Compare {
        let value = TargetUnion::Value(Bytes::copy_from_slice(&fence.encode()));
        equal(self.fence_key(), CompareTarget::Value, value)
    }

    fn puts(&self, puts: Vec<(Key, Bytes)>, lease: i64) -> Vec<Request> {
        puts.into_iter().map(|(key, value)| put(self.key(&key), value, lease)).collect()
    }
}

fn equal(key: Bytes, target: CompareTarget, with: TargetUnion) -> Compare {
    Compare { result: CompareResult::Equal.into(), target: target.into(), key, target_union: Some(with) }
}

/// A key that is put or deleted, or a prefix, as etcd has it: the first key, and the one behind the last.
pub(super) fn range(prefix: &Prefix, cell: &capd_proto::fleet::Cell) -> (Bytes, Bytes) {
    let first = Bytes::from(prefix.path(cell));
    let end = match prefix {
        Prefix::One(_) => Bytes::new(),
        // The text ends with '/', so that the next sign is none that carries.
        Prefix::Name(..) | Prefix::Names | Prefix::Revocations => {
            let mut end = first.to_vec();
            if let Some(last) = end.last_mut() {
                *last += 1;
            }
            end.into()
        }
    };
    (first, end)
}

/// A key of etcd's as an item; none for one that is no text.
pub(super) fn item(kv: KeyValue, has_value: bool) -> Option<Item> {
    let path = String::from_utf8(kv.key.to_vec()).ok()?;
    let mark = Mark {
        created: revision(kv.create_revision),
        modified: revision(kv.mod_revision),
        lease: (kv.lease != 0).then_some(LeaseId(kv.lease)),
    };
    // A slice would keep the whole answer in memory for as long as the value is known.
    Some(Item { path, mark, value: has_value.then(|| copied(&kv.value)) })
}

pub(super) fn revision(revision: i64) -> Revision {
    Revision(u64::try_from(revision).unwrap_or(0))
}

pub(super) fn signed(Revision(revision): Revision) -> i64 {
    i64::try_from(revision).unwrap_or(i64::MAX)
}

pub(super) const fn store_id(of: &ResponseHeader) -> StoreId {
    StoreId { id: of.cluster_id, era: of.raft_term }
}

pub(super) fn header(header: Option<ResponseHeader>) -> Result<ResponseHeader, Failure> {
    header.ok_or(Failure::Missing("a header"))
}

fn copied(bytes: &Bytes) -> Bytes {
    Bytes::copy_from_slice(bytes)
}

fn kv(channel: Channel) -> KvClient<Channel> {
    KvClient::new(channel).max_decoding_message_size(MESSAGE_BYTES_MAX)
}

/// The key behind a key.
fn following(key: &[u8]) -> Bytes {
    let mut key = key.to_vec();
    key.push(0);
    key.into()
}

fn put(key: Bytes, value: Bytes, lease: i64) -> Request {
    Request::RequestPut(PutRequest { key, value, lease })
}

fn delete(key: Bytes) -> Request {
    Request::RequestDeleteRange(DeleteRangeRequest { key, range_end: Bytes::new() })
}

async fn renew(channel: Channel, lease: i64) -> Result<Told, Failure> {
    let asked = stream::iter([LeaseKeepAliveRequest { id: lease }]);
    let mut answers = LeaseClient::new(channel).lease_keep_alive(led(asked)).await?.into_inner();
    let renewed = answers.message().await?.ok_or(Failure::Missing("a renewal"))?;
    // FLEET 5: a lease that is gone is told of by a time of nothing.
    if renewed.ttl > 0 { Ok(Told::Done) } else { Err(EngineError::Gone.into()) }
}

async fn revoke(channel: Channel, lease: i64) -> Result<(), Failure> {
    LeaseClient::new(channel).lease_revoke(led(LeaseRevokeRequest { id: lease })).await?;
    Ok(())
}

/// Keys on a page. **Source:** FLEET 5.
const PAGE_KEYS: i64 = 500;
/// Smaller pages, tried one after the other.
const PAGES: [i64; 3] = [50, 5, 1];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prefix_is_the_range_of_the_keys_that_begin_with_it() {
        let cell = "test".parse().unwrap();
        let (first, end) = range(&Prefix::Name("org.example.a".parse().unwrap(), None), &cell);
        assert_eq!(
            (&first[..], &end[..]),
            (&b"/capd/1/test/n/org.example.a/"[..], &b"/capd/1/test/n/org.example.a0"[..])
        );
        let agent = capd_proto::identity::Identity::from_seed([1; 32]).public_key().into();
        let (first, end) = range(&Prefix::One(Key::Fence(agent)), &cell);
        assert!(first.starts_with(b"/capd/1/test/i/z6Mk") && end.is_empty());
    }
}
