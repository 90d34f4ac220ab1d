//! Plays introductions on virtual time: honest ones, and with strangers at the door or in the middle.

use std::sync::Arc;
use std::time::Duration;

use capd_proto::identity::Identity;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream, duplex};
use tokio::net::{TcpListener, TcpStream};

use super::exchange::{Tries, answer};
use super::*;

/// As many tries as one likes.
struct Patient;

impl Tries for Patient {
    fn judge(&self, is_right: bool) -> Result<(), PairError> {
        if is_right { Ok(()) } else { Err(PairError::WrongCode) }
    }
}

fn own(number: u8, name: &str) -> Own {
    let card = Card {
        name: name.to_owned(),
        serves: vec![format!("com.{name}.*")],
        addresses: Vec::new(),
        quic_port: Some(7001),
        tcp_port: None,
    };
    Own { identity: Identity::from_seed([number; 32]), card }
}

fn code(text: &str) -> Code {
    text.parse().unwrap()
}

/// Both sides of one run, each over its end of a pipe.
async fn run(
    dialler: (DuplexStream, &str, &Own),
    listener: (DuplexStream, &str, &Own),
) -> (Result<Met<DuplexStream>, PairError>, Result<Met<DuplexStream>, PairError>) {
    let (dialler_code, listener_code) = (code(dialler.1), code(listener.1));
    tokio::join!(
        dial(dialler.0, &dialler_code, dialler.2),
        answer(listener.0, &listener_code, listener.2, &Patient)
    )
}

async fn pair(
    codes: [&str; 2],
) -> (Result<Met<DuplexStream>, PairError>, Result<Met<DuplexStream>, PairError>) {
    let (one, other) = duplex(1 << 16);
    run((one, codes[0], &own(1, "ann")), (other, codes[1], &own(2, "bob"))).await
}

#[tokio::test(start_paused = true)]
async fn with_the_same_code_each_side_gets_the_other_s_card() {
    let (dialled, answered) = pair(["7Q2K-9XHD", "7q2k9xhd"]).await;
    let (dialled, answered) = (dialled.unwrap(), answered.unwrap());
    assert_eq!((dialled.did(), dialled.card()), (own(2, "").identity.did(), &own(2, "bob").card));
    assert_eq!((answered.did(), answered.card()), (own(1, "").identity.did(), &own(1, "ann").card));
    let (dialled, answered) = tokio::join!(dialled.agree(), answered.agree());
    let (dialled, answered) = tokio::join!(dialled.unwrap().written(), answered.unwrap().written());
    dialled.unwrap();
    answered.unwrap();
}

#[tokio::test(start_paused = true)]
async fn one_side_gives_the_other_bytes_once_both_have_agreed() {
    let (dialled, answered) = pair(["7Q2K-9XHD", "7Q2K-9XHD"]).await;
    let (dialled, answered) = tokio::join!(dialled.unwrap().agree(), answered.unwrap().agree());
    let (mut dialled, mut answered) = (dialled.unwrap(), answered.unwrap());
    let (given, taken) = tokio::join!(answered.give(b"a membership"), dialled.take());
    given.unwrap();
    assert_eq!(taken.unwrap(), b"a membership");
    let (dialled, answered) = tokio::join!(dialled.written(), answered.written());
    dialled.unwrap();
    answered.unwrap();
}

#[tokio::test(start_paused = true)]
async fn bytes_are_not_taken_for_a_side_that_gives_none() {
    let (dialled, answered) = pair(["7Q2K-9XHD", "7Q2K-9XHD"]).await;
    let (dialled, answered) = tokio::join!(dialled.unwrap().agree(), answered.unwrap().agree());
    let mut dialled = dialled.unwrap();
    let (taken, _) = tokio::join!(dialled.take(), answered.unwrap().failed());
    assert!(matches!(taken, Err(PairError::Malformed(_))), "{taken:?}");
}

#[tokio::test(start_paused = true)]
async fn nothing_counts_when_one_owner_declines_or_goes_away() {
    let (dialled, answered) = pair(["7Q2K-9XHD", "7Q2K-9XHD"]).await;
    let (agreed, declined) = tokio::join!(dialled.unwrap().agree(), answered.unwrap().decline());
    declined.unwrap();
    assert!(matches!(agreed, Err(PairError::Declined)));
    let (dialled, answered) = pair(["7Q2K-9XHD", "7Q2K-9XHD"]).await;
    drop(dialled.unwrap());
    assert!(matches!(answered.unwrap().agree().await, Err(PairError::Closed)));
}

