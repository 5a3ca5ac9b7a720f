// Lists of commands that are submitted again with other pointers, and SYCL graphs made from them.
#include "usmq/src/ffi.rs.h"

#include <optional>
#include <sycl/ext/oneapi/experimental/graph.hpp>

namespace usmq {

namespace exp = sycl::ext::oneapi::experimental;

struct CommandList::Command {
  Command(const Queue &on, CommandKind of) : queue(on), kind(of) {}
  Queue queue;
  CommandKind kind;
  // Launches.
  std::optional<Kernel> kernel;
  std::uint32_t dimensions = 0;
  std::array<std::size_t, 3> global{}, local{};
  std::vector<KernelArg> args;
  // Other commands; pointers by their number.
  std::size_t target = 0, source = 0, bytes = 0;
  std::int32_t value = 0;
  // The commands before it that its queue does not order, by their number.
  std::vector<std::uint32_t> after;
  // Whether it comes after no other command of the list.
  bool is_first = false;
};

CommandList::CommandList() = default;
CommandList::~CommandList() = default;

std::unique_ptr<CommandList> list_new() { return std::make_unique<CommandList>(); }

void list_add_launch(CommandList &list, const Queue &queue, const Kernel &kernel, std::uint32_t dimensions,
                     const std::array<std::size_t, 3> &global, const std::array<std::size_t, 3> &local,
                     rust::Slice<const KernelArg> args) {
  CommandList::Command command(queue, CommandKind::Launch);
  command.kernel = kernel;
  command.dimensions = dimensions;
  command.global = global;
  command.local = local;
  command.args.assign(args.begin(), args.end());
  list.commands.push_back(std::move(command));
}

void list_add(CommandList &list, const Queue &queue, CommandKind kind, std::size_t target, std::size_t source,
              std::size_t bytes, std::int32_t value) {
  CommandList::Command command(queue, kind);
  command.target = target;
  command.source = source;
  command.bytes = bytes;
  command.value = value;
  list.commands.push_back(std::move(command));
}

void list_order(CommandList &list, rust::Slice<const std::uint32_t> after, bool is_first) {
  CommandList::Command &command = list.commands.back();
  command.after.assign(after.begin(), after.end());
  command.is_first = is_first;
  list.has_names = list.has_names || !after.empty();
}

void list_end(CommandList &list, rust::Slice<const std::uint32_t> ends) {
  list.ends.assign(ends.begin(), ends.end());
  list.has_names = list.has_names || !ends.empty();
}

namespace {

using Pointers = rust::Slice<const std::size_t>;

void *pointer(Pointers pointers, std::size_t number) { return reinterpret_cast<void *>(pointers[number]); }

// Adds the work of a command to a command group, of a queue or of a node.
void set_work(sycl::handler &handler, const CommandList::Command &command, Pointers pointers) {
  switch (command.kind) {
  case CommandKind::Launch: {
    int index = 0;
    for (const KernelArg &arg : command.args) {
      if (arg.kind == KernelArgKind::Pointer) {
        handler.set_arg(index++, pointer(pointers, arg.value));
      } else {
        set_argument(handler, index++, arg);
      }
    }
    return start_kernel(handler, *command.kernel, command.dimensions, command.global, command.local);
  }
  case CommandKind::Copy:
    return handler.memcpy(pointer(pointers, command.target), pointer(pointers, command.source), command.bytes);
  case CommandKind::Fill:
    return handler.memset(pointer(pointers, command.target), command.value, command.bytes);
  case CommandKind::Prefetch:
    return handler.prefetch(pointer(pointers, command.target), command.bytes);
  case CommandKind::Advise:
    return handler.mem_advise(pointer(pointers, command.target), command.bytes, command.value);
  default:
    return handler.ext_oneapi_barrier();
  }
}

Event submit(const CommandList::Command &command, Pointers pointers, const std::vector<Event> &events,
             rust::Slice<const std::size_t> after) {
  return command.queue.handle.submit([&](sycl::handler &handler) {
    if (command.is_first) {
      for (const std::size_t address : after) {
        handler.depends_on(*reinterpret_cast<const Event *>(address));
      }
    }
    for (const std::uint32_t earlier : command.after) {
      handler.depends_on(events[earlier]);
    }
    set_work(handler, command, pointers);
  });
}

Event join(const CommandList &list, const std::vector<Event> &events, const Event &last) {
  return list.commands.back().queue.handle.submit([&](sycl::handler &handler) {
    for (const std::uint32_t end : list.ends) {
      handler.depends_on(events[end]);
    }
    handler.depends_on(last);
    handler.ext_oneapi_barrier();
  });
}

} // namespace

std::unique_ptr<Event> list_submit(const CommandList &list, Pointers pointers, rust::Slice<const std::size_t> after,
                                   rust::String &failure) {
  // A chain on one in-order queue names no event but the last.
  std::vector<Event> events(list.has_names ? list.commands.size() : 0);
  Event last;
  std::size_t sent = 0;
  try {
    for (; sent < list.commands.size(); ++sent) {
      last = submit(list.commands[sent], pointers, events, after);
      if (list.has_names) {
        events[sent] = last;
      }
    }
    return std::make_unique<Event>(list.ends.empty() ? last : join(list, events, last));
  } catch (...) {
    if (sent == 0) {
      throw;
    }
    // The commands before the failed one run. Without their events, the caller could free memory that they use.
    failure = describe(std::current_exception());
    for (std::size_t i = 0; i < sent; ++i) {
      try {
        list.commands[i].queue.handle.wait();
      } catch (...) {
        // The next wait of the queue reports it.
      }
    }
    return std::make_unique<Event>(last);
  }
}

struct SyclGraph::Executable {
  exp::command_graph<exp::graph_state::executable> graph;
};

SyclGraph::SyclGraph(std::unique_ptr<Executable> made) : executable(std::move(made)) {}
SyclGraph::~SyclGraph() = default;

std::unique_ptr<SyclGraph> graph_new(const CommandList &list, const Context &context, const Device &device,
                                     Pointers pointers, rust::Slice<const std::uint32_t> edges) {
  exp::command_graph<exp::graph_state::modifiable> graph(context, device, {exp::property::graph::no_cycle_check{}});
  std::vector<exp::node> nodes;
  nodes.reserve(list.commands.size());
  for (const auto &command : list.commands) {
    // An empty node joins its predecessors, as a barrier does.
    nodes.push_back(command.kind == CommandKind::Barrier ? graph.add() : graph.add([&](sycl::handler &handler) {
      set_work(handler, command, pointers);
    }));
  }
  for (std::size_t i = 0; i + 1 < edges.size(); i += 2) {
    graph.make_edge(nodes.at(edges[i]), nodes.at(edges[i + 1]));
  }
  return std::make_unique<SyclGraph>(std::make_unique<SyclGraph::Executable>(SyclGraph::Executable{graph.finalize()}));
}

std::unique_ptr<Event> graph_submit(const SyclGraph &graph, const Queue &queue, rust::Slice<const std::size_t> after) {
  return std::make_unique<Event>(queue.handle.submit([&](sycl::handler &handler) {
    for (const std::size_t address : after) {
      handler.depends_on(*reinterpret_cast<const Event *>(address));
    }
    handler.ext_oneapi_graph(graph.executable->graph);
  }));
}

} // namespace usmq
