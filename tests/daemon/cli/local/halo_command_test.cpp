// `muster plan halo`, through the program.
#include "tests/daemon/cli/program.hpp"

namespace muster::test {
namespace {

// Goal:   what each rank gets is what the others give, and bytes are counted in the dtype.
TEST(HaloCommand, SaysWhoNeedsWhatOfWhom) {
  const Ran ran = muster({"plan", "halo", "--shape", "241x480", "--cut", "4x2", "--kernel", "3", "--stride",
                          "2", "--pad", "1", "--dtype", "bf16", "--json"});
  ASSERT_EQ(ran.code, 0) << ran.err;
  const Json plan = ran.json();
  EXPECT_EQ(plan.at("results"), "121x240");
  std::int64_t in = 0, out = 0;
  for (const Json& rank : plan.at("ranks")) {
    in += rank.at("bytes_in").get<std::int64_t>();
    out += rank.at("bytes_out").get<std::int64_t>();
  }
  EXPECT_EQ(in, out);
  const Json third = plan.at("ranks").at(3);
  EXPECT_EQ(third.at("own"), Json::parse("[[61,121],[240,480]]"));
  EXPECT_EQ(third.at("results"), Json::parse("[[31,61],[120,240]]"));
  ASSERT_EQ(third.at("gets").size(), 3U);
  EXPECT_EQ(third.at("gets").at(0).at("peer"), 2);
  EXPECT_EQ(third.at("gets").at(0).at("shape"), "60x1");
  EXPECT_EQ(third.at("bytes_in"), 2 * (60 + 1 + 240));
}

TEST(HaloCommand, PrintsATable) {
  const Ran ran = muster({"plan", "halo", "--shape", "6", "--cut", "3", "--kernel", "3", "--pad", "1",
                          "--pads", "circular", "--rank", "0"});
  ASSERT_EQ(ran.code, 0) << ran.err;
  EXPECT_NE(ran.out.find("6 items give 6 results"), std::string::npos) << ran.out;
  EXPECT_NE(ran.out.find("1: 1, 2: 1"), std::string::npos) << ran.out;
  EXPECT_EQ(ran.out.find("\n1 "), std::string::npos) << ran.out;
}

TEST(HaloCommand, NamesTheOptionThatIsWrong) {
  struct Case {
    std::vector<std::string> options;
    const char* text;
  };
  for (const Case& c :
       {Case{{"--shape", "8xq", "--cut", "2"}, "--shape '8xq': write whole numbers"},
        Case{{"--shape", "8x8", "--cut", "2x2x2"}, "--cut '2x2x2': --shape has 2 dims"},
        Case{{"--shape", "8", "--cut", "2", "--kernel", "0"}, "dim 0: kernel is 0"},
        Case{{"--shape", "4", "--cut", "2", "--kernel", "9"}, "dim 0: the kernel spans 9 items"},
        Case{{"--shape", "4", "--cut", "2", "--pads", "mirror"}, "--pads 'mirror': zeros, circular"},
        Case{{"--shape", "4", "--cut", "2", "--pads", "reflect", "--pad", "4"}, "wider than the field"},
        Case{{"--shape", "8", "--cut", "2", "--rank", "2"}, "--rank 2: there are ranks 0 to 1"},
        Case{{"--shape", "8", "--cut", "2", "--dtype", "f31"}, "--dtype 'f31' is no dtype"},
        Case{{"--shape", "99999", "--cut", "9999"}, "choose one with --rank"},
        Case{{"--shape", "8", "--cut", "0"}, "0 ranks"}}) {
    std::vector<std::string> words{"plan", "halo"};
    words.insert(words.end(), c.options.begin(), c.options.end());
    const Ran ran = muster(words);
    EXPECT_EQ(ran.code, 2) << c.text;
    EXPECT_NE(ran.err.find(c.text), std::string::npos) << ran.err;
  }
}

}  // namespace
}  // namespace muster::test
