//! A certificate, good or bad, in; a TLS client that shows it and takes only the one sidecar, out.

use std::sync::Arc;

use capd_proto::identity::PublicKey;
use rustls::client::ResolvesClientCert;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::sign::{CertifiedKey, Signer, SigningKey};
use rustls::{ClientConfig, DigitallySignedStruct, SignatureScheme};

/// What a peer shows in the TLS handshake.
pub enum Certificate {
    /// The self-signed certificate of an identity's seed.
    Of([u8; 32]),
    /// A self-signed certificate over a P-256 key.
    OtherKeyType,
    /// Two certificates where one is expected.
    Chain([u8; 32]),
    /// None.
    None,
}

/// The configuration of one connection.
pub fn client_config(sidecar: &str, certificate: &Certificate) -> ClientConfig {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(Arc::clone(&provider))
        .with_protocol_versions(&[&rustls::version::TLS13])
        .unwrap()
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(Pinned { did: sidecar.to_owned(), provider }));
    let mut config = match presented(certificate) {
        Some(shown) => builder.with_client_cert_resolver(Arc::new(Insistent(Arc::new(shown)))),
        None => builder.with_no_client_auth(),
    };
    config.alpn_protocols = vec![b"amp.v1".to_vec()];
    config
}

fn presented(certificate: &Certificate) -> Option<CertifiedKey> {
    let key = match certificate {
        Certificate::Of(seed) | Certificate::Chain(seed) => {
            // DER of a PKCS #8 version 1 Ed25519 private key, up to the 32 seed bytes (RFC 8410 7).
            let prefix = [0x30, 0x2e, 2, 1, 0, 0x30, 5, 6, 3, 0x2b, 0x65, 0x70, 4, 0x22, 4, 0x20];
            let pkcs8 = PrivatePkcs8KeyDer::from([&prefix[..], seed].concat());
            rcgen::KeyPair::from_pkcs8_der_and_sign_algo(&pkcs8, &rcgen::PKCS_ED25519).unwrap()
        }
        Certificate::OtherKeyType => rcgen::KeyPair::generate_for(&rcgen::PKCS_ECDSA_P256_SHA256).unwrap(),
        Certificate::None => return None,
    };
    let leaf = rcgen::CertificateParams::default().self_signed(&key).unwrap().der().clone();
    let chain = match certificate {
        Certificate::Chain(_) => vec![leaf.clone(), leaf],
        _ => vec![leaf],
    };
    let der = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.serialize_der()));
    let signing = rustls::crypto::ring::sign::any_supported_type(&der).unwrap();
    Some(CertifiedKey::new(chain, Arc::new(AnyScheme(signing))))
}

/// Shows its certificate whatever the server asks for.
#[derive(Debug)]
struct Insistent(Arc<CertifiedKey>);

impl ResolvesClientCert for Insistent {
    fn resolve(&self, _hints: &[&[u8]], _schemes: &[SignatureScheme]) -> Option<Arc<CertifiedKey>> {
        Some(Arc::clone(&self.0))
    }

    fn has_certs(&self) -> bool {
        true
    }
}

/// Signs with the scheme it has, whatever the server offers.
#[derive(Debug)]
struct AnyScheme(Arc<dyn SigningKey>);

impl SigningKey for AnyScheme {
    fn choose_scheme(&self, _offered: &[SignatureScheme]) -> Option<Box<dyn Signer>> {
        self.0.choose_scheme(&[SignatureScheme::ED25519, SignatureScheme::ECDSA_NISTP256_SHA256])
    }

    fn algorithm(&self) -> rustls::SignatureAlgorithm {
        self.0.algorithm()
    }
}

/// Takes only the sidecar whose key is its DID.
#[derive(Debug)]
struct Pinned {
    did: String,
    provider: Arc<rustls::crypto::CryptoProvider>,
}

impl ServerCertVerifier for Pinned {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        let key_info = ParsedCertificate::try_from(end_entity)?.subject_public_key_info();
        let key: [u8; 32] = *key_info.last_chunk().expect("a key");
        assert_eq!(PublicKey::from_bytes(&key).unwrap().did().as_str(), self.did);
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _message: &[u8],
        _cert: &CertificateDer<'_>,
        _dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        panic!("TLS 1.3 is required")
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        rustls::crypto::verify_tls13_signature(message, cert, dss, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        vec![SignatureScheme::ED25519]
    }
}
