//! Introduces two sidecars that never met: a one-time code and a byte stream in; the card of the other side out.
//!
//! The owner of one machine reads a short code to the owner of the other. Both sides run SPAKE2 with it, so a third party
//! that sees or changes every byte has one guess for each run, and learns nothing from it. The key of both is bound to
//! everything that was said before it, the DIDs among it; each side then proves that it has the key, and signs with the
//! key of its DID. Only then do they exchange their [`Card`]s, encrypted. Nothing counts before both owners agree.
//!
//! **Shape:** each message is a length of 4 bytes, big-endian, and that many bytes.
//!
//! | from | message |
//! |---|---|
//! | dialler | JSON `{"capd_pair": 1, "did"}` |
//! | listener | JSON `{"capd_pair": 1, "did", "pake"}` |
//! | dialler | JSON `{"pake", "confirm"}` |
//! | listener | JSON `{"confirm"}`, or `{"refused": "wrong-code"}` |
//! | both | sealed JSON: the card and a signature; then `{"accept"}`; then `{"written"}` |
//!
//! Between the last two, one side may give the other bytes, `{"given"}`: a cell's authority gives a membership.

mod code;
mod exchange;
mod keys;
mod listen;
#[cfg(test)]
mod tests;
mod wire;

use capd_proto::capability::CapabilityPattern;
use capd_proto::identity::{Did, Identity};
use serde::{Deserialize, Serialize};

pub use code::{Code, CodeError};
pub use exchange::{Agreed, Met, dial};
pub use listen::{Event, Limits, listen};

/// This side: its key, and what it tells the other.
#[derive(Debug)]
pub struct Own {
    /// Signs, so that the other side knows that the DID is ours.
    pub identity: Identity,
    /// What the other side is told.
    pub card: Card,
}

/// What one side tells the other about itself; its owner has the last word on all of it.
///
/// **Shape:** JSON with these fields.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Card {
    /// The name that it goes by.
    pub name: String,
    /// What it offers to serve: names and namespaces.
    pub serves: Vec<String>,
    /// Where it can be reached, as in `[[peers]]`; empty where only the ports are known.
    pub addresses: Vec<String>,
    /// The UDP port of its QUIC listener, on the address that the other side sees.
    pub quic_port: Option<u16>,
    /// The TCP port of its TLS listener, on the address that the other side sees.
    pub tcp_port: Option<u16>,
}

impl Card {
    /// What is wrong with a card that came from the other side.
    fn check(&self) -> Result<(), PairError> {
        let wrong = |what: &str| Err(PairError::Malformed(format!("its card has {what}")));
        if !is_name(&self.name) {
            return wrong("a name that is none");
        }
        if self.serves.len() > SERVES_MAX || self.addresses.len() > ADDRESSES_MAX {
            return wrong("more entries than fit");
        }
        // A wildcard is for an owner to write.
        let is_pattern = |text: &String| !matches!(text.parse(), Err(_) | Ok(CapabilityPattern::Any));
        if !self.serves.iter().all(is_pattern) {
            return wrong("a capability that is none");
        }
        if self.quic_port == Some(0) || self.tcp_port == Some(0) {
            return wrong("a port that is none");
        }
        Ok(())
    }
}

/// Whether a text may be the name of a peer: 1 to 64 of the characters A-Z a-z 0-9 . _ -
fn is_name(text: &str) -> bool {
    let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
    (1..=NAME_BYTES_MAX).contains(&text.len()) && text.chars().all(fits)
}

/// Why two sidecars are not introduced.
#[derive(Debug, thiserror::Error)]
pub enum PairError {
    /// The code differs, or somebody stands between the two.
    #[error("the code does not match, or somebody between the two machines changed what was said")]
    WrongCode,
    /// Somebody has been introduced with this code.
    #[error("this code has been used; a code introduces two sidecars once")]
    Used,
    /// The code's time is over.
    #[error("the code has expired")]
    Expired,
    /// As many wrong codes came as a code survives.
    #[error("{0} wrong codes came, so the code is void")]
    TooManyTries(u32),
    /// Too many connections came that were no introduction.
    #[error("{0} connections came that did not complete, so the code is void")]
    TooManyConnections(u32),
    /// What came is none of this protocol.
    #[error("the other side does not speak capd's pairing: {0}")]
    Malformed(String),
    /// The other side has the code, but not the key of the DID that it names.
    #[error("the other side does not hold the key of {0}")]
    Unproven(Did),
    /// Both sides have the same key.
    #[error("both sides are {0}; pair it with another sidecar")]
    Same(Did),
    /// The other owner does not agree.
    #[error("the other side declined")]
    Declined,
    /// The other side went away.
    #[error("the connection to the other side ended")]
    Closed,
    /// The other side took too long.
    #[error("the other side did not answer in time")]
    TimedOut,
    /// The connection failed.
    #[error("the connection failed: {0}")]
    Io(std::io::Error),
}

impl From<std::io::Error> for PairError {
    fn from(error: std::io::Error) -> Self {
        match error.kind() {
            std::io::ErrorKind::UnexpectedEof
            | std::io::ErrorKind::ConnectionReset
            | std::io::ErrorKind::BrokenPipe => Self::Closed,
            _ => Self::Io(error),
        }
    }
}

/// Names and namespaces in one card.
const SERVES_MAX: usize = 32;
/// Addresses in one card.
const ADDRESSES_MAX: usize = 8;
/// Longest name, in bytes.
const NAME_BYTES_MAX: usize = 64;
