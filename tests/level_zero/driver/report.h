// Reports of wrong use, and the end of a process that asks for something that is not carried out.
#pragma once

#include <string>

namespace front {

// Writes a report to stderr and to the file of the switch. The process goes on; the runner fails the test.
void report(const std::string &what);

// Names a function or feature that is not carried out, and ends the process.
[[noreturn]] void refuse(const std::string &what);

std::string hexadecimal(const void *address);

} // namespace front
