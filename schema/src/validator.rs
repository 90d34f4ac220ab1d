//! Compiles a JSON Schema document once, and judges the CBOR bytes of payloads.

use std::borrow::Cow;
use std::cell::Cell;
use std::rc::Rc;

use capd_proto::cbor::json::{check_json, from_json};
use capd_proto::limits::CBOR_DEPTH_MAX;
use jsonschema::error::ValidationErrorKind;
use jsonschema::{Draft, PatternOptions};
use serde_json::Value;
use thiserror::Error;

use super::fault;
use super::index::Index;
use super::memo::Memo;
use super::name::Copies;
use super::node::{Cbor, Document, Ended};
use super::patterns;
use super::profile::Profile;
use super::quick::Quick;
use super::sets::{self, Sets};
use super::stack;
pub use super::steps::STEPS_MAX;
use super::steps::{Steps, Tolls, steps_of};
use super::survey::{Collects, Levels, Survey};
use super::violation::{self, List, Violation};

/// Largest schema document, in bytes.
pub const SCHEMA_BYTES_MAX: usize = 256 * 1024;
/// Deepest nesting of a schema document.
pub const SCHEMA_DEPTH_MAX: usize = 100;
/// Most regular expressions of a schema document.
pub const SCHEMA_PATTERNS_MAX: usize = 256;
/// Most schemas that apply to one value, references included.
pub const SCHEMA_SPREAD_MAX: usize = 4_096;
/// Largest compiled regular expression, in bytes, where few of them share [`PATTERNS_BYTES_MAX`].
pub const PATTERN_BYTES_MAX: usize = 1024 * 1024;
/// Bytes that a document's compiled regular expressions share in equal parts; they determine the compile time.
pub const PATTERNS_BYTES_MAX: usize = 4 * 1024 * 1024;
/// Most bytes of a document's regular expressions to translate, each counted once, and once more for each `\d`, `\w`
/// and `\s` in it.
pub const TRANSLATED_BYTES_MAX: usize = 256 * 1024;
/// Most schemas that are compiled for one document: all of its own, and again those that `unevaluatedProperties` and
/// `unevaluatedItems` follow.
pub const SCHEMAS_MAX: usize = 32 * 1024;
/// Most bytes of the pointers to all parts of a document, which messages need.
pub const POINTERS_BYTES_MAX: usize = 8 * 1024 * 1024;
/// Most schemas that the references of a document may lead to; each reference counts all schemas of its name.
pub const REFERRED_MAX: usize = 64 * 1024;

/// The number of names of nested objects that can always be collected for `unevaluatedProperties` beside branches,
/// except within a long array that `unevaluatedItems` checks. Most payloads allow more.
pub const UNEVALUATED_NAMES_MAX: usize = 448;

/// Bytes that such sets may take at once on any payload.
pub(super) const SETS_BYTES_MIN: usize = 14 * 1024;
/// Bytes that the sets and the memo of a walk may take together, on a payload that the index takes nothing of.
const WALK_BYTES: usize = 56 * 1024;
/// What each may take while a full list of errors is gathered. Where that does not do for the sets, so many errors are
/// gathered, which leaves so many bytes less than a verdict has.
const SETS_BYTES_LISTED: usize = 2 * 1024;
const MEMO_BYTES_LISTED: usize = 8 * 1024;
const ERRORS_COLLECTED: usize = 8;
const ERRORS_COLLECTED_BYTES: usize = 24 * 1024;
/// Payloads from which a link holds a message once, so that as much again may be taken by its check.
const HELD_ONCE_BYTES_MIN: usize = 64 * 1024;

/// Errors made on the smallest payload before the rest of it is left unread, and bytes of a larger one for each further
/// one. Most errors are a violation each, so these are mostly enough; an error takes some 400 bytes.
const ERRORS_MIN: usize = 68;
const ERROR_BYTES: usize = 1_200;
/// Bytes that the paths of those errors may take together, besides a part of the payload's; a peer's keys may be long, and
/// each error has its path twice.
const PATHS_BYTES_MIN: usize = 6 * 1024;
/// Bytes that the ways through a schema which leads back to itself may take in those errors together, besides a part of the
/// payload's; and of one step on such a way, of which a level of the payload may have one for each schema it is held
/// against.
const LOCATIONS_BYTES_MIN: usize = 16 * 1024;
const STEP_BYTES: usize = 24;
/// Bytes of text that violations may have together, besides a part of the payload's; what is told of them is copied into
/// the audit log and into the answer.
const LIST_BYTES_MIN: usize = 8 * 1024;

