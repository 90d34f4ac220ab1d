//! Changes a configuration file in place: a peer or a grant in; the same file with its comments and order, out.
//!
//! The changed text is read as a start would read it before it replaces the file, so no edit leaves a file with a mistake.

use std::fs;
use std::io::{self, Write as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use toml_edit::{Array, ArrayOfTables, DocumentMut, Item, Table, value};

use super::{Config, Mistakes, source};

/// A configuration file that is being changed; nothing is written before [`File::save`].
#[derive(Debug)]
pub struct File {
    path: PathBuf,
    document: DocumentMut,
}

/// A peer as it is written to the file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewPeer {
    /// What this owner calls it.
    pub name: String,
    /// Its DID.
    pub did: String,
    /// Where it is dialled; empty for a peer that only connects to this side.
    pub addresses: Vec<String>,
    /// What this agent may call there.
    pub serves: Vec<String>,
}

/// A grant as it is written to the file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewGrant {
    /// Who: a DID, `group:NAME` or `*`.
    pub caller: String,
    /// The peer's name, for a comment.
    pub name: Option<String>,
    /// What it may call: a name, `NAMESPACE.*` or `*`.
    pub capability: String,
    /// Permissions that the grant brings.
    pub permissions: Vec<String>,
}

/// What an edit did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Edit {
    /// The file changes.
    Changed,
    /// The file says so already.
    Unchanged,
}

/// Why a file cannot be changed; it is as it was.
#[derive(Debug, thiserror::Error)]
pub enum EditError {
    /// The file cannot be read, or has mistakes.
    #[error("{0}")]
    Mistakes(Mistakes),
    /// The file is no TOML.
    #[error("{}: {error}", path.display())]
    Toml {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        error: Box<toml_edit::TomlError>,
    },
    /// The tables are written as a list in one line.
    #[error("{}: {key} is written as a list; write it as [[{key}]] tables, which can be changed in place", path.display())]
    Inline {
        /// The file.
        path: PathBuf,
        /// The key.
        key: &'static str,
    },
    /// The file cannot be written.
    #[error("{}: {error}", path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// Why.
        error: io::Error,
    },
}

impl File {
    /// Reads the file. **Errors:** it cannot be read, or is no TOML.
    pub fn open(path: &Path) -> Result<Self, EditError> {
        let text = source::read(path).map_err(|mistake| EditError::Mistakes(Mistakes(vec![mistake])))?;
        let document = text
            .parse()
            .map_err(|error| EditError::Toml { path: path.to_owned(), error: Box::new(error) })?;
        Ok(Self { path: path.to_owned(), document })
    }

    /// Writes a peer: a new table at the end, or other values in the table that has its DID.
    pub fn put_peer(&mut self, peer: &NewPeer) -> Result<Edit, EditError> {
        let before = self.document.to_string();
        let tables = self.tables(PEERS)?;
        let known = tables.iter().position(|table| text(table, "did") == Some(&peer.did));
        let mut added = Table::new();
        let table = match known.and_then(|at| tables.get_mut(at)) {
            Some(table) => table,
            None => &mut added,
        };
        set(table, "name", peer.name.as_str());
        set(table, "did", peer.did.as_str());
        if peer.addresses.is_empty() {
            table.remove("addresses");
        } else {
            set(table, "addresses", list(&peer.addresses));
        }
        set(table, "serves", list(&peer.serves));
        if known.is_none() {
            self.push(PEERS, added)?;
        }
        Ok(self.edit(&before))
    }

    /// Lets a caller call a capability: one more entry in a table that is for this caller alone, or a new table.
    pub fn grant(&mut self, grant: &NewGrant) -> Result<Edit, EditError> {
        let before = self.document.to_string();
        let tables = self.tables(ALLOW)?;
        let fits = |table: &Table| {
            is_for(table, &grant.caller)
                && !table.contains_key("actions")
                && texts(table, "permissions") == grant.permissions
        };
        let known = tables.iter().position(fits);
        if let Some(at) = known {
            let table =
                tables.get_mut(at).filter(|table| !texts(table, "capabilities").contains(&grant.capability));
            if let Some(list) = table.and_then(|table| table.get_mut("capabilities")?.as_array_mut()) {
                list.push(&grant.capability);
            }
            return Ok(self.edit(&before));
        }
        let mut table = Table::new();
        table["callers"] = value(list(std::slice::from_ref(&grant.caller)));
        if let (Some(name), Some(callers)) = (&grant.name, table["callers"].as_value_mut()) {
            callers.decor_mut().set_suffix(format!("  # {name}"));
        }
        table["capabilities"] = value(list(std::slice::from_ref(&grant.capability)));
        if !grant.permissions.is_empty() {
            table["permissions"] = value(list(&grant.permissions));
        }
        self.push(ALLOW, table)?;
        Ok(self.edit(&before))
    }

