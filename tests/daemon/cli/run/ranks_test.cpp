// Reports of `muster run` on ranks that fail, and on lines that several ranks print.
#include "tests/daemon/cli/program.hpp"

#include <sstream>
#include <string>
#include <vector>

#include <gmock/gmock.h>

namespace muster::test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::MatchesRegex;
using ::testing::UnorderedElementsAre;

class RanksOfARun : public ::testing::Test {
 protected:
  // Shells that begin once all of them are there.
  Ran shells(int ranks, const std::string& script) const {
    const std::string meet = "cd " + home_.path() +
                             "; touch rank$MUSTER_RANK; while [ $(ls rank? | wc -l) -lt " +
                             std::to_string(ranks) + " ]; do sleep 0.01; done; ";
    return muster({"run", "--private", "-n", std::to_string(ranks), "--", "sh", "-c", meet + script},
                  {"XDG_RUNTIME_DIR=" + home_.path()});
  }
  static std::vector<std::string> lines_of(const std::string& text) {
    std::istringstream stream(text);
    std::vector<std::string> lines;
    for (std::string line; std::getline(stream, line);) lines.push_back(line);
    return lines;
  }

 private:
  const Folder home_;
};

// Goal:   a mistake common to the ranks is printed once; the last line names the first rank and its own
//         reason.
TEST_F(RanksOfARun, SayOneMistakeOnceAndAtTheEndWhoWasFirst) {
  const Ran ran = shells(4,
                         "[ $MUSTER_RANK = 2 ] && echo \"rank 2: no disk\" >&2 && exit 5; sleep 0.3; "
                         "echo \"rank $MUSTER_RANK: no memory\" >&2; exit 3");
  EXPECT_EQ(ran.code, 5);
  EXPECT_THAT(
      lines_of(ran.err),
      ElementsAre("[2] rank 2: no disk", "muster run: rank 2 exited with code 5", "[0,1,3] no memory",
                  MatchesRegex("muster run: failed first: rank 2, [0-9.]+ s after the start, exited with "
                               "code 5; its last words: rank 2: no disk")));
}

TEST_F(RanksOfARun, KeepWhatOneOfThemSaysApart) {
  const Ran ran = shells(2, "echo \"shard $MUSTER_RANK is bad\" >&2; kill -9 $$");
  EXPECT_EQ(ran.code, 137);
  EXPECT_THAT(ran.err, HasSubstr("[0] shard 0 is bad\n"));
  EXPECT_THAT(ran.err, HasSubstr("[1] shard 1 is bad\n"));
  EXPECT_THAT(lines_of(ran.err).back(), HasSubstr("was killed by signal 9 (Killed); its last words: shard "));
}

// Lines of ranks that are well are each rank's own, and none is lost at the end.
TEST_F(RanksOfARun, LeaveEqualLinesOfWellRanksAlone) {
  const Ran ran = shells(2, "echo ready >&2; printf 'no end' >&2");
  EXPECT_EQ(ran.code, 0);
  EXPECT_THAT(lines_of(ran.err), UnorderedElementsAre("[0] no end", "[0] ready", "[1] no end", "[1] ready"));
}

}  // namespace
}  // namespace muster::test
