//! Bounds the sets that the `jsonschema` crate collects for `unevaluatedProperties` and `unevaluatedItems`.
//!
//! If branches stand beside these keywords, the crate allocates space for every name of an object, and a flag for every
//! item of an array, before it reads one. It keeps them while it checks the contents. It then asks a container for its
//! length, as other keywords also do. So a schema that collects names asks for a name of ours first, which marks the
//! object: a request for its length then means a set, unless a member is read next. An array that does not collect
//! costs only space that its own items pay for.

use std::borrow::Cow;
use std::cell::{Cell, RefCell};
use std::ops::Range;

use capd_proto::cbor::Kind;
use capd_proto::cbor::json::push_token;
use jsonschema::Draft;
use serde_json::{Value, json};

use super::profile;
use super::survey::Collects;
use super::validator::{SETS_BYTES_MIN, UNEVALUATED_NAMES_MAX};
use super::values::Values;
use super::violation::{PATH_BYTES_MAX, Violation};

/// The name that a schema asks an object for which will be collected from. A payload may have it: nothing follows from it.
const GUARD: &str = "\u{0}unevaluatedProperties";

/// Keywords beside which the crate may collect names; without them it knows them when it compiles.
const BRANCHES: [&str; 7] = ["$ref", "$dynamicRef", "allOf", "anyOf", "oneOf", "if", "dependentSchemas"];

/// The same document in which every schema asks for [`GUARD`] whose `unevaluatedProperties` stands beside branches.
pub(super) fn guarded(schema: &Value, draft: Draft) -> Value {
    let mut schema = schema.clone();
    if draft != Draft::Draft7 {
        profile::each_schema(&mut schema, &mut |members| {
            let collects = members.get("unevaluatedProperties").is_some_and(|schema| *schema != true);
            if collects && BRANCHES.iter().any(|branch| members.contains_key(*branch)) {
                // It is looked at before other branches, and behind `properties`. What a boolean evaluates is nothing.
                let asked = members.entry("dependentSchemas").or_insert_with(|| json!({}));
                if let Some(asked) = asked.as_object_mut() {
                    asked.insert(GUARD.to_owned(), json!(true));
                }
            }
        });
    }
    schema
}

/// What is collected in one walk.
#[derive(Default)]
pub(super) struct Sets {
    /// What is counted.
    collects: Collects,
    /// Bytes that further sets may take.
    room: Cell<isize>,
    /// Objects that will be collected from, each within the one before it.
    guarded: RefCell<Vec<Range<u32>>>,
    /// Arrays that flags may stand for, in the order in which they were measured.
    arrays: RefCell<Vec<u32>>,
}

/// A set has no room.
#[derive(Clone, Copy, Debug)]
pub(super) struct TooLarge {
    /// Where the container stands.
    at: u32,
    pub(super) count: usize,
    room: usize,
}

/// The set that is made for one container, if one is.
#[derive(Default)]
pub(super) struct Set {
    bytes: Cell<usize>,
    looks: Cell<Looks>,
}

/// What a container was asked for.
#[derive(Clone, Copy, Default)]
enum Looks {
    #[default]
    None,
    Length,
    /// Its length twice, which is asked before and after collecting.
    Collected,
}

impl Sets {
    /// Sets that may take so many bytes at once.
    pub(super) fn within(room: usize, collects: Collects) -> Self {
        let room = Cell::new(isize::try_from(room).unwrap_or(isize::MAX));
        Self { collects, room, ..Self::default() }
    }

    /// An object is asked for the member `key`.
    #[inline]
    pub(super) fn ask(&self, values: &Values<'_>, at: u32, key: &[u8]) {
        if self.collects.names && *key == *GUARD.as_bytes() {
            let mut guarded = self.guarded.borrow_mut();
            while guarded.last().is_some_and(|last| !last.contains(&at)) {
                guarded.pop();
            }
            if guarded.last().is_none_or(|last| last.start != at) {
                guarded.push(at..values.after(at));
            }
        }
    }

    fn is_guarded(&self, at: u32) -> bool {
        self.guarded.borrow().iter().any(|object| object.start == at)
    }
}

impl Set {
    /// The length of the container at `at` is asked for, which has `count` items or members; `steps` takes those that this
    /// costs.
    ///
    /// **Errors:** a set of so many takes more than there is room for.
    #[inline]
    pub(super) fn measure(
        &self,
        sets: &Sets,
        values: &Values<'_>,
        at: u32,
        count: usize,
        steps: impl Fn(u64) -> bool,
    ) -> Result<(), TooLarge> {
        let Collects { names, items } = sets.collects;
        match self.looks.get() {
            _ if !names && !items => {}
            Looks::None if values.kind(at) == Kind::Array => {
                if !items {
                    return Ok(());
                }
                // The first flag of an item costs no more than the item; those of branches in branches do.
                let is_first = !sets.arrays.borrow().contains(&at);
                self.take(sets, count, is_first).map_err(|room| TooLarge { at, count, room })?;
                sets.arrays.borrow_mut().push(at);
            }
            Looks::None if sets.is_guarded(at) => {
                // Room is made for each, and each is looked at for its bytes.
                if !steps(4 * count as u64) {
                    return Ok(());
                }
                let bytes = names_bytes(values, at, count);
                self.take(sets, bytes, false).map_err(|room| TooLarge { at, count, room })?;
            }
            Looks::Length => self.looks.set(Looks::Collected),
            Looks::None | Looks::Collected => {}
        }
        Ok(())
    }

