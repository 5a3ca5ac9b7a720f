// Reads the instructions of a SPIR-V module that describe kernels and constants. Source: SPIR-V 1.6, section 3.
#include "spirv.h"

#include <algorithm>
#include <cstring>
#include <set>

namespace front {
namespace {

constexpr uint32_t MAGIC = 0x07230203;
constexpr size_t HEADER_WORDS = 5;

enum Op : uint16_t {
  OpEntryPoint = 15,
  OpTypeBool = 20,
  OpTypeInt = 21,
  OpTypeFloat = 22,
  OpTypeVector = 23,
  OpTypeArray = 28,
  OpTypeStruct = 30,
  OpTypePointer = 32,
  OpConstant = 43,
  OpSpecConstantTrue = 48,
  OpSpecConstantFalse = 49,
  OpSpecConstant = 50,
  OpFunction = 54,
  OpFunctionParameter = 55,
  OpDecorate = 71,
  OpTypeUntypedPointer = 4417,
};

constexpr uint32_t KERNEL = 6;
constexpr uint32_t SPEC_ID = 1;
constexpr uint32_t PACKED = 10;
constexpr uint32_t WORKGROUP = 4;
constexpr uint32_t FUNCTION = 7;

struct Type {
  uint16_t op = 0;
  std::vector<uint32_t> operands;
};

class Reader {
public:
  explicit Reader(const std::string &module) : words(module.size() / 4) {
    std::memcpy(words.data(), module.data(), words.size() * 4);
  }

  ModuleFacts read() {
    for (size_t at = HEADER_WORDS; at < words.size();) {
      const size_t length = words[at] >> 16;
      if (length == 0 || at + length > words.size()) {
        break;
      }
      instruction(static_cast<uint16_t>(words[at] & 0xffff),
                  std::vector<uint32_t>(words.begin() + static_cast<std::ptrdiff_t>(at) + 1,
                                        words.begin() + static_cast<std::ptrdiff_t>(at + length)));
      at += length;
    }
    ModuleFacts facts;
    for (const auto &[id, name] : entries) {
      auto &parameters = facts.kernels[name];
      for (const uint32_t type : functions[id]) {
        parameters.push_back(parameter(type));
      }
    }
    for (const auto &[result, number] : spec_ids) {
      facts.constants[number] = constant_sizes[result];
    }
    return facts;
  }

private:
  std::vector<uint32_t> words;
  std::map<uint32_t, Type> types;
  std::map<uint32_t, uint32_t> lengths; // of arrays: constants
  std::map<uint32_t, std::string> entries;
  std::map<uint32_t, std::vector<uint32_t>> functions;
  std::map<uint32_t, uint32_t> spec_ids;
  std::map<uint32_t, size_t> constant_sizes;
  std::set<uint32_t> packed;
  uint32_t function = 0;

  void instruction(uint16_t op, std::vector<uint32_t> operands) {
    switch (op) {
    case OpEntryPoint:
      if (operands[0] == KERNEL) {
        // The name ends at its first zero byte.
        entries[operands[1]] = reinterpret_cast<const char *>(&operands[2]);
      }
      break;
    case OpTypeBool:
    case OpTypeInt:
    case OpTypeFloat:
    case OpTypeVector:
    case OpTypeArray:
    case OpTypeStruct:
    case OpTypePointer:
    case OpTypeUntypedPointer:
      types[operands[0]] = {op, {operands.begin() + 1, operands.end()}};
      break;
    case OpConstant:
      lengths[operands[1]] = operands[2];
      break;
    case OpSpecConstantTrue:
    case OpSpecConstantFalse:
      constant_sizes[operands[1]] = 1;
      break;
    case OpSpecConstant:
      constant_sizes[operands[1]] = size(operands[0]);
      lengths[operands[1]] = operands[2];
      break;
    case OpFunction:
      function = operands[1];
      break;
    case OpFunctionParameter:
      functions[function].push_back(operands[0]);
      break;
    case OpDecorate:
      if (operands[1] == SPEC_ID) {
        spec_ids[operands[0]] = operands[2];
      } else if (operands[1] == PACKED) {
        packed.insert(operands[0]);
      }
      break;
    default:
      break;
    }
  }

  size_t size(uint32_t id) const {
    const auto found = types.find(id);
    if (found == types.end()) {
      return 0;
    }
    const Type &type = found->second;
    switch (type.op) {
    case OpTypeBool:
      return 1;
    case OpTypeInt:
    case OpTypeFloat:
      return type.operands[0] / 8;
    case OpTypeVector:
      return size(type.operands[0]) * (type.operands[1] == 3 ? 4 : type.operands[1]);
    case OpTypeArray: {
      const auto length = lengths.find(type.operands[1]);
      return size(type.operands[0]) * (length == lengths.end() ? 0 : length->second);
    }
    case OpTypeStruct: {
      size_t end = 0;
      const bool tight = packed.count(id) != 0;
      for (const uint32_t member : type.operands) {
        const size_t step = tight ? 1 : alignment(member);
        end = (end + step - 1) / step * step + size(member);
      }
      const size_t step = tight ? 1 : alignment(id);
      return (end + step - 1) / step * step;
    }
    default:
      return sizeof(void *);
    }
  }

  size_t alignment(uint32_t id) const {
    const auto found = types.find(id);
    if (found == types.end()) {
      return 1;
    }
    const Type &type = found->second;
    if (type.op == OpTypeArray) {
      return alignment(type.operands[0]);
    }
    if (type.op == OpTypeStruct) {
      size_t largest = 1;
      if (packed.count(id) == 0) {
        for (const uint32_t member : type.operands) {
          largest = std::max(largest, alignment(member));
        }
      }
      return largest;
    }
    return std::max<size_t>(size(id), 1);
  }

  Parameter parameter(uint32_t id) const {
    const auto found = types.find(id);
    if (found == types.end()) {
      return {Parameter::Other, 0};
    }
    const Type &type = found->second;
    if (type.op == OpTypePointer || type.op == OpTypeUntypedPointer) {
      if (type.operands[0] == WORKGROUP) {
        return {Parameter::Local, 0};
      }
      if (type.operands[0] == FUNCTION) {
        return {Parameter::Structure, type.op == OpTypePointer ? size(type.operands[1]) : 0};
      }
      return {Parameter::Pointer, sizeof(void *)};
    }
    const bool compound = type.op == OpTypeStruct || type.op == OpTypeArray;
    return {compound ? Parameter::Structure : Parameter::Value, size(id)};
  }
};

} // namespace

bool is_spirv(const std::string &module) {
  uint32_t first = 0;
  std::memcpy(&first, module.data(), std::min(sizeof first, module.size()));
  return first == MAGIC;
}

ModuleFacts read_spirv(const std::string &module) { return Reader(module).read(); }

} // namespace front
