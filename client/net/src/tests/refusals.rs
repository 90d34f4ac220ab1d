//! Tests who is refused: a wrong key, a wrong kind of key, no key, no token.

use std::net::SocketAddr;

use rcgen::{CertificateParams, KeyPair, PKCS_ECDSA_P256_SHA256, PKCS_ED25519};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer, ServerName, UnixTime};
use rustls::{ClientConfig, DigitallySignedStruct, Error, ServerConfig, SignatureScheme, version};
use tokio::io::AsyncReadExt;
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::{TlsAcceptor, TlsConnector};

use super::super::dial::ConnectError;
use super::super::local::{self, Token};
use super::super::{Did, Link, quic, tcp};
use super::*;

const LOOPBACK: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), 0);

/// What a server shows and a client takes, whatever it is.
#[derive(Debug)]
struct TakeAnything;

impl ServerCertVerifier for TakeAnything {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn verify_tls13_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        vec![SignatureScheme::ED25519, SignatureScheme::ECDSA_NISTP256_SHA256]
    }
}

fn certificate(key: &KeyPair) -> (CertificateDer<'static>, PrivateKeyDer<'static>) {
    let certificate = CertificateParams::default().self_signed(key).unwrap();
    (certificate.der().clone(), PrivatePkcs8KeyDer::from(key.serialize_der()).into())
}

fn client_config(
    certificates: Option<(Vec<CertificateDer<'static>>, PrivateKeyDer<'static>)>,
) -> Arc<ClientConfig> {
    let builder = ClientConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
        .with_protocol_versions(&[&version::TLS13])
        .unwrap()
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(TakeAnything));
    let mut config = match certificates {
        Some((chain, key)) => builder.with_client_auth_cert(chain, key).unwrap(),
        None => builder.with_no_client_auth(),
    };
    config.alpn_protocols = vec![b"amp.v1".to_vec()];
    Arc::new(config)
}

/// Whether a TLS client with `config` gets as far as reading a byte or a good end from the server at `address`.
async fn is_let_in(address: SocketAddr, config: Arc<ClientConfig>) -> bool {
    let stream = TcpStream::connect(address).await.unwrap();
    let name = ServerName::IpAddress(address.ip().into());
    match TlsConnector::from(config).connect(name, stream).await {
        // In TLS 1.3 the client is done before the server has looked at its certificate.
        Ok(mut stream) => timeout(Duration::from_millis(300), stream.read_u8()).await.is_err(),
        Err(_) => false,
    }
}

#[tokio::test]
async fn a_client_needs_exactly_one_ed25519_certificate() {
    let mut server = End::sidecar(1);
    let address = tcp::listen(&server.host, LOOPBACK).await.unwrap();
    let ed25519 = KeyPair::generate_for(&PKCS_ED25519).unwrap();
    let ecdsa = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256).unwrap();

    let (leaf, key) = certificate(&ed25519);
    assert!(is_let_in(address, client_config(Some((vec![leaf.clone()], key.clone_key())))).await);
    let chain = vec![leaf.clone(), leaf];
    assert!(!is_let_in(address, client_config(Some((chain, key)))).await);
    let (leaf, key) = certificate(&ecdsa);
    assert!(!is_let_in(address, client_config(Some((vec![leaf], key)))).await);
    assert!(!is_let_in(address, client_config(None)).await);
    server.host.shut_down();
    assert!(server.events.try_recv().is_err(), "nobody of them has a link");
}

#[tokio::test]
async fn a_server_without_an_ed25519_certificate_is_refused() {
    let client = End::sidecar(2);
    let (leaf, key) = certificate(&KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256).unwrap());
    let mut config = ServerConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
        .with_protocol_versions(&[&version::TLS13])
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![leaf], key)
        .unwrap();
    config.alpn_protocols = vec![b"amp.v1".to_vec()];
    let listener = TcpListener::bind(LOOPBACK).await.unwrap();
    let address = listener.local_addr().unwrap();
    let accepting = async {
        let (stream, _) = listener.accept().await.unwrap();
        assert!(TlsAcceptor::from(Arc::new(config)).accept(stream).await.is_err());
    };
    let (connected, ()) = tokio::join!(tcp::connect(&client.host, address, None), accepting);
    assert!(matches!(connected, Err(ConnectError::Io(_))), "{connected:?}");
}

