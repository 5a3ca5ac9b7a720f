// Kernels on the OpenCL CPU runtime.
#pragma once

#include "spirv.h"

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace front {

// The SPIR-V of a module, and the values of its specialization constants.
struct Source {
  std::vector<std::string> modules;
  std::vector<std::vector<std::pair<uint32_t, std::string>>> constants; // as many as modules

  std::string serialize() const;
  static Source parse(const std::string &text);
};

struct Argument {
  bool set = false;
  bool null = false; // a null pointer in place of the bytes
  std::string bytes; // of local memory: as many as it has
};

class Program;

// The program of a source, built when a kernel of it is first appended, or a variable is asked for.
std::shared_ptr<Program> program_of(const Source &source);

const std::vector<Parameter> *parameters_of(Program &program, const std::string &kernel);

// The address of a global variable on the host, or null.
void *variable_of(Program &program, const std::string &name);

// Builds the program, so that no engine compiles while the process ends.
void prepare(Program &program);

// Runs a kernel to its end. The arguments have addresses of the host.
void run_kernel(Program &program, const std::string &kernel, const std::vector<Argument> &arguments,
                const size_t offset[3], const size_t global[3], const size_t local[3]);

} // namespace front
