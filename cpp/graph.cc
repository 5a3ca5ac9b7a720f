// Lists of commands that are submitted again with other pointers, and SYCL graphs made from them.
#include "bound_launch.h"

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
  // The launch with bound arguments, if at most the next command of its in-order queue comes after it.
  std::unique_ptr<BoundLaunch> bound;
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

std::uint32_t list_end(CommandList &list, rust::Slice<const std::uint32_t> ends, bool bind) {
  list.ends.assign(ends.begin(), ends.end());
  list.has_names = list.has_names || !ends.empty();
  if (!bind || list.commands.empty()) {
    return 0;
  }
  std::vector<bool> is_named(list.commands.size());
  // By the barrier at the end, or by the event of a submission.
  const auto &driver = list.commands.back().queue.driver;
  is_named.back() = !ends.empty() || !driver || !driver->gives_events();
  for (const std::uint32_t end : ends) {
    is_named.at(end) = true;
  }
  for (const auto &command : list.commands) {
    for (const std::uint32_t earlier : command.after) {
      is_named.at(earlier) = true;
    }
  }
  std::uint32_t bound = 0;
  for (std::size_t i = 0; i < list.commands.size(); ++i) {
    auto &command = list.commands[i];
    if (command.kernel && command.after.empty() && !is_named[i] && command.queue.handle.is_in_order()) {
      command.bound =
          BoundLaunch::bind(command.queue, *command.kernel, command.extents, {command.args.data(), command.args.size()},
                            {command.more.data(), command.more.size()});
      bound += command.bound != nullptr ? 1 : 0;
    }
  }
  return bound;
}

namespace {

void *pointer(const Pointers &pointers, std::size_t number) {
  return reinterpret_cast<void *>(pointers.addresses[number]);
}

// Adds the work of a command to a command group, of a queue or of a node.
void set_work(sycl::handler &handler, const CommandList::Command &command, const Pointers &pointers) {
  const PlainCommand &plain = command.plain;
  switch (plain.kind) {
  case CommandKind::Launch: {
    int index = 0;
    for (const KernelArg &arg : command.args) {
      if (arg.kind == KernelArgKind::Pointer) {
        handler.set_arg(index++, pointer(pointers, arg.value));
      } else {
        set_arg(handler, index++, arg, {command.more.data(), command.more.size()});
      }
    }
    // NOLINTNEXTLINE(bugprone-unchecked-optional-access): every launch has a kernel
    return start_kernel(handler, *command.kernel, command.extents);
  }
  case CommandKind::Copy:
    return handler.memcpy(pointer(pointers, plain.target), pointer(pointers, plain.source), plain.bytes);
  case CommandKind::Fill:
    return handler.memset(pointer(pointers, plain.target), plain.value, plain.bytes);
  case CommandKind::Prefetch:
    return handler.prefetch(pointer(pointers, plain.target), plain.bytes);
  case CommandKind::Advise:
    return handler.mem_advise(pointer(pointers, plain.target), plain.bytes, plain.value);
  default:
    return handler.ext_oneapi_barrier();
  }
}

// The command group of a command.
auto group(const CommandList::Command &command, const Pointers &pointers, const std::vector<sycl::event> &events,
           rust::Slice<const std::size_t> after) {
  return [&command, &events, &pointers, after](sycl::handler &handler) {
    if (command.is_first) {
      wait_for(handler, after);
    }
    for (const std::uint32_t earlier : command.after) {
      handler.depends_on(events[earlier]);
    }
    set_work(handler, command, pointers);
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
sycl::event after_failure(const CommandList &list, std::vector<sycl::event> events, std::size_t sent,
                          const sycl::event &last) {
  try {
    for (std::size_t i = 0; i < sent; ++i) {
      if (const auto &command = list.commands[i]; command.bound) { // which has no event
        events.push_back(command.queue.handle.submit([](sycl::handler &handler) { handler.ext_oneapi_barrier(); }));
      }
    }
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

std::unique_ptr<Event> list_submit(const CommandList &list, const Pointers &pointers,
                                   rust::Slice<const std::size_t> after, bool use_bound, rust::String &failure) {
  // A chain on one in-order queue names no event but the last. Commands without events were slower on a quiet machine.
  std::vector<sycl::event> events(list.has_names ? list.commands.size() : 0);
  std::vector<cl_event> natives;
  const std::vector<cl_event> none;
  const bool are_natives = driver_events(after, natives);
  sycl::event last;
  std::size_t sent = 0;
  try {
    for (; sent < list.commands.size(); ++sent) {
      const auto &command = list.commands[sent];
      USMQ_FAULT_POINT("list_submit (a command)");
      if (use_bound && command.bound && (!command.is_first || are_natives)) {
        const bool is_end = &command == &list.commands.back();
        auto event = is_end ? command.bound->new_event() : nullptr;
        const cl_int status =
            command.bound->enqueue(pointers.addresses, pointers.are_recorded, command.is_first ? natives : none,
                                   is_end ? event->place() : nullptr);
        if (status == CL_SUCCESS && is_end) {
          return event;
        }
        if (status == CL_SUCCESS) {
          continue;
        }
        // libsycl gets the command, too, and reports why the driver refuses it.
      }
      last = command.queue.handle.submit(group(command, pointers, events, after));
      if (list.has_names) {
        events[sent] = last;
      }
    }
    return std::make_unique<Event>(list.ends.empty() ? last : join(list, events, list.ends, last));
  } catch (...) {
    if (sent == 0) {
      throw;
    }
    failure = describe(std::current_exception());
    return std::make_unique<Event>(after_failure(list, std::move(events), sent, last));
  }
}

struct SyclGraph::Executable {
  exp::command_graph<exp::graph_state::executable> graph;
};

SyclGraph::SyclGraph(std::unique_ptr<Executable> made) : executable(std::move(made)) {}
SyclGraph::~SyclGraph() = default;

std::unique_ptr<SyclGraph> graph_new(const CommandList &list, const Context &context, const Device &device,
                                     const Pointers &pointers, rust::Slice<const std::uint32_t> edges) {
  exp::command_graph<exp::graph_state::modifiable> graph(context, device, {exp::property::graph::no_cycle_check{}});
  std::vector<exp::node> nodes;
  nodes.reserve(list.commands.size());
  for (const auto &command : list.commands) {
    // An empty node joins its predecessors, as a barrier does.
    nodes.push_back(command.plain.kind == CommandKind::Barrier ? graph.add() : graph.add([&](sycl::handler &handler) {
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
    wait_for(handler, after);
    handler.ext_oneapi_graph(graph.executable->graph);
  }));
}

} // namespace usmq
