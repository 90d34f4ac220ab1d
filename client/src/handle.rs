//! A call that was made in; its progress as it comes, then its one outcome, out.

use capd_proto::envelope::MessageId;
use capd_proto::message::CancelState;

use super::notices::{Accepted, Listener};
use super::{Answer, Client, ClientError, Progress};

/// How a call ends.
pub(super) type Outcome = Result<Answer, ClientError>;

/// A call on its way. Dropping the handle leaves the call running, unless [`CallHandle::cancel_on_drop`] was asked for.
#[derive(Debug)]
pub struct CallHandle {
    id: MessageId,
    client: Client,
    notices: Listener<Outcome>,
    /// Whether the sidecar makes the call under an id of its own, which its first word names.
    is_keyed: bool,
    /// Whether the outcome was heard.
    is_over: bool,
    cancels_on_drop: bool,
}

/// What a handle hears next.
pub(super) enum Heard {
    /// The sidecar has taken the call in: its id, and what it calls.
    Accepted(Accepted),
    /// How it goes.
    Progress(Progress),
    /// How it ended.
    End(Outcome),
}

impl CallHandle {
    pub(super) const fn new(
        id: MessageId,
        client: Client,
        notices: Listener<Outcome>,
        is_keyed: bool,
    ) -> Self {
        Self { id, client, notices, is_keyed, is_over: false, cancels_on_drop: false }
    }

    /// The invoke's id. Without a key it is the call's: what [`Client::cancel`] takes.
    pub const fn id(&self) -> MessageId {
        self.id
    }

    /// The call's id, which for a call with a key is known only once the sidecar has said it; `None` when it says none,
    /// because it refuses the call or the link closes.
    pub async fn call_id(&self) -> Option<MessageId> {
        if self.is_keyed {
            self.notices.accepted().await.map(|accepted| accepted.call)
        } else {
            Some(self.id)
        }
    }

    /// Cancels the call when the handle is dropped before the outcome.
    pub const fn cancel_on_drop(&mut self) {
        self.cancels_on_drop = true;
    }

    /// Leaves the call running when the handle is dropped.
    pub(super) const fn keep_on_drop(&mut self) {
        self.cancels_on_drop = false;
    }

    /// What the call says next while it runs; `None` once its outcome is there. Cancelling this future loses nothing.
    ///
    /// ```no_run
    /// use capd_client::{CallHandle, ClientError, Progress};
    ///
    /// # async fn run(mut handle: CallHandle) -> Result<(), ClientError> {
    /// while let Some(progress) = handle.progress().await {
    ///     if let Progress::Progress { pct } = progress {
    ///         println!("{pct} %");
    ///     }
    /// }
    /// let answer = handle.outcome().await?;
    /// # Ok(())
    /// # }
    /// ```
    pub async fn progress(&mut self) -> Option<Progress> {
        self.notices.next().await
    }

    /// What it says next, its end included. Cancelling this future loses nothing.
    pub(super) async fn heard(&mut self) -> Heard {
        let heard = self.notices.heard().await.unwrap_or_else(|| Heard::End(Err(shut_down())));
        self.is_over |= matches!(heard, Heard::End(_));
        heard
    }

    /// The one outcome; progress that was not taken is skipped.
    ///
    /// **Errors:** any of [`ClientError`].
    pub async fn outcome(mut self) -> Result<Answer, ClientError> {
        let outcome = self.notices.end().await;
        self.is_over = true;
        outcome.unwrap_or_else(|| Err(shut_down()))
    }

    /// Asks for the call to be cancelled. The outcome still comes: error 4901, or what was recorded before.
    ///
    /// **Errors:** as [`Client::cancel`].
    pub async fn cancel(&self) -> Result<CancelState, ClientError> {
        match self.call_id().await {
            Some(call) => self.client.cancel(call).await,
            // It was never taken in.
            None => Ok(CancelState::Unknown),
        }
    }
}

impl Drop for CallHandle {
    fn drop(&mut self) {
        if !self.cancels_on_drop || self.is_over {
            return;
        }
        if !self.is_keyed {
            return self.client.forget_and_cancel(self.id);
        }
        let (client, notices) = (self.client.clone(), self.notices.again());
        self.client.core.system.tasks.spawn(async move {
            if let Some(accepted) = notices.accepted().await {
                // A call that has ended meanwhile needs none.
                let _state = client.cancel(accepted.call).await;
            }
        });
    }
}

fn shut_down() -> ClientError {
    ClientError::Closed("the client was shut down".to_owned())
}
