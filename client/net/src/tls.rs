//! Makes TLS configurations from an identity's seed: the certificate's key is the identity, and nothing else in it
//! counts.
//!
//! Both sides present a self-signed certificate over their Ed25519 identity key, and the handshake's own signature
//! proves it. Names, dates and issuer have no meaning. Sessions are never resumed, so every handshake is a proof.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use capd_proto::identity::{Did, PublicKey};
use capd_proto::limits::ALPN;
use rcgen::{CertificateParams, DistinguishedName, DnType, KeyPair, PKCS_ED25519};
use rustls::client::Resumption;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::CryptoProvider;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer, ServerName, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::server::{NoServerSessionStorage, ParsedCertificate};
use rustls::sign::{CertifiedKey, SingleCertAndKey};
use rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, DistinguishedName as Subject, Error, OtherError,
    PeerMisbehaved, ServerConfig, SignatureScheme, version,
};

use super::key_file::Seed;

/// What this sidecar presents on every peer link.
pub(super) struct Credentials {
    provider: Arc<CryptoProvider>,
    /// The certificate and its key, read once for all links.
    certified: Arc<SingleCertAndKey>,
    server: Arc<ServerConfig>,
}

impl Credentials {
    /// The self-signed certificate of `seed`'s identity, and the configurations that use it with `provider`.
    ///
    /// **Errors:** the TLS library refuses the key, which no seed makes it do.
    pub(super) fn new(seed: &Seed, provider: Arc<CryptoProvider>) -> Result<Self, CredentialsError> {
        let key = pkcs8(seed);
        let certificate = self_signed(&key)?;
        let certified = CertifiedKey::from_der(vec![certificate], PrivateKeyDer::Pkcs8(key), &provider)?;
        let certified = Arc::new(SingleCertAndKey::from(certified));
        let server = server_config(&provider, &certified)?;
        Ok(Self { provider, certified, server })
    }

    /// The configuration for links that peers open.
    pub(super) fn server(&self) -> Arc<ServerConfig> {
        Arc::clone(&self.server)
    }

    /// A configuration for one link to a peer, which must be `pin` when one is given, and where a peer that was not is found.
    pub(super) fn client(&self, pin: Option<&Did>) -> Result<(Arc<ClientConfig>, Arc<ServerPin>), Error> {
        let pin = Arc::new(ServerPin {
            verifier: Verifier::new(&self.provider),
            expected: pin.cloned(),
            mismatch: Mutex::new(None),
        });
        let verifier: Arc<dyn ServerCertVerifier> = Arc::clone(&pin) as _;
        let mut config = ClientConfig::builder_with_provider(Arc::clone(&self.provider))
            .with_protocol_versions(&[&version::TLS13])?
            .dangerous()
            .with_custom_certificate_verifier(verifier)
            .with_client_cert_resolver(Arc::clone(&self.certified) as _);
        config.alpn_protocols = vec![ALPN.to_vec()];
        config.resumption = Resumption::disabled();
        config.enable_sni = false;
        // PROTOCOL 4: 0-RTT data is never accepted, so none is sent either.
        config.enable_early_data = false;
        Ok((Arc::new(config), pin))
    }
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Credentials(..)")
    }
}

