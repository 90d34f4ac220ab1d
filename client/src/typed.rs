//! Calls over types that serde knows: a value in, a value out, and events on the way.
//!
//! ```no_run
//! use capd_client::{CallOptions, Client, ClientError, Outcome};
//! use serde::{Deserialize, Serialize};
//!
//! #[derive(Serialize)]
//! struct Request<'a> {
//!     text: &'a str,
//! }
//!
//! #[derive(Deserialize)]
//! struct Response {
//!     words: u64,
//! }
//!
//! # async fn run(client: Client) -> Result<(), ClientError> {
//! let options = CallOptions { key: Some("order-17".into()), ..CallOptions::default() };
//! match client.call_typed::<_, Response>("org.example.words", &Request { text: "one two" }, options).await {
//!     Ok(response) => println!("{} words", response.words),
//!     Err(error) => match error.outcome() {
//!         Outcome::Refused => println!("nothing was executed: {error}"),
//!         Outcome::Failed => println!("it ran and failed: {error}"),
//!         Outcome::Unknown => println!("look at the effect first: {error}"),
//!         Outcome::Pending => println!("it may still run; ask again with the same key: {error}"),
//!     },
//! }
//! # Ok(())
//! # }
//! ```

use std::marker::PhantomData;

use capd_proto::cbor::json::from_json;
use capd_proto::envelope::MessageId;
use capd_proto::message::CancelState;
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::attempts::{Attempts, json};
use super::{Answer, CallOptions, Client, ClientError, Progress};

/// What a typed call says while it runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// The sidecar has taken the call in.
    Accepted {
        /// The call's id: what [`Client::cancel`] takes.
        call: MessageId,
        /// What is called, as far as it is known.
        capability: String,
    },
    /// PROCESSING: it has been taken up.
    Processing {
        /// Words for people.
        status_text: Option<String>,
        /// **Units:** milliseconds from here.
        eta_ms: Option<u64>,
        /// Whether cancelling it would have an effect.
        cancellable: Option<bool>,
    },
    /// PROGRESS: so much is done.
    Progress {
        /// **Units:** percent, 0 to 100.
        pct: u8,
    },
    /// INPUT_REQUIRED: it waits for somebody.
    InputRequired {
        /// What is asked.
        prompt: String,
    },
}

impl From<Progress> for Event {
    fn from(progress: Progress) -> Self {
        match progress {
            Progress::Processing { status_text, eta_ms, cancellable } => {
                Self::Processing { status_text, eta_ms, cancellable }
            }
            Progress::Progress { pct } => Self::Progress { pct },
            Progress::InputRequired { prompt } => Self::InputRequired { prompt },
        }
    }
}

/// A typed call. Nothing is sent before one of its methods is awaited; dropping it cancels the call, unless the call was
/// [followed](Client::follow).
#[derive(Debug)]
#[must_use = "nothing is sent before the call is awaited"]
pub struct TypedCall<Res> {
    attempts: Attempts,
    result: PhantomData<fn() -> Res>,
}

impl Client {
    /// Calls a capability, by its name or its id, and waits for the result.
    ///
    /// A call is made again, under the same key or id, when its link is lost or its sidecar says when to come back: for as
    /// long as its timeout, otherwise for [`Options::wait`](super::Options::wait). It never runs twice. Dropping the future
    /// cancels the call.
    ///
    /// **Errors:** any [`ClientError`]; [`ClientError::outcome`] says whether the call was executed.
    pub async fn call_typed<Req, Res>(
        &self,
        name: &str,
        params: &Req,
        options: CallOptions,
    ) -> Result<Res, ClientError>
    where
        Req: Serialize + Sync + ?Sized,
        Res: DeserializeOwned,
    {
        self.start(name, params, options)?.result().await
    }

