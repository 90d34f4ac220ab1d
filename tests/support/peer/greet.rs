//! A connection's two halves in, an open link out, for attackers that are too many for a thread each.

use std::io;

use capd_proto::identity::Identity;
use ciborium::{Value, cbor};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};

use super::{Letter, frame, id_at, now_ms};
use crate::support::{AMP_MESSAGE, HANDSHAKE, encode};

const HELLO: u64 = 0x70;

/// HANDSHAKE and HELLO, `channel-auth` offered.
pub async fn greet(
    send: &mut (impl AsyncWrite + Unpin),
    receive: &mut (impl AsyncRead + Unpin),
    identity: &Identity,
    did: &str,
) -> io::Result<()> {
    let request =
        cbor!({ "version" => 1, "max_msg_size" => 16 * 1024 * 1024, "extensions" => ["channel-auth"] });
    send.write_all(&frame(HANDSHAKE, &encode(&request.unwrap()))).await?;
    send.flush().await?;
    expect(read_frame(receive).await?.0 == HANDSHAKE)?;
    let hello = letter(identity, did, HELLO, &cbor!({ "versions" => ["1.0"] }).unwrap());
    send.write_all(&frame(AMP_MESSAGE, &hello.seal(identity, true))).await?;
    send.flush().await?;
    expect(read_frame(receive).await?.0 == AMP_MESSAGE)
}

/// The next frame's type and payload.
pub async fn read_frame(receive: &mut (impl AsyncRead + Unpin)) -> io::Result<(u8, Vec<u8>)> {
    let mut head = [0; 5];
    receive.read_exact(&mut head).await?;
    let length = u32::from_be_bytes([head[0], head[1], head[2], head[3]]) as usize;
    let mut payload = vec![0; length - 1];
    receive.read_exact(&mut payload).await?;
    Ok((head[4], payload))
}

/// A message of `identity`'s to `did`.
pub fn letter(identity: &Identity, did: &str, typ: u64, body: &Value) -> Letter {
    let ts = now_ms();
    Letter {
        id: id_at(ts),
        typ,
        ts,
        ttl: 60_000,
        from: identity.did().as_str().to_owned(),
        to: vec![did.to_owned()],
        reply_to: None,
        body: encode(body),
        ext: None,
    }
}

fn expect(is_so: bool) -> io::Result<()> {
    if is_so { Ok(()) } else { Err(io::Error::other("the sidecar does not open the link")) }
}
