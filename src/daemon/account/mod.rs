//! Accounts for what the sidecar met: audit records, access lines and counts. None of them delays a call or makes it
//! fail.
//!
//! [`audit`] makes the records, [`denials`] folds excessive ones, [`access`] logs each call once, [`meter`] counts
//! calls and refusals by limits, [`turns`] counts repairs of an agent, [`deprecation`] warns once of deprecated
//! versions, [`rates`] says when to come back, [`trace`] records spans, [`phases`] names what a call waits for,
//! [`timeline`] keeps when, [`lag`] measures how late the event loop turns.

pub(in crate::daemon) mod access;
pub(in crate::daemon) mod audit;
pub(in crate::daemon) mod denials;
mod deprecation;
pub(in crate::daemon) mod lag;
pub(in crate::daemon) mod meter;
pub(in crate::daemon) mod phases;
mod rates;
pub(in crate::daemon) mod timeline;
pub(in crate::daemon) mod trace;
mod turns;

use std::sync::{Arc, Mutex};

use self::denials::Denials;
use self::deprecation::Warned;
use self::lag::Lag;
use self::meter::Meter;
use self::timeline::Budget;
use self::turns::Turns;
use super::context::Ctx;
use crate::otlp::Queue;
use crate::store::audit::Audit;

/// What is accounted for, and how much of it.
pub(in crate::daemon) struct Account {
    ctx: Arc<Ctx>,
    /// What must be accounted for.
    pub(in crate::daemon) audit: Audit,
    /// Counts calls.
    pub(in crate::daemon) meter: Meter,
    /// How late the event loop turns.
    pub(in crate::daemon) lag: Lag,
    /// Who was denied how often.
    pub(in crate::daemon) denials: Denials,
    /// Spans on their way to the collector.
    pub(in crate::daemon) spans: Queue,
    /// How many more timelines of calls are kept in this second.
    timelines: Budget,
    turns: Turns,
    warned: Warned,
    /// **Units:** milliseconds since the Unix epoch.
    pub(in crate::daemon) started_at_ms: u64,
}

impl Account {
    pub(in crate::daemon) fn new(ctx: Arc<Ctx>, audit: Audit) -> Arc<Self> {
        Arc::new(Self {
            started_at_ms: ctx.clock.wall_ms(),
            audit,
            meter: Meter::default(),
            lag: Lag::default(),
            denials: Denials::default(),
            spans: Queue::default(),
            timelines: Budget::default(),
            turns: Turns::default(),
            warned: Mutex::default(),
            ctx,
        })
    }
}
