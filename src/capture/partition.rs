//! Divides the commands of a capture into parts, each of one context and device. Pure.

use std::collections::BTreeMap;

/// A command, as the division sees it.
#[derive(Debug, Clone)]
pub(super) struct Item {
    /// The number of its context and device.
    pub place: usize,
    /// Its queue, if that is in-order.
    pub in_order: Option<usize>,
    /// The earlier commands that it follows.
    pub after: Vec<u32>,
}

/// Commands of one place, which a replay submits together.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Part {
    /// The commands, in the order of the capture.
    pub nodes: Vec<u32>,
    /// The parts that it follows, by number; all are earlier.
    pub before: Vec<usize>,
}

/// The order inside of a part, by the numbers of commands in the part.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Links {
    /// For each command, those that it follows and its in-order queue does not order.
    pub after: Vec<Vec<u32>>,
    /// For each command, whether it follows no command of the part.
    pub is_first: Vec<bool>,
    /// The commands, besides the last one, that no other follows.
    pub ends: Vec<u32>,
    /// Pairs of commands of which the second follows the first.
    pub edges: Vec<u32>,
}

/// A part begins where work comes back from another place: then no two parts wait for each other.
pub(super) fn parts(items: &[Item]) -> Vec<Part> {
    let mut levels: Vec<usize> = Vec::with_capacity(items.len());
    for item in items {
        let level = item.after.iter().map(|earlier| {
            let earlier = *earlier as usize;
            levels[earlier] + usize::from(items[earlier].place != item.place)
        });
        levels.push(level.max().unwrap_or(0));
    }
    let mut keyed: BTreeMap<(usize, usize), Vec<u32>> = BTreeMap::new();
    for (number, item) in items.iter().enumerate() {
        keyed.entry((levels[number], item.place)).or_default().push(number as u32);
    }
    let mut part_of = vec![0; items.len()];
    for (part, nodes) in keyed.values().enumerate() {
        nodes.iter().for_each(|node| part_of[*node as usize] = part);
    }
    let parts = keyed.into_values().enumerate();
    parts
        .map(|(part, nodes)| {
            let earlier = nodes.iter().flat_map(|node| &items[*node as usize].after);
            let mut before: Vec<_> =
                earlier.map(|node| part_of[*node as usize]).filter(|of| *of != part).collect();
            before.sort_unstable();
            before.dedup();
            Part { nodes, before }
        })
        .collect()
}

pub(super) fn links(items: &[Item], nodes: &[u32]) -> Links {
    let mut links = Links { after: Vec::new(), is_first: Vec::new(), ends: Vec::new(), edges: Vec::new() };
    let mut is_followed = vec![false; nodes.len()];
    for (at, node) in nodes.iter().enumerate() {
        let item = &items[*node as usize];
        let inside: Vec<u32> = item
            .after
            .iter()
            .filter_map(|earlier| nodes.binary_search(earlier).ok())
            .map(|earlier| earlier as u32)
            .collect();
        for earlier in &inside {
            is_followed[*earlier as usize] = true;
            links.edges.extend([*earlier, at as u32]);
        }
        links.is_first.push(inside.is_empty());
        let by_queue = |earlier: &u32| {
            let other = items[nodes[*earlier as usize] as usize].in_order;
            other.is_some() && other == item.in_order
        };
        links.after.push(inside.into_iter().filter(|earlier| !by_queue(earlier)).collect());
    }
    let last = nodes.len().saturating_sub(1);
    links.ends = (0..last).filter(|at| !is_followed[*at]).map(|at| at as u32).collect();
    links
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn item(place: usize, queue: Option<usize>, after: &[u32]) -> Item {
        Item { place, in_order: queue, after: after.to_vec() }
    }

    #[test]
    fn a_chain_on_one_queue_is_one_part_without_events() {
        let items = [item(0, Some(1), &[]), item(0, Some(1), &[0]), item(0, Some(1), &[1])];
        assert_eq!(parts(&items), [Part { nodes: vec![0, 1, 2], before: vec![] }]);
        let links = links(&items, &[0, 1, 2]);
        assert!(links.after.iter().all(Vec::is_empty));
        assert_eq!((links.is_first, links.ends), (vec![true, false, false], vec![]));
        assert_eq!(links.edges, [0, 1, 1, 2]);
    }

    #[test]
    fn two_queues_of_one_place_are_joined_by_events() {
        let items =
            [item(0, Some(1), &[]), item(0, Some(2), &[0]), item(0, Some(1), &[0]), item(0, Some(2), &[1])];
        let links = links(&items, &[0, 1, 2, 3]);
        assert_eq!(links.after, [vec![], vec![0], vec![], vec![]]);
        assert_eq!(links.ends, [2]);
    }

    #[test]
    fn work_that_comes_back_begins_a_part() {
        let items = [item(0, Some(1), &[]), item(1, Some(2), &[0]), item(0, Some(1), &[0, 1])];
        let expected = [(vec![0], vec![]), (vec![1], vec![0]), (vec![2], vec![0, 1])];
        let expected = expected.map(|(nodes, before)| Part { nodes, before });
        assert_eq!(parts(&items), expected);
    }

    proptest! {
        #[test]
        fn parts_come_after_all_that_their_commands_follow(
            commands in prop::collection::vec((0..3usize, prop::collection::vec(0..40u32, 0..3)), 0..40),
        ) {
            let items: Vec<_> = commands.into_iter().enumerate().map(|(number, (place, after))| {
                let after: Vec<u32> = after.into_iter().filter(|earlier| (*earlier as usize) < number).collect();
                item(place, Some(place), &after)
            }).collect();
            let parts = parts(&items);
            let part_of = |node: u32| parts.iter().position(|part| part.nodes.contains(&node)).unwrap();
            prop_assert_eq!(parts.iter().map(|part| part.nodes.len()).sum::<usize>(), items.len());
            for (number, part) in parts.iter().enumerate() {
                prop_assert!(part.before.iter().all(|before| *before < number));
                for node in &part.nodes {
                    let item = &items[*node as usize];
                    prop_assert_eq!(item.place, items[part.nodes[0] as usize].place);
                    for earlier in &item.after {
                        let of = part_of(*earlier);
                        prop_assert!(of == number || part.before.contains(&of));
                    }
                }
            }
        }
    }
}
