#include "daemon/cli/ask/flight_table.hpp"

#include "api/base/utf8.hpp"

#include <sstream>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace muster::cli {
namespace {

using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::Not;

// A flight record of four ranks, as merging makes it.
class Flight {
 public:
  // `states`: of ranks 0 on, by their letters: completed, started, waiting (w), failed, or no record (-).
  Flight& operation(const std::string& name, const std::string& states, const std::string& site = "block0") {
    Json records = Json::array();
    Json unrecorded = Json::array();
    Json members = Json::array();
    for (std::uint32_t rank = 0; rank < states.size(); ++rank) {
      members.push_back(rank);
      const char state = states[rank];
      if (state == '-') {
        unrecorded.push_back(rank);
        continue;
      }
      Json& entries = json_["ranks"][std::to_string(rank)]["entries"];
      Json entry{{"record_id", entries.size()},
                 {"retired", state == 'c' || state == 'f'},
                 {"output_sizes", {{4096}}},
                 {"output_dtypes", {"Float"}},
                 {"frames", {{{"name", name}, {"filename", site}, {"line", site == "model.py" ? 3u : 0u}}}}};
      if (state == 'c') entry["duration_ms"] = 0.25 * (rank + 1);
      records.push_back({{"rank", rank},
                         {"record_id", entries.size()},
                         {"state", state == 'c'   ? "completed"
                                   : state == 's' ? "started"
                                                  : "scheduled"}});
      entries.push_back(std::move(entry));
    }
    json_["operations"].push_back({{"process_group", "3:gather/model"},
                                   {"description", "dp_shard"},
                                   {"number", ++number_},
                                   {"name", "nccl:" + name},
                                   {"members", members},
                                   {"records", records},
                                   {"unrecorded", unrecorded}});
    return *this;
  }
  // Operations from here on come after so many failures of their place.
  void epochs(std::uint64_t count) { number_ = count << 32; }
  std::string table(std::size_t last = 40, std::size_t columns = 200) const {
    return flight_table(json_, last, columns);
  }

 private:
  Json json_{{"ranks", Json::object()}, {"operations", Json::array()}};
  std::uint64_t number_ = 0;
};

TEST(FlightTable, SaysOfEachOperationWhoIsWhere) {
  const std::string text = Flight()
                               .operation("all_gather", "cccc")
                               .operation("all_reduce", "ssww", "model.py")
                               .operation("barrier", "ww-f")
                               .table();
  EXPECT_THAT(text, ContainsRegex("GROUP +RANKS +LANE +NO +OPERATION +ELEMENTS +SITE +STATE\n"));
  EXPECT_THAT(
      text, ContainsRegex("dp_shard +0-3 +gather/model +1 +all_gather +4096 Float +block0 +done, 1.00 ms\n"));
  EXPECT_THAT(text, ContainsRegex("all_reduce +4096 Float +model.py:3 +runs at 0 1, waits at 2 3\n"));
  EXPECT_THAT(text, ContainsRegex("barrier .*failed at 3, waits at 0 1, not come 2\n"));
  EXPECT_THAT(text, HasSubstr("3 of 3 operations, oldest first; 2 are not done;"));
}

// Goal:   an operation that hangs is shown, however many were done since.
TEST(FlightTable, ShowsTheLatestAndWhatIsNotDone) {
  Flight flight;
  flight.operation("all_gather", "cc").operation("broadcast", "w-");
  for (int i = 0; i < 50; ++i) flight.operation("all_reduce", "cc");
  const std::string text = flight.table(5);
  EXPECT_THAT(text, HasSubstr("not come 1"));
  EXPECT_THAT(text, Not(HasSubstr("all_gather")));
  EXPECT_THAT(text, HasSubstr("6 of 52 operations, oldest first; 1 is not done;"));
  EXPECT_THAT(flight.table(1), HasSubstr("2 of 52 operations"));
  for (int i = 0; i < 30; ++i) flight.operation("reduce", "-w");
  const std::string busy = flight.table(3);
  EXPECT_THAT(busy, HasSubstr("6 of 82 operations, oldest first; 31 are not done;"));
  EXPECT_THAT(busy, HasSubstr("broadcast")) << "the oldest of them";
}

TEST(FlightTable, FitsANarrowWindow) {
  std::istringstream text(
      Flight().operation("reduce_scatter", "cccc").operation("all_reduce", "ww--").table(40, 60));
  for (std::string line; std::getline(text, line);)
    EXPECT_TRUE(utf8_characters(line) <= 60 || line.find("operations, oldest") != std::string::npos) << line;
}

TEST(FlightTable, NumbersADirectOperationAsReportsDo) {
  Flight flight;
  flight.epochs(1);
  EXPECT_THAT(flight.operation("all_gather", "ww--").table(), ContainsRegex("gather/model +1 +all_gather"));
}

TEST(FlightTable, SaysThatAllIsDone) {
  EXPECT_THAT(Flight().operation("all_gather", "cc").table(),
              HasSubstr("; all are done; --last N shows more"));
}

TEST(FlightTable, SaysThatThereIsNothing) {
  EXPECT_EQ(Flight().table(), "no collective is recorded yet\n");
}

}  // namespace
}  // namespace muster::cli
