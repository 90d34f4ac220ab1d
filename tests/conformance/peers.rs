//! PROTOCOL 2: peers that have not proven a key we admit in, no link out.

use capd_proto::identity::{Identity, PublicKey};

use crate::fixture::{PING, quiet_sidecar};
use crate::peer::{Certificate, RawLink, Transport, fresh_seed};
use crate::support::{HANDSHAKE, Setup, Sidecar, decode, encode, field, map};

/// Nothing but a TLS refusal comes back, however far the handshake gets on our side.
#[track_caller]
fn is_kept_out(sidecar: &Sidecar, transport: Transport, certificate: &Certificate) {
    if let Ok(mut link) = RawLink::try_connect(sidecar, transport, fresh_seed(), certificate) {
        // With TLS 1.3 a client is done before the server has looked at it; its first read says so.
        let handshake = encode(&link.handshake_request());
        // The server may have closed already.
        let _ = link.try_send_raw(&crate::peer::frame(HANDSHAKE, &handshake));
        assert_eq!(link.closed(), [], "{transport:?}");
    }
    RawLink::open(sidecar, transport).ping();
}

#[test]
fn a_peer_without_a_certificate_is_kept_out() {
    let sidecar = quiet_sidecar();
    for transport in Transport::PEER {
        is_kept_out(&sidecar, transport, &Certificate::None);
    }
}

#[test]
fn a_key_that_is_not_ed25519_is_kept_out() {
    let sidecar = quiet_sidecar();
    for transport in Transport::PEER {
        for certificate in [Certificate::OtherKeyType, Certificate::P384, Certificate::Rsa] {
            is_kept_out(&sidecar, transport, &certificate);
        }
    }
}

#[test]
fn a_key_that_the_peer_shows_and_does_not_have_is_kept_out() {
    let sidecar = quiet_sidecar();
    let victim = *PublicKey::from_did(&sidecar.did).unwrap().as_bytes();
    for transport in Transport::PEER {
        is_kept_out(&sidecar, transport, &Certificate::Stolen(victim, fresh_seed()));
    }
}

#[test]
fn a_chain_of_certificates_is_kept_out() {
    let sidecar = quiet_sidecar();
    for transport in Transport::PEER {
        is_kept_out(&sidecar, transport, &Certificate::Chain(fresh_seed()));
    }
}

#[test]
fn a_did_that_is_not_listed_is_not_accepted() {
    let listed = fresh_seed();
    let did = Identity::from_seed(listed).did().as_str().to_owned();
    let sidecar = Setup::new().set("peer.admit", "listed").peer_at(&did, &[]).start();
    for transport in Transport::PEER {
        let mut stranger = RawLink::connect(&sidecar, transport);
        let handshake = encode(&stranger.handshake_request());
        // Whether it is told in HANDSHAKE or by closing, it gets no link.
        let _ = stranger.try_send_raw(&crate::peer::frame(HANDSHAKE, &handshake));
        for frame in stranger.closed() {
            assert_eq!(frame.frame_type, HANDSHAKE, "{transport:?}: {frame:?}");
            let answer = decode(&frame.payload);
            assert_eq!(field(&answer, "accepted"), Some(&false.into()), "{transport:?}: {answer:?}");
        }
        RawLink::open_as(&sidecar, transport, listed).ping();
    }
}

#[test]
fn two_links_of_one_peer_stand_side_by_side() {
    let sidecar = quiet_sidecar();
    let seed = fresh_seed();
    let mut links = Transport::PEER.map(|transport| RawLink::open_as(&sidecar, transport, seed));
    links.iter_mut().for_each(RawLink::ping);
    let [_, mut left] = links;
    left.ping();
}

#[test]
fn a_did_of_another_method_stands_for_the_key_in_its_configured_document_and_for_no_other() {
    let seed = fresh_seed();
    let own = Identity::from_seed(seed).did().as_str().to_owned();
    let web = "did:web:agents.example:reviewer";
    let key = own.strip_prefix("did:key:").unwrap();
    let document = format!(
        r##"{{"id": "{web}", "verificationMethod": [{{"id": "{web}#1", "type": "Multikey", "controller": "{web}",
            "publicKeyMultibase": "{key}"}}], "assertionMethod": ["{web}#1"]}}"##
    );
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("did.json");
    std::fs::write(&path, document).unwrap();
    let sidecar = Setup::new().set("agent.did_documents", path.to_str().unwrap()).start();
    for transport in Transport::PEER {
        let mut link = RawLink::open_as(&sidecar, transport, seed);
        let mut letter = link.letter(PING, &map([]));
        letter.from = web.to_owned();
        let id = link.send_letter(&letter);
        let pong = link.reply(&id);
        assert_eq!(pong.typ(), 0x02, "{transport:?}: {pong:?}");
        assert_eq!(field(&pong.value, "to"), Some(&web.into()), "it is answered under its own name");
        let mut stranger = RawLink::open(&sidecar, transport);
        let mut letter = stranger.letter(PING, &map([]));
        letter.from = web.to_owned();
        let id = stranger.send_letter(&letter);
        assert_eq!(stranger.refusal(&id).code, 3001, "{transport:?}");
        stranger.ping();
    }
}
