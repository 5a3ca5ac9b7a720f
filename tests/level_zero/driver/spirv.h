// What a SPIR-V module says about its kernels' parameters and its specialization constants.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace front {

struct Parameter {
  enum Kind {
    Value,     // a number, vector or opaque bytes
    Pointer,   // to global or constant memory
    Local,     // local memory, of a size that the launch gives
    Structure, // bytes that may hold pointers
    Other,     // images and samplers
  } kind;
  size_t size; // in bytes; of local memory 0
};

struct ModuleFacts {
  std::map<std::string, std::vector<Parameter>> kernels;
  std::map<uint32_t, size_t> constants; // the size of each specialization constant
};

bool is_spirv(const std::string &module);

ModuleFacts read_spirv(const std::string &module);

} // namespace front
