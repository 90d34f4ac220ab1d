//! Lists every bound of the wire, with its unit, its source and its reason.

/// Bytes of a frame's length field. **Source:** PROTOCOL 3.
pub const FRAME_LENGTH_BYTES: usize = 4;
/// Bytes before a frame's payload: the length field and the type. **Source:** PROTOCOL 3.
pub const FRAME_HEADER_BYTES: usize = FRAME_LENGTH_BYTES + 1;
/// Largest `length` of a frame (type and payload) unless configured or negotiated lower, in bytes. **Source:** PROTOCOL 3.
pub const MSG_SIZE_BYTES_DEFAULT: u32 = 16 * 1024 * 1024;
/// Smallest value either side may set as its largest frame, in bytes, so that every peer can send schemas. **Source:** PROTOCOL 3.
pub const MSG_SIZE_BYTES_FLOOR: u32 = 1024 * 1024;
/// Largest PING and PONG payload, in bytes. **Source:** PROTOCOL 3.
pub const PING_BYTES_MAX: usize = 64;

/// Deepest nesting of arrays, maps and tags in received CBOR. **Source:** PROTOCOL 5; bounds the reader's stack.
pub const CBOR_DEPTH_MAX: usize = 64;
/// Most items in one array (elements) or map (pairs). **Source:** PROTOCOL 5.
pub const CBOR_CONTAINER_ITEMS_MAX: usize = 65_536;
/// Most items in one message; every head counts one. **Source:** PROTOCOL 5.
pub const CBOR_ITEMS_MAX: usize = 1_000_000;
/// Most bytes of map keys that are or contain maps, in one message together, each counted at every level at which it is
/// a key or part of one. Ours, since PROTOCOL 5 sets no bound: other keys are compared in place, but these may have to
/// be rewritten, which costs memory by their bytes and time by their bytes and depth.
pub const CBOR_MAP_KEYS_BYTES_MAX: usize = 16 * 1024;

/// Bytes of a message id: eight of time, eight of randomness. **Source:** PROTOCOL 5.
pub const MESSAGE_ID_BYTES: usize = 16;
/// Bytes of an Ed25519 signature. **Source:** PROTOCOL 5.
pub const SIGNATURE_BYTES: usize = 64;
/// How far an id's embedded time may differ from `ts`, in milliseconds. **Source:** PROTOCOL 5.
pub const ID_TS_SKEW_MS_MAX: u64 = 1_000;
/// How far `ts` may be ahead of this clock, in milliseconds. **Source:** PROTOCOL 5.
pub const FUTURE_SKEW_MS_MAX: u64 = 30_000;
/// Longest `ttl`, in milliseconds: thirty days. **Source:** PROTOCOL 5.
pub const TTL_MS_MAX: u64 = 30 * 24 * 60 * 60 * 1_000;
/// Bytes of an authcrypt nonce. **Source:** PROTOCOL 5.
pub const NONCE_BYTES: usize = 24;
/// Most recipients in one `to`; ours, since PROTOCOL 5 sets none and a DID costs work to compare.
pub const RECIPIENTS_MAX: usize = 64;
/// Longest accepted DID, in bytes; ours, as for URLs in common servers.
pub const DID_BYTES_MAX: usize = 2_048;

/// Longest capability name, in bytes. **Source:** PROTOCOL 6.
pub const NAME_BYTES_MAX: usize = 255;
/// Fewest labels of a capability name. **Source:** PROTOCOL 6.
pub const NAME_LABELS_MIN: usize = 3;
/// Longest version text, in bytes; as the common package registries have it.
pub const VERSION_BYTES_MAX: usize = 256;
/// Longest range text, in bytes; ours.
pub const RANGE_BYTES_MAX: usize = 1_024;
/// Most comparators in one range; ours, keeps matching constant.
pub const RANGE_COMPARATORS_MAX: usize = 16;

/// Most ranges or versions in one of a descriptor's lists; ours, keeps the choice among descriptors cheap.
pub const DESCRIPTOR_RANGES_MAX: usize = 64;
/// Most versions in one `acceptable`; ours, keeps the choice among descriptors cheap.
pub const ACCEPTABLE_MAX: usize = 64;
/// Most versions listed in the `details.available` of a 4003, newest first; ours.
pub const AVAILABLE_MAX: usize = 64;
/// Most calls of a rate limit; ours, so that no sum of them exceeds 32 bits.
pub const RATE_REQUESTS_MAX: u64 = 1_000_000_000;
/// Longest period of a rate limit, in milliseconds: as long as a message may live; ours.
pub const RATE_PERIOD_MS_MAX: u64 = TTL_MS_MAX;
/// Bytes of a session id. **Source:** PROTOCOL 7.5.
pub const SESSION_ID_BYTES: usize = 16;
/// Bytes of a journal's id. **Source:** PROTOCOL 8.
pub const JOURNAL_ID_BYTES: usize = 16;

