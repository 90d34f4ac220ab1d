//! Compiles a CDDL text into a program, and runs the program over bytes to a verdict (RFC 8610).
//!
//! The `cddl` crate parses the text, rule by rule. The program runs over the received bytes without building a tree. Its cost
//! is linear in the bytes. A body that matches allocates nothing, if no map that needs the general matcher has more
//! than 16 members.
//!
//! Read in this order: `source` normalizes the text for the parser, `compile` turns the syntax tree into the nodes of
//! `program`, `run` matches bytes against them, [`bodies`] is the program of the protocol's own messages.
//!
//! **How this crate reads what RFC 8610 leaves open.** Choices and occurrences are those of a parsing expression
//! grammar: the first alternative that matches is final, and `?`, `*`, `+` and `n*m` match as much as they can. A map's
//! entries match members in any order. An entry whose key fits several members takes one with which the rest still
//! matches. A cut (`:` or `^ =>`) is final for the whole map: if the key fits and the value does not, no later entry
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
    /// The text is not CDDL.
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
    /// The text uses a construct that this compiler does not support.
    #[error("rule `{rule}`: {construct} is not supported")]
    Unsupported {
        /// The rule whose text uses it; empty if it occurs before any rule.
        rule: String,
        /// The construct, as written.
        construct: String,
    },
    /// The text is CDDL, but has no meaning or could never match.
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
    /// What the rule expects there. Never quotes the received bytes.
    pub expected: String,
}

#[cfg(test)]
mod tests;
