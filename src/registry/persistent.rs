//! Implements a sorted map whose clones share unchanged nodes: a clone is one pointer, and a change copies the path to
//! it.
//!
//! It is a B+ tree of shared nodes. A change of a clone copies a node once; further changes nearby are made in place.

use std::borrow::Borrow;
use std::sync::Arc;

/// A sorted map. Its clones share what they have in common.
#[derive(Clone, Debug)]
pub(super) struct Map<K, V> {
    root: Arc<Node<K, V>>,
}

#[derive(Clone, Debug)]
enum Node<K, V> {
    /// Entries in the order of their keys.
    Leaf(Vec<(K, V)>),
    /// Nodes in the order of their keys, each with its first key; one at least.
    Inner(Vec<(K, Arc<Node<K, V>>)>),
}

impl<K, V> Default for Map<K, V> {
    fn default() -> Self {
        Self { root: Arc::new(Node::Leaf(Vec::new())) }
    }
}

impl<K: Ord + Clone, V: Clone> Map<K, V> {
    /// The value of a key.
    pub(super) fn get<Q: Ord + ?Sized>(&self, key: &Q) -> Option<&V>
    where
        K: Borrow<Q>,
    {
        let mut node = &*self.root;
        loop {
            match node {
                Node::Leaf(entries) => {
                    let at = entries.binary_search_by(|(known, _)| known.borrow().cmp(key)).ok()?;
                    return Some(&entries[at].1);
                }
                Node::Inner(children) => node = &children[child_of(children, key)].1,
            }
        }
    }

    /// Puts a value in the place of a key's former one.
    pub(super) fn insert(&mut self, key: K, value: V) {
        if let Some((first, second)) = Arc::make_mut(&mut self.root).insert(key, value) {
            let former = std::mem::take(self).root;
            let first_key = former.first_key().cloned().unwrap_or_else(|| first.clone());
            self.root = Arc::new(Node::Inner(vec![(first_key, former), (first, second)]));
        }
    }

    /// Takes a key out.
    pub(super) fn remove<Q: Ord + ?Sized>(&mut self, key: &Q)
    where
        K: Borrow<Q>,
    {
        Arc::make_mut(&mut self.root).remove(key);
        while let Node::Inner(children) = &*self.root {
            match children.as_slice() {
                [] => *self = Self::default(),
                [(_, only)] => self.root = Arc::clone(only),
                [_, _, ..] => break,
            }
        }
    }

    /// All entries, keys ascending.
    pub(super) fn iter(&self) -> Iter<'_, K, V> {
        Iter { path: vec![(&self.root, 0)] }
    }
}

impl<K: Ord + Clone, V: Clone> Node<K, V> {
    fn first_key(&self) -> Option<&K> {
        match self {
            Self::Leaf(entries) => entries.first().map(|(key, _)| key),
            Self::Inner(children) => children.first().map(|(key, _)| key),
        }
    }

    fn len(&self) -> usize {
        match self {
            Self::Leaf(entries) => entries.len(),
            Self::Inner(children) => children.len(),
        }
    }

    /// Gives the second half, with its first key, of a node that has become too large.
    fn insert(&mut self, key: K, value: V) -> Option<(K, Arc<Self>)> {
        match self {
            Self::Leaf(entries) => {
                match entries.binary_search_by(|(known, _)| known.cmp(&key)) {
                    Ok(at) => entries[at].1 = value,
                    Err(at) => entries.insert(at, (key, value)),
                }
                if entries.len() <= NODE_MAX {
                    return None;
                }
                let second = entries.split_off(entries.len() / 2);
                Some((second[0].0.clone(), Arc::new(Self::Leaf(second))))
            }
            Self::Inner(children) => {
                let at = child_of(children, &key);
                let (first, child) = &mut children[at];
                if key < *first {
                    *first = key.clone();
                }
                if let Some(second) = Arc::make_mut(child).insert(key, value) {
                    children.insert(at + 1, second);
                }
                if children.len() <= NODE_MAX {
                    return None;
                }
                let second = children.split_off(children.len() / 2);
                Some((second[0].0.clone(), Arc::new(Self::Inner(second))))
            }
        }
    }

    /// Takes a key out, if it is there.
    fn remove<Q: Ord + ?Sized>(&mut self, key: &Q)
    where
        K: Borrow<Q>,
    {
        match self {
            Self::Leaf(entries) => {
                if let Ok(at) = entries.binary_search_by(|(known, _)| known.borrow().cmp(key)) {
                    entries.remove(at);
                }
            }
            Self::Inner(children) => {
                let at = child_of(children, key);
                Arc::make_mut(&mut children[at].1).remove(key);
                if children[at].1.len() < NODE_MIN {
                    merge(children, at);
                } else if let Some(first) = children[at].1.first_key().cloned() {
                    children[at].0 = first;
                }
            }
        }
    }
}