    /// Takes a capability out of every table that is for this caller alone; a table that grants nothing more goes.
    pub fn revoke(&mut self, caller: &str, capability: &str) -> Result<Edit, EditError> {
        let before = self.document.to_string();
        let mut comments = String::new();
        self.tables(ALLOW)?.retain(|table| {
            let is_kept = !is_for(table, caller)
                || texts(table, "capabilities").iter().any(|granted| granted != capability);
            if !is_kept {
                comments += comment_above(table);
            }
            is_kept
        });
        if !comments.is_empty() {
            let end = self.document.trailing().as_str().unwrap_or_default().to_owned();
            self.document.set_trailing(comments + &end);
        }
        for table in self.tables(ALLOW)?.iter_mut().filter(|table| is_for(table, caller)) {
            if let Some(list) = table.get_mut("capabilities").and_then(Item::as_array_mut) {
                list.retain(|item| item.as_str() != Some(capability));
            }
        }
        if self.tables(ALLOW)?.is_empty() {
            self.document.remove(ALLOW);
        }
        Ok(self.edit(&before))
    }

    /// The text as it would be written.
    pub fn text(&self) -> String {
        self.document.to_string()
    }

    /// Checks the text as a start would, and puts it in place of the file in one step.
    ///
    /// **Errors:** the text has mistakes, or the file cannot be written; it is as it was then.
    pub fn save(&self, environment: &[(String, String)]) -> Result<Config, EditError> {
        let text = self.text();
        let config = Config::layer(Some((&self.path, &text)), environment, &[]);
        let config = config.map_err(EditError::Mistakes)?;
        replace(&self.path, text.as_bytes())
            .map_err(|error| EditError::Write { path: self.path.clone(), error })?;
        Ok(config)
    }

    fn edit(&self, before: &str) -> Edit {
        if self.document.to_string() == before { Edit::Unchanged } else { Edit::Changed }
    }

    /// The tables of a key, none if it is not there.
    fn tables(&mut self, key: &'static str) -> Result<&mut ArrayOfTables, EditError> {
        let inline = || EditError::Inline { path: self.path.clone(), key };
        let empty = || Item::ArrayOfTables(ArrayOfTables::new());
        if self.document.get(key).is_some_and(|item| !item.is_array_of_tables()) {
            return Err(inline());
        }
        let tables = self.document.entry(key).or_insert_with(empty).as_array_of_tables_mut();
        tables.ok_or_else(|| EditError::Inline { path: self.path.clone(), key })
    }

    /// Adds a table behind those of its key, or at the end of the file if it is the first.
    fn push(&mut self, key: &'static str, mut table: Table) -> Result<(), EditError> {
        if self.tables(key)?.is_empty() {
            // What ends the file stays in front.
            let end = self.document.trailing().as_str().unwrap_or_default().to_owned();
            let gap = if end.is_empty() || end.ends_with('\n') { "\n" } else { "\n\n" };
            table.decor_mut().set_prefix(format!("{end}{gap}"));
            table.set_position(Some(isize::MAX));
            self.document.set_trailing("");
        } else {
            table.decor_mut().set_prefix("\n");
        }
        self.tables(key)?.push(table);
        Ok(())
    }
}

/// Whether a grant is for this caller and nobody else.
fn is_for(table: &Table, caller: &str) -> bool {
    texts(table, "callers") == [caller]
}

/// The comment above a table, without the blank line in front of the table; empty if there is none.
fn comment_above(table: &Table) -> &str {
    let above = table.decor().prefix().and_then(|prefix| prefix.as_str()).unwrap_or_default();
    if above.contains('#') { above.strip_suffix('\n').unwrap_or(above) } else { "" }
}

fn text<'a>(table: &'a Table, key: &str) -> Option<&'a str> {
    table.get(key)?.as_str()
}

fn texts(table: &Table, key: &str) -> Vec<String> {
    let items = table.get(key).and_then(Item::as_array).into_iter().flatten();
    items.filter_map(|item| item.as_str().map(str::to_owned)).collect()
}

/// Sets a key and keeps the comment beside its value.
fn set(table: &mut Table, key: &str, new: impl Into<toml_edit::Value>) {
    let mut new = new.into();
    if let Some(known) = table.get(key).and_then(Item::as_value) {
        *new.decor_mut() = known.decor().clone();
    }
    table[key] = Item::Value(new);
}

fn list(texts: &[String]) -> Array {
    texts.iter().collect()
}

