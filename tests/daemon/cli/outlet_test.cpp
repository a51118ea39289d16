#include "daemon/cli/outlet.hpp"

#include "tests/support/folder.hpp"

#include <cerrno>
#include <chrono>
#include <csignal>
#include <future>

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

namespace muster::cli {
namespace {

using shm::Descriptor;

constexpr auto kSoon = std::chrono::seconds(10);  // for what never waits

struct Ends {
  Descriptor read, write;
};
Ends a_pipe() {
  int ends[2];
  EXPECT_EQ(pipe2(ends, O_CLOEXEC), 0);
  return {Descriptor(ends[0]), Descriptor(ends[1])};
}
Ends sockets() {
  int ends[2];
  EXPECT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
  return {Descriptor(ends[0]), Descriptor(ends[1])};
}

std::string numbered(std::size_t lines) {
  std::string text;
  for (std::size_t i = 0; i < lines; ++i) text += std::to_string(i) + "\n";
  return text;
}

class OutletTest : public ::testing::Test {
 protected:
  OutletTest() { std::signal(SIGPIPE, SIG_IGN); }
  Outlet::Events events() {
    return {[this] { ++taken_; },
            [this](int error) {
              error_ = error;
              loop_->stop();
            }};
  }
  // Reads all from the loop while the outlet writes from it; in pieces, so that both have to wait.
  std::string read_all(const Descriptor& end, Outlet& outlet, std::size_t bytes) {
    std::string all;
    std::vector<char> buffer(5000);
    const auto watch = loop_->watch(end.get(), [&] {
      const ssize_t n = read(end.get(), buffer.data(), buffer.size());
      if (n > 0) all.append(buffer.data(), static_cast<std::size_t>(n));
      if (n <= 0 || (all.size() >= bytes && outlet.empty())) loop_->stop();
    });
    loop_->run();
    loop_->unwatch(watch);
    return all;
  }

  std::unique_ptr<control::Loop> loop_ = std::make_unique<control::Loop>();  // runs once
  int taken_ = 0;
  int error_ = 0;
};

// Goal:   put() returns though nobody reads, and nothing is lost, changed or reordered.
TEST_F(OutletTest, KeepsWhatIsNotReadYet) {
  for (const auto& make : {a_pipe, sockets}) {
    loop_ = std::make_unique<control::Loop>();
    const Ends ends = make();
    Outlet outlet(*loop_, ends.write.get(), events());
    const std::string text = numbered(200'000);
    ASSERT_GT(text.size(), Outlet::kQueueBytes + 200'000);
    outlet.put(text);
    EXPECT_TRUE(outlet.full());
    EXPECT_EQ(fcntl(ends.write.get(), F_GETFL) & O_NONBLOCK, 0) << "others share it";
    outlet.put("the end\n");
    EXPECT_EQ(read_all(ends.read, outlet, text.size() + 8), text + "the end\n");
    EXPECT_TRUE(outlet.empty());
    EXPECT_GT(taken_, 0) << "who fills it is told of room";
  }
}

TEST_F(OutletTest, WritesAFileAtOnce) {
  std::string path = "/tmp/muster-outlet-XXXXXX";
  const Descriptor file(mkstemp(path.data()));
  unlink(path.c_str());
  Outlet outlet(*loop_, file.get(), events());
  const std::string text = numbered(500'000);
  outlet.put(text);
  EXPECT_TRUE(outlet.empty());
  EXPECT_EQ(lseek(file.get(), 0, SEEK_CUR), static_cast<off_t>(text.size()))
      << "at the place that others see";
}

TEST_F(OutletTest, TellsOnceThatItsReaderHasLeft) {
  for (const auto& make : {a_pipe, sockets}) {
    loop_ = std::make_unique<control::Loop>();
    Ends ends = make();
    error_ = 0;
    Outlet outlet(*loop_, ends.write.get(), events());
    outlet.put(numbered(50'000));
    EXPECT_FALSE(outlet.empty());
    ends.read.reset();
    loop_->run();
    EXPECT_EQ(error_, EPIPE);
    EXPECT_TRUE(outlet.empty());
    error_ = 0;
    outlet.put("more");
    EXPECT_TRUE(outlet.empty());
    EXPECT_EQ(error_, 0);
  }
}

TEST_F(OutletTest, TellsThatItsReaderHadLeftBefore) {
  Ends ends = a_pipe();
  ends.read.reset();
  Outlet outlet(*loop_, ends.write.get(), events());
  outlet.put("text");
  EXPECT_EQ(error_, EPIPE);
}

// Goal:   put() returns though nobody reads, also where the outlet has no open file of its own.
// Method: a pipe with a name and without a reader when the outlet is made: it cannot be opened then.
TEST_F(OutletTest, NeverWaitsOnAPipeThatItCannotOpen) {
  const test::Folder folder;
  const std::string path = folder.path() + "/pipe";
  ASSERT_EQ(mkfifo(path.c_str(), 0600), 0);
  const auto reader = [&] { return open(path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC); };
  Ends ends;
  ends.read.reset(reader());
  ends.write.reset(open(path.c_str(), O_WRONLY | O_CLOEXEC));
  ends.read.reset();
  Outlet outlet(*loop_, ends.write.get(), events());
  ends.read.reset(reader());
  ASSERT_TRUE(ends.read.valid() && ends.write.valid());
  const std::string text = numbered(50'000);
  auto put = std::async(std::launch::async, [&] { outlet.put(text); });
  const bool returns = put.wait_for(kSoon) == std::future_status::ready;
  if (!returns) ends.read.reset();  // ends the write on which it waits
  put.wait();
  ASSERT_TRUE(returns);
  EXPECT_FALSE(outlet.empty());
  EXPECT_EQ(fcntl(ends.write.get(), F_GETFL) & O_NONBLOCK, 0) << "others share it";
  EXPECT_EQ(read_all(ends.read, outlet, text.size()), text);
}

TEST_F(OutletTest, DiscardsWhatCannotBeWrittenOnceGivenUp) {
  const Ends ends = a_pipe();
  Outlet outlet(*loop_, ends.write.get(), events());
  outlet.put(numbered(50'000));
  EXPECT_FALSE(outlet.empty());
  outlet.give_up();
  EXPECT_TRUE(outlet.empty());
  outlet.put("more");
  EXPECT_TRUE(outlet.empty());
  EXPECT_EQ(error_, 0);
}

}  // namespace
}  // namespace muster::cli
