//! Peers that die, hang and crash again and again in; what that costs the calls that follow out (PROTOCOL 4, *Which
//! link carries a call*).

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::{Duration, Instant};

use ciborium::Value;

use crate::agents::{CAP_DECLARE, CAP_QUERY, Caller, Provider, by_id, loose, success};
use crate::support::{PATIENCE, Setup, Sidecar, field, map};

const ONCE: &str = "org.example.once:1.0.0";
const LOOK: &str = "org.example.look:1.0.0";

/// A sidecar that serves both, by commands.
fn serving() -> Setup {
    let yaml = "version: 1\nnamespace: org.example\ncapabilities:\n  - name: once\n    command: [cat]\n  - name: look\n    \
                idempotent: true\n    command: [cat]\n";
    Setup::new().capabilities(yaml)
}

/// A sidecar that knows what both serve.
fn beside(providers: [&Sidecar; 2]) -> (Sidecar, Caller) {
    let a = Setup::new().peer(providers[0]).peer(providers[1]).start();
    let mut caller = Caller::of(&a);
    let deadline = Instant::now() + PATIENCE;
    let query = || map([("filter", map([("capability", "org.example.once".into())]))]);
    loop {
        let id = caller.link.send(CAP_QUERY, query());
        let answer = caller.about(&id);
        let listed = (answer.typ() == CAP_DECLARE)
            .then(|| field(answer.body(), "capabilities").and_then(Value::as_array).unwrap().len());
        if listed == Some(2) {
            return (a, caller);
        }
        assert!(Instant::now() < deadline, "both providers are known: {answer:?}");
    }
}

/// Makes a call and returns how long its result took.
fn call(caller: &mut Caller, capability: &str) -> Duration {
    let asked = Instant::now();
    let id = caller.invoke(by_id(capability, "hello".into()));
    assert_eq!(success(&caller.result(&id)), &Value::from("hello"), "{capability}");
    asked.elapsed()
}

/// The slowest of the calls that an agent makes one after the other, five a second, until the dead peer's link is long
/// given up.
fn slowest(caller: &mut Caller) -> Duration {
    let (began, mut slowest) = (Instant::now(), Duration::ZERO);
    while began.elapsed() < Duration::from_secs(8) {
        for capability in [ONCE, LOOK] {
            std::thread::sleep(Duration::from_millis(200));
            slowest = slowest.max(call(caller, capability));
        }
    }
    slowest
}

/// The provider that is preferred, if one is, and the other.
fn providers() -> [Sidecar; 2] {
    let mut providers = [serving().start(), serving().start()];
    providers.sort_by(|one, other| one.did.cmp(&other.did));
    providers
}

#[test]
fn every_call_after_a_providers_sidecar_was_killed_goes_to_another_within_a_second_and_a_half() {
    let [mut preferred, other] = providers();
    let (_a, mut caller) = beside([&preferred, &other]);
    for capability in [ONCE, LOOK] {
        call(&mut caller, capability);
    }
    preferred.kill();
    let slowest = slowest(&mut caller);
    assert!(slowest < LATE, "{slowest:?}");
}

#[test]
fn every_call_after_a_providers_sidecar_was_stopped_goes_to_another_within_a_second_and_a_half() {
    let [preferred, other] = providers();
    let (a, mut caller) = beside([&preferred, &other]);
    for capability in [ONCE, LOOK] {
        call(&mut caller, capability);
    }
    preferred.stop();
    let slowest = slowest(&mut caller);
    assert!(slowest < LATE, "{slowest:?}");
    // Its link was given up, whatever the transport believes.
    a.refused("timeouts.dead_ms", 1);
}

#[test]
fn a_call_to_a_peer_that_is_back_after_five_crashes_is_answered_within_a_second_and_a_half() {
    for capability in [ONCE, LOOK] {
        // Each of its lives leaves a link behind of whose end nobody has heard.
        let a = Sidecar::start();
        let mut b = serving().peer(&a).start();
        let mut caller = Caller::of(&a);
        call_once_known(&mut caller, capability);
        for _ in 0..5 {
            b.start_and_kill(Duration::from_millis(800));
        }
        let b = b.restart();
        linked(&b);
        let took = call(&mut caller, capability);
        assert!(took < LATE, "{capability}: {took:?}");
    }
}

