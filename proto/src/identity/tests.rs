use super::authcrypt::TAG_BYTES;
use super::document::{DOCUMENT_BYTES_MAX, METHODS_MAX};
use super::*;

const ZERO_SEED_DID: &str = "did:key:z6MkiTBz1ymuepAQ4HEHYSF1H8quG5GLVVQR3djdX3mDooWp";

fn hex<const N: usize>(text: &str) -> [u8; N] {
    let bytes: Vec<u8> =
        (0..text.len()).step_by(2).map(|at| u8::from_str_radix(&text[at..at + 2], 16).unwrap()).collect();
    bytes.try_into().unwrap()
}

fn identity(seed: u8) -> Identity {
    Identity::from_seed([seed; 32])
}

fn multibase(codec: [u8; 2], key: &[u8]) -> String {
    format!("z{}", bs58::encode([&codec[..], key].concat()).into_string())
}

#[test]
fn did_key_of_the_zero_seed_is_the_published_one() {
    let identity = identity(0);
    assert_eq!(identity.did().as_str(), ZERO_SEED_DID);
    let key = PublicKey::from_did(ZERO_SEED_DID).unwrap();
    assert_eq!(key, identity.public_key());
    assert_eq!(key.did(), *identity.did());
    assert_eq!(key.as_bytes(), &hex("3b6a27bcceb6a42d62a3a8d02a6f0d73653215771de243a63ac048a18b59da29"));
}

#[test]
fn signature_fits_its_message_and_key_only() {
    let (signer, other) = (identity(1), identity(2));
    let signature = signer.sign(b"message");
    assert_eq!(signer.public_key().verify(b"message", &signature), Ok(()));
    assert_eq!(signer.public_key().verify(b"massage", &signature), Err(InvalidSignature));
    assert_eq!(other.public_key().verify(b"message", &signature), Err(InvalidSignature));
    for bit in 0..signature.len() * 8 {
        let mut flipped = signature;
        flipped[bit / 8] ^= 1 << (bit % 8);
        assert_eq!(signer.public_key().verify(b"message", &flipped), Err(InvalidSignature), "bit {bit}");
    }
}

#[test]
fn fragment_of_a_did_key_must_name_the_same_key() {
    let key = ZERO_SEED_DID.strip_prefix("did:key:").unwrap();
    assert!(PublicKey::from_did(&format!("{ZERO_SEED_DID}#{key}")).is_ok());
    let other = identity(1).did().to_string();
    let other = other.strip_prefix("did:key:").unwrap();
    assert_eq!(PublicKey::from_did(&format!("{ZERO_SEED_DID}#{other}")), Err(KeyError::Fragment));
}

#[test]
fn did_without_an_ed25519_key_is_refused_for_its_reason() {
    let key = |bytes: [u8; 32]| format!("did:key:{}", multibase([0xed, 0x01], &bytes));
    let mut minus_one = [0xff; 32];
    (minus_one[0], minus_one[31]) = (0xec, 0x7f);
    // y = p + 3 spells y = 3, if that is a point at all; y = p + 1 spells the neutral element.
    let mut above_prime = [0xff; 32];
    (above_prime[0], above_prime[31]) = (0xee, 0x7f);
    for (did, error) in [
        ("did:web:example.com".to_owned(), KeyError::Method),
        ("did:key:u7QE".to_owned(), KeyError::Multibase),
        ("did:key:z0OIl".to_owned(), KeyError::Multibase),
        (format!("did:key:z{}", "1".repeat(2_000)), KeyError::Codec),
        (format!("did:key:{}", multibase([0xec, 0x01], &[9; 32])), KeyError::Codec),
        (format!("did:key:{}", multibase([0xed, 0x01], &[9; 31])), KeyError::Multibase),
        (key([2; 32]), KeyError::NotAPoint),
        (key(above_prime), KeyError::NotAPoint),
        (key(minus_one), KeyError::Weak),
        (key(hex("0100000000000000000000000000000000000000000000000000000000000000")), KeyError::Weak),
    ] {
        assert_eq!(PublicKey::from_did(&did), Err(error), "{did}");
    }
    assert!(matches!(PublicKey::from_did("did:key"), Err(KeyError::Did(_))));
}

#[test]
fn debug_shows_no_secret() {
    let identity = identity(7);
    assert_eq!(format!("{identity:?}"), format!("Identity {{ did: {}, .. }}", identity.did()));
    assert_eq!(format!("{:?}", identity.agreement_secret()), "AgreementSecret(..)");
}

mod agreement {
    use super::*;