/// Descriptors in one CAP_DECLARE when the query names no `limit`. **Source:** PROTOCOL 7.1.
pub const QUERY_LIMIT_DEFAULT: u64 = 100;
/// Most descriptors in one CAP_DECLARE page. **Source:** PROTOCOL 7.1.
pub const QUERY_LIMIT_MAX: u64 = 1_000;
/// Most violations in one `details.violations`. **Source:** PROTOCOL 9.
pub const VIOLATIONS_MAX: usize = 64;

/// A call's time to run when neither invoke nor descriptor names one, in milliseconds. **Source:** PROTOCOL 8.
pub const CALL_TIMEOUT_MS_DEFAULT: u64 = 60_000;
/// Time for handshake and HELLO, in milliseconds, unless configured. **Source:** PROTOCOL 4.
pub const HANDSHAKE_TIMEOUT_MS_DEFAULT: u64 = 10_000;
/// Time for calls in flight to end while draining, in milliseconds, unless configured. **Source:** PROTOCOL 4.
pub const DRAIN_TIMEOUT_MS_DEFAULT: u64 = 30_000;
/// Messages larger than this get a QUIC stream of their own, in bytes. **Source:** PROTOCOL 4.
pub const SHARED_STREAM_MESSAGE_BYTES_MAX: usize = 64 * 1024;
/// Long-lived shared exchange streams of a QUIC link. **Source:** PROTOCOL 4.
pub const SHARED_STREAMS_DEFAULT: usize = 4;
/// QUIC application error code that cancels a stream's single call. **Source:** PROTOCOL 4.
pub const QUIC_CODE_CANCEL: u32 = 0x4901;
/// Bytes of finished idempotent results remembered, by default. **Source:** PROTOCOL 8.
pub const LEDGER_IDEMPOTENT_BYTES_DEFAULT: usize = 64 * 1024 * 1024;
/// The part of [`LEDGER_IDEMPOTENT_BYTES_DEFAULT`] that one peer may use, so that one cannot push out the others'.
pub const LEDGER_IDEMPOTENT_BYTES_PER_PEER_DEFAULT: usize = LEDGER_IDEMPOTENT_BYTES_DEFAULT / 2;
/// Bytes of finished results that may not be forgotten; beyond it, calls that would add to them are refused; ours: they
/// are on disk.
pub const LEDGER_KEPT_BYTES_DEFAULT: usize = 1024 * 1024 * 1024;
/// The part of [`LEDGER_KEPT_BYTES_DEFAULT`] that one peer may use; ours.
pub const LEDGER_KEPT_BYTES_PER_PEER_DEFAULT: usize = LEDGER_KEPT_BYTES_DEFAULT / 2;
/// Calls remembered, running and finished; ours: some 300 bytes each.
pub const LEDGER_CALLS_DEFAULT: usize = 1 << 20;
/// The part of [`LEDGER_CALLS_DEFAULT`] that one peer may use; ours.
pub const LEDGER_CALLS_PER_PEER_DEFAULT: usize = LEDGER_CALLS_DEFAULT / 2;
/// Copies of one invoke that wait for its result; ours: the oldest is displaced, since its link is the likeliest to be
/// dead.
pub const LEDGER_WAITERS_MAX: usize = 16;
/// Calls that one sweep of the ledger forgets, so that no sweep delays running calls; ours.
pub const LEDGER_SWEEP_MAX: usize = 4_096;

/// How long a cancel of an unknown call prevents it from running, in milliseconds. **Source:** PROTOCOL 7.6.
pub const CANCEL_MARK_MS: u64 = 60_000;
/// Such cancels remembered of one sender; ours.
pub const CANCEL_MARKS_PER_PEER_MAX: usize = 256;
/// Such cancels remembered of all senders together; ours: some 100 bytes each.
pub const CANCEL_MARKS_MAX: usize = 16_384;

/// First retry's delay, in milliseconds; doubled each time. **Source:** PROTOCOL 8, AMP 001 16.3.
pub const RETRY_INITIAL_DELAY_MS: u64 = 1_000;
/// Longest delay between tries, in milliseconds. **Source:** PROTOCOL 8, AMP 001 16.3.
pub const RETRY_DELAY_MS_MAX: u64 = 60_000;
/// Tries in all. **Source:** PROTOCOL 8, AMP 001 16.3.
pub const RETRY_ATTEMPTS_MAX: u32 = 5;
/// Tries in all that a descriptor's `retry_policy` may ask for; ours, so that a provider cannot turn callers into load.
pub const RETRY_ATTEMPTS_POLICY_MAX: u32 = 10;
/// Entries of a descriptor's `retry_on` that count; further ones are ignored; ours: there are fewer codes.
pub const RETRY_ON_MAX: usize = 64;
/// Shortest delay before a retry, in milliseconds; ours, for the same reason.
pub const RETRY_DELAY_MS_MIN: u64 = 10;

