//! Collects a peer's answer to a query, page by page, up to the limits of one peer.
//!
//! A peer may answer as long as it likes. The first excess ends the answer: nothing of it is kept, and no further page
//! is requested.

use std::sync::Arc;

use capd_proto::code::Code;
use capd_proto::identity::Did;
use capd_proto::limits::QUERY_LIMIT_MAX;
use capd_proto::message::{Declare, Descriptor};

use super::serves::{Beyond, Serves};
use crate::config::Limits;
use crate::daemon::account::meter::{CallLimit, Meter};
use crate::daemon::context::Refusal;

/// What one peer has said so far.
pub(in crate::daemon) struct Answer<'a> {
    peer: &'a Did,
    serves: &'a Serves,
    bounds: &'a Limits,
    meter: &'a Meter,
    pages: usize,
    count: usize,
    bytes: usize,
    served: Vec<Arc<Descriptor>>,
    beyond: Beyond,
}

impl<'a> Answer<'a> {
    pub(in crate::daemon) fn new(
        peer: &'a Did,
        serves: &'a Serves,
        bounds: &'a Limits,
        meter: &'a Meter,
    ) -> Self {
        let (served, beyond) = (Vec::new(), Beyond::default());
        Self { peer, serves, bounds, meter, pages: 0, count: 0, bytes: 0, served, beyond }
    }

    /// Takes a page; where the next one begins.
    ///
    /// **Errors:** 4905 for a page that cannot be read or has more than was asked for, and for one too much of pages,
    /// capabilities, or bytes.
    pub(in crate::daemon) fn take(&mut self, page: &[u8]) -> Result<Option<String>, Refusal> {
        let unreadable = |error: &dyn std::fmt::Display| refusal(error.to_string());
        let page = Declare::decode(page).map_err(|error| unreadable(&error))?;
        page.check_format().map_err(Refusal::of)?;
        if page.capabilities.len() as u64 > QUERY_LIMIT_MAX {
            let count = page.capabilities.len();
            return Err(refusal(format!(
                "a page of {count} capabilities, where {QUERY_LIMIT_MAX} were asked for"
            )));
        }
        for descriptor in page.each_descriptor() {
            self.add(descriptor.map_err(|error| unreadable(&error))?)?;
        }
        self.pages += 1;
        let Some(next) = page.next_cursor else { return Ok(None) };
        if next.len() > CURSOR_BYTES_MAX {
            return Err(refusal(format!("a cursor of more than {CURSOR_BYTES_MAX} bytes")));
        }
        // Pages may be short, since each ends before it outgrows its link.
        let pages_max = PAGES_MIN + self.bounds.peer_capabilities_max / QUERY_LIMIT_MAX as usize;
        if self.pages >= pages_max {
            return Err(refusal(format!("more than {pages_max} pages of capabilities")));
        }
        Ok(Some(next.into_owned()))
    }

    fn add(&mut self, descriptor: Descriptor) -> Result<(), Refusal> {
        self.count += 1;
        self.bytes = self.bytes.saturating_add(descriptor.counted_bytes());
        let (count_max, bytes_max) =
            (self.bounds.peer_capabilities_max, self.bounds.peer_capability_bytes_max);
        if self.count > count_max {
            self.meter.refused(CallLimit::PeerCapabilities);
            let key = "limits.peer_capabilities_max";
            return Err(refusal(format!("more capabilities than {key} = {count_max}")));
        }
        if self.bytes > bytes_max {
            self.meter.refused(CallLimit::PeerCapabilityBytes);
            let key = "limits.peer_capability_bytes_max";
            return Err(refusal(format!("more bytes of capabilities than {key} = {bytes_max}")));
        }
        if self.serves.allows(self.peer, &descriptor.id.name) {
            self.served.push(Arc::new(descriptor));
        } else {
            self.beyond.add(&descriptor.id.name);
        }
        Ok(())
    }

    /// What the peer serves and may serve, and what it declares beyond that.
    pub(in crate::daemon) fn end(self) -> (Vec<Arc<Descriptor>>, Beyond) {
        (self.served, self.beyond)
    }
}

fn refusal(what: String) -> Refusal {
    Refusal::new(Code::CONTRACT_ERROR, what)
}

/// Pages that are read of any peer, and as many more as its capabilities fill.
const PAGES_MIN: usize = 100;
/// Longest cursor that is sent back to a peer. Ours has a fraction of it.
const CURSOR_BYTES_MAX: usize = 4_096;
