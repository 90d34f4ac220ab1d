//! Has the sidecar apply its configuration's file, copy its state, or take no new calls.

use std::time::Duration;

use capd_proto::message::{BackedUp, Draining, Reloaded, Type};

use super::outgoing::Outgoing;
use super::{Client, ClientError, bodies};

impl Client {
    /// Makes the sidecar apply its configuration's file as a whole, and returns the difference. With `dry_run`, nothing
    /// is applied. A change that needs a restart refuses the whole file: then [`Reloaded::applied`] is false.
    ///
    /// **Errors:** [`ClientError`]; 4001 with `details.mistakes` if the file has a mistake, which changes nothing.
    pub async fn reload(&self, dry_run: bool) -> Result<Reloaded<'static>, ClientError> {
        let body = bodies::reload(dry_run);
        let message = Outgoing::new(Type::Request, self.did(), &body);
        let reply = self.request(&message, Type::Response, self.core.request_timeout).await?;
        bodies::reloaded(&reply.body)
    }

    /// Makes the sidecar copy its state into a file of its state directory, while it runs.
    ///
    /// **Errors:** [`ClientError`]; 5002 if the copy cannot be written.
    pub async fn backup(&self) -> Result<BackedUp<'static>, ClientError> {
        let body = bodies::backup();
        let message = Outgoing::new(Type::Request, self.did(), &body);
        let reply = self.request(&message, Type::Response, BACKUP_TIMEOUT).await?;
        bodies::backed_up(&reply.body)
    }

    /// Makes the sidecar take no new calls until it is started again, and reports the calls in flight. Asked again, it
    /// reports them again.
    ///
    /// **Errors:** [`ClientError`].
    pub async fn drain(&self) -> Result<Draining, ClientError> {
        self.drained(false).await
    }

    /// As [`drain`](Self::drain), for a sidecar that is to go for good: reports the calls of peers, too, whose results their
    /// callers may still ask for. Once there are none, nobody needs the sidecar's state any more.
    ///
    /// **Errors:** [`ClientError`].
    pub async fn retire(&self) -> Result<Draining, ClientError> {
        self.drained(true).await
    }

    async fn drained(&self, retire: bool) -> Result<Draining, ClientError> {
        let body = bodies::drain(retire);
        let message = Outgoing::new(Type::Request, self.did(), &body);
        let reply = self.request(&message, Type::Response, self.core.request_timeout).await?;
        bodies::draining(&reply.body)
    }
}

/// A state of many gigabytes takes minutes on a slow disk.
const BACKUP_TIMEOUT: Duration = Duration::from_secs(600);
