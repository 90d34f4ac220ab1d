//! Opens the places that together hold everything in some folders, except what must stay hidden.
//!
//! Landlock can only allow. So a folder that contains something hidden is split: each entry that does not lead there is
//! a place of its own, and the folders on the way may be listed. New entries of those folders belong to no place.
//!
//! A path is resolved before it is compared, and then opened without following links. So a link to something hidden
//! reaches nothing, and neither does a link that is planted meanwhile.

use std::ffi::OsStr;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, Dir, FileType, Mode, OFlags, ResolveFlags, fstat, open, openat, openat2};
use rustix::io::Errno;

/// A file or folder that a command reaches.
#[derive(Debug)]
pub(super) struct Place {
    pub(super) file: OwnedFd,
    pub(super) kind: Kind,
}

/// Who says that a command needs a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Source {
    Owner,
    /// A script's first line, or the settings of an environment.
    File,
}

/// What stands at a place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// A folder, with all that it holds.
    Folder,
    /// Something that is no folder.
    File,
    /// A folder that leads to something hidden: its own entries may be listed, and each is a place or hidden.
    Way,
}

/// Everything beneath `root` but what is hidden; nothing where `root` is not there.
///
/// A root that the owner named is reached in a hidden folder, too; other hidden paths stay hidden in it. A root that was
/// found, in a file that a command may have written, is not.
pub(super) fn places(root: &Path, source: Source, hidden: &[PathBuf]) -> Vec<Place> {
    let mut places = Vec::new();
    let Ok(root) = root.canonicalize() else { return places };
    let hidden: Vec<&Path> = hidden
        .iter()
        .map(PathBuf::as_path)
        .filter(|hidden| source == Source::File || root == **hidden || !root.starts_with(hidden))
        .collect();
    // What is gone or may not be opened is not reached either.
    if let Ok(file) = open_resolved(&root) {
        take(root, file, &hidden, &mut places);
    }
    places
}

/// `path` with no link in it: as far as it is there, the rest as it is written.
pub(super) fn resolved(path: &Path) -> PathBuf {
    match (path.canonicalize(), path.parent(), path.file_name()) {
        (Ok(resolved), _, _) => resolved,
        (Err(_), Some(parent), Some(name)) if !parent.as_os_str().is_empty() => resolved(parent).join(name),
        (Err(_), _, _) => path.to_owned(),
    }
}

fn take(path: PathBuf, file: OwnedFd, hidden: &[&Path], places: &mut Vec<Place>) {
    if hidden.iter().any(|hidden| path.starts_with(hidden)) {
        return;
    }
    let kind = match fstat(&file).map(|stat| FileType::from_raw_mode(stat.st_mode)) {
        // What a link leads to is reached where it stands, if it is.
        Ok(FileType::Symlink) | Err(_) => return,
        Ok(FileType::Directory) if hidden.iter().any(|hidden| hidden.starts_with(&path)) => Kind::Way,
        Ok(FileType::Directory) => Kind::Folder,
        Ok(_) => Kind::File,
    };
    if kind == Kind::Way {
        // A folder that cannot be listed holds nothing that could be told apart from what is hidden.
        for name in names(&file).unwrap_or_default() {
            let name = OsStr::from_bytes(&name);
            if let Ok(entry) = openat(&file, name, PLACE, Mode::empty()) {
                take(path.join(name), entry, hidden, places);
            }
        }
    }
    places.push(Place { file, kind });
}

fn names(folder: &impl AsFd) -> io::Result<Vec<Vec<u8>>> {
    let mut names = Vec::new();
    // A place is not open for reading, so it is opened once more.
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    for entry in Dir::new(openat(folder, ".", flags, Mode::empty())?)? {
        let name = entry?.file_name().to_bytes().to_vec();
        if name != b"." && name != b".." {
            names.push(name);
        }
    }
    names.sort();
    Ok(names)
}

