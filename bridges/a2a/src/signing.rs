//! Signs agent cards, and verifies them: JWS (RFC 7515) over the canonical card, EdDSA, with the DID of the key for `kid`.
//!
//! **Source:** A2A 1.0, agent card signing. The payload is the card without `signatures` and without defaults, in the
//! canonical form of RFC 8785.

use std::fs;
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD as BASE64URL;
use capd_proto::identity::{Identity, PublicKey};
use serde_json::{Value, json};

/// The key of `file`, which the first start makes, readable by its owner only.
///
/// **Errors:** those of the file; a file that is no key.
pub fn key(file: &Path) -> io::Result<Identity> {
    let seed = match fs::read(file) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let mut seed = [0; SEED_BYTES];
            getrandom::fill(&mut seed).map_err(io::Error::other)?;
            let mut made = fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(file)?;
            made.write_all(&seed).and_then(|()| made.sync_all())?;
            seed.to_vec()
        }
        Err(error) => return Err(error),
    };
    let length = seed.len();
    let seed = <[u8; SEED_BYTES]>::try_from(seed).map_err(|_| {
        io::Error::new(io::ErrorKind::InvalidData, format!("it has {length} bytes; accepted: {SEED_BYTES}"))
    })?;
    Ok(Identity::from_seed(seed))
}

/// Puts a signature by `key` on a card.
pub fn sign(card: &mut Value, key: &Identity) {
    let header = json!({"alg": "EdDSA", "kid": key.did().as_str(), "typ": "JOSE"});
    let protected = BASE64URL.encode(header.to_string());
    let signature = BASE64URL.encode(key.sign(input(&protected, card).as_bytes()));
    card["signatures"] = json!([{"protected": protected, "signature": signature}]);
}

/// The DID whose key signed a card; none for a card that nobody signed with a `did:key`.
///
/// **Errors:** a signature by a `did:key` that is not of this card.
pub fn signer(card: &Value) -> Result<Option<String>, String> {
    for entry in card["signatures"].as_array().into_iter().flatten().take(SIGNATURES_MAX) {
        let (Some(protected), Some(signature)) = (entry["protected"].as_str(), entry["signature"].as_str())
        else {
            continue;
        };
        let header = BASE64URL.decode(protected).ok();
        let header: Value =
            header.and_then(|header| serde_json::from_slice(&header).ok()).unwrap_or_default();
        let key = header["kid"].as_str().filter(|_| header["alg"] == "EdDSA").map(PublicKey::from_did);
        // Whose keys are elsewhere cannot be verified here.
        let Some(Ok(key)) = key else { continue };
        let bytes = BASE64URL.decode(signature).ok().and_then(|bytes| bytes.try_into().ok());
        let is_good =
            bytes.is_some_and(|bytes| key.verify(input(protected, card).as_bytes(), &bytes).is_ok());
        if !is_good {
            return Err(format!("its signature by {} is not of this card", key.did()));
        }
        return Ok(Some(key.did().to_string()));
    }
    Ok(None)
}

/// What is signed.
fn input(protected: &str, card: &Value) -> String {
    let mut card = card.clone();
    if let Value::Object(fields) = &mut card {
        fields.remove("signatures");
    }
    let card = without_defaults("", card).unwrap_or_else(|| json!({}));
    let canonical = serde_json_canonicalizer::to_vec(&card).unwrap_or_default();
    format!("{protected}.{}", BASE64URL.encode(canonical))
}

/// The value of a member without what the protocol leaves out as a default; none when nothing is left.
fn without_defaults(key: &str, value: Value) -> Option<Value> {
    match value {
        // An extension's params are free JSON, of which everything counts.
        value if key == "params" => Some(value),
        Value::Bool(false) if !OPTIONAL_FLAGS.contains(&key) => None,
        Value::String(text) if text.is_empty() => None,
        Value::Array(items) => {
            let items: Vec<_> = items.into_iter().filter_map(|item| without_defaults("", item)).collect();
            (!items.is_empty()).then_some(Value::Array(items))
        }
        Value::Object(fields) => {
            let fields = fields.into_iter().filter_map(|(key, value)| {
                let value = without_defaults(&key, value)?;
                Some((key, value))
            });
            let fields: serde_json::Map<_, _> = fields.collect();
            (!fields.is_empty()).then_some(Value::Object(fields))
        }
        value => Some(value),
    }
}

/// Members whose absence is not the same as `false`.
const OPTIONAL_FLAGS: [&str; 3] = ["extendedAgentCard", "pushNotifications", "streaming"];
const SEED_BYTES: usize = 32;
/// Signatures of one card that are looked at.
const SIGNATURES_MAX: usize = 16;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_signed_card_names_its_signer_and_a_changed_one_is_refused() {
        let key = Identity::from_seed([7; 32]);
        let mut card = json!({"name": "a", "description": "", "skills": [], "version": "1", "x": {"n": 1.0},
            "capabilities": {"streaming": false, "extensions": [{"uri": "u", "params": {"list": []}}]}});
        assert_eq!(signer(&card), Ok(None));
        sign(&mut card, &key);
        assert_eq!(signer(&card), Ok(Some(key.did().to_string())));
        // Defaults are the same as none.
        card["provider"] = json!({});
        card["capabilities"]["extensions"][0]["required"] = json!(false);
        assert_eq!(signer(&card), Ok(Some(key.did().to_string())));
        let mut other = card.clone();
        other["capabilities"]["extensions"][0]["params"] = json!({});
        assert!(signer(&other).is_err(), "an extension's params are signed as they are");
        card["name"] = json!("b");
        assert!(signer(&card).unwrap_err().contains(key.did().as_str()));
    }

    #[test]
    fn signatures_by_keys_that_are_elsewhere_are_no_word_about_the_card() {
        let protected = BASE64URL.encode(r#"{"alg":"ES256","kid":"key-1"}"#);
        let card = json!({"name": "a", "signatures": [{"protected": protected, "signature": "AAAA"}, {}, 7]});
        assert_eq!(signer(&card), Ok(None));
    }

    #[test]
    fn a_key_is_made_once_for_its_owner_alone() {
        use std::os::unix::fs::PermissionsExt as _;
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("card.key");
        let did = key(&file).unwrap().did().clone();
        assert_eq!(key(&file).unwrap().did(), &did);
        assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
        fs::write(&file, "short").unwrap();
        assert!(key(&file).unwrap_err().to_string().contains("5 bytes"));
    }
}
