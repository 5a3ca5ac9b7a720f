//! A graph: the commands of a capture, prepared for replays.

use super::inputs::{Input, LogIds, elements, log_ids, share_log};
use super::partition::{Item, Part, links, parts};
use crate::device::command_list::{CommandList, Listed, SyclGraph, each_pointer};
use crate::device::recording::Work;
use crate::device::{Context, Device, Event, Queue};
use crate::error::{Error, Result};
use crate::memory::{Access, Allocation, Node, Used, drop_after};
use parking_lot::Mutex;
use std::ops::Range;
use std::sync::Arc;

/// Commands that [`capture`](crate::capture()) has recorded. A clone is the same graph.
#[derive(Clone)]
pub struct Graph(pub(super) Arc<Inner>);

pub(super) struct Inner {
    pub nodes: Vec<Drawn>,
    pub memory: Vec<Memory>,
    pub inputs: Vec<Bound>,
    /// The addresses in the commands, by number, and the memory to which each belongs.
    pub addresses: Vec<usize>,
    pub owners: Vec<usize>,
    /// Dropped after the last replay: a command may use the objects until then.
    pub parts: Box<[Prepared]>,
    /// The parts that no other follows, by number.
    pub ends: Vec<usize>,
    /// The queue of the event of a replay.
    pub queue: Queue,
    /// Whether all commands are on this queue.
    pub is_alone: bool,
    /// Held while the parts are submitted, before the access logs.
    pub turn: Mutex<()>,
    /// The events of the replays that may be in flight, and of the submitted commands of failed ones.
    pub replays: Mutex<Vec<Event>>,
}

/// A command, as [`Graph::svg`] and [`Graph::explain`] show it.
pub(super) struct Drawn {
    pub label: String,
    pub is_copy: bool,
    pub queue: Queue,
    pub after: Vec<u32>,
}

/// An allocation that the commands use.
pub(super) struct Memory {
    pub allocation: Arc<Allocation>,
    pub access: Access,
    pub logs: LogIds,
    /// The addresses that the commands use.
    touched: Range<usize>,
}

/// An input, and the memory that it names: nothing if no command uses it, several if the capture has imported it again.
pub(super) struct Bound {
    pub input: Input,
    pub memory: Vec<usize>,
    /// The union of all accesses.
    pub access: Option<Access>,
    /// The queues of the commands that use it.
    pub queues: Vec<Queue>,
}

/// A part, ready for submission.
pub(super) struct Prepared {
    pub part: Part,
    pub place: (Context, Device),
    pub queue: Queue,
    pub list: CommandList,
    pub graph: Option<SyclGraph>,
    /// Why it is a SYCL graph or a list.
    pub why: String,
}

impl Graph {
    pub(super) fn new(mut nodes: Vec<Node>, used: Vec<Used>, inputs: &[Input], queue: Queue) -> Result<Self> {
        let memory = used.into_iter().filter_map(|used| {
            let allocation = used.memory.downcast::<Allocation>().ok()?;
            Some(Memory {
                logs: log_ids(&allocation),
                allocation,
                access: used.access,
                touched: used.touched,
            })
        });
        let memory: Vec<_> = memory.collect();
        let Numbered { addresses, owners, users } = number_pointers(&mut nodes, &memory)?;
        let inputs = bind(inputs, &users, &memory)?;

        let mut places: Vec<(Context, Device)> = Vec::new();
        let items: Vec<_> = nodes
            .iter()
            .map(|node| {
                let place = (node.queue.context().clone(), node.queue.device().clone());
                let known = places.iter().position(|known| *known == place);
                let place = known.unwrap_or_else(|| {
                    places.push(place);
                    places.len() - 1
                });
                let in_order = node.queue.in_order().then(|| node.queue.id());
                Item { place, in_order, after: node.after.clone() }
            })
            .collect();
        let parts = parts(&items);
        let prepared = parts.into_iter().map(|part| prepare(part, &items, &nodes, &places, &addresses));
        let parts: Box<[_]> = prepared.collect::<Result<_>>()?;
        let is_end = |number: &usize| !parts.iter().any(|later| later.part.before.contains(number));
        let ends = (0..parts.len()).filter(is_end).collect();
        let queue = parts.last().map_or(queue, |part| part.queue.clone());
        let is_alone = nodes.iter().all(|node| node.queue == queue);
        let nodes = nodes.into_iter().map(Drawn::new).collect();
        let (turn, replays) = (Mutex::default(), Mutex::default());
        let inner =
            Inner { nodes, memory, inputs, addresses, owners, parts, ends, queue, is_alone, turn, replays };
        Ok(Self(Arc::new(inner)))
    }
}

