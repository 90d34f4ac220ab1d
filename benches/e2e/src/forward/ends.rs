//! Rounds in, frames with params out to a unix socket; and the provider that answers each with a frame.

use std::path::Path;
use std::time::Instant;

use bytes::BytesMut;
use tokio::io::AsyncWriteExt as _;
use tokio::net::{UnixListener, UnixStream};

use super::frames::{READ_BYTES, fill, put, take};
use super::{A_SOCKET, PROVIDER_SOCKET};
use crate::load::{Load, Record, Round};
use crate::payload::{Results, request, response_bytes};
use crate::role::{done, lines, load, ready, tell};

/// Answers each frame with the result that belongs to it.
pub(crate) async fn provider(files: &Path) {
    let listener = UnixListener::bind(files.join(PROVIDER_SOCKET)).unwrap();
    tokio::spawn(async move {
        while let Ok((link, _)) = listener.accept().await {
            tokio::spawn(serve(link));
        }
    });
    ready("");
    done().await;
}

async fn serve(mut link: UnixStream) {
    let results = Results::default();
    let (mut read, mut out) = (BytesMut::with_capacity(READ_BYTES), BytesMut::with_capacity(READ_BYTES));
    while fill(&mut read, &mut link).await {
        out.clear();
        while let Some((id, params)) = take(&mut read) {
            put(&mut out, id, &results.of(params.len()));
        }
        if link.write_all(&out).await.is_err() {
            return;
        }
    }
}

/// Does rounds over one link. It has no task for each call, as whoever only wants to see the proxies would not.
pub(crate) async fn caller(files: &Path) {
    let mut link = UnixStream::connect(files.join(A_SOCKET)).await.unwrap();
    ready("");
    let mut lines = lines();
    while let Some(line) = lines.recv().await {
        tell(&round(&mut link, &load(&line)).await);
    }
}

async fn round(link: &mut UnixStream, load: &Load) -> Round {
    assert!(load.rate.is_none(), "frames are sent one after the other only");
    let params = request(load.bytes);
    let mut record = Record::begin(load);
    let mut made = vec![Instant::now(); load.in_flight];
    let (mut read, mut out) = (BytesMut::with_capacity(READ_BYTES), BytesMut::with_capacity(READ_BYTES));
    for id in 0..load.in_flight {
        put(&mut out, id as u64, &params);
    }
    let mut left = load.in_flight;
    while left > 0 {
        link.write_all(&out).await.unwrap();
        out.clear();
        assert!(fill(&mut read, link).await, "the proxy stays");
        let now = Instant::now();
        while let Some((id, result)) = take(&mut read) {
            assert_eq!(result.len(), response_bytes(load.bytes), "the result is what the provider gave");
            let slot = usize::try_from(id).unwrap();
            if record.add(made[slot], now) {
                made[slot] = now;
                put(&mut out, id, &params);
            } else {
                left -= 1;
            }
        }
    }
    record.round()
}
