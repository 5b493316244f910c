//! The slots that each node serves, as reported by nodes.

use std::collections::BTreeSet;
use std::ops::RangeInclusive;

use crate::Value;
use crate::host_port::{HostPort, unbracketed};

use crate::slot::SLOTS;

/// One node's view of the topology.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct View {
    /// Rises with each change. An older view is out of date.
    pub(crate) epoch: u64,
    pub(crate) ranges: Vec<Range>,
    /// See [`Map::left`].
    pub(crate) left: Vec<HostPort>,
}

/// Some slots and the primary that serves them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Range {
    pub(crate) slots: RangeInclusive<u16>,
    pub(crate) node: HostPort,
    /// Other names of the node, by which `MOVED` may call it.
    pub(crate) also: Vec<HostPort>,
}

impl View {
    /// A view with one node that serves all slots, and has replaced the nodes in `left`.
    pub(crate) fn of_one(epoch: u64, node: HostPort, left: Vec<HostPort>) -> Self {
        Self { epoch, ranges: vec![Range { slots: 0..=SLOTS - 1, node, also: Vec::new() }], left }
    }

    /// Reads the answer to `CLUSTER SLOTS` of the node that was asked as `asked`. A range whose
    /// primary cannot be dialed is left out; `None` if the answer is something else.
    ///
    /// A host name is preferred to an address, because certificates are issued for names. A node
    /// that does not know its own name leaves it empty: then it is `asked`.
    pub(crate) fn of_slots(epoch: u64, reply: &Value, asked: &HostPort) -> Option<Self> {
        let Value::Array(ranges) = reply else { return None };
        let mut view = Self { epoch, ..Self::default() };
        for range in ranges {
            let Value::Array(parts) = range else { return None };
            let [Value::Int(first), Value::Int(last), Value::Array(primary), ..] = &parts[..]
            else {
                return None;
            };
            let (first, last) = (u16::try_from(*first).ok()?, u16::try_from(*last).ok()?);
            if first > last || last >= SLOTS {
                return None;
            }
            let mut names = names(primary, asked)?.into_iter();
            if let Some(node) = names.next() {
                view.ranges.push(Range { slots: first..=last, node, also: names.collect() });
            }
        }
        Some(view)
    }
}

/// The names of a node, the one to dial first; `None` if it is no node.
pub(super) fn names(node: &[Value], asked: &HostPort) -> Option<Vec<HostPort>> {
    let [endpoint, Value::Int(port), rest @ ..] = node else { return None };
    let port = u16::try_from(*port).ok()?;
    let endpoint = match endpoint {
        Value::Bytes(host) if host.is_empty() => asked.host.clone(),
        Value::Bytes(host) => String::from_utf8_lossy(host).into_owned(),
        // A node with `cluster-preferred-endpoint-type unknown-endpoint`.
        Value::Nil => asked.host.clone(),
        Value::Int(_) | Value::Array(_) => return None,
    };
    // After the node's id come pairs, from Redis 7 on.
    let pairs = match rest {
        [_, Value::Array(pairs), ..] => &pairs[..],
        _ => &[],
    };
    let mut hosts = Vec::new();
    for pair in pairs.chunks_exact(2) {
        if let [Value::Bytes(name), Value::Bytes(host)] = pair {
            let host = String::from_utf8_lossy(host).into_owned();
            match &name[..] {
                b"hostname" => hosts.insert(0, host),
                b"ip" => hosts.push(host),
                _ => {}
            }
        }
    }
    let has_name = pairs.chunks_exact(2).any(|pair| pair[0] == Value::Bytes("hostname".into()));
    hosts.insert(usize::from(has_name), endpoint);
    let mut names: Vec<_> = hosts.iter().filter_map(|host| HostPort::told(host, port)).collect();
    let mut seen = Vec::new();
    names.retain(|name| {
        let is_new = !seen.contains(name);
        seen.push(name.clone());
        is_new
    });
    Some(names)
}