    #[test]
    fn agreement_key_of_an_identity_is_the_image_of_its_signing_key() {
        let identity = identity(0);
        let mapped = identity.public_key().agreement_key();
        assert_eq!(identity.agreement_secret().public_key(), mapped);
        assert_eq!(
            mapped.as_bytes(),
            &hex("5bf55c73b82ebe22be80f3430667af570fae2556a6415e6b30d4065300aa947d")
        );
    }

    #[test]
    fn sealed_payload_opens_for_the_two_parties_only() {
        let (alice, bob, eve) = (identity(1), identity(2), identity(3));
        let (to_bob, from_alice) = (
            Authcrypt::new(&alice.agreement_secret(), &bob.public_key().agreement_key()),
            Authcrypt::new(&bob.agreement_secret(), &alice.public_key().agreement_key()),
        );
        let (mut sealed, mut opened) = (vec![1], vec![2]);
        to_bob.seal(&[3; 24], b"secret", &mut sealed);
        assert_eq!(sealed.len(), 1 + TAG_BYTES + 6);
        from_alice.open(&[3; 24], &sealed[1..], &mut opened).unwrap();
        assert_eq!(opened, b"\x02secret");

        let as_eve = Authcrypt::new(&eve.agreement_secret(), &alice.public_key().agreement_key());
        assert_eq!(as_eve.open(&[3; 24], &sealed[1..], &mut opened), Err(DecryptionFailed));
        assert_eq!(from_alice.open(&[4; 24], &sealed[1..], &mut opened), Err(DecryptionFailed));
        for at in 1..sealed.len() {
            let mut changed = sealed.clone();
            changed[at] ^= 1;
            assert_eq!(from_alice.open(&[3; 24], &changed[1..], &mut opened), Err(DecryptionFailed));
            assert_eq!(from_alice.open(&[3; 24], &sealed[1..at], &mut opened), Err(DecryptionFailed));
        }
        assert_eq!(opened, b"\x02secret", "a failure leaves nothing behind");
    }

    #[test]
    fn sealed_bytes_are_those_of_the_nacl_box() {
        // The crypto_box vector that the PHP port of libsodium publishes.
        let alice = AgreementSecret::from_bytes(hex(
            "68f208412d8dd5db9d0c6d18512e86f0ec75665ab841372d57b042b27ef89d4c",
        ));
        let bob = AgreementSecret::from_bytes(hex(
            "b581fb5ae182a16f603f39270d4e3b95bc008310b727a11dd4e784a0044d461b",
        ));
        assert_eq!(
            bob.public_key().as_bytes(),
            &hex("e8980c86e032f1eb2975052e8d65bddd15c3b59641174ec9678a53789d92c754")
        );
        let nonce = hex("69696ee955b62b73cd62bda875fc73d68219e0036b7a0b37");
        let plaintext: [u8; 131] = hex("\
             be075fc53c81f2d5cf141316ebeb0c7b5228c52a4c62cbd44b66849b64244ffce5ecbaaf33bd751a1ac728d4\
             5e6c61296cdc3c01233561f41db66cce314adb310e3be8250c46f06dceea3a7fa1348057e2f6556ad6b1318a\
             024a838f21af1fde048977eb48f59ffd4924ca1c60902e52f0a089bc76897040e082f937763848645e0705\
             ");
        let sealed: [u8; 147] = hex("\
             c03f27d188ef650cd12936913137bb17ed4c98c2648939e2e1d2e855470a7b8c632cabfd5ab3b3c2d313dc8c\
             9ecf5da173e1f9c318cdef1dced6d2519e695085e6b5c401a2bd5331442986c7076d412625497c4cb2fd94c6\
             f103961033b2c930d7e82e0341f29d3879bd6ab9d881ea3a1f365d634e653c6e171aac7fc1e76934d23be6f0\
             4a54010808dbf0f9bd30f63b68d026\
             ");
        let (mut out, mut opened) = (Vec::new(), Vec::new());
        Authcrypt::new(&alice, &bob.public_key()).seal(&nonce, &plaintext, &mut out);
        assert_eq!(out, sealed);
        Authcrypt::new(&bob, &alice.public_key()).open(&nonce, &sealed, &mut opened).unwrap();
        assert_eq!(opened, plaintext);
    }

    #[test]
    fn empty_payload_seals_and_opens() {
        let (alice, bob) = (identity(1), identity(2));
        let shared = Authcrypt::new(&alice.agreement_secret(), &bob.public_key().agreement_key());
        let (mut sealed, mut opened) = (Vec::new(), Vec::new());
        shared.seal(&[0; 24], b"", &mut sealed);
        assert_eq!(shared.open(&[0; 24], &sealed, &mut opened), Ok(()));
        assert!(opened.is_empty());
    }

