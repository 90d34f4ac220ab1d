//! Reads a configuration file as a sidecar would at start.

use std::ffi::OsString;
use std::path::PathBuf;

use capd::config::{Config, Mistakes, Sources};

/// The configuration's file: the one named, else that of CAPD_CONFIG.
pub(crate) fn file(named: Option<&PathBuf>) -> Option<PathBuf> {
    named.cloned().or_else(|| crate::variable("CAPD_CONFIG").map(PathBuf::from))
}

/// Reads it, with the environment over it, as `capd` does.
pub(crate) fn load(file: Option<PathBuf>) -> Result<Config, Mistakes> {
    let text =
        |(name, value): (OsString, OsString)| Some((name.into_string().ok()?, value.into_string().ok()?));
    let environment = std::env::vars_os().filter_map(text).collect();
    Config::load(&Sources { file, environment, overrides: Vec::new() })
}
