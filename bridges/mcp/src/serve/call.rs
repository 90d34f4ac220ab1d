//! Makes one call for a tool: arguments in; how it ended, told truthfully, out.
//!
//! A call whose answer is lost is made again under its key or its id, which runs it at most once, until its recorded result comes or
//! patience ends. So what is told as unknown is what no sidecar can tell.

use std::time::Duration;

use capd_bridge::import::served::is_not_executed;
use capd_bridge::sidecar::Sidecar;
use capd_client::{Answer, CallRequest, Client, ClientError, Progress, WireError};
use capd_proto::code::Code;
use capd_proto::envelope::MessageId;
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;

/// How a call ended.
#[derive(Debug)]
pub(super) enum Ended {
    /// It ran, and this is its result.
    Done(Box<Answer>),
    /// Nothing was executed.
    NotExecuted(WireError),
    /// It ran and failed.
    Failed(WireError),
    /// Nobody knows whether it took effect, or how far it got.
    Unknown(WireError),
    /// Its caller no longer wants to hear of it, and the provider was asked to stop.
    Cancelled,
}

impl Ended {
    /// The word for programs, as in capd's HTTP API.
    pub(super) const fn outcome(&self) -> &'static str {
        match self {
            Self::Done(_) => "executed",
            Self::NotExecuted(_) => "refused",
            Self::Failed(_) => "failed",
            Self::Unknown(_) => "unknown",
            Self::Cancelled => "cancelled",
        }
    }
}

/// A call under way.
pub(super) struct Call<'a> {
    pub(super) sidecar: &'a Sidecar,
    pub(super) request: CallRequest,
    /// Whether its sidecar knows it by a key, and makes it under an id of its own.
    pub(super) is_keyed: bool,
    /// Whether an earlier copy of it may have run, so that a refusal of this one says nothing about the effect.
    pub(super) may_have_run: bool,
    pub(super) cancelled: &'a CancellationToken,
    /// The call's id, once it was sent.
    pub(super) id: Option<MessageId>,
}

impl Call<'_> {
    /// Makes the call and waits for its end; each report is passed on.
    pub(super) async fn run(&mut self, mut on_progress: impl FnMut(Progress)) -> Ended {
        let mut client = match self.sidecar.client_by(Instant::now() + FIRST_LINK_WAIT).await {
            Ok(client) => client,
            Err(error) => return self.refused(unreachable_sidecar(&error)),
        };
        let (mut deadline, mut asked) = (None, 0_u32);
        loop {
            let error = match self.once(&client, &mut on_progress).await {
                Step::Ended(ended) => return ended,
                Step::Lost(error) => error,
            };
            asked += 1;
            let deadline = *deadline.get_or_insert_with(|| Instant::now() + LOST_WAIT);
            let pause = PAUSE_MIN.saturating_mul(1 << asked.min(6));
            if Instant::now() + pause >= deadline {
                return Ended::Unknown(error);
            }
            tokio::select! {
                biased;
                () = self.cancelled.cancelled() => return Ended::Cancelled,
                () = sleep(pause) => {}
            }
            client = match self.sidecar.client_by(deadline).await {
                Ok(client) => client,
                Err(_) => return Ended::Unknown(error),
            };
        }
    }

    /// Sends the call once, or once more under its id.
    async fn once(&mut self, client: &Client, on_progress: &mut impl FnMut(Progress)) -> Step {
        let mut handle = match client.call(self.request.clone()) {
            Ok(handle) => handle,
            Err(error @ ClientError::Closed(_)) if self.may_have_run => return Step::Lost(lost(&error)),
            Err(error) => return Step::Ended(self.refused(unsent(&error))),
        };
        let is_repeat = std::mem::replace(&mut self.may_have_run, true);
        if !self.is_keyed {
            self.request = self.request.clone().id(handle.id());
            self.id = Some(handle.id());
        }
        loop {
            let report = tokio::select! {
                biased;
                () = self.cancelled.cancelled() => {
                    // The sidecar's answer tells nobody anything: whoever asked no longer listens.
                    let _ = handle.cancel().await;
                    return Step::Ended(Ended::Cancelled);
                }
                report = handle.progress() => report,
            };
            match report {
                Some(report) => on_progress(report),
                None => break,
            }
        }
        self.id = handle.call_id().await.or(self.id);
        match handle.outcome().await {
            Ok(answer) => Step::Ended(Ended::Done(Box::new(answer))),
            Err(ClientError::Refused(error)) if is_repeat => Step::Ended(Ended::Unknown(error)),
            Err(ClientError::Refused(error)) => Step::Ended(Ended::NotExecuted(error)),
            Err(ClientError::Result(error)) => of_result(error),
            Err(error @ (ClientError::Closed(_) | ClientError::Timeout { .. } | ClientError::Answer(_))) => {
                Step::Lost(lost(&error))
            }
            Err(error) => Step::Ended(self.refused(unsent(&error))),
        }
    }

    fn refused(&self, error: WireError) -> Ended {
        if self.may_have_run { Ended::Unknown(error) } else { Ended::NotExecuted(error) }
    }
}

enum Step {
    Ended(Ended),
    /// The answer was lost; asking again may bring it.
    Lost(WireError),
}

fn of_result(error: WireError) -> Step {
    match (error.code, error.is_final()) {
        (_, false) => Step::Lost(error),
        (Code::INTERRUPTED, true) => Step::Ended(Ended::Unknown(error)),
        // A sidecar says 5002 as well of a provider that left in the middle.
        (Code::UNAVAILABLE, true) if !is_not_executed(error.details_json().as_ref()) => {
            Step::Ended(Ended::Unknown(error))
        }
        (_, true) => Step::Ended(Ended::Failed(error)),
    }
}

fn unreachable_sidecar(error: &ClientError) -> WireError {
    WireError::new(Code::UNAVAILABLE, error.to_string())
}

fn unsent(error: &ClientError) -> WireError {
    let code = match error {
        ClientError::Unsent(_) => Code::OVERLOADED,
        ClientError::Invalid(_) => Code::BAD_REQUEST,
        _ => Code::UNAVAILABLE,
    };
    WireError::new(code, error.to_string())
}

fn lost(error: &ClientError) -> WireError {
    WireError::new(Code::INTERRUPTED, error.to_string())
}

/// How long a call waits for a sidecar that is away before anything is sent.
const FIRST_LINK_WAIT: Duration = Duration::from_secs(2);
/// How long a lost answer is asked for.
const LOST_WAIT: Duration = Duration::from_secs(10);
/// The first pause before it is asked for again, doubled each time.
const PAUSE_MIN: Duration = Duration::from_millis(50);
