//! Holds the owner's settings for links, as the daemon passes them on; every field has a unit and a default.

use std::time::Duration;

use capd_proto::limits::{
    DRAIN_TIMEOUT_MS_DEFAULT, HANDSHAKE_TIMEOUT_MS_DEFAULT, MSG_SIZE_BYTES_DEFAULT,
    SHARED_STREAM_MESSAGE_BYTES_MAX, SHARED_STREAMS_DEFAULT,
};
use capd_proto::rate::Rate;

/// Limits, times and sizes of every link.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Largest accepted frame, in bytes of its `length`. **Source:** PROTOCOL 3.
    pub msg_size_bytes_max: u32,
    /// Time for the transport's and our own handshake and HELLO together. **Source:** PROTOCOL 4.
    pub handshake_timeout: Duration,
    /// Time within which a begun frame must end, or its link must receive [`FRAME_PROGRESS_BYTES`] more.
    pub frame_timeout: Duration,
    /// Time for calls in flight to end while draining. **Source:** PROTOCOL 4.
    pub drain_timeout: Duration,
    /// Silence after which a PING is sent.
    pub keep_alive_interval: Duration,
    /// Silence after which the other side counts as gone; longer than `keep_alive_interval`.
    pub idle_timeout: Duration,
    /// Most open links from peers; as many local ones are allowed besides.
    pub links_max: usize,
    /// Most of either that may be opening, which means before the end of HELLO.
    pub links_opening_max: usize,
    /// Most peer links that one address may be opening.
    pub links_opening_per_address_max: usize,
    /// How many peer links may be opening before a further one must first prove its address, on QUIC.
    pub links_unvalidated_max: usize,
    /// Most links that one peer may have opened.
    pub links_per_peer_max: usize,
    /// How often one address may begin a handshake; `None` is unlimited.
    pub handshake_rate: Option<Rate>,
    /// Most frames waiting on one stream.
    pub outbox_frames_max: usize,
    /// Most bytes waiting on one link, over all its streams.
    pub outbox_bytes_max: usize,
    /// Long-lived exchange streams of a QUIC link. **Source:** PROTOCOL 4.
    pub shared_streams: usize,
    /// Largest message, in bytes, that goes on a shared stream. **Source:** PROTOCOL 4.
    pub shared_message_bytes_max: usize,
    /// Most exchange streams a peer may have open on one QUIC link; it is granted few at first, and more as it uses them.
    pub streams_max: u32,
    /// How often a peer may open an exchange stream that it resets, or that brings no message; `None` is unlimited.
    /// Streams are charged when they open, so the burst is added to `streams_max`.
    pub stream_reset_rate: Option<Rate>,
    /// Most bytes kept for the unfinished frames of one link, beyond a little for each of its streams.
    pub receive_bytes_max: usize,
    /// Bytes that a peer may have in flight to this side on one QUIC stream.
    pub stream_window_bytes: u32,
    /// Most bytes in flight on one QUIC link, in each direction; with a short round trip, a peer may have fewer.
    pub link_window_bytes: u32,
    /// Requested bytes of each UDP socket's buffers; the system may grant fewer.
    pub udp_buffer_bytes: usize,
    /// Whether peer links offer the extension `channel-auth`. **Source:** PROTOCOL 5.
    pub channel_auth: bool,
    /// Whether this process starts commands. They are not its agent: its descendants are refused local links over a
    /// unix socket.
    pub starts_commands: bool,
    /// Whether a loopback link also accepts the token itself, which an agent then sends to any process that holds the
    /// port.
    pub token_plain: bool,
    /// The name shown in HELLO's `agent_info`.
    pub agent_name: String,
    /// First pause before a lost peer is dialled again; doubled each time.
    pub redial_delay_min: Duration,
    /// Longest pause between two tries to reach a peer.
    pub redial_delay_max: Duration,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            msg_size_bytes_max: MSG_SIZE_BYTES_DEFAULT,
            handshake_timeout: Duration::from_millis(HANDSHAKE_TIMEOUT_MS_DEFAULT),
            frame_timeout: Duration::from_secs(30),
            drain_timeout: Duration::from_millis(DRAIN_TIMEOUT_MS_DEFAULT),
            keep_alive_interval: Duration::from_secs(15),
            idle_timeout: Duration::from_secs(45),
            links_max: 4_096,
            links_opening_max: 256,
            links_opening_per_address_max: 64,
            links_unvalidated_max: 64,
            links_per_peer_max: 16,
            handshake_rate: None,
            outbox_frames_max: 16_384,
            outbox_bytes_max: 4 * MSG_SIZE_BYTES_DEFAULT as usize,
            shared_streams: SHARED_STREAMS_DEFAULT,
            shared_message_bytes_max: SHARED_STREAM_MESSAGE_BYTES_MAX,
            streams_max: 1_024,
            stream_reset_rate: None,
            receive_bytes_max: 4 * MSG_SIZE_BYTES_DEFAULT as usize,
            stream_window_bytes: 8 * 1024 * 1024,
            link_window_bytes: 32 * 1024 * 1024,
            udp_buffer_bytes: 4 * 1024 * 1024,
            channel_auth: false,
            starts_commands: false,
            token_plain: false,
            agent_name: "capd".to_owned(),
            redial_delay_min: Duration::from_millis(250),
            redial_delay_max: Duration::from_secs(30),
        }
    }
}

/// Bytes that a link must receive within [`Settings::frame_timeout`] while one of its frames is incomplete. **Units:**
/// bytes.
pub const FRAME_PROGRESS_BYTES: u64 = 64 * 1024;
