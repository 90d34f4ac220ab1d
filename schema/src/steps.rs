//! Counts the steps of a check, and ends it when it exceeds its limit.
//!
//! The `jsonschema` crate cannot be stopped. But it reads everything through values, names and elements, so each of
//! those is charged for its own cost and for the work that the crate does before it asks for the next. Once a walk has
//! ended, they look empty, and the crate comes back soon: a document applies few schemas to one value, and a payload has
//! few levels. Steps are counted, not timed: a verdict is the same on every machine.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

/// Most steps of one verdict with its violations. The costliest take about seven nanoseconds on an AMD EPYC, and 9 to 15 on a
/// slow Intel Xeon with two virtual processors, so a verdict takes up to 150 ms there (`benches/schema_hostile.rs`).
pub const STEPS_MAX: u64 = 10_000_000;
/// Steps of a verdict on the smallest payload, and further ones for each value of a larger one; far above what a schema of
/// honest size asks for.
const STEPS_BASE: u64 = 6_000_000;
const STEPS_PER_VALUE: u64 = 1_000;

/// Steps of a verdict on a payload of so many values.
pub(super) fn steps_of(count: u64) -> u64 {
    // The index has walked the values twice.
    STEPS_BASE.saturating_add(count.saturating_mul(STEPS_PER_VALUE)).min(STEPS_MAX).saturating_sub(2 * count)
}

/// What a document makes the crate do that no value shows.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Tolls {
    /// For each value, name or element that is given out: schemas that are applied to it without a look at it.
    pub(super) value: u32,
    /// For each question who a value is, by the levels of the payload: it is looked for among the schemas that are being
    /// applied.
    pub(super) identity: u32,
    /// For each number, which may be divided.
    pub(super) number: u32,
    /// For each string that is read, and for each name.
    pub(super) string: Match,
    pub(super) name: Match,
    /// For each array whose length is asked for: schemas that may go through the flags of its items.
    pub(super) flags: u32,
    /// Whether references lead in a circle on one value.
    pub(super) circles: bool,
}

/// What it takes to match a text with the costliest pattern of a document.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Match {
    pub(super) once: u32,
    pub(super) per_byte: u32,
}

impl Match {
    pub(super) const fn steps(self, bytes: usize) -> u64 {
        self.once as u64 + self.per_byte as u64 * bytes as u64 + bytes as u64 / 8
    }
}

/// The steps that one verdict may still take.
#[derive(Debug)]
pub(super) struct Steps {
    left: Cell<u64>,
    /// Whether there were not enough.
    is_over: Cell<bool>,
    /// Of those taken, what was taken by looks at names.
    by_names: Cell<u64>,
    pub(super) tolls: Tolls,
}

impl Steps {
    pub(super) fn new(steps: u64, tolls: Tolls) -> Rc<Self> {
        Rc::new(Self { left: Cell::new(steps), is_over: Cell::new(false), by_names: Cell::new(0), tolls })
    }

    /// Takes steps; `false` when there are not so many, and from then on.
    #[inline]
    pub(super) fn take(&self, steps: u64) -> bool {
        match self.left.get().checked_sub(steps) {
            Some(left) => {
                self.left.set(left);
                true
            }
            None => self.end(),
        }
    }

    /// Takes steps for a look at a name that is watched.
    pub(super) fn take_for_name(&self, steps: u64) -> bool {
        let is_taken = self.take(steps);
        if is_taken {
            self.by_names.set(self.by_names.get() + steps);
        }
        is_taken
    }

    #[cold]
    fn end(&self) -> bool {
        self.left.set(0);
        self.is_over.set(true);
        false
    }

    /// Whether more were asked for than there were.
    pub(super) fn is_over(&self) -> bool {
        self.is_over.get()
    }

    /// Leaves none for the rest of a walk, which [`Steps::resume`] gives back to the next.
    #[cold]
    pub(super) fn pause(&self) -> u64 {
        self.left.take()
    }

    /// Goes on with what was left.
    pub(super) fn resume(&self, left: u64) {
        self.left.set(left);
        self.is_over.set(false);
    }

    /// Steps that are left.
    pub(super) fn left(&self) -> u64 {
        self.left.get()
    }

    /// The same number as long as nothing but names was looked at.
    pub(super) fn besides_names(&self) -> u64 {
        self.left.get() + self.by_names.get()
    }

    /// Lets what the crate makes of a name by itself take from these steps, as long as `work` runs.
    pub(super) fn during<T>(self: &Rc<Self>, work: impl FnOnce() -> T) -> T {
        let _outer = Outer(WALKED.replace(Some(Rc::clone(self))));
        work()
    }

    /// The steps of the walk that runs on this thread.
    pub(super) fn current() -> Rc<Self> {
        let current = WALKED.with_borrow(Option::clone);
        current.unwrap_or_else(|| Self::new(STEPS_BASE, Tolls::default()))
    }
}

/// Comes back, also from a walk that panicked, to the walk that ran before.
struct Outer(Option<Rc<Steps>>);

impl Drop for Outer {
    fn drop(&mut self) {
        WALKED.set(self.0.take());
    }
}

thread_local! {
    static WALKED: RefCell<Option<Rc<Steps>>> = const { RefCell::new(None) };
}
