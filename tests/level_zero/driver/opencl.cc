// Builds SPIR-V for the OpenCL CPU runtime, and runs its kernels.
#define CL_TARGET_OPENCL_VERSION 300
#include "opencl.h"

#include "engine.h"
#include "report.h"
#include "switches.h"

#include <CL/cl.h>

#include <cstdlib>
#include <cstring>
#include <deque>
#include <dlfcn.h>
#include <map>
#include <mutex>
#include <shared_mutex>
#include <unistd.h>

namespace front {
namespace {

using SetPointer = cl_int (*)(cl_kernel, cl_uint, const void *);
using GetVariable = cl_int (*)(cl_device_id, cl_program, const char *, size_t *, void **);

// The runtime itself, without the ICD loader: layers and lists of drivers of the process under test do not apply.
struct Runtime {
  void *library;
  cl_device_id device;
  cl_context context;
  SetPointer set_pointer;
  GetVariable get_variable;

  template <class Function> Function symbol(const char *name) const {
    void *found = dlsym(library, name);
    if (found == nullptr) {
      refuse(std::string("kernels: ") + switches().opencl + " has no " + name);
    }
    return reinterpret_cast<Function>(found);
  }
};

#define CL(name) (runtime().symbol<decltype(&::name)>(#name))

pid_t owner;
auto &open_lock = *new std::shared_mutex;
bool is_open = true; // until the process ends

void close() {
  if (getpid() == owner) {
    constexpr uint64_t LONGEST = 2'000'000'000;
    wait_for_device(nullptr, LONGEST);
    const std::unique_lock<std::shared_mutex> lock(open_lock);
    is_open = false;
  }
}

const Runtime &runtime() {
  static const Runtime one = [] {
    Runtime result{};
    result.library = dlopen(switches().opencl.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (result.library == nullptr) {
      refuse(std::string("kernels: ") + dlerror());
    }
    cl_platform_id platform = nullptr;
    cl_int status = CL_SUCCESS;
    result.symbol<decltype(&clGetPlatformIDs)>("clGetPlatformIDs")(1, &platform, nullptr);
    result.symbol<decltype(&clGetDeviceIDs)>("clGetDeviceIDs")(platform, CL_DEVICE_TYPE_CPU, 1, &result.device,
                                                               nullptr);
    result.context = result.symbol<decltype(&clCreateContext)>("clCreateContext")(nullptr, 1, &result.device, nullptr,
                                                                                  nullptr, &status);
    if (status != CL_SUCCESS) {
      refuse("kernels: the OpenCL CPU runtime makes no context: " + std::to_string(status));
    }
    const auto extension =
        result.symbol<decltype(&clGetExtensionFunctionAddressForPlatform)>("clGetExtensionFunctionAddressForPlatform");
    result.set_pointer = reinterpret_cast<SetPointer>(extension(platform, "clSetKernelArgMemPointerINTEL"));
    result.get_variable = reinterpret_cast<GetVariable>(extension(platform, "clGetDeviceGlobalVariablePointerINTEL"));
    // The runtime's own handlers run after this one. Others that submit work, as usmq's, may run later, too: their
    // barriers and copies are carried out, kernels are not.
    owner = getpid();
    std::atexit(close);
    return result;
  }();
  return one;
}

void check(cl_int status, const std::string &what) {
  if (status != CL_SUCCESS) {
    refuse(what + ": OpenCL status " + std::to_string(status));
  }
}

cl_command_queue queue() {
  thread_local cl_command_queue one = [] {
    cl_int status = CL_SUCCESS;
    const cl_command_queue result =
        CL(clCreateCommandQueueWithProperties)(runtime().context, runtime().device, nullptr, &status);
    check(status, "kernels: a queue");
    return result;
  }();
  return one;
}

} // namespace

class Program {
public:
  explicit Program(Source source) : source(std::move(source)) {
    for (const std::string &module : this->source.modules) {
      ModuleFacts facts = read_spirv(module);
      kernels.merge(facts.kernels);
    }
  }

