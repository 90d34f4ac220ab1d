//! Writes a file, whole or not at all, below the one folder of generated code.

use std::fs::{self, OpenOptions};
use std::io::{self, Write as _};
use std::path::Path;

/// Writes `text` to `path` below `out`, in place of what stands there.
///
/// **Errors:** as the system has them; a folder below `out` that is a link is one, because it may lead elsewhere.
pub(super) fn file(out: &Path, path: &Path, text: &str) -> io::Result<()> {
    fs::create_dir_all(out)?;
    let folder = match path.parent().filter(|folder| !folder.as_os_str().is_empty()) {
        None => out.to_owned(),
        Some(below) => {
            let folder = out.join(below);
            match fs::symlink_metadata(&folder) {
                Ok(found) if found.is_dir() => {}
                Ok(_) => return Err(io::Error::other(format!("{} is no folder", folder.display()))),
                Err(error) if error.kind() == io::ErrorKind::NotFound => fs::create_dir(&folder)?,
                Err(error) => return Err(error),
            }
            folder
        }
    };
    let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let temporary = folder.join(format!(".{name}.{}", std::process::id()));
    let written = OpenOptions::new().write(true).create_new(true).open(&temporary).and_then(|mut file| {
        file.write_all(text.as_bytes())?;
        file.sync_all()
    });
    // A link that stands in the file's place is replaced, and not followed.
    let moved = written.and_then(|()| fs::rename(&temporary, folder.join(&name)));
    if moved.is_err() {
        // What went wrong first is what is told.
        let _ = fs::remove_file(&temporary);
    }
    moved
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn a_link_in_the_files_place_is_replaced_and_one_in_a_folders_place_refused() {
        let dir = tempfile::tempdir().unwrap();
        let (out, elsewhere) = (dir.path().join("out"), dir.path().join("elsewhere"));
        fs::create_dir_all(&out).unwrap();
        fs::create_dir_all(&elsewhere).unwrap();
        fs::write(elsewhere.join("kept"), "kept").unwrap();
        symlink(elsewhere.join("kept"), out.join("a.ts")).unwrap();
        symlink(&elsewhere, out.join("a")).unwrap();
        file(&out, Path::new("a.ts"), "new").unwrap();
        assert_eq!(fs::read_to_string(out.join("a.ts")).unwrap(), "new");
        assert_eq!(fs::read_to_string(elsewhere.join("kept")).unwrap(), "kept");
        file(&out, Path::new("a/a.go"), "new").unwrap_err();
        let names: Vec<_> =
            fs::read_dir(&elsewhere).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        assert_eq!(names, ["kept"]);
        file(&out, Path::new("b/b.go"), "new").unwrap();
        assert_eq!(fs::read_dir(&out).unwrap().count(), 3);
    }
}
