//! Orders and divides the numbers of schemas and values exactly.
//!
//! Numbers are ordered by their binary value and divided by their decimal text, as the validating crate does. Both
//! readings agree below 2^53. Beyond it, no conclusion uses both at once.

use std::cmp::Ordering;

use serde_json::Number;

/// Largest magnitude up to which every whole number has one reading, 2^53.
pub(super) const EXACT_MAX: i128 = 1 << 53;

/// A number in its exact binary reading.
#[derive(Clone, Copy, Debug)]
pub(super) enum Num {
    /// A whole number below 2^100 in magnitude.
    Whole(i128),
    /// A finite number that is not whole, or is larger than that.
    Float(f64),
}

/// Magnitude from which on a float is kept as it is, 2^100.
const WHOLE_MAX: f64 = (1_u128 << 100) as f64;

impl Num {
    /// The number `number` stands for; `None` when it is not finite.
    pub(super) fn of(number: &Number) -> Option<Self> {
        if let Some(whole) = number.as_u64() {
            return Some(Self::Whole(i128::from(whole)));
        }
        if let Some(whole) = number.as_i64() {
            return Some(Self::Whole(i128::from(whole)));
        }
        number.as_f64().filter(|float| float.is_finite()).map(Self::of_float)
    }

    fn of_float(float: f64) -> Self {
        if float.fract() == 0.0 && float.abs() < WHOLE_MAX {
            Self::Whole(float as i128)
        } else {
            Self::Float(float)
        }
    }

    /// Whether it has no fraction.
    pub(super) fn is_whole(self) -> bool {
        match self {
            Self::Whole(_) => true,
            Self::Float(float) => float.fract() == 0.0,
        }
    }

    /// Exact order; both are finite.
    pub(super) fn order(self, other: Self) -> Ordering {
        match (self, other) {
            (Self::Whole(a), Self::Whole(b)) => a.cmp(&b),
            (Self::Float(a), Self::Float(b)) => a.total_cmp(&b),
            (Self::Whole(a), Self::Float(b)) => order_whole(a, b),
            (Self::Float(a), Self::Whole(b)) => order_whole(b, a).reverse(),
        }
    }

    /// The largest whole number that is not above it; `None` beyond the whole numbers kept exactly.
    pub(super) fn floor(self) -> Option<i128> {
        match self {
            Self::Whole(whole) => Some(whole),
            Self::Float(float) => (float.abs() < WHOLE_MAX).then(|| float.floor() as i128),
        }
    }

    /// The JSON number that is exactly it, when there is one.
    pub(super) fn to_json(self) -> Option<Number> {
        match self {
            Self::Float(float) => Number::from_f64(float),
            Self::Whole(whole) => u64::try_from(whole)
                .map(Number::from)
                .or_else(|_| i64::try_from(whole).map(Number::from))
                .ok()
                .or_else(|| (whole as f64 as i128 == whole).then(|| Number::from_f64(whole as f64))?),
        }
    }

    /// Whether it is below 2^53 in magnitude, where both readings agree.
    pub(super) fn is_exact(self) -> bool {
        match self {
            Self::Whole(whole) => whole.abs() <= EXACT_MAX,
            Self::Float(float) => float.abs() < EXACT_MAX as f64,
        }
    }
}

/// A whole number against a float that is not whole or is beyond all of them.
fn order_whole(whole: i128, float: f64) -> Ordering {
    if float.abs() >= WHOLE_MAX {
        return if float > 0.0 { Ordering::Less } else { Ordering::Greater };
    }
    // Not whole, so it lies strictly above its floor.
    if whole <= float.floor() as i128 { Ordering::Less } else { Ordering::Greater }
}

/// A positive fraction in lowest terms.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Ratio {
    pub(super) over: i128,
    pub(super) under: i128,
}

impl Ratio {
    /// The whole numbers' step.
    pub(super) const ONE: Self = Self { over: 1, under: 1 };

    /// The decimal that `number` is written as, without its sign; `None` past what 128 bits hold, and for zero.
    pub(super) fn of(number: &Number) -> Option<Self> {
        if let Some(whole) = number.as_u64() {
            return Self::new(i128::from(whole), 1);
        }
        if let Some(whole) = number.as_i64() {
            return Self::new(i128::from(whole).abs(), 1);
        }
        let text = format!("{:e}", number.as_f64()?.abs());
        let (digits, exponent) = text.split_once('e')?;
        let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
        let mantissa: i128 = format!("{whole}{fraction}").parse().ok()?;
        let exponent = exponent.parse::<i32>().ok()? - i32::try_from(fraction.len()).ok()?;
        let scale = 10_i128.checked_pow(exponent.unsigned_abs())?;
        if exponent < 0 { Self::new(mantissa, scale) } else { Self::new(mantissa.checked_mul(scale)?, 1) }
    }

