//! Queries capabilities: a [`Query`] in, pages of [`Offer`]s out.

use capd_proto::capability::{CapabilityId, CapabilityPattern, Range};
use capd_proto::cbor::json::to_json;
use capd_proto::code::Code;
use capd_proto::identity::Did;
use capd_proto::limits;
use capd_proto::message::{Descriptor, Order, Type};
use serde_json::Value;

use super::outgoing::Outgoing;
use super::{Client, ClientError, bodies};

/// A query for every capability, those of a namespace, or the versions of one name. **Source:** PROTOCOL 7.1.
#[derive(Clone, Debug)]
pub struct Query {
    /// `*`, `labels.*` or a name.
    pub filter: CapabilityPattern,
    /// Only these versions.
    pub version: Option<Range>,
    /// Only capabilities with this part in their id or description; case does not count.
    pub words: Option<String>,
    /// Most capabilities on one page; by default the sidecar decides.
    pub limit: Option<u64>,
    /// The cursor of the previous page of the same query.
    pub cursor: Option<String>,
    /// Which version of a name comes first.
    pub order: Order,
    /// The agent whose capabilities to list; by default everything that the sidecar knows.
    pub to: Option<Did>,
}

impl Query {
    /// Everything that `filter` names, newest versions first.
    pub fn new(filter: impl Into<CapabilityPattern>) -> Self {
        Self {
            filter: filter.into(),
            version: None,
            words: None,
            limit: None,
            cursor: None,
            order: Order::NewestFirst,
            to: None,
        }
    }
}

/// One page of an answer.
#[derive(Clone, Debug, PartialEq)]
pub struct Page {
    /// The capabilities, by name and then by version.
    pub offers: Vec<Offer>,
    /// The cursor of the next page; none on the last one.
    pub next_cursor: Option<String>,
}

/// A capability as one agent offers it.
#[derive(Clone, Debug, PartialEq)]
pub struct Offer {
    /// The agent's declaration.
    pub descriptor: Descriptor,
    /// The DID of the agent.
    pub provider: Option<String>,
    /// Whether that is the own sidecar's agent.
    pub is_local: bool,
}

impl Offer {
    /// The capability's name and version.
    pub const fn id(&self) -> &CapabilityId {
        &self.descriptor.id
    }

    /// The descriptor as JSON, byte strings as base64url; `None` if a part of it does not fit JSON.
    pub fn json(&self) -> Option<Value> {
        to_json(self.descriptor.as_bytes()).ok()
    }
}

impl Client {
    /// One page of the answer to a query.
    ///
    /// **Errors:** [`ClientError`]; a name that nobody offers, and words that nothing has, are a refusal with 4002, a range without a version 4003.
    pub async fn query(&self, query: &Query) -> Result<Page, ClientError> {
        let body = bodies::query(query);
        let did = self.did();
        let message =
            Outgoing { to: query.to.as_ref().unwrap_or(did), ..Outgoing::new(Type::CapQuery, did, &body) };
        let reply = self.request(&message, Type::CapDeclare, self.core.request_timeout).await?;
        bodies::page(&reply.body)
    }

    /// The whole answer to a query. If capabilities change meanwhile, the query starts again.
    ///
    /// **Errors:** as [`query`](Self::query); [`ClientError::Answer`] for a list without an end.
    pub async fn query_all(&self, query: &Query) -> Result<Vec<Offer>, ClientError> {
        let mut restarts = 0;
        loop {
            match self.query_once(query).await {
                // PROTOCOL 7.1: a cursor is bound to its snapshot, and a stale one is 4001.
                Err(ClientError::Refused(error))
                    if error.code == Code::BAD_REQUEST && restarts < RESTARTS_MAX =>
                {
                    restarts += 1;
                }
                other => return other,
            }
        }
    }

    async fn query_once(&self, query: &Query) -> Result<Vec<Offer>, ClientError> {
        let mut query = query.clone();
        query.limit.get_or_insert(limits::QUERY_LIMIT_MAX);
        let mut offers = Vec::new();
        loop {
            let page = self.query(&query).await?;
            offers.extend(page.offers);
            if offers.len() > OFFERS_MAX {
                return Err(ClientError::Answer(format!("more than {OFFERS_MAX} capabilities")));
            }
            match page.next_cursor {
                Some(cursor) => query.cursor = Some(cursor),
                None => return Ok(offers),
            }
        }
    }
}

/// Most times that a list is asked for again because what there is has changed.
const RESTARTS_MAX: u32 = 3;
/// Most capabilities that a list is read to.
const OFFERS_MAX: usize = 1_000_000;