/// A node's refusal to serve a slot that another one has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Moved {
    pub(crate) slot: u16,
    pub(crate) to: HostPort,
}

impl Moved {
    /// Reads `MOVED SLOT HOST:PORT`, the answer of the node that was asked as `asked`.
    pub(crate) fn read(line: &str, asked: &HostPort) -> Option<Self> {
        let mut words = line.strip_prefix("MOVED ")?.split_ascii_whitespace();
        let slot = words.next()?.parse().ok().filter(|slot| *slot < SLOTS)?;
        let (host, port) = words.next()?.rsplit_once(':')?;
        let host = match unbracketed(host) {
            "" => &asked.host,
            // This node does not know it, but another one may.
            "?" => return None,
            host => host,
        };
        Some(Self { slot, to: HostPort::told(host, port.parse().ok()?)? })
    }
}

/// The node of each slot. `N` is the data about a node.
#[derive(Clone, Debug)]
pub(crate) struct Map<N> {
    pub(crate) epoch: u64,
    /// By slot, an index into `nodes`.
    owners: Vec<u16>,
    nodes: Vec<(HostPort, N)>,
    /// Other names of nodes.
    also: Vec<(HostPort, u16)>,
    left: Vec<HostPort>,
}

/// The owner of an unassigned slot.
const UNASSIGNED: u16 = u16::MAX;

impl<N> Default for Map<N> {
    fn default() -> Self {
        let owners = vec![UNASSIGNED; usize::from(SLOTS)];
        Self { epoch: 0, owners, nodes: Vec::new(), also: Vec::new(), left: Vec::new() }
    }
}

impl<N: Clone> Map<N> {
    /// The map of a view. `node` returns the data about a node.
    ///
    /// # Errors
    ///
    /// Those of `node`.
    pub(crate) fn of<E>(
        view: &View,
        mut node: impl FnMut(&HostPort) -> Result<N, E>,
    ) -> Result<Self, E> {
        let mut map = Self { epoch: view.epoch, left: view.left.clone(), ..Self::default() };
        for Range { slots, node: name, also } in &view.ranges {
            let index = map.index(name, &mut node)?;
            for slot in slots.clone() {
                if let Some(owner) = map.owners.get_mut(usize::from(slot)) {
                    *owner = index;
                }
            }
            map.also.extend(also.iter().map(|name| (name.clone(), index)));
        }
        Ok(map)
    }

    /// This map after a node has reported the new owner of a slot.
    ///
    /// # Errors
    ///
    /// Those of `node`.
    pub(crate) fn with<E>(
        &self,
        moved: &Moved,
        mut node: impl FnMut(&HostPort) -> Result<N, E>,
    ) -> Result<Self, E> {
        let mut map = self.clone();
        let name = map.name(&moved.to).clone();
        let index = map.index(&name, &mut node)?;
        if let Some(owner) = map.owners.get_mut(usize::from(moved.slot)) {
            *owner = index;
        }
        Ok(map)
    }

    /// The servers that were replaced before or during this epoch. A server that still names one of
    /// them is out of date.
    pub(crate) fn left(&self) -> &[HostPort] {
        &self.left
    }

    /// The node that serves a slot.
    pub(crate) fn owner(&self, slot: u16) -> Option<&(HostPort, N)> {
        self.nodes.get(usize::from(*self.owners.get(usize::from(slot))?))
    }

    /// All nodes that serve slots, or have served them.
    pub(crate) fn nodes(&self) -> &[(HostPort, N)] {
        &self.nodes
    }

    /// The nodes that serve slots.
    pub(crate) fn owners(&self) -> impl Iterator<Item = &(HostPort, N)> {
        let indexes: BTreeSet<_> = self.owners.iter().map(|index| usize::from(*index)).collect();
        indexes.into_iter().filter_map(|index| self.nodes.get(index))
    }