/// Finds the memory of each input, also if the capture has imported it again, and checks that the commands use the
/// elements of the input only.
fn bind(inputs: &[Input], users: &[Vec<Queue>], memory: &[Memory]) -> Result<Vec<Bound>> {
    let one = |input: &Input| {
        let (logs, inside) = (log_ids(input.array.allocation()), elements(&input.array));
        let own = |number: &usize| share_log(&memory[*number].logs, &logs);
        let own: Vec<usize> = (0..memory.len()).filter(own).collect();
        let mut access: Option<Access> = None;
        let mut queues: Vec<Queue> = Vec::new();
        for number in &own {
            let Memory { touched, access: this, .. } = &memory[*number];
            if !touched.is_empty() && (touched.start < inside.start || touched.end > inside.end) {
                return Err(Error::Capture {
                    call: format!("a replay with another array as input {:?}", input.name),
                    found: format!("the capture uses memory of {} outside of its elements", input.array),
                    fix: "make the whole array the input".to_owned(),
                });
            }
            access = Some(access.map_or(*this, |access| access.and(*this)));
            queues.extend_from_slice(&users[*number]);
        }
        Ok(Bound { input: input.clone(), memory: own, access, queues })
    };
    inputs.iter().map(one).collect()
}

/// The addresses in the commands, by number.
struct Numbered {
    addresses: Vec<usize>,
    /// The memory of each address.
    owners: Vec<usize>,
    /// For each memory, the queues of the commands with an address in it. A copy between two contexts has commands that
    /// use one of its arrays only.
    users: Vec<Vec<Queue>>,
}

/// Replaces the addresses in the commands by numbers.
fn number_pointers(nodes: &mut [Node], memory: &[Memory]) -> Result<Numbered> {
    let (mut addresses, mut owners) = (Vec::new(), Vec::new());
    let mut users: Vec<Vec<Queue>> = vec![Vec::new(); memory.len()];
    for node in nodes {
        let (uses, queue, work) = (&node.uses, &node.queue, &mut node.work);
        each_pointer(work, |pointer| {
            let holds = |number: &&usize| {
                let allocation = &memory[**number].allocation;
                // One past the end: a view without elements.
                (allocation.pointer()..=allocation.pointer() + allocation.bytes()).contains(pointer)
            };
            let inside = |number: &&usize| {
                let allocation = &memory[**number].allocation;
                *pointer < allocation.pointer() + allocation.bytes()
            };
            let mut held = uses.iter().filter(holds);
            let Some(owner) = held.clone().find(inside).or_else(|| held.next()) else {
                return Err(Error::value(format!(
                    "a command of the capture uses {pointer:#x}, which belongs to none of its arrays"
                )));
            };
            addresses.push(*pointer);
            owners.push(*owner);
            if !users[*owner].contains(queue) {
                users[*owner].push(queue.clone());
            }
            *pointer = addresses.len() - 1;
            Ok(())
        })?;
    }
    Ok(Numbered { addresses, owners, users })
}

/// A SYCL graph has at least this number of commands: its submission costs as much as a few of them.
const FEW: usize = 10;

/// `1` uses SYCL graphs on each device that has them, `0` on none.
const GRAPHS: &str = "USMQ_SYCL_GRAPHS";

