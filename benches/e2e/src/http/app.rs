//! A request in; the result, at once, out.

use std::net::Ipv4Addr;

use axum::Router;
use axum::body::Bytes;
use axum::http::header::CONTENT_TYPE;
use axum::routing::post;
use axum::serve::ListenerExt as _;
use tokio::net::TcpListener;

use super::{APP_PATH, JSON};
use crate::payload::{HTTP_BYTES, response_json};
use crate::role::{done, ready};

/// Serves [`APP_PATH`].
pub(crate) async fn app() {
    let result = response_json(HTTP_BYTES);
    let answer = move |params: Bytes| {
        let result = result.clone();
        async move {
            assert_eq!(params.len(), HTTP_BYTES, "the params are what the caller gave");
            ([(CONTENT_TYPE, JSON)], result)
        }
    };
    serve(Router::new().route(APP_PATH, post(answer))).await;
}

/// Serves `router` on a port that the system gives, until nobody needs it any more.
pub(super) async fn serve(router: Router) {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let address = listener.local_addr().unwrap();
    let listener = listener.tap_io(|stream| stream.set_nodelay(true).unwrap());
    tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
    ready(address);
    done().await;
}