  ~Program() {
    const std::shared_lock<std::shared_mutex> lock(open_lock);
    if (!is_open || program == nullptr) {
      return;
    }
    for (const auto &[name, kernel] : made) {
      CL(clReleaseKernel)(kernel);
    }
    CL(clReleaseProgram)(program);
  }

  const std::vector<Parameter> *parameters(const std::string &name) const {
    const auto found = kernels.find(name);
    return found == kernels.end() ? nullptr : &found->second;
  }

  void *variable(const std::string &name) {
    const std::lock_guard<std::mutex> lock(one);
    build();
    void *address = nullptr;
    size_t size = 0;
    return runtime().get_variable(runtime().device, program, name.c_str(), &size, &address) == CL_SUCCESS ? address
                                                                                                          : nullptr;
  }

  void prepare() {
    const std::lock_guard<std::mutex> lock(one);
    build();
  }

  void run(const std::string &name, const std::vector<Argument> &arguments, const size_t offset[3],
           const size_t global[3], const size_t local[3]) {
    {
      const std::lock_guard<std::mutex> lock(one);
      build();
      const cl_kernel kernel = kernel_of(name);
      set(kernel, name, arguments);
      // As Intel's driver: up to the last dimension with more than one item.
      const cl_uint dimensions = global[2] > 1 ? 3 : global[1] > 1 ? 2 : 1;
      check(CL(clEnqueueNDRangeKernel)(queue(), kernel, dimensions, offset, global, local, 0, nullptr, nullptr),
            "the launch of kernel " + name);
    }
    check(CL(clFinish)(queue()), "the end of kernel " + name);
  }

private:
  const Source source;
  std::map<std::string, std::vector<Parameter>> kernels;
  std::mutex one;
  cl_program program = nullptr;
  std::map<std::string, cl_kernel> made;

  void build() {
    if (program != nullptr) {
      return;
    }
    std::vector<cl_program> parts;
    for (size_t i = 0; i < source.modules.size(); ++i) {
      parts.push_back(part(source.modules[i], source.constants[i]));
    }
    if (parts.size() == 1) {
      built(parts[0], CL(clBuildProgram)(parts[0], 1, &runtime().device, "", nullptr, nullptr));
      program = parts[0];
      return;
    }
    for (const cl_program one : parts) {
      built(one, CL(clCompileProgram)(one, 1, &runtime().device, "", 0, nullptr, nullptr, nullptr, nullptr));
    }
    cl_int status = CL_SUCCESS;
    program = CL(clLinkProgram)(runtime().context, 1, &runtime().device, "", static_cast<cl_uint>(parts.size()),
                                parts.data(), nullptr, nullptr, &status);
    built(program, status);
  }

  static cl_program part(const std::string &module, const std::vector<std::pair<uint32_t, std::string>> &constants) {
    cl_int status = CL_SUCCESS;
    const cl_program result = CL(clCreateProgramWithIL)(runtime().context, module.data(), module.size(), &status);
    check(status, "a module for the CPU");
    for (const auto &[number, value] : constants) {
      check(CL(clSetProgramSpecializationConstant)(result, number, value.size(), value.data()),
            "specialization constant " + std::to_string(number));
    }
    return result;
  }

  static void built(cl_program program, cl_int status) {
    if (status != CL_SUCCESS) {
      std::string log(1 << 16, '\0');
      if (program != nullptr) {
        CL(clGetProgramBuildInfo)(program, runtime().device, CL_PROGRAM_BUILD_LOG, log.size(), log.data(), nullptr);
      }
      refuse("a module that the OpenCL CPU runtime does not build (" + std::to_string(status) + "): " + log.c_str());
    }
  }

  cl_kernel kernel_of(const std::string &name) {
    cl_kernel &kernel = made[name];
    if (kernel == nullptr) {
      cl_int status = CL_SUCCESS;
      kernel = CL(clCreateKernel)(program, name.c_str(), &status);
      check(status, "kernel " + name);
    }
    return kernel;
  }