fn prepare(
    part: Part,
    items: &[Item],
    nodes: &[Node],
    places: &[(Context, Device)],
    addresses: &[usize],
) -> Result<Prepared> {
    let links = links(items, &part.nodes);
    let members = || part.nodes.iter().map(|node| &nodes[*node as usize]);
    let listed: Vec<_> = members()
        .enumerate()
        .map(|(at, node)| Listed {
            queue: &node.queue,
            work: &node.work,
            after: &links.after[at],
            is_first: links.is_first[at],
        })
        .collect();
    // A part has at least one command.
    let last = part.nodes[part.nodes.len() - 1] as usize;
    let (queue, place) = (nodes[last].queue.clone(), places[items[last].place].clone());
    let list = CommandList::new(&listed, &links.ends, &queue)?;
    let refused = why_no_graph(&place.1, members())?;
    let (graph, why) = match refused {
        Some(why) => (None, why),
        None => match SyclGraph::new(&list, (&place.0, &place.1), addresses, &links.edges) {
            Ok(graph) => (Some(graph), "the device has ext_oneapi_limited_graph".to_owned()),
            Err(error) => (None, format!("the runtime refused a SYCL graph ({error})")),
        },
    };
    Ok(Prepared { part, place, queue, list, graph, why })
}

/// Why these commands do not become a SYCL graph, if so.
fn why_no_graph<'a>(
    device: &Device,
    nodes: impl Iterator<Item = &'a Node> + Clone,
) -> Result<Option<String>> {
    let wanted = std::env::var_os(GRAPHS);
    let prefers = device.capabilities().prefers_graphs;
    if !wanted.as_ref().map_or(prefers, |wanted| wanted == "1") {
        return Ok(Some(match wanted {
            Some(wanted) => format!("{GRAPHS} is {}, not 1", wanted.to_string_lossy()),
            None => format!("usmq uses SYCL graphs on this backend with {GRAPHS}=1 only"),
        }));
    }
    if let Some(without) = device.capabilities().no_graphs_on
        && device.platform()?.name() == without
    {
        return Ok(Some("adapter v1 of Level Zero waits at a SYCL graph for other work, too".to_owned()));
    }
    let count = nodes.clone().count();
    if count < FEW {
        return Ok(Some(format!("a SYCL graph of fewer than {FEW} commands is not faster")));
    }
    if !device.aspect_names()?.iter().any(|name| name == "ext_oneapi_limited_graph") {
        return Ok(Some("the device has no SYCL graphs (ext_oneapi_limited_graph)".to_owned()));
    }
    let is_hint = |node: &Node| matches!(node.work, Work::Prefetch { .. } | Work::Advise { .. });
    if nodes.clone().any(is_hint) {
        return Ok(Some("SYCL graphs take no prefetch and no advice".to_owned()));
    }
    if nodes.clone().any(|node| node.queue.profiling()) {
        return Ok(Some("a queue records timestamps of its commands".to_owned()));
    }
    Ok(None)
}

impl Drawn {
    fn new(node: Node) -> Self {
        let size = |bytes: usize| crate::error::size(bytes as u64);
        let label = match (&node.work, &node.name) {
            (Work::Launch { .. }, Some(name)) => name.to_string(),
            (Work::Launch { .. }, None) => "kernel".to_owned(),
            (Work::Copy { bytes, .. }, _) => format!("copy {}", size(*bytes)),
            (Work::Fill { bytes, .. }, _) => format!("fill {}", size(*bytes)),
            (Work::Prefetch { bytes, .. }, _) => format!("prefetch {}", size(*bytes)),
            (Work::Advise { bytes, .. }, _) => format!("advice {}", size(*bytes)),
            (Work::Barrier, _) => "barrier".to_owned(),
        };
        let is_copy = !matches!(node.work, Work::Launch { .. } | Work::Barrier);
        Self { label, is_copy, queue: node.queue, after: node.after }
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        // Replays in flight use the kernels and queues. Their logs keep the memory.
        let parts = std::mem::take(&mut self.parts);
        let replays = std::mem::take(self.replays.get_mut());
        drop_after(Box::new(parts), replays.into_iter().filter(|event| !event.is_complete()).collect());
    }
}
