//! What our agent offers in, signed values out; and whether a value under a key of ours is one of them.

use bytes::Bytes;

use super::own::Own;
use super::step::Step;
use super::{Offer, Output};
use crate::capability::CapabilityName;
use crate::fleet::registration::Parts;
use crate::fleet::{Fence, Key, Registration};
use crate::limits::{REGISTERED_NAMES_MAX, REGISTRATION_LIFE_MS_MAX};

impl Own {
    /// Signs what is offered as a new generation.
    pub(super) fn sign(&mut self, fence: Fence, step: &mut Step<'_>) -> Vec<(Key, Bytes)> {
        self.generation += 1;
        self.is_changed = false;
        self.signed_ms = Some(step.now.now_ms);
        self.signed.clear();
        let config = step.config;
        let mut puts = Vec::with_capacity(self.offer.names.len());
        for (name, versions) in self.offer.names.iter().take(REGISTERED_NAMES_MAX) {
            let registration = Registration {
                agent: config.agent(),
                cell: config.cell.clone(),
                name: name.clone(),
                fence,
                generation: self.generation,
                addresses: self.offer.addresses.clone(),
                versions: versions.clone(),
                made_at_ms: step.now.wall_ms,
                not_after_ms: step.now.wall_ms.saturating_add(REGISTRATION_LIFE_MS_MAX),
                zone: config.zone.clone(),
                state: self.offer.state,
            };
            match registration.sign(&config.identity, &config.membership) {
                Ok(value) => {
                    let value = Bytes::from(value);
                    self.signed.insert(name.clone(), value.clone());
                    puts.push((Key::registration(name.clone(), registration.agent), value));
                }
                Err(error) => step.out.push_back(Output::Unregistrable { name: name.clone(), error }),
            }
        }
        puts
    }

    /// Whether a value under a key of ours is another than we put there last: one of another process, or an old one that
    /// a registry has brought back.
    pub(super) fn is_foreign(&mut self, value: &Bytes) -> bool {
        let registration = Parts::decode(value).ok().map(|parts| parts.registration);
        let Some(registration) = registration.filter(|of| Some(of.fence) == self.claimed) else {
            return true;
        };
        let generation = registration.generation;
        if self.signed.get(&registration.name) == Some(value) {
            return false;
        }
        self.has_twin |= generation >= self.generation;
        // What was put and not acknowledged may be told of late, and what it is to replace until then.
        generation < self.acknowledged || generation >= self.generation
    }
}

impl Offer {
    /// What may be registered at most; the rest is left out, and its owner told so.
    pub(super) fn surplus(&self) -> impl Iterator<Item = &CapabilityName> {
        self.names.keys().skip(REGISTERED_NAMES_MAX)
    }
}
