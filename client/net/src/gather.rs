//! Batches the signed messages that arrive on all streams of a link within one turn of the runtime, so that their
//! signatures are verified together, which costs less for each.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;

use super::Service;
use super::link::{Link, Route};

/// Messages that have come on a link and wait for others, in the order of their coming.
#[derive(Debug, Default)]
pub(super) struct Gather(Mutex<Vec<Gathered>>);

/// A message, and the stream that it came on.
type Gathered = (Route, Bytes);

/// What is to be done about messages that were added.
enum Added {
    /// They are the first: who added them hands up what there is once others have had their turn.
    First,
    /// Somebody else will hand them up.
    Later,
    /// So many are enough.
    Enough(Vec<Gathered>),
}

impl Gather {
    /// Adds what came on the stream of `route`.
    fn add(&self, route: &Route, messages: impl IntoIterator<Item = Bytes>) -> Added {
        let mut gathered = self.gathered();
        let is_first = gathered.is_empty();
        gathered.extend(messages.into_iter().map(|message| (route.uncounted_clone(), message)));
        match () {
            () if gathered.len() >= GATHERED_MAX => Added::Enough(std::mem::take(&mut gathered)),
            () if is_first => Added::First,
            () => Added::Later,
        }
    }

    /// Takes all there are.
    fn take(&self) -> Vec<Gathered> {
        std::mem::take(&mut self.gathered())
    }

    fn gathered(&self) -> MutexGuard<'_, Vec<Gathered>> {
        // A panic while the lock was held leaves at worst a message less.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Hands up what one stream brought, or has it wait for what others bring. Says whether whoever asks is to hand up all that
/// wait, once others have had their turn.
pub(super) fn hand_up(
    link: &Arc<Link>,
    service: &dyn Service,
    route: &Route,
    messages: impl AsRef<[Bytes]> + IntoIterator<Item = Bytes>,
) -> bool {
    if messages.as_ref().is_empty() {
        return false;
    }
    let waits = !link.channel_auth() && link.in_flight() >= IN_FLIGHT_MIN;
    let Some(exchanges) = link.exchanges().filter(|_| waits) else {
        service.on_messages(link, route, messages.as_ref());
        return false;
    };
    match exchanges.gather.add(route, messages) {
        Added::First => return true,
        Added::Later => {}
        Added::Enough(messages) => service.on_gathered(link, &messages),
    }
    false
}

/// Hands up all that wait, if somebody else has not done it.
pub(super) fn hand_up_all(link: &Arc<Link>, service: &dyn Service) {
    let gathered = link.exchanges().map(|exchanges| exchanges.gather.take()).unwrap_or_default();
    if !gathered.is_empty() {
        service.on_gathered(link, &gathered);
    }
}

/// Calls in flight on a link from which on messages wait for those of other streams: with fewer, hardly any come together.
const IN_FLIGHT_MIN: usize = 8;
/// Messages that wait no longer: more would gain little, and they are held meanwhile.
const GATHERED_MAX: usize = 64;