/// Longest name of a cell, in bytes. **Source:** FLEET 5.
pub const CELL_BYTES_MAX: usize = 32;
/// Shards of one name's registrations. **Source:** FLEET 5.
pub const SHARDS: u8 = 16;
/// Largest registration, in bytes: 10,000 of them must fit a small etcd. **Source:** FLEET 5.
pub const REGISTRATION_BYTES_MAX: usize = 2_048;
/// Largest membership, in bytes; ours: half of a registration, which holds one.
pub const MEMBERSHIP_BYTES_MAX: usize = 1_024;
/// Largest revocation, in bytes; ours: about 150 are used.
pub const REVOCATION_BYTES_MAX: usize = 256;
/// Bytes of a fence: incarnation and journal id. **Source:** FLEET 5.
pub const FENCE_BYTES: usize = 24;
/// Most names that one agent registers, so that one transaction holds them all. **Source:** FLEET 5.
pub const REGISTERED_NAMES_MAX: usize = 120;
/// Most addresses of a registration. **Source:** FLEET 5.
pub const REGISTERED_ADDRESSES_MAX: usize = 4;
/// Most versions of a registration. **Source:** FLEET 5.
pub const REGISTERED_VERSIONS_MAX: usize = 16;
/// Longest host of an address, in bytes: as DNS has it. Ours.
pub const HOST_BYTES_MAX: usize = 255;
/// Longest zone, in bytes; ours: the names of the common clouds have fewer than 30.
pub const ZONE_BYTES_MAX: usize = 64;
/// Most patterns of a membership; ours.
pub const MEMBER_PATTERNS_MAX: usize = 16;
/// How long a registration is good for, in milliseconds: a day. **Source:** FLEET 5.
pub const REGISTRATION_LIFE_MS_MAX: u64 = 24 * 60 * 60 * 1_000;
/// How far ahead of our clock a registration may be made, in milliseconds. **Source:** FLEET 5.
pub const REGISTRATION_SKEW_MS_MAX: u64 = 5 * 60 * 1_000;
/// How long a membership is good for unless its maker says otherwise, in milliseconds: 90 days. **Source:** FLEET 5.
pub const MEMBERSHIP_LIFE_MS_DEFAULT: u64 = 90 * 24 * 60 * 60 * 1_000;

/// A nonce of HANDSHAKE and a proof for one, in bytes: HMAC-SHA-256 of the token; ours.
pub const PROOF_BYTES: usize = 32;

/// Protocol version of HANDSHAKE and of envelopes. **Source:** PROTOCOL 4, 5.
pub const PROTOCOL_VERSION: u64 = 1;
/// The supported AMP versions, preferred first. **Source:** PROTOCOL 4.
pub const AMP_VERSIONS: &[&str] = &["1.0"];
/// ALPN of a peer link. **Source:** PROTOCOL 2.
pub const ALPN: &[u8] = b"amp.v1";
/// The extension that lets a link's own principal leave `sig` empty. **Source:** PROTOCOL 5.
pub const EXT_CHANNEL_AUTH: &str = "channel-auth";
/// The extension by which HELLO says that its sender is a member of a fleet. **Source:** FLEET 4.
pub const EXT_FLEET: &str = "capd-fleet/1";
/// The `ext` field with the chosen capability id of a call that named none: in an invoke, for the sidecar's own agent;
/// in a result, for the caller. Ours.
pub const EXT_CAPABILITY_ID: &str = "capability_id";
/// The `ext` field of an invoke that names the executor's journal: an executor with another journal refuses it.
/// **Source:** PROTOCOL 8.
pub const EXT_JOURNAL: &str = "capd-journal";
/// The `ext` field of an agent's invoke that has its idempotency key. **Source:** PROTOCOL 7.3; ours.
pub const EXT_KEY: &str = "capd-key";
/// The `ext` field of an agent's invoke that has its affinity: idempotent calls with the same one go to the same peer.
/// **Source:** FLEET L2; ours.
pub const EXT_AFFINITY: &str = "capd-affinity";
/// Longest affinity, in bytes: as long as a key. Ours.
pub const AFFINITY_BYTES_MAX: usize = 255;
/// The `ext` fields of an agent's invoke that have the hashes of both schemas that it was built against. Ours.
pub const EXT_BUILT_AGAINST: [&str; 2] = ["capd-input-schema", "capd-output-schema"];
/// The `ext` field of what a sidecar answers to an invoke with a key: the call that the key stands for. In an agent's
/// invoke, the known call that it asks for. Ours.
pub const EXT_CALL: &str = "capd-call";
/// The `ext` field of a result that was recorded before. Ours.
pub const EXT_REPLAYED: &str = "capd-replayed";
/// The descriptor format we write. **Source:** PROTOCOL 7.2.
pub const CAPABILITIES_VERSION: &str = "1.0";

const _: () = assert!(MSG_SIZE_BYTES_FLOOR <= MSG_SIZE_BYTES_DEFAULT);
const _: () = assert!(SHARED_STREAM_MESSAGE_BYTES_MAX < MSG_SIZE_BYTES_FLOOR as usize);
const _: () = assert!(MEMBERSHIP_BYTES_MAX < REGISTRATION_BYTES_MAX);
const _: () = assert!(REGISTRATION_SKEW_MS_MAX < REGISTRATION_LIFE_MS_MAX);
const _: () = assert!(QUERY_LIMIT_DEFAULT <= QUERY_LIMIT_MAX);
const _: () = assert!(CBOR_CONTAINER_ITEMS_MAX <= CBOR_ITEMS_MAX);