/// The payload of a capability that is checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// `params`, against the input schema.
    Request,
    /// `result`, against the output schema.
    Response,
}

/// Why a schema document was not compiled.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum CompileError {
    /// The document is larger than [`SCHEMA_BYTES_MAX`].
    #[error("{bytes} bytes; accepted: a schema of at most {SCHEMA_BYTES_MAX} bytes")]
    TooLarge {
        /// Its size, in bytes.
        bytes: usize,
    },
    /// The document is not JSON.
    #[error("not JSON, line {line}: {problem}; accepted: a JSON Schema of draft-07 or 2020-12")]
    NotJson {
        /// The line, counted from 1.
        line: usize,
        /// What is wrong there.
        problem: String,
    },
    /// The document exceeds [`SCHEMA_DEPTH_MAX`], [`SCHEMA_PATTERNS_MAX`] or [`SCHEMA_SPREAD_MAX`].
    #[error("{count} {what}; accepted: at most {max}")]
    TooMuch {
        /// The bound that is exceeded.
        what: &'static str,
        /// How many there are.
        count: usize,
        /// How many there may be.
        max: usize,
    },
    /// `$schema` names an unsupported draft.
    #[error("$schema is {found}; accepted: {DRAFT_7} and {DRAFT_2020_12}, or none, which means the latter")]
    Draft {
        /// What it names.
        found: String,
    },
    /// The document is not a valid schema, or a part of it would not be enforced.
    #[error("at {pointer}: {problem}")]
    Invalid {
        /// JSON pointer into the document, `/` for the document itself.
        pointer: String,
        /// What is wrong there.
        problem: String,
    },
}

const DRAFT_7: &str = "http://json-schema.org/draft-07/schema#";
const DRAFT_2020_12: &str = "https://json-schema.org/draft/2020-12/schema";

/// A compiled schema. It fetches nothing: references lead inside the document or are refused.
#[derive(Debug)]
pub struct Validator {
    inner: jsonschema::Validator<Cbor>,
    /// Accepts most payloads quickly; `None` if it can accept none.
    quick: Option<Quick>,
    levels: Levels,
    wants_object: bool,
    has_unevaluated: bool,
    collects: Collects,
    targets: usize,
    /// Schemas that apply to one value.
    spread: usize,
    tolls: Tolls,
}

impl CompileError {
    /// A part of a document that cannot stand; `pointer` is RFC 6901's.
    #[cold]
    pub(super) fn invalid(pointer: &str, problem: impl Into<String>) -> Self {
        let mut problem = problem.into();
        violation::cut(&mut problem, violation::MESSAGE_BYTES_MAX);
        let mut pointer = if pointer.is_empty() { "/".to_owned() } else { pointer.to_owned() };
        violation::cut(&mut pointer, violation::PATH_BYTES_MAX);
        Self::Invalid { pointer, problem }
    }
}

/// A document that a profile takes.
pub(super) struct Loaded {
    schema: Value,
    draft: Draft,
    levels: Levels,
    patterns: usize,
    has_unevaluated: bool,
    collects: Collects,
    targets: usize,
    /// Schemas that apply to one value.
    spread: usize,
    tolls: Tolls,
}

