//! Export: requests of an A2A client in; tasks that are calls of capabilities out.
//!
//! Read in this order: `skills` is what the sidecar lists, `card` tells of it, `message` makes a call of a message, `task` is
//! one call as a task, `tasks` keeps all of them with the help of `record`, `methods` answers what clients ask, and
//! [`http`] has both bindings, with the help of `route` and `stream`. [`callers`] tells clients apart.

pub mod callers;
mod card;
pub mod http;
mod message;
mod methods;
mod record;
mod route;
mod skills;
mod stream;
mod task;
mod tasks;

use std::path::PathBuf;
use std::sync::Arc;

use capd_bridge::export::Choice;
use capd_bridge::sidecar::Sidecar;
use capd_client::net::Clock;
use capd_proto::identity::Identity;

use crate::signing;
use callers::Callers;
use skills::Catalog;
use tasks::Tasks;

/// What a server offers.
#[derive(Debug)]
pub struct ServeOptions {
    /// Which capabilities are skills.
    pub choice: Choice,
    /// The name on the card.
    pub name: String,
    /// The URL that clients reach it by.
    pub url: String,
    /// The folder of the card's key and of the record of tasks.
    pub state: PathBuf,
    /// Who may ask.
    pub callers: Callers,
}

/// The A2A agent of one sidecar's agent.
pub struct Server {
    sidecar: Arc<Sidecar>,
    catalog: Catalog,
    tasks: Tasks,
    key: Identity,
    name: String,
    url: String,
    callers: Callers,
}

impl Server {
    /// A server of what the agent behind `sidecar` may call.
    ///
    /// **Errors:** those of the folder, also when another server uses it.
    pub fn new(sidecar: Arc<Sidecar>, options: ServeOptions) -> Result<Self, String> {
        let state = &options.state;
        let failed = |what: &str, error: &dyn std::fmt::Display| {
            format!("{}: {error}; use --state DIR for another folder", state.join(what).display())
        };
        std::fs::create_dir_all(state).map_err(|error| failed("", &error))?;
        let record = record::Records::open(&state.join("tasks"), Clock::start().wall_ms());
        let (record, known) = record.map_err(|error| failed("tasks", &error))?;
        let key = signing::key(&state.join("card.key")).map_err(|error| failed("card.key", &error))?;
        Ok(Self {
            tasks: Tasks::new(Arc::clone(&sidecar), record, known),
            sidecar,
            catalog: Catalog::new(options.choice),
            key,
            name: options.name,
            url: options.url,
            callers: options.callers,
        })
    }
}
