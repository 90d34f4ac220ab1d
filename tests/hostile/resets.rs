//! Streams that are opened to be reset in; an offender that is cut off, its calls with it, and nothing left of any
//! stream, out.

use quinn::{ConnectionError, VarInt};

use crate::crowd::{quic, quic_port};
use crate::field::Field;
use crate::peer::greet::greet;
use crate::peer::{Certificate, fresh_seed};
use capd_proto::identity::Identity;

/// Resets in all, over as many links as it takes.
const RESETS: usize = 100_000;
/// Links that one attack may use up; each is cut long before it has done its part.
const LINKS_MAX: usize = 10;
/// PROTOCOL 4: the code that cancels a stream's call.
const CANCEL: u32 = 0x4901;
/// PROTOCOL 9: OVERLOADED, which the offender's link is closed with.
const OVERLOADED: u32 = 5004;

/// Resets streams on one link until it is cut; how many, and why it ended.
async fn flood(field_to: std::net::SocketAddr, did: String, most: usize) -> (usize, Option<ConnectionError>) {
    let seed = fresh_seed();
    let (_endpoint, connecting) = quic(field_to, &did, &Certificate::Of(seed));
    let connection = connecting.await.unwrap();
    let (mut send, mut receive) = connection.open_bi().await.unwrap();
    greet(&mut send, &mut receive, &Identity::from_seed(seed), &did).await.unwrap();
    let mut resets = 0;
    while resets < most {
        let Ok((mut stream, _)) = connection.open_bi().await else { break };
        // A stream of which nothing was sent is not seen at the other side.
        if stream.write_all(&[0]).await.is_err() {
            break;
        }
        // It may be closed meanwhile.
        let _closed = stream.reset(VarInt::from_u32(CANCEL));
        resets += 1;
    }
    (resets, connection.close_reason())
}

#[test]
fn a_flood_of_resets_cuts_the_offender_off_each_time() {
    let mut field = Field::start();
    let (to, did) = (quic_port(&field.sidecar), field.sidecar.did.clone());
    field.withstands("100,000 stream resets", |field| {
        let mut left = RESETS;
        for _ in 0..LINKS_MAX {
            let (resets, end) = field.crowd.run(flood(to, did.clone(), left));
            let Some(ConnectionError::ApplicationClosed(close)) = &end else {
                panic!("{resets} resets went through: {end:?}")
            };
            assert_eq!(close.error_code, VarInt::from_u32(OVERLOADED), "{end:?}");
            left -= resets;
        }
    });
}
