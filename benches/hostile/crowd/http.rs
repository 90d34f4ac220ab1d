//! Requests that come a byte a second: their number in; `open` answered with how many are open, and `MS` with how many the
//! sidecar has closed within that time, out.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpSocket, TcpStream};

use super::{LINKS_PER_ADDRESS, lines, many, say, source};

pub(super) async fn slow(address: SocketAddr, token: &str, count: usize) {
    let begun: Arc<str> = format!(
        "POST /v1/call/{} HTTP/1.1\r\nHost: {address}\r\nAuthorization: Bearer {token}\r\n",
        crate::world::ECHO
    )
    .into();
    let streams: Vec<TcpStream> = many(count, move |number| {
        let begun = Arc::clone(&begun);
        async move {
            let socket = TcpSocket::new_v4()?;
            socket.bind(source(number / LINKS_PER_ADDRESS))?;
            let mut stream = socket.connect(address).await?;
            stream.set_nodelay(true)?;
            stream.write_all(begun.as_bytes()).await?;
            // Of every second one the head ends, and the body never does; of the others not even the head.
            let rest: &[u8] = if number % 2 == 0 {
                b"Content-Type: application/json\r\nContent-Length: 100000\r\n\r\n\""
            } else {
                b"X-Slow: "
            };
            stream.write_all(rest).await?;
            Ok::<_, io::Error>(stream)
        }
    })
    .await;
    let closed = Arc::new(AtomicUsize::new(0));
    for (number, stream) in streams.into_iter().enumerate() {
        tokio::spawn(trickle(stream, number, count, Arc::clone(&closed)));
    }
    say("ready");
    let mut lines = lines();
    while let Some(line) = lines.recv().await {
        if line == "open" {
            say(&(count - closed.load(Ordering::Relaxed)).to_string());
            continue;
        }
        let (begin, time) = (Instant::now(), Duration::from_millis(line.parse().unwrap()));
        while closed.load(Ordering::Relaxed) < count && begin.elapsed() < time {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        say(&closed.load(Ordering::Relaxed).to_string());
    }
}

/// A byte a second, each request at its own part of the second, until the other side has closed.
async fn trickle(stream: TcpStream, number: usize, count: usize, closed: Arc<AtomicUsize>) {
    let (mut receive, mut send) = stream.into_split();
    let writing = async move {
        tokio::time::sleep(Duration::from_secs(1) * number as u32 / count as u32).await;
        while send.write_all(b"x").await.is_ok() {
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
        // The end is heard by reading.
        std::future::pending::<()>().await;
    };
    let reading = async move {
        let mut answer = [0; 1024];
        while matches!(receive.read(&mut answer).await, Ok(length) if length > 0) {}
    };
    tokio::select! {
        () = writing => {}
        () = reading => {}
    }
    closed.fetch_add(1, Ordering::Relaxed);
}
