//! Judges an exchange stream that a peer opens before the link is open: the header of its first frame in, a fault out.
//!
//! Only these bytes of the stream are kept. **Source:** PROTOCOL 4.

use std::sync::Arc;

use capd_proto::code::Code;
use capd_proto::frame::FrameType;
use capd_proto::limits::FRAME_HEADER_BYTES;

use super::close::Fault;
use super::stream::Flow;

/// Ends the link of `flow` once the stream brings a frame. One that brings none is forgotten when it ends.
pub(super) fn judge(flow: &Arc<Flow>, send: quinn::SendStream, mut receive: quinn::RecvStream) {
    let (flow, tasks) = (Arc::clone(flow), flow.tasks.clone());
    tasks.spawn(async move {
        // Its end, when this is done, is all the answer there is on it.
        let _send = send;
        let mut header = [0; FRAME_HEADER_BYTES];
        let read = tokio::select! {
            biased;
            () = flow.finish.cancelled() => return,
            read = receive.read_exact(&mut header) => read,
        };
        if read.is_ok() {
            let fault = fault_of(header);
            flow.wish(|wishes| {
                wishes.close.get_or_insert(fault.into());
            });
        }
    });
}

/// What is wrong with a frame of this header here.
fn fault_of([.., code]: [u8; FRAME_HEADER_BYTES]) -> Fault {
    match FrameType::from_code(code) {
        Some(FrameType::AmpMessage) => {
            Fault { code: Code::UNSUPPORTED_VERSION, message: "the link is not open".to_owned() }
        }
        _ => Fault::invalid("only messages belong on an exchange stream, once the link is open"),
    }
}
