//! Reads and writes `traceparent`: the place of a call in its trace.

use std::fmt;
use std::num::{NonZeroU64, NonZeroU128};

/// The trace that a call belongs to. **Shape:** 16 bytes, shown as 32 hexadecimal digits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TraceId(NonZeroU128);

/// One span of a trace. **Shape:** 8 bytes, shown as 16 hexadecimal digits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SpanId(NonZeroU64);

impl TraceId {
    /// The trace of this number; none has zero.
    pub fn new(number: u128) -> Option<Self> {
        NonZeroU128::new(number).map(Self)
    }

    pub(super) fn bytes(self) -> [u8; 16] {
        self.0.get().to_be_bytes()
    }
}

impl fmt::Display for TraceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

impl SpanId {
    /// The span of this number; none has zero.
    pub fn new(number: u64) -> Option<Self> {
        NonZeroU64::new(number).map(Self)
    }

    /// The id of a span beneath this one. Ids are random, so those that follow one are as rare as others.
    pub fn after(self, number: u64) -> Self {
        Self::new(self.0.get().wrapping_add(number)).unwrap_or(self)
    }

    pub(super) fn bytes(self) -> [u8; 8] {
        self.0.get().to_be_bytes()
    }
}

impl fmt::Display for SpanId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

/// A span's place in its trace, as `traceparent` says it.
///
/// **Shape:** `00-TRACE-SPAN-FLAGS` in lower-case hexadecimal digits. **Source:** W3C Trace Context, `traceparent`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Context {
    /// The trace.
    pub trace: TraceId,
    /// The span.
    pub span: SpanId,
    /// Whether somebody records it, and whether the trace's id is random.
    flags: u8,
}

impl Context {
    /// A span of a trace that begins with it.
    pub const fn root(trace: TraceId, span: SpanId, is_sampled: bool) -> Self {
        Self { trace, span, flags: if is_sampled { SAMPLED } else { 0 } }
    }

    /// A span beneath this one, sampled as this one is.
    pub const fn child(self, span: SpanId) -> Self {
        Self { span, ..self }
    }

    /// Whether whoever made it records it.
    pub const fn is_sampled(self) -> bool {
        self.flags & SAMPLED != 0
    }

    pub(super) const fn flags(self) -> u8 {
        self.flags
    }

    /// Reads a `traceparent`. One of a later version may go on behind its flags.
    pub fn parse(text: &str) -> Option<Self> {
        let bytes = text.as_bytes();
        let (head, rest) = bytes.split_at_checked(TEXT_BYTES)?;
        let version = number(&head[..2])?;
        let is_whole = rest.is_empty() || (version != 0 && rest[0] == b'-');
        if version == INVALID_VERSION || !is_whole || [2, 35, 52].into_iter().any(|at| head[at] != b'-') {
            return None;
        }
        Some(Self {
            trace: TraceId::new(number(&head[3..35])?)?,
            span: SpanId::new(u64::try_from(number(&head[36..52])?).ok()?)?,
            flags: u8::try_from(number(&head[53..])?).ok()? & FLAGS,
        })
    }
}

impl fmt::Display for Context {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "00-{}-{}-{:02x}", self.trace, self.span, self.flags)
    }
}

/// Whether a trace that begins here is among the share that is sampled. Its id decides, so all who sample the same share
/// decide alike.
pub fn is_sampled(trace: TraceId, ratio: f64) -> bool {
    // 63 bits, as the OpenTelemetry samplers take them. At 1 the bound is above each of them.
    let low = (trace.0.get() as u64) >> 1;
    (low as f64) < ratio * (1_u64 << 63) as f64
}

/// A number in lower-case hexadecimal digits, and nothing else.
fn number(digits: &[u8]) -> Option<u128> {
    digits.iter().try_fold(0, |number, digit| {
        let value = match digit {
            b'0'..=b'9' => digit - b'0',
            b'a'..=b'f' => digit - b'a' + 10,
            _ => return None,
        };
        Some((number << 4) | u128::from(value))
    })
}

/// Bytes of a `traceparent` of version 0.
const TEXT_BYTES: usize = 55;
/// The version that no `traceparent` has.
const INVALID_VERSION: u128 = 0xff;
/// Somebody records the span.
const SAMPLED: u8 = 1;
/// The flags that have a meaning: sampled, and random trace id.
const FLAGS: u8 = 0b11;

#[cfg(test)]
mod tests {
    use super::*;

    const TRACE: &str = "0af7651916cd43dd8448eb211c80319c";

    #[test]
    fn a_traceparent_is_taken_only_in_its_own_form() {
        let text = format!("00-{TRACE}-b7ad6b7169203331-01");
        let context = Context::parse(&text).unwrap();
        assert_eq!((context.trace.to_string().as_str(), context.to_string()), (TRACE, text.clone()));
        assert_eq!(context.span.to_string(), "b7ad6b7169203331");
        assert!(context.is_sampled());
        // Flags that nobody knows are not passed on, and later versions may say more.
        assert_eq!(Context::parse(&format!("00-{TRACE}-b7ad6b7169203331-fe")).unwrap().flags, 2);
        assert_eq!(Context::parse(&format!("cc-{TRACE}-b7ad6b7169203331-01-more")), Some(context));
        for wrong in [
            String::new(),
            "00".to_owned(),
            format!("{text}-more"),
            format!("ff-{TRACE}-b7ad6b7169203331-01"),
            format!("cc-{TRACE}-b7ad6b7169203331-01more"),
            format!("00-{}-b7ad6b7169203331-01", "0".repeat(32)),
            format!("00-{TRACE}-{}-01", "0".repeat(16)),
            format!("00-{}-b7ad6b7169203331-01", TRACE.to_uppercase()),
            format!("00-{TRACE}-+7ad6b7169203331-01"),
            format!("00_{TRACE}-b7ad6b7169203331-01"),
            format!("00-\u{1b}[2J{}-b7ad6b7169203331-01", &TRACE[4..]),
            format!("00-{TRACE}-b7ad6b716920333ü-01"),
        ] {
            assert_eq!(Context::parse(&wrong), None, "{wrong:?}");
        }
    }

    #[test]
    fn a_ratio_samples_its_share_and_the_ends_all_and_none() {
        let traces =
            || (1..=1_000_u128).map(|at| TraceId::new((at << 64) | (u128::MAX / 1_001 * at)).unwrap());
        let share = |ratio| traces().filter(|trace| is_sampled(*trace, ratio)).count();
        assert_eq!((share(0.0), share(1.0)), (0, 1_000));
        assert!((90..=110).contains(&share(0.1)), "{}", share(0.1));
    }
}
