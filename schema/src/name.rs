//! Presents an object's member names to the `jsonschema` crate, and charges for the copies that the crate makes.
//!
//! While it gathers errors, the crate copies each name that a schema does not know into a list, which may need many
//! times the size of the payload. The crate gives no sign of a copy. It looks at a name first, and copies it when it
//! looks once more without having read the member's value. Such copies are charged until the list is dropped or becomes
//! an error.

use std::borrow::Cow;
use std::cell::Cell;

use super::node::Document;

/// Bytes that copies of names may take together. A violation is a name, and 64 of them are told.
const COPIES_BYTES_MAX: u64 = 6 * 1024;
/// Bytes of a copy besides the name's own: its place in a list that doubles when it is full, the old one beside the new.
const COPY_BYTES: u64 = 3 * size_of::<String>() as u64;

/// Steps of a look at a name.
const LOOK_STEPS: u64 = 3;

/// The name of one member.
pub(super) struct Name<'a> {
    text: Cow<'a, str>,
    document: &'a Document<'a>,
    /// While errors are gathered.
    watch: Option<Watch>,
}

struct Watch {
    /// Steps that were left when the name was given, besides those that looks at names take; the fewer are left, the more
    /// was done with the member's value.
    steps_left: u64,
    looks: Cell<Looks>,
}

#[derive(Clone, Copy)]
enum Looks {
    None,
    One,
    Paid,
}

impl<'a> Name<'a> {
    pub(super) fn new(text: Cow<'a, str>, document: &'a Document<'a>) -> Self {
        let watch = || Watch { steps_left: document.steps().besides_names(), looks: Cell::new(Looks::None) };
        Self { text, document, watch: document.copies().map(|_| watch()) }
    }

    #[cold]
    fn look(&self, watch: &Watch) {
        let Some(copies) = self.document.copies() else { return };
        let is_untouched = self.document.steps().besides_names() == watch.steps_left;
        watch.looks.set(match watch.looks.get() {
            Looks::None => Looks::One,
            Looks::One if is_untouched || copies.is_value_first => {
                copies.pay(COPY_BYTES + self.text.len() as u64);
                if copies.spent.get() > COPIES_BYTES_MAX {
                    self.document.cut();
                }
                Looks::Paid
            }
            looks @ (Looks::One | Looks::Paid) => looks,
        });
    }
}

impl AsRef<str> for Name<'_> {
    fn as_ref(&self) -> &str {
        let steps = self.document.steps();
        // It is looked for in a table, or matched with a pattern.
        let look = LOOK_STEPS + steps.tolls.name.steps(self.text.len());
        let is_taken = match &self.watch {
            None => steps.take(look),
            Some(watch) => {
                let is_taken = steps.take_for_name(look);
                self.look(watch);
                is_taken
            }
        };
        if is_taken { &self.text } else { "" }
    }
}

impl<'a> From<Name<'a>> for Cow<'a, str> {
    fn from(name: Name<'a>) -> Self {
        name.text
    }
}

/// What copies of names take.
#[derive(Default)]
pub(super) struct Copies {
    /// Whether a name may be copied after its member's value was looked at, which `unevaluatedProperties` does.
    is_value_first: bool,
    spent: Cell<u64>,
    /// Of that, by lists that are in errors.
    kept: Cell<u64>,
    /// The object whose members were walked last, and what its list takes until another one is walked.
    last: Cell<Option<(u32, u64)>>,
}

/// What copies took when a walk over an object's members began.
#[derive(Clone, Copy, Default)]
pub(super) struct Tally {
    spent: u64,
    kept: u64,
}

impl Copies {
    pub(super) fn new(is_value_first: bool) -> Self {
        Self { is_value_first, ..Self::default() }
    }

    pub(super) fn is_value_first(&self) -> bool {
        self.is_value_first
    }

    fn pay(&self, bytes: u64) {
        self.drop_last();
        self.spent.set(self.spent.get() + bytes);
    }

    pub(super) fn begin(&self) -> Tally {
        self.drop_last();
        Tally { spent: self.spent.get(), kept: self.kept.get() }
    }

    /// The members of the object at `at` were walked.
    pub(super) fn end(&self, at: u32, begun: Tally) {
        self.drop_last();
        let by_others = self.kept.get() - begun.kept;
        let by_it = self.spent.get().saturating_sub(begun.spent + by_others);
        self.last.set(Some((at, by_it)));
    }

    /// An item is copied into a list that becomes an error; whether no further one may be.
    pub(super) fn take_item(&self) -> bool {
        self.pay(COPY_BYTES);
        self.kept.set(self.kept.get() + COPY_BYTES);
        self.spent.get() > COPIES_BYTES_MAX
    }

    /// An error is made on the value at `at`.
    pub(super) fn keep(&self, at: u32) {
        if let Some((_, bytes)) = self.last.get().filter(|(last, _)| *last == at) {
            self.last.set(None);
            self.kept.set(self.kept.get() + bytes);
        }
    }

    /// A list that did not become an error is gone.
    fn drop_last(&self) {
        if let Some((_, bytes)) = self.last.take() {
            self.spent.set(self.spent.get() - bytes);
        }
    }
}