    /// Takes so many bytes, or says how many there are.
    fn take(&self, sets: &Sets, bytes: usize, is_paid: bool) -> Result<(), usize> {
        let room = sets.room.get();
        let left = usize::try_from(room).unwrap_or(0);
        if !is_paid && left < bytes {
            return Err(left);
        }
        sets.room.set(room.saturating_sub_unsigned(bytes));
        self.bytes.set(bytes);
        self.looks.set(Looks::Length);
        Ok(())
    }

    /// The object's members are looked at, for which a set stands already or is not made.
    #[inline]
    pub(super) fn look(&self, sets: &Sets) {
        if let Looks::Length = self.looks.get() {
            self.looks.set(Looks::None);
            sets.room.set(sets.room.get().saturating_add_unsigned(self.bytes.take()));
        }
    }

    /// The container is let go, and its set with it.
    #[inline]
    pub(super) fn give_back(&self, sets: &Sets, is_array: impl FnOnce() -> bool) {
        if let Looks::None = self.looks.get() {
            return;
        }
        sets.room.set(sets.room.get().saturating_add_unsigned(self.bytes.take()));
        if is_array() {
            sets.arrays.borrow_mut().pop();
        }
    }
}

impl TooLarge {
    /// What is told of it.
    #[cold]
    pub(super) fn violation(self, values: &Values<'_>) -> Violation {
        let Self { at, count, room } = self;
        let path = pointer(values, at);
        if values.kind(at) == Kind::Map {
            let accepted = names_max(room);
            let what = if count > accepted {
                format!("{count} properties, too many")
            } else {
                "property names in chunks, too long".to_owned()
            };
            let message = format!(
                "has {what} to check which of them the branches beside `unevaluatedProperties` know; accepted: at most \
                 {accepted} here"
            );
            return Violation::new(&path, message, "unevaluatedProperties");
        }
        let message = format!(
            "has {count} items, too many to check which of them the nested branches beside `unevaluatedItems` \
             know; accepted: at most {room} here"
        );
        Violation::new(&path, message, "unevaluatedItems")
    }
}

/// Bytes of a set of this object's names.
fn names_bytes(values: &Values<'_>, at: u32, count: usize) -> usize {
    let slots = (count * 8).div_ceil(7).max(4).next_power_of_two();
    // A name in chunks is put together: once for the set, and once more whenever the members are walked.
    let owned = |(key, value)| if values.head(key).is_indefinite() { 2 * (value - key) as usize } else { 0 };
    slots * SLOT_BYTES + TABLE_BYTES + values.members(at).map(owned).sum::<usize>()
}

/// The most names of one object whose set takes no more than so many bytes.
fn names_max(bytes: usize) -> usize {
    let slots = bytes.saturating_sub(TABLE_BYTES) / SLOT_BYTES;
    slots.checked_ilog2().map_or(0, |log| (1 << log) / 8 * 7)
}

/// The table behind a set: slots, of which one in eight is kept free and whose number is a power of two, each with a byte
/// beside it, and a group of such bytes more.
const SLOT_BYTES: usize = size_of::<Cow<'_, str>>() + 1;
const TABLE_BYTES: usize = 16;
/// As many names as an object may have whatever else a payload holds.
const _: () =
    assert!((UNEVALUATED_NAMES_MAX * 8 / 7).is_power_of_two() && UNEVALUATED_NAMES_MAX.is_multiple_of(7));
const _: () = assert!(UNEVALUATED_NAMES_MAX * 8 / 7 * SLOT_BYTES + TABLE_BYTES <= SETS_BYTES_MIN);

/// The JSON pointer of the value at `target`, as far as it is told.
fn pointer(values: &Values<'_>, target: u32) -> String {
    let holds = |at: u32| (at..values.after(at)).contains(&target);
    let mut path = String::new();
    let mut at = 0;
    while at != target && path.len() < PATH_BYTES_MAX {
        let inner = match values.kind(at) {
            Kind::Map => values.members(at).find(|(_, value)| holds(*value)).map(|(key, value)| {
                let name = values.text(key);
                (name[..name.floor_char_boundary(PATH_BYTES_MAX)].to_owned(), value)
            }),
            _ => values
                .items(at)
                .enumerate()
                .find(|(_, item)| holds(*item))
                .map(|(number, item)| (number.to_string(), item)),
        };
        let Some((token, below)) = inner else { break };
        push_token(&mut path, &token);
        at = below;
    }
    path
}
