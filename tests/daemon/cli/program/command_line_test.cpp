// The command line through the program: what is wrong, what is told, and what a terminal is shown.
#include "tests/daemon/cli/program.hpp"

#include <algorithm>
#include <sstream>

namespace muster::test {
namespace {

// In characters, of which "→" and "…" have three bytes.
std::size_t columns_of(const std::string& line) {
  return static_cast<std::size_t>(
      std::count_if(line.begin(), line.end(), [](char c) { return (c & 0xC0) != 0x80; }));
}

// Goal:   a narrow terminal shows rows, not rubble.
// Method: COLUMNS says so, as a shell does; sentences beside the tables wrap by themselves.
TEST(CommandLine, TablesFitSixtyColumnsWhereTheUserHasNoMore) {
  const std::vector<std::vector<std::string>> lines{
      {"mesh", "--world", "64", "--mesh", "pp=2,dp_replicate=2,dp_shard=4,cp=2,tp=2"},
      {"plan", "explain", "all_reduce", "--ranks", "8"},
      {"env"},
      {"config", "show", "--set", "log.reports_directory=/var/lib/muster/reports-of-deadlines"},
      {"doctor"}};
  for (const auto& arguments : lines) {
    const Ran ran = muster(arguments, {"COLUMNS=60", "SLURM_PROCID=1", "SLURM_NTASKS=2"});
    std::istringstream text(ran.out);
    for (std::string line; std::getline(text, line);) {
      const bool sentence = line.find("data parallelism") != std::string::npos ||
                            line.find("agreed on as") != std::string::npos ||
                            line.find("ranks of the job on") != std::string::npos ||
                            line.find("equal inputs give equal bits") != std::string::npos;
      EXPECT_TRUE(sentence || columns_of(line) <= 60) << arguments.front() << ": " << line;
    }
    const Ran wide = muster(arguments, {"SLURM_PROCID=1", "SLURM_NTASKS=2"});
    EXPECT_EQ(wide.out.find("columns are too few"), std::string::npos) << "it is no terminal";
  }
}

// Goal:   a variable without a value, or with a name that nobody reads, does not pass unseen.
TEST(CommandLine, TellsVariablesThatAreEmptyOrMisspelt) {
  const Ran empty = muster({"status"}, {"MUSTER_ENDPOINT="});
  EXPECT_EQ(empty.code, 2);
  EXPECT_NE(empty.err.find("MUSTER_ENDPOINT is empty"), std::string::npos) << empty.err;
  EXPECT_EQ(muster({"run", "-n", "1", "--", "true"}, {"MUSTER_ENDPOINT="}).code, 2);
  EXPECT_EQ(muster({"status", "--endpoint", "/nonexistent/s"}, {"MUSTER_ENDPOINT="}).code, 3) << "not needed";
  EXPECT_EQ(muster({"mesh", "--world", "8"}, {"MUSTER_ENDPOINT="}).code, 0) << "not needed";
  const Ran job = muster({"env"}, {"MUSTER_JOB="});
  EXPECT_EQ(job.code, 2);
  EXPECT_NE(job.err.find("MUSTER_JOB is empty"), std::string::npos) << job.err;
  const Ran misspelt = muster({"mesh", "--world", "8"}, {"MUSTER_ENDPONT=/s", "MUSTER_OF_SOMEBODY=1"});
  EXPECT_EQ(misspelt.code, 0);
  EXPECT_EQ(misspelt.err,
            "muster: warning: MUSTER_ENDPONT is no variable of Muster; did you mean 'MUSTER_ENDPOINT'?\n");
  const Ran setting = muster({"config", "show"}, {"MUSTER_SET_node_workers=3"});
  EXPECT_EQ(setting.code, 2);
  EXPECT_NE(setting.err.find("did you mean 'MUSTER_SET_node__workers'?"), std::string::npos) << setting.err;
  const Ran rank = muster({"env"}, {"MUSTER_RANK=abc", "MUSTER_WORLD_SIZE=4"});
  EXPECT_EQ(rank.code, 2);
  EXPECT_NE(rank.err.find("MUSTER_RANK='abc'"), std::string::npos) << rank.err;
}

// Goal:   whatever names and values hold, a terminal is shown text.
TEST(CommandLine, ShowsNoControlCharacters) {
  const std::string hostile =
      "\x1b]0;title\x07\xC2\x9B"
      "2J\x9B"
      "1m";
  const Folder folder;
  const std::string file = folder.write("m" + hostile + ".yaml", "node:\n  workers: \"" + hostile + "\"\n");
  const std::vector<std::pair<std::vector<std::string>, std::vector<std::string>>> lines{
      {{hostile}, {}},
      {{"status", "--" + hostile}, {}},
      {{"status", "--timeout", hostile}, {}},
      {{"status", "--endpoint", "/nonexistent/" + hostile}, {}},
      {{"status"}, {"MUSTER_ENDPOINT=/nonexistent/" + hostile}},
      {{"run", "-n", "1", "--private", "--job", hostile, "--", "true"}, {}},
      {{"run", "-n", "1", "--private", "--", "/nonexistent/" + hostile}, {}},
      {{"run", "-n", "1", "--private", "--trace", "/nonexistent/" + hostile, "--", "true"}, {}},
      {{"mesh", "--world", "8", "--mesh", hostile}, {}},
      {{"mesh", "--config", file}, {}},
      {{"config", "check", file}, {}},
      {{"config", "show", "--config", file}, {}},
      {{"config", "show", "--set", "node." + hostile + "=1"}, {}},
      {{"config", "show", "--set", "node.group=" + hostile}, {}},
      {{"config", "show"}, {"MUSTER_SET_" + hostile + "=1"}},
      {{"config", "explain", hostile}, {}},
      {{"plan", "explain", hostile, "--ranks", "2"}, {}},
      {{"env"}, {"MUSTER_JOB=" + hostile, "SLURM_JOB_ID=" + hostile}},
      {{"env"}, {"MUSTER_BOOTSTRAP=" + hostile}},
      {{"env"}, {"MUSTER_RANK=" + hostile, "MUSTER_WORLD_SIZE=2"}}};
  const auto harmless = [](const std::string& text) {
    return std::none_of(text.begin(), text.end(),
                        [](char c) {
                          const auto byte = static_cast<unsigned char>(c);
                          return (byte < 0x20 && c != '\n' && c != '\t') || byte == 0x7F;
                        }) &&
           text.find("\x9B") == std::string::npos;
  };
  for (const auto& [arguments, environment] : lines) {
    const Ran ran = muster(arguments, environment);
    EXPECT_TRUE(harmless(ran.out) && harmless(ran.err))
        << testing::PrintToString(arguments) << ran.out << ran.err;
    EXPECT_FALSE(ran.out.empty() && ran.err.empty()) << testing::PrintToString(arguments);
  }
  for (const std::vector<std::string>& arguments :
       std::vector<std::vector<std::string>>{{"--config", file},
                                             {"--config", "/nonexistent/" + hostile},
                                             {"--set", hostile},
                                             {"--set", "node." + hostile + "=1"},
                                             {"--engine", "/nonexistent/" + hostile},
                                             {"--" + hostile},
                                             {"--directory", "/nonexistent/" + hostile, "--print-config"},
                                             {"--directory", "/nonexistent/" + hostile}}) {
    std::vector<std::string> line{program("musterd"), "--transient"};
    line.insert(line.end(), arguments.begin(), arguments.end());
    const Ran ran = run({line, {}, {}});
    EXPECT_TRUE(harmless(ran.out) && harmless(ran.err))
        << testing::PrintToString(arguments) << ran.out << ran.err;
    EXPECT_FALSE(ran.out.empty() && ran.err.empty()) << testing::PrintToString(arguments);
  }
}

TEST(CommandLine, AnswersWrongUsageWithTwo) {
  const std::vector<std::vector<std::string>> wrong{{},
                                                    {"nonsense"},
                                                    {"status", "--nonsense"},
                                                    {"end"},
                                                    {"token", "--job", "j"},
                                                    {"run", "-n", "2"},
                                                    {"run", "--", "true"},
                                                    {"run", "-n", "0", "--", "true"},
                                                    {"run", "-n", "2", "--bogus", "true"},
                                                    {"config"},
                                                    {"run", "-n", "2", "--job", "bad name", "--", "true"},
                                                    {"status", "--timeout", "-1"}};
  for (const auto& arguments : wrong) {
    const Ran ran = muster(arguments);
    EXPECT_EQ(ran.code, 2) << testing::PrintToString(arguments) << ran.err;
    EXPECT_EQ(ran.err.rfind("muster: ", 0), 0u) << ran.err;
  }
}

struct Mistake {
  std::vector<std::string> arguments;
  const char* text;
};

TEST(CommandLine, SaysWhatIsWrongInPlainWords) {
  const Mistake mistakes[] = {
      {{"run", "-n", "abc", "--", "true"}, "--ranks: 'abc' is not a whole number; `muster run --help`"},
      {{"run", "-n", "2", "--grace", "nan", "--", "true"}, "--grace: nan is not in the range"},
      {{"run", "-n", "2", "--job", "", "--", "true"}, "--job: the value is empty"},
      {{"run", "-n", "2", "--mesh", "", "--", "true"}, "--mesh: the value is empty"},
      {{"run", "-n", "2", "-n", "3", "--", "true"}, "--ranks given twice"},
      {{"run", "-n", "2", "--bogus", "true"}, "`muster run --help` lists the options"},
      {{"run", "-n", "2", "--mehs", "tp=2", "--", "true"},
       "unknown option --mehs; did you mean '--mesh'? `muster run --help` lists the options"},
      {{"run", "-n", "2", "--mehs=tp=2", "--", "true"}, "unknown option --mehs; did you mean '--mesh'?"},
      {{"run", "-n", "2", "-mesh", "tp=2", "--", "true"}, "unknown option -mesh; did you mean '--mesh'?"},
      {{"top", "--job"}, "--job needs a value; `muster top --help` lists the options"},
      {{"flight", "--row", "3"}, "unknown option --row; `muster flight --help` lists the options"},
      {{"flight", "f.json"}, "unexpected argument 'f.json'; `muster flight --help` lists the options"},
      {{"status", "--timeout", "abc"}, "--timeout: 'abc' is not a number; `muster status --help`"},
      {{"status", "--endpont", "x"}, "unknown option --endpont; did you mean '--endpoint'?"},
      {{"--timeout", "0", "status"}, "--timeout stands before 'status', whose option it is; write it behind"},
      {{"--tmeout", "0", "status"}, "unknown option --tmeout; did you mean '--timeout'?"},
      {{"statsu"}, "unknown command 'statsu'; did you mean 'status'? `muster --help` lists the commands"},
      {{"config", "shwo"}, "unknown command 'shwo'; did you mean 'show'? `muster config --help`"},
      {{}, "say which command; `muster --help`"}};
  for (const Mistake& mistake : mistakes) {
    const Ran ran = muster(mistake.arguments);
    EXPECT_EQ(ran.code, 2) << ran.err;
    EXPECT_NE(ran.err.find(mistake.text), std::string::npos) << mistake.text << "\n" << ran.err;
  }
}

TEST(CommandLine, HelpSaysHowToRunAndWhatTheCodesMean) {
  const std::string all = muster({"--help"}).out;
  for (const char* part : {"Exit codes:", "  3    no daemon", "  124  "})
    EXPECT_NE(all.find(part), std::string::npos) << part << all;
  const std::string help = muster({"run", "--help"}).out;
  for (const char* part : {"Usage: muster run [OPTIONS] -- PROGRAM [ARGS...]", "starts a private one", "=10"})
    EXPECT_NE(help.find(part), std::string::npos) << part << help;
}

TEST(CommandLine, SaysThatItsOutputCannotBeWritten) {
  for (const char* argument : {"--help", "--version", "env"}) {
    const Ran ran =
        run({{program("muster"), argument}, {}, [] { dup2(open("/dev/full", O_WRONLY), STDOUT_FILENO); }});
    EXPECT_EQ(ran.code, 1) << argument;
    EXPECT_NE(ran.err.find("standard output cannot be written: No space left on device"), std::string::npos)
        << ran.err;
  }
}

TEST(CommandLine, HelpAndVersionSucceed) {
  EXPECT_EQ(muster({"--help"}).code, 0);
  EXPECT_EQ(muster({"run", "--help"}).code, 0);
  EXPECT_EQ(muster({"--version"}).code, 0);
  const Ran version = muster({"version", "--json", "--endpoint", "/nonexistent/sock"});
  EXPECT_EQ(version.code, 0);
  EXPECT_TRUE(version.json().at("daemon").is_null());
}

TEST(CommandLine, AnswersAMissingDaemonWithThree) {
  for (const char* command : {"status", "jobs", "shutdown"}) {
    const Ran ran = muster({command, "--endpoint", "/nonexistent/sock"});
    EXPECT_EQ(ran.code, 3) << ran.err;
    EXPECT_NE(ran.err.find("/nonexistent/sock"), std::string::npos) << ran.err;
    EXPECT_NE(ran.err.find("musterd"), std::string::npos) << ran.err;
    EXPECT_NE(ran.err.find("muster run"), std::string::npos) << ran.err;
  }
  EXPECT_EQ(muster({"status"}, {"MUSTER_ENDPOINT=/nonexistent/from-environment"}).code, 3);
}

}  // namespace
}  // namespace muster::test
