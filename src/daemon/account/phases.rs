//! Names what a call waits for. A call is in one phase at a time, so the phases of one side cover its span without gaps.

/// What a call waits for. The name is that of its span, and of its part of the timeline.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::daemon) enum Phase {
    /// Time, signature, permissions; at the provider's side also rates, limits and params.
    Admit,
    /// A provider.
    Choose,
    /// Proof of what the agent requires, a schema, or a verdict over its params.
    Gate,
    /// Its row in the journal.
    Journal,
    /// A link to its provider's sidecar, a signature that takes long, or the pause before a retry.
    Queue,
    /// The answer of its provider's sidecar.
    Wire,
    /// The answer of its provider.
    Provider,
    /// The verdict over its result, and its way to whoever waits.
    Result,
}

impl Phase {
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Admit => "admit",
            Self::Choose => "choose",
            Self::Gate => "gate",
            Self::Journal => "journal",
            Self::Queue => "queue",
            Self::Wire => "wire",
            Self::Provider => "provider",
            Self::Result => "result",
        }
    }
}
