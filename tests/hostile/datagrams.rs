//! Datagrams that are no QUIC, or pretend to be, in; links that do not notice, and less sent back than came, out.

use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

use crate::crowd::{address, quic_port};
use crate::field::Field;

/// Datagrams that are sent before honest peers have their turn; more follow until they had it.
const AT_FIRST: usize = 20_000;

/// A thread that sends datagrams until it is dropped.
struct Flood {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<Traffic>>,
}

/// Bytes there and back.
#[derive(Clone, Copy, Debug, Default)]
struct Traffic {
    datagrams: usize,
    sent: usize,
    received: usize,
}

impl Flood {
    fn begin(to: SocketAddr) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let (first, has_begun) = std::sync::mpsc::sync_channel(1);
        let is_over = Arc::clone(&stop);
        let thread = std::thread::spawn(move || {
            let socket = UdpSocket::bind(address()).unwrap();
            socket.set_nonblocking(true).unwrap();
            let mut random = Random(0x9e37_79b9_7f4a_7c15);
            let mut traffic = Traffic::default();
            while traffic.datagrams < AT_FIRST || !is_over.load(Ordering::Relaxed) {
                let datagram = random.datagram();
                // A full buffer loses it, as a network may.
                if socket.send_to(&datagram, to).is_ok() {
                    traffic.sent += datagram.len();
                }
                traffic.datagrams += 1;
                while let Ok(bytes) = socket.recv(&mut [0; 2_048]) {
                    traffic.received += bytes;
                }
                if traffic.datagrams == AT_FIRST {
                    // The test may have failed meanwhile.
                    let _gone = first.send(());
                }
            }
            traffic
        });
        has_begun.recv_timeout(crate::support::PATIENCE).expect("the flood begins");
        Self { stop, thread: Some(thread) }
    }

    fn end(mut self) -> Traffic {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.take().expect("ended once").join().unwrap()
    }
}

impl Drop for Flood {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _panicked = thread.join();
        }
    }
}

/// Numbers without order (xorshift), the same in each run.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn bytes(&mut self, count: usize) -> Vec<u8> {
        (0..count).map(|_| (self.next() >> 24) as u8).collect()
    }

    /// Noise; long headers of versions that do not exist and of version 1, with noise behind them; short headers with
    /// connection ids that nobody has.
    fn datagram(&mut self) -> Vec<u8> {
        let length = 1 + self.next() as usize % 1_400;
        let mut bytes = self.bytes(length);
        let version: &[u8] = match self.next() % 6 {
            0 => return bytes,
            1 => &[0x0a, 0x1a, 0x2a, 0x3a],
            2 => &[0, 0, 0, 0],
            3 => {
                bytes[0] = 0x40 | (bytes[0] & 0x3f);
                return bytes;
            }
            _ => &[0, 0, 0, 1],
        };
        bytes[0] |= 0xc0;
        bytes.splice(1..1, version.iter().copied().chain([8]));
        // RFC 9000 14.1: a smaller Initial is not even looked at.
        bytes.resize(bytes.len().max(1_200), 0);
        bytes
    }
}

#[test]
fn garbage_datagrams_disturb_nobody_and_are_not_amplified() {
    let mut field = Field::start();
    let to = quic_port(&field.sidecar);
    field.withstands("garbage datagrams", |_| Flood::begin(to));
    let traffic = Flood::begin(to).end();
    assert!(traffic.datagrams >= AT_FIRST, "{traffic:?}");
    assert!(traffic.received < traffic.sent, "more came back than was sent: {traffic:?}");
}