/// Reads a document and holds it against the bounds, and against a profile if there is one.
///
/// **Errors:** what is wrong with it, and where.
pub(super) fn load(document: &[u8], profile: Option<Profile>) -> Result<Loaded, CompileError> {
    if document.len() > SCHEMA_BYTES_MAX {
        return Err(CompileError::TooLarge { bytes: document.len() });
    }
    let schema = super::document::read(document)
        .map_err(|error| CompileError::NotJson { line: error.line(), problem: error.to_string() })?;
    let draft = draft(&schema)?;
    let survey = Survey::of(&schema);
    let count = survey.patterns();
    let all_patterns = || survey.patterns.iter().chain(&survey.name_patterns);
    let translated = all_patterns().map(|pattern| patterns::translated_bytes(pattern));
    for (what, count, max) in [
        ("levels of nesting", survey.depth, SCHEMA_DEPTH_MAX),
        ("patterns", count, SCHEMA_PATTERNS_MAX),
        ("bytes of patterns to translate", translated.fold(0, usize::saturating_add), TRANSLATED_BYTES_MAX),
        ("schemas that references may lead to", survey.referred, REFERRED_MAX),
        ("schemas for one value, references followed", survey.spread, SCHEMA_SPREAD_MAX),
        ("schemas to compile", survey.compiled, SCHEMAS_MAX),
        ("bytes of pointers to its parts", survey.pointer_bytes, POINTERS_BYTES_MAX),
    ] {
        if count > max {
            return Err(CompileError::TooMuch { what, count, max });
        }
    }
    if let Some(profile) = profile {
        profile.check_tree(&schema, draft, count)?;
    }
    let tolls = tolls(&survey);
    let Survey { levels, has_unevaluated, collects, targets, spread, .. } = survey;
    Ok(Loaded { draft, levels, patterns: count, has_unevaluated, collects, targets, spread, tolls, schema })
}

/// What a document makes the crate do besides looking at values.
fn tolls(survey: &Survey<'_>) -> Tolls {
    let to_u32 = |number: usize| u32::try_from(number).unwrap_or(u32::MAX);
    let mut name = patterns::costliest(&survey.name_patterns, survey.patterns());
    if survey.collects.names {
        name.once += COLLECTED_STEPS;
    }
    // A walk that is nested deep leaves the processor's caches.
    let far = survey.nested_below.saturating_sub(NESTED_NEAR);
    let nested = (survey.nested_below / NESTED_A_STEP).saturating_add(far.saturating_mul(NESTED_STEPS));
    Tolls {
        value: to_u32((survey.unseen_below / UNSEEN_A_STEP).saturating_add(nested)),
        identity: to_u32(survey.nested),
        number: survey.divisor_bits.map_or(0, |bits| DIVISION_STEPS + bits as u32 / DIVIDED_BITS_A_STEP),
        string: patterns::costliest(&survey.patterns, survey.patterns()),
        name,
        flags: to_u32(survey.flags),
        circles: survey.circles,
    }
}

/// How each of `count` patterns of a document is compiled.
fn pattern_options(count: usize) -> PatternOptions<jsonschema::Regex> {
    let bytes_max = (PATTERNS_BYTES_MAX / count.max(1)).min(PATTERN_BYTES_MAX);
    PatternOptions::regex().size_limit(bytes_max).dfa_size_limit(bytes_max)
}

/// Whether a pattern runs in linear time and within its bound, as one of `count` in its document.
pub(super) fn is_linear(pattern: &str, count: usize) -> bool {
    let schema = serde_json::json!({ "pattern": pattern });
    jsonschema::options_for::<Cbor>()
        .offline()
        .with_pattern_options(pattern_options(count))
        .build(&schema)
        .is_ok()
}

impl Validator {
    /// Compiles a document of draft-07 or 2020-12 under the profile full; without `$schema` it is read as 2020-12.
    ///
    /// Formats are asserted. Patterns run in linear time; a pattern that needs more is refused.
    ///
    /// **Errors:** what is wrong with the document, and where.
    pub fn compile(document: &[u8]) -> Result<Self, CompileError> {
        Self::compile_under(Profile::Full, document)
    }

    /// Compiles a document that may use only the keywords of `profile`.
    ///
    /// **Errors:** as [`Validator::compile`].
    pub fn compile_under(profile: Profile, document: &[u8]) -> Result<Self, CompileError> {
        Self::of(&load(document, Some(profile))?)
    }

    /// Compiles a document under no profile: what its draft ignores, such as unknown keywords, is ignored.
    ///
    /// For inspecting schemas of any origin; contracts need a profile.
    ///
    /// **Errors:** as [`Validator::compile`].
    pub fn compile_any(document: &[u8]) -> Result<Self, CompileError> {
        Self::of(&load(document, None)?)
    }

