//! Migrates a database of an earlier schema to the latest.
//!
//! The list only grows: journals in the field were made with the texts of released versions.

use rusqlite::{Connection, Result};

/// The version that this capd writes: as many migrations as there are.
pub(super) const VERSION: u32 = MIGRATIONS.len() as u32;

/// Runs what `from` has not seen yet, in one transaction.
///
/// **Errors:** SQLite's own; then the database is as it was.
pub(super) fn migrate(connection: &Connection, from: u32) -> Result<()> {
    let Some(missing) = MIGRATIONS.get(from as usize..).filter(|missing| !missing.is_empty()) else {
        return Ok(());
    };
    let texts = missing.concat();
    connection
        .execute_batch(&format!("BEGIN IMMEDIATE; {texts} PRAGMA user_version = {VERSION}; COMMIT;"))
        .inspect_err(|_| {
            if !connection.is_autocommit() {
                // The first error is the one to tell; without a rollback the connection is closed with it.
                let _rolled_back = connection.execute_batch("ROLLBACK");
            }
        })
}

/// One text per version.
///
/// Every table is keyed by the growing row number alone, so a group of new rows goes to the end of few pages; an index
/// over ids, which are scattered, would touch a page for each. The ledger and the pending calls, in memory, are that
/// index. `sum` is the row's checksum (`rows.rs`).
pub(super) const MIGRATIONS: &[&str] = &[
    "
CREATE TABLE calls (
    row INTEGER PRIMARY KEY,
    caller TEXT NOT NULL,
    id BLOB NOT NULL,
    body BLOB NOT NULL,
    expires_at_ms INTEGER NOT NULL,
    started_at_ms INTEGER NOT NULL,
    capability TEXT NOT NULL,
    sum INTEGER NOT NULL
) STRICT;
CREATE TABLE results (
    row INTEGER PRIMARY KEY,
    finished_at_ms INTEGER NOT NULL,
    result BLOB NOT NULL,
    sum INTEGER NOT NULL
) STRICT;
CREATE TABLE given (
    row INTEGER PRIMARY KEY,
    id BLOB NOT NULL,
    peer TEXT NOT NULL,
    expires_at_ms INTEGER NOT NULL,
    sum INTEGER NOT NULL
) STRICT;
CREATE TABLE totals (
    row INTEGER PRIMARY KEY CHECK (row = 1),
    commits INTEGER NOT NULL,
    calls INTEGER NOT NULL,
    results INTEGER NOT NULL,
    given INTEGER NOT NULL,
    expired_ms INTEGER NOT NULL,
    sum INTEGER NOT NULL
) STRICT;
",
    "
CREATE TABLE reserved (
    row INTEGER PRIMARY KEY,
    capability TEXT NOT NULL,
    after_ms INTEGER NOT NULL,
    until_ms INTEGER NOT NULL,
    peer TEXT NOT NULL,
    expires_at_ms INTEGER NOT NULL,
    sum INTEGER NOT NULL
) STRICT;
ALTER TABLE totals ADD COLUMN reserved INTEGER NOT NULL DEFAULT 0;
",
    "
ALTER TABLE totals ADD COLUMN journal BLOB;
ALTER TABLE given ADD COLUMN journal BLOB;
ALTER TABLE reserved RENAME COLUMN peer TO peers;
ALTER TABLE reserved ADD COLUMN journals BLOB NOT NULL DEFAULT x'';
",
    "
CREATE TABLE keys (
    row INTEGER PRIMARY KEY,
    key BLOB NOT NULL,
    digest BLOB NOT NULL,
    id BLOB NOT NULL,
    terms BLOB NOT NULL,
    expires_at_ms INTEGER NOT NULL,
    sum INTEGER NOT NULL
) STRICT;
CREATE TABLE answers (
    row INTEGER PRIMARY KEY,
    answer BLOB NOT NULL,
    sum INTEGER NOT NULL
) STRICT;
ALTER TABLE totals ADD COLUMN keys INTEGER NOT NULL DEFAULT 0;
ALTER TABLE totals ADD COLUMN answers INTEGER NOT NULL DEFAULT 0;
",
    "
CREATE TABLE released (
    row INTEGER PRIMARY KEY,
    caller TEXT NOT NULL,
    id BLOB NOT NULL,
    expires_at_ms INTEGER NOT NULL,
    sum INTEGER NOT NULL
) STRICT;
ALTER TABLE totals ADD COLUMN released INTEGER NOT NULL DEFAULT 0;
ALTER TABLE given ADD COLUMN released_by TEXT;
",
];

#[cfg(test)]
mod tests {
    use sha2::{Digest, Sha256};

    use super::*;

    /// A line for each text: its SHA-256. Lines are added, never edited.
    const PINNED: &[&str] = &[
        "5fafa6a3051b87ede3afa52735fb863a9bacba2d2c0f2eeb2f6887df3050d208",
        "6036d24959f6e90daab6fa78ac293bffe3ebeffb16996a3cdab92f8c5da733ad",
        "284e60b3a0361773d1e5fa71f5c9997fa851c8644a53bd73537f52dd54db87ce",
        "b3bfa96489a5e449b33b3050cfa4470f581cbd5edda0f97178518d520ce27576",
        "779db4737e93c4ea3debc45c8382f8cf31f75519b38e85a6186bb8b576bd8afa",
    ];

    #[test]
    fn texts_that_journals_were_made_with_are_never_edited() {
        let found: Vec<String> = MIGRATIONS
            .iter()
            .map(|text| Sha256::digest(text).iter().map(|byte| format!("{byte:02x}")).collect())
            .collect();
        assert_eq!(found, PINNED, "a migration may be added at the end, not edited");
    }

    #[test]
    fn each_version_leads_to_the_latest() {
        for from in 0..=VERSION {
            let connection = Connection::open_in_memory().unwrap();
            for text in &MIGRATIONS[..from as usize] {
                connection.execute_batch(text).unwrap();
            }
            migrate(&connection, from).unwrap();
            let tables = connection.query_row("SELECT count(*) FROM sqlite_schema", [], |row| row.get(0));
            assert_eq!(tables, Ok(8));
            assert!(connection.is_autocommit());
        }
    }

    #[test]
    fn a_migration_that_fails_leaves_what_was_there() {
        let connection = Connection::open_in_memory().unwrap();
        connection.execute_batch("CREATE TABLE given (other TEXT)").unwrap();
        migrate(&connection, 0).unwrap_err();
        assert!(connection.is_autocommit());
        let tables = connection.query_row("SELECT count(*) FROM sqlite_schema", [], |row| row.get(0));
        assert_eq!(tables, Ok(1));
    }
}
