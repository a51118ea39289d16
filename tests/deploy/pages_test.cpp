// Manual pages and completions: they are those of the declarations, they are sound, and shells complete by
// them.
#include "deploy/pages/pages.hpp"

#include "deploy/pages/completion.hpp"
#include "deploy/pages/roff.hpp"
#include "tests/daemon/cli/terminal.hpp"

#include <algorithm>
#include <cctype>
#include <fstream>
#include <iterator>
#include <sstream>

#include <gmock/gmock.h>

namespace muster::pages {
namespace {

using test::Folder;
using test::Ran;
using ::testing::AllOf;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::SizeIs;
using ::testing::UnorderedElementsAre;

const std::string kDeploy = std::string(MUSTER_SOURCE_DIR) + "/deploy/";

std::string committed(const std::string& path) {
  std::ifstream file(kDeploy + path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

std::string page(const std::string& path) {
  for (const Page& each : all_pages())
    if (each.path == path) return each.text;
  return "";
}

Ran run(std::vector<std::string> arguments, std::vector<std::string> environment = {}) {
  return test::run({std::move(arguments), std::move(environment), {}});
}

bool there(const std::string& program) {
  return access(("/usr/bin/" + program).c_str(), X_OK) == 0;
}

TEST(Pages, AreThoseOfTheDeclarations) {
  for (const Page& each : all_pages())
    EXPECT_EQ(committed(each.path), each.text) << "run: cmake --build BUILD --target write-pages";
}

// From where the page has `begin` to the next section; empty: it has no such.
std::string section_of(const std::string& text, const std::string& begin) {
  const std::size_t from = text.find("\n" + begin);
  return from == std::string::npos ? "" : text.substr(from, text.find("\n.S", from + 1) - from);
}

// Whether an item of the section is of the option, and says its sentence.
bool describes(const std::string& section, const Option& option) {
  const std::string item = "\n.TP\n";
  std::string name = option.names.back();
  if (option.positional)
    std::transform(name.begin(), name.end(), name.begin(), [](unsigned char c) { return std::toupper(c); });
  const std::string tag = (option.positional ? "\\fI" : "\\fB") + roff(name) + "\\fR";
  for (std::size_t at = section.find(item); at != std::string::npos; at = section.find(item, at + 1)) {
    const std::size_t tags = at + item.size(), sentence = section.find('\n', tags) + 1;
    if (section.substr(tags, sentence - tags).find(tag) != std::string::npos &&
        section.substr(sentence).starts_with(roff(option.sentence) + "."))
      return true;
  }
  return false;
}

// The commands and options that the page leaves out. An option may also stand among the common ones.
void find_missing(const std::string& text, const Command& command, std::vector<std::string>* missing) {
  for (const Command& below : command.commands) find_missing(text, below, missing);
  const std::string own = section_of(text, ".SS \\fB" + command.path + "\\fR ");
  if (own.empty() && command.commands.empty()) missing->push_back(command.path);
  const std::string common = section_of(text, ".SH COMMON OPTIONS\n");
  for (const Option& option : command.options)
    if (!describes(own, option) && !describes(common, option))
      missing->push_back(command.path + " " + option.names.back());
}

std::vector<std::string> missing_in(const std::string& text, const Command& command) {
  std::vector<std::string> missing;
  find_missing(text, command, &missing);
  return missing;
}

// Goal:   the page has all that the help has; a new command or key needs no page to be edited.
TEST(Pages, NameEveryCommandOptionVariableAndKey) {
  const std::string muster = page("man/muster.1");
  const Program program = muster_program();
  EXPECT_THAT(missing_in(muster, program.command), SizeIs(0));
  EXPECT_THAT(program.command.commands, SizeIs(testing::Ge(18u)));
  for (const char* section : {"NAME", "SYNOPSIS", "DESCRIPTION", "COMMANDS", "EXIT STATUS", "ENVIRONMENT",
                              "FILES", "EXAMPLES", "SEE ALSO"})
    EXPECT_THAT(muster, HasSubstr(std::string("\n.SH ") + section + "\n"));
  EXPECT_THAT(muster,
              AllOf(HasSubstr("MUSTER_WORLD_SIZE"), HasSubstr("\\fB130\\fR"), HasSubstr("engine_stuck")));
  EXPECT_THAT(page("man/musterd.8"), AllOf(HasSubstr("\\-\\-check\\-config"), HasSubstr(".SH OPTIONS")));
  EXPECT_THAT(page("man/musterd.yaml.5"),
              AllOf(HasSubstr("node.workers"), HasSubstr("MUSTER_SET_node__workers"),
                    HasSubstr("jobs[].mesh"), HasSubstr("default 60s")));
}

// Goal: the check above finds what is missing, also where another command has an option of that name.
TEST(Pages, AreFoundToLackAnOption) {
  Program program = muster_program();
  const std::string before = program_page(program, 1);
  std::vector<Command>& commands = program.command.commands;
  const auto command = [&](const std::string& name) -> Command& {
    return *std::find_if(commands.begin(), commands.end(),
                         [&](const auto& each) { return each.name == name; });
  };
  Option option = command("trace").options.front();
  option.names = {"--grace"};  // of `run`
  command("status").options.push_back(option);
  option.names = {"op"};  // of `plan explain`
  option.positional = true;
  command("status").options.push_back(option);
  Command more = command("jobs");
  more.path = "muster more";
  command("config").commands.push_back(more);
  EXPECT_THAT(missing_in(before, program.command),
              UnorderedElementsAre("muster status --grace", "muster status op", "muster more"));
  EXPECT_THAT(missing_in(program_page(program, 1), program.command), SizeIs(0));
}

// Goal:   the word behind words of any number has a place of its own in no shell.
TEST(Completion, KnowsNoWordBehindThoseOfAnyNumber) {
  const std::vector<Command> programs{muster_program().command};
  EXPECT_THAT(bash_completion(programs), Not(HasSubstr("'muster checkpoint import 1'")));
  const std::string zsh = zsh_completion(programs);
  const std::size_t import = zsh.find("_muster_checkpoint_import() {");
  ASSERT_NE(import, std::string::npos);
  EXPECT_THAT(zsh.substr(import, zsh.find("\n}", import) - import),
              AllOf(HasSubstr("'*:files:_files'"), Not(HasSubstr(":folder:"))));
}

// Nobody types the commands by which programs ask each other.
TEST(Pages, LeaveOutWhatIsHidden) {
  for (const Page& each : all_pages())
    EXPECT_THAT(each.text, AllOf(Not(HasSubstr("check-nonce")), Not(HasSubstr("check\\-nonce"))))
        << each.path;
}

TEST(Roff, ShowsATextAsItIs) {
  EXPECT_EQ(roff(".PP\n'x \\n"), "\\&.PP\n\\&\\(aqx \\en");
  EXPECT_EQ(roff("--set a…"), "\\-\\-set a\\[u2026]");
}

TEST(Pages, FindNoFaultWithMandoc) {
  if (!there("mandoc")) GTEST_SKIP() << "needs mandoc";
  for (const char* path : {"man/muster.1", "man/musterd.8", "man/musterd.yaml.5"}) {
    const Ran ran = run({"/usr/bin/mandoc", "-Tlint", "-Wwarning", kDeploy + path});
    std::istringstream lines(ran.out + ran.err);
    for (std::string line; std::getline(lines, line);)
      EXPECT_THAT(line, HasSubstr("missing date")) << "of a file that is made again and again";
  }
}

TEST(Pages, FindNoFaultWithGroff) {
  if (!there("groff")) GTEST_SKIP() << "needs groff";
  for (const char* path : {"man/muster.1", "man/musterd.8", "man/musterd.yaml.5"}) {
    const Ran ran = run({"/usr/bin/groff", "-man", "-Tutf8", "-ww", "-z", kDeploy + path});
    EXPECT_EQ(ran.code, 0);
    EXPECT_EQ(ran.err, "") << path;
  }
}

// ---- completion

// Bash's proposals for the last word of the line.
std::vector<std::string> in_bash(const std::vector<std::string>& words, const std::string& folder = "/") {
  std::string script =
      "cd \"$1\"; source \"$2\"; shift 2; COMP_WORDS=(\"$@\"); COMP_CWORD=$(($# - 1)); _muster; "
      "printf '%s\\n' \"${COMPREPLY[@]}\"";
  std::vector<std::string> line{
      "/bin/bash", "--norc", "-c", script, "bash", folder, kDeploy + "completion/muster.bash"};
  line.insert(line.end(), words.begin(), words.end());
  const Ran ran = run(line);
  EXPECT_EQ(ran.err, "") << testing::PrintToString(words);
  std::istringstream lines(ran.out);
  std::vector<std::string> proposed;
  for (std::string text; std::getline(lines, text);)
    if (!text.empty()) proposed.push_back(text);
  return proposed;
}

TEST(BashCompletion, ProposesCommandsOfEveryDepth) {
  EXPECT_THAT(in_bash({"muster", "st"}), ElementsAre("status"));
  EXPECT_THAT(in_bash({"muster", ""}), AllOf(Contains("run"), Contains("config"), Contains("top")));
  EXPECT_THAT(in_bash({"muster", "config", ""}), ElementsAre("check", "show", "explain", "schema"));
  EXPECT_THAT(in_bash({"muster", "plan", "e"}), ElementsAre("explain"));
  EXPECT_THAT(in_bash({"/usr/local/bin/muster", "plan", "e"}), ElementsAre("explain"));
}

TEST(BashCompletion, ProposesTheOptionsOfACommand) {
  EXPECT_THAT(in_bash({"muster", "trace", "--"}), AllOf(Contains("--output"), Contains("--seconds"),
                                                        Not(Contains("--pickles")), Not(Contains("-o"))));
  EXPECT_THAT(in_bash({"muster", "trace", "--seconds", "3", "--en"}), ElementsAre("--endpoint", "--end"));
  EXPECT_THAT(in_bash({"muster", "config", "show", "--s"}), ElementsAre("--set"));
  EXPECT_THAT(in_bash({"muster", "config", "check", "--json", "--"}), Contains("--help"))
      << "a flag takes no value, though the command takes files";
  EXPECT_THAT(in_bash({"musterd", "--check-c"}), ElementsAre("--check-config"));
}

TEST(BashCompletion, ProposesValuesThatAreKnown) {
  EXPECT_THAT(in_bash({"muster", "plan", "explain", "all_"}),
              ElementsAre("all_reduce", "all_gather", "all_to_all"));
  EXPECT_THAT(in_bash({"muster", "plan", "explain", "--ranks", "4", "barr"}), ElementsAre("barrier"));
  EXPECT_THAT(in_bash({"muster", "plan", "explain", "--dtype", "bf"}), ElementsAre("bf16"));
  EXPECT_THAT(in_bash({"muster", "config", "explain", "node.w"}), ElementsAre("node.workers"));
  EXPECT_THAT(in_bash({"muster", "config", "explain", "jobs[].me"}), Contains("jobs[].mesh"));
  EXPECT_THAT(in_bash({"muster", "config", "schema", ""}), ElementsAre("musterd", "cluster"));
  EXPECT_THAT(in_bash({"musterd", "--set", "log.l"}), ElementsAre("log.level="));
  EXPECT_THAT(in_bash({"muster", "plan", "explain", "--dtype", "=", "bf"}), ElementsAre("bf16"))
      << "as bash cuts --dtype=bf";
  EXPECT_THAT(in_bash({"muster", "plan", "explain", "--ranks", ""}), SizeIs(0)) << "a number";
}

TEST(BashCompletion, ProposesFilesAndPrograms) {
  const Folder folder;
  folder.write("cluster.yaml", "");
  std::filesystem::create_directory(folder.path() + "/clips");
  EXPECT_THAT(in_bash({"muster", "mesh", "--config", "cl"}, folder.path()),
              testing::UnorderedElementsAre("cluster.yaml", "clips"));
  EXPECT_THAT(in_bash({"muster", "flight", "--pickles", "cl"}, folder.path()), ElementsAre("clips"));
  EXPECT_THAT(in_bash({"muster", "config", "check", "a", "clu"}, folder.path()), ElementsAre("cluster.yaml"));
  for (const std::string& before : {std::string("--json"), std::string("a.safetensors")})
    EXPECT_THAT(in_bash({"muster", "checkpoint", "import", before, "cl"}, folder.path()),
                testing::UnorderedElementsAre("cluster.yaml", "clips"))
        << "files, and the folder behind them";
  EXPECT_THAT(in_bash({"muster", "run", "-n", "4", "--", "mkdi"}), Contains("mkdir"));
  EXPECT_THAT(in_bash({"muster", "run", "-n", "4", "--", "mkdir", "clu"}, folder.path()),
              ElementsAre("cluster.yaml"));
  EXPECT_THAT(in_bash({"muster", "run", "-n", "4", "mkdir", "clu"}, folder.path()),
              ElementsAre("cluster.yaml"));
  EXPECT_THAT(in_bash({"muster", "run", "-n", "4", "--", "mkdir", "--pri"}), SizeIs(0))
      << "the program's own";
}

TEST(BashCompletion, ProposesJobsOfTheDaemon) {
  const test::Daemon daemon;
  const Ran ran = test::muster(
      {"run", "-n", "1", "--job", "train", "--keep", "--endpoint", daemon.socket(), "--", "true"});
  ASSERT_EQ(ran.code, 0) << ran.err;
  const std::string script = "export MUSTER_ENDPOINT=" + daemon.socket() + "; source " + kDeploy +
                             "completion/muster.bash; COMP_WORDS=(" + test::program("muster") +
                             " top --job t); COMP_CWORD=3; _muster; echo \"${COMPREPLY[@]}\"";
  EXPECT_EQ(run({"/bin/bash", "--norc", "-c", script}).out, "train\n");
}

TEST(FishCompletion, ProposesCommandsOptionsAndValues) {
  if (!there("fish")) GTEST_SKIP() << "needs fish";
  const Folder home;
  const auto in_fish = [&](const std::string& line) {
    return run({"/usr/bin/fish", "--no-config", "-c",
                "source " + kDeploy + "completion/muster.fish; complete -C '" + line + "'"},
               {"HOME=" + home.path()});
  };
  EXPECT_THAT(in_fish("muster sta").out, HasSubstr("status\tThe daemon: what it holds"));
  EXPECT_THAT(in_fish("muster config ").out, AllOf(HasSubstr("explain"), HasSubstr("schema")));
  EXPECT_THAT(in_fish("muster trace --sec").out, HasSubstr("--seconds"));
  EXPECT_THAT(in_fish("muster plan explain all_r").out, HasSubstr("all_reduce"));
  EXPECT_THAT(in_fish("muster config explain node.w").out, HasSubstr("node.workers"));
  EXPECT_THAT(in_fish("musterd --check-c").out, HasSubstr("--check-config"));
  EXPECT_EQ(in_fish("muster sta").err, "");
}

// Method: a shell on a terminal, and the Tab key.
TEST(ZshCompletion, ProposesCommandsOptionsAndValues) {
  if (!there("zsh")) GTEST_SKIP() << "needs zsh";
  const Folder home;
  test::Terminal shell({{"/usr/bin/zsh", "-f", "-i"}, {"HOME=" + home.path(), "PS1=ready> "}, {}});
  ASSERT_TRUE(shell.shows("ready> ")) << shell.shown();
  shell.type("fpath=(" + kDeploy +
             "completion $fpath); autoload -U compinit; compinit -u -D; echo lo''aded\n");
  ASSERT_TRUE(shell.shows("loaded")) << shell.shown();
  shell.type("muster plan explain all_red\t");
  EXPECT_TRUE(shell.shows("all_reduce")) << shell.shown();
  shell.type("--dt\t");
  EXPECT_TRUE(shell.shows("--dtype")) << shell.shown();
  shell.type("bf\t");
  EXPECT_TRUE(shell.shows("bf16")) << shell.shown();
  shell.type("\x15musterd --check-c\t");
  EXPECT_TRUE(shell.shows("--check-config")) << shell.shown();
  shell.type(
      "\x15"
      "exit\n");
  shell.wait();
}

TEST(ZshCompletion, ProposesJobsOfTheDaemon) {
  if (!there("zsh")) GTEST_SKIP() << "needs zsh";
  const test::Daemon daemon;
  const Ran ran = test::muster(
      {"run", "-n", "1", "--job", "train", "--keep", "--endpoint", daemon.socket(), "--", "true"});
  ASSERT_EQ(ran.code, 0) << ran.err;
  const Folder home;
  test::Terminal shell({{"/usr/bin/zsh", "-f", "-i"},
                        {"HOME=" + home.path(), "PS1=ready> ", "MUSTER_ENDPOINT=" + daemon.socket()},
                        {}});
  ASSERT_TRUE(shell.shows("ready> ")) << shell.shown();
  shell.type("fpath=(" + kDeploy + "completion $fpath); path=(" + std::string(MUSTER_PROGRAMS) +
             " $path); autoload -U compinit; compinit -u -D; echo lo''aded\n");
  ASSERT_TRUE(shell.shows("loaded")) << shell.shown();
  shell.type("muster top --job t\t");
  EXPECT_TRUE(shell.shows("--job train")) << shell.shown();
  shell.type(
      "\x15"
      "exit\n");
  shell.wait();
}

TEST(ZshCompletion, IsRead) {
  if (!there("zsh")) GTEST_SKIP() << "needs zsh";
  const Ran ran = run({"/usr/bin/zsh", "-f", "-n", kDeploy + "completion/_muster"});
  EXPECT_EQ(ran.code, 0) << ran.err;
  EXPECT_EQ(ran.err, "");
}

}  // namespace
}  // namespace muster::pages