    /// Compiles a document as [`Validator::compile_any`], and gives what was read of it: the tree and its draft.
    ///
    /// **Errors:** as [`Validator::compile`].
    pub(super) fn compile_and_read(document: &[u8]) -> Result<(Self, Value, Draft), CompileError> {
        let loaded = load(document, None)?;
        let validator = Self::of(&loaded)?;
        Ok((validator, loaded.schema, loaded.draft))
    }

    fn of(loaded: &Loaded) -> Result<Self, CompileError> {
        let Loaded { schema, draft, levels, patterns: count, collects, .. } = loaded;
        let guarded =
            if collects.names { Cow::Owned(sets::guarded(schema, *draft)) } else { Cow::Borrowed(schema) };
        let inner = jsonschema::options_for::<Cbor>()
            .with_draft(*draft)
            .offline()
            .with_pattern_options(pattern_options(*count))
            .should_validate_formats(true)
            // Draft-07 does not define it and would pass anything.
            .with_format("uuid", is_uuid)
            .build(&guarded)
            .map_err(|error| invalid(&error))?;
        // A walk that may find no stack refuses what else fits.
        let has_stack = stack::holds(levels.under(CBOR_DEPTH_MAX));
        Ok(Self {
            inner,
            quick: has_stack.then(|| Quick::compile(schema, *draft)).flatten(),
            levels: *levels,
            wants_object: wants_object(schema),
            has_unevaluated: loaded.has_unevaluated,
            collects: *collects,
            targets: loaded.targets,
            spread: loaded.spread,
            tolls: loaded.tolls,
        })
    }

    /// Checks one payload.
    ///
    /// **Shape:** `payload` is one CBOR item that [`capd_proto::cbor::check`] accepts.
    /// **Errors:** 1 to 64 violations, for 4004 on the request side and 5901 on the response side.
    /// **Source:** PROTOCOL 9, 10.
    pub fn validate(&self, payload: &[u8], side: Side) -> Result<(), Vec<Violation>> {
        let payload = self.meant(payload, side);
        if self.quick.as_ref().is_some_and(|quick| quick.fits(payload)) {
            // Of a large one a walk may not have come to the end.
            debug_assert!(
                self.walk(payload).is_ok() || self.walk(payload) == Err(vec![too_many_steps()]),
                "it fits for certain"
            );
            return Ok(());
        }
        self.walk(payload)
    }

    /// As [`Validator::validate`], within a number of steps; `None` if it needs more.
    ///
    /// **Units:** a step is about five nanoseconds; work that is linear in the payload's bytes is not counted.
    pub fn validate_within(
        &self,
        payload: &[u8],
        side: Side,
        steps: u64,
    ) -> Option<Result<(), Vec<Violation>>> {
        let payload = self.meant(payload, side);
        if self.quick.as_ref().is_some_and(|quick| quick.fits(payload)) {
            return Some(Ok(()));
        }
        let verdict = self.walk_counted(payload, steps).0;
        // A verdict that has come to an end for want of steps says so; with more steps it may be another.
        let is_cut = verdict.as_ref().is_err_and(|violations| {
            *violations == [too_many_steps()] || *violations == [in_too_many_ways()]
        });
        (!is_cut).then_some(verdict)
    }

