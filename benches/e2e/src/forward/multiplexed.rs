//! Frames of many links in, one stream of frames out, and the answers back to the links that they belong to.

use std::sync::{Arc, Mutex};

use bytes::{Bytes, BytesMut};
use quinn::{RecvStream, SendStream};
use slab::Slab;
use tokio::io::AsyncRead;
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::mpsc;

use super::BATCHES_MAX;
use super::frames::{BATCHES, READ_BYTES, fill, put, take, write};

/// Where batches of frames wait for a writer.
type Queue = mpsc::Sender<Bytes>;
/// Whose each call is, and what it calls it, by the id that it has further on.
type Pending = Arc<Mutex<Slab<(Queue, u64)>>>;

/// Takes callers' links, and forwards over `stream`.
pub(super) async fn a(listener: UnixListener, (send, receive): (SendStream, RecvStream)) {
    let (calls, queue) = mpsc::channel(BATCHES_MAX);
    tokio::spawn(write_chunks(queue, send));
    let pending = Pending::default();
    tokio::spawn(forward_answers(receive, Arc::clone(&pending)));
    while let Ok((link, _)) = listener.accept().await {
        let (read, to) = link.into_split();
        let (answers, queue) = mpsc::channel(BATCHES_MAX);
        tokio::spawn(write(queue, to));
        tokio::spawn(forward_calls(read, answers, calls.clone(), Arc::clone(&pending)));
    }
}

/// Takes streams of proxies, and forwards to the provider.
pub(super) fn b(provider: UnixStream) -> impl Fn(SendStream, RecvStream) + Clone + Send + 'static {
    let (read, to) = provider.into_split();
    let (calls, queue) = mpsc::channel(BATCHES_MAX);
    tokio::spawn(write(queue, to));
    let pending = Pending::default();
    tokio::spawn(forward_answers(read, Arc::clone(&pending)));
    move |send, receive| {
        let (answers, queue) = mpsc::channel(BATCHES_MAX);
        tokio::spawn(write_chunks(queue, send));
        tokio::spawn(forward_calls(receive, answers, calls.clone(), Arc::clone(&pending)));
    }
}

async fn forward_calls(mut from: impl AsyncRead + Unpin, answers: Queue, calls: Queue, pending: Pending) {
    let mut read = BytesMut::with_capacity(READ_BYTES);
    while fill(&mut read, &mut from).await {
        let mut out = BytesMut::with_capacity(read.len());
        while let Some((id, params)) = take(&mut read) {
            let further = pending.lock().unwrap().insert((answers.clone(), id));
            put(&mut out, further as u64, &params);
        }
        if !out.is_empty() && calls.send(out.freeze()).await.is_err() {
            return;
        }
    }
}

async fn forward_answers(mut from: impl AsyncRead + Unpin, pending: Pending) {
    let mut read = BytesMut::with_capacity(READ_BYTES);
    // Answers to one link stand beside each other, mostly, and travel on together.
    let mut runs: Vec<(Queue, BytesMut)> = Vec::new();
    while fill(&mut read, &mut from).await {
        let room = read.len();
        while let Some((further, result)) = take(&mut read) {
            let (answers, id) = pending.lock().unwrap().remove(usize::try_from(further).unwrap());
            match runs.last_mut() {
                Some((queue, out)) if queue.same_channel(&answers) => put(out, id, &result),
                _ => {
                    let mut out = BytesMut::with_capacity(room);
                    put(&mut out, id, &result);
                    runs.push((answers, out));
                }
            }
        }
        for (queue, out) in runs.drain(..) {
            // A caller that has left takes no answers.
            let _ = queue.send(out.freeze()).await;
        }
    }
}

/// As [`write`], without putting batches together first: quinn takes many at once.
async fn write_chunks(mut queue: mpsc::Receiver<Bytes>, mut to: SendStream) {
    let mut batches = Vec::with_capacity(BATCHES);
    while queue.recv_many(&mut batches, BATCHES).await > 0 {
        if to.write_all_chunks(&mut batches).await.is_err() {
            return;
        }
        batches.clear();
    }
}
