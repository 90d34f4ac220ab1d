//! Says what a store of registrations must be able to do: questions in, answers out; watches in, changes out.
//!
//! The words themselves are those of [`capd_proto::fleet::engine`], so that the machine, etcd and a simulated store speak
//! one language. They are data, not one method each: the match over [`Ask`] stands in one place of each store.
//!
//! All watches of a store report into one bounded queue. A slow reader therefore holds the store's stream back, whatever
//! the number of watches.

use std::pin::Pin;
use std::sync::Arc;

use capd_proto::fleet::Prefix;
use capd_proto::fleet::engine::{Ask, Change, EngineError, Revision, Told};
use capd_proto::fleet::machine::WatchId;
use tokio::sync::mpsc;

/// The answer to a question, once there is one.
pub type Answer = Pin<Box<dyn Future<Output = Result<Told, EngineError>> + Send>>;

/// What a watch reports.
pub type Report = (WatchId, Change);

/// Carries reports for as long as it is polled.
pub type Reporting = Pin<Box<dyn Future<Output = ()> + Send>>;

/// A store of registrations: etcd, or a simulated one. One driver uses it.
pub trait Engine: Send + Sync + 'static {
    /// Asks the store. The answer comes within a time that the store bounds; [`EngineError::Lost`] if it does not know
    /// what became of the question.
    fn ask(&self, ask: Ask) -> Answer;

    /// Begins to report what changes under `prefix` after a revision: first [`Change::Started`], at last
    /// [`Change::Ended`], unless [`Engine::unwatch`] comes before.
    fn watch(&self, watch: WatchId, prefix: Prefix, after: Revision);

    /// Ends a watch, if it has not ended yet. A report of it may still be on its way.
    fn unwatch(&self, watch: WatchId);

    /// Asks for [`Change::Progress`] of every watch that is alive.
    fn probe(&self);

    /// Reports into `to` for as long as the future is polled. The driver calls this once.
    fn report(self: Arc<Self>, to: mpsc::Sender<Report>) -> Reporting;

    /// How the store is reached, for people.
    fn health(&self) -> Health {
        Health::default()
    }
}

/// How a store is reached.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Health {
    /// The address in use, or the first one.
    pub endpoint: String,
    /// The store's version, if it has said so.
    pub version: Option<String>,
    /// Why the last question had no answer; none once one has had.
    pub error: Option<String>,
}
