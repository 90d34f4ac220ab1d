//! Bytes from hexadecimal text or a file in; what they are, and whether the protocol takes them, out.

mod item;
mod view;

use bytes::BytesMut;
use capd_proto::frame::{Decoder, FrameType};
use capd_proto::limits::MSG_SIZE_BYTES_DEFAULT;

use crate::args::DecodeArgs;
use crate::failure::{Exit, Failure};
use crate::{hex, input, output};

use item::{BodyView, EnvelopeView, FrameView, Item, message_type};

/// Shows the bytes.
///
/// **Errors:** usage, when there are no bytes to show; refused, when the protocol takes some of them not.
pub(crate) fn run(args: &DecodeArgs, json: bool) -> Result<(), Failure> {
    let bytes = input(args)?;
    let items = if let Some(name) = &args.body {
        let typ = message_type(name).ok_or_else(|| {
            Failure::usage(format!("{name:?} is no message type"))
                .hint("give its name, such as CAP_INVOKE, or its hexadecimal number, such as 22")
        })?;
        vec![Item::Body(BodyView::of(typ, &bytes))]
    } else if args.envelope || (!args.frame && is_map(&bytes)) {
        vec![Item::Envelope(EnvelopeView::of(&bytes))]
    } else {
        frames(&bytes)
    };
    if json {
        for item in &items {
            output::print_json(&view::json(item))?;
        }
    } else {
        let texts: Vec<_> = items.iter().map(view::text).collect();
        output::print(&texts.join("\n"))?;
    }
    let refusals: Vec<_> = items.iter().flat_map(Item::refusals).collect();
    match refusals.as_slice() {
        [] => Ok(()),
        [refusal] => Err(Failure::unexpected(format!("refused: {refusal}")).exit(Exit::Refused)),
        [first, rest @ ..] => {
            let more = format!("refused: {first} (and {} more)", rest.len());
            Err(Failure::unexpected(more).exit(Exit::Refused))
        }
    }
}

fn input(args: &DecodeArgs) -> Result<Vec<u8>, Failure> {
    let bytes = match (&args.hex, &args.file) {
        (Some(text), _) => {
            return hex::decode(text).map_err(|wrong| Failure::usage(format!("--hex: {wrong}")));
        }
        (None, Some(file)) => input::bytes(file)?,
        (None, None) => return Err(Failure::usage("give --hex TEXT or FILE")),
    };
    Ok(bytes)
}

/// Whether the first byte is the head of a CBOR map, which a frame's length never starts with.
fn is_map(bytes: &[u8]) -> bool {
    bytes.first().is_some_and(|byte| byte >> 5 == 5)
}

fn frames(bytes: &[u8]) -> Vec<Item> {
    let mut decoder = Decoder::new(MSG_SIZE_BYTES_DEFAULT);
    let mut buffer = BytesMut::from(bytes);
    let mut items = Vec::new();
    while !buffer.is_empty() {
        let offset = bytes.len() - buffer.len();
        match decoder.decode(&mut buffer) {
            Ok(Some(frame)) => items.push(Item::Frame(FrameView::of(offset, &frame))),
            Ok(None) => {
                let left = buffer.len();
                items.push(Item::Broken {
                    offset,
                    reason: format!("the input ends {left} bytes into a frame that begins"),
                });
                break;
            }
            Err(error) => {
                items.push(Item::Broken { offset, reason: error.to_string() });
                break;
            }
        }
    }
    items
}

/// A frame type's name, as PROTOCOL 3 spells it.
fn frame_name(frame_type: FrameType) -> &'static str {
    match frame_type {
        FrameType::AmpMessage => "AMP_MESSAGE",
        FrameType::Handshake => "HANDSHAKE",
        FrameType::Ping => "PING",
        FrameType::Pong => "PONG",
        FrameType::Goaway => "GOAWAY",
        FrameType::Error => "ERROR",
    }
}

#[cfg(test)]
mod tests;
