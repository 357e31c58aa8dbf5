// SPDX-License-Identifier: Apache-2.0
#include "pool.h"

#include <pthread.h>

#include <atomic>
#include <thread>

namespace layout_kernels {
namespace {

// Never destroyed: its threads wait in it until the process ends.
std::atomic<Pool*> current{nullptr};

// In a forked child the old pool's threads are gone and its locks may be held for ever, so it is left behind.
const int registered = pthread_atfork(nullptr, nullptr, [] { current.store(nullptr); });

}  // namespace

Pool& Pool::instance() {
  static_cast<void>(registered);
  Pool* pool = current.load();
  if (pool != nullptr) return *pool;
  Pool* fresh = new Pool;
  if (current.compare_exchange_strong(pool, fresh)) return *fresh;
  delete fresh;
  return *pool;
}

void Pool::run(int threads, const std::function<void()>& work) {
  if (threads < 2) return work();
  std::lock_guard<std::mutex> turn(turn_);
  grow(threads - 1);
  {
    std::lock_guard<std::mutex> state(state_);
    work_ = &work;
    wanted_ = threads - 1;
  }
  called_.notify_all();
  work();
  std::unique_lock<std::mutex> state(state_);
  wanted_ = 0;  // the work is shared out: who has not begun need not
  idle_.wait(state, [this] { return active_ == 0; });
}

void Pool::grow(int workers) {
  for (; workers_ < workers; ++workers_) std::thread([this] { serve(); }).detach();
}

void Pool::serve() {
  std::unique_lock<std::mutex> state(state_);
  for (;;) {
    called_.wait(state, [this] { return wanted_ > 0; });
    --wanted_;
    ++active_;
    state.unlock();
    (*work_)();
    state.lock();
    if (--active_ == 0) idle_.notify_one();
  }
}

}  // namespace layout_kernels
