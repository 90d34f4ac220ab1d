//! Answers REQUEST `reload`, `policy-reload`, `backup` and `drain`, for the agent only: what an operator has the sidecar do as a
//! whole.
//!
//! The work itself touches every room, so it is done above them, by an [`Operator`].

use std::pin::Pin;
use std::sync::Arc;

use capd_proto::cbor::json::from_json;
use capd_proto::code::Code;
use capd_proto::message::{
    BackedUp, ConfigChange, Draining, PolicyReloaded, ReloadRequest, Reloaded, Response, Takes, Type,
};
use serde_json::{Value, json};

use super::Sidecar;
use crate::config::Effect;
use crate::daemon::context::inbound::is_for_the_agent;
use crate::daemon::context::{Inbound, Refusal};

/// What an operator can have done.
pub(in crate::daemon) trait Operator: Send + Sync {
    /// Applies the configuration's file as a whole, or only compares it.
    fn reload(self: Arc<Self>, dry_run: bool) -> Work<Result<Reload, ReloadError>>;
    /// Copies the state.
    fn backup(self: Arc<Self>) -> Work<Result<BackedUp<'static>, String>>;
    /// Takes no new calls until the process ends; says which are still in flight, and, where it is to go for good, which callers
    /// may still ask for.
    fn drain(self: Arc<Self>, retire: bool) -> Work<Result<Draining, ReloadError>>;
}

/// Something that takes a while.
pub(in crate::daemon) type Work<T> = Pin<Box<dyn Future<Output = T> + Send>>;

/// What a configuration's file changes, and whether it was applied.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reload {
    /// Whether the file is the running configuration from here on.
    pub applied: bool,
    /// What it changes, in the order of the reference; then what its declaration and policy files change.
    pub changes: Vec<Changed>,
    /// Rules of its policy.
    pub rules: usize,
    /// Likely mistakes.
    pub warnings: Vec<String>,
}

/// One key, or one entry of a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Changed {
    /// The dotted key.
    pub key: String,
    /// The running value; none for an entry that is added.
    pub from: Option<String>,
    /// The file's value; none for an entry that is removed.
    pub to: Option<String>,
    /// When it takes effect.
    pub effect: Effect,
}

/// Why a configuration was not reloaded; the running one stays in force, whole.
#[derive(Debug, thiserror::Error)]
pub enum ReloadError {
    /// The sidecar was started without a configuration that can be read again.
    #[error("this sidecar was started without a configuration that can be read again")]
    Unread,
    /// The sidecar stops.
    #[error("the sidecar is shutting down")]
    Stopping,
    /// The configuration, its declaration or its policy has mistakes.
    #[error("{text}")]
    Mistakes {
        /// All of it in words, one line each, with whole paths.
        text: String,
        /// Each mistake.
        mistakes: Vec<Misread>,
    },
}

/// One mistake and its place.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Misread {
    /// The file's name without its folder, or the layer.
    pub file: String,
    /// The line, counted from 1; 0 is the file as a whole.
    pub line: usize,
    /// The key, or the place in the document.
    pub key: String,
    /// What is wrong, and what is accepted.
    pub problem: String,
}

impl Misread {
    fn json(&self) -> Value {
        json!({"file": self.file, "line": self.line, "key": self.key, "problem": self.problem})
    }
}

impl std::fmt::Display for Misread {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.file)?;
        if self.line > 0 {
            write!(f, ":{}", self.line)?;
        }
        if !self.key.is_empty() {
            write!(f, ": {}", self.key)?;
        }
        write!(f, ": {}", self.problem)
    }
}

impl Reload {
    fn response(self) -> Reloaded<'static> {
        let all = self.changes.len();
        let mut bytes = 0;
        let cut = |text: String| {
            let end = text.floor_char_boundary(TEXT_BYTES_MAX.min(text.len()));
            if end < text.len() { format!("{}…", &text[..end]) } else { text }
        };
        let changes = self.changes.into_iter().map(|change| ConfigChange {
            key: change.key.into(),
            from: change.from.map(|text| cut(text).into()),
            to: change.to.map(|text| cut(text).into()),
            takes: match change.effect {
                Effect::Now => Takes::Now,
                Effect::NewLinks => Takes::NewLinks,
                Effect::Restart => Takes::Restart,
            },
        });
        // A change that needs a restart refuses the others: it is told in any case.
        let mut changes: Vec<_> = changes.collect();
        changes.sort_by_key(|change| change.takes != Takes::Restart);
        changes.retain(|change| {
            let side = |side: &Option<std::borrow::Cow<'_, str>>| side.as_ref().map_or(0, |text| text.len());
            bytes += change.key.len() + side(&change.from) + side(&change.to);
            bytes <= ANSWER_BYTES_MAX
        });
        Reloaded {
            rules: self.rules as u64,
            applied: self.applied,
            omitted: (all - changes.len()) as u64,
            changes,
            warnings: self.warnings.into_iter().take(WARNINGS_MAX).map(|text| cut(text).into()).collect(),
        }
    }
}

