//! TLS handshakes with keys of other types, of others, or without any in; the alert that says so, and no link, out.

use std::io;

use capd_proto::identity::PublicKey;
use quinn::{ConnectionError, TransportErrorCode};
use rustls::AlertDescription;
use tokio::io::AsyncReadExt as _;

use crate::crowd::{quic, quic_port, tcp_port, tls};
use crate::field::Field;
use crate::peer::{Certificate, fresh_seed};

/// Handshakes of each kind, over each transport.
const OF_EACH: usize = 12;

/// What is shown, and the alert that answers it. **Source:** PROTOCOL 2, RFC 8446 6.2.
fn kinds(victim: &str) -> [(Certificate, AlertDescription); 6] {
    let victim = *PublicKey::from_did(victim).unwrap().as_bytes();
    [
        (Certificate::OtherKeyType, AlertDescription::CertificateUnknown),
        (Certificate::P384, AlertDescription::CertificateUnknown),
        (Certificate::Rsa, AlertDescription::CertificateUnknown),
        (Certificate::Chain(fresh_seed()), AlertDescription::CertificateUnknown),
        (Certificate::Stolen(victim, fresh_seed()), AlertDescription::DecryptError),
        (Certificate::None, AlertDescription::CertificateRequired),
    ]
}

#[test]
fn handshakes_without_an_identity_get_their_alert_over_tcp() {
    let mut field = Field::start();
    let (to, did) = (tcp_port(&field.sidecar), field.sidecar.did.clone());
    let kinds = kinds(field.honest_did());
    field.withstands("other certificates over TCP", |field| {
        let ends = field.crowd.each(OF_EACH * kinds.len(), |number| {
            let (certificate, did) = (kinds[number % kinds.len()].0, did.clone());
            async move {
                let mut stream = tls(to, did, certificate).await.expect("a client is done first");
                (stream.read(&mut [0]).await, stream)
            }
        });
        for (number, (end, _)) in ends.iter().enumerate() {
            let (certificate, expected) = &kinds[number % kinds.len()];
            assert_eq!(alert(end), Some(*expected), "{certificate:?}: {end:?}");
        }
        ends
    });
}

fn alert(end: &io::Result<usize>) -> Option<AlertDescription> {
    let error = end.as_ref().err()?.get_ref()?.downcast_ref::<rustls::Error>()?;
    if let rustls::Error::AlertReceived(alert) = error { Some(*alert) } else { None }
}

#[test]
fn handshakes_without_an_identity_get_their_alert_over_quic() {
    let mut field = Field::start();
    let (to, did) = (quic_port(&field.sidecar), field.sidecar.did.clone());
    let kinds = kinds(field.honest_did());
    field.withstands("other certificates over QUIC", |field| {
        let ends = field.crowd.each(OF_EACH * kinds.len(), |number| {
            let (certificate, did) = (kinds[number % kinds.len()].0, did.clone());
            async move {
                let (endpoint, connecting) = quic(to, &did, &certificate);
                let end = match connecting.await {
                    Ok(connection) => connection.closed().await,
                    Err(error) => error,
                };
                (end, endpoint)
            }
        });
        for (number, (end, _)) in ends.iter().enumerate() {
            let (certificate, expected) = &kinds[number % kinds.len()];
            let ConnectionError::ConnectionClosed(close) = end else { panic!("{certificate:?}: {end:?}") };
            // RFC 9001 4.8: an alert is closed with as its number above 0x100.
            let expected = TransportErrorCode::crypto(u8::from(*expected));
            assert_eq!(close.error_code, expected, "{certificate:?}: {end:?}");
        }
        ends
    });
}
