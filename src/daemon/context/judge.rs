//! Judges a payload by its schema: a verdict at once if that is fast, otherwise a future of it.
//!
//! The links' thread checks small payloads against compiled schemas, within a number of steps. The compute pool does
//! all else, and resumes the caller with the verdict.

use std::sync::Arc;

use bytes::Bytes;

use super::Ctx;
use super::vetted::LARGE_BYTES;
use super::wire::fits_deeper;
use crate::schema::{Artifact, ArtifactError, Side, Violation};

/// Steps of a check on the links' thread: some 100 microseconds.
const STEPS_AT_ONCE: u64 = 20_000;

/// Whether a payload fits.
pub(in crate::daemon) type Verdict = Result<(), Vec<Violation>>;

/// A verdict that the compute pool has come to.
#[derive(Clone, Debug)]
pub(in crate::daemon) struct Judged {
    artifact: Arc<Artifact>,
    side: Side,
    verdict: Verdict,
    /// Whether an error could show a payload that does not fit.
    is_shown: bool,
}

impl Judged {
    pub(in crate::daemon) const fn fits(&self) -> bool {
        self.verdict.is_ok()
    }

    fn is_of(&self, artifact: &Arc<Artifact>, side: Side) -> bool {
        Arc::ptr_eq(&self.artifact, artifact) && self.side == side
    }
}

/// Whether an error could show a payload that does not fit: what was found with its verdict, or what is found now.
pub(in crate::daemon) fn is_shown(
    artifact: &Arc<Artifact>,
    payload: &[u8],
    side: Side,
    judged: &[Judged],
) -> bool {
    let judged = judged.iter().find(|judged| judged.is_of(artifact, side));
    judged.map_or_else(|| fits_deeper(payload), |judged| judged.is_shown)
}

/// The verdict over a message's one payload, if it is there: among `judged`, or one that takes no time. `None` when it is to
/// be asked for with [`Ctx::judge`].
///
/// **Errors:** the schema cannot be compiled.
pub(in crate::daemon) fn verdict(
    artifact: &Arc<Artifact>,
    payload: &[u8],
    side: Side,
    judged: &[Judged],
) -> Result<Option<Verdict>, ArtifactError> {
    if let Some(judged) = judged.iter().find(|judged| judged.is_of(artifact, side)) {
        artifact.validator()?;
        return Ok(Some(judged.verdict.clone()));
    }
    if payload.len() >= LARGE_BYTES || !artifact.is_compiled() {
        return Ok(None);
    }
    Ok(artifact.validator()?.validate_within(payload, side, STEPS_AT_ONCE))
}

impl Ctx {
    /// Comes to a verdict on the compute pool, where the schema is compiled as well if need be.
    pub(in crate::daemon) fn judge(
        self: &Arc<Self>,
        artifact: &Arc<Artifact>,
        payload: Bytes,
        side: Side,
    ) -> impl Future<Output = Judged> + Send + 'static {
        let (ctx, artifact) = (Arc::clone(self), Arc::clone(artifact));
        async move {
            let judge = move || {
                // One that cannot be compiled says so wherever it is asked for its validator.
                let verdict = artifact.validator().map_or(Ok(()), |it| it.validate(&payload, side));
                let is_shown = verdict.is_err() && fits_deeper(&payload);
                Judged { artifact, side, verdict, is_shown }
            };
            match ctx.tasks.compute(judge).await {
                Some(judged) => judged,
                // A panic ends the process.
                None => std::future::pending().await,
            }
        }
    }
}