impl ReloadError {
    /// 4001 with every mistake. It names files without their folders, since messages never name paths (PROTOCOL 9).
    fn refusal(&self) -> Refusal {
        let Self::Mistakes { mistakes, .. } = self else {
            return Refusal::new(Code::BAD_REQUEST, self.to_string());
        };
        let first = mistakes.first().map(ToString::to_string).unwrap_or_default();
        let more = match mistakes.len() {
            0 | 1 => String::new(),
            all => format!(" ({} more)", all - 1),
        };
        let told: Vec<_> = mistakes.iter().take(MISTAKES_MAX).map(Misread::json).collect();
        let mut details = Vec::new();
        from_json(&json!({ "mistakes": told }), &mut details);
        let message = format!("the configuration has a mistake, so nothing is changed: {first}{more}");
        Refusal::new(Code::BAD_REQUEST, message).with_details(details)
    }
}

impl Sidecar {
    /// Answers once the file was read and applied, or compared.
    ///
    /// **Errors:** 4001 for anybody but the agent, and for a file with a mistake.
    pub(super) fn on_reload(&self, inbound: &Inbound<'_>, request: ReloadRequest) -> Result<(), Refusal> {
        is_for_the_agent(inbound, "reload")?;
        self.answer_operated(inbound, move |operator| async move {
            let reload = operator.reload(request.dry_run).await.map_err(|error| error.refusal())?;
            Ok(Response::Reloaded(reload.response()))
        })
    }

    /// The same, answered with how many rules stand.
    ///
    /// **Errors:** as [`Sidecar::on_reload`], and 4001 for a file that needs a restart.
    pub(super) fn on_policy_reload(&self, inbound: &Inbound<'_>) -> Result<(), Refusal> {
        is_for_the_agent(inbound, "policy-reload")?;
        self.answer_operated(inbound, |operator| async move {
            let reload = operator.reload(false).await.map_err(|error| error.refusal())?;
            let mut keys = reload.changes.iter().filter(|change| change.effect == Effect::Restart);
            if let Some(change) = keys.next().filter(|_| !reload.applied) {
                let message = format!("{} changes only with a restart, so nothing is changed", change.key);
                return Err(Refusal::new(Code::BAD_REQUEST, message));
            }
            Ok(Response::PolicyReloaded(PolicyReloaded { rules: reload.rules as u64 }))
        })
    }

    /// Answers once the state is copied.
    ///
    /// **Errors:** 4001 for anybody but the agent; 5002 when the copy cannot be made.
    pub(super) fn on_backup(&self, inbound: &Inbound<'_>) -> Result<(), Refusal> {
        is_for_the_agent(inbound, "backup")?;
        self.answer_operated(inbound, |operator| async move {
            let copied = operator.backup().await;
            copied.map(Response::BackedUp).map_err(|error| {
                tracing::warn!(%error, "the state is not copied");
                let told = "the state cannot be copied; the sidecar's log says why";
                Refusal::new(Code::UNAVAILABLE, told)
            })
        })
    }

    /// Answers with the calls in flight; the agent asks again to see them end.
    ///
    /// **Errors:** 4001 for anybody but the agent.
    pub(super) fn on_drain(&self, inbound: &Inbound<'_>, retire: bool) -> Result<(), Refusal> {
        is_for_the_agent(inbound, "drain")?;
        self.answer_operated(inbound, move |operator| async move {
            operator.drain(retire).await.map(Response::Draining).map_err(|error| error.refusal())
        })
    }

    fn answer_operated<W>(
        &self,
        inbound: &Inbound<'_>,
        work: impl FnOnce(Arc<dyn Operator>) -> W + Send + 'static,
    ) -> Result<(), Refusal>
    where
        W: Future<Output = Result<Response<'static>, Refusal>> + Send,
    {
        let Some(operator) = self.fronts.operator.get().cloned() else {
            return Err(Refusal::new(Code::UNAVAILABLE, "the sidecar is still starting"));
        };
        let ctx = Arc::clone(&self.ctx);
        let (link, route, id) = (Arc::clone(inbound.link), inbound.route.clone(), inbound.envelope.id);
        self.ctx.spawn(async move {
            match work(operator).await {
                Ok(response) => {
                    let mut body = Vec::new();
                    response.encode(&mut body);
                    let answer = ctx.answer(&link, link.principal(), Some(id), Type::Response, &body);
                    ctx.send(&link, &route, answer);
                }
                Err(refusal) => ctx.refuse(&link, &route, Some(id), &refusal),
            }
        });
        Ok(())
    }
}

/// Bytes of one value in an answer.
const TEXT_BYTES_MAX: usize = 1_024;
/// Bytes of all changes in an answer.
const ANSWER_BYTES_MAX: usize = 256 * 1024;
/// Warnings in an answer.
const WARNINGS_MAX: usize = 64;
/// Mistakes in an answer.
const MISTAKES_MAX: usize = 64;