/// Puts `bytes` in place of a file, which keeps its mode and owner; whoever reads it sees the old or the new one.
fn replace(path: &Path, bytes: &[u8]) -> io::Result<()> {
    // A link stays a link.
    let path = path.canonicalize()?;
    let former = path.metadata()?;
    let folder = path.parent().unwrap_or(Path::new("."));
    let mut temporary = tempfile_in(folder, &path)?;
    let written = (|| {
        temporary.file.set_permissions(former.permissions())?;
        let new = temporary.file.metadata()?;
        if (new.uid(), new.gid()) != (former.uid(), former.gid()) {
            std::os::unix::fs::fchown(&temporary.file, Some(former.uid()), Some(former.gid()))?;
        }
        temporary.file.write_all(bytes)?;
        temporary.file.sync_all()?;
        fs::rename(&temporary.path, &path)
    })();
    if written.is_err() {
        // The error to report is the first one.
        let _left = fs::remove_file(&temporary.path);
    }
    written?;
    // The new name survives a crash only once the folder is written.
    fs::File::open(folder)?.sync_all()
}

struct Temporary {
    file: fs::File,
    path: PathBuf,
}

/// A new file beside another, for its owner alone.
fn tempfile_in(folder: &Path, beside: &Path) -> io::Result<Temporary> {
    use std::os::unix::fs::OpenOptionsExt as _;
    let name = beside.file_name().unwrap_or_default().to_string_lossy();
    let path = folder.join(format!(".{name}.{}.tmp", std::process::id()));
    let file = fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path)?;
    Ok(Temporary { file, path })
}

