//! Writes values as deterministic CBOR bytes.

/// Writes CBOR with the shortest heads and floats (RFC 8949 4.2.1).
///
/// The caller must write map keys in the bytewise order of their encodings: for text keys, shorter ones first and equal
/// lengths by their bytes.
#[derive(Debug)]
pub struct Writer<'a> {
    out: &'a mut Vec<u8>,
}

impl<'a> Writer<'a> {
    /// A writer that appends to `out`.
    #[inline]
    pub const fn new(out: &'a mut Vec<u8>) -> Self {
        Self { out }
    }

    /// Bytes in the output so far.
    pub const fn written(&self) -> usize {
        self.out.len()
    }

    /// An unsigned integer.
    #[inline]
    pub fn uint(&mut self, value: u64) -> &mut Self {
        self.head(0, value)
    }

    /// An integer from −2⁶⁴ to 2⁶⁴−1; a value beyond is written as the nearest bound.
    pub fn int(&mut self, value: i128) -> &mut Self {
        match u64::try_from(value) {
            Ok(value) => self.head(0, value),
            Err(_) if value > 0 => self.head(0, u64::MAX),
            Err(_) => self.head(1, u64::try_from(-1 - value).unwrap_or(u64::MAX)),
        }
    }

    /// Text.
    #[inline]
    pub fn text(&mut self, value: &str) -> &mut Self {
        self.head(3, value.len() as u64);
        self.raw(value.as_bytes())
    }

    /// A byte string.
    #[inline]
    pub fn bytes(&mut self, value: &[u8]) -> &mut Self {
        self.head(2, value.len() as u64);
        self.raw(value)
    }

    /// The head of a byte string of `count` bytes, which follow.
    pub fn bytes_head(&mut self, count: u64) -> &mut Self {
        self.head(2, count)
    }

    /// The head of a text of `count` bytes, which follow.
    pub fn text_head(&mut self, count: u64) -> &mut Self {
        self.head(3, count)
    }

    /// The head of an array of `count` elements, which follow.
    #[inline]
    pub fn array(&mut self, count: u64) -> &mut Self {
        self.head(4, count)
    }

    /// The head of a map of `count` pairs, which follow, key before value.
    #[inline]
    pub fn map(&mut self, count: u64) -> &mut Self {
        self.head(5, count)
    }

    /// A tag; the tagged item follows.
    #[inline]
    pub fn tag(&mut self, number: u64) -> &mut Self {
        self.head(6, number)
    }

    /// `true` or `false`.
    #[inline]
    pub fn bool(&mut self, value: bool) -> &mut Self {
        self.raw(&[0xf4 | u8::from(value)])
    }

    /// `null`.
    #[inline]
    pub fn null(&mut self) -> &mut Self {
        self.raw(&[0xf6])
    }

    /// `undefined`.
    #[inline]
    pub fn undefined(&mut self) -> &mut Self {
        self.raw(&[0xf7])
    }

    /// A simple value by its number.
    pub fn simple(&mut self, number: u8) -> &mut Self {
        if number < 24 { self.raw(&[0xe0 | number]) } else { self.raw(&[0xf8, number]) }
    }

    /// A float in the shortest width that keeps its value; every NaN becomes the half-precision quiet one.
    pub fn float(&mut self, value: f64) -> &mut Self {
        let (info, bits) = shortest_float(value);
        let width_bytes = 1 << (info - 24);
        self.raw(&[0xe0 | info]).raw(&bits.to_be_bytes()[size_of::<u64>() - width_bytes..])
    }

    /// Bytes that are one encoded item.
    #[inline]
    pub fn raw(&mut self, item: &[u8]) -> &mut Self {
        self.out.extend_from_slice(item);
        self
    }

    #[inline]
    fn head(&mut self, major: u8, argument: u64) -> &mut Self {
        let major = major << 5;
        match argument {
            0..24 => self.out.push(major | argument as u8),
            24..=0xff => self.out.extend_from_slice(&[major | 24, argument as u8]),
            0x100..=0xffff => {
                self.out.push(major | 25);
                self.out.extend_from_slice(&(argument as u16).to_be_bytes());
            }
            0x1_0000..=0xffff_ffff => {
                self.out.push(major | 26);
                self.out.extend_from_slice(&(argument as u32).to_be_bytes());
            }
            _ => {
                self.out.push(major | 27);
                self.out.extend_from_slice(&argument.to_be_bytes());
            }
        }
        self
    }
}

/// Additional information and bits of the shortest float that keeps a value; every NaN is the half-precision quiet one.
pub(super) fn shortest_float(value: f64) -> (u8, u64) {
    if value.is_nan() {
        return (25, 0x7e00);
    }
    let half = half::f16::from_f64(value);
    if half.to_f64() == value {
        (25, half.to_bits().into())
    } else if f64::from(value as f32) == value {
        (26, (value as f32).to_bits().into())
    } else {
        (27, value.to_bits())
    }
}