#[tokio::test]
async fn somebody_else_at_the_address_is_refused_by_name() {
    let mut server = End::sidecar(1);
    let client = End::sidecar(2);
    let wanted = End::sidecar(3).did();
    let by_tcp = tcp::listen(&server.host, LOOPBACK).await.unwrap();
    let by_quic = quic::listen(&server.host, LOOPBACK).unwrap();
    let check = |connected: Result<Arc<Link>, ConnectError>| match connected {
        Err(ConnectError::WrongPeer { expected, found }) => {
            assert_eq!((expected, found), (wanted.clone(), server.did()));
        }
        other => panic!("expected the wrong peer, got {other:?}"),
    };
    check(tcp::connect(&client.host, by_tcp, Some(&wanted)).await);
    check(quic::connect(&client.host, by_quic, Some(&wanted)).await);
    client.shut_down().await;
    server.host.shut_down();
    assert!(server.events.try_recv().is_err(), "no link came about");
}

#[tokio::test]
async fn a_key_that_the_owner_does_not_admit_is_told_so() {
    let server = End::sidecar(1);
    server.probe.is_admitting.store(false, Ordering::Relaxed);
    let client = End::sidecar(2);
    let by_tcp = tcp::listen(&server.host, LOOPBACK).await.unwrap();
    let by_quic = quic::listen(&server.host, LOOPBACK).unwrap();
    for connected in
        [tcp::connect(&client.host, by_tcp, None).await, quic::connect(&client.host, by_quic, None).await]
    {
        match connected {
            Err(ConnectError::Closed(CloseReason::RefusedByPeer(why))) => assert_eq!(why, "not listed"),
            other => panic!("expected a refusal, got {other:?}"),
        }
    }
    client.shut_down().await;
    server.shut_down().await;
}

#[tokio::test]
async fn loopback_without_the_right_token_is_refused() {
    let mut server = End::sidecar(1);
    let address = local::listen_tcp(&server.host, LOOPBACK, Token::new(*b"the secret")).await.unwrap();
    let client = End::agent();
    for wrong in ["", "the secre", "the secret ", "THE SECRET"] {
        let connected = local::connect_tcp(&client.host, address, Token::new(wrong)).await;
        // The two know different tokens, which the server shows first.
        assert!(
            matches!(connected, Err(ConnectError::Closed(CloseReason::Refused(_)))),
            "{wrong:?}: {connected:?}"
        );
    }
    client.shut_down().await;
    server.shut_down().await;
    assert!(server.events.try_recv().is_err(), "no link came about");
}

#[tokio::test]
async fn local_tcp_listens_on_loopback_only() {
    let server = End::sidecar(1);
    let error =
        local::listen_tcp(&server.host, "0.0.0.0:0".parse().unwrap(), Token::new(*b"t")).await.unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::InvalidInput);
}

#[tokio::test]
async fn an_empty_token_is_no_token() {
    let server = End::sidecar(1);
    let error = local::listen_tcp(&server.host, LOOPBACK, Token::new("")).await.unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::InvalidInput);
}

#[tokio::test]
async fn an_agent_speaks_to_no_peers() {
    let agent = End::agent();
    assert!(matches!(tcp::connect(&agent.host, LOOPBACK, None::<&Did>).await, Err(ConnectError::Io(_))));
    assert!(tcp::listen(&agent.host, LOOPBACK).await.is_err());
    assert!(quic::listen(&agent.host, LOOPBACK).is_err());
}
