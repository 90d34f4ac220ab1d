//! Encodes and decodes the end of a call as the journal keeps it.

use bytes::Bytes;
use capd_proto::cbor::{Reader, Writer};
use capd_proto::code::Code;
use capd_proto::identity::Did;
use capd_proto::message::ErrorBody;

use crate::client::{Answer, ClientError, WireError};

pub(super) type Outcome = Result<Answer, ClientError>;

/// What is kept of an end that is the call's one result; none of any other.
///
/// **Shape:** a CBOR array, for a success `[result, from, execution_ms / null, deprecated, capability / null,
/// cost / null]`, for an error `[code, message, details / null]`.
pub(super) fn written(outcome: &Outcome) -> Option<Bytes> {
    let mut out = Vec::new();
    let mut writer = Writer::new(&mut out);
    match outcome {
        Ok(answer) => {
            writer.array(6).raw(&answer.result).text(answer.from.as_str());
            match answer.execution_time_ms {
                Some(ms) => writer.uint(ms),
                None => writer.null(),
            };
            writer.bool(answer.is_deprecated);
            match &answer.capability {
                Some(capability) => writer.text(capability),
                None => writer.null(),
            };
            match &answer.cost_estimate {
                Some(cost) => writer.raw(cost),
                None => writer.null(),
            };
        }
        Err(ClientError::Result(error)) if error.is_final() => {
            writer.array(3).uint(error.code.0.into()).text(&error.message);
            match &error.details {
                Some(details) => writer.raw(details),
                None => writer.null(),
            };
        }
        Err(_) => return None,
    }
    Some(out.into())
}

/// `None` for what [`written`] does not write.
pub(super) fn read(record: &Bytes) -> Option<Outcome> {
    let mut reader = Reader::new(record);
    match reader.array().ok()?? {
        6 => Some(Ok(Answer {
            result: record.slice_ref(reader.skip().ok()?),
            from: Did::parse(&reader.text().ok()?).ok()?,
            execution_time_ms: optional(&mut reader, |reader| reader.uint().ok())?,
            is_deprecated: reader.bool().ok()?,
            capability: optional(&mut reader, |reader| Some(reader.text().ok()?.into_owned()))?,
            cost_estimate: optional(&mut reader, |reader| Some(record.slice_ref(reader.skip().ok()?)))?,
            is_replayed: false,
        })),
        3 => Some(Err(ClientError::Result(WireError {
            code: Code(u32::try_from(reader.uint().ok()?).ok()?),
            message: reader.text().ok()?.into_owned(),
            details: optional(&mut reader, |reader| Some(record.slice_ref(reader.skip().ok()?)))?,
        }))),
        _ => None,
    }
}

/// Whether nothing was executed.
pub(super) const fn is_refused(outcome: &Outcome) -> bool {
    matches!(outcome, Err(ClientError::Refused(_) | ClientError::Unsent(_) | ClientError::Invalid(_)))
}

/// What is told in place of a refusal of a call of which an earlier copy may have run: an error that is not final, with the
/// ERROR in its details.
pub(super) fn unknown_after(refusal: Outcome) -> Outcome {
    let Err(refusal) = refusal else { return refusal };
    let mut details = Vec::new();
    let mut writer = Writer::new(&mut details);
    let message = match refusal {
        ClientError::Refused(wire) => {
            writer.map(2).text("error");
            let mut body = ErrorBody::new(wire.code, wire.message.as_str());
            body.details = wire.details.as_deref();
            body.encode(&mut details);
            format!("{MAY_HAVE_RUN}; this time it was refused: {}", wire.message)
        }
        other => {
            writer.map(1);
            format!("{MAY_HAVE_RUN}; this time nothing was sent: {other}")
        }
    };
    Writer::new(&mut details).text("final").bool(false);
    Err(ClientError::Result(WireError { code: Code::INTERRUPTED, message, details: Some(details.into()) }))
}

/// `Some(None)` for null.
fn optional<'a, T>(
    reader: &mut Reader<'a>,
    read: impl FnOnce(&mut Reader<'a>) -> Option<T>,
) -> Option<Option<T>> {
    let start = reader.position();
    if reader.null().is_ok() {
        return Some(None);
    }
    reader.set_position(start);
    read(reader).map(Some)
}

const MAY_HAVE_RUN: &str = "an earlier copy of the call was not answered, and whether it took effect is unknown; ask again with the same key";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_end_comes_back_as_it_was() {
        let answer = Answer {
            result: vec![0x82, 1, 2].into(),
            from: Did::parse("did:web:a.example").unwrap(),
            execution_time_ms: Some(7),
            cost_estimate: None,
            is_deprecated: true,
            capability: Some("a.b.c:1.0.0".to_owned()),
            is_replayed: false,
        };
        let bare = Answer {
            execution_time_ms: None,
            capability: None,
            cost_estimate: Some(vec![0xa0].into()),
            ..answer.clone()
        };
        let error = |details: Option<Vec<u8>>| {
            let details = details.map(Bytes::from);
            Err(ClientError::Result(WireError { code: Code(4711), message: "m".to_owned(), details }))
        };
        for outcome in [Ok(answer), Ok(bare), error(None), error(Some(vec![0x81, 0xf6]))] {
            assert_eq!(read(&written(&outcome).unwrap()), Some(outcome));
        }
    }

    #[test]
    fn only_a_last_word_is_kept() {
        let not_final = [&[0xa1, 0x65][..], b"final", &[0xf4]].concat();
        let wire = |details: Option<Vec<u8>>| WireError {
            code: Code::INTERRUPTED,
            message: String::new(),
            details: details.map(Bytes::from),
        };
        assert!(written(&Err(ClientError::Result(wire(Some(not_final))))).is_none());
        assert!(written(&Err(ClientError::Refused(wire(None)))).is_none());
        assert!(written(&Err(ClientError::Closed(String::new()))).is_none());
        assert!(written(&Err(ClientError::Result(wire(None)))).is_some());
        assert!(read(&Bytes::from_static(&[0x80])).is_none() && read(&Bytes::new()).is_none());
    }
}
