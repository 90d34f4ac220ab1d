//! A world's seed in; a crypto provider for TLS out whose every byte can be drawn again.
//!
//! rustls takes its randomness and its key exchange from statics, so the source is a thread's, as a world is. The key
//! exchange is simulated: whoever sees both shares knows the secret, and nobody in a world looks.

use std::cell::RefCell;
use std::sync::Arc;

use rustls::crypto::{
    ActiveKeyExchange, CryptoProvider, GetRandomFailed, SecureRandom, SharedSecret, SupportedKxGroup, ring,
};
use rustls::{Error, NamedGroup, PeerMisbehaved};
use sha2::{Digest, Sha256};

use super::dice::Dice;

thread_local! {
    static SOURCE: RefCell<Dice> = RefCell::new(Dice::new(0));
}

/// Starts this thread's source anew.
pub fn seed(seed: u64) {
    SOURCE.set(Dice::new(seed));
}

/// TLS as the sidecars know it, but for where its bytes come from.
pub fn provider() -> Arc<CryptoProvider> {
    Arc::new(CryptoProvider { secure_random: &Seeded, kx_groups: vec![&Seeded], ..ring::default_provider() })
}

#[derive(Debug)]
struct Seeded;

impl SecureRandom for Seeded {
    fn fill(&self, bytes: &mut [u8]) -> Result<(), GetRandomFailed> {
        SOURCE.with_borrow(|dice| {
            for chunk in bytes.chunks_mut(size_of::<u64>()) {
                chunk.copy_from_slice(&dice.u64().to_be_bytes()[..chunk.len()]);
            }
        });
        Ok(())
    }
}

impl SupportedKxGroup for Seeded {
    fn start(&self) -> Result<Box<dyn ActiveKeyExchange>, Error> {
        let mut share = [0; SHARE_BYTES];
        self.fill(&mut share)?;
        Ok(Box::new(Exchange(share)))
    }

    fn name(&self) -> NamedGroup {
        NamedGroup::X25519
    }
}

/// One side's share.
struct Exchange([u8; SHARE_BYTES]);

impl ActiveKeyExchange for Exchange {
    fn complete(self: Box<Self>, theirs: &[u8]) -> Result<SharedSecret, Error> {
        if theirs.len() != SHARE_BYTES {
            return Err(PeerMisbehaved::InvalidKeyShare.into());
        }
        let (low, high) =
            if self.0.as_slice() < theirs { (&self.0[..], theirs) } else { (theirs, &self.0[..]) };
        let secret = Sha256::new().chain_update(low).chain_update(high).finalize();
        Ok(SharedSecret::from(secret.as_slice()))
    }

    fn pub_key(&self) -> &[u8] {
        &self.0
    }

    fn group(&self) -> NamedGroup {
        NamedGroup::X25519
    }
}

/// Bytes of an X25519 share, so that no message changes its size.
const SHARE_BYTES: usize = 32;
