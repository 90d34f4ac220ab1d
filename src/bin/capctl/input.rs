//! Reads a file's bytes; hexadecimal text counts as the bytes it encodes.

use std::io::Read as _;
use std::path::Path;

use crate::failure::Failure;
use crate::hex;

/// The bytes of a file, or of stdin where it is called `-`.
///
/// **Errors:** usage, when it cannot be read, or is empty.
pub(crate) fn bytes(file: &Path) -> Result<Vec<u8>, Failure> {
    let (source, bytes) = if file == Path::new("-") {
        let mut bytes = Vec::new();
        std::io::stdin().lock().read_to_end(&mut bytes)?;
        ("stdin".to_owned(), bytes)
    } else {
        let name = file.display().to_string();
        let bytes = std::fs::read(file).map_err(|error| Failure::usage(format!("{name}: {error}")))?;
        (name, bytes)
    };
    if bytes.is_empty() {
        return Err(Failure::usage(format!("{source}: empty")));
    }
    // Frames begin with a length whose first byte is no hexadecimal digit, envelopes with one above ASCII.
    let is_text =
        bytes.iter().all(|byte| byte.is_ascii_hexdigit() || byte.is_ascii_whitespace() || *byte == b':');
    match std::str::from_utf8(&bytes) {
        Ok(text) if is_text => {
            hex::decode(text).map_err(|wrong| Failure::usage(format!("{source}: {wrong}")))
        }
        _ => Ok(bytes),
    }
}
