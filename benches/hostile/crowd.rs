//! The attackers' process: `KIND ADDRESS WHOM COUNT` in; `ready`, and one answer for each line of standard input, out.
//! WHOM is the sidecar's DID, or the token of its HTTP.
//!
//! `idle` holds open QUIC links that say nothing, and answers `N` with the median of N PINGs in microseconds. `ping` is
//! honest: it answers `MS` with the p50 and p99 of the PINGs of that time in microseconds, and their number. `slow`
//! holds TLS links on which one byte of a frame comes each second. `reset` opens a link and answers `N` with what came
//! of resetting N streams. `flood` answers `RATE SECONDS` with how many calls had their result, sent at that rate.
//! `slow-http` is in [`http`], and `schemas`, which takes only how many schemas there are at most, in
//! [`schemas`].

mod http;
mod schemas;

use std::io::{self, BufRead as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use capd_proto::identity::Identity;
use ciborium::Value;
use quinn::crypto::rustls::QuicClientConfig;
use quinn::{Connection, Endpoint, EndpointConfig, RecvStream, SendStream, TokioRuntime};
use rustls::pki_types::ServerName;
use tokio::io::AsyncWriteExt as _;
use tokio::net::{TcpSocket, TcpStream};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use crate::peer::greet::{greet, letter, read_frame};
use crate::peer::tls::client_config;
use crate::peer::{Certificate, frame};
use crate::support::{AMP_MESSAGE, field, map};
use crate::world::{ECHO, at};

/// Links that one address opens: within what a sidecar lets one address begin at once.
const LINKS_PER_ADDRESS: usize = 400;
/// Links that are opening at the same time.
const AT_ONCE: usize = 32;
/// How often an attacker tries again whom the sidecar had no place for.
const TRIES: usize = 50;
const PING_FRAME: u8 = 0x03;
const PONG_FRAME: u8 = 0x04;
const CAP_INVOKE: u64 = 0x22;

/// The process's whole life.
pub(crate) fn run(words: &[String]) {
    crate::world::raise_files_limit();
    if let [kind, most] = words
        && kind == "schemas"
    {
        return schemas::attack(most.parse().unwrap());
    }
    let [kind, address, whom, count] = words else { panic!("KIND ADDRESS WHOM COUNT") };
    let target = Target { address: address.parse().unwrap(), did: whom.as_str().into() };
    let count = count.parse().unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    match kind.as_str() {
        "idle" => runtime.block_on(idle(&target, count)),
        "ping" => runtime.block_on(honest_pings(&target)),
        "slow" => runtime.block_on(slow(&target, count)),
        "slow-http" => runtime.block_on(http::slow(target.address, whom, count)),
        "reset" => runtime.block_on(reset(&target)),
        "flood" => runtime.block_on(flood(&target, count)),
        other => panic!("{other} is no crowd"),
    }
}

/// Whom the crowd attacks.
#[derive(Clone)]
struct Target {
    address: SocketAddr,
    did: Arc<str>,
}

/// A frame's type and payload.
type Frame = (u8, Vec<u8>);

/// A QUIC link and its control stream.
struct QuicLink {
    identity: Identity,
    connection: Connection,
    send: SendStream,
    receive: RecvStream,
}

async fn idle(target: &Target, count: usize) {
    let mut links = quic_links(target, count).await;
    say("ready");
    let mut lines = lines();
    while let Some(line) = lines.recv().await {
        let mut times = Vec::new();
        for number in 0..line.parse().unwrap() {
            let last = links.len() - 1;
            let link = &mut links[number % (last + 1)];
            times.push(ping(link).await);
        }
        times.sort_unstable();
        say(&format!("{:.0}", times[times.len() / 2].as_secs_f64() * 1e6));
    }
}

async fn honest_pings(target: &Target) {
    let QuicLink { mut send, receive, connection: _connection, .. } =
        quic_links(target, 1).await.pop().expect("one was asked for");
    let mut frames = frames(receive);
    say("ready");
    let mut lines = lines();
    loop {
        // Between two questions as well, it answers a sidecar that wants to know whether it is there.
        let line = tokio::select! {
            line = lines.recv() => line,
            arrived = frames.recv() => {
                answer_ping(arrived.expect("the link stands"), &mut send).await;
                continue;
            }
        };
        let Some(line) = line else { return };
        let (time, begin, mut times) =
            (Duration::from_millis(line.parse().unwrap()), Instant::now(), Vec::new());
        while begin.elapsed() < time {
            let sent = Instant::now();
            send.write_all(&frame(PING_FRAME, b"how long")).await.unwrap();
            loop {
                let arrived = frames.recv().await.expect("the link stands");
                if arrived.0 == PONG_FRAME {
                    break;
                }
                answer_ping(arrived, &mut send).await;
            }
            times.push(sent.elapsed());
        }
        times.sort_unstable();
        let us = |part| at(&times, part).as_secs_f64() * 1e6;
        say(&format!("{:.1} {:.1} {}", us(0.5), us(0.99), times.len()));
    }
}

async fn answer_ping((frame_type, payload): Frame, send: &mut SendStream) {
    if frame_type == PING_FRAME {
        send.write_all(&frame(PONG_FRAME, &payload)).await.unwrap();
    }
}

/// What arrives, read by a task of its own, since a frame that is half read must not be lost; the channel ends with the
/// link.
fn frames(mut receive: RecvStream) -> mpsc::Receiver<Frame> {
    let (sender, receiver) = mpsc::channel(16);
    tokio::spawn(async move {
        loop {
            match read_frame(&mut receive).await {
                Ok(arrived) => {
                    if sender.send(arrived).await.is_err() {
                        return;
                    }
                }
                Err(error) => return eprintln!("the honest peer's link: {error}"),
            }
        }
    });
    receiver
}

/// The time until a PING is answered; answers the sidecar's own meanwhile.
async fn ping(link: &mut QuicLink) -> Duration {
    let begin = Instant::now();
    link.send.write_all(&frame(PING_FRAME, b"how long")).await.unwrap();
    loop {
        let arrived = read_frame(&mut link.receive).await.unwrap();
        if arrived.0 == PONG_FRAME {
            return begin.elapsed();
        }
        answer_ping(arrived, &mut link.send).await;
    }
}

async fn quic_links(target: &Target, count: usize) -> Vec<QuicLink> {
    let endpoints: Vec<_> = (0..count.div_ceil(LINKS_PER_ADDRESS)).map(|at| endpoint(source(at))).collect();
    let target = target.clone();
    many(count, move |number| {
        let (target, endpoint) = (target.clone(), endpoints[number / LINKS_PER_ADDRESS].clone());
        async move { quic_link(&target, &endpoint, number).await }
    })
    .await
}

/// One that takes packets as long as a sidecar's.
fn endpoint(source: SocketAddr) -> Endpoint {
    let mut config = EndpointConfig::default();
    config.max_udp_payload_size(8_952).unwrap();
    let socket = UdpSocket::bind(source).unwrap();
    Endpoint::new(config, None, socket, Arc::new(TokioRuntime)).unwrap()
}

async fn quic_link(target: &Target, endpoint: &Endpoint, number: usize) -> io::Result<QuicLink> {
    let seed = seed(number);
    let config = client_config(&target.did, &Certificate::Of(seed));
    let crypto = QuicClientConfig::try_from(config).map_err(io::Error::other)?;
    let config = quinn::ClientConfig::new(Arc::new(crypto));
    let connection = endpoint.connect_with(config, target.address, "capd").map_err(io::Error::other)?.await?;
    let (mut send, mut receive) = connection.open_bi().await?;
    let identity = Identity::from_seed(seed);
    greet(&mut send, &mut receive, &identity, &target.did).await?;
    Ok(QuicLink { identity, connection, send, receive })
}

async fn slow(target: &Target, count: usize) {
    let target = target.clone();
    let mut links: Vec<TlsStream<TcpStream>> = many(count, move |number| {
        let target = target.clone();
        async move { tls_link(&target, number).await }
    })
    .await;
    say("ready");
    let mut lines = lines();
    // The head of a frame that may be, and then its payload, a byte a second.
    let head = [0, 0xff, 0xff, 0xff, AMP_MESSAGE];
    for second in 0.. {
        let byte = [head.get(second).copied().unwrap_or(0xa0)];
        for link in &mut links {
            // Whoever is closed is closed.
            let _closed = link.write_all(&byte).await;
            let _closed = link.flush().await;
        }
        tokio::select! {
            line = lines.recv() => if line.is_none() { return },
            () = tokio::time::sleep(Duration::from_secs(1)) => {}
        }
    }
}

async fn tls_link(target: &Target, number: usize) -> io::Result<TlsStream<TcpStream>> {
    let seed = seed(number);
    let socket = TcpSocket::new_v4()?;
    socket.bind(source(number / LINKS_PER_ADDRESS))?;
    let stream = socket.connect(target.address).await?;
    let connector = TlsConnector::from(Arc::new(client_config(&target.did, &Certificate::Of(seed))));
    let mut stream = connector.connect(ServerName::IpAddress(target.address.ip().into()), stream).await?;
    let (mut receive, mut send) = tokio::io::split(&mut stream);
    greet(&mut send, &mut receive, &Identity::from_seed(seed), &target.did).await?;
    Ok(stream)
}

async fn reset(target: &Target) {
    let link = quic_links(target, 1).await.pop().expect("one was asked for");
    say("ready");
    let mut lines = lines();
    while let Some(line) = lines.recv().await {
        let (most, begin) = (line.parse::<u64>().unwrap(), Instant::now());
        let mut resets = 0;
        while resets < most && begin.elapsed() < Duration::from_secs(10) {
            let Ok((mut send, _)) = link.connection.open_bi().await else { break };
            // A stream of which nothing was sent is not seen at the other side.
            if send.write_all(&[0]).await.is_err() || send.reset(0x4901_u32.into()).is_err() {
                break;
            }
            resets += 1;
        }
        // The last resets may be on their way when the link is cut.
        let is_cut = tokio::time::timeout(CUT_WAIT, link.connection.closed()).await.is_ok();
        say(&format!("{is_cut} {resets} {}", begin.elapsed().as_secs_f64()));
    }
}

async fn flood(target: &Target, count: usize) {
    let links = quic_links(target, count).await;
    let succeeded = Arc::new(AtomicU64::new(0));
    let mut senders = Vec::new();
    for link in links {
        let (send, receive) = link.connection.open_bi().await.unwrap();
        tokio::spawn(count_results(receive, Arc::clone(&succeeded)));
        senders.push((link, send));
    }
    say("ready");
    let mut lines = lines();
    while let Some(line) = lines.recv().await {
        let words: Vec<f64> = line.split(' ').map(|word| word.parse().unwrap()).collect();
        let [rate, seconds] = words[..] else { panic!("{line:?} is no RATE SECONDS") };
        let before = succeeded.load(Ordering::Relaxed);
        let begin = Instant::now();
        let mut sent = 0;
        while begin.elapsed().as_secs_f64() < seconds {
            let due = (begin.elapsed().as_secs_f64() * rate) as u64;
            let at = usize::try_from(sent).unwrap() % senders.len();
            let (link, send) = &mut senders[at];
            let mut frames = Vec::new();
            for _ in 0..due.saturating_sub(sent).min(BURST) {
                frames.extend(invoke(&link.identity, &target.did));
                sent += 1;
            }
            if frames.is_empty() {
                tokio::time::sleep(Duration::from_millis(1)).await;
            } else {
                send.write_all(&frames).await.unwrap();
                tokio::task::yield_now().await;
            }
        }
        let results = succeeded.load(Ordering::Relaxed) - before;
        say(&format!("{sent} {results} {}", begin.elapsed().as_secs_f64()));
    }
}

/// An invoke without signature: the channel speaks for its own end.
fn invoke(identity: &Identity, did: &str) -> Vec<u8> {
    let body = map([("id", ECHO.into()), ("params", Value::Null), ("timeout_ms", 5_000.into())]);
    let letter = letter(identity, did, CAP_INVOKE, &body);
    frame(AMP_MESSAGE, &letter.seal(identity, false))
}

async fn count_results(mut receive: RecvStream, succeeded: Arc<AtomicU64>) {
    while let Ok((_, payload)) = read_frame(&mut receive).await {
        let value = crate::support::decode(&payload);
        let status = field(&value, "body").and_then(|body| field(body, "status"));
        if status.and_then(Value::as_text) == Some("success") {
            succeeded.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// `count` of what `make` makes, several at once; who finds no place tries again.
async fn many<T, F>(count: usize, make: impl Fn(usize) -> F + Clone + Send + 'static) -> Vec<T>
where
    T: Send + 'static,
    F: Future<Output = io::Result<T>> + Send + 'static,
{
    let (mut running, mut made) = (JoinSet::new(), Vec::with_capacity(count));
    for number in 0..count {
        if running.len() == AT_ONCE {
            made.push(running.join_next().await.expect("one is running").unwrap());
        }
        let make = make.clone();
        running.spawn(async move {
            for _ in 0..TRIES {
                match make(number).await {
                    Ok(made) => return made,
                    Err(error) => eprintln!("attacker {number}: {error}"),
                }
                tokio::time::sleep(Duration::from_millis(200)).await;
            }
            panic!("attacker {number} found no place")
        });
    }
    made.extend(running.join_all().await);
    made
}

/// An address in 127.32.0.0/11, all of which is this machine.
fn source(number: usize) -> SocketAddr {
    SocketAddr::from((Ipv4Addr::from(0x7f20_0001 + u32::try_from(number).unwrap()), 0))
}

fn seed(number: usize) -> [u8; 32] {
    let mut seed = [0xa7; 32];
    seed[..8].copy_from_slice(&number.to_be_bytes());
    seed[8..12].copy_from_slice(&std::process::id().to_be_bytes());
    seed
}

/// The lines of standard input, read by a thread of their own; the channel ends with them.
fn lines() -> mpsc::Receiver<String> {
    let (sender, receiver) = mpsc::channel(1);
    std::thread::spawn(move || {
        for line in io::stdin().lock().lines() {
            if sender.blocking_send(line.unwrap()).is_err() {
                break;
            }
        }
    });
    receiver
}

fn say(line: &str) {
    println!("{line}");
    io::stdout().flush().unwrap();
}

/// Longest wait for the end of a link that was misused.
const CUT_WAIT: Duration = Duration::from_secs(2);
/// Calls written at once.
const BURST: u64 = 256;
