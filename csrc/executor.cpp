// SPDX-License-Identifier: Apache-2.0
#include "executor.h"

#include <algorithm>
#include <atomic>
#include <stdexcept>
#include <string>

#include "copy.h"
#include "pool.h"

namespace layout_kernels {
namespace {

constexpr int64_t smallest_task = 128 * 1024;      // less is not worth the hand-over to another thread
constexpr int64_t largest_task = 4 * 1024 * 1024;  // more leaves threads waiting at the end

void run_work(const Work& work) {
  switch (work.recipe->kind) {
    case Kind::rows:
      return run_rows(work);
    case Kind::tiles:
      return run_tiles(work);
    case Kind::split:
      return run_split(work);
    case Kind::merge:
      return run_merge(work);
  }
}

void check_threads(int threads) {
  if (threads < 1) throw std::invalid_argument(std::to_string(threads) + " threads; at least 1 is needed");
}

int64_t grain_of(int64_t nbytes, int threads) {
  return std::clamp(nbytes / (threads * 16), smallest_task, largest_task);
}

// Calls `body(t)` once for every task, on several threads.
template <typename Body>
void for_each_task(size_t tasks, int threads, Body&& body) {
  std::atomic<size_t> next{0};
  const auto share = [&] {
    for (size_t task; (task = next.fetch_add(1, std::memory_order_relaxed)) < tasks;) body(task);
    finish_streaming();
  };
  Pool::instance().run(static_cast<int>(std::min(static_cast<size_t>(threads), tasks)), share);
}

}  // namespace

Executor::Executor(const Table& table, int threads, int64_t streaming_from)
    : blocks_(static_cast<int64_t>(table.blocks.size())), threads_(threads) {
  check_threads(threads);
  check(table);
  for (const Shape& shape : table.shapes) {
    copies_.push_back(copy_recipe(shape));
    zeros_.push_back(zero_recipe(shape));
  }
  for (const Block& block : table.blocks) nbytes_ += recipe_of(block).nbytes();
  share_out(table, nbytes_ >= streaming_from);
}

const Recipe& Executor::recipe_of(const Block& block) const {
  return (block.source == 0 ? zeros_ : copies_)[static_cast<size_t>(block.shape)];
}

// Large blocks are cut, small ones gathered, so that every task moves about as many bytes.
void Executor::share_out(const Table& table, bool streaming) {
  const int64_t grain = grain_of(nbytes_, threads_);
  for (const Block& block : table.blocks) {
    const Recipe& recipe = recipe_of(block);
    if (recipe.elements == 0) continue;
    auto* target = reinterpret_cast<char*>(block.target);
    int64_t items = 1;
    for (const Digit& digit : recipe.outer) items *= digit.extent;
    for (const int64_t piece : pieces(recipe, target)) items *= piece;
    cut({&recipe, reinterpret_cast<const char*>(block.source), target, 0, items, streaming}, items, grain);
  }
  int64_t filled = grain;
  for (size_t i = 0; i < work_.size(); ++i) {
    if (filled >= grain) {
      tasks_.push_back(i);
      filled = 0;
    }
    filled += std::min(grain, work_[i].recipe->nbytes());
  }
  tasks_.push_back(work_.size());
}

void Executor::cut(const Work& whole, int64_t items, int64_t grain) {
  const int64_t step =
      std::max<int64_t>(1, static_cast<int64_t>(static_cast<double>(items) * static_cast<double>(grain) /
                                                static_cast<double>(whole.recipe->nbytes())));
  for (int64_t begin = 0; begin < items; begin += std::min(step, items - begin)) {
    work_.push_back(whole);
    work_.back().begin = begin;
    work_.back().end = begin + std::min(step, items - begin);
  }
}

void Executor::run() const {
  for_each_task(tasks_.size() - 1, threads_, [this](size_t task) {
    for (size_t i = tasks_[task]; i < tasks_[task + 1]; ++i) run_work(work_[i]);
  });
}

void copy(uint64_t target, uint64_t source, int64_t nbytes, int threads, bool streaming) {
  check_threads(threads);
  if (nbytes < 0) throw std::invalid_argument("a copy of " + std::to_string(nbytes) + " bytes");
  // A plain memcpy chooses its stores by length, so each thread gets its share in one piece.
  const int64_t share = std::max<int64_t>(1, (nbytes + threads - 1) / threads);
  const int64_t grain = streaming ? largest_task : share;
  for_each_task(static_cast<size_t>((nbytes + grain - 1) / grain), threads, [=](size_t task) {
    const int64_t first = static_cast<int64_t>(task) * grain;
    copy_bytes(reinterpret_cast<char*>(target) + first, reinterpret_cast<const char*>(source) + first,
               std::min(grain, nbytes - first), streaming);
  });
}

}  // namespace layout_kernels