    /// The result of a call that was made before, perhaps by another program: over HTTP, or with a key. Waits while the call
    /// runs; dropping the future leaves the call running.
    ///
    /// ```no_run
    /// use capd_client::{CallOptions, Client, ClientError};
    /// use serde_json::{Value, json};
    ///
    /// # async fn run(client: Client) -> Result<(), ClientError> {
    /// let options = CallOptions { key: Some("report-2025".into()), ..CallOptions::default() };
    /// let mut call = client.start::<_, Value>("org.example.report", &json!({"year": 2025}), options)?;
    /// call.keep_on_drop();
    /// let id = call.accepted().await?; // Keep it: it is all that another program needs.
    /// drop(call);
    /// println!("{}", client.result::<Value>(id).await?);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// **Errors:** any [`ClientError`]. A call that the sidecar does not know is a refusal with 4001; an answer that nobody
    /// has recorded is an error result with 5902: give the call's key again.
    pub async fn result<Res: DeserializeOwned>(&self, call: MessageId) -> Result<Res, ClientError> {
        self.follow(call).result().await
    }

    /// As [`result`](Self::result), for the call's events. They begin with the oldest that the sidecar keeps.
    pub fn follow<Res: DeserializeOwned>(&self, call: MessageId) -> TypedCall<Res> {
        TypedCall { attempts: Attempts::of_known(self, call), result: PhantomData }
    }

    /// As [`call_typed`](Self::call_typed), for its events, its id, or its result later.
    ///
    /// ```no_run
    /// use capd_client::{CallOptions, Client, ClientError};
    /// use serde_json::{Value, json};
    ///
    /// # async fn run(client: Client) -> Result<(), ClientError> {
    /// let mut call = client.start::<_, Value>("org.example.report", &json!({"year": 2025}), CallOptions::default())?;
    /// while let Some(event) = call.event().await {
    ///     println!("{event:?}");
    /// }
    /// println!("{}", call.result().await?);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// **Errors:** [`ClientError::Invalid`] for a name, a range, a key or params that cannot be sent.
    pub fn start<Req, Res>(
        &self,
        name: &str,
        params: &Req,
        options: CallOptions,
    ) -> Result<TypedCall<Res>, ClientError>
    where
        Req: Serialize + ?Sized,
        Res: DeserializeOwned,
    {
        let value =
            serde_json::to_value(params).map_err(|error| ClientError::Invalid(format!("params: {error}")))?;
        let mut params = Vec::new();
        from_json(&value, &mut params);
        Ok(TypedCall { attempts: Attempts::new(self, name, params, options)?, result: PhantomData })
    }
}

impl<Res: DeserializeOwned> TypedCall<Res> {
    /// What the call says next; `None` once its answer is there. After a link was lost, progress may be told again.
    /// Cancelling this future loses nothing.
    pub async fn event(&mut self) -> Option<Event> {
        self.attempts.event().await
    }

    /// Waits until the sidecar has the call, and gives the call's id. A call with a key is on disk then.
    ///
    /// **Errors:** that of the call, when it ends before.
    pub async fn accepted(&mut self) -> Result<MessageId, ClientError> {
        self.attempts.accepted().await
    }

    /// The call's id, once it is known.
    pub fn id(&self) -> Option<MessageId> {
        self.attempts.id()
    }

    /// The result; events that were not taken are skipped.
    ///
    /// **Errors:** any of [`ClientError`]; [`ClientError::Answer`] for a result that is no `Res`.
    pub async fn result(self) -> Result<Res, ClientError> {
        let answer = self.answer().await?;
        serde_json::from_value(json(&answer)?)
            .map_err(|error| ClientError::Answer(format!("the result is not of the type asked for: {error}")))
    }

    /// The result as it came, with who served it.
    ///
    /// **Errors:** any of [`ClientError`].
    pub async fn answer(self) -> Result<Answer, ClientError> {
        self.attempts.answer().await
    }

    /// Asks for the call to be cancelled. Its answer still comes: error 4901, or what was recorded before.
    ///
    /// **Errors:** as [`Client::cancel`].
    pub async fn cancel(&self) -> Result<CancelState, ClientError> {
        self.attempts.cancel().await
    }

    /// Leaves the call running when this is dropped.
    pub fn keep_on_drop(&mut self) {
        self.attempts.keep_on_drop();
    }
}
