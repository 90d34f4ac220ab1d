//! A type (the first byte chooses it) and any bytes in; claims on the body's CDDL verdict and its typed form.

use capd_proto::cbor;
use capd_proto::cddl::bodies::bodies;
use capd_proto::message::{Message, Type};

/// Typed reading and the CDDL rule take the same bodies, and a body comes back from its own encoding.
pub(crate) fn run(bytes: &[u8]) {
    let Some((choice, body)) = bytes.split_first() else { return };
    let typ = Type::ALL[usize::from(*choice) % Type::ALL.len()];
    if cbor::check(body).is_err() {
        return;
    }
    let verdict = bodies().check(typ.code(), body);
    let read = Message::read(typ, body);
    assert_eq!(read.is_ok(), verdict.is_ok(), "{typ}: rule {verdict:?}, typed {read:?}");
    let decoded = Message::decode(typ, body);
    assert_eq!(decoded.as_ref().ok(), read.as_ref().ok(), "{typ}");
    match decoded {
        Ok(message) => comes_back(&message),
        Err(error) => assert_eq!(error.code().0, 1001, "{typ}: {error}"),
    }
}

fn comes_back(message: &Message<'_>) {
    let typ = message.typ();
    let mut encoded = Vec::new();
    message.encode(&mut encoded);
    match cbor::check(&encoded).map_err(|error| error.kind) {
        Ok(()) => {}
        // A long array in a key takes a byte more in definite form.
        Err(cbor::ErrorKind::MapKeysTooLarge) => return,
        Err(error) => panic!("{typ}: {error}"),
    }
    let again = Message::decode(typ, &encoded);
    let again = again.unwrap_or_else(|error| panic!("{typ}: what is encoded decodes: {error}"));
    assert_eq!(&again, message, "{typ}");
    let mut encoded_again = Vec::new();
    again.encode(&mut encoded_again);
    assert_eq!(encoded_again, encoded, "{typ}");
    let meaning = message.check_meaning();
    assert_eq!(again.check_meaning(), meaning, "{typ}");
    if let Err(error) = meaning {
        assert_eq!(error.code().0, 4001, "{typ}: {error}");
    }
}