    /// PROTOCOL 10: null params are validated as {} under an object schema.
    fn meant<'a>(&self, payload: &'a [u8], side: Side) -> &'a [u8] {
        match payload {
            [CBOR_NULL] if side == Side::Request && self.wants_object => &[CBOR_EMPTY_MAP],
            payload => payload,
        }
    }

    /// Checks one payload that is a JSON value.
    ///
    /// ```
    /// use capd_schema::{Side, Validator};
    /// use serde_json::json;
    ///
    /// let validator = Validator::compile(br#"{"type": "object", "properties": {"n": {"type": "integer"}}}"#)?;
    /// assert_eq!(validator.validate_json(&json!({"n": 1}), Side::Request), Ok(()));
    /// let violations = validator.validate_json(&json!({"n": "one"}), Side::Request).unwrap_err();
    /// assert_eq!((violations[0].path.as_str(), violations[0].keyword.as_str()), ("/n", "type"));
    /// # Ok::<(), capd_schema::CompileError>(())
    /// ```
    ///
    /// **Errors:** as [`Validator::validate`].
    pub fn validate_json(&self, payload: &Value, side: Side) -> Result<(), Vec<Violation>> {
        let mut bytes = Vec::new();
        from_json(payload, &mut bytes);
        self.validate(&bytes, side)
    }

    /// Checks one payload with the `jsonschema` crate.
    pub(super) fn walk(&self, payload: &[u8]) -> Result<(), Vec<Violation>> {
        self.walk_counted(payload, STEPS_MAX).0
    }

    /// Steps of a full check of one payload, including its violations: at most [`STEPS_MAX`].
    ///
    /// **Shape:** as [`Validator::validate`]. **Units:** about five nanoseconds.
    pub fn steps(&self, payload: &[u8]) -> u64 {
        self.walk_counted(payload, STEPS_MAX).1
    }

    fn walk_counted(&self, payload: &[u8], steps_max: u64) -> (Result<(), Vec<Violation>>, u64) {
        let mut index = INDEX.take();
        let verdict = match index.record(payload) {
            Ok(()) => self.check(&index, payload, steps_max),
            Err(_) => (Err(vec![not_json(payload)]), 0),
        };
        index.trim();
        INDEX.set(index);
        verdict
    }

    /// Whether a JSON value fits, and the steps it took to tell, at most `steps`; `None` when it takes more, or more
    /// stack than a check may take.
    pub(super) fn judge(&self, value: &Value, steps: u64) -> (Option<bool>, u64) {
        let (mut payload, mut index) = (Vec::new(), Index::default());
        from_json(value, &mut payload);
        if index.record(&payload).is_err() {
            return (None, 1);
        }
        let walk = || {
            if self.circles_for_long(&index) {
                return (None, steps);
            }
            let walk = Steps::new(steps, self.tolls(&index));
            let document = Document::within(index.values(&payload), walk);
            (document.walk(|root| self.inner.is_valid(root)).ok(), steps - document.steps().left())
        };
        stack::with_levels(self.levels.under(index.height()), walk).unwrap_or((None, steps))
    }

    /// A verdict, and the steps that it took.
    fn check(&self, index: &Index, payload: &[u8], steps_max: u64) -> (Result<(), Vec<Violation>>, u64) {
        let walk = || {
            let bytes = walk_bytes(index, payload);
            let shares = self.collects.any() && matches!(self.levels, Levels::EachPayloadLevel(_));
            let bytes = if shares { bytes / 2 } else { bytes };
            let sets = self.sets(bytes.max(SETS_BYTES_MIN));
            let memo = self.memo(bytes, index, payload);
            // One number of steps, whatever they are taken for.
            let most = steps_of(index.count()).min(steps_max);
            if self.circles_for_long(index) {
                return (Err(vec![too_many_steps()]), most);
            }
            let steps = Steps::new(most, self.tolls(index));
            let document = Document::new(index.values(payload), Rc::clone(&steps), sets, memo);
            let verdict = match document.walk(|root| self.inner.is_valid(root)) {
                Ok(true) => Ok(()),
                Ok(false) => Err(self.violations(index, payload, &steps)),
                Err(Ended::Steps) => Err(vec![too_many_steps()]),
                Err(Ended::Sets(too_large)) => Err(vec![too_large.violation(&index.values(payload))]),
            };
            (verdict, most - steps.left())
        };
        stack::with_levels(self.levels.under(index.height()), walk).unwrap_or_else(|_| {
            (Err(vec![Violation::new("", "is nested too deeply for a schema of this size", "$ref")]), 0)
        })
    }

    /// Schemas that may still be applied once a walk has ended: on each level of a payload those of one place.
    fn applied_max(&self, index: &Index) -> usize {
        (index.height() + 1).saturating_mul(self.spread)
    }

    /// Whether so many are left when a walk has ended that each of them must not be looked for among those being applied.
    fn circles_for_long(&self, index: &Index) -> bool {
        self.tolls.circles && self.applied_max(index) > APPLIED_IN_CIRCLES_MAX
    }

    /// Sets of at most so many bytes at once.
    fn sets(&self, bytes: usize) -> Sets {
        Sets::within(bytes, self.collects)
    }

    /// A memo of so many bytes.
    fn memo(&self, bytes: usize, index: &Index, payload: &[u8]) -> Memo {
        Memo::within(bytes, payload, index.count(), self.levels, self.targets)
    }

    /// What the document and the levels of a payload make the crate do.
    fn tolls(&self, index: &Index) -> Tolls {
        // Each level may have each schema of the longest way on one value among those that are being applied.
        let applied = (index.height() as u32 + 1).saturating_mul(self.tolls.identity);
        Tolls { identity: applied / APPLIED_A_STEP, ..self.tolls }
    }

    #[cold]
    fn violations(&self, index: &Index, payload: &[u8], steps: &Rc<Steps>) -> Vec<Violation> {
        // Each may make an error still once the walk has ended.
        if self.applied_max(index) > APPLIED_LISTED_MAX {
            return vec![in_too_many_ways()];
        }
        // What is refused takes memory by its size, and the index has had a part of that.
        let room = room(index, payload);
        let affordable = (PATHS_BYTES_MIN + room / 8) / (index.path_bytes() + 1);
        let located = match self.levels {
            Levels::Fixed(_) => usize::MAX,
            Levels::EachPayloadLevel(_) => {
                let location_bytes = (index.height() + 1) * self.spread * STEP_BYTES;
                ((LOCATIONS_BYTES_MIN + room / 8) / location_bytes).max(1)
            }
        };
        let errors_max = affordable.min(ERRORS_MIN + room / ERROR_BYTES).min(located);
        let more = if payload.len() < HELD_ONCE_BYTES_MIN { 0 } else { room / 8 };
        let listed = SETS_BYTES_LISTED + more;
        let memo = self.memo(MEMO_BYTES_LISTED + more, index, payload);
        let told = (index, payload);
        let mut list = self.list(told, steps, errors_max, listed, memo);
        if let Err(Ended::Sets(_)) = list {
            // Where much is collected, less is told.
            let errors_max = errors_max.min(ERRORS_COLLECTED);
            let collected = walk_bytes(index, payload).saturating_sub(ERRORS_COLLECTED_BYTES + room / 4);
            list = self.list(told, steps, errors_max, collected.max(listed), memo);
        }
        let mut violations = match list {
            Ok(violations) => violations,
            // The verdict came to an end before such an object.
            Err(Ended::Sets(too_large)) if too_large.count > UNEVALUATED_NAMES_MAX => {
                vec![too_large.violation(&index.values(payload))]
            }
            // What was found before the walk ended is lost with it.
            Err(Ended::Sets(_) | Ended::Steps) => vec![],
        };
        if violations.is_empty() {
            violations.push(in_too_many_ways());
        }
        violations
    }

    /// What violations are found with at most so many errors, and so many bytes collected at once.
    fn list(
        &self,
        (index, payload): (&Index, &[u8]),
        steps: &Rc<Steps>,
        errors_max: usize,
        sets_bytes: usize,
        memo: Memo,
    ) -> Result<Vec<Violation>, Ended> {
        let copies = Copies::new(self.has_unevaluated);
        let sets = self.sets(sets_bytes);
        let values = index.values(payload);
        let errors = (errors_max as u64, index.path_bytes());
        let document = Document::bounded(values, Rc::clone(steps), (sets, memo), errors, copies);
        let errors = document.walk(|root| self.inner.iter_errors(root))?;
        let errors: Vec<_> = errors.filter(|error| document.holds(error)).collect();
        let mut list = List::new(LIST_BYTES_MIN + payload.len() / 32);
        for error in fault::independent(&errors) {
            if !list.is_full() {
                list.push(error);
            }
        }
        Ok(list.into_violations())
    }
}

