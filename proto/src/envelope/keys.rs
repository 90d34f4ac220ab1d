//! Lists the keys of an envelope in encoded form, some with the constant bytes beside them.

use crate::limits::{MESSAGE_ID_BYTES, PROTOCOL_VERSION};

pub(super) const V_AND_ID: &[u8; 7] = b"\x61v\x01\x62id\x50";
pub(super) const TO: &[u8; 3] = b"\x62to";
pub(super) const TS: &[u8; 3] = b"\x62ts";
pub(super) const SIG: &[u8; 4] = b"\x63sig";
pub(super) const NO_SIG: &[u8; 5] = b"\x63sig\x40";
pub(super) const TTL: &[u8; 4] = b"\x63ttl";
pub(super) const TYP: &[u8; 4] = b"\x63typ";
pub(super) const BODY: &[u8; 5] = b"\x64body";
pub(super) const FROM: &[u8; 5] = b"\x64from";
pub(super) const REPLY_TO: &[u8; 9] = b"\x68reply_to";
pub(super) const THREAD_ID: &[u8; 10] = b"\x69thread_id";

const _: () = assert!(PROTOCOL_VERSION == 1 && MESSAGE_ID_BYTES == 16, "as stands beside the first keys");