#[tokio::test(start_paused = true)]
async fn a_wrong_code_gives_no_card_on_either_side() {
    let (dialled, answered) = pair(["7Q2K-9XHD", "7Q2K-9XHE"]).await;
    assert!(matches!(dialled, Err(PairError::WrongCode)), "{:?}", dialled.err());
    assert!(matches!(answered, Err(PairError::WrongCode)), "{:?}", answered.err());
}

#[tokio::test(start_paused = true)]
async fn a_sidecar_is_not_introduced_to_itself() {
    let (one, other) = duplex(1 << 16);
    let (dialled, answered) =
        run((one, "7Q2K-9XHD", &own(1, "ann")), (other, "7Q2K-9XHD", &own(1, "ann"))).await;
    assert!(matches!(answered, Err(PairError::Same(_))), "{:?}", answered.err());
    assert!(dialled.is_err());
}

/// Somebody in the middle passes messages on, and changes those that it is told to change.
async fn passing(
    from_dialler: DuplexStream,
    from_listener: DuplexStream,
    change: impl Fn(usize, Vec<u8>) -> Vec<u8>,
) {
    async fn read(stream: &mut (impl tokio::io::AsyncRead + Unpin)) -> Option<Vec<u8>> {
        let length = stream.read_u32().await.ok()?;
        let mut bytes = vec![0; length as usize];
        stream.read_exact(&mut bytes).await.ok()?;
        Some(bytes)
    }
    let (mut dialler_in, mut dialler_out) = tokio::io::split(from_dialler);
    let (mut listener_in, mut listener_out) = tokio::io::split(from_listener);
    let change = &change;
    let up = async {
        for number in [0, 2, 4, 6, 8] {
            let Some(bytes) = read(&mut dialler_in).await else { break };
            let bytes = change(number, bytes);
            let _gone = listener_out.write_u32(bytes.len() as u32).await;
            let _gone = listener_out.write_all(&bytes).await;
        }
        let _gone = listener_out.shutdown().await;
    };
    let down = async {
        for number in [1, 3, 5, 7, 9] {
            let Some(bytes) = read(&mut listener_in).await else { break };
            let bytes = change(number, bytes);
            let _gone = dialler_out.write_u32(bytes.len() as u32).await;
            let _gone = dialler_out.write_all(&bytes).await;
        }
        let _gone = dialler_out.shutdown().await;
    };
    tokio::join!(up, down);
}

/// A run with the same code, through somebody in the middle.
async fn through(
    change: impl Fn(usize, Vec<u8>) -> Vec<u8>,
) -> (Result<Met<DuplexStream>, PairError>, Result<Met<DuplexStream>, PairError>) {
    let ((one, middle_one), (other, middle_other)) = (duplex(1 << 16), duplex(1 << 16));
    let (ann, bob) = (own(1, "ann"), own(2, "bob"));
    let both = run((one, "7Q2K-9XHD", &ann), (other, "7Q2K-9XHD", &bob));
    // Those who met keep their connection, and whoever passes messages on waits for more.
    let middle = async {
        passing(middle_one, middle_other, change).await;
        std::future::pending::<()>().await;
    };
    tokio::select! {
        outcome = both => outcome,
        () = middle => unreachable!("it never ends"),
    }
}

fn replaced(bytes: Vec<u8>, old: &str, new: &str) -> Vec<u8> {
    String::from_utf8(bytes).unwrap().replace(old, new).into_bytes()
}

#[tokio::test(start_paused = true)]
async fn somebody_in_the_middle_who_changes_nothing_is_harmless() {
    let (dialled, answered) = through(|_, bytes| bytes).await;
    assert!(dialled.is_ok() && answered.is_ok(), "the harness passes messages on");
}

#[tokio::test(start_paused = true)]
async fn somebody_in_the_middle_cannot_put_another_did_in() {
    let [ann, bob, eve] = [1, 2, 3].map(|number| own(number, "x").identity.did().to_string());
    // The listener is told another DID than the dialler said, or the other way round.
    for (number, did) in [(0, &ann), (1, &bob)] {
        let (dialled, answered) =
            through(|at, bytes| if at == number { replaced(bytes, did, &eve) } else { bytes }).await;
        assert!(dialled.is_err() && answered.is_err(), "message {number}");
        assert!(matches!(answered, Err(PairError::WrongCode)), "{:?}", answered.err());
    }
}