/// Has a node that has become small stand in one with its neighbour; one that is empty and alone goes.
fn merge<K: Ord + Clone, V: Clone>(children: &mut Vec<(K, Arc<Node<K, V>>)>, at: usize) {
    let left = if at + 1 < children.len() { at } else { at.saturating_sub(1) };
    if left + 1 < children.len() {
        let (_, right) = children.remove(left + 1);
        let right = Arc::unwrap_or_clone(right);
        let second = match (Arc::make_mut(&mut children[left].1), right) {
            (Node::Leaf(entries), Node::Leaf(more)) => {
                entries.extend(more);
                let is_large = entries.len() > NODE_MAX;
                is_large.then(|| Node::Leaf(entries.split_off(entries.len() / 2)))
            }
            (Node::Inner(entries), Node::Inner(more)) => {
                entries.extend(more);
                let is_large = entries.len() > NODE_MAX;
                is_large.then(|| Node::Inner(entries.split_off(entries.len() / 2)))
            }
            // All leaves are as deep.
            (Node::Leaf(_), Node::Inner(_)) | (Node::Inner(_), Node::Leaf(_)) => None,
        };
        if let Some(second) = second
            && let Some(first) = second.first_key().cloned()
        {
            children.insert(left + 1, (first, Arc::new(second)));
        }
    }
    match children.get_mut(left) {
        Some((_, child)) if child.len() == 0 => drop(children.remove(left)),
        Some((key, child)) => {
            if let Some(first) = child.first_key() {
                *key = first.clone();
            }
        }
        None => {}
    }
}

/// Which of a node's children a key belongs to.
fn child_of<K: Borrow<Q>, Q: Ord + ?Sized, N>(children: &[(K, N)], key: &Q) -> usize {
    children.partition_point(|(first, _)| first.borrow() <= key).saturating_sub(1)
}

/// Entries of a map, keys ascending.
pub(super) struct Iter<'a, K, V> {
    /// The nodes down to the next entry, each with the place of what comes next in it.
    path: Vec<(&'a Node<K, V>, usize)>,
}

impl<'a, K, V> Iterator for Iter<'a, K, V> {
    type Item = (&'a K, &'a V);

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            let (node, at) = self.path.last_mut()?;
            let next = *at;
            *at += 1;
            match node {
                Node::Leaf(entries) => match entries.get(next) {
                    Some((key, value)) => return Some((key, value)),
                    None => drop(self.path.pop()),
                },
                Node::Inner(children) => match children.get(next) {
                    Some((_, child)) => self.path.push((child, 0)),
                    None => drop(self.path.pop()),
                },
            }
        }
    }
}

/// Most entries of a node.
const NODE_MAX: usize = 16;
/// Entries below which a node is joined with its neighbour.
const NODE_MIN: usize = 4;

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    fn listed(map: &Map<u16, u32>) -> Vec<(u16, u32)> {
        map.iter().map(|(key, value)| (*key, *value)).collect()
    }

    proptest! {
        #[test]
        fn it_is_a_sorted_map_and_its_clones_stay_what_they_were(
            changes in vec((0_u16..400, any::<bool>()), 0..1_500),
        ) {
            let (mut map, mut model) = (Map::default(), BTreeMap::new());
            let mut kept = Vec::new();
            for (number, (key, is_put)) in changes.into_iter().enumerate() {
                if number % 100 == 0 {
                    kept.push((map.clone(), model.clone()));
                }
                if is_put {
                    map.insert(key, number as u32);
                    model.insert(key, number as u32);
                } else {
                    map.remove(&key);
                    model.remove(&key);
                }
                prop_assert_eq!(map.get(&key), model.get(&key));
            }
            kept.push((map, model));
            for (map, model) in kept {
                prop_assert_eq!(listed(&map), model.into_iter().collect::<Vec<_>>());
            }
        }
    }

    #[test]
    fn all_may_go_in_any_order() {
        for step in [1_u16, 7, 999] {
            let mut map = Map::default();
            for number in 0..1_000_u16 {
                map.insert(number, u32::from(number));
            }
            for number in 0..1_000_u16 {
                map.remove(&((u32::from(number) * u32::from(step) % 1_000) as u16));
            }
            assert_eq!(listed(&map), []);
        }
    }

    #[test]
    fn a_change_copies_the_path_to_it_and_shares_the_rest() {
        let mut before = Map::default();
        for number in 0..10_000_u16 {
            before.insert(number, u32::from(number));
        }
        let mut after = before.clone();
        after.insert(5_000, 1);
        fn leaves(node: &Arc<Node<u16, u32>>, into: &mut Vec<*const Node<u16, u32>>) {
            match &**node {
                Node::Leaf(_) => into.push(Arc::as_ptr(node)),
                Node::Inner(children) => children.iter().for_each(|(_, child)| leaves(child, into)),
            }
        }
        let (mut of_before, mut of_after) = (Vec::new(), Vec::new());
        leaves(&before.root, &mut of_before);
        leaves(&after.root, &mut of_after);
        let copied = of_before.iter().zip(&of_after).filter(|(before, after)| before != after).count();
        assert_eq!((of_before.len() == of_after.len(), copied), (true, 1));
    }
}
