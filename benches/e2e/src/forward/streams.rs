//! Frames of many links in, a stream for each out, and what comes back on it to the link that it belongs to.

use std::sync::{Arc, Mutex};

use bytes::{Bytes, BytesMut};
use quinn::{Connection, RecvStream, SendStream};
use slab::Slab;
use tokio::net::unix::OwnedReadHalf;
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::{mpsc, oneshot};

use super::BATCHES_MAX;
use super::frames::{READ_BYTES, fill, put, take, write};
use crate::payload::LARGE_BYTES;

/// Takes callers' links, and opens a stream for each frame.
pub(super) async fn a(listener: UnixListener, connection: Connection) {
    while let Ok((link, _)) = listener.accept().await {
        let (mut from, to) = link.into_split();
        let (answers, queue) = mpsc::channel(BATCHES_MAX);
        tokio::spawn(write(queue, to));
        let connection = connection.clone();
        tokio::spawn(async move {
            let mut read = BytesMut::with_capacity(READ_BYTES);
            while fill(&mut read, &mut from).await {
                while let Some((id, params)) = take(&mut read) {
                    tokio::spawn(forward_call(connection.clone(), id, params, answers.clone()));
                }
            }
        });
    }
}

async fn forward_call(connection: Connection, id: u64, params: Bytes, answers: mpsc::Sender<Bytes>) {
    let (mut send, mut receive) = connection.open_bi().await.unwrap();
    send.write_chunk(params).await.unwrap();
    send.finish().unwrap();
    let result = receive.read_to_end(LARGE_BYTES).await.unwrap();
    // A caller that has left takes no answers.
    let _ = answers.send(frame(id, &result)).await;
}

type Pending = Arc<Mutex<Slab<oneshot::Sender<Bytes>>>>;

/// Takes a stream for each call, and forwards to the provider.
pub(super) fn b(provider: UnixStream) -> impl Fn(SendStream, RecvStream) + Clone + Send + 'static {
    let (from, to) = provider.into_split();
    let (calls, queue) = mpsc::channel(BATCHES_MAX);
    tokio::spawn(write(queue, to));
    let pending = Pending::default();
    tokio::spawn(take_answers(from, Arc::clone(&pending)));
    move |mut send, mut receive| {
        let (calls, pending) = (calls.clone(), Arc::clone(&pending));
        tokio::spawn(async move {
            let params = receive.read_to_end(LARGE_BYTES).await.unwrap();
            let (answer, result) = oneshot::channel();
            let id = pending.lock().unwrap().insert(answer);
            calls.send(frame(id as u64, &params)).await.unwrap();
            send.write_chunk(result.await.unwrap()).await.unwrap();
            send.finish().unwrap();
        });
    }
}

async fn take_answers(mut from: OwnedReadHalf, pending: Pending) {
    let mut read = BytesMut::with_capacity(READ_BYTES);
    while fill(&mut read, &mut from).await {
        while let Some((id, result)) = take(&mut read) {
            let answer = pending.lock().unwrap().remove(usize::try_from(id).unwrap());
            // Its stream may be gone.
            let _ = answer.send(result);
        }
    }
}

fn frame(id: u64, payload: &[u8]) -> Bytes {
    let mut frame = BytesMut::new();
    put(&mut frame, id, payload);
    frame.freeze()
}
