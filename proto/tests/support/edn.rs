//! Diagnostic notation (RFC 8949 8, RFC 8610 appendix G) in, CBOR in shortest form out.
//!
//! Enough of the notation for test data: numbers in all bases, bignums, texts, byte strings, containers, tags, simple
//! values, comments. Encoding indicators (`_`, `_1`) are understood for strings and containers of indefinite length only.

#![allow(dead_code, reason = "each test target that includes this file uses its part of it")]

use capd_proto::cbor::Writer;

/// One item; panics where the text is no diagnostic notation, as a test's data is the test's business.
pub(crate) fn edn(text: &str) -> Vec<u8> {
    try_edn(text).unwrap_or_else(|| panic!("no diagnostic notation: {text}"))
}

/// One item; `None` where the text is no diagnostic notation, or only a comment.
pub(crate) fn try_edn(text: &str) -> Option<Vec<u8>> {
    let mut parser = Parser { rest: text };
    let mut out = Vec::new();
    parser.item(&mut out)?;
    parser.blank();
    parser.rest.is_empty().then_some(out)
}

struct Parser<'t> {
    rest: &'t str,
}

impl<'t> Parser<'t> {
    fn blank(&mut self) {
        loop {
            self.rest = self.rest.trim_start();
            if let Some(rest) = self.rest.strip_prefix('/') {
                self.rest = rest.split_once('/').map_or("", |(_, rest)| rest);
            } else if let Some(rest) = self.rest.strip_prefix('#') {
                self.rest = rest.split_once('\n').map_or("", |(_, rest)| rest);
            } else {
                return;
            }
        }
    }

    fn take(&mut self, prefix: &str) -> bool {
        match self.rest.strip_prefix(prefix) {
            Some(rest) => {
                self.rest = rest;
                true
            }
            None => false,
        }
    }

    fn item(&mut self, out: &mut Vec<u8>) -> Option<()> {
        self.blank();
        match self.rest.chars().next()? {
            '"' => {
                let text = self.quoted('"')?;
                Writer::new(out).text(std::str::from_utf8(&text).ok()?);
            }
            '\'' => {
                let bytes = self.quoted('\'')?;
                Writer::new(out).bytes(&bytes);
            }
            '[' => self.container(out, '[')?,
            '{' => self.container(out, '{')?,
            '(' => self.chunks(out)?,
            c if c.is_ascii_digit() || matches!(c, '-' | '+') => self.number(out)?,
            _ => self.word(out)?,
        }
        Some(())
    }

    fn container(&mut self, out: &mut Vec<u8>, open: char) -> Option<()> {
        let map = open == '{';
        self.rest = &self.rest[1..];
        let indefinite = self.take("_ ");
        let mut items = Vec::new();
        let mut count = 0;
        loop {
            self.blank();
            if self.take(if map { "}" } else { "]" }) {
                break;
            }
            self.item(&mut items)?;
            if map {
                self.blank();
                self.take(":").then_some(())?;
                self.item(&mut items)?;
            }
            count += 1;
            self.blank();
            self.take(",");
        }
        match (indefinite, map) {
            (true, _) => out.push(if map { 0xbf } else { 0x9f }),
            (false, true) => _ = Writer::new(out).map(count),
            (false, false) => _ = Writer::new(out).array(count),
        }
        out.extend(items);
        if indefinite {
            out.push(0xff);
        }
        Some(())
    }

    /// `(_ "a", "b")`
    fn chunks(&mut self, out: &mut Vec<u8>) -> Option<()> {
        self.take("(_ ").then_some(())?;
        let mut items = Vec::new();
        loop {
            self.blank();
            if self.take(")") {
                break;
            }
            self.item(&mut items)?;
            self.blank();
            self.take(",");
        }
        out.push(items.first()? & 0xe0 | 31);
        out.extend(items);
        out.push(0xff);
        Some(())
    }

    fn quoted(&mut self, quote: char) -> Option<Vec<u8>> {
        let mut chars = self.rest[1..].char_indices();
        let mut out = String::new();
        while let Some((at, c)) = chars.next() {
            match c {
                c if c == quote => {
                    self.rest = &self.rest[1 + at + c.len_utf8()..];
                    return Some(out.into_bytes());
                }
                '\\' => match chars.next()?.1 {
                    'n' => out.push('\n'),
                    'r' => out.push('\r'),
                    't' => out.push('\t'),
                    'b' => out.push('\u{8}'),
                    'f' => out.push('\u{c}'),
                    'u' => {
                        let hex: String = chars.by_ref().take(4).map(|(_, c)| c).collect();
                        out.push(char::from_u32(u32::from_str_radix(&hex, 16).ok()?)?);
                    }
                    other => out.push(other),
                },
                other => out.push(other),
            }
        }
        None
    }

