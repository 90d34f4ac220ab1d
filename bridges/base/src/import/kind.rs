//! Names what is imported in the words of its protocol.

/// What is imported.
#[derive(Debug, PartialEq, Eq)]
pub struct Kind {
    /// The program that imports, such as `capd-mcp`.
    pub program: &'static str,
    /// One thing that becomes a capability: `tool` or `skill`.
    pub item: &'static str,
    /// Who lists it: `server` or `agent`.
    pub peer: &'static str,
    /// The category of its capabilities.
    pub category: &'static str,
    /// The schema of results that declare none.
    pub result_schema: &'static str,
    /// What a lock file is of.
    pub lock_of: &'static str,
}