const PEERS: &str = "peers";
const ALLOW: &str = "allow";

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    const TEXT: &str = "# the owner's words\n[agent]\nname = \"ann\" # short\n\n# [listen] is off\n\n[log]\nlevel = \"warn\"\n# the end\n";
    const ANN: &str = "did:key:z6MktyTewFWmHLrvbwhGR1iR1X5ov4LbrNKarzahnF8AGz2P";
    const BOB: &str = "did:key:z6MkuEUR9HZQSaP3WynW2zMKvx4pJGS5mTLUQ5tFoEiQpe7z";

    fn home() -> Vec<(String, String)> {
        vec![("HOME".to_owned(), "/home/a".to_owned())]
    }

    fn bob() -> NewPeer {
        NewPeer {
            name: "bob".to_owned(),
            did: BOB.to_owned(),
            addresses: vec!["quic://192.0.2.7:7001".to_owned()],
            serves: vec!["com.bob.*".to_owned()],
        }
    }

    fn grant(capability: &str) -> NewGrant {
        NewGrant {
            caller: BOB.to_owned(),
            name: Some("bob".to_owned()),
            capability: capability.to_owned(),
            permissions: Vec::new(),
        }
    }

    struct Place(tempfile::TempDir);

    impl Place {
        fn with(text: &str) -> Self {
            let dir = tempfile::tempdir().unwrap();
            fs::write(dir.path().join("capd.toml"), text).unwrap();
            Self(dir)
        }

        fn path(&self) -> PathBuf {
            self.0.path().join("capd.toml")
        }

        fn text(&self) -> String {
            fs::read_to_string(self.path()).unwrap()
        }
    }

    #[test]
    fn a_peer_stands_behind_all_that_the_owner_wrote() {
        let place = Place::with(TEXT);
        let mut file = File::open(&place.path()).unwrap();
        assert_eq!(file.put_peer(&bob()).unwrap(), Edit::Changed);
        let config = file.save(&home()).unwrap();
        let added = format!(
            "\n[[peers]]\nname = \"bob\"\ndid = \"{BOB}\"\naddresses = [\"quic://192.0.2.7:7001\"]\nserves = [\"com.bob.*\"]\n"
        );
        assert_eq!(place.text(), format!("{TEXT}{added}"));
        assert_eq!(config.peers[0].name.as_deref(), Some("bob"));
    }

    #[test]
    fn a_peer_that_is_there_gets_other_values_and_keeps_its_place_and_comments() {
        let text = format!(
            "[[peers]] # ours\ndid = \"{BOB}\" # mine\nserves = [\"org.a.b\"]\n\n[[allow]]\ncallers = [\"{BOB}\"]\ncapabilities = [\"org.x.y\"]\n\n[[peers]]\ndid = \"{ANN}\"\n"
        );
        let place = Place::with(&text);
        let mut file = File::open(&place.path()).unwrap();
        file.put_peer(&NewPeer { addresses: Vec::new(), ..bob() }).unwrap();
        let config = file.save(&home()).unwrap();
        assert!(
            place.text().contains("[[peers]] # ours") && place.text().contains("# mine"),
            "{}",
            place.text()
        );
        let names: Vec<_> =
            config.peers.iter().map(|peer| (peer.did.as_str(), peer.name.as_deref())).collect();
        assert_eq!(names, [(BOB, Some("bob")), (ANN, None)]);
        assert_eq!(config.peers[0].serves[0].to_string(), "com.bob.*");
        let mut file = File::open(&place.path()).unwrap();
        assert_eq!(file.put_peer(&NewPeer { addresses: Vec::new(), ..bob() }).unwrap(), Edit::Unchanged);
    }

    #[test]
    fn grants_of_one_caller_share_a_table_and_go_one_by_one() {
        let place = Place::with(TEXT);
        let edit = |change: &dyn Fn(&mut File) -> Edit| {
            let mut file = File::open(&place.path()).unwrap();
            let edit = change(&mut file);
            let config = file.save(&home()).unwrap();
            let granted = config.allow.iter().flat_map(|grant| &grant.capabilities);
            (edit, granted.map(ToString::to_string).collect::<Vec<_>>())
        };
        let granted = |capability: &str| edit(&|file| file.grant(&grant(capability)).unwrap());
        let revoked = |capability: &str| edit(&|file| file.revoke(BOB, capability).unwrap());
        assert_eq!(granted("org.a.b"), (Edit::Changed, vec!["org.a.b".to_owned()]));
        assert!(place.text().contains(&format!("callers = [\"{BOB}\"]  # bob\n")), "{}", place.text());
        assert_eq!(granted("org.c.*"), (Edit::Changed, vec!["org.a.b".to_owned(), "org.c.*".to_owned()]));
        assert_eq!(granted("org.a.b").0, Edit::Unchanged);
        assert_eq!(place.text().matches("[[allow]]").count(), 1);
        let with = NewGrant { permissions: vec!["db:read".to_owned()], ..grant("org.e.f") };
        edit(&|file| file.grant(&with).unwrap());
        assert_eq!(place.text().matches("[[allow]]").count(), 2, "other permissions, another table");
        assert_eq!(revoked("org.a.b"), (Edit::Changed, vec!["org.c.*".to_owned(), "org.e.f".to_owned()]));
        assert_eq!(revoked("org.a.b").0, Edit::Unchanged);
        revoked("org.c.*");
        assert_eq!(revoked("org.e.f"), (Edit::Changed, Vec::new()));
        assert_eq!(place.text(), TEXT, "all that is left is the owner's");
    }

    #[test]
    fn a_grant_for_several_callers_is_left_alone() {
        let text = format!("[[allow]]\ncallers = [\"{BOB}\", \"{ANN}\"]\ncapabilities = [\"org.a.b\"]\n");
        let place = Place::with(&text);
        let mut file = File::open(&place.path()).unwrap();
        assert_eq!(file.revoke(BOB, "org.a.b").unwrap(), Edit::Unchanged);
        assert_eq!(file.text(), text);
    }

    #[test]
    fn a_text_with_a_mistake_never_replaces_the_file() {
        let place = Place::with(TEXT);
        let mut file = File::open(&place.path()).unwrap();
        file.put_peer(&NewPeer { serves: vec!["not a name".to_owned()], ..bob() }).unwrap();
        let error = file.save(&home()).unwrap_err();
        assert!(error.to_string().contains("not a name"), "{error}");
        assert_eq!(place.text(), TEXT);
        for (text, said) in
            [("peers = []\n", "[[peers]] tables"), ("x = = 1\n", "capd.toml"), ("[[allow]]\n", "callers")]
        {
            let place = Place::with(text);
            let outcome = File::open(&place.path()).and_then(|mut file| {
                file.put_peer(&bob())?;
                file.save(&home())
            });
            let error = outcome.unwrap_err();
            assert!(error.to_string().contains(said), "{text:?}: {error}");
            assert_eq!(place.text(), text);
        }
    }

    #[test]
    fn the_file_keeps_its_mode_and_a_link_stays_one() {
        let place = Place::with(TEXT);
        fs::set_permissions(place.path(), fs::Permissions::from_mode(0o640)).unwrap();
        let link = place.0.path().join("link.toml");
        std::os::unix::fs::symlink("capd.toml", &link).unwrap();
        let mut file = File::open(&link).unwrap();
        file.put_peer(&bob()).unwrap();
        file.save(&home()).unwrap();
        assert!(link.symlink_metadata().unwrap().is_symlink());
        assert!(place.text().contains("bob"));
        assert_eq!(fs::metadata(place.path()).unwrap().permissions().mode() & 0o777, 0o640);
        assert_eq!(fs::read_dir(place.0.path()).unwrap().count(), 2, "no temporary file is left");
    }
}
