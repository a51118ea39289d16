// The commands that need no daemon, through the program.
#include "api/base/collective/path.hpp"

#include "api/base/dtype.hpp"
#include "tests/daemon/cli/program.hpp"

#include <sstream>

namespace muster::test {
namespace {

struct Expected {
  const char* mesh;
  const char* world;
  int per_rank;
  int total;
};

// Communicators after de-duplication, as derived by hand from the definition of the dims.
constexpr Expected kMeshes[] = {
    {"dp_shard=-1", "8", 1, 1},
    {"dp_replicate=8,dp_shard=1", "8", 1, 1},
    {"dp_shard=1,tp=8", "8", 1, 1},
    {"dp_replicate=2,dp_shard=4", "8", 3, 7},
    {"dp_shard=4,tp=2", "8", 3, 7},
    {"dp_replicate=2,dp_shard=-1,tp=2", "8", 6, 17},
    {"pp=2,dp_shard=2,tp=2", "8", 5, 15},
    {"dp_shard=2,cp=2,tp=2", "8", 5, 15},
    {"pp=2,dp_shard=1,tp=4", "8", 3, 7},
    {"pp=2,dp_replicate=2,dp_shard=4,cp=2,tp=2", "64", 11, 171},
    {"dp_replicate=4,dp_shard=8,tp=8", "256", 6, 141},
};

TEST(MeshCommand, CountsTheGroupsOfKnownMeshes) {
  for (const Expected& expected : kMeshes) {
    const Ran ran = muster({"mesh", "--world", expected.world, "--mesh", expected.mesh, "--json"});
    ASSERT_EQ(ran.code, 0) << expected.mesh << ran.err;
    const Json mesh = ran.json();
    EXPECT_EQ(mesh.at("schema_version"), 1);
    EXPECT_EQ(mesh.at("total"), expected.total) << expected.mesh;
    EXPECT_EQ(mesh.at("groups").size(), static_cast<std::size_t>(expected.total)) << expected.mesh;
    for (const Json& count : mesh.at("per_rank")) EXPECT_EQ(count, expected.per_rank) << expected.mesh;
  }
}

TEST(MeshCommand, NamesEveryGroupOnceWithAllItsAliases) {
  const Json mesh = muster({"mesh", "--world", "8", "--mesh", "dp_shard=4,tp=2", "--json"}).json();
  std::map<std::string, std::vector<std::vector<int>>> by_name;
  for (const Json& group : mesh.at("groups"))
    for (const Json& name : group.at("names")) by_name[name].push_back(group.at("ranks"));
  EXPECT_EQ(by_name.at("tp"), (std::vector<std::vector<int>>{{0, 1}, {2, 3}, {4, 5}, {6, 7}}));
  EXPECT_EQ(by_name.at("fsdp"), (std::vector<std::vector<int>>{{0, 2, 4, 6}, {1, 3, 5, 7}}));
  EXPECT_EQ(by_name.at("weight"), by_name.at("world"));
}

TEST(MeshCommand, AddsFlattensAndReadsThemFromAClusterFile) {
  const Ran given = muster({"mesh", "--world", "8", "--mesh", "dp_replicate=2,dp_shard=2,tp=2", "--flatten",
                            "dp_tp=dp_replicate,dp_shard,tp", "--json"});
  ASSERT_EQ(given.code, 0) << given.err;
  const Ran from_file =
      muster({"mesh", "--config", std::string(MUSTER_CONFIGS) + "/cluster.two-nodes.yaml", "--json"});
  ASSERT_EQ(from_file.code, 0) << from_file.err;
  EXPECT_EQ(given.json().at("groups"), from_file.json().at("groups"));
  EXPECT_EQ(given.json().at("hash"), from_file.json().at("hash"));
  EXPECT_NE(given.out.find("dp_tp"), std::string::npos);
}

// Goal:   two hashes differ only if a line differs.
TEST(MeshCommand, ShowsTheFactsBehindTheHash) {
  const Ran two = muster({"mesh", "--world", "8", "--mesh", "dp_shard=4,tp=2", "--manifest"});
  EXPECT_EQ(two.code, 0) << two.err;
  EXPECT_TRUE(two.out.starts_with("muster-mesh 1\nworld 8\n")) << two.out;
  const Ran four = muster({"mesh", "--world", "8", "--mesh", "dp_shard=2,tp=4", "--manifest", "--json"});
  EXPECT_NE(four.json().at("manifest"), two.out);
  EXPECT_TRUE(four.json().at("manifest").get<std::string>().ends_with("\n")) << four.out;
}

TEST(MeshCommand, FitsAHundredColumns) {
  for (const Expected& expected : kMeshes) {
    const Ran ran = muster({"mesh", "--world", expected.world, "--mesh", expected.mesh});
    std::istringstream lines(ran.out);
    for (std::string line; std::getline(lines, line);) EXPECT_LE(line.size(), 100u) << line;
  }
}

TEST(MeshCommand, NamesTheOptionThatIsWrong) {
  const auto refusal = [](std::vector<std::string> options) {
    options.insert(options.begin(), {"mesh", "--world", "8"});
    const Ran ran = muster(options);
    EXPECT_EQ(ran.code, 2);
    return ran.err;
  };
  EXPECT_EQ(refusal({"--mesh", "dp_shard=3"}).rfind("muster: --mesh dp_shard=3: ", 0), 0u);
  EXPECT_EQ(refusal({"--mesh", "tpp=2"}).rfind("muster: --mesh: ", 0), 0u);
  EXPECT_EQ(refusal({"--flatten", "x=a,b"}).rfind("muster: --flatten: ", 0), 0u);
  EXPECT_EQ(refusal({"--flatten", "x"}).rfind("muster: --flatten ", 0), 0u);
  const Ran file = muster({"mesh", "--config", "/nonexistent/cluster.yaml"});
  EXPECT_EQ(file.err.rfind("muster: --config /nonexistent/cluster.yaml: ", 0), 0u) << file.err;
  const Ran run = muster({"run", "-n", "8", "--private", "--mesh", "dp_shard=3", "--", "true"});
  EXPECT_EQ(run.err.rfind("muster: --mesh dp_shard=3: ", 0), 0u) << run.err;
  const Folder folder;
  const std::string cluster = folder.write("c.yaml",
                                           "nodes:\n  - {host: a, devices: {kind: host, count: 4}}\njobs:\n  "
                                           "- {name: j, mesh: {dims: {dp_shard: 3}}}\n");
  const Ran key = muster({"mesh", "--config", cluster});
  EXPECT_NE(key.err.find(cluster + ":4:"), std::string::npos) << key.err;
  EXPECT_NE(key.err.find("jobs[0].mesh"), std::string::npos) << key.err;
}

TEST(MeshCommand, RefusesWhatIsNoMesh) {
  const Ran product = muster({"mesh", "--world", "8", "--mesh", "dp_shard=3"});
  EXPECT_EQ(product.code, 2);
  EXPECT_NE(product.err.find('8'), std::string::npos) << product.err;
  EXPECT_EQ(muster({"mesh", "--world", "8", "--mesh", "tpp=2"}).code, 2);
  EXPECT_EQ(muster({"mesh"}).code, 2);
  EXPECT_EQ(muster({"mesh", "--world", "0"}).code, 2);
  EXPECT_EQ(muster({"mesh", "--world", "8", "--flatten", "x"}).code, 2);
  const std::string file = std::string(MUSTER_CONFIGS) + "/cluster.two-nodes.yaml";
  EXPECT_EQ(muster({"mesh", "--config", file, "--job", "nope"}).code, 4);
  EXPECT_EQ(muster({"mesh", "--config", file, "--world", "8"}).code, 2);
}

struct Launched {
  const char* launcher;
  std::vector<std::string> environment;
  int local_rank;
  const char* job;
};

TEST(EnvCommand, RecognisesEachLauncher) {
  const Launched cases[] = {
      {"torchrun",
       {"RANK=3", "WORLD_SIZE=8", "LOCAL_RANK=1", "LOCAL_WORLD_SIZE=2", "TORCHELASTIC_RUN_ID=r"},
       1,
       "torchrun-r"},
      {"openmpi",
       {"OMPI_COMM_WORLD_RANK=3", "OMPI_COMM_WORLD_SIZE=8", "OMPI_COMM_WORLD_LOCAL_RANK=3"},
       3,
       ""},
      {"torchrun",
       {"RANK=3", "WORLD_SIZE=8", "LOCAL_RANK=1", "TORCHELASTIC_RUN_ID=none", "MASTER_PORT=29501"},
       1,
       "torchrun-none.29501"},
      {"torchrun",
       {"RANK=3", "WORLD_SIZE=8", "LOCAL_RANK=1", "TORCHELASTIC_RUN_ID=r", "MASTER_PORT=29501"},
       1,
       "torchrun-r"},
      {"slurm", {"SLURM_PROCID=3", "SLURM_NTASKS=8", "SLURM_LOCALID=0", "SLURM_JOB_ID=42"}, 0, "slurm-42"},
      {"slurm",
       {"SLURM_PROCID=3", "SLURM_NTASKS=8", "SLURM_LOCALID=0", "SLURM_JOB_ID=42", "SLURM_STEP_ID=1"},
       0,
       "slurm-42.1"},
      {"mpich", {"PMI_RANK=3", "PMI_SIZE=8", "MPI_LOCALRANKID=2"}, 2, ""},
      {"muster",
       {"MUSTER_RANK=3", "MUSTER_WORLD_SIZE=8", "MUSTER_LOCAL_RANK=3", "MUSTER_JOB=j", "RANK=1",
        "WORLD_SIZE=2"},
       3,
       "j"},
      {"torchrun", {"SLURM_PROCID=0", "SLURM_NTASKS=1", "RANK=3", "WORLD_SIZE=8"}, -1, ""},
      {"slurm",
       {"MUSTER_BOOTSTRAP=slurm", "SLURM_PROCID=3", "SLURM_NTASKS=8", "RANK=1", "WORLD_SIZE=2"},
       -1,
       ""},
  };
  for (const Launched& launched : cases) {
    const Ran ran = muster({"env", "--json"}, launched.environment);
    ASSERT_EQ(ran.code, 0) << ran.err;
    const Json env = ran.json();
    const Json& identity = env.at("identity");
    EXPECT_EQ(identity.at("launcher"), launched.launcher);
    EXPECT_EQ(identity.at("rank"), 3) << launched.launcher;
    EXPECT_EQ(identity.at("world_size"), 8) << launched.launcher;
    EXPECT_EQ(identity.at("local_rank"), launched.local_rank) << launched.launcher;
    EXPECT_EQ(identity.at("job"), launched.job) << launched.launcher;
    for (const Json& launcher : env.at("launchers"))
      EXPECT_EQ(launcher.at("taken"), launcher.at("name") == launched.launcher) << launcher;
  }
}

TEST(EnvCommand, SaysWhyAndKeepsTheTokenSecret) {
  const Ran ran = muster({"env"}, {"RANK=0", "WORLD_SIZE=2", "MUSTER_TOKEN=hush"});
  EXPECT_EQ(ran.code, 0) << ran.err;
  EXPECT_NE(ran.out.find("the first that is complete"), std::string::npos) << ran.out;
  EXPECT_NE(ran.out.find("MUSTER_RANK is not set"), std::string::npos) << ran.out;
  EXPECT_EQ(ran.out.find("hush"), std::string::npos);
}

TEST(EnvCommand, WithoutALauncherThereIsNoRank) {
  const Json env = muster({"env", "--json"}).json();
  EXPECT_EQ(env.at("identity").at("rank"), -1);
  EXPECT_EQ(env.at("identity").at("endpoint"), "/run/muster/ranks/musterd.sock");
}

TEST(EnvCommand, RefusesNonsense) {
  EXPECT_EQ(muster({"env"}, {"RANK=x", "WORLD_SIZE=2"}).code, 2);
  EXPECT_EQ(muster({"env"}, {"RANK=2", "WORLD_SIZE=2"}).code, 2);
  EXPECT_EQ(muster({"env"}, {"MUSTER_BOOTSTRAP=nope"}).code, 2);
  const Ran half = muster({"env"}, {"MUSTER_RANK=0"});
  EXPECT_EQ(half.code, 2);
  EXPECT_NE(half.err.find("MUSTER_WORLD_SIZE is missing"), std::string::npos) << half.err;
}

TEST(ConfigCommand, AcceptsTheShippedFiles) {
  const std::string folder = MUSTER_CONFIGS;
  const Ran ran =
      muster({"config", "check", folder + "/musterd.yaml", folder + "/cluster.one-node.yaml", "--json"});
  ASSERT_EQ(ran.code, 0) << ran.out << ran.err;
  const Json files = ran.json().at("files");
  EXPECT_EQ(files.at(0).at("kind"), "musterd");
  EXPECT_EQ(files.at(1).at("kind"), "cluster");
}

TEST(ConfigCommand, ShowsWhereFilesAreWrong) {
  const Folder folder;
  const std::string settings = folder.write("musterd.yaml", "node:\n  worker: 4\nlimits:\n  jobs_max: 0\n");
  const std::string cluster = folder.write("c.yaml",
                                           "nodes:\n  - {host: a, devices: {kind: host, count: 4}}\njobs:\n  "
                                           "- name: j\n    mesh:\n      dims: {tp: 3}\n");
  const Ran ran = muster({"config", "check", settings, cluster});
  EXPECT_EQ(ran.code, 2);
  EXPECT_NE(ran.err.find(settings + ":2:3"), std::string::npos) << ran.err;
  EXPECT_NE(ran.err.find("workers"), std::string::npos) << ran.err;
  EXPECT_NE(ran.err.find(settings + ":4:"), std::string::npos) << ran.err;
  EXPECT_NE(ran.err.find(cluster + ":6:"), std::string::npos) << ran.err;
  EXPECT_EQ(muster({"config", "check", folder.path() + "/none.yaml"}).code, 2);
}

// Goal:   the daemon takes every file that the check passes, with its nodes, devices and limits.
TEST(ConfigCommand, RefusesWhatTheDaemonWouldRefuse) {
  const Ran nodes = muster({"config", "check", std::string(MUSTER_CONFIGS) + "/cluster.two-nodes.yaml"});
  EXPECT_EQ(nodes.code, 0) << nodes.err;
  const Folder folder;
  const std::string more = folder.write("more.yaml",
                                        "nodes:\n  - {host: \"a[1-2]\", devices: {kind: host, count: 4}}\n"
                                        "jobs:\n  - {name: j, ranks: 9, mesh: {dims: {dp_shard: -1}}}\n");
  const Ran ranks = muster({"config", "check", more});
  EXPECT_EQ(ranks.code, 2);
  EXPECT_NE(ranks.err.find("job j has 9 ranks, and all hosts together 8 devices"), std::string::npos)
      << ranks.err;
  const std::string wrong = folder.write("wrong.yaml",
                                         "nodes:\n  - {host: \"a[1-2]\", address: 10.0.0.1, devices: "
                                         "{kind: host, count: 4}}\n");
  const Ran addresses = muster({"config", "check", wrong});
  EXPECT_EQ(addresses.code, 2);
  EXPECT_NE(addresses.err.find("1 addresses for 2 hosts"), std::string::npos) << addresses.err;
  const std::string cluster =
      folder.write("c.yaml",
                   "nodes:\n  - {host: a, devices: {kind: host, count: 4}}\njobs:\n  - {name: j, ranks: 300, "
                   "mesh: {dims: {dp_shard: -1}}}\n");
  const Ran defaults = muster({"config", "check", cluster});
  EXPECT_EQ(defaults.code, 2);
  EXPECT_NE(defaults.err.find("limits.ranks_per_job_max is 256"), std::string::npos) << defaults.err;
  const std::string settings = folder.write("musterd.yaml", "limits:\n  ranks_per_job_max: 300\n");
  const Ran given = muster({"config", "check", cluster, settings});
  EXPECT_EQ(given.code, 0) << given.err;
  const std::string cuda = folder.write("cuda.yaml",
                                        "nodes:\n  - {host: a, devices: {kind: cuda, count: 4}}\njobs:\n  "
                                        "- {name: j, mesh: {dims: {dp_shard: -1}}}\n");
  const Ran device = muster({"config", "check", cuda});
  EXPECT_EQ(device.code, 2);
  EXPECT_NE(device.err.find(cuda + ":2:"), std::string::npos) << device.err;
}

// Goal:   a file that a good file names is looked at too, as all else at which a daemon would stop.
// Method: each file is given to both.
TEST(ConfigCommand, FindsWhatTheDaemonFindsInItsFile) {
  const Folder folder;
  const std::string cluster = folder.write(
      "c.yaml",
      "nodes:\n  - {host: a, devices: {kind: host, count: 4}}\njobs:\n  - {name: j, ranks: 300, mesh: "
      "{dims: {dp_shard: -1}}}\n");
  const std::string open = folder.write("open.yaml", "node: {workers: 1}\n");
  std::filesystem::permissions(open, std::filesystem::perms(0666));
  for (const auto& [text, fault] :
       {std::pair<std::string, std::string>{"jobs_from: /nosuch/c.yaml",
                                            "jobs_from: /nosuch/c.yaml: error: no such file; check the path"},
        {"jobs_from: " + cluster, "limits.ranks_per_job_max is 256"},
        {"jobs_from: " + open, "mode 0666 lets everyone write it"},
        {"node: {group: no-such-group}", "there is no group no-such-group"},
        {"node: {engine_user: no-such-user}", "there is no user no-such-user"},
        {"node: {workers: 5000}", "must be 0..1024, is 5000"}}) {
    const std::string file = folder.write("musterd.yaml", text + "\n");
    const Ran daemon = run({{program("musterd"), "--config", file, "--check-config"}, {}, {}});
    const Ran checked = muster({"config", "check", file});
    EXPECT_EQ(daemon.code, 2) << text;
    EXPECT_EQ(checked.code, 2) << text;
    for (const Ran* ran : {&daemon, &checked})
      EXPECT_NE(ran->err.find(fault), std::string::npos) << fault << "\n" << ran->err;
    EXPECT_EQ(muster({"config", "check", file, "--json"}).json().at("files").at(0).at("good"), false);
  }
  EXPECT_EQ(muster({"config", "check", open}).code, 2) << "a daemon does not read it";
  const std::string reports = folder.write("musterd.yaml", "log: {reports_directory: /nosuch}\n");
  const Ran warned = muster({"config", "check", reports});
  EXPECT_EQ(warned.code, 0) << warned.err;
  EXPECT_NE(warned.err.find("log.reports_directory /nosuch: No such file"), std::string::npos) << warned.err;
}

TEST(ConfigCommand, ShowsTheOriginOfEachValue) {
  const Folder folder;
  const std::string file = folder.write("musterd.yaml", "node:\n  workers: 3\nlimits:\n  jobs_max: 5\n");
  const Ran ran = muster({"config", "show", "--config", file, "--set", "node.workers=7", "--json"},
                         {"MUSTER_SET_limits__sessions_max=9"});
  ASSERT_EQ(ran.code, 0) << ran.err;
  std::map<std::string, Json> settings;
  const Json shown = ran.json();
  for (const Json& setting : shown.at("settings")) settings[setting.at("key")] = setting;
  EXPECT_EQ(settings.at("node.workers").at("value"), "7");
  EXPECT_EQ(settings.at("node.workers").at("origin"), "flag");
  EXPECT_EQ(settings.at("limits.jobs_max").at("origin"), "file");
  EXPECT_EQ(settings.at("limits.sessions_max").at("origin"), "environment");
  EXPECT_EQ(settings.at("log.level").at("origin"), "default");
  EXPECT_EQ(muster({"config", "show", "--set", "node.workers=many"}).code, 2);
  EXPECT_EQ(muster({"config", "show", "--set", "nonsense"}).code, 2);
}

TEST(ConfigCommand, ExplainsAKeyAsData) {
  const Json workers = muster({"config", "explain", "node.workers", "--json"}).json();
  EXPECT_EQ(workers.at("key"), "node.workers");
  EXPECT_EQ(workers.at("kind"), "integer");
  EXPECT_EQ(workers.at("default"), "0");
  EXPECT_EQ(workers.at("range"), "0..1024");
  EXPECT_EQ(workers.at("example"), "0");
  EXPECT_EQ(workers.at("environment"), "MUSTER_SET_node__workers");
  EXPECT_EQ(workers.at("flag"), "--set node.workers=");
  EXPECT_EQ(workers.at("file"), "musterd.yaml");
  EXPECT_EQ(workers.at("read_by"), Json::array({"musterd"}));
  EXPECT_NE(workers.at("sentence").get<std::string>().find("Worker threads"), std::string::npos);
  const Json level = muster({"config", "explain", "log.level", "--json"}).json();
  EXPECT_EQ(level.at("choices"), Json::array({"debug", "info", "warning", "error", "off"}));
  EXPECT_TRUE(level.at("range").is_null());
  const Json section = muster({"config", "explain", "node", "--json"}).json();
  EXPECT_EQ(section.at("kind"), "section");
  EXPECT_EQ(section.at("keys").at(0).at("key"), "node.name");
  EXPECT_TRUE(section.at("environment").is_null());
  const Json host = muster({"config", "explain", "nodes[0].host", "--json"}).json();
  EXPECT_EQ(host.at("file"), "cluster.yaml");
  EXPECT_EQ(host.at("required"), true);
  EXPECT_TRUE(host.at("default").is_null());
  EXPECT_EQ(host.at("read_by").size(), 3u);
}

TEST(ConfigCommand, ExplainsKeysAndPrintsSchemas) {
  EXPECT_NE(muster({"config", "explain", "node.workers"}).out.find("--set"), std::string::npos);
  EXPECT_EQ(muster({"config", "explain", "node.worker"}).code, 4);
  for (const char* which : {"musterd", "cluster"}) {
    const Ran ran = muster({"config", "schema", which});
    std::ifstream shipped(std::string(MUSTER_CONFIGS) + "/schema/" + which + ".schema.json");
    const std::string text((std::istreambuf_iterator<char>(shipped)), {});
    EXPECT_EQ(ran.out, text) << which;
  }
  EXPECT_EQ(muster({"config", "schema", "other"}).code, 2);
}

// Goal:   it names the choice that a rank would make.
// Method: the rule is asked for the same operation.
TEST(PlanCommand, ExplainsWhatTheRuleChooses) {
  const Machine machine{2, 8, true};
  for (const bool shared : {false, true}) {
    for (const char* count : {"2", "100000", "50000000"}) {
      std::vector<std::string> words{"plan", "explain", "all_reduce", "--ranks", "4",   "--world",
                                     "8",    "--cores", "2",          "--count", count, "--json"};
      if (shared) words.push_back("--shared");
      const Ran ran = muster(words);
      ASSERT_EQ(ran.code, 0) << ran.err;
      Collective c;
      c.op = MUSTER_ALL_REDUCE;
      c.dtype = MUSTER_F32;
      c.redop = MUSTER_SUM;
      c.count = std::stoull(count);
      c.shared_memory = shared ? 1 : 0;
      const Choice choice = choose(c, 4, machine);
      const Json said = ran.json().at("choices").at(0);
      EXPECT_EQ(ran.json().at("shared"), shared);
      EXPECT_EQ(said.at("path"), path_name(choice.path)) << count;
      EXPECT_EQ(said.at("algorithm"), row_of(choice.algorithm).name) << count;
      EXPECT_EQ(said.at("why"), choice.why) << count;
      EXPECT_DOUBLE_EQ(said.at("predicted_us").get<double>(), choice.predicted_ns / 1000.0) << count;
    }
  }
}

// Goal:   it says whether the bits of a sum depend on which ranks share a node.
TEST(PlanCommand, SaysWhoseBitsASumHas) {
  const auto equal = [](const char* op, const char* dtype, const char* nodes) {
    const Ran ran =
        muster({"plan", "explain", op, "--ranks", "4", "--dtype", dtype, "--nodes", nodes, "--json"});
    EXPECT_EQ(ran.code, 0) << ran.err;
    return ran.json().at("equal_bits").get<std::string>();
  };
  EXPECT_EQ(equal("all_reduce", "f32", "1"), "every");
  EXPECT_EQ(equal("all_reduce", "f32", "2"), "one");
  EXPECT_EQ(equal("reduce_scatter", "f64", "2"), "one");
  EXPECT_EQ(equal("all_reduce", "bf16", "2"), "every") << "contributions travel apart";
  EXPECT_EQ(equal("all_reduce", "i32", "2"), "every");
  EXPECT_EQ(equal("all_gather", "f32", "2"), "");
  const auto text = [](const char* nodes) {
    return muster({"plan", "explain", "all_reduce", "--ranks", "4", "--nodes", nodes}).out;
  };
  EXPECT_THAT(text("2"), ::testing::HasSubstr("as long as the ranks stay on their nodes"));
  EXPECT_THAT(text("1"), ::testing::HasSubstr("on every path, wherever the ranks are"));
}

// Each of the sizes of one answer against the rule.
void expect_the_rules(const Json& said, muster_op op, muster_dtype dtype, int ranks, const Machine& machine) {
  for (const Json& one : said.at("choices")) {
    Collective c;
    c.op = op;
    c.dtype = dtype;
    c.redop = has_reduction(op) ? MUSTER_SUM : 0;
    c.count = one.at("count").get<std::uint64_t>();
    const Choice choice = choose(c, ranks, machine);
    EXPECT_EQ(one.at("bytes"), c.count * dtype_bytes(dtype));
    EXPECT_EQ(one.at("path"), path_name(choice.path)) << c.count;
    EXPECT_EQ(one.at("algorithm"), row_of(choice.algorithm).name) << c.count;
    EXPECT_EQ(one.at("why"), choice.why) << c.count;
  }
}

std::vector<std::string> question(muster_op op, muster_dtype dtype, int ranks, unsigned cores) {
  std::vector<std::string> words = {
      "plan",  "explain", op_name(op), "--ranks", std::to_string(ranks), "--cores", std::to_string(cores),
      "--json"};
  if (op != MUSTER_BARRIER) words.insert(words.end(), {"--dtype", dtype_name(dtype)});
  return words;
}

TEST(PlanCommand, ExplainsEveryOperationOnEveryDtype) {
  for (muster_op op = 1; op <= kOperations; ++op)
    for (muster_dtype dtype = MUSTER_F32; dtype <= MUSTER_F8_E5M2; ++dtype)
      for (const auto& [ranks, cores] : {std::pair(3, 8U), std::pair(4, 2U)}) {
        SCOPED_TRACE(fmt::format("{} of {} over {} ranks", op_name(op), dtype_name(dtype), ranks));
        const Ran ran = muster(question(op, dtype, ranks, cores));
        ASSERT_EQ(ran.code, 0) << ran.err;
        EXPECT_EQ(ran.json().at("choices").size(), op == MUSTER_BARRIER ? 1u : 8u);
        if (op == MUSTER_BARRIER) continue;  // of no dtype
        expect_the_rules(ran.json(), op, dtype, ranks,
                         Machine{cores, static_cast<std::uint32_t>(ranks), true});
      }
}

// Where a reduction takes another way, and which: on cores of their own and where ranks share two.
struct Step {
  muster_op op;
  int ranks;
  unsigned cores;
  std::uint64_t last;   // bytes that take the way below
  std::uint64_t first;  // and above
  const char* below;
  const char* above;
};
constexpr std::uint64_t kKiB = 1 << 10;
constexpr std::uint64_t kMiB = 1 << 20;
constexpr Step kSteps[] = {
    {MUSTER_ALL_REDUCE, 2, 8, 32, 40, "direct small", "direct whole"},
    {MUSTER_ALL_GATHER, 4, 2, 32, 40, "direct turns", "direct whole"},
    {MUSTER_REDUCE_SCATTER, 4, 8, 8, 16, "direct small", "direct whole"},
    {MUSTER_ALL_REDUCE, 3, 8, kKiB, 2 * kKiB, "direct whole", "direct read"},
    {MUSTER_ALL_REDUCE, 3, 2, 16 * kKiB, 32 * kKiB, "direct whole", "direct read"},
    {MUSTER_ALL_REDUCE, 8, 8, kKiB, 8 * kKiB, "direct whole", "direct sliced"},
    {MUSTER_ALL_REDUCE, 8, 2, 8 * kKiB, 16 * kKiB, "direct whole", "direct sliced"},
    {MUSTER_REDUCE, 4, 8, 4 * kKiB, 16 * kKiB, "direct whole", "direct sliced"},
    {MUSTER_REDUCE, 8, 2, 16 * kKiB, 64 * kKiB, "direct whole", "direct sliced"},
    {MUSTER_ALL_REDUCE, 2, 8, 16 * kMiB - 8, 16 * kMiB, "direct read", "engine whole"},
    {MUSTER_REDUCE, 8, 2, 16 * kMiB - 8, 16 * kMiB, "direct sliced", "engine whole"},
};

TEST(PlanCommand, TakesAnotherWayBetweenTwoSizes) {
  for (const Step& step : kSteps)
    for (const muster_dtype dtype : {MUSTER_U8, MUSTER_BF16, MUSTER_F32, MUSTER_F64})
      for (const auto& [bytes, expected] : {std::pair(step.last, step.below), {step.first, step.above}}) {
        auto words = question(step.op, dtype, step.ranks, step.cores);
        words.insert(words.end(), {"--count", std::to_string(bytes / dtype_bytes(dtype))});
        const Ran ran = muster(words);
        ASSERT_EQ(ran.code, 0) << ran.err;
        const Json said = ran.json().at("choices").at(0);
        EXPECT_EQ(said.at("path").get<std::string>() + " " + said.at("algorithm").get<std::string>(),
                  expected)
            << op_name(step.op) << " of " << bytes << " bytes over " << step.ranks << " ranks on "
            << step.cores << " cores";
      }
}

TEST(PlanCommand, ShowsSizesWhereNoneIsGivenAndRefusesWhatCannotBe) {
  const Ran table = muster({"plan", "explain", "all_gather", "--ranks", "2", "--shared"});
  ASSERT_EQ(table.code, 0) << table.err;
  EXPECT_NE(table.out.find("into a node-shared buffer"), std::string::npos) << table.out;
  EXPECT_NE(table.out.find("268435456"), std::string::npos) << table.out;
  const Ran scatter = muster({"plan", "explain", "scatter", "--ranks", "2", "--shared"});
  EXPECT_EQ(scatter.code, 2);
  EXPECT_NE(scatter.err.find("all_gather"), std::string::npos) << scatter.err;
  EXPECT_EQ(muster({"plan", "explain", "no_op", "--ranks", "2"}).code, 2);
  EXPECT_EQ(muster({"plan", "explain", "barrier", "--ranks", "4", "--world", "2"}).code, 2);
  const Ran barrier = muster({"plan", "explain", "barrier", "--ranks", "4", "--json"});
  EXPECT_EQ(barrier.json().at("choices").size(), 1u) << "it has no data, so no sizes";
  EXPECT_EQ(barrier.json().at("choices").at(0).at("bytes"), 0);
  // Over several nodes the engine carries it out, by the algorithm with the least estimate.
  const Ran nodes = muster({"plan", "explain", "all_reduce", "--ranks", "8", "--nodes", "4", "--json"});
  ASSERT_EQ(nodes.code, 0) << nodes.err;
  const auto choices = nodes.json().at("choices");
  EXPECT_EQ(choices.front().at("algorithm"), "gather and fold");
  EXPECT_EQ(choices.back().at("algorithm"), "direct");
  const std::uint64_t bytes = choices.back().at("bytes");
  EXPECT_EQ(choices.back().at("why"),
            fmt::format("{} bytes sent by node 0 in 2 rounds", 2 * (bytes - bytes / 4)));
  // A target that members share on each node moves the same bytes between nodes.
  const Ran shared =
      muster({"plan", "explain", "all_reduce", "--ranks", "8", "--nodes", "4", "--shared", "--json"});
  EXPECT_EQ(shared.code, 0) << shared.err;
  EXPECT_EQ(shared.json().at("choices"), choices);
  const Ran streams = muster({"plan", "explain", "all_to_all", "--ranks", "8", "--nodes", "2"});
  EXPECT_NE(streams.out.find("one stream for each pair of nodes"), std::string::npos) << streams.out;
  EXPECT_EQ(muster({"plan", "explain", "all_reduce", "--ranks", "2", "--nodes", "3"}).code, 2);
  const Ran sized = muster({"plan", "explain", "barrier", "--ranks", "4", "--count", "0"});
  EXPECT_EQ(sized.code, 2);
  EXPECT_NE(sized.err.find("a barrier has no data"), std::string::npos) << sized.err;
}

// Where messages take long, the algorithm with fewer rounds is the better one for more bytes.
TEST(PlanCommand, GuessesWhichNameWasMeant) {
  const auto refused = [](std::vector<std::string> words) {
    words.insert(words.begin(), {"plan", "explain"});
    const Ran ran = muster(words);
    EXPECT_EQ(ran.code, 2);
    return ran.err;
  };
  EXPECT_NE(refused({"allreduce", "--ranks", "4"})
                .find("'allreduce' is no collective; did you mean 'all_reduce'? There are: all_reduce, "),
            std::string::npos);
  EXPECT_NE(refused({"all_gathr", "--ranks", "4"}).find("did you mean 'all_gather'?"), std::string::npos);
  EXPECT_NE(refused({"reduce", "--ranks", "4", "--dtype", "f31"}).find("is no dtype; did you mean 'f32'?"),
            std::string::npos);
  EXPECT_NE(refused({"zzz", "--ranks", "4"}).find("'zzz' is no collective; there are: "), std::string::npos);
}

TEST(PlanCommand, ChoosesByTheLinksOfAClusterFile) {
  const Folder folder;
  const std::string far = folder.write("far.yaml",
                                       "cluster: {link: {trip: 50ms, rate: 12500000B}}\n"
                                       "nodes: [{host: \"n[1-4]\", devices: {count: 2}}]\n");
  const auto chosen = [](std::vector<std::string> more) {
    std::vector<std::string> words{"plan",    "explain", "all_reduce", "--ranks", "8",
                                   "--nodes", "4",       "--count",    "65536",   "--json"};
    words.insert(words.end(), more.begin(), more.end());
    const Ran ran = muster(words);
    EXPECT_EQ(ran.code, 0) << ran.err;
    return ran.json();
  };
  const Json near = chosen({}), with = chosen({"--config", far});
  EXPECT_EQ(near.at("choices").at(0).at("algorithm"), "direct");
  EXPECT_EQ(with.at("choices").at(0).at("algorithm"), "gather and fold");
  EXPECT_EQ(with.at("link"), (Json{{"trip_ns", 50'000'000}, {"bytes_per_us", 12}}));
  EXPECT_EQ(muster({"plan", "explain", "all_reduce", "--ranks", "8", "--config", far}).code, 2);
}

// The output can be put into musterd.yaml, and a daemon would take the costs as they were measured.
TEST(PlanCommand, MeasuresCostsThatMusterdYamlTakes) {
  const Ran costs = muster({"plan", "costs"});
  ASSERT_EQ(costs.code, 0) << costs.err;
  const Folder folder;
  const std::string settings = folder.path() + "/musterd.yaml";
  std::ofstream(settings) << costs.out;
  const Ran shown = muster({"config", "show", "--config", settings, "--json"});
  ASSERT_EQ(shown.code, 0) << shown.err << costs.out;
  EXPECT_EQ(muster({"config", "check", settings}).code, 0) << costs.out;
  const Json measured = muster({"plan", "costs", "--json"}).json().at("costs");
  EXPECT_EQ(measured.size(), 4u);
  for (const auto& [name, value] : measured.items()) EXPECT_GE(value.get<std::int64_t>(), 1) << name;
}

}  // namespace
}  // namespace muster::test
