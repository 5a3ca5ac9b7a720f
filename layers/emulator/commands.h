// The steps of every command before it reaches the driver: injected faults, and the checks of its pointers.
#pragma once

#include "guarded.h"

#include <cstdint>

namespace usmq::emulator {

// The last parameters of every function that enqueues a command.
struct Order {
  cl_uint wait_count;
  const cl_event *wait_list;
  cl_event *event;
};

// Whether a command is device work; markers and barriers are not.
enum class Counts : std::uint8_t { no, yes };
// Whether the call returns when the command is complete.
enum class Blocks : std::uint8_t { no, yes };

using PutCommand = cl_int (*)(void *put, const Order &order);
cl_int enqueue_by(cl_command_queue queue, const Order &order, Counts counts, Blocks blocks, PutCommand call, void *put);

// Enqueues a command with `put(order)` unless a fault applies. A delay changes the order.
template <typename Put>
cl_int enqueue(cl_command_queue queue, const Order &order, Counts counts, Blocks blocks, Put put) {
  return enqueue_by(
      queue, order, counts, blocks, [](void *body, const Order &now) { return (*static_cast<Put *>(body))(now); },
      &put);
}

// Replaces the driver's functions for commands in a table by the layer's.
void replace_commands(cl_icd_dispatch &table);

cl_int CL_API_CALL enqueue_copy(cl_command_queue queue, cl_bool blocking, void *to, const void *from, std::size_t size,
                                cl_uint wait_count, const cl_event *wait_list, cl_event *event);
cl_int CL_API_CALL enqueue_fill(cl_command_queue queue, void *to, const void *pattern, std::size_t pattern_size,
                                std::size_t size, cl_uint wait_count, const cl_event *wait_list, cl_event *event);
cl_int CL_API_CALL enqueue_migrate(cl_command_queue queue, const void *pointer, std::size_t size,
                                   cl_mem_migration_flags flags, cl_uint wait_count, const cl_event *wait_list,
                                   cl_event *event);
cl_int CL_API_CALL enqueue_advise(cl_command_queue queue, const void *pointer, std::size_t size,
                                  cl_mem_advice_intel advice, cl_uint wait_count, const cl_event *wait_list,
                                  cl_event *event);

} // namespace usmq::emulator
