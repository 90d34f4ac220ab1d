//! Whoever has the port, and whoever has no token, in; no token, and no link, out.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};

use ciborium::Value;
use ring::hmac;

use crate::support::{
    HANDSHAKE, PATIENCE, Setup, Sidecar, capctl, decode, encode, exit_code, field, map, run_with, set,
    stderr, stdout,
};

const SERVER: &[u8] = b"capd token-proof server";
const CLIENT: &[u8] = b"capd token-proof client";

/// The proof of a side, as PROTOCOL 4 has it, made without the project's own code.
fn proof(token: &[u8], label: &[u8], first: &[u8], second: &[u8]) -> Vec<u8> {
    let key = hmac::Key::new(hmac::HMAC_SHA256, token);
    hmac::sign(&key, &[label, first, second].concat()).as_ref().to_vec()
}

/// Frames over TCP, by hand.
struct Raw(TcpStream);

impl Raw {
    fn connect(address: SocketAddr) -> Self {
        let stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        Self(stream)
    }

    fn send(&mut self, payload: &Value) {
        let payload = encode(payload);
        let mut bytes = u32::try_from(payload.len() + 1).unwrap().to_be_bytes().to_vec();
        bytes.push(HANDSHAKE);
        bytes.extend(payload);
        // It may be closed already, which the next read shows.
        let _ = self.0.write_all(&bytes);
    }

    /// The next HANDSHAKE, or nothing where the link is closed or another frame comes.
    fn next(&mut self) -> Option<Value> {
        let mut head = [0; 5];
        self.0.read_exact(&mut head).ok()?;
        let mut payload = vec![0; u32::from_be_bytes([head[0], head[1], head[2], head[3]]) as usize - 1];
        self.0.read_exact(&mut payload).ok()?;
        (head[4] == HANDSHAKE).then(|| decode(&payload))
    }

    fn ask(&mut self, payload: &Value) -> Option<Value> {
        self.send(payload);
        self.next()
    }
}

fn request() -> Value {
    map([("version", 1.into()), ("max_msg_size", (16 << 20).into())])
}

fn with(key: &str, bytes: &[u8]) -> Value {
    let mut request = request();
    set(&mut request, key, Value::Bytes(bytes.to_vec()));
    request
}

fn bytes(answer: &Value, key: &str) -> Vec<u8> {
    field(answer, key).and_then(Value::as_bytes).unwrap_or_else(|| panic!("no {key}: {answer:?}")).clone()
}

/// Makes the second HANDSHAKE of the sidecar's nonce and its whole first answer.
type Answer<'a> = &'a dyn Fn(&[u8], &Value) -> Value;

fn is_accepted(answer: Option<&Value>) -> bool {
    answer.is_some_and(|answer| field(answer, "accepted") == Some(&true.into()))
}

fn token_of(sidecar: &Sidecar) -> Vec<u8> {
    std::fs::read(sidecar.dir.join("state/token")).unwrap().trim_ascii().to_vec()
}

#[test]
fn whoever_has_the_port_is_not_shown_the_token() {
    let dir = tempfile::tempdir().unwrap();
    let token = b"0123456789abcdef0123456789abcdef";
    let file = dir.path().join("token");
    std::fs::write(&file, token).unwrap();
    // It accepts at once; it answers with a proof of its own making; it sends the client's own words back.
    for attack in ["accept", "guess", "reflect"] {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let impostor = std::thread::spawn(move || {
            let mut link = Raw(listener.accept().unwrap().0);
            link.0.set_read_timeout(Some(PATIENCE)).unwrap();
            let asked = link.next().unwrap();
            let nonce = field(&asked, "nonce").and_then(Value::as_bytes).cloned().unwrap_or(vec![0; 32]);
            let mut answer = map([
                ("version", 1.into()),
                ("accepted", (attack == "accept").into()),
                ("max_msg_size", (16 << 20).into()),
                ("did", "did:key:z6MkpTHR8VNsBxYAAWHut2Geadd9jSwuBV8xRoAnwWsdvktH".into()),
            ]);
            if attack != "accept" {
                let made =
                    if attack == "guess" { proof(b"guess", SERVER, &nonce, &[9; 32]) } else { nonce.clone() };
                set(&mut answer, "nonce", Value::Bytes(vec![9; 32]));
                set(&mut answer, "proof", Value::Bytes(made));
            }
            let mut heard = encode(&asked);
            link.send(&answer);
            let _closed = link.0.read_to_end(&mut heard);
            heard
        });
        let mut command = capctl(None);
        command.args(["--address", &address, "--token-file", file.to_str().unwrap(), "id"]);
        let refused = run_with(&mut command, b"");
        let heard = impostor.join().unwrap();
        assert!(!heard.windows(token.len()).any(|window| window == token), "{attack}: the token was sent");
        assert_eq!(exit_code(&refused), 3, "{attack}: {}", stderr(&refused));
        let own = proof(token, CLIENT, &[9; 32], &bytes(&decode_first(&heard), "nonce"));
        assert!(!heard.windows(32).any(|window| window == own), "{attack}: a proof was given to nobody");
    }
}

