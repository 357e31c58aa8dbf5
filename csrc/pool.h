// SPDX-License-Identifier: Apache-2.0
// Threads that outlive a copy. One pool a process; a forked child starts its own, for threads do not survive
// fork.
#pragma once

#include <condition_variable>
#include <functional>
#include <mutex>

namespace layout_kernels {

class Pool {
 public:
  static Pool& instance();

  // Runs `work` on at most `threads` threads at once, the caller among them, and waits for all that began.
  // `work` must not throw, and must itself share out what there is to do: late threads may find nothing.
  void run(int threads, const std::function<void()>& work);

 private:
  void grow(int workers);
  void serve();

  std::mutex turn_;  // one run at a time
  std::mutex state_;
  std::condition_variable called_, idle_;
  const std::function<void()>* work_ = nullptr;
  int workers_ = 0, wanted_ = 0, active_ = 0;
};

}  // namespace layout_kernels