    #[test]
    fn agreement_keys_of_small_order_are_refused() {
        let zero = [0u8; 32];
        let mut zero_with_top_bit = zero;
        zero_with_top_bit[31] = 0x80;
        let order_eight = hex("e0eb7a7c3b41b8ae1656e3faf19fc46ada098deb9c32b1fd866205165f49b800");
        let mut prime_minus_one = [0xff; 32];
        (prime_minus_one[0], prime_minus_one[31]) = (0xec, 0x7f);
        for bytes in [zero, zero_with_top_bit, order_eight, prime_minus_one, [0xff; 32]] {
            let expected = if bytes == [0xff; 32] { Ok(()) } else { Err(KeyError::Weak) };
            assert_eq!(AgreementKey::from_bytes(bytes).map(|_| ()), expected, "{bytes:?}");
        }
    }
}

mod documents {
    use super::*;
    use serde_json::json;

    const DID: &str = "did:web:example.com";

    fn method(id: &str, seed: u8) -> serde_json::Value {
        let key = multibase([0xed, 0x01], identity(seed).public_key().as_bytes());
        json!({"id": id, "type": "Multikey", "controller": DID, "publicKeyMultibase": key})
    }

    fn agreement_method(id: &str, seed: u8) -> serde_json::Value {
        let key = identity(seed).agreement_secret().public_key();
        json!({"id": id, "type": "Multikey", "publicKeyMultibase": multibase([0xec, 0x01], key.as_bytes())})
    }

    fn document(json: serde_json::Value) -> DidDocument {
        DidDocument::from_json(&json.to_string()).unwrap()
    }

    fn key_of(document: &DidDocument, from: &str) -> Option<u8> {
        let key = document.signing_key(from)?;
        (0..=20).find(|seed| identity(*seed).public_key() == key)
    }

    #[test]
    fn bare_did_means_the_smallest_active_assertion_method() {
        let mut revoked = method("#a", 1);
        revoked["revoked"] = json!("2024-01-01T00:00:00Z");
        let document = document(json!({
            "id": DID,
            "verificationMethod": [revoked, method("#c", 3), method("#b", 2), agreement_method("#0", 9)],
            "assertionMethod": ["#c", "#b", "#a", "#0", "#missing"],
            "authentication": [method("#1", 4)],
        }));
        assert_eq!(key_of(&document, DID), Some(2));
        assert_eq!(key_of(&document, "did:web:example.com#c"), Some(3));
        assert_eq!(key_of(&document, "did:web:example.com#1"), Some(4), "embedded methods have ids too");
        assert_eq!(key_of(&document, "did:web:example.com#a"), None, "revoked");
        assert_eq!(key_of(&document, "did:web:example.com#0"), None, "not a signing key");
        assert_eq!(key_of(&document, "did:web:example.com#z"), None);
        assert_eq!(key_of(&document, "did:web:example.org"), None, "another DID");
        assert_eq!(key_of(&document, "did:web:example.com2"), None, "another DID");
    }

    #[test]
    fn authentication_serves_when_no_assertion_method_is_active() {
        let mut revoked = method("#a", 1);
        revoked["revoked"] = json!(true);
        let document = document(json!({
            "id": DID,
            "verificationMethod": [revoked, method("#b", 2)],
            "assertionMethod": ["#a"],
            "authentication": ["did:web:example.com#b"],
        }));
        assert_eq!(key_of(&document, DID), Some(2));
    }

    #[test]
    fn document_without_relationship_or_deactivated_has_no_key_for_the_bare_did() {
        let methods = json!([method("#a", 1)]);
        assert_eq!(key_of(&document(json!({"id": DID, "verificationMethod": methods})), DID), None);
        let deactivated = document(json!({
            "id": DID, "deactivated": true, "verificationMethod": methods, "assertionMethod": ["#a"],
        }));
        assert_eq!(key_of(&deactivated, DID), None);
        assert_eq!(key_of(&deactivated, "did:web:example.com#a"), None);
    }

    #[test]
    fn methods_of_another_did_do_not_serve() {
        let document = document(json!({
            "id": DID, "assertionMethod": [method("did:web:evil.com#a", 1), method("#b", 2)],
        }));
        assert_eq!(key_of(&document, DID), Some(2));
    }

    #[test]
    fn jwk_and_multibase_say_the_same_key() {
        // The key of the RFC 8037 appendix A.2 example.
        let x = "11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo";
        let x25519 = "3p7bfXt9wbTTW2HC7OQ1Nz-DQ8hbeGdNrfx-FG-IK08";
        let document = document(json!({
            "id": DID,
            "assertionMethod": [{"id": "#a", "publicKeyJwk": {"kty": "OKP", "crv": "Ed25519", "x": x}}],
            "keyAgreement": [
                {"id": "#p", "publicKeyJwk": {"kty": "EC", "crv": "P-256", "x": "AA", "y": "AA"}},
                {"id": "#x", "publicKeyJwk": {"kty": "OKP", "crv": "X25519", "x": x25519}},
                agreement_method("#y", 5),
            ],
        }));
        assert_eq!(
            document.signing_key(DID).unwrap().as_bytes(),
            &hex("d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a")
        );
        let key = document.agreement_key().unwrap();
        assert_eq!(key.as_bytes(), &hex("de9edb7d7b7dc1b4d35b61c2ece435373f8343c85b78674dadfc7e146f882b4f"));
    }