/// The first CBOR item of these bytes.
fn decode_first(bytes: &[u8]) -> Value {
    ciborium::from_reader(bytes).unwrap()
}

#[test]
fn a_link_opens_for_a_proof_and_for_nothing_else() {
    let sidecar = Setup::new().set("listen.token_plain", "off").start();
    let (address, token) = (sidecar.local_tcp.unwrap(), token_of(&sidecar));
    let nonce = [3; 32];
    let open = |made: Answer<'_>| {
        let mut link = Raw::connect(address);
        let challenge = link.ask(&with("nonce", &nonce)).unwrap();
        assert!(!is_accepted(Some(&challenge)), "a nonce alone opens nothing");
        assert_eq!(field(&challenge, "did"), None, "nobody is told who this is before that");
        let theirs = bytes(&challenge, "nonce");
        assert_eq!(
            bytes(&challenge, "proof"),
            proof(&token, SERVER, &nonce, &theirs),
            "the sidecar proves itself"
        );
        link.ask(&made(&theirs, &challenge))
    };
    let good = open(&|theirs, _| with("proof", &proof(&token, CLIENT, theirs, &nonce)));
    assert!(is_accepted(good.as_ref()), "{good:?}");
    // A proof of another token, of the other side, for another nonce, the sidecar's own, none, and the token itself.
    let earlier = [7; 32];
    let wrong: [(&str, Answer<'_>); 7] = [
        ("another token", &|theirs, _| with("proof", &proof(b"other", CLIENT, theirs, &nonce))),
        ("the other side", &|theirs, _| with("proof", &proof(&token, SERVER, theirs, &nonce))),
        ("an earlier nonce", &|_, _| with("proof", &proof(&token, CLIENT, &earlier, &nonce))),
        ("reflected", &|_, challenge| with("proof", &bytes(challenge, "proof"))),
        ("none", &|_, _| request()),
        ("the token", &|_, _| with("token", &token)),
        ("a second nonce", &|_, _| with("nonce", &[4; 32])),
    ];
    for (name, made) in wrong {
        let answer = open(made);
        assert!(!is_accepted(answer.as_ref()), "{name}: {answer:?}");
    }
    // Nor does anything without a nonce first.
    let first = [request(), with("token", &token), with("proof", &proof(&token, CLIENT, &[0; 32], &nonce))];
    for request in first {
        assert!(!is_accepted(Raw::connect(address).ask(&request).as_ref()), "{request:?}");
    }
    let mut command = capctl(None);
    let file = sidecar.dir.join("state/token");
    command.args(["--address", &address.to_string(), "--token-file", file.to_str().unwrap(), "id"]);
    let told = run_with(&mut command, b"");
    assert_eq!((exit_code(&told), stdout(&told).trim()), (0, &*sidecar.did), "{}", stderr(&told));
}

#[test]
fn nonces_are_never_used_twice() {
    let sidecar = Setup::new().start();
    let address = sidecar.local_tcp.unwrap();
    let nonce = || bytes(&Raw::connect(address).ask(&with("nonce", &[3; 32])).unwrap(), "nonce");
    assert_ne!(nonce(), nonce());
}

#[test]
fn the_token_itself_is_taken_only_where_a_key_says_so() {
    let sidecar = Setup::new().set("listen.token_plain", "on").start();
    let (address, token) = (sidecar.local_tcp.unwrap(), token_of(&sidecar));
    assert!(is_accepted(Raw::connect(address).ask(&with("token", &token)).as_ref()));
    assert!(!is_accepted(Raw::connect(address).ask(&with("token", b"guess")).as_ref()));
    assert!(!is_accepted(Raw::connect(address).ask(&request()).as_ref()));
}
