//! Wraps a handler with an agent's own validators: only params that they accept reach it, only results that they accept
//! leave.
//!
//! To use your own schema library, implement [`Validator`]. It has the shape of a Standard Schema: vendor, version,
//! validate, and a JSON Schema if the library can write one.

use std::collections::BTreeMap;
use std::pin::Pin;
use std::sync::Arc;

use bytes::Bytes;
use capd_proto::capability::CapabilityId;
use capd_proto::cbor::Writer;
use capd_proto::cbor::json::to_json;
use capd_proto::code::Code;
use capd_proto::message::{
    self, BodyError, Descriptor, DescriptorDraft, HashAlg, SchemaRef, SchemaSide, SchemaSource,
    violation_details,
};
use serde_json::Value;

use super::{Handler, Invocation, Violation, WireError};

/// A provider's own validator for one side.
///
/// **Source:** Standard Schema V1.
pub trait Validator: Send + Sync + 'static {
    /// Whose it is: the schema library's name.
    fn vendor(&self) -> &str;

    /// The version of its interface.
    fn version(&self) -> u64 {
        1
    }

    /// Checks one payload.
    ///
    /// **Errors:** what does not fit, one entry for each fault; an empty list refuses as well.
    fn validate(&self, value: &Value) -> Result<(), Vec<Violation>>;

    /// The same as a JSON Schema of draft-07 or 2020-12, if the library can write it; always the same one.
    ///
    /// Both sidecars enforce it, and it is what the contract hashes. Without one the contract hashes vendor and version
    /// only, and nobody but this agent can check.
    fn json_schema(&self) -> Option<Value> {
        None
    }
}

/// A handler behind validators.
pub struct Validated<H> {
    handler: H,
    sides: BTreeMap<CapabilityId, Sides>,
}

/// The validators of one capability.
#[derive(Clone, Default)]
pub struct Sides {
    /// The validator of params.
    pub input: Option<Arc<dyn Validator>>,
    /// The validator of results.
    pub output: Option<Arc<dyn Validator>>,
}

impl<H: Handler> Validated<H> {
    /// A handler without validators so far.
    pub fn new(handler: H) -> Self {
        Self { handler, sides: BTreeMap::new() }
    }

    /// Validates a capability's payloads from here on, and returns the descriptor to declare.
    ///
    /// A side's JSON Schema goes into the descriptor in place of the draft's; without one, vendor and version do.
    /// **Errors:** as [`DescriptorDraft::finish`].
    pub fn capability(&mut self, mut draft: DescriptorDraft, sides: Sides) -> Result<Descriptor, BodyError> {
        let schema = |side: &Option<Arc<dyn Validator>>| {
            let document = side.as_ref()?.json_schema()?.to_string();
            Some(SchemaSource::Ref(Box::new(SchemaRef::inline(HashAlg::Sha256, document.as_bytes()))))
        };
        let (input, output) = (schema(&sides.input), schema(&sides.output));
        let all = [("input", &sides.input, &input), ("output", &sides.output, &output)];
        let bare = all.into_iter().filter(|(_, _, schema)| schema.is_none());
        let vendors: Vec<_> = bare.filter_map(|(name, side, _)| Some((name, side.as_deref()?))).collect();
        draft.input_schema = input.or(draft.input_schema);
        draft.output_schema = output.or(draft.output_schema);
        draft.validators = (!vendors.is_empty()).then(|| written(&vendors));
        let descriptor = draft.finish()?;
        self.sides.insert(descriptor.id.clone(), sides);
        Ok(descriptor)
    }
}

impl<H: Handler> Handler for Validated<H> {
    fn invoke(
        &self,
        invocation: Invocation,
    ) -> Pin<Box<dyn Future<Output = Result<Bytes, WireError>> + Send>> {
        let Some(sides) = self.sides.get(&invocation.capability) else {
            return self.handler.invoke(invocation);
        };
        if let Err(error) = check(sides.input.as_deref(), &invocation.params, SchemaSide::Request) {
            return Box::pin(async { Err(error) });
        }
        let work = self.handler.invoke(invocation);
        let Some(output) = sides.output.clone() else { return work };
        Box::pin(async move {
            let result = work.await?;
            check(Some(&*output), &result, SchemaSide::Response)?;
            Ok(result)
        })
    }
}

fn check(validator: Option<&dyn Validator>, payload: &[u8], side: SchemaSide) -> Result<(), WireError> {
    let Some(validator) = validator else { return Ok(()) };
    let violations = match to_json(payload) {
        Ok(value) => match validator.validate(&value) {
            Ok(()) => return Ok(()),
            Err(violations) => violations,
        },
        Err(error) => {
            vec![Violation {
                path: error.path,
                message: error.message.to_owned(),
                keyword: "type".to_owned(),
            }]
        }
    };
    let violations: Vec<_> = violations
        .iter()
        .map(|violation| message::Violation {
            path: violation.path.as_str().into(),
            message: violation.message.as_str().into(),
            keyword: violation.keyword.as_str().into(),
        })
        .collect();
    let (code, message) = match side {
        SchemaSide::Request => (Code::SCHEMA_VIOLATION, "the params do not fit the provider's own schema"),
        SchemaSide::Response => {
            (Code::RESULT_SCHEMA_VIOLATION, "the result does not fit the provider's own schema")
        }
    };
    let details = Bytes::from(violation_details(side, &violations));
    Err(WireError { code, message: message.to_owned(), details: Some(details) })
}

/// `validators` of a descriptor.
fn written(vendors: &[(&str, &dyn Validator)]) -> Vec<u8> {
    let mut out = Vec::new();
    let mut writer = Writer::new(&mut out);
    writer.map(vendors.len() as u64);
    for (side, validator) in vendors {
        writer
            .text(side)
            .map(2)
            .text("vendor")
            .text(validator.vendor())
            .text("version")
            .uint(validator.version());
    }
    out
}