#[test]
fn a_call_to_a_peer_that_we_dial_and_that_is_back_after_five_crashes_is_answered_within_a_second_and_a_half()
{
    for capability in [ONCE, LOOK] {
        let mut b = serving().start();
        let a = Setup::new().peer(&b).start();
        let mut caller = Caller::of(&a);
        call(&mut caller, capability);
        for _ in 0..5 {
            b.start_and_kill(Duration::from_millis(800));
        }
        let _b = b.restart();
        let took = call(&mut caller, capability);
        assert!(took < LATE, "{capability}: {took:?}");
    }
}

#[test]
fn a_peer_that_crashes_after_each_call_is_dialled_again_as_soon_as_after_its_first_crash() {
    let b = serving().start();
    let a = Setup::new().peer(&b).start();
    let mut caller = Caller::of(&a);
    call(&mut caller, ONCE);
    let mut b = b.restart();
    for _ in 0..5 {
        let began = Instant::now();
        call(&mut caller, ONCE);
        std::thread::sleep(Duration::from_millis(800).saturating_sub(began.elapsed()));
        b = b.restart();
    }
    let took = call(&mut caller, ONCE);
    assert!(took < LATE, "{took:?}");
}

#[test]
fn a_message_that_takes_longer_to_leave_than_a_peer_may_take_to_answer_arrives() {
    let b = Sidecar::start();
    let mut provider = Provider::of(&b, vec![loose(ONCE)]);
    let slow = slow_way_to(b.tcp.unwrap());
    let a = Setup::new().set("timeouts.dead_ms", "1000").peer_at(&b.did, &[&format!("tcp://{slow}")]).start();
    let mut caller = Caller::of(&a);
    let asked = Instant::now();
    let id = caller.invoke(by_id(ONCE, Value::Bytes(vec![7; 15 << 20])));
    let taken = provider.taken();
    assert!(asked.elapsed() > Duration::from_millis(2_500), "the way was not slow: {:?}", asked.elapsed());
    provider.succeed(&taken, Value::Null);
    caller.result(&id);
    a.refused("timeouts.dead_ms", 0);
}

/// Where to connect to instead of `address`, for 4 MiB a second in that direction.
fn slow_way_to(address: SocketAddr) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    // What it has not passed on yet waits with the sender.
    socket2::SockRef::from(&listener).set_recv_buffer_size(64 * 1024).unwrap();
    let way = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        let (mut near, _) = listener.accept().unwrap();
        let mut far = TcpStream::connect(address).unwrap();
        let (mut from_far, mut to_near) = (far.try_clone().unwrap(), near.try_clone().unwrap());
        std::thread::spawn(move || std::io::copy(&mut from_far, &mut to_near));
        let mut piece = vec![0; 64 * 1024];
        while let Ok(length @ 1..) = near.read(&mut piece) {
            std::thread::sleep(Duration::from_micros(length as u64 * 15_625 / 65_536));
            if far.write_all(&piece[..length]).is_err() {
                break;
            }
        }
    });
    way
}

/// Waits until a sidecar has an open link.
#[track_caller]
fn linked(sidecar: &Sidecar) {
    let deadline = Instant::now() + PATIENCE;
    while sidecar.metric("capd_links{kind=\"quic\"}") == 0 {
        assert!(Instant::now() < deadline, "no link");
        std::thread::yield_now();
    }
}

/// Calls once whoever serves it has connected.
fn call_once_known(caller: &mut Caller, capability: &str) {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let id = caller.invoke(by_id(capability, "hello".into()));
        let answer = caller.about(&id);
        if answer.code().is_none() {
            return;
        }
        assert!(Instant::now() < deadline, "{answer:?}");
    }
}

/// What no call may take.
const LATE: Duration = Duration::from_millis(1_500);