#[tokio::test(start_paused = true)]
async fn somebody_in_the_middle_cannot_change_any_message() {
    for number in 0..=5 {
        for flipped in [0, 20, usize::MAX] {
            let (dialled, answered) = through(|at, mut bytes| {
                if at == number {
                    let last = bytes.len() - 1;
                    bytes[flipped.min(last)] ^= 1;
                }
                bytes
            })
            .await;
            // The last message that each sends before it has the other's card is the card.
            assert!(dialled.is_err() || answered.is_err(), "message {number}, byte {flipped}");
            if number < 3 {
                assert!(dialled.is_err() && answered.is_err(), "message {number}, byte {flipped}");
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn somebody_in_the_middle_who_plays_both_sides_needs_the_code() {
    let ((one, middle_one), (other, middle_other)) = (duplex(1 << 16), duplex(1 << 16));
    let (ann, bob, eve) = (own(1, "ann"), own(2, "bob"), own(3, "eve"));
    let (right, guess) = (code("7Q2K-9XHD"), code("7Q2K-9XHE"));
    let (dialled, answered, caught, tricked) = tokio::join!(
        dial(one, &right, &ann),
        answer(other, &right, &bob, &Patient),
        answer(middle_one, &guess, &eve, &Patient),
        dial(middle_other, &guess, &eve),
    );
    assert!(matches!(dialled, Err(PairError::WrongCode)), "{:?}", dialled.err());
    assert!(matches!(answered, Err(PairError::WrongCode)), "{:?}", answered.err());
    assert!(caught.is_err() && tricked.is_err());
}

#[tokio::test(start_paused = true)]
async fn whoever_has_the_code_but_not_the_key_of_the_did_gets_nowhere() {
    let (one, other) = duplex(1 << 16);
    let liar = own(1, "ann");
    let liar =
        Own { identity: liar.identity.with_did(own(3, "eve").identity.did().clone()), card: liar.card };
    let (_, answered) = run((one, "7Q2K-9XHD", &liar), (other, "7Q2K-9XHD", &own(2, "bob"))).await;
    let Err(PairError::Unproven(did)) = answered else { panic!("{:?}", answered.err()) };
    assert_eq!(&did, own(3, "eve").identity.did());
}

#[tokio::test(start_paused = true)]
async fn a_card_that_claims_too_much_is_refused() {
    let card = own(1, "ann").card;
    for card in [
        Card { name: "a b".to_owned(), ..card.clone() },
        Card { name: "did:key:z6Mk".to_owned(), ..card.clone() },
        Card { name: "\u{1b}[2J".to_owned(), ..card.clone() },
        Card { name: String::new(), ..card.clone() },
        Card { serves: vec!["*".to_owned()], ..card.clone() },
        Card { serves: vec!["com.ann.*".to_owned(); 33], ..card.clone() },
        Card { serves: vec!["\"]\nx = 1".to_owned()], ..card.clone() },
        Card { quic_port: Some(0), ..card.clone() },
    ] {
        let (one, other) = duplex(1 << 16);
        let sender = Own { identity: Identity::from_seed([1; 32]), card };
        let (_, answered) = run((one, "7Q2K-9XHD", &sender), (other, "7Q2K-9XHD", &own(2, "bob"))).await;
        assert!(matches!(answered, Err(PairError::Malformed(_))), "{:?}: {:?}", sender.card, answered.err());
    }
}

#[tokio::test(start_paused = true)]
async fn junk_is_refused_and_never_allocated_for() {
    for junk in [
        &b"GET / HTTP/1.1\r\nHost: a\r\n\r\n"[..],
        &[0xff; 64],
        &[0, 0, 0, 0],
        &[0, 0, 0, 2, b'{', b'}'],
        b"\x00\x00\x00\x22{\"capd_pair\": 2, \"did\": \"did:key:z\"}",
        b"\x00\x00\x00\x22{\"capd_pair\": 1, \"did\": \"did:key:z\"}",
        &[0, 0],
        b"",
    ] {
        let (mut one, other) = duplex(1 << 16);
        let (code, bob) = (code("7Q2K-9XHD"), own(2, "bob"));
        one.write_all(junk).await.unwrap();
        one.shutdown().await.unwrap();
        let answered = answer(other, &code, &bob, &Patient).await;
        let is_told = matches!(answered, Err(PairError::Malformed(_) | PairError::Closed));
        assert!(is_told, "{junk:?}: {:?}", answered.err());
    }
}

/// A listener on loopback, and what it comes to.
async fn listening(
    limits: Limits,
) -> (std::net::SocketAddr, tokio::task::JoinHandle<(Result<Met<TcpStream>, PairError>, usize)>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let at = listener.local_addr().unwrap();
    let task = tokio::spawn(async move {
        let mut failures = 0;
        let own = Arc::new(own(2, "bob"));
        let met = listen(listener, code("7Q2K-9XHD"), own, limits, |_| failures += 1).await;
        (met.map(|(met, _)| met), failures)
    });
    (at, task)
}

async fn dialled(at: std::net::SocketAddr, text: &str) -> Result<Met<TcpStream>, PairError> {
    dial(TcpStream::connect(at).await?, &code(text), &own(1, "ann")).await
}

#[tokio::test]
async fn a_code_survives_a_wrong_one_and_junk_and_is_void_once_it_was_used() {
    let (at, task) = listening(Limits::default()).await;
    let mut junk = TcpStream::connect(at).await.unwrap();
    junk.write_all(b"GET / HTTP/1.1\r\n\r\n").await.unwrap();
    let wrong = dialled(at, "0000-0000").await;
    assert!(matches!(wrong, Err(PairError::WrongCode)), "{:?}", wrong.err());
    // It is let in before the right one comes, and comes too late.
    let mut late = TcpStream::connect(at).await.unwrap();
    let met = dialled(at, "7Q2K-9XHD").await.unwrap();
    let (answered, failures) = task.await.unwrap();
    assert_eq!(answered.unwrap().did(), own(1, "").identity.did());
    assert!((1..=2).contains(&failures), "{failures}");
    assert_eq!(met.did(), own(2, "").identity.did());
    assert_eq!(late.read(&mut [0; 8]).await.unwrap_or(0), 0, "nobody is served after that");
    assert!(matches!(dialled(at, "7Q2K-9XHD").await, Err(PairError::Io(_) | PairError::Closed)));
}

#[tokio::test]
async fn three_wrong_codes_void_it_however_many_come_at_once() {
    let limits = Limits { handshake: Duration::from_secs(30), ..Limits::default() };
    let (at, task) = listening(limits).await;
    let guesses = (0..8).map(|number| async move { dialled(at, &format!("0000-000{number}")).await });
    for guess in futures_util::future::join_all(guesses).await {
        assert!(guess.is_err());
    }
    let (answered, _) = task.await.unwrap();
    assert!(matches!(answered, Err(PairError::TooManyTries(3))), "{:?}", answered.err());
    assert!(dialled(at, "7Q2K-9XHD").await.is_err(), "the right code is void");
}

#[tokio::test(start_paused = true)]
async fn a_code_expires() {
    let (_, task) = listening(Limits::default()).await;
    let begun = tokio::time::Instant::now();
    let (answered, _) = task.await.unwrap();
    assert!(matches!(answered, Err(PairError::Expired)));
    assert_eq!(begun.elapsed().as_secs(), 600);
}

#[tokio::test]
async fn connections_that_lead_to_nothing_are_counted() {
    let limits = Limits { connections: 5, ..Limits::default() };
    let (at, task) = listening(limits).await;
    for _ in 0..5 {
        drop(TcpStream::connect(at).await.unwrap());
    }
    let (answered, failures) = task.await.unwrap();
    assert!(matches!(answered, Err(PairError::TooManyConnections(5))), "{:?}", answered.err());
    assert_eq!(failures, 5);
}

#[tokio::test]
async fn a_code_whose_first_user_goes_away_is_used() {
    let (at, task) = listening(Limits::default()).await;
    let mut stream = TcpStream::connect(at).await.unwrap();
    // It has the code, and ends before it shows its card.
    let (near, far) = duplex(1 << 16);
    let pumped = tokio::spawn(async move {
        let mut far = far;
        let _ended = tokio::io::copy_bidirectional(&mut far, &mut stream).await;
    });
    let (code, liar) = (code("7Q2K-9XHD"), own(1, "ann"));
    let liar =
        Own { identity: liar.identity.with_did(own(3, "eve").identity.did().clone()), card: liar.card };
    let dialled = dial(near, &code, &liar).await;
    drop(dialled);
    let (answered, _) = task.await.unwrap();
    assert!(matches!(answered, Err(PairError::Unproven(_))), "{:?}", answered.err());
    pumped.await.unwrap();
}
