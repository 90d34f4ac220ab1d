//! A CDDL text in, a program out; then a program and bytes in, a verdict out (RFC 8610).
//!
//! The text is parsed by the `cddl` crate and compiled once. The program runs over the received bytes without building
//! a tree: the cost is linear in the bytes, and nothing is allocated for a body that matches and whose maps have at
//! most 16 members where their shape needs the general matcher (a body that fails pays for its error).
//!
//! Read in this order: `source` evens out the text before the parser sees it, `compile` turns the syntax tree into
//! the nodes of `program`, `run` holds them against bytes, [`bodies`] is the program of the protocol's own messages.
//!
//! **What RFC 8610 leaves open, and how it is read here.** Choices and occurrences are those of a parsing expression
//! grammar: the first alternative that matches is taken for good, `?`, `*`, `+` and `n*m` take all they can. A map's
//! entries take members in any order; an entry whose key fits several members takes one with which the rest still
//! matches. A cut (`:` or `^ =>`) is final for the whole map: when the key fits and the value does not, no later entry
//! and no other choice of that map gets the member.

pub mod bodies;
mod compile;
mod program;
mod regexp;
mod run;
mod source;

pub use program::{Program, RuleId};

/// Why a CDDL text was not compiled.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CompileError {
    /// The text is no CDDL.
    #[error("CDDL syntax: {0}")]
    Syntax(String),
    /// A rule, generic parameter or key names something that no rule defines.
    #[error("rule `{rule}`: `{name}` is not defined")]
    Undefined {
        /// The rule whose text names it.
        rule: String,
        /// The undefined name.
        name: String,
    },
    /// The text uses a construct that this compiler does not carry out.
    #[error("rule `{rule}`: {construct} is not supported")]
    Unsupported {
        /// The rule whose text uses it; empty when it was met before rules were told apart.
        rule: String,
        /// The construct, as written.
        construct: String,
    },
    /// The text is CDDL but means nothing, or could never match.
    #[error("rule `{rule}`: {reason}")]
    Invalid {
        /// The rule that holds the mistake.
        rule: String,
        /// What is wrong with it.
        reason: String,
    },
}

/// Where and why an item does not match a rule.
///
/// **Errors:** in a message body this is code 1001 (PROTOCOL 7).
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{rule}: at \"{path}\" (byte {offset}): expected {expected}")]
pub struct Mismatch {
    /// The innermost named rule that was being matched.
    pub rule: String,
    /// **Shape:** a JSON pointer (RFC 6901) into the item; empty for the item itself.
    pub path: String,
    /// **Units:** bytes from the start of the item.
    pub offset: usize,
    /// What the rule wants there. Never quotes the received bytes.
    pub expected: String,
}

#[cfg(test)]
mod tests;