/// Why credentials could not be made from a seed.
#[derive(Debug, thiserror::Error)]
pub enum CredentialsError {
    /// The certificate could not be made.
    #[error("certificate: {0}")]
    Certificate(#[from] rcgen::Error),
    /// The system has no randomness.
    #[error("randomness: {0}")]
    Random(#[from] getrandom::Error),
    /// The TLS library refused it.
    #[error("TLS: {0}")]
    Tls(#[from] Error),
}

/// The key behind a peer's certificates. **Errors:** not exactly one certificate, or its key is not Ed25519.
pub(super) fn principal(certificates: &[CertificateDer<'_>]) -> Result<PublicKey, Error> {
    match certificates {
        [] => Err(Error::NoCertificatesPresented),
        [leaf, intermediates @ ..] => leaf_key(leaf, intermediates),
    }
}

fn leaf_key(leaf: &CertificateDer<'_>, intermediates: &[CertificateDer<'_>]) -> Result<PublicKey, Error> {
    if !intermediates.is_empty() {
        return Err(refused("exactly one certificate is expected"));
    }
    let key_info = ParsedCertificate::try_from(leaf)?.subject_public_key_info();
    let key = key_info
        .strip_prefix(SPKI_ED25519_PREFIX)
        .ok_or_else(|| refused("the certificate's key is not Ed25519"))?;
    let key: [u8; 32] = key.try_into().map_err(|_| refused("the certificate's key is not Ed25519"))?;
    PublicKey::from_bytes(&key).map_err(|_| refused("the certificate's key is not a point of the curve"))
}

/// The part both directions share: what a signature and a leaf must be.
#[derive(Debug)]
struct Verifier {
    provider: Arc<CryptoProvider>,
}

impl Verifier {
    fn new(provider: &Arc<CryptoProvider>) -> Self {
        Self { provider: Arc::clone(provider) }
    }

    // PROTOCOL 2: the proof is the handshake's own signature.
    fn verify_tls13(
        &self,
        message: &[u8],
        leaf: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        if signed.scheme != SignatureScheme::ED25519 {
            return Err(PeerMisbehaved::SignedHandshakeWithUnadvertisedSigScheme.into());
        }
        rustls::crypto::verify_tls13_signature(
            message,
            leaf,
            signed,
            &self.provider.signature_verification_algorithms,
        )
    }
}

/// The client's check: the server is an identity, and the pinned one if there is a pin.
#[derive(Debug)]
pub(super) struct ServerPin {
    verifier: Verifier,
    expected: Option<Did>,
    mismatch: Mutex<Option<Did>>,
}

impl ServerPin {
    /// The DID that answered in place of the pinned one, if that is why the handshake failed.
    pub(super) fn mismatch(&self) -> Option<Did> {
        self.mismatch.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl ServerCertVerifier for ServerPin {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let found = leaf_key(end_entity, intermediates)?.did();
        if self.expected.as_ref().is_some_and(|expected| *expected != found) {
            *self.mismatch.lock().unwrap_or_else(PoisonError::into_inner) = Some(found);
            return Err(refused("the server's key is not the pinned one"));
        }
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _message: &[u8],
        _cert: &CertificateDer<'_>,
        _dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Err(refused("TLS 1.3 is required"))
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.verifier.verify_tls13(message, cert, dss)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        vec![SignatureScheme::ED25519]
    }
}

/// The server's check: whoever connects shows an identity. Who is let in is decided after the handshake.
#[derive(Debug)]
struct ClientIdentity {
    verifier: Verifier,
}

impl ClientCertVerifier for ClientIdentity {
    fn root_hint_subjects(&self) -> &[Subject] {
        &[]
    }

    fn verify_client_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        _now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        leaf_key(end_entity, intermediates).map(|_| ClientCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _message: &[u8],
        _cert: &CertificateDer<'_>,
        _dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Err(refused("TLS 1.3 is required"))
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.verifier.verify_tls13(message, cert, dss)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        vec![SignatureScheme::ED25519]
    }
}

fn server_config(
    provider: &Arc<CryptoProvider>,
    certified: &Arc<SingleCertAndKey>,
) -> Result<Arc<ServerConfig>, Error> {
    let mut config = ServerConfig::builder_with_provider(Arc::clone(provider))
        .with_protocol_versions(&[&version::TLS13])?
        .with_client_cert_verifier(Arc::new(ClientIdentity { verifier: Verifier::new(provider) }))
        .with_cert_resolver(Arc::clone(certified) as _);
    config.alpn_protocols = vec![ALPN.to_vec()];
    config.session_storage = Arc::new(NoServerSessionStorage {});
    config.send_tls13_tickets = 0;
    // PROTOCOL 4: 0-RTT data is never accepted.
    config.max_early_data_size = 0;
    Ok(Arc::new(config))
}

fn self_signed(key: &PrivatePkcs8KeyDer<'static>) -> Result<CertificateDer<'static>, rcgen::Error> {
    let key = KeyPair::from_pkcs8_der_and_sign_algo(key, &PKCS_ED25519)?;
    let mut params = CertificateParams::default();
    let mut name = DistinguishedName::new();
    name.push(DnType::CommonName, "capd");
    params.distinguished_name = name;
    Ok(params.self_signed(&key)?.der().clone())
}

fn pkcs8(seed: &Seed) -> PrivatePkcs8KeyDer<'static> {
    PrivatePkcs8KeyDer::from([PKCS8_ED25519_PREFIX, seed.expose()].concat())
}

fn refused(reason: &'static str) -> Error {
    Error::InvalidCertificate(CertificateError::Other(OtherError(Arc::new(Refused(reason)))))
}

/// Why a certificate was not taken.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct Refused(&'static str);

/// DER of a SubjectPublicKeyInfo for Ed25519, up to the 32 key bytes (RFC 8410 4): the only encoding DER allows.
const SPKI_ED25519_PREFIX: &[u8] = &[0x30, 0x2a, 0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x70, 0x03, 0x21, 0x00];
/// DER of a PKCS #8 version 1 Ed25519 private key, up to the 32 seed bytes (RFC 8410 7).
const PKCS8_ED25519_PREFIX: &[u8] =
    &[0x30, 0x2e, 0x02, 0x01, 0x00, 0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x70, 0x04, 0x22, 0x04, 0x20];
