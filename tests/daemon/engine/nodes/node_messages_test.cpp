// NodeMessages: each message reaches the reader of its kind, and bytes of no known kind reach none.
#include "daemon/engine/nodes/node_messages.hpp"

#include <utility>
#include <vector>

#include <gtest/gtest.h>

namespace muster::engine {
namespace {

// Links on which messages have come.
class ComeLinks final : public transport::JobLinks {
 public:
  void take_messages(const Messages& visit) override {
    for (const auto& message : std::exchange(come, {})) visit(NodeIndex(1), 7, message);
  }
  template<class Message>
  void add(const Message& message) {
    const auto bytes = std::as_bytes(std::span(&message, 1));
    come.emplace_back(bytes.begin(), bytes.end());
  }
  std::vector<std::vector<std::byte>> come;
};

TEST(NodeMessages, ReachTheReaderOfTheirKindInOrder) {
  ComeLinks links;
  NodeMessages messages(links);
  std::vector<std::uint64_t> questions, answers;
  messages.set_reader(NodeMessageKind::kQuestion,
                      [&](NodeIndex from, std::uint32_t generation, std::span<const std::byte> bytes) {
                        EXPECT_EQ(from, NodeIndex(1));
                        EXPECT_EQ(generation, 7u);
                        questions.push_back(read_message<FenceMessage>(bytes)->question);
                      });
  messages.set_reader(NodeMessageKind::kAnswer,
                      [&](NodeIndex, std::uint32_t, std::span<const std::byte> bytes) {
                        answers.push_back(read_message<FenceMessage>(bytes)->question);
                      });
  links.add(FenceMessage{NodeMessageKind::kQuestion, 0, 4});
  links.add(FenceMessage{NodeMessageKind::kAnswer, 0, 5});
  links.add(FenceMessage{NodeMessageKind::kQuestion, 0, 6});
  const auto heard = messages.take();
  EXPECT_EQ(questions, (std::vector<std::uint64_t>{4, 6}));
  EXPECT_EQ(answers, (std::vector<std::uint64_t>{5}));
  EXPECT_EQ(heard, (std::array<std::size_t, kNodeMessageKinds>{0, 2, 1, 0, 0}));
}

// Goal:   a peer may send any bytes.
// Method: nothing, half a kind, kinds beyond the last, and a kind that nobody reads.
TEST(NodeMessages, DropsWhatNobodyReads) {
  ComeLinks links;
  NodeMessages messages(links);
  messages.set_reader(NodeMessageKind::kMissing, [](NodeIndex, std::uint32_t, std::span<const std::byte>) {
    ADD_FAILURE() << "there was none";
  });
  links.come = {{}, std::vector<std::byte>(3), std::vector<std::byte>(40, std::byte{0xff})};
  links.add(static_cast<std::uint32_t>(kNodeMessageKinds));
  links.add(PresenceMessage());
  EXPECT_EQ(messages.take(), (std::array<std::size_t, kNodeMessageKinds>{}));
}

}  // namespace
}  // namespace muster::engine
