//! Plays one introduction over a byte stream, as the side that dials or as the side that listens.

use capd_proto::identity::Did;
use tokio::io::{AsyncRead, AsyncWrite};

use super::keys::{Half, Keys, Role};
use super::wire::{self, Given, Hello, Proof, Reply, SignedCard, Verdict, Welcome, Why, Written};
use super::{Card, Code, Own, PairError};

/// The other side has the code and the key of its DID; neither owner has agreed.
pub struct Met<S> {
    stream: S,
    keys: Keys,
    did: Did,
    card: Card,
}

/// Both owners agree.
pub struct Agreed<S> {
    stream: S,
    keys: Keys,
}

/// Decides about a proof before the dialler learns anything of it.
pub(super) trait Tries {
    /// The dialler's proof is right or wrong. **Errors:** why it ends here all the same.
    fn judge(&self, is_right: bool) -> Result<(), PairError>;
}

/// Plays the side that dials, which has the code from the other owner.
///
/// **Errors:** [`PairError`]; after any of them this run is over.
pub async fn dial<S>(mut stream: S, code: &Code, own: &Own) -> Result<Met<S>, PairError>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let ours = own.identity.did().clone();
    let hello = wire::encode(&Hello { capd_pair: VERSION, did: ours.to_string() })?;
    wire::write(&mut stream, &hello).await?;
    let welcome = wire::read(&mut stream).await?;
    let Welcome { capd_pair, did, pake } = wire::decode(&welcome)?;
    let theirs = other(&ours, capd_pair, &did)?;
    let (half, message) = Half::start(Role::Dialler, code, &ours, &theirs);
    let keys = half.finish(Role::Dialler, &pake, &[&hello, &welcome, &message])?;
    let proof = wire::encode(&Proof { pake: message, confirm: keys.proof() })?;
    wire::write(&mut stream, &proof).await?;
    match wire::decode(&wire::read(&mut stream).await?)? {
        Reply::Confirm(confirm) => keys.check(&confirm)?,
        Reply::Refused(Why::WrongCode) => return Err(PairError::WrongCode),
        Reply::Refused(Why::Used) => return Err(PairError::Used),
    }
    meet(stream, keys, theirs, own).await
}

/// Plays the side that listens and made the code.
pub(super) async fn answer<S>(
    mut stream: S,
    code: &Code,
    own: &Own,
    tries: &impl Tries,
) -> Result<Met<S>, PairError>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let ours = own.identity.did().clone();
    let hello = wire::read(&mut stream).await?;
    let Hello { capd_pair, did } = wire::decode(&hello)?;
    let theirs = other(&ours, capd_pair, &did)?;
    let (half, pake) = Half::start(Role::Listener, code, &theirs, &ours);
    let welcome = wire::encode(&Welcome { capd_pair: VERSION, did: ours.to_string(), pake })?;
    wire::write(&mut stream, &welcome).await?;
    let Proof { pake, confirm } = wire::decode(&wire::read(&mut stream).await?)?;
    let keys = half.finish(Role::Listener, &pake, &[&hello, &welcome, &pake])?;
    // The try counts before the dialler hears of it: whoever hangs up early has had it as well.
    if let Err(error) = tries.judge(keys.check(&confirm).is_ok()) {
        let why = if matches!(error, PairError::Used) { Why::Used } else { Why::WrongCode };
        // It may be gone, and what it did is what counts.
        let _gone = wire::write(&mut stream, &wire::encode(&Reply::Refused(why))?).await;
        return Err(error);
    }
    wire::write(&mut stream, &wire::encode(&Reply::Confirm(keys.proof()))?).await?;
    meet(stream, keys, theirs, own).await
}

/// The DID that the other side names. **Errors:** another version, no DID, or our own.
fn other(ours: &Did, version: u64, did: &str) -> Result<Did, PairError> {
    if version != VERSION {
        return Err(PairError::Malformed(format!("it speaks version {version}, and we version {VERSION}")));
    }
    let did: Did = did.parse().map_err(|error| PairError::Malformed(format!("its DID: {error}")))?;
    if did == *ours { Err(PairError::Same(did)) } else { Ok(did) }
}

/// Exchanges the cards.
async fn meet<S>(mut stream: S, mut keys: Keys, did: Did, own: &Own) -> Result<Met<S>, PairError>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let signature = keys.sign(&own.identity);
    let ours = wire::encode(&SignedCard { card: own.card.clone(), signature })?;
    send(&mut stream, &mut keys, ours).await?;
    let SignedCard { card, signature } = wire::decode(&receive(&mut stream, &mut keys).await?)?;
    keys.verify(&did, &signature)?;
    card.check()?;
    Ok(Met { stream, keys, did, card })
}

impl<S: AsyncRead + AsyncWrite + Unpin> Met<S> {
    /// The DID of the other side, whose key it has proven to hold.
    pub const fn did(&self) -> &Did {
        &self.did
    }

    /// What the other side says of itself.
    pub const fn card(&self) -> &Card {
        &self.card
    }

    /// Tells the other side that this owner agrees, and waits for the other owner.
    ///
    /// **Errors:** [`PairError::Declined`] when the other owner does not agree.
    pub async fn agree(self) -> Result<Agreed<S>, PairError> {
        let Self { mut stream, mut keys, .. } = self;
        send(&mut stream, &mut keys, wire::encode(&Verdict { accept: true })?).await?;
        let Verdict { accept } = wire::decode(&receive(&mut stream, &mut keys).await?)?;
        if accept { Ok(Agreed { stream, keys }) } else { Err(PairError::Declined) }
    }

    /// Tells the other side that this owner does not agree.
    pub async fn decline(self) -> Result<(), PairError> {
        let Self { mut stream, mut keys, .. } = self;
        send(&mut stream, &mut keys, wire::encode(&Verdict { accept: false })?).await
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> Agreed<S> {
    /// Gives the other side bytes that nobody else can read; it has to [`take`](Self::take) them.
    pub async fn give(&mut self, bytes: &[u8]) -> Result<(), PairError> {
        send(&mut self.stream, &mut self.keys, wire::encode(&Given { given: bytes.to_vec() })?).await
    }

    /// Takes the bytes that the other side gives.
    ///
    /// **Errors:** it gives none.
    pub async fn take(&mut self) -> Result<Vec<u8>, PairError> {
        let Given { given } = wire::decode(&receive(&mut self.stream, &mut self.keys).await?)?;
        Ok(given)
    }

    /// Tells the other side that this configuration is written, and waits until the other's is.
    ///
    /// **Errors:** it is not, as far as this side knows.
    pub async fn written(self) -> Result<(), PairError> {
        let Self { mut stream, mut keys } = self;
        send(&mut stream, &mut keys, wire::encode(&Written { written: true })?).await?;
        let Written { written } = wire::decode(&receive(&mut stream, &mut keys).await?)?;
        if written { Ok(()) } else { Err(PairError::Declined) }
    }

    /// Tells the other side that this configuration could not be written.
    pub async fn failed(self) -> Result<(), PairError> {
        let Self { mut stream, mut keys } = self;
        send(&mut stream, &mut keys, wire::encode(&Written { written: false })?).await
    }
}

async fn send<S: AsyncWrite + Unpin>(
    stream: &mut S,
    keys: &mut Keys,
    message: Vec<u8>,
) -> Result<(), PairError> {
    wire::write(stream, &keys.seal(message)).await
}

async fn receive<S: AsyncRead + Unpin>(stream: &mut S, keys: &mut Keys) -> Result<Vec<u8>, PairError> {
    keys.open(wire::read(stream).await?)
}

/// The version of this protocol.
const VERSION: u64 = 1;
