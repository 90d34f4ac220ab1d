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
#[derive(Clone, Copy, Debug)]
pub enum Certificate {
    /// The self-signed certificate of an identity's seed.
    Of([u8; 32]),
    /// A self-signed certificate over a P-256 key.
    OtherKeyType,
    /// A self-signed certificate over a P-384 key.
    P384,
    /// A certificate over an RSA key; neither its signature nor the handshake's is one.
    Rsa,
    /// A certificate over this Ed25519 key, which the peer does not have: it signs with the key of the seed.
    Stolen([u8; 32], [u8; 32]),
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
    let params = rcgen::CertificateParams::default();
    let key = match certificate {
        Certificate::Of(seed) | Certificate::Chain(seed) | Certificate::Stolen(_, seed) => ed25519(seed),
        Certificate::OtherKeyType => rcgen::KeyPair::generate_for(&rcgen::PKCS_ECDSA_P256_SHA256).unwrap(),
        Certificate::P384 => rcgen::KeyPair::generate_for(&rcgen::PKCS_ECDSA_P384_SHA384).unwrap(),
        Certificate::Rsa => {
            let leaf = params.self_signed(&Keyless::rsa()).unwrap().der().clone();
            return Some(CertifiedKey::new(vec![leaf], Arc::new(Pretender)));
        }
        Certificate::None => return None,
    };
    let leaf = match certificate {
        Certificate::Stolen(victim, _) => params.self_signed(&Keyless::ed25519(victim)),
        _ => params.self_signed(&key),
    };
    let leaf = leaf.unwrap().der().clone();
    let chain = match certificate {
        Certificate::Chain(_) => vec![leaf.clone(), leaf],
        _ => vec![leaf],
    };
    let der = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.serialize_der()));
    let signing = rustls::crypto::ring::sign::any_supported_type(&der).unwrap();
    Some(CertifiedKey::new(chain, Arc::new(AnyScheme(signing))))
}

fn ed25519(seed: &[u8; 32]) -> rcgen::KeyPair {
    // DER of a PKCS #8 version 1 Ed25519 private key, up to the 32 seed bytes (RFC 8410 7).
    let prefix = [0x30, 0x2e, 2, 1, 0, 0x30, 5, 6, 3, 0x2b, 0x65, 0x70, 4, 0x22, 4, 0x20];
    let pkcs8 = PrivatePkcs8KeyDer::from([&prefix[..], seed].concat());
    rcgen::KeyPair::from_pkcs8_der_and_sign_algo(&pkcs8, &rcgen::PKCS_ED25519).unwrap()
}

/// A public key whose private key nobody here has. What it signs is no signature.
struct Keyless {
    public: Vec<u8>,
    algorithm: &'static rcgen::SignatureAlgorithm,
}

impl Keyless {
    fn ed25519(public: &[u8; 32]) -> Self {
        Self { public: public.to_vec(), algorithm: &rcgen::PKCS_ED25519 }
    }

    fn rsa() -> Self {
        // DER of an RSAPublicKey (RFC 8017 A.1.1): a modulus of 2,048 bits, odd and otherwise any, and 65,537.
        let head = [0x30, 0x82, 1, 0x0a, 2, 0x82, 1, 1, 0];
        let public = [&head[..], &[0xc5; 256], &[2, 3, 1, 0, 1]].concat();
        Self { public, algorithm: &rcgen::PKCS_RSA_SHA256 }
    }
}

impl rcgen::PublicKeyData for Keyless {
    fn der_bytes(&self) -> &[u8] {
        &self.public
    }

    fn algorithm(&self) -> &'static rcgen::SignatureAlgorithm {
        self.algorithm
    }
}

impl rcgen::SigningKey for Keyless {
    fn sign(&self, _message: &[u8]) -> Result<Vec<u8>, rcgen::Error> {
        Ok(vec![0x5a; 64])
    }
}

/// Says that it signed with RSA.
#[derive(Debug)]
struct Pretender;

impl SigningKey for Pretender {
    fn choose_scheme(&self, _offered: &[SignatureScheme]) -> Option<Box<dyn Signer>> {
        Some(Box::new(Self))
    }

    fn algorithm(&self) -> rustls::SignatureAlgorithm {
        rustls::SignatureAlgorithm::RSA
    }
}

impl Signer for Pretender {
    fn sign(&self, _message: &[u8]) -> Result<Vec<u8>, rustls::Error> {
        Ok(vec![0x5a; 256])
    }

    fn scheme(&self) -> SignatureScheme {
        SignatureScheme::RSA_PSS_SHA256
    }
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
        self.0.choose_scheme(&[
            SignatureScheme::ED25519,
            SignatureScheme::ECDSA_NISTP256_SHA256,
            SignatureScheme::ECDSA_NISTP384_SHA384,
        ])
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