    #[test]
    fn mistakes_in_a_document_are_named() {
        for (json, message) in [
            ("[]".to_owned(), "/ must be an object"),
            ("{}".to_owned(), "/id must be a DID"),
            (json!({"id": "did:web:a#b"}).to_string(), "/id must be a DID without a fragment"),
            (json!({"id": "x"}).to_string(), "DID does not start with \"did:\""),
            (
                json!({"id": DID, "assertionMethod": {}}).to_string(),
                "/assertionMethod must be a list of methods",
            ),
            (
                json!({"id": DID, "authentication": [1]}).to_string(),
                "/authentication must be a list of methods",
            ),
            (
                json!({"id": DID, "verificationMethod": [{}]}).to_string(),
                "/verificationMethod must be methods with an id",
            ),
            (
                json!({"id": DID, "verificationMethod": [{"id": "#a", "publicKeyMultibase": "z0"}]})
                    .to_string(),
                "did:web:example.com#a: not a multibase key",
            ),
            (
                json!({"id": DID, "verificationMethod": [method("#a", 1), method("#a", 2)]}).to_string(),
                "did:web:example.com#a is a duplicate",
            ),
        ] {
            assert_eq!(DidDocument::from_json(&json).unwrap_err().to_string(), message, "{json}");
        }
        let mut expiring = method("#a", 1);
        expiring["expires"] = json!("2030-01-01T00:00:00Z");
        let json = json!({"id": DID, "verificationMethod": [expiring]}).to_string();
        assert!(matches!(DidDocument::from_json(&json), Err(DocumentError::Expires(_))));
        assert!(matches!(DidDocument::from_json("{"), Err(DocumentError::Json(_))));
    }

    #[test]
    fn document_bounds_hold() {
        let long = format!("{}{{", " ".repeat(DOCUMENT_BYTES_MAX));
        assert_eq!(DidDocument::from_json(&long).unwrap_err(), DocumentError::TooLong);
        let methods = |count: usize| {
            let methods: Vec<_> = (0..count).map(|at| method(&format!("#{at}"), 1)).collect();
            DidDocument::from_json(&json!({"id": DID, "verificationMethod": methods}).to_string())
        };
        assert!(methods(METHODS_MAX).is_ok());
        assert_eq!(methods(METHODS_MAX + 1).unwrap_err(), DocumentError::TooManyMethods);
    }

    #[test]
    fn keyring_resolves_did_key_by_itself_and_others_by_document() {
        let mut keyring = Keyring::new(4);
        assert_eq!(keyring.resolve(DID), None);
        keyring.insert(document(json!({
            "id": DID, "assertionMethod": [method("#a", 1)], "keyAgreement": [agreement_method("#k", 2)],
        })));
        assert_eq!(keyring.resolve(DID), Some(identity(1).public_key()));
        assert_eq!(keyring.resolve("did:web:example.com#a"), Some(identity(1).public_key()));
        assert_eq!(keyring.resolve_agreement(DID), Some(identity(2).agreement_secret().public_key()));
        assert_eq!(keyring.resolve("did:key:z6Mk"), None);
        let did = identity(3).did().to_string();
        assert_eq!(keyring.resolve(&did), Some(identity(3).public_key()));
        assert_eq!(keyring.resolve_agreement(&did), Some(identity(3).public_key().agreement_key()));
    }

    #[test]
    fn document_never_replaces_the_key_of_a_did_key() {
        let did = identity(1).did().to_string();
        let mut keyring = Keyring::new(4);
        keyring.insert(document(json!({"id": did, "assertionMethod": [method("#evil", 2)]})));
        assert_eq!(keyring.resolve(&did), Some(identity(1).public_key()));
        assert_eq!(keyring.resolve(&format!("{did}#evil")), None);
    }

    #[test]
    fn keyring_remembers_boundedly_and_answers_alike() {
        let mut keyring = Keyring::new(4);
        for _ in 0..2 {
            for seed in 0..20 {
                let identity = identity(seed);
                assert_eq!(keyring.resolve(identity.did()), Some(identity.public_key()));
                assert!(keyring.remembered() <= 4);
            }
        }
        assert!(keyring.remembered() >= 2);
    }
}
