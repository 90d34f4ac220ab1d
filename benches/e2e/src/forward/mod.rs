//! Frames in, the same frames out: two proxies that only forward, which is the most that two processes between a caller
//! and a provider can let through.
//!
//! `ends` are the caller and the provider, on unix sockets; `frames` is what they speak. The proxies share one QUIC
//! connection, with all calls on one stream (`multiplexed`) or a stream for each (`streams`).

pub(crate) mod ends;
mod frames;
mod multiplexed;
mod streams;

use std::path::Path;

use tokio::net::{UnixListener, UnixStream};

use crate::quic::{self, Form, Packets};
use crate::role::{done, ready};

/// The proxy that takes the caller's frames.
pub(crate) async fn a(files: &Path, form: Form, to: &str) {
    let (_endpoint, connection) = quic::connect(files, to, Packets::Usual).await;
    let listener = UnixListener::bind(files.join(A_SOCKET)).unwrap();
    match form {
        Form::Multiplexed => {
            let stream = connection.open_bi().await.unwrap();
            tokio::spawn(multiplexed::a(listener, stream));
        }
        Form::StreamPerCall => {
            tokio::spawn(streams::a(listener, connection.clone()));
        }
    }
    ready("");
    done().await;
}

/// The proxy that passes them on to the provider.
pub(crate) async fn b(files: &Path, form: Form) {
    let provider = UnixStream::connect(files.join(PROVIDER_SOCKET)).await.unwrap();
    let endpoint = quic::listen(files, Packets::Usual);
    let address = endpoint.local_addr().unwrap();
    match form {
        Form::Multiplexed => tokio::spawn(quic::accept(endpoint, multiplexed::b(provider))),
        Form::StreamPerCall => tokio::spawn(quic::accept(endpoint, streams::b(provider))),
    };
    ready(address);
    done().await;
}

const A_SOCKET: &str = "a.sock";
const PROVIDER_SOCKET: &str = "provider.sock";
/// Batches of frames that wait for one writer.
const BATCHES_MAX: usize = 1_024;
