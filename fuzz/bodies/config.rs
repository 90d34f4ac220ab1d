//! Bytes in, read as a configuration's text; the claim that each is read or refused with its places, the same twice.

use std::path::Path;

use capd::config::Config;

pub(crate) fn run(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    let environment = [("HOME".to_owned(), "/nonexistent".to_owned())];
    let read = || Config::layer(Some((Path::new("/nonexistent/capd.toml"), text)), &environment, &[]);
    match (read(), read()) {
        (Ok(one), Ok(other)) => {
            assert_eq!(one, other);
            assert!(!one.effective().is_empty());
        }
        (Err(one), Err(other)) => {
            assert_eq!(one, other);
            assert!(!one.0.is_empty(), "refused without a reason");
            assert!(!one.to_string().is_empty());
        }
        (one, other) => panic!("{one:?} and {other:?} of one text"),
    }
}
