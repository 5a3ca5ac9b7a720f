// Lists of commands that are submitted again with other pointers, and SYCL graphs made from them.
#include "faults.h"
#include "usmq/src/ffi.rs.h"

#include <numeric>
#include <optional>
#include <sycl/ext/oneapi/experimental/graph.hpp>

namespace usmq {

namespace exp = sycl::ext::oneapi::experimental;

struct CommandList::Command {
  explicit Command(const Queue &on) : queue(on) {}
  Queue queue;
  // Launches.
  std::optional<Kernel> kernel;
  Extents extents{};
  std::vector<KernelArg> args;
  std::vector<std::uint8_t> more;
  // Other commands; pointers by their number.
  PlainCommand plain{};
  // The commands before it that its queue does not order, by their number.
  std::vector<std::uint32_t> after;
  // Whether it comes after no other command of the list.
  bool is_first = false;
};

CommandList::CommandList() = default;
CommandList::~CommandList() = default;

std::unique_ptr<CommandList> list_new() { return std::make_unique<CommandList>(); }

namespace {

void add(CommandList &list, CommandList::Command command, const ListPlace &place) {
  command.after.assign(place.after.begin(), place.after.end());
  command.is_first = place.is_first;
  list.has_names = list.has_names || !place.after.empty();
  list.commands.push_back(std::move(command));
}

} // namespace

void list_add_launch(CommandList &list, const Queue &queue, const Kernel &kernel, const Extents &extents,
                     rust::Slice<const KernelArg> args, rust::Slice<const std::uint8_t> more, ListPlace place) {
  CommandList::Command command(queue);
  command.plain.kind = CommandKind::Launch;
  command.kernel = kernel;
  command.extents = extents;
  command.args.assign(args.begin(), args.end());
  command.more.assign(more.begin(), more.end());
  add(list, std::move(command), place);
}

void list_add(CommandList &list, const Queue &queue, const PlainCommand &plain, ListPlace place) {
  CommandList::Command command(queue);
  command.plain = plain;
  add(list, std::move(command), place);
}

void list_end(CommandList &list, rust::Slice<const std::uint32_t> ends) {
  list.ends.assign(ends.begin(), ends.end());
  list.has_names = list.has_names || !ends.empty();
}

namespace {

using Addresses = rust::Slice<const std::size_t>;

void *pointer(Addresses addresses, std::size_t number) { return reinterpret_cast<void *>(addresses[number]); }

// Adds the work of a command to a command group, of a queue or of a node.
void set_work(sycl::handler &handler, const CommandList::Command &command, Addresses addresses) {
  const PlainCommand &plain = command.plain;
  switch (plain.kind) {
  case CommandKind::Launch: {
    int index = 0;
    for (const KernelArg &arg : command.args) {
      if (arg.kind == KernelArgKind::Pointer) {
        handler.set_arg(index++, pointer(addresses, arg.value));
      } else {
        set_arg(handler, index++, arg, {command.more.data(), command.more.size()});
      }
    }
    // NOLINTNEXTLINE(bugprone-unchecked-optional-access): every launch has a kernel
    return start_kernel(handler, *command.kernel, command.extents);
  }
  case CommandKind::Copy:
    return handler.memcpy(pointer(addresses, plain.target), pointer(addresses, plain.source), plain.bytes);
  case CommandKind::Fill:
    return handler.memset(pointer(addresses, plain.target), plain.value, plain.bytes);
  case CommandKind::Prefetch:
    return handler.prefetch(pointer(addresses, plain.target), plain.bytes);
  case CommandKind::Advise:
    return handler.mem_advise(pointer(addresses, plain.target), plain.bytes, plain.value);
  default:
    return handler.ext_oneapi_barrier();
  }
}

// The command group of a command.
auto group(const CommandList::Command &command, Addresses addresses, const std::vector<sycl::event> &events,
           rust::Slice<const std::size_t> after) {
  return [&command, &events, addresses, after](sycl::handler &handler) {
    if (command.is_first) {
      wait_for(handler, after);
    }
    for (const std::uint32_t earlier : command.after) {
      handler.depends_on(events[earlier]);
    }
    set_work(handler, command, addresses);
  };
}

// An event of the list's queue that completes after those of these commands, and after `last`.
template <typename Numbers>
sycl::event join(const CommandList &list, const std::vector<sycl::event> &events, const Numbers &ends,
                 const sycl::event &last) {
  USMQ_FAULT_POINT("list_submit (its end)");
  return list.commands.back().queue.handle.submit([&](sycl::handler &handler) {
    for (const auto end : ends) {
      handler.depends_on(events[end]);
    }
    handler.depends_on(last);
    handler.ext_oneapi_barrier();
  });
}

// An event that completes after the first `sent` commands of a list that failed. Without it, the caller could free
// memory that they use. They may follow a host task of another library, so this does not wait for them if it need not.
sycl::event after_failure(const CommandList &list, const std::vector<sycl::event> &events, std::size_t sent,
                          const sycl::event &last) {
  try {
    std::vector<std::size_t> all(events.size());
    std::iota(all.begin(), all.end(), std::size_t{0});
    return all.empty() ? last : join(list, events, all, last);
  } catch (...) {
    for (std::size_t i = 0; i < sent; ++i) {
      try {
        list.commands[i].queue.handle.wait();
      } catch (...) {
        // The next wait of the queue reports it.
      }
    }
    return last;
  }
}

} // namespace

std::unique_ptr<Event> list_submit(const CommandList &list, Addresses addresses, rust::Slice<const std::size_t> after,
                                   rust::String &failure) {
  // A chain on one in-order queue names no event but the last. Commands without events were slower on a quiet machine.
  std::vector<sycl::event> events(list.has_names ? list.commands.size() : 0);
  sycl::event last;
  std::size_t sent = 0;
  try {
    for (; sent < list.commands.size(); ++sent) {
      const auto &command = list.commands[sent];
      USMQ_FAULT_POINT("list_submit (a command)");
      last = command.queue.handle.submit(group(command, addresses, events, after));
      if (list.has_names) {
        events[sent] = last;
      }
    }
    return own(list.ends.empty() ? last : join(list, events, list.ends, last));
  } catch (...) {
    if (sent == 0) {
      throw;
    }
    failure = describe(std::current_exception());
    return own(after_failure(list, events, sent, last));
  }
}

struct SyclGraph::Executable {
  exp::command_graph<exp::graph_state::executable> graph;
};

SyclGraph::SyclGraph(std::unique_ptr<Executable> made) : executable(std::move(made)) {}
SyclGraph::~SyclGraph() = default;

std::unique_ptr<SyclGraph> graph_new(const CommandList &list, const Context &context, const Device &device,
                                     Addresses addresses, rust::Slice<const std::uint32_t> edges) {
  exp::command_graph<exp::graph_state::modifiable> graph(context, device, {exp::property::graph::no_cycle_check{}});
  std::vector<exp::node> nodes;
  nodes.reserve(list.commands.size());
  for (const auto &command : list.commands) {
    // An empty node joins its predecessors, as a barrier does.
    nodes.push_back(command.plain.kind == CommandKind::Barrier ? graph.add() : graph.add([&](sycl::handler &handler) {
      set_work(handler, command, addresses);
    }));
  }
  for (std::size_t i = 0; i + 1 < edges.size(); i += 2) {
    graph.make_edge(nodes.at(edges[i]), nodes.at(edges[i + 1]));
  }
  return std::make_unique<SyclGraph>(std::make_unique<SyclGraph::Executable>(SyclGraph::Executable{graph.finalize()}));
}

std::unique_ptr<Event> graph_submit(const SyclGraph &graph, const Queue &queue, rust::Slice<const std::size_t> after) {
  return own(queue.handle.submit([&](sycl::handler &handler) {
    wait_for(handler, after);
    handler.ext_oneapi_graph(graph.executable->graph);
  }));
}

} // namespace usmq