/// Opens a path that has no link in it, and fails where one has come meanwhile.
fn open_resolved(path: &Path) -> rustix::io::Result<OwnedFd> {
    match openat2(CWD, path, PLACE, Mode::empty(), ResolveFlags::NO_SYMLINKS) {
        // Before Linux 5.6, and where a container does not allow it.
        Err(Errno::NOSYS | Errno::PERM) => open(path, PLACE, Mode::empty()),
        opened => opened,
    }
}

/// A place is only named by this; nothing is read.
const PLACE: OFlags = OFlags::PATH.union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

#[cfg(test)]
mod tests {
    use std::os::fd::AsRawFd as _;
    use std::os::unix::fs::symlink;

    use super::*;

    /// The places by kind, as paths under `dir`.
    fn found(dir: &Path, root: &Path, hidden: &[PathBuf]) -> Vec<(String, Kind)> {
        let named = |place: &Place| {
            let path = std::fs::read_link(format!("/proc/self/fd/{}", place.file.as_raw_fd())).unwrap();
            (path.strip_prefix(dir).unwrap().to_str().unwrap().to_owned(), place.kind)
        };
        let mut found: Vec<_> = places(root, Source::Owner, hidden).iter().map(named).collect();
        found.sort_by(|a, b| a.0.cmp(&b.0));
        found
    }

    #[test]
    fn nothing_that_leads_to_what_is_hidden_is_a_place() {
        let dir = tempfile::tempdir().unwrap();
        let dir = dir.path().canonicalize().unwrap();
        let at = |name: &str| dir.join(name);
        for name in ["state/deep/deeper", "schemas", "keys"] {
            std::fs::create_dir_all(at(name)).unwrap();
        }
        std::fs::write(at("tool"), "").unwrap();
        symlink("state/deep", at("link")).unwrap();
        symlink("..", at("schemas/up")).unwrap();
        let place = |name: &str, kind| (name.to_owned(), kind);
        let hidden = [at("state/deep"), at("keys")];
        let (way, folder) = (Kind::Way, Kind::Folder);
        assert_eq!(
            found(&dir, &dir, &hidden),
            [place("", way), place("schemas", folder), place("state", way), place("tool", Kind::File)]
        );
        assert_eq!(found(&dir, &dir, &["/nonexistent".into()]), [place("", folder)]);
        assert_eq!(found(&dir, &at("schemas"), &hidden), [place("schemas", folder)]);
        assert_eq!(found(&dir, &at("tool"), &hidden), [place("tool", Kind::File)]);
        assert_eq!(found(&dir, &dir, std::slice::from_ref(&dir)), []);
        assert_eq!(found(&dir, &at("link"), &hidden), [], "a root that is a link is what it leads to");
        assert_eq!(found(&dir, &at("nothing"), &hidden), []);
        // A declaration within the state folder reads its own folder.
        assert_eq!(found(&dir, &at("state/deep/deeper"), &hidden), [place("state/deep/deeper", folder)]);
    }

    #[test]
    fn a_file_that_names_what_is_hidden_opens_none_of_it() {
        let dir = tempfile::tempdir().unwrap();
        let dir = dir.path().canonicalize().unwrap();
        let at = |name: &str| dir.join(name);
        std::fs::create_dir_all(at("state/lib")).unwrap();
        std::fs::write(at("state/identity.key"), "").unwrap();
        symlink("state/identity.key", at("python")).unwrap();
        let hidden = [at("state")];
        for name in ["state", "state/lib", "state/identity.key", "python"] {
            assert!(places(&at(name), Source::File, &hidden).is_empty(), "{name}");
        }
        assert_eq!(places(&at("state/lib"), Source::Owner, &hidden).len(), 1);
    }

    #[test]
    fn paths_are_resolved_as_far_as_they_are_there() {
        let dir = tempfile::tempdir().unwrap();
        let dir = dir.path().canonicalize().unwrap();
        std::fs::create_dir(dir.join("real")).unwrap();
        symlink("real", dir.join("link")).unwrap();
        assert_eq!(resolved(&dir.join("link")), dir.join("real"));
        assert_eq!(resolved(&dir.join("link/a/b")), dir.join("real/a/b"));
        assert_eq!(resolved(Path::new("nothing-here")), Path::new("nothing-here"));
    }
}
