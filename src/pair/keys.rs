//! Makes the keys of one introduction: a code and what was said in; proofs, seals and signatures out.

use capd_proto::identity::{Did, Identity, PublicKey};
use ring::{aead, digest, hkdf, hmac};
use spake2::{Ed25519Group, Identity as Party, Password, Spake2};

use super::{Code, PairError};

/// Which of the two a side is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    Dialler,
    Listener,
}

impl Role {
    const fn other(self) -> Self {
        match self {
            Self::Dialler => Self::Listener,
            Self::Listener => Self::Dialler,
        }
    }

    const fn as_str(self) -> &'static str {
        match self {
            Self::Dialler => "dialler",
            Self::Listener => "listener",
        }
    }
}

/// One side's half of SPAKE2, before the other's is there.
pub(super) struct Half(Spake2<Ed25519Group>);

impl Half {
    /// Begins; the message goes to the other side. Both DIDs are part of the key.
    pub(super) fn start(role: Role, code: &Code, dialler: &Did, listener: &Did) -> (Self, Vec<u8>) {
        let party = |role: Role, did: &Did| Party::new(format!("{LABEL} {} {did}", role.as_str()).as_bytes());
        let (a, b) = (party(Role::Dialler, dialler), party(Role::Listener, listener));
        let password = Password::new(code.password());
        let (half, message) = match role {
            Role::Dialler => Spake2::start_a(&password, &a, &b),
            Role::Listener => Spake2::start_b(&password, &a, &b),
        };
        (Self(half), message)
    }

    /// Ends it with the other side's message. `said` is everything that both have said, in order.
    ///
    /// **Errors:** the message is no element of the group.
    pub(super) fn finish(self, role: Role, message: &[u8], said: &[&[u8]]) -> Result<Keys, PairError> {
        let secret = self.0.finish(message).map_err(|error| PairError::Malformed(error.to_string()))?;
        Ok(Keys::new(role, &secret, transcript(said)))
    }
}

/// What both sides have if the code is the same and nobody changed what was said.
pub(super) struct Keys {
    role: Role,
    transcript: [u8; 32],
    confirm: [hmac::Key; 2],
    seal: [aead::LessSafeKey; 2],
    /// Messages sealed and opened so far: the nonces.
    count: [u64; 2],
}

impl Keys {
    fn new(role: Role, secret: &[u8], transcript: [u8; 32]) -> Self {
        let root = hkdf::Salt::new(hkdf::HKDF_SHA256, &transcript).extract(secret);
        let key = |purpose: &str, role: Role| -> [u8; 32] {
            let info = [LABEL.as_bytes(), purpose.as_bytes(), role.as_str().as_bytes()];
            let mut bytes = [0; 32];
            let made = root.expand(&info, hkdf::HKDF_SHA256).and_then(|okm| okm.fill(&mut bytes));
            made.expect("32 bytes are one block of SHA-256");
            bytes
        };
        let sides = [role, role.other()];
        let confirm = sides.map(|side| hmac::Key::new(hmac::HMAC_SHA256, &key(" confirm ", side)));
        let seal = sides.map(|side| {
            let bytes = key(" seal ", side);
            let unbound = aead::UnboundKey::new(&aead::CHACHA20_POLY1305, &bytes);
            aead::LessSafeKey::new(unbound.expect("the key has the length of the algorithm"))
        });
        Self { role, transcript, confirm, seal, count: [0; 2] }
    }

    /// This side's proof that it has the key.
    pub(super) fn proof(&self) -> Vec<u8> {
        hmac::sign(&self.confirm[OURS], &self.transcript).as_ref().to_vec()
    }

    /// Holds the other side's proof to the key, in constant time. **Errors:** [`PairError::WrongCode`].
    pub(super) fn check(&self, proof: &[u8]) -> Result<(), PairError> {
        hmac::verify(&self.confirm[THEIRS], &self.transcript, proof).map_err(|_| PairError::WrongCode)
    }

    /// Encrypts the next message for the other side.
    pub(super) fn seal(&mut self, mut message: Vec<u8>) -> Vec<u8> {
        let nonce = self.nonce(OURS);
        let sealed = self.seal[OURS].seal_in_place_append_tag(nonce, aead::Aad::empty(), &mut message);
        sealed.expect("messages are far shorter than the algorithm's bound");
        message
    }

    /// Decrypts the next message of the other side. **Errors:** it was changed, left out, or sent again.
    pub(super) fn open(&mut self, mut sealed: Vec<u8>) -> Result<Vec<u8>, PairError> {
        let nonce = self.nonce(THEIRS);
        let opened = self.seal[THEIRS].open_in_place(nonce, aead::Aad::empty(), &mut sealed);
        let length = opened.map_err(|_| PairError::Malformed("a message that was changed".into()))?.len();
        sealed.truncate(length);
        Ok(sealed)
    }

    fn nonce(&mut self, side: usize) -> aead::Nonce {
        let mut nonce = [0; aead::NONCE_LEN];
        nonce[aead::NONCE_LEN - 8..].copy_from_slice(&self.count[side].to_be_bytes());
        self.count[side] += 1;
        aead::Nonce::assume_unique_for_key(nonce)
    }

    /// This side's signature: the holder of the DID's key has taken part in this run, in this role.
    pub(super) fn sign(&self, identity: &Identity) -> Vec<u8> {
        identity.sign(&self.signed(self.role)).to_vec()
    }

    /// Checks the other side's signature. **Errors:** [`PairError::Unproven`].
    pub(super) fn verify(&self, did: &Did, signature: &[u8]) -> Result<(), PairError> {
        let unproven = || PairError::Unproven(did.clone());
        let key = PublicKey::from_did(did.as_str()).map_err(|_| unproven())?;
        let signature = signature.try_into().map_err(|_| unproven())?;
        key.verify(&self.signed(self.role.other()), signature).map_err(|_| unproven())
    }

    fn signed(&self, role: Role) -> Vec<u8> {
        [format!("{LABEL} identity {} ", role.as_str()).as_bytes(), &self.transcript].concat()
    }
}

/// The hash of what was said, each message with its length.
fn transcript(said: &[&[u8]]) -> [u8; 32] {
    let mut context = digest::Context::new(&digest::SHA256);
    for message in said {
        context.update(&(message.len() as u64).to_be_bytes());
        context.update(message);
    }
    context.finish().as_ref().try_into().expect("a SHA-256 hash has 32 bytes")
}

const OURS: usize = 0;
const THEIRS: usize = 1;
/// Keeps keys and signatures of this protocol apart from any other.
const LABEL: &str = "capd pair 1";
