// domain_layers: layers over a field that is cut by rows, at a rank, or in double precision by one process.
//
//   muster run --private -n 2 -- domain_layers ranks STACKS FOLDER
//   domain_layers reference STACKS FOLDER
//
// STACKS is a file of JSON that physicsnemo.py writes. Arrays go into FOLDER, as NAME.y.RANK, NAME.dx.RANK
// and NAME.dw. Rank 0 ends its output with a line of JSON.
#include "tests/bench/domain/reference.hpp"
#include "tests/bench/domain/stack_rank.hpp"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <fstream>
#include <functional>
#include <span>
#include <string>
#include <thread>

#include <nlohmann/json.hpp>

namespace {

using namespace muster::bench::domain;
using training::Runtime;
using Clock = std::chrono::steady_clock;

constexpr auto kIdle = std::chrono::milliseconds(500);  // long enough for others to see what it holds

template<class Value>
void write(const std::filesystem::path& path, std::span<const Value> values) {
  std::ofstream file(path, std::ios::binary);
  file.write(reinterpret_cast<const char*>(values.data()), static_cast<std::streamsize>(values.size_bytes()));
  if (!file.flush()) throw std::runtime_error("cannot write " + path.string());
}

// Numbers of all ranks become one, at all of them.
std::vector<double> together(Runtime& runtime, muster_redop redop, const std::vector<double>& numbers) {
  const training::Buffer buffer = runtime.allocate(numbers.size() * sizeof(double));
  std::copy(numbers.begin(), numbers.end(), buffer.as<double>().begin());
  const muster_tensor all =
      muster_view1(buffer.handle, 0, MUSTER_F64, static_cast<std::int64_t>(numbers.size()));
  const muster_collective reduce = training::all_reduce(runtime.group("world"), redop, all);
  training::check(muster_run(runtime.session(), &reduce, 0));
  return {buffer.as<double>().begin(), buffer.as<double>().end()};
}

nlohmann::json run(Runtime& runtime, const Stack& stack, const std::filesystem::path& folder) {
  StackRank part(runtime, stack);
  std::vector<double> seconds;
  for (std::int64_t step = 0; step < stack.steps; ++step) {
    runtime.meet_all();
    const auto begin = Clock::now();
    part.step();
    seconds.push_back(std::chrono::duration<double>(Clock::now() - begin).count());
  }
  const std::string rank = std::to_string(runtime.rank());
  write<float>(folder / (stack.name + ".y." + rank), part.y());
  write<float>(folder / (stack.name + ".dx." + rank), part.dx());
  if (runtime.rank() == 0) write<float>(folder / (stack.name + ".dw"), part.parameter_gradients());
  return {{"mean", part.mean()}, {"step_seconds", together(runtime, MUSTER_MAX, seconds)}};
}

void run_all(const std::vector<Stack>& stacks, const std::filesystem::path& folder) {
  Runtime runtime = Runtime::open({});
  nlohmann::json results = nlohmann::json::object();
  for (const Stack& stack : stacks) results[stack.name] = run(runtime, stack, folder);
  const auto peak = static_cast<double>(runtime.counter("buffer_bytes_peak"));
  if (stacks.empty()) std::this_thread::sleep_for(kIdle);
  const double peaks = together(runtime, MUSTER_SUM, {peak}).front();
  if (runtime.rank() == 0)
    std::printf("%s\n", nlohmann::json{{"stacks", results}, {"buffer_bytes_peak", peaks}}.dump().c_str());
  runtime.meet_all();
}

void refer_all(const std::vector<Stack>& stacks, const std::filesystem::path& folder) {
  nlohmann::json results = nlohmann::json::object();
  for (const Stack& stack : stacks) {
    const StackResult right = reference_of(stack);
    write<double>(folder / (stack.name + ".y.0"), right.y);
    write<double>(folder / (stack.name + ".dx.0"), right.dx);
    write<double>(folder / (stack.name + ".dw"), right.parameter_gradients);
    results[stack.name] = {{"mean", right.mean}};
  }
  std::printf("%s\n", nlohmann::json{{"stacks", results}}.dump().c_str());
}

}  // namespace

int main(int argc, char** argv) {
  const std::string mode = argc == 4 ? argv[1] : "";
  if (mode != "ranks" && mode != "reference") {
    std::fprintf(stderr, "usage: domain_layers ranks|reference STACKS FOLDER\n");
    return 2;
  }
  return training::run_main("domain_layers", true, [&] {
    const std::vector<Stack> stacks = stacks_in(argv[2]);
    if (mode == "ranks")
      run_all(stacks, argv[3]);
    else
      refer_all(stacks, argv[3]);
  });
}
