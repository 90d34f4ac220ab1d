//! Compiles a schema document: its normal form, and the validator that judges witnesses.

use super::node::{Form, Id, Node};
use super::pattern::Automaton;
use super::read::Reader;
use crate::validator::{CompileError, Validator};

/// A schema, read once for comparisons with others.
#[derive(Debug)]
pub struct Compiled {
    pub(super) nodes: Vec<Node>,
    pub(super) root: Id,
    pub(super) origins: Vec<Origin>,
    pub(super) patterns: Vec<Pattern>,
    pub(super) validator: Validator,
    /// SHA-256 of the document with its white space and the order of its members taken away.
    pub(super) identity: [u8; 32],
}

/// One step of the way to a place in the document.
#[derive(Debug)]
pub(super) struct Origin {
    pub(super) parent: u32,
    pub(super) token: Box<str>,
}

/// A regular expression of a schema.
#[derive(Debug)]
pub(super) struct Pattern {
    pub(super) source: Box<str>,
    pub(super) automaton: Automaton,
}

impl Compiled {
    /// Compiles a document of draft-07 or 2020-12; without `$schema` it is read as 2020-12.
    ///
    /// Formats are asserted. Constructs that the proof does not model are recorded, and are not an error here.
    ///
    /// **Errors:** as [`Validator::compile`].
    pub fn compile(document: &[u8]) -> Result<Self, CompileError> {
        let (validator, schema, draft) = Validator::compile_and_read(document)?;
        Ok(Reader::new(&schema, draft).read(validator))
    }

    /// States of the automata of all patterns together, a measure of the compile time.
    pub fn pattern_states(&self) -> usize {
        self.patterns.iter().map(|pattern| pattern.automaton.len()).sum()
    }

    pub(super) fn node(&self, id: Id) -> &Node {
        &self.nodes[id as usize]
    }

    /// The node that `id` says the same as, references followed.
    pub(super) fn target(&self, mut id: Id) -> Id {
        // A circle of references alone is opaque, so this ends.
        while let Form::Same(to) = self.node(id).form {
            id = to;
        }
        id
    }

    /// JSON pointer to a place in the document, `/` for the document itself.
    pub(super) fn pointer(&self, origin: u32) -> String {
        let mut tokens = Vec::new();
        let mut at = origin;
        while at != 0 {
            let step = &self.origins[at as usize];
            tokens.push(&*step.token);
            at = step.parent;
        }
        let mut pointer = String::new();
        for token in tokens.iter().rev() {
            capd_proto::cbor::json::push_token(&mut pointer, token);
        }
        if pointer.is_empty() { "/".to_owned() } else { pointer }
    }
}
