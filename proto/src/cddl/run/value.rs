//! Matches types of one head: numbers, simple values, strings, and the controls that narrow them.

use std::cmp::Ordering;

use super::super::program::{Comparison, Constraint, Literal, NodeId, Number, Ranges, Scalar};
use super::head::{Head, chunks};
use super::{Expected, Matched, Miss, Run};

impl Run<'_> {
    pub(super) fn scalar(&mut self, id: NodeId, scalar: &Scalar, at: usize) -> Matched {
        let head = self.head(at)?;
        let fits = match scalar {
            Scalar::Initial(first) => {
                if self.bytes[at] != *first {
                    return Err(self.no(at, id));
                }
                return self.skip(at);
            }
            Scalar::Simple(values) => head.major == 7 && head.info <= 24 && values.contain(head.argument),
            Scalar::Float => float(&head).is_some(),
            Scalar::IntRange(low, high) => {
                integer(&head).is_some_and(|value| (*low..=*high).contains(&value))
            }
            Scalar::FloatRange { low, high, inclusive } => float(&head)
                .is_some_and(|value| *low <= value && (value < *high || *inclusive && value == *high)),
            Scalar::Literal(Literal::Int(wanted)) => integer(&head) == Some(*wanted),
            Scalar::Literal(Literal::Float(wanted)) => float(&head).is_some_and(|value| value == *wanted),
            Scalar::Literal(Literal::Text(wanted)) => return self.string(id, at, &head, 3, wanted),
            Scalar::Literal(Literal::Bytes(wanted)) => return self.string(id, at, &head, 2, wanted),
        };
        if fits { Ok(head.next) } else { Err(self.no(at, id)) }
    }

    fn string(&mut self, id: NodeId, at: usize, head: &Head, major: u8, wanted: &[u8]) -> Matched {
        if head.major != major {
            return Err(self.no(at, id));
        }
        let end = self.skip(at)?;
        if !head.is_indefinite() {
            return if self.bytes[head.next..end] == *wanted { Ok(end) } else { Err(self.no(at, id)) };
        }
        let mut rest = wanted;
        for chunk in chunks(self.bytes, at) {
            match rest.strip_prefix(chunk) {
                Some(left) => rest = left,
                None => return Err(self.no(at, id)),
            }
        }
        if rest.is_empty() { Ok(end) } else { Err(self.no(at, id)) }
    }

    /// The part of a control that its target leaves to check, on the item `at..end`.
    pub(super) fn constrained(
        &mut self,
        id: NodeId,
        constraint: &Constraint,
        at: usize,
        end: usize,
        depth: usize,
    ) -> Matched {
        let head = self.head(at)?;
        let fits = match constraint {
            Constraint::Size(sizes) => match head.major {
                // RFC 8610 3.8.1: an unsigned integer of n bytes is below 256^n.
                0 => sizes.0.iter().any(|(_, most)| *most >= 8 || head.argument < 1 << (8 * *most)),
                2 | 3 if !head.is_indefinite() => sizes.contain(head.argument),
                2 | 3 => sizes.contain(chunks(self.bytes, at).map(|chunk| chunk.len() as u64).sum()),
                _ => false,
            },
            Constraint::Bits(bits) => match head.major {
                0 => set_bits(&head.argument.to_le_bytes(), 0, bits),
                2 => {
                    let mut before = 0;
                    chunks(self.bytes, at).all(|chunk| {
                        let fits = set_bits(chunk, before, bits);
                        before += 8 * chunk.len() as u64;
                        fits
                    })
                }
                _ => false,
            },
            Constraint::Compare(comparison, bound) => {
                compare(&head, *bound).is_some_and(|order| match comparison {
                    Comparison::Less => order.is_lt(),
                    Comparison::LessOrEqual => order.is_le(),
                    Comparison::Greater => order.is_gt(),
                    Comparison::GreaterOrEqual => order.is_ge(),
                })
            }
            Constraint::Regexp(regexp) if head.major == 3 => {
                if head.is_indefinite() {
                    let text: Vec<u8> = chunks(self.bytes, at).flatten().copied().collect();
                    regexp.matches(&text)
                } else {
                    regexp.matches(&self.bytes[head.next..end])
                }
            }
            Constraint::Cbor(content) if head.major == 2 => {
                return self.embedded(*content, id, at, &head, end, depth);
            }
            Constraint::Regexp(_) | Constraint::Cbor(_) => false,
        };
        if fits { Ok(end) } else { Err(self.no(at, id)) }
    }

    /// RFC 8610 3.8.4: the byte string holds exactly one item.
    fn embedded(
        &mut self,
        content: NodeId,
        id: NodeId,
        at: usize,
        head: &Head,
        end: usize,
        depth: usize,
    ) -> Matched {
        if depth >= crate::limits::CBOR_DEPTH_MAX {
            return Err(self.stop(at, Expected::Depth));
        }
        // Positions count from the start of the outer item, so the inner one is run as its prefix; a chunked string
        // has no such prefix and is put together first.
        let joined: Vec<u8>;
        let (inner, start): (&[u8], usize) = if head.is_indefinite() {
            joined = chunks(self.bytes, at).flatten().copied().collect();
            (&joined, 0)
        } else {
            (&self.bytes[..end], head.next)
        };
        // The outer check has not seen these bytes: PROTOCOL 5 holds for them as well.
        if crate::cbor::check(&inner[start..]).is_err() {
            return Err(self.no(at, id));
        }
        let mut run = Run { bytes: inner, failure: None, ..*self };
        let result = run.item(content, start, depth + 1);
        let (steps, failure) = (run.steps, run.failure);
        self.steps = steps;
        match result {
            Ok(inner_end) if inner_end == inner.len() => Ok(end),
            Ok(_) | Err(Miss::No | Miss::Cut) => {
                if let (Some(failure), false) = (failure, head.is_indefinite()) {
                    self.keep(failure);
                }
                Err(self.no(at, id))
            }
            Err(Miss::Stop) => {
                self.failure = failure;
                Err(Miss::Stop)
            }
        }
    }
}