/// Bytes that sets and memo may take while a payload's verdict is found.
fn walk_bytes(index: &Index, payload: &[u8]) -> usize {
    let held_once = if payload.len() < HELD_ONCE_BYTES_MIN { 0 } else { payload.len() };
    (WALK_BYTES + held_once).saturating_sub(index.bytes()).max(SETS_BYTES_MIN)
}

/// Bytes of the payload that its index has not had.
fn room(index: &Index, payload: &[u8]) -> usize {
    payload.len().saturating_sub(index.bytes())
}

#[cold]
fn in_too_many_ways() -> Violation {
    Violation::new("", "has more violations than can be listed", "schema")
}

#[cold]
fn too_many_steps() -> Violation {
    let message = format!(
        "needs more than {STEPS_MAX} steps to check with this schema, or too many for its size; accepted: a smaller payload, \
         or a simpler schema"
    );
    Violation::new("", message, "$ref")
}

/// Schemas that are applied without a look at the value, and bits of a division, in one step.
const UNSEEN_A_STEP: usize = 2;
const NESTED_A_STEP: usize = 2;
/// Schemas in one another up to here take no longer each than one beside the other; above, so many steps.
const NESTED_NEAR: usize = 32;
const NESTED_STEPS: usize = 2;
const DIVIDED_BITS_A_STEP: u32 = 12;
/// Steps of a division, and of a name that is collected.
const DIVISION_STEPS: u32 = 24;
const COLLECTED_STEPS: u32 = 8;
/// Schemas that may be applied once a walk has ended: while errors are gathered, and where references lead in a circle.
const APPLIED_LISTED_MAX: usize = 64 * 1024;
const APPLIED_IN_CIRCLES_MAX: usize = 16 * 1024;
/// Schemas being applied that are looked through in one step.
const APPLIED_A_STEP: u32 = 8;

