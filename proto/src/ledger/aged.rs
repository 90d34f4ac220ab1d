//! Queues names by arrival and yields the oldest; any name may leave earlier.

use std::collections::VecDeque;

/// A queue of names with ascending numbers. A name that leaves early leaves a gap; the first place is never a gap.
#[derive(Debug)]
pub(super) struct Aged<T> {
    places: VecDeque<(u64, Option<T>)>,
    gaps: usize,
}

impl<T> Aged<T> {
    /// Adds a name under a number that is larger than any before.
    pub(super) fn push(&mut self, number: u64, name: T) {
        debug_assert!(self.places.back().is_none_or(|(last, _)| *last < number), "numbers grow");
        self.places.push_back((number, Some(name)));
    }

    /// The oldest name.
    pub(super) fn first(&self) -> Option<&T> {
        self.places.front().and_then(|(_, name)| name.as_ref())
    }

    /// Removes the name under `number`, if it is there.
    pub(super) fn remove(&mut self, number: u64) {
        // Mostly it is the oldest that leaves, and the search for it would visit places that nobody else has looked at for long.
        let at = match self.places.front() {
            Some((first, _)) if *first == number => Ok(0),
            _ => self.places.binary_search_by_key(&number, |(number, _)| *number),
        };
        let Ok(at) = at else { return };
        if self.places[at].1.take().is_none() {
            return;
        }
        self.gaps += 1;
        while let Some((_, None)) = self.places.front() {
            self.places.pop_front();
            self.gaps -= 1;
        }
        if self.gaps > self.places.len() / 2 {
            self.places.retain(|(_, name)| name.is_some());
            self.gaps = 0;
        }
        // What was full once would keep its room otherwise.
        if self.places.capacity() / 4 > self.places.len().max(PLACES_MIN) {
            self.places.shrink_to(self.places.len() * 2);
        }
    }
}

impl<T> Default for Aged<T> {
    fn default() -> Self {
        Self { places: VecDeque::new(), gaps: 0 }
    }
}

/// Places that may stay empty.
const PLACES_MIN: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_that_is_left_is_first() {
        let mut aged = Aged::<u64>::default();
        (1..=6).for_each(|number| aged.push(10 * number, number));
        for (removed, first) in [(20, Some(1)), (15, Some(1)), (20, Some(1)), (10, Some(3)), (40, Some(3))] {
            aged.remove(removed);
            assert_eq!(aged.first().copied(), first, "without {removed}");
        }
        for (removed, first) in [(30, Some(5)), (60, Some(5)), (50, None), (50, None)] {
            aged.remove(removed);
            assert_eq!(aged.first().copied(), first, "without {removed}");
        }
        aged.push(70, 7);
        assert_eq!(aged.first(), Some(&7));
    }

    #[test]
    fn gaps_take_no_more_places_than_names() {
        let mut aged = Aged::<()>::default();
        (0..1_000).for_each(|number| aged.push(number, ()));
        for number in 1..1_000 {
            aged.remove(number);
            assert!(aged.gaps <= aged.places.len() / 2);
        }
        assert_eq!(aged.first(), Some(&()));
        assert!(aged.places.len() <= 2, "{} places for one name", aged.places.len());
        assert!(aged.places.capacity() <= 4 * PLACES_MIN + 3);
    }
}
