// How the programs of this folder report: shared by all C++ programs.
#pragma once

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <string>
#include <thread>

namespace upstream {

inline int said(const std::string &text, int status) {
  std::printf("%s\n", text.c_str());
  std::fflush(stdout);
  return status;
}

// The defect is there.
inline int seen(const std::string &how) { return said("seen: " + how, 0); }
// The defect is gone; `place` is the workaround.
inline int fixed(const std::string &how, const std::string &place) {
  return said("fixed: " + how + "; remove the workaround in " + place, 1);
}
// A defect that shows only at times did not.
inline int not_seen(const std::string &how) { return said("not seen: " + how, 2); }
inline int not_tried(const std::string &reason) { return said("not tried: " + reason, 77); }
// After this line a hang or a crash is the defect.
inline void trying() { said("trying", 0); }

inline void pause(int milliseconds) { std::this_thread::sleep_for(std::chrono::milliseconds(milliseconds)); }

// Whether `condition` becomes true within the time.
inline bool within(int milliseconds, const std::function<bool()> &condition) {
  for (int waited = 0; waited < milliseconds; ++waited) {
    if (condition()) {
      return true;
    }
    pause(1);
  }
  return false;
}

} // namespace upstream