    /// Whether every slot has the same owner in both maps.
    pub(crate) fn is_like(&self, other: &Self) -> bool {
        let owner = |map: &Self, slot| map.owner(slot).map(|(name, _)| name.clone());
        // Most neighbours have one owner, so few pairs are compared by name.
        let (mut last, mut same) = ((UNASSIGNED, UNASSIGNED), true);
        for (slot, pair) in (0..SLOTS).zip(self.owners.iter().zip(&other.owners)) {
            let pair = (*pair.0, *pair.1);
            if slot == 0 || pair != last {
                (last, same) = (pair, owner(self, slot) == owner(other, slot));
            }
            if !same {
                return false;
            }
        }
        true
    }

    /// The name that a node is dialed by.
    fn name<'a>(&'a self, name: &'a HostPort) -> &'a HostPort {
        let index = self.also.iter().find(|(also, _)| also == name).map(|(_, index)| *index);
        let node = index.and_then(|index| self.nodes.get(usize::from(index)));
        node.map_or(name, |(name, _)| name)
    }

    fn index<E>(
        &mut self,
        name: &HostPort,
        node: &mut impl FnMut(&HostPort) -> Result<N, E>,
    ) -> Result<u16, E> {
        let known = self.nodes.iter().position(|(known, _)| known == name);
        if known.is_none() {
            self.nodes.push((name.clone(), node(name)?));
        }
        // There are fewer nodes than slots.
        Ok(u16::try_from(known.unwrap_or(self.nodes.len() - 1)).unwrap_or(UNASSIGNED))
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    fn at(host: &str, port: u16) -> HostPort {
        HostPort { host: host.to_owned(), port }
    }

    fn text(text: &str) -> Value {
        Value::Bytes(text.to_owned().into())
    }

    fn slots(first: i64, last: i64, primary: Vec<Value>) -> Value {
        Value::Array(vec![Value::Int(first), Value::Int(last), Value::Array(primary)])
    }

    fn known(name: &HostPort) -> Result<String, Infallible> {
        Ok(name.to_string())
    }

    fn map(ranges: &[(u16, u16, &HostPort)]) -> Map<String> {
        let range = |(first, last, node): &(u16, u16, &HostPort)| Range {
            slots: *first..=*last,
            node: (*node).clone(),
            also: Vec::new(),
        };
        let Ok(map) = Map::of(
            &View { epoch: 1, ranges: ranges.iter().map(range).collect(), left: Vec::new() },
            known,
        );
        map
    }

    #[test]
    fn names_win_over_addresses_and_are_all_known() {
        let meta = Value::Array(vec![text("hostname"), text("a.example")]);
        let named = vec![text("10.0.0.1"), Value::Int(7000), text("id"), meta];
        let reply = Value::Array(vec![slots(0, 99, named)]);
        let view = View::of_slots(3, &reply, &at("seed", 1)).unwrap();
        assert_eq!(view.epoch, 3);
        assert_eq!(view.ranges[0].node, at("a.example", 7000));
        assert_eq!(view.ranges[0].also, [at("10.0.0.1", 7000)]);
        let Ok(map) = Map::of(&view, known);
        let moved = Moved { slot: 500, to: at("10.0.0.1", 7000) };
        let Ok(map) = map.with(&moved, known);
        assert_eq!(map.owner(500).unwrap().0, at("a.example", 7000), "it is no other node");
        assert_eq!(map.nodes().len(), 1);
    }

    #[test]
    fn a_node_without_a_name_is_the_one_that_was_asked() {
        for endpoint in [text(""), Value::Nil] {
            let reply = Value::Array(vec![slots(0, 1, vec![endpoint, Value::Int(7000)])]);
            let view = View::of_slots(0, &reply, &at("seed", 1)).unwrap();
            assert_eq!(view.ranges[0].node, at("seed", 7000));
        }
        let unknown = slots(0, 1, vec![text("?"), Value::Int(7000)]);
        let view = View::of_slots(0, &Value::Array(vec![unknown]), &at("seed", 1)).unwrap();
        assert_eq!(view.ranges, []);
    }

    #[test]
    fn moved_lines_are_read_or_refused() {
        let read = |line: &str| Moved::read(line, &at("asked", 1)).map(|it| (it.slot, it.to));
        assert_eq!(read("MOVED 3999 127.0.0.1:6381"), Some((3999, at("127.0.0.1", 6381))));
        assert_eq!(read("MOVED 0 :6381"), Some((0, at("asked", 6381))));
        assert_eq!(read("MOVED 0 ::1:6381"), Some((0, at("::1", 6381))));
        assert_eq!(read("MOVED 0 a.example:1"), Some((0, at("a.example", 1))));
        for line in [
            "MOVED",
            "MOVED 16384 a:1",
            "MOVED -1 a:1",
            "MOVED 1 a:0",
            "MOVED 1 a:65536",
            "MOVED 1 a",
            "MOVED 1 ?:1",
            "MOVED 1 user@a:1",
            "MOVED 1 a/b:1",
            "ASK 1 a:1",
        ] {
            assert_eq!(read(line), None, "{line}");
        }
        assert_eq!(read(&format!("MOVED 1 {}:1", "a".repeat(256))), None);
    }

    #[test]
    fn addresses_are_read_and_shown() {
        for good in ["a:1", "a.example:65535", "10.0.0.1:6379", "[::1]:7000"] {
            assert_eq!(good.parse::<HostPort>().unwrap().to_string(), good);
        }
        for bad in ["", "a", "a:", ":1", "a:0", "a:65536", "a b:1", "u@a:1"] {
            assert!(bad.parse::<HostPort>().is_err(), "{bad}");
        }
    }

    #[test]
    fn maps_differ_if_one_slot_does() {
        let (a, b) = (at("a", 1), at("b", 1));
        let whole = map(&[(0, 16_383, &a)]);
        assert!(whole.is_like(&map(&[(0, 99, &a), (100, 16_383, &a)])));
        for other in [
            map(&[(0, 16_382, &a)]),
            map(&[(0, 99, &a), (101, 16_383, &a)]),
            map(&[(0, 16_382, &a), (16_383, 16_383, &b)]),
            map(&[(0, 0, &b), (1, 16_383, &a)]),
            map(&[]),
        ] {
            assert!(!whole.is_like(&other) && !other.is_like(&whole));
        }
        let swapped = map(&[(0, 99, &b), (100, 16_383, &a)]);
        assert!(!swapped.is_like(&map(&[(0, 99, &a), (100, 16_383, &b)])), "same indices");
    }

    fn value() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Nil),
            prop_oneof![-2..20_000_i64, any::<i64>()].prop_map(Value::Int),
            prop_oneof![Just("hostname".to_owned()), "[a-z.:?\\[\\]]{0,6}"]
                .prop_map(|it| text(&it)),
        ];
        leaf.prop_recursive(4, 40, 5, |inner| vec(inner, 0..5).prop_map(Value::Array))
    }

    proptest! {
        #[test]
        fn any_reply_is_read_or_refused(reply in value(), slot in 0..SLOTS) {
            if let Some(view) = View::of_slots(1, &reply, &at("asked", 1)) {
                let Ok(map) = Map::of(&view, known);
                for range in &view.ranges {
                    prop_assert!(*range.slots.end() < SLOTS && range.node.port != 0);
                }
                let served = view.ranges.iter().rev().find(|range| range.slots.contains(&slot));
                prop_assert_eq!(map.owner(slot).map(|(name, _)| name), served.map(|it| &it.node));
            }
        }

        #[test]
        fn any_line_is_read_or_refused(line in "MOVED [0-9]{0,6} .{0,20}") {
            if let Some(moved) = Moved::read(&line, &at("asked", 1)) {
                prop_assert!(moved.slot < SLOTS && moved.to.port != 0);
                prop_assert_eq!(moved.to.to_string().parse::<HostPort>().unwrap(), moved.to);
            }
        }
    }
}
