//! Decides whether every value of one schema is a value of another: a proof, a value that refutes it, or what could not
//! be decided.
//!
//! In reading order: `compiled` takes a document, `read` and `read_parts` turn it into the nodes of `node`. The proof
//! asks whether a value of `a` is not a value of `b`. `solve` asks this of any set of nodes, each wanted or unwanted,
//! one kind of value at a time. `branch` splits how they are joined. `numbers`, `strings`, `objects` and `arrays`
//! decide the rest; their members and items ask the same question of smaller values. A set that contains itself has no
//! value of its own, since every value ends.
//!
//! `Proven` rests on those decisions alone. `Refuted` rests on none of them: the validators of both schemas have judged
//! its witness.
//!
//! **Modelled**, of draft-07 and 2020-12:
//! - `type`, `enum`, `const`, boolean schemas, `allOf`, `anyOf`, `oneOf`, `not`, `if`, `then`, `else`;
//! - `$ref` to the document or by JSON pointer into it, including references that lead back into themselves;
//! - `minimum`, `maximum`, `exclusiveMinimum`, `exclusiveMaximum`, `multipleOf`, with integers among the numbers;
//! - `minLength`, `maxLength`; `pattern`, as inclusion of regular languages; every `format` that is asserted, by
//!   automata that lie within and around it;
//! - `items` with one schema or a tuple, `prefixItems`, `additionalItems`, `minItems`, `maxItems`, `uniqueItems`,
//!   `contains`, `minContains`, `maxContains`;
//! - `properties`, `required`, `additionalProperties`, `patternProperties`, `propertyNames`, `minProperties`,
//!   `maxProperties`, `dependencies`, `dependentRequired`, `dependentSchemas`.
//!
//! **Not modelled**, and `Unknown` if a verdict depends on it: `unevaluatedProperties`, `unevaluatedItems`,
//! `$dynamicRef`, references by anchor or into a schema with an `$id` of its own, the content keywords of draft-07,
//! patterns with word boundaries or more than 2,048 states, a `multipleOf` with a fraction of more than 15 digits or
//! above 2^53. Proofs that exceed their steps are `Unknown`, too. Other keywords assert nothing, as in the validator.

mod accept;
mod arrays;
mod branch;
mod budget;
mod compiled;
mod format;
mod items;
mod literal;
mod masks;
mod members;
mod node;
mod number;
mod numbers;
mod objects;
mod pattern;
mod read;
mod read_parts;
mod same;
mod solve;
mod strings;
mod verdict;
mod walk;

pub use budget::Budget;
pub use compiled::Compiled;
pub use verdict::{Verdict, is_subtype, is_subtype_within};
