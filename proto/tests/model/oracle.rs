//! What a sidecar does to calls in; the promise it breaks, if any, out.

use std::collections::BTreeMap;

use bytes::Bytes;
use capd_proto::code::Code;
use capd_proto::envelope::MessageId;

/// What is known of each id, from outside: how often it was admitted and executed, and its distinct results.
#[derive(Default)]
pub(crate) struct Oracle(BTreeMap<MessageId, Seen>);

#[derive(Default)]
struct Seen {
    admitted: usize,
    executed: usize,
    results: Vec<Bytes>,
    forgotten: bool,
    /// Its agent was told that nothing was executed, and nothing will be.
    refused: bool,
    /// There are copies that the caller's machine knows nothing of.
    has_strays: bool,
}

impl Oracle {
    pub(crate) fn admits(&mut self, id: MessageId) {
        self.0.entry(id).or_default().admitted += 1;
    }

    pub(crate) fn executes(&mut self, id: MessageId, idempotent: bool) -> Result<(), String> {
        let seen = self.0.entry(id).or_default();
        seen.executed += 1;
        claim(seen.admitted > 0, || format!("{id} was executed and never admitted"))?;
        claim(!seen.refused || seen.has_strays, || {
            format!("{id} was executed after its agent was told that it is refused")
        })?;
        claim(idempotent || seen.executed == 1, || format!("{id} was executed twice"))
    }

    /// PROTOCOL 8: an ERROR says that nothing was executed under this id, and nothing will be. Of a call that is not
    /// idempotent, nobody may say so who cannot know it.
    pub(crate) fn tells_refused(&mut self, id: MessageId) -> Result<(), String> {
        let seen = self.0.entry(id).or_default();
        seen.refused = true;
        claim(seen.executed == 0 || seen.has_strays, || {
            format!("{id} was executed, and its agent was told that it is refused")
        })
    }

    /// A copy is sent of which the caller's machine knows nothing, so that it cannot answer for it.
    pub(crate) fn asks_again(&mut self, id: MessageId) {
        self.0.entry(id).or_default().has_strays = true;
    }

    pub(crate) fn answers(
        &mut self,
        id: MessageId,
        idempotent: bool,
        envelope: &Bytes,
    ) -> Result<(), String> {
        let seen = self.0.entry(id).or_default();
        if !seen.results.contains(envelope) {
            seen.results.push(envelope.clone());
        }
        claim(seen.admitted > 0, || format!("{id} has a result and was never admitted"))?;
        // PROTOCOL 8: running an idempotent one again is harmless, and then its result may be another.
        let results_max = if idempotent { seen.admitted } else { 1 };
        claim(seen.results.len() <= results_max, || format!("{id} has a second result"))
    }

    /// Its `ts + ttl` has passed, at least by a clock that was set back since.
    pub(crate) fn forgets(&mut self, id: MessageId) {
        self.0.entry(id).or_default().forgotten = true;
    }

    /// A call that is accepted gets no ERROR as long as it is remembered, unless for its time.
    pub(crate) fn refuses(&self, id: MessageId, idempotent: bool, code: Code) -> Result<(), String> {
        let is_answered = self.0.get(&id).is_some_and(|seen| !seen.results.is_empty() && !seen.forgotten);
        let is_promised = !idempotent && is_answered && code != Code::INVALID_TIMESTAMP;
        claim(!is_promised, || format!("{id} got its result, and then ERROR {code}"))
    }

    pub(crate) fn delivers(&self, id: MessageId, envelope: &Bytes) -> Result<(), String> {
        let is_sent = self.0.get(&id).is_some_and(|seen| seen.results.contains(envelope));
        claim(is_sent, || format!("{id} was delivered a result that nobody made"))
    }
}

pub(crate) fn claim(holds: bool, otherwise: impl FnOnce() -> String) -> Result<(), String> {
    if holds { Ok(()) } else { Err(otherwise()) }
}