thread_local! {
    static INDEX: Cell<Index> = Cell::new(Index::default());
}

const CBOR_NULL: u8 = 0xf6;
const CBOR_EMPTY_MAP: u8 = 0xa0;

/// PROTOCOL 10: what JSON does not know is a violation at its path.
#[cold]
fn not_json(payload: &[u8]) -> Violation {
    match check_json(payload) {
        Err(error) => Violation::new(&error.path, format!("is not JSON: {}", error.message), "type"),
        Ok(()) => Violation::new("", "is not JSON", "type"),
    }
}

pub(super) fn draft(schema: &Value) -> Result<Draft, CompileError> {
    let Some(named) = schema.get("$schema") else { return Ok(Draft::Draft202012) };
    match named.as_str().map(|uri| uri.trim_end_matches('#')) {
        Some(uri) if uri == DRAFT_7.trim_end_matches('#') => Ok(Draft::Draft7),
        Some(DRAFT_2020_12) => Ok(Draft::Draft202012),
        Some(_) | None => {
            let mut found = named.to_string();
            violation::cut(&mut found, 160);
            Err(CompileError::Draft { found })
        }
    }
}

fn invalid(error: &jsonschema::ValidationError<'_>) -> CompileError {
    let problem = match error.kind() {
        ValidationErrorKind::Referencing(problem) => {
            format!("{problem}; accepted: references inside the document")
        }
        ValidationErrorKind::Format { format } if format == "regex" => {
            "not a pattern that runs in linear time; accepted: no look-around and no back-references, and not too \
             large beside the other patterns of the schema"
                .to_owned()
        }
        _ => error.to_string(),
    };
    CompileError::invalid(error.instance_path().as_str(), problem)
}

/// Whether the document, or what its root refers to, takes objects and not null.
fn wants_object(schema: &Value) -> bool {
    let mut at = schema;
    // A chain of references this long is a circle, or worth nobody's while.
    for _ in 0..16 {
        let is = |wanted: &str| match at.get("type") {
            Some(Value::String(one)) => one == wanted,
            Some(Value::Array(many)) => many.iter().any(|one| one == wanted),
            _ => false,
        };
        if at.get("type").is_some() {
            return is("object") && !is("null");
        }
        let target = at.get("$ref").and_then(Value::as_str).and_then(|reference| reference.strip_prefix('#'));
        match target.and_then(|pointer| schema.pointer(pointer)) {
            Some(target) => at = target,
            None => return false,
        }
    }
    false
}

/// RFC 9562's text form: 8-4-4-4-12 hexadecimal digits.
fn is_uuid(text: &str) -> bool {
    let bytes = text.as_bytes();
    bytes.len() == UUID_TEXT_BYTES
        && bytes.iter().enumerate().all(|(at, byte)| match at {
            8 | 13 | 18 | 23 => *byte == b'-',
            _ => byte.is_ascii_hexdigit(),
        })
}

const UUID_TEXT_BYTES: usize = 36;
