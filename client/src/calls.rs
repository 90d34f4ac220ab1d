//! A cursor or an id in, the calls that the sidecar runs, relays and remembers out.

use bytes::Bytes;
use capd_proto::envelope::MessageId;
use capd_proto::message::{CallsRequest, JournalCounters, ListedCall, Type};

use super::outgoing::Outgoing;
use super::{Client, ClientError, bodies};

/// One page of calls: first those that the sidecar relays for its agent, then those that it runs or remembers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CallList {
    /// The calls.
    pub calls: Vec<ListedCall<'static>>,
    /// What gives the next page; none on the last one.
    pub next_cursor: Option<Bytes>,
    /// What the sidecar's journal has done, if it keeps one.
    pub journal: Option<JournalCounters>,
}

impl Client {
    /// One page of the sidecar's calls, behind that of `cursor`; `limit` is at most 1000.
    ///
    /// **Errors:** [`ClientError`].
    pub async fn calls(&self, cursor: Option<&Bytes>, limit: Option<u64>) -> Result<CallList, ClientError> {
        let cursor = cursor.map(|cursor| cursor.as_ref().into());
        self.listed(&CallsRequest { target: None, cursor, limit }).await
    }

    /// The calls of one id: of this agent, and of any other that used it.
    ///
    /// **Errors:** [`ClientError`]; that there is none is no error but an empty list.
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
