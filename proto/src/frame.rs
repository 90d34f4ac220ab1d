//! Decodes and encodes frames: `length: u32 big-endian | type: u8 | payload` (PROTOCOL 3).

mod payload;

use bytes::{Buf, BufMut, Bytes, BytesMut};
use thiserror::Error;

use crate::code::Code;
use crate::limits::{FRAME_HEADER_BYTES, FRAME_LENGTH_BYTES, MSG_SIZE_BYTES_FLOOR, PING_BYTES_MAX};

pub use payload::{ErrorFrame, Goaway, HandshakeRequest, HandshakeResponse, PayloadError};

/// What a frame carries.
///
/// **Shape:** the byte after the length. **Source:** PROTOCOL 3.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FrameType {
    /// 0x01: one envelope.
    AmpMessage,
    /// 0x02: [`HandshakeRequest`] from the client, [`HandshakeResponse`] from the server.
    Handshake,
    /// 0x03: opaque bytes, at most [`PING_BYTES_MAX`].
    Ping,
    /// 0x04: the PING's payload.
    Pong,
    /// 0x05: [`Goaway`].
    Goaway,
    /// 0x06: [`ErrorFrame`].
    Error,
}

impl FrameType {
    /// Every type, ascending.
    pub const ALL: [Self; 6] =
        [Self::AmpMessage, Self::Handshake, Self::Ping, Self::Pong, Self::Goaway, Self::Error];

    /// The type's byte on the wire.
    pub const fn code(self) -> u8 {
        match self {
            Self::AmpMessage => 0x01,
            Self::Handshake => 0x02,
            Self::Ping => 0x03,
            Self::Pong => 0x04,
            Self::Goaway => 0x05,
            Self::Error => 0x06,
        }
    }

    /// The type of a byte on the wire, or `None` for an unknown byte.
    pub const fn from_code(code: u8) -> Option<Self> {
        Some(match code {
            0x01 => Self::AmpMessage,
            0x02 => Self::Handshake,
            0x03 => Self::Ping,
            0x04 => Self::Pong,
            0x05 => Self::Goaway,
            0x06 => Self::Error,
            _ => return None,
        })
    }

    const fn payload_bytes_max(self) -> usize {
        match self {
            // PROTOCOL 3: PING is at most 64 bytes, and PONG is its copy.
            Self::Ping | Self::Pong => PING_BYTES_MAX,
            Self::AmpMessage | Self::Handshake | Self::Goaway | Self::Error => u32::MAX as usize - 1,
        }
    }
}

/// One frame; its payload is a view of the receive buffer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frame {
    /// The type of the payload.
    pub frame_type: FrameType,
    /// The bytes after the header.
    pub payload: Bytes,
}

/// Bytes that are not an accepted frame.
///
/// **Errors:** all are 1001 INVALID_MESSAGE and close the link. **Source:** PROTOCOL 3.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum FrameError {
    /// A length of 0, without the type.
    #[error("frame length is 0")]
    Empty,
    /// A length above the effective maximum.
    #[error("frame length {length} is above the maximum of {length_max}")]
    TooLong {
        /// The length that the header names, in bytes.
        length: u64,
        /// The effective maximum, in bytes.
        length_max: u32,
    },
    /// An unknown type.
    #[error("unknown frame type {0:#04x}")]
    UnknownType(u8),
    /// A PING or PONG payload above [`PING_BYTES_MAX`].
    #[error("PING payload of {payload_bytes} bytes is above {PING_BYTES_MAX}")]
    PingTooLong {
        /// The payload's length, in bytes.
        payload_bytes: usize,
    },
}

impl FrameError {
    /// The wire code of the ERROR that goes out before the link closes.
    pub const fn code(self) -> Code {
        match self {
            Self::Empty | Self::TooLong { .. } | Self::UnknownType(_) | Self::PingTooLong { .. } => {
                Code::INVALID_MESSAGE
            }
        }
    }
}

/// Cuts frames off the front of a receive buffer.
///
/// It keeps and reserves no bytes: the buffer grows with what arrives, whatever a header announces. After an error the
/// buffer is unchanged, and the next call gives the same error.
#[derive(Clone, Copy, Debug)]
pub struct Decoder {
    length_max: u32,
}

impl Decoder {
    /// A decoder that accepts a `length` up to `length_max` bytes, or up to the floor if that is larger.
    pub const fn new(length_max: u32) -> Self {
        Self { length_max: at_least_floor(length_max) }
    }

    /// The largest accepted `length`, in bytes.
    pub const fn length_max(&self) -> u32 {
        self.length_max
    }

