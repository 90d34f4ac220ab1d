//! Reads the sidecar's counters, its list of peers, its report of the fleet, and what it finds wrong.

use capd_proto::message::{DoctorReport, FleetReport, FleetRequest, ListedPeer, MetricFamily, Type};

use super::outgoing::Outgoing;
use super::{Client, ClientError, bodies};

impl Client {
    /// All current metrics of the sidecar; `capd::admin::text` writes them for scrapers.
    ///
    /// **Errors:** [`ClientError`].
    pub async fn metrics(&self) -> Result<Vec<MetricFamily<'static>>, ClientError> {
        let body = bodies::metrics();
        let message = Outgoing::new(Type::Request, self.did(), &body);
        let reply = self.request(&message, Type::Response, self.core.request_timeout).await?;
        bodies::metric_families(&reply.body)
    }

    /// All peers of the sidecar: whether calls reach each, and why not.
    ///
    /// **Errors:** [`ClientError`].
    pub async fn peers(&self) -> Result<Vec<ListedPeer<'static>>, ClientError> {
        let body = bodies::peers();
        let message = Outgoing::new(Type::Request, self.did(), &body);
        let reply = self.request(&message, Type::Response, self.core.request_timeout).await?;
        bodies::listed_peers(&reply.body)
    }

    /// Where the sidecar stands in its fleet, and who serves names there.
    ///
    /// **Errors:** [`ClientError`].
    pub async fn fleet(&self, request: &FleetRequest<'_>) -> Result<FleetReport<'static>, ClientError> {
        let body = bodies::fleet(request);
        let message = Outgoing::new(Type::Request, self.did(), &body);
        let reply = self.request(&message, Type::Response, self.core.request_timeout).await?;
        bodies::fleet_report(&reply.body)
    }

    /// What the sidecar finds wrong with itself, and what its agent requires.
    ///
    /// **Errors:** [`ClientError`].
    pub async fn doctor(&self) -> Result<DoctorReport<'static>, ClientError> {
        let body = bodies::doctor();
        let message = Outgoing::new(Type::Request, self.did(), &body);
        let reply = self.request(&message, Type::Response, self.core.request_timeout).await?;
        bodies::doctored(&reply.body)
    }
}
