//! Lists the calls that the sidecar runs, relays and remembers.

use bytes::Bytes;
use capd_proto::envelope::MessageId;
use capd_proto::message::{CallSide, CallsRequest, JournalCounters, ListedCall, Type, WantedState};

use super::outgoing::Outgoing;
use super::{Client, ClientError, bodies};

/// One page of calls: first those that the sidecar relays for its agent, then those that it runs or remembers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CallList {
    /// The calls.
    pub calls: Vec<ListedCall<'static>>,
    /// The cursor of the next page; none on the last one.
    pub next_cursor: Option<Bytes>,
    /// The counters of the sidecar's journal, if it has one.
    pub journal: Option<JournalCounters>,
}

/// Filters calls; `None` matches all.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CallFilter {
    /// Calls that the agent made, or calls that run here.
    pub side: Option<CallSide>,
    /// Their state.
    pub state: Option<WantedState>,
    /// A capability's name or id.
    pub capability: Option<String>,
    /// Calls made at this time or later. **Units:** milliseconds since the Unix epoch.
    pub since_ms: Option<u64>,
}

impl Client {
    /// One page of the sidecar's calls, after that of `cursor`; `limit` is at most 1000.
    ///
    /// **Errors:** [`ClientError`].
    pub async fn calls(&self, cursor: Option<&Bytes>, limit: Option<u64>) -> Result<CallList, ClientError> {
        let cursor = cursor.map(|cursor| cursor.as_ref().into());
        self.listed(&CallsRequest { cursor, limit, ..CallsRequest::default() }).await
    }

    /// One page of the calls that match a filter, newest first, after that of `cursor`. If few calls match, a page may
    /// be short or empty without being the last.
    ///
    /// **Errors:** [`ClientError`].
    pub async fn calls_where(
        &self,
        filter: &CallFilter,
        cursor: Option<&Bytes>,
        limit: Option<u64>,
    ) -> Result<CallList, ClientError> {
        let request = CallsRequest {
            target: None,
            cursor: cursor.map(|cursor| cursor.as_ref().into()),
            limit,
            newest_first: true,
            side: filter.side,
            state: filter.state,
            capability: filter.capability.as_deref().map(Into::into),
            since_ms: filter.since_ms,
        };
        self.listed(&request).await
    }

    /// The calls of one id: of this agent, and of any other that used it.
    ///
    /// **Errors:** [`ClientError`]; without such a call the list is empty.
    pub async fn calls_of(&self, id: MessageId) -> Result<CallList, ClientError> {
        self.listed(&CallsRequest { target: Some(id), ..CallsRequest::default() }).await
    }

    async fn listed(&self, request: &CallsRequest<'_>) -> Result<CallList, ClientError> {
        let body = bodies::calls(request);
        let message = Outgoing::new(Type::Request, self.did(), &body);
        let reply = self.request(&message, Type::Response, self.core.request_timeout).await?;
        bodies::call_list(&reply.body)
    }
}
