//! Parses `CAPD_LOG` into levels by module.

use tracing_subscriber::filter::{LevelFilter, Targets};

use super::{Mistake, Origin};

/// What is logged by module, and `level` of all modules that the text does not name, unless it has a level of its own.
///
/// **Shape:** `LEVEL` or `MODULE=LEVEL`, separated by commas.
pub(super) fn targets(text: &str, level: LevelFilter) -> Result<Targets, Mistake> {
    let mut targets = Targets::new().with_default(level);
    for part in text.split(',').map(str::trim).filter(|part| !part.is_empty()) {
        let (module, level) =
            part.split_once('=').map_or((None, part), |(module, level)| (Some(module), level));
        let known = LEVELS.into_iter().find(|(name, _)| name.eq_ignore_ascii_case(level.trim()));
        let Some((_, level)) = known else {
            return Err(mistake(format!("{:?} is not a level", level.trim())));
        };
        targets = match module.map(str::trim) {
            None => targets.with_default(level),
            Some(module) if is_module(module) => targets.with_target(module, level),
            Some(module) => return Err(mistake(format!("{module:?} is not a module"))),
        };
    }
    Ok(targets)
}

/// A module's path, or the name of a target: `capd::net`, `access`, `audit`.
fn is_module(text: &str) -> bool {
    !text.is_empty()
        && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b':' | b'-'))
}

fn mistake(problem: String) -> Mistake {
    Mistake {
        origin: Origin::Environment(VARIABLE.to_owned()),
        key: VARIABLE.to_owned(),
        problem,
        accepted: "LEVEL or MODULE=LEVEL, separated by commas, as in \"capd::net=debug,info\"; a level is one of off, \
                   error, warn, info, debug, trace"
            .to_owned(),
    }
}

/// The variable that is read.
pub(super) const VARIABLE: &str = "CAPD_LOG";

const LEVELS: [(&str, LevelFilter); 6] = [
    ("off", LevelFilter::OFF),
    ("error", LevelFilter::ERROR),
    ("warn", LevelFilter::WARN),
    ("info", LevelFilter::INFO),
    ("debug", LevelFilter::DEBUG),
    ("trace", LevelFilter::TRACE),
];
