//! Reads a configuration file as a sidecar would at start.

use std::ffi::OsString;
use std::path::PathBuf;

use capd::config::{Config, Mistakes, Sources};

use crate::Sidecar;
use crate::args::SidecarArgs;

/// The configuration's file: the one named, else that of CAPD_CONFIG.
pub(crate) fn file(named: Option<&PathBuf>) -> Option<PathBuf> {
    named.cloned().or_else(|| crate::variable("CAPD_CONFIG").map(PathBuf::from))
}

/// Reads it, with the environment over it, as `capd` does.
pub(crate) fn load(file: Option<PathBuf>) -> Result<Config, Mistakes> {
    Config::load(&Sources { file, environment: environment(), overrides: Vec::new() })
}

/// The environment, as far as it can hold settings.
pub(crate) fn environment() -> Vec<(String, String)> {
    let text =
        |(name, value): (OsString, OsString)| Some((name.into_string().ok()?, value.into_string().ok()?));
    std::env::vars_os().filter_map(text).collect()
}

/// The sidecar that the command line names, or else the one that runs with this configuration.
pub(crate) fn beside(sidecar: &Sidecar, config: &Config) -> Sidecar {
    let SidecarArgs { socket, context, address, .. } = &sidecar.0;
    let is_named = socket.is_some() || context.is_some() || address.is_some();
    let socket = if is_named { socket.clone() } else { config.listen.unix.clone() };
    Sidecar(SidecarArgs { socket, ..sidecar.0.clone() })
}
