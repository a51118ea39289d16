#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace muster::bench {

// A TCP connection of two ranks, without Muster: the least that an exchange beside kernels takes.
// Owns    its socket. Thread  one. Bound  two buffers of the longest exchange
// Fails   by ending the process, with a sentence.
class Wire {
 public:
  // Both ranks make one. The address is rank 0's.
  Wire(int rank, const std::string& address);
  ~Wire();
  Wire(const Wire&) = delete;
  Wire& operator=(const Wire&) = delete;

  // Rank 0 can be reached once it has made its wire; then rank 1 connects, and rank 0 accepts.
  void connect();
  // So many bytes each way at once.
  void exchange(std::size_t bytes);

 private:
  int rank_;
  std::string address_;
  int listening_ = -1, socket_ = -1;
  std::vector<char> sent_, received_;
};

}  // namespace muster::bench
