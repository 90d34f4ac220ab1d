//! Reads lines of bounded length from a byte stream.

use std::io;

use tokio::io::{AsyncBufRead, AsyncBufReadExt as _};

/// One line of a stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Line {
    /// Its bytes, without its end.
    Whole(Vec<u8>),
    /// It was longer than allowed, and was skipped to its end. **Units:** bytes.
    TooLong(usize),
}

/// The next line; none at the end of the stream. A last line without an end counts.
///
/// Cancelling this future loses what it has read of a line.
///
/// **Errors:** those of the stream.
pub async fn next(stream: &mut (impl AsyncBufRead + Unpin), bytes_max: usize) -> io::Result<Option<Line>> {
    let (mut line, mut length, mut has_begun) = (Vec::new(), 0, false);
    loop {
        let read = stream.fill_buf().await?;
        if read.is_empty() {
            return Ok(has_begun.then(|| finish(line, length, bytes_max)));
        }
        has_begun = true;
        let end = read.iter().position(|byte| *byte == b'\n');
        let part = &read[..end.unwrap_or(read.len())];
        length += part.len();
        if length <= bytes_max {
            line.extend_from_slice(part);
        } else {
            line.clear();
        }
        let used = part.len() + usize::from(end.is_some());
        stream.consume(used);
        if end.is_some() {
            return Ok(Some(finish(line, length, bytes_max)));
        }
    }
}

fn finish(mut line: Vec<u8>, length: usize, bytes_max: usize) -> Line {
    if length > bytes_max {
        return Line::TooLong(length);
    }
    if line.last() == Some(&b'\r') {
        line.pop();
    }
    Line::Whole(line)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_line_that_is_too_long_is_skipped_and_the_next_one_read() {
        let mut stream = tokio::io::BufReader::with_capacity(3, &b"ab\r\n0123456789\n\nlast"[..]);
        let mut lines = Vec::new();
        while let Some(line) = next(&mut stream, 4).await.unwrap() {
            lines.push(line);
        }
        let whole = |text: &str| Line::Whole(text.as_bytes().to_vec());
        assert_eq!(lines, [whole("ab"), Line::TooLong(10), whole(""), whole("last")]);
    }
}
