//! Reports what this machine's kernel enforces on commands, and what not.

use landlock::{
    Access as _, AccessFs, AccessNet, LandlockStatus, RestrictionStatus, Ruleset, RulesetAttr as _,
};
use landlock::{RulesetCreated, RulesetError, RulesetStatus, Scope};

use super::RULES;
use super::calls::{self, Sockets};

/// How far this machine confines a command to its rights, for the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Enforced {
    landlock: Option<i32>,
    files: bool,
    tcp: bool,
    signals: bool,
    calls: bool,
}

impl Enforced {
    /// Finds what the kernel enforces, by trying the rules on a thread that then ends.
    pub fn here() -> Self {
        let tried = std::thread::Builder::new().spawn(|| {
            let status = |rules: Result<RulesetCreated, RulesetError>| {
                rules.and_then(RulesetCreated::restrict_self).ok()
            };
            let holds = |status: &Option<RestrictionStatus>| {
                status.as_ref().is_some_and(|status| status.ruleset == RulesetStatus::FullyEnforced)
            };
            let files =
                status(Ruleset::default().handle_access(AccessFs::from_all(RULES)).and_then(Ruleset::create));
            let tcp = status(
                Ruleset::default().handle_access(AccessNet::from_all(RULES)).and_then(Ruleset::create),
            );
            let signals = status(Ruleset::default().scope(Scope::from_all(RULES)).and_then(Ruleset::create));
            let landlock = files.as_ref().and_then(|status| match status.landlock {
                LandlockStatus::Available { effective_abi, kernel_abi } => {
                    Some(kernel_abi.unwrap_or(effective_abi as i32))
                }
                _ => None,
            });
            let none = Sockets { internet: false, unix: false };
            Self {
                landlock,
                files: holds(&files),
                tcp: holds(&tcp),
                signals: holds(&signals),
                calls: calls::restrict(none).unwrap_or(false),
            }
        });
        let nothing = Self { landlock: None, files: false, tcp: false, signals: false, calls: false };
        tried.ok().and_then(|thread| thread.join().ok()).unwrap_or(nothing)
    }

    /// The enforced rights, and the others.
    pub fn told(self) -> (String, String) {
        let parts = [
            ("files", self.files),
            ("TCP", self.tcp),
            ("signals", self.signals),
            ("UDP", self.calls),
            ("unix sockets", self.calls),
            ("system calls", self.calls),
        ];
        let (mut enforced, mut left) = (ALWAYS.to_vec(), Vec::new());
        for (part, is_enforced) in parts {
            if is_enforced { enforced.push(part) } else { left.push(part) }
        }
        left.extend(NEVER);
        (enforced.join(", "), left.join(", "))
    }

    /// The kernel's features: the ABI of Landlock, and whether it filters system calls.
    pub fn kernel(self) -> (String, &'static str) {
        let landlock = self.landlock.map_or_else(|| "none".to_owned(), |abi| format!("ABI {abi}"));
        (landlock, if self.calls { "yes" } else { "no" })
    }
}

/// Kept whatever the kernel is.
const ALWAYS: [&str; 4] = ["environment", "no new privileges", "no capabilities", "resource limits"];
/// Declared or not, nothing here tells them apart.
const NEVER: [&str; 1] = ["permissions of other scopes"];
