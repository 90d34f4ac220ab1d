//! Text in, the checked name of a cell out.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use thiserror::Error;

use crate::limits::CELL_BYTES_MAX;

/// The name of a cell: the sidecars of one registry, under one authority.
///
/// **Shape:** 1 to 32 of `[a-z0-9-]`. **Source:** FLEET 5.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Cell(Arc<str>);

impl Cell {
    /// The name's text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for Cell {
    type Err = CellError;

    fn from_str(text: &str) -> Result<Self, CellError> {
        if text.is_empty() || text.len() > CELL_BYTES_MAX {
            return Err(CellError::Length(text.len()));
        }
        match text.bytes().position(|byte| !matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'-')) {
            Some(offset) => Err(CellError::Character { offset }),
            None => Ok(Self(text.into())),
        }
    }
}

impl fmt::Display for Cell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for Cell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Cell({})", self.0)
    }
}

/// Text that is no name of a cell.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum CellError {
    /// Empty or too long.
    #[error("a cell's name has 1 to {CELL_BYTES_MAX} bytes, not {0}")]
    Length(usize),
    /// A character that may not stand in it.
    #[error("a cell's name has lower-case letters, digits and '-' only; see byte {offset}")]
    Character {
        /// Offset of the character, in bytes.
        offset: usize,
    },
}
