//! Bytes of a process that has opened the local socket in; claims on what a sidecar does before HELLO, and after it.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use bytes::Bytes;
use capd::net::{Clock, CloseReason, Host, Link, Route, Seed, Service, Settings, System, WallClock, local};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

/// Whatever comes, in whichever pieces: the link ends, by itself or soon after the bytes do; it opens once at most, no message
/// comes before that, and it is closed if it was open. What is answered is bounded by what came.
pub(crate) fn run(bytes: &[u8]) {
    let whole = told(bytes, bytes.len().max(1));
    for piece_bytes in [1, 5] {
        assert_eq!(told(bytes, piece_bytes), whole, "in pieces of {piece_bytes}");
    }
}

/// What a service is told of one link: how often it opened and closed, and of how many messages.
fn told(bytes: &[u8], piece_bytes: usize) -> [usize; 3] {
    // Time passes when nobody has anything to do, so that deadlines take none.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
    runtime.expect("a runtime of one thread needs nothing").block_on(async {
        let told = Arc::new(Told::default());
        let system = System { clock: Clock::set_by(WallClock::at(NOW_MS)), ..System::real() };
        let host = Host::sidecar(Settings::default(), &SEED, Arc::clone(&told) as Arc<dyn Service>, system)
            .expect("a certificate can be made of this seed");
        let (mut ours, theirs) = tokio::io::duplex(PIPE_BYTES);
        local::serve_stream(&host, theirs);
        let (mut reading, mut writing) = tokio::io::split(&mut ours);
        let write = async {
            for piece in bytes.chunks(piece_bytes) {
                // The sidecar may have closed the link.
                if writing.write_all(piece).await.is_err() {
                    return;
                }
            }
            let _closed = writing.shutdown().await;
        };
        let read = async {
            let mut answered = 0;
            let mut buffer = [0; 4_096];
            while let Ok(count @ 1..) = reading.read(&mut buffer).await {
                answered += count;
            }
            answered
        };
        let ended = tokio::time::timeout(PATIENCE, async { tokio::join!(write, read).1 }).await;
        let answered = ended.expect("the link ends");
        assert!(answered <= bytes.len() + ANSWERS_BYTES_MAX, "{answered} bytes for {}", bytes.len());
        host.shut_down();
        tokio::time::timeout(PATIENCE, host.ended()).await.expect("the host ends");
        let [opened, closed, messages] = told.counts();
        assert!(opened <= 1 && closed == opened && (opened == 1 || messages == 0), "{:?}", told.counts());
        told.counts()
    })
}

#[derive(Default)]
struct Told {
    opened: AtomicUsize,
    closed: AtomicUsize,
    messages: AtomicUsize,
}

impl Told {
    fn counts(&self) -> [usize; 3] {
        [&self.opened, &self.closed, &self.messages].map(|count| count.load(Ordering::Relaxed))
    }
}

impl Service for Told {
    fn on_open(&self, link: &Arc<Link>) {
        assert!(link.kind().is_local());
        self.opened.fetch_add(1, Ordering::Relaxed);
    }

    fn on_message(&self, _link: &Arc<Link>, _route: &Route, _payload: Bytes) {
        assert_eq!(self.opened.load(Ordering::Relaxed), 1, "a message before the link is open");
        self.messages.fetch_add(1, Ordering::Relaxed);
    }

    fn on_reset(&self, _link: &Arc<Link>, _route: &Route) {}

    fn on_close(&self, _link: &Arc<Link>, _reason: &CloseReason) {
        self.closed.fetch_add(1, Ordering::Relaxed);
    }
}

/// Whose agent the corpus claims to be.
static SEED: LazyLock<Seed> = LazyLock::new(|| Seed::new([1; 32]));
/// When the messages of the corpus were made.
const NOW_MS: u64 = 1_700_000_000_000;
/// Longer than any deadline of a link, in time that takes none.
const PATIENCE: Duration = Duration::from_secs(600);
/// Bytes on their way in one direction.
const PIPE_BYTES: usize = 64 * 1024;
/// What a sidecar says of itself while a link opens, and why it ends one.
const ANSWERS_BYTES_MAX: usize = 4 * 1024;
