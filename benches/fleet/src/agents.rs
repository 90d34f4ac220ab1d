//! Calls in; a line on disk for each execution, and then the result, out: the agents whose executions are counted.

use std::fs::{File, OpenOptions};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, RwLock};

use capd::client::{Agent, Capability, ClientError, Endpoint, Invocation, Options, WireError};
use tokio::sync::{mpsc, oneshot};
use tokio::task::{AbortHandle, JoinError, JoinSet};

use crate::calls::{Kind, name};

/// The file that executions are written to. Clones write to the same.
#[derive(Clone)]
pub(crate) struct Book {
    lines: mpsc::Sender<(String, oneshot::Sender<()>)>,
}

impl Book {
    /// Opens the file; a thread of its own writes it.
    pub(crate) fn open(path: &Path) -> Self {
        let file = OpenOptions::new().create(true).append(true).open(path).unwrap();
        let (lines, waiting) = mpsc::channel(LINES_MAX);
        std::thread::spawn(move || write(file, waiting));
        Self { lines }
    }

    /// Returns once the line is on disk.
    async fn note(&self, line: String) {
        let (done, is_done) = oneshot::channel();
        self.lines.send((line, done)).await.expect("the thread lives as long as its senders");
        is_done.await.expect("it answers each line");
    }
}

/// Those that wait together share one write and one `fdatasync`.
fn write(mut file: File, mut waiting: mpsc::Receiver<(String, oneshot::Sender<()>)>) {
    let mut batch = Vec::new();
    while waiting.blocking_recv_many(&mut batch, LINES_MAX) > 0 {
        let text: String = batch.iter().map(|(line, _)| line.as_str()).collect();
        file.write_all(text.as_bytes()).unwrap();
        file.sync_data().unwrap();
        for (_, done) in batch.drain(..) {
            // Its call may have been cancelled meanwhile.
            let _nobody = done.send(());
        }
    }
}

/// All agents that provide.
pub(crate) struct Agents {
    book: Book,
    serving: JoinSet<Result<(), ClientError>>,
}

/// What a provider says of itself in each line.
#[derive(Clone, Debug)]
pub(crate) struct Who {
    pub(crate) did: String,
    /// Another one once its sidecar has a new journal.
    pub(crate) journal: Arc<RwLock<String>>,
}

impl Agents {
    pub(crate) fn new(book: Book) -> Self {
        Self { book, serving: JoinSet::new() }
    }

    /// Serves names at a sidecar, for calls whose time is measured, and writes nothing down.
    pub(crate) fn serve_unwritten(&mut self, socket: &Path, names: &[String]) -> AbortHandle {
        let mut agent = Agent::new().calls_max(CALLS_MAX);
        for of in names {
            let capability = Capability::new(&name(Kind::Again, of), "1.0.0").unwrap().idempotent(true);
            let handler = async |number: u64, _: Invocation| Ok::<_, WireError>(number);
            agent = agent.capability(capability, handler).unwrap();
        }
        let endpoint = Endpoint::Unix(PathBuf::from(socket));
        self.serving.spawn(agent.serve(endpoint, Options::default(), std::future::pending()))
    }

    /// Serves names at a sidecar, also after it restarts, until it is aborted.
    pub(crate) fn serve(&mut self, socket: &Path, who: &Who, names: &[String]) -> AbortHandle {
        let names = names.iter().flat_map(|of| [Kind::Once, Kind::Again].map(|kind| (name(kind, of), kind)));
        let mut agent = Agent::new().calls_max(CALLS_MAX);
        for (name, kind) in names {
            let (book, who) = (self.book.clone(), who.clone());
            let handler = move |number: u64, call: Invocation| {
                let (book, who) = (book.clone(), who.clone());
                async move {
                    let journal = who.journal.read().unwrap().clone();
                    book.note(format!("{number} {} {} {journal}\n", call.id, who.did)).await;
                    Ok::<_, WireError>(number)
                }
            };
            let capability = Capability::new(&name, "1.0.0").unwrap().idempotent(kind == Kind::Again);
            agent = agent.capability(capability, handler).unwrap();
        }
        let endpoint = Endpoint::Unix(PathBuf::from(socket));
        self.serving.spawn(agent.serve(endpoint, Options::default(), std::future::pending()))
    }

    /// Fails if an agent has ended by itself: none may.
    pub(crate) fn still_serve(&mut self) {
        while let Some(ended) = self.serving.try_join_next() {
            let is_aborted = ended.as_ref().is_err_and(JoinError::is_cancelled);
            assert!(is_aborted, "an agent has ended: {ended:?}");
        }
    }
}

const LINES_MAX: usize = 1_024;
/// Calls of one agent at once: more than all callers make while a machine stalls.
const CALLS_MAX: usize = 16_384;
