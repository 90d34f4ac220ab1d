//! Logs the use of deprecated versions: one line for each caller and capability.

use std::collections::{HashSet, VecDeque};
use std::sync::Mutex;

use capd_proto::capability::CapabilityId;
use capd_proto::identity::Did;

use super::Account;
use crate::daemon::context::lock;

/// Who has been written about.
pub(in crate::daemon) type Warned = Mutex<Told>;

/// Pairs of caller and capability, the oldest forgotten first.
#[derive(Default)]
pub(in crate::daemon) struct Told {
    pairs: HashSet<(Did, CapabilityId)>,
    order: VecDeque<(Did, CapabilityId)>,
}

/// Most pairs remembered; a pair that was forgotten is written about again.
const PAIRS_MAX: usize = 4_096;

impl Told {
    /// Remembers a pair; `true` when it is not remembered already.
    fn is_first(&mut self, caller: &Did, id: &CapabilityId) -> bool {
        let pair = (caller.clone(), id.clone());
        if !self.pairs.insert(pair.clone()) {
            return false;
        }
        if self.order.len() == PAIRS_MAX
            && let Some(oldest) = self.order.pop_front()
        {
            self.pairs.remove(&oldest);
        }
        self.order.push_back(pair);
        true
    }
}

impl Account {
    /// Warns, once for each caller and capability, that what was asked for is deprecated. **Source:** PROTOCOL 7.5.
    pub(in crate::daemon) fn warn_deprecated(&self, caller: &Did, id: &CapabilityId) {
        if lock(&self.warned).is_first(caller, id) {
            tracing::warn!(%caller, capability = %id, "a call asks for a deprecated version");
        }
    }
}

#[cfg(test)]
mod tests {
    use capd_proto::identity::Identity;

    use super::*;

    #[test]
    fn a_pair_is_first_once_until_it_is_forgotten() {
        let mut told = Told::default();
        let [caller, other] = [1, 2].map(|seed| Identity::from_seed([seed; 32]).did().clone());
        let id = |number: usize| format!("org.example.a{number}:1.0.0").parse::<CapabilityId>().unwrap();
        assert!(told.is_first(&caller, &id(0)));
        assert!(!told.is_first(&caller, &id(0)));
        assert!(told.is_first(&other, &id(0)) && told.is_first(&caller, &id(1)));
        for number in 2..PAIRS_MAX {
            assert!(told.is_first(&caller, &id(number)));
        }
        assert_eq!((told.pairs.len(), told.order.len()), (PAIRS_MAX, PAIRS_MAX));
        assert!(told.is_first(&caller, &id(0)), "the oldest pair made room");
    }
}
