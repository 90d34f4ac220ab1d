//! Serves HTTP to the agent: its requests in; calls, lists and streams of its sidecar out.
//!
//! This is the interface for every language but Rust: HTTP/1.1 on the same socket. It behaves like one more agent, not
//! like a second path. A [`Client`] serves every request over a local link within this process, so all rules for a
//! link's calls and providers apply here, too.
//!
//! Read in this order: `serve` accepts connections, `door` admits requests, `problem` writes errors, `body` reads
//! bodies, `link` leads to the sidecar. Then there is one file for each group of routes: `capabilities`, `about`,
//! `call`, `history`, `provide` and `operator`. `calls` remembers calls, and `keys` keeps their keys on disk. `schemas` proves
//! calls before they are sent, and `keyed` makes calls with a key that arrive over a local link. `tools` and `openapi`
//! describe the capabilities to other programs.

mod about;
mod body;
mod call;
mod calls;
mod capabilities;
mod door;
mod history;
mod keyed;
mod keys;
mod link;
mod openapi;
pub(crate) mod operator;
mod problem;
mod provide;
mod query;
mod record;
mod schemas;
mod serve;
mod sse;
mod terms;
mod tools;

use std::sync::{Arc, Weak};
use std::time::Duration;

use arc_swap::{ArcSwap, Guard};
use axum::routing::{MethodRouter, get, post, put};
use axum::{Router, middleware};

use crate::client::Client;
use crate::net::{Host, System};
use crate::store::{Desk, LoadedKey};
pub(crate) use keyed::KeyedCall;
use operator::Operator;
use problem::Problem;

/// What the owner chose about HTTP.
#[derive(Clone, Debug)]
pub struct Options {
    /// The agent's name.
    pub agent_name: String,
    /// Largest body of a request. **Units:** bytes.
    pub body_bytes_max: usize,
    /// Time for the head of a request, and again for its body.
    pub request_timeout: Duration,
    /// Time for requests in flight to end when the sidecar stops.
    pub drain_timeout: Duration,
    /// Most calls that one stream of providing may be given at once.
    pub provider_calls_max: usize,
    /// Most calls that wait at once.
    pub calls_max: usize,
    /// Most keys that are kept.
    pub keys_max: usize,
    /// Time of a call that names none.
    pub call_timeout: Duration,
    /// The longest `ttl` of the call that a key stands for. What came of it is kept here for as long as the key is.
    pub key_ttl_max: Duration,
}

/// The HTTP side of a sidecar.
pub(crate) struct Api {
    host: Weak<Host>,
    system: System,
    options: ArcSwap<Options>,
    /// The link over which requests are served; opened by the first.
    link: tokio::sync::Mutex<Option<Client>>,
    calls: calls::Calls,
    keys: keys::Keys,
    schemas: schemas::Schemas,
    operator: Weak<dyn Operator>,
    providers: provide::Providers,
}

impl Api {
    /// What the owner chose, at this moment.
    fn options(&self) -> Guard<Arc<Options>> {
        self.options.load()
    }

    /// Replaces what the owner chose. The link to the sidecar and streams of providing keep what they opened with.
    pub(crate) fn replace_options(&self, options: Options) {
        self.keys.set_max(options.keys_max);
        self.calls.set_max(options.calls_max);
        self.options.store(Arc::new(options));
    }
}

/// Answers HTTP on the local listeners of `host` from here on. `operator` tells of the sidecar, `desk` writes keys down, and
/// `keys` are those that a former process left.
///
/// The front is given back for what reaches it over local links instead: calls with a key, and schemas.
pub(crate) fn start(
    host: &Arc<Host>,
    system: System,
    options: Options,
    operator: Weak<dyn Operator>,
    (desk, keys): (Arc<dyn Desk>, Vec<LoadedKey>),
) -> Arc<Api> {
    let api = Arc::new(Api {
        host: Arc::downgrade(host),
        calls: calls::Calls::new(options.calls_max),
        keys: keys::Keys::new(desk, system.clone(), options.keys_max, keys),
        schemas: schemas::Schemas::default(),
        operator,
        system,
        options: ArcSwap::from_pointee(options),
        link: tokio::sync::Mutex::default(),
        providers: provide::Providers::default(),
    });
    host.answer_http(Arc::new(serve::HttpFront::new(Arc::clone(&api))));
    api
}

/// The routes.
fn router(api: Arc<Api>) -> Router {
    Router::new()
        .route("/openapi.json", get(openapi::document))
        .route("/v1/self", get(about::about))
        .route("/v1/schemas/{hash}", json(put(schemas::put)))
        .route("/v1/tools", get(tools::list))
        .route("/v1/capabilities", get(capabilities::list))
        .route("/v1/capabilities/{id}", get(capabilities::describe))
        .route("/v1/call/{target}", json(post(call::call)))
        .route("/v1/calls", get(history::list))
        .route("/v1/calls/{id}", get(history::one).delete(history::cancel))
        .route("/v1/calls/{id}/events", get(history::events))
        .route("/v1/operator/status", get(operator::status))
        .route("/v1/operator/policy", get(operator::policy))
        .route("/v1/operator/requires", get(operator::requires))
        .route("/v1/operator/configuration", get(operator::configuration))
        .route("/v1/operator/log", json(post(operator::log)))
        .route("/v1/provide", json(post(provide::provide)))
        .route("/v1/provide/{session}/calls/{id}/progress", json(post(provide::progress)))
        .route("/v1/provide/{session}/calls/{id}/input", json(post(provide::input)))
        .route("/v1/provide/{session}/calls/{id}/result", json(post(provide::result)))
        .fallback(no_route)
        .method_not_allowed_fallback(no_method)
        .with_state(api)
}

/// Routes whose body is JSON, and of no other kind.
fn json(routes: MethodRouter<Arc<Api>>) -> MethodRouter<Arc<Api>> {
    routes.route_layer(middleware::from_fn(door::json_only))
}

async fn no_route(uri: axum::http::Uri) -> Problem {
    Problem::no_route(uri.path())
}

async fn no_method(method: axum::http::Method, uri: axum::http::Uri) -> Problem {
    Problem::no_method(&method, uri.path())
}