  void set(cl_kernel kernel, const std::string &name, const std::vector<Argument> &arguments) const {
    const auto &parameters = kernels.at(name);
    for (cl_uint i = 0; i < parameters.size(); ++i) {
      const Argument argument = i < arguments.size() ? arguments[i] : Argument{};
      const std::string what = "argument " + std::to_string(i) + " of kernel " + name;
      std::string bytes = argument.bytes;
      switch (parameters[i].kind) {
      case Parameter::Pointer: {
        const void *address = nullptr;
        if (argument.set && !argument.null) {
          std::memcpy(&address, bytes.data(), sizeof address);
        }
        check(runtime().set_pointer(kernel, i, address), what);
        break;
      }
      case Parameter::Local:
        if (bytes.empty()) {
          refuse(what + ": local memory without a size");
        }
        check(CL(clSetKernelArg)(kernel, i, bytes.size(), nullptr), what);
        break;
      case Parameter::Value:
      case Parameter::Structure:
        // A null pointer stands for zeros, and so does an argument that was not set.
        if (parameters[i].size != 0) {
          bytes.resize(parameters[i].size, '\0');
        }
        check(CL(clSetKernelArg)(kernel, i, bytes.size(), bytes.data()), what);
        break;
      case Parameter::Other:
        refuse(what + ": an image, a sampler or another opaque type");
      }
    }
  }
};

std::shared_ptr<Program> program_of(const Source &source) {
  // The latest programs stay built: the same module is often made again.
  constexpr size_t KEPT = 16;
  static auto &latest = *new std::deque<std::pair<std::string, std::shared_ptr<Program>>>;
  static auto &one = *new std::mutex;
  std::string text = source.serialize();
  const std::lock_guard<std::mutex> lock(one);
  for (const auto &[known, program] : latest) {
    if (known == text) {
      return program;
    }
  }
  auto program = std::make_shared<Program>(source);
  latest.emplace_back(std::move(text), program);
  if (latest.size() > KEPT) {
    latest.pop_front();
  }
  return program;
}

const std::vector<Parameter> *parameters_of(Program &program, const std::string &kernel) {
  return program.parameters(kernel);
}

void *variable_of(Program &program, const std::string &name) { return program.variable(name); }

void prepare(Program &program) {
  const std::shared_lock<std::shared_mutex> lock(open_lock);
  if (is_open) {
    program.prepare();
    // Again: the runtime's compiler has objects that end before what was registered earlier.
    static const int registered = std::atexit(close);
    (void)registered;
  }
}

void run_kernel(Program &program, const std::string &kernel, const std::vector<Argument> &arguments,
                const size_t offset[3], const size_t global[3], const size_t local[3]) {
  const std::shared_lock<std::shared_mutex> lock(open_lock);
  if (!is_open) {
    return;
  }
  program.run(kernel, arguments, offset, global, local);
}

namespace {

void put(std::string &text, uint64_t number) { text.append(reinterpret_cast<const char *>(&number), sizeof number); }

void put(std::string &text, const std::string &bytes) {
  put(text, bytes.size());
  text += bytes;
}

uint64_t take_number(const std::string &text, size_t &at) {
  uint64_t number = 0;
  std::memcpy(&number, text.data() + at, sizeof number);
  at += sizeof number;
  return number;
}

std::string take_bytes(const std::string &text, size_t &at) {
  const size_t size = take_number(text, at);
  at += size;
  return text.substr(at - size, size);
}

} // namespace

std::string Source::serialize() const {
  std::string text;
  put(text, modules.size());
  for (size_t i = 0; i < modules.size(); ++i) {
    put(text, modules[i]);
    put(text, constants[i].size());
    for (const auto &[number, value] : constants[i]) {
      put(text, number);
      put(text, value);
    }
  }
  return text;
}

Source Source::parse(const std::string &text) {
  Source source;
  size_t at = 0;
  for (uint64_t modules = take_number(text, at); modules != 0; --modules) {
    source.modules.push_back(take_bytes(text, at));
    source.constants.emplace_back();
    for (uint64_t left = take_number(text, at); left != 0; --left) {
      const auto number = static_cast<uint32_t>(take_number(text, at));
      source.constants.back().emplace_back(number, take_bytes(text, at));
    }
  }
  return source;
}

} // namespace front