    fn new(over: i128, under: i128) -> Option<Self> {
        if over <= 0 || under <= 0 {
            return None;
        }
        let shared = gcd(over, under);
        Some(Self { over: over / shared, under: under / shared })
    }

    /// Whether it is whole and not past 2^53, where the validating crate divides exactly.
    pub(super) fn is_whole(self) -> bool {
        self.under == 1 && self.over <= EXACT_MAX
    }

    /// Whether the validating crate divides every number below 2^53 by it exactly.
    pub(super) fn is_divided_exactly(&self) -> bool {
        // A number of 17 digits scaled by 15 more stays within the 128 bits it divides in.
        const UNDER_MAX: i128 = 10_i128.pow(15);
        self.is_whole() || (self.under > 1 && self.under <= UNDER_MAX)
    }

    /// The smallest number that is a multiple of both; `None` past 128 bits.
    pub(super) fn common_multiple(self, other: Self) -> Option<Self> {
        let a = self.over.checked_mul(other.under)?;
        let b = other.over.checked_mul(self.under)?;
        let multiple = (a / gcd(a, b)).checked_mul(b)?;
        Self::new(multiple, self.under.checked_mul(other.under)?)
    }

    /// How often `step` must be taken until a multiple of it is one of `self`: 1 when every multiple is.
    pub(super) fn period_of(self, step: Self) -> Option<i128> {
        let common = self.common_multiple(step)?;
        let times = Self::new(common.over.checked_mul(step.under)?, common.under.checked_mul(step.over)?)?;
        (times.under == 1).then_some(times.over)
    }

    /// `times` times it, as a JSON number.
    pub(super) fn times(self, times: i128) -> Option<Number> {
        let over = self.over.checked_mul(times)?;
        if over % self.under == 0 {
            return Num::Whole(over / self.under).to_json();
        }
        Number::from_f64(over as f64 / self.under as f64)
    }
}

fn gcd(mut a: i128, mut b: i128) -> i128 {
    while b != 0 {
        (a, b) = (b, a % b);
    }
    a
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn num(value: serde_json::Value) -> Num {
        Num::of(value.as_number().unwrap()).unwrap()
    }

    fn ratio(value: serde_json::Value) -> Ratio {
        Ratio::of(value.as_number().unwrap()).unwrap()
    }

    #[test]
    fn order_is_exact_where_floats_are_not() {
        assert_eq!(
            num(json!(9_007_199_254_740_993_u64)).order(num(json!(9_007_199_254_740_992.0))),
            Ordering::Greater
        );
        assert_eq!(num(json!(u64::MAX)).order(num(json!(18_446_744_073_709_551_616.0))), Ordering::Less);
        assert_eq!(num(json!(1)).order(num(json!(1.0))), Ordering::Equal);
        assert_eq!(num(json!(-1)).order(num(json!(-1.5))), Ordering::Greater);
        assert_eq!(num(json!(i64::MIN)).order(num(json!(-1e300))), Ordering::Greater);
    }

    #[test]
    fn divisibility_reads_the_decimal_that_is_written() {
        assert_eq!(ratio(json!(0.01)), Ratio { over: 1, under: 100 });
        assert_eq!(ratio(json!(1e22)), Ratio { over: 10_i128.pow(22), under: 1 });
        assert_eq!(ratio(json!(0.1)).period_of(ratio(json!(0.3))), Some(1));
        assert_eq!(ratio(json!(0.2)).period_of(ratio(json!(0.3))), Some(2));
        assert_eq!(ratio(json!(4)).period_of(ratio(json!(6))), Some(2));
        assert_eq!(Ratio::of(json!(0).as_number().unwrap()), None);
        assert_eq!(Ratio::of(json!(1e300).as_number().unwrap()), None);
    }

    #[test]
    fn a_multiple_is_written_as_its_decimal() {
        assert_eq!(ratio(json!(0.01)).times(7).unwrap().to_string(), "0.07");
        assert_eq!(ratio(json!(0.5)).times(4).unwrap().to_string(), "2");
        assert_eq!(ratio(json!(0.1)).times(3).unwrap().to_string(), "0.3");
    }
}
