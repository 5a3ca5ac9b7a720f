// The switches of the driver in front, read once from the environment.
#pragma once

#include <ze_api.h>

#include <cstdint>
#include <string>

namespace front {

struct Switches {
  bool true_addresses;     // device memory has addresses that the host cannot read
  bool peers;              // the devices may access each other's memory
  bool blocking_copies;    // a copy between ordinary host memory and USM blocks its caller
  bool random_order;       // independent commands run in a random order
  bool trace;              // each call is written to stderr
  bool leaks;              // what is left at exit is reported
  unsigned delay;          // the longest random delay of a command, in microseconds
  uint64_t seed;           // of delays and orders
  std::string fail_call;   // the call that fails, or "any"
  uint64_t fail_number;    // the number of the failing call, from 1; 0: none
  ze_result_t fail_result; // its result
  uint64_t lost_after;     // the device is lost after this number of appended commands; 0: never
  std::string reports;     // a file to which reports are appended
  std::string opencl;      // the OpenCL CPU runtime
  std::string real;        // Intel's driver
};

const Switches &switches();

// Counts a call. A result other than success is what the call must return without effect.
ze_result_t enter(const char *call);

// Counts an appended command, for `lost_after`.
void count_append();

// Whether the device is lost.
bool lost();

// A number below `limit` from the seeded generator.
uint64_t random_below(uint64_t limit);

} // namespace front

// The first statement of each replaced call.
#define ENTER(call)                                                                                                    \
  if (ze_result_t entered = front::enter(call); entered != ZE_RESULT_SUCCESS) {                                        \
    return entered;                                                                                                    \
  }