    fn number(&mut self, out: &mut Vec<u8>) -> Option<()> {
        let end = self
            .rest
            .find(|c: char| !c.is_ascii_alphanumeric() && !matches!(c, '.' | '-' | '+'))
            .unwrap_or(self.rest.len());
        let (token, rest) = self.rest.split_at(end);
        self.rest = rest;
        let (negative, digits) = token.strip_prefix('-').map_or((false, token), |digits| (true, digits));
        if digits == "Infinity" {
            Writer::new(out).float(if negative { f64::NEG_INFINITY } else { f64::INFINITY });
            return Some(());
        }
        let radix = match digits.get(..2) {
            Some("0x") => 16,
            Some("0o") => 8,
            Some("0b") => 2,
            _ => 10,
        };
        if radix == 10 && digits.contains(['.', 'e', 'E']) {
            Writer::new(out).float(token.parse().ok()?);
            return Some(());
        }
        let mut magnitude = Magnitude::parse(if radix == 10 { digits } else { &digits[2..] }, radix)?;
        if self.rest.starts_with('(') && !negative {
            Writer::new(out).tag(u64::from_be_bytes((magnitude.0.len() <= 8).then(|| pad(magnitude.0))?));
            self.rest = &self.rest[1..];
            self.item(out)?;
            self.blank();
            return self.take(")").then_some(());
        }
        if negative {
            magnitude.decrement();
        }
        if magnitude.0.len() <= 8 {
            let value = i128::from(u64::from_be_bytes(pad(magnitude.0)));
            Writer::new(out).int(if negative { -1 - value } else { value });
        } else {
            Writer::new(out).tag(if negative { 3 } else { 2 }).bytes(&magnitude.0);
        }
        Some(())
    }

    fn word(&mut self, out: &mut Vec<u8>) -> Option<()> {
        let end = self.rest.find(|c: char| !c.is_ascii_alphanumeric()).unwrap_or(self.rest.len());
        let (word, rest) = self.rest.split_at(end);
        self.rest = rest;
        let mut writer = Writer::new(out);
        match word {
            "true" => writer.bool(true),
            "false" => writer.bool(false),
            "null" => writer.null(),
            "undefined" => writer.undefined(),
            "NaN" => writer.float(f64::NAN),
            "Infinity" => writer.float(f64::INFINITY),
            "simple" => {
                let (number, rest) = self.rest.strip_prefix('(')?.split_once(')')?;
                self.rest = rest;
                writer.simple(number.parse().ok()?)
            }
            "h" => writer.bytes(&base16(&self.quoted('\'')?)?),
            "b64" => writer.bytes(&base64(&self.quoted('\'')?)?),
            _ => return None,
        };
        Some(())
    }
}

fn pad(bytes: Vec<u8>) -> [u8; 8] {
    let mut out = [0; 8];
    out[8 - bytes.len()..].copy_from_slice(&bytes);
    out
}

/// Big-endian bytes without leading zeros.
struct Magnitude(Vec<u8>);

impl Magnitude {
    fn parse(digits: &str, radix: u32) -> Option<Magnitude> {
        let mut bytes: Vec<u8> = Vec::new();
        for digit in digits.chars() {
            let mut carry = digit.to_digit(radix)?;
            for byte in bytes.iter_mut().rev() {
                let value = u32::from(*byte) * radix + carry;
                *byte = value as u8;
                carry = value >> 8;
            }
            if carry > 0 {
                bytes.insert(0, carry as u8);
            }
        }
        (!digits.is_empty()).then_some(Magnitude(bytes))
    }

    fn decrement(&mut self) {
        for byte in self.0.iter_mut().rev() {
            let (value, borrowed) = byte.overflowing_sub(1);
            *byte = value;
            if !borrowed {
                break;
            }
        }
        let zeros = self.0.iter().take_while(|byte| **byte == 0).count();
        self.0.drain(..zeros);
    }
}

fn base16(text: &[u8]) -> Option<Vec<u8>> {
    let digits: Option<Vec<u32>> =
        text.iter().filter(|b| !b.is_ascii_whitespace()).map(|b| char::from(*b).to_digit(16)).collect();
    let digits = digits?;
    digits
        .len()
        .is_multiple_of(2)
        .then(|| digits.chunks(2).map(|pair| (pair[0] * 16 + pair[1]) as u8).collect())
}

fn base64(text: &[u8]) -> Option<Vec<u8>> {
    let mut out = Vec::new();
    let (mut bits, mut count) = (0u32, 0);
    for symbol in text.iter().filter(|b| **b != b'=') {
        let value = match symbol {
            b'A'..=b'Z' => symbol - b'A',
            b'a'..=b'z' => symbol - b'a' + 26,
            b'0'..=b'9' => symbol - b'0' + 52,
            b'+' | b'-' => 62,
            b'/' | b'_' => 63,
            _ => return None,
        };
        bits = bits << 6 | u32::from(value);
        count += 6;
        if count >= 8 {
            count -= 8;
            out.push((bits >> count) as u8);
        }
    }
    Some(out)
}