fn integer(head: &Head) -> Option<i128> {
    match head.major {
        0 => Some(i128::from(head.argument)),
        1 => Some(-1 - i128::from(head.argument)),
        _ => None,
    }
}

fn float(head: &Head) -> Option<f64> {
    match (head.major, head.info) {
        (7, 25) => Some(half(head.argument as u16)),
        (7, 26) => Some(f64::from(f32::from_bits(head.argument as u32))),
        (7, 27) => Some(f64::from_bits(head.argument)),
        _ => None,
    }
}

/// **Source:** RFC 8949 appendix D.
fn half(bits: u16) -> f64 {
    let (exponent, mantissa) = (i32::from(bits >> 10 & 31), f64::from(bits & 1023));
    let magnitude = match exponent {
        0 => mantissa * 2f64.powi(-24),
        31 if mantissa == 0.0 => f64::INFINITY,
        31 => f64::NAN,
        _ => (mantissa + 1024.0) * 2f64.powi(exponent - 25),
    };
    if bits >> 15 == 1 { -magnitude } else { magnitude }
}

/// The order of the item's number and a bound, exact for integers; `None` for what is no number, and NaN.
fn compare(head: &Head, bound: Number) -> Option<Ordering> {
    match (integer(head), float(head), bound) {
        (Some(value), _, Number::Int(bound)) => Some(value.cmp(&bound)),
        (_, Some(value), Number::Float(bound)) => value.partial_cmp(&bound),
        (Some(value), _, Number::Float(bound)) => order(value, bound),
        (_, Some(value), Number::Int(bound)) => order(bound, value).map(Ordering::reverse),
        (None, None, _) => None,
    }
}

/// An integer against a float. Integers here lie within ±2^64 or are literals, so a float beyond 2^100 decides by sign.
fn order(integer: i128, float: f64) -> Option<Ordering> {
    if float.is_nan() {
        return None;
    }
    if float.abs() >= 2f64.powi(100) {
        return Some(if float > 0.0 { Ordering::Less } else { Ordering::Greater });
    }
    let whole = float.floor();
    Some(integer.cmp(&(whole as i128)).then(if float > whole { Ordering::Less } else { Ordering::Equal }))
}

/// Whether each set bit has a number that is allowed. **Source:** RFC 8610 3.8.2.
fn set_bits(bytes: &[u8], before: u64, allowed: &Ranges) -> bool {
    bytes.iter().enumerate().all(|(at, byte)| {
        (0..8).all(|bit| byte >> bit & 1 == 0 || allowed.contain(before + 8 * at as u64 + bit))
    })
}