    /// Sets the effective maximum after HANDSHAKE: the smaller of ours and the peer's `max_msg_size`.
    pub const fn settle(&mut self, peer_max: u64) {
        if peer_max < self.length_max as u64 {
            // PROTOCOL 3: the maximum is never settable under 1 MiB.
            self.length_max = at_least_floor(peer_max as u32);
        }
    }

    /// The frame at the front of `buffer`, or `None` while it is not complete.
    ///
    /// **Errors:** a bad length is found with four bytes, a bad type with five.
    pub fn decode(&mut self, buffer: &mut BytesMut) -> Result<Option<Frame>, FrameError> {
        let Some(length) = buffer.first_chunk::<FRAME_LENGTH_BYTES>() else {
            return Ok(None);
        };
        let length = u32::from_be_bytes(*length);
        check_length(u64::from(length), self.length_max)?;
        let Some(&code) = buffer.get(FRAME_LENGTH_BYTES) else {
            return Ok(None);
        };
        let frame_type = FrameType::from_code(code).ok_or(FrameError::UnknownType(code))?;
        check_payload(frame_type, length as usize - 1)?;
        if buffer.len() - FRAME_LENGTH_BYTES < length as usize {
            return Ok(None);
        }
        let mut frame = buffer.split_to(FRAME_LENGTH_BYTES + length as usize);
        frame.advance(FRAME_HEADER_BYTES);
        Ok(Some(Frame { frame_type, payload: frame.freeze() }))
    }
}

/// The header of a frame whose payload has `payload_bytes` bytes.
///
/// **Errors:** a payload that the length field or the type does not allow.
pub fn encode_header(
    frame_type: FrameType,
    payload_bytes: usize,
) -> Result<[u8; FRAME_HEADER_BYTES], FrameError> {
    check_payload(frame_type, payload_bytes)?;
    let [a, b, c, d] = (payload_bytes as u32 + 1).to_be_bytes();
    Ok([a, b, c, d, frame_type.code()])
}

/// Appends a frame to `out`.
///
/// **Errors:** as [`encode_header`]; `out` is then unchanged.
pub fn encode(frame_type: FrameType, payload: &[u8], out: &mut impl BufMut) -> Result<(), FrameError> {
    let header = encode_header(frame_type, payload.len())?;
    out.put_slice(&header);
    out.put_slice(payload);
    Ok(())
}

/// Appends a frame whose payload is whatever `write` appends, so that the payload is never copied.
///
/// **Errors:** as [`encode_header`]; `out` is then unchanged.
pub fn encode_with(
    frame_type: FrameType,
    out: &mut Vec<u8>,
    write: impl FnOnce(&mut Vec<u8>),
) -> Result<(), FrameError> {
    let start = out.len();
    out.extend_from_slice(&[0; FRAME_HEADER_BYTES]);
    let payload_start = out.len();
    write(out);
    match encode_header(frame_type, out.len() - payload_start) {
        Ok(header) => {
            out[start..payload_start].copy_from_slice(&header);
            Ok(())
        }
        Err(error) => {
            out.truncate(start);
            Err(error)
        }
    }
}

/// Checks that a payload fits a frame under the effective maximum of the link.
///
/// **Errors:** [`FrameError::TooLong`].
pub const fn check_payload_fits(payload_bytes: usize, length_max: u32) -> Result<(), FrameError> {
    check_length((payload_bytes as u64).saturating_add(1), length_max)
}

const fn check_length(length: u64, length_max: u32) -> Result<(), FrameError> {
    if length == 0 {
        return Err(FrameError::Empty);
    }
    if length > length_max as u64 {
        return Err(FrameError::TooLong { length, length_max });
    }
    Ok(())
}

const fn check_payload(frame_type: FrameType, payload_bytes: usize) -> Result<(), FrameError> {
    if payload_bytes <= frame_type.payload_bytes_max() {
        return Ok(());
    }
    match frame_type {
        FrameType::Ping | FrameType::Pong => Err(FrameError::PingTooLong { payload_bytes }),
        FrameType::AmpMessage | FrameType::Handshake | FrameType::Goaway | FrameType::Error => {
            Err(FrameError::TooLong {
                length: (payload_bytes as u64).saturating_add(1),
                length_max: u32::MAX,
            })
        }
    }
}

const fn at_least_floor(length_max: u32) -> u32 {
    if length_max < MSG_SIZE_BYTES_FLOOR { MSG_SIZE_BYTES_FLOOR } else { length_max }
}

#[cfg(test)]
mod tests;
