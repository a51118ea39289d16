#include "daemon/supervisor/program/startup.hpp"

#include "api/base/mesh/degrees.hpp"
#include "api/base/node_limits.hpp"
#include "daemon/config/cluster.hpp"
#include "daemon/config/shape.hpp"
#include "daemon/control/link/certificate.hpp"
#include "tests/support/folder.hpp"
#include "transport/endpoint/library.hpp"

#include <algorithm>
#include <filesystem>
#include <thread>

#include <grp.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <unistd.h>

namespace muster::supervisor {
namespace {

class Startup : public testing::Test {
 protected:
  std::string write(const std::string& name, const std::string& text) const {
    const std::string file = folder_.write(name, text);
    std::filesystem::permissions(file,
                                 std::filesystem::perms::owner_read | std::filesystem::perms::owner_write);
    return file;
  }
  static Result<Options> options_with(std::vector<config::Inputs::Flag> flags) {
    auto resolved = load_settings({Sources::ConfigFile::kNone, "", std::move(flags), {}});
    if (!resolved) return fail(resolved.error());
    return options_of(resolved->settings);
  }

  test::Folder folder_;
};

// Goal:   no setting is read and then forgotten.
TEST_F(Startup, EverySettingReachesItsPlace) {
  const auto options = options_with({{"node.runtime_directory", "/tmp/other", ""},
                                     {"node.socket_path", "/tmp/other.sock", ""},
                                     {"node.directory_mode", "0700", ""},
                                     {"node.group", "root", ""},
                                     {"node.engine_user", "4711", ""},
                                     {"node.program_folders", "/a:/b", ""},
                                     {"node.workers", "3", ""},
                                     {"limits.jobs_max", "5", ""},
                                     {"limits.sessions_max", "6", ""},
                                     {"limits.jobs_per_user_max", "17", ""},
                                     {"limits.sessions_per_user_max", "18", ""},
                                     {"limits.memory_max", "19GiB", ""},
                                     {"limits.memory_per_user_max", "20GiB", ""},
                                     {"limits.ranks_per_job_max", "13", ""},
                                     {"limits.buffers_per_rank_max", "7", ""},
                                     {"limits.plans_per_rank_max", "8", ""},
                                     {"limits.starts_per_lane_max", "14", ""},
                                     {"limits.groups_made_max", "15", ""},
                                     {"limits.arena_per_rank_max", "9MiB", ""},
                                     {"limits.arena_segment", "2MiB", ""},
                                     {"limits.made_job_linger", "16s", ""},
                                     {"liveness.idle_spin", "10us", ""},
                                     {"liveness.drain_timeout", "11s", ""},
                                     {"defaults.deadline", "12s", ""},
                                     {"defaults.digests", "16", ""},
                                     {"auto_create_jobs", "false", ""}});
  ASSERT_TRUE(options) << options.error().message();
  EXPECT_EQ(options->runtime_directory, "/tmp/other");
  EXPECT_EQ(options->socket_path, "/tmp/other.sock");
  EXPECT_EQ(options->directory_mode, 0700u);
  EXPECT_EQ(options->directory_gid, 0u);
  EXPECT_EQ(options->engine_user.uid, 4711u);
  EXPECT_EQ(options->program_folders, (std::vector<std::string>{"/a", "/b"}));
  EXPECT_EQ(options->jobs_max, 5u);
  EXPECT_EQ(options->sessions_max, 6u);
  EXPECT_EQ(options->jobs_per_user_max, 17u);
  EXPECT_EQ(options->sessions_per_user_max, 18u);
  EXPECT_EQ(options->memory_max, std::uint64_t{19} << 30);
  EXPECT_EQ(options->memory_per_user_max, std::uint64_t{20} << 30);
  EXPECT_EQ(options->ranks_per_job_max, 13u);
  EXPECT_FALSE(options->auto_create_jobs);
  EXPECT_EQ(options->drain_timeout, std::chrono::seconds(11));
  EXPECT_EQ(options->made_job_linger, std::chrono::seconds(16));
  const control::JobSpec& job = options->job_defaults;
  EXPECT_EQ(job.workers, 3u);
  EXPECT_EQ(job.buffers_max, 7u);
  EXPECT_EQ(job.plans_max, 8u);
  EXPECT_EQ(job.starts_per_lane_max, 14u);
  EXPECT_EQ(job.groups_made_max, 15u);
  EXPECT_EQ(job.arena_bytes_max, std::uint64_t{9} << 20);
  EXPECT_EQ(job.segment_bytes, std::uint64_t{2} << 20);
  EXPECT_EQ(job.idle_spin, std::chrono::microseconds(10));
  EXPECT_EQ(job.deadline, std::chrono::seconds(12));
  EXPECT_EQ(job.digests, 16u);
  EXPECT_EQ(job.networks_directory, networks_folder());
  EXPECT_EQ(job.endpoint, "/tmp/other");
}

// Goal:   advice names the daemon of one run, and says that it ends with it; the usual daemon needs no name.
TEST_F(Startup, AJobKnowsWherePeopleAskAboutIt) {
  const auto usual = options_of(config::resolve({})->settings);
  ASSERT_TRUE(usual) << usual.error().message();
  EXPECT_EQ(usual->job_defaults.endpoint, "");
  EXPECT_FALSE(usual->job_defaults.ends_with_run);
  Options of_a_run = *usual;
  stand_alone(of_a_run);
  EXPECT_TRUE(of_a_run.job_defaults.ends_with_run);
}

TEST_F(Startup, FilesAreReadAndEnvironmentIsStronger) {
  const std::string file = write("musterd.yaml", "limits:\n  jobs_max: 3\n  sessions_max: 4\n");
  const auto resolved =
      load_settings({Sources::ConfigFile::kGiven, file, {}, {"MUSTER_SET_limits__jobs_max=9"}});
  ASSERT_TRUE(resolved) << resolved.error().message();
  EXPECT_EQ(resolved->settings.limits.jobs_max, 9u);
  EXPECT_EQ(resolved->settings.limits.sessions_max, 4u);
}

TEST_F(Startup, RefusesAFileThatOthersMayWrite) {
  const std::string file = write("musterd.yaml", "");
  std::filesystem::permissions(file, std::filesystem::perms::all);
  const auto resolved = load_settings({Sources::ConfigFile::kGiven, file, {}, {}});
  ASSERT_FALSE(resolved);
  EXPECT_EQ(resolved.error().code(), Code::kDenied);
}

TEST_F(Startup, KnowsTheNumberOfItsGroup) {
  const struct group* other = nullptr;  // than root's
  setgrent();
  while ((other = getgrent()) != nullptr && other->gr_gid == 0) {
  }
  ASSERT_NE(other, nullptr);
  const std::string name = other->gr_name;
  const std::uint32_t number = other->gr_gid;
  endgrent();
  const auto options = options_with({{"node.group", name, ""}});
  ASSERT_TRUE(options) << options.error().text();
  EXPECT_EQ(options->directory_gid, number);
}

TEST_F(Startup, RefusesAGroupThatDoesNotExist) {
  const auto options = options_with({{"node.group", "no-such-group", ""}});
  ASSERT_FALSE(options);
  EXPECT_EQ(options.error().code(), Code::kNotFound);
  EXPECT_NE(options.error().message().find("no-such-group"), std::string::npos);
}

TEST_F(Startup, JobsOfAClusterFileBecomeSpecs) {
  const std::string file = write("cluster.yaml",
                                 "nodes:\n  - {host: here, devices: {kind: host, count: 4}}\n"
                                 "jobs:\n"
                                 "  - name: train\n"
                                 "    mesh: {dims: {dp_shard: -1, tp: 2}, flatten: {all: [dp_shard, tp]}}\n"
                                 "    claim: token\n"
                                 "    lanes: {deadline: 5s}\n"
                                 "  - name: eval\n"
                                 "    ranks: 2\n"
                                 "    digests: 64\n"
                                 "    mesh: {dims: {dp_shard: 2}}\n");
  const auto options = options_with(
      {{"jobs_from", file, ""}, {"defaults.deadline", "30s", ""}, {"defaults.digests", "9", ""}});
  ASSERT_TRUE(options) << options.error().message();
  ASSERT_EQ(options->jobs.size(), 2u);
  const control::JobSpec& train = options->jobs[0];
  EXPECT_EQ(train.name, "train");
  EXPECT_EQ(train.world.size(), 4u);
  EXPECT_EQ(train.mesh, "pp=1,dp_replicate=1,dp_shard=2,cp=1,tp=2");
  ASSERT_EQ(train.flatten.size(), 1u);
  EXPECT_EQ(train.flatten[0].first, "all");
  EXPECT_EQ(train.flatten[0].second, (std::vector<std::string>{"dp_shard", "tp"}));
  EXPECT_EQ(train.claim, control::ClaimRule::kToken);
  EXPECT_EQ(train.deadline, std::chrono::seconds(5));
  EXPECT_EQ(train.owner, control::Identity(geteuid()));
  EXPECT_EQ(options->jobs[1].world.size(), 2u);
  EXPECT_EQ(options->jobs[1].deadline, std::chrono::seconds(30));
  EXPECT_EQ(train.digests, 9u);
  EXPECT_EQ(options->jobs[1].digests, 64u);
}

TEST_F(Startup, SaysWhatThisReleaseCannotRunYet) {
  const auto error_of = [&](const std::string& text) {
    const auto options = options_with({{"jobs_from", write("cluster.yaml", text), ""}});
    return options ? std::string() : options.error().message();
  };
  const std::string job = "jobs:\n  - {name: j, mesh: {dims: {dp_shard: -1}}}\n";
  const std::string cuda = error_of("nodes:\n  - {host: a, devices: {kind: cuda, count: 2}}\n" + job);
  EXPECT_NE(cuda.find("host devices"), std::string::npos) << cuda;
}

TEST_F(Startup, FindsItselfInAClusterFileOfSeveralHosts) {
  const std::string file =
      write("cluster.yaml",
            "cluster: {name: lab-a, port: 7000, network: ofi, link: {trip: 1ms}}\n"
            "nodes:\n"
            "  - {host: \"n[1-2]\", address: \"10.0.0.[1-2]\", devices: {kind: host, count: 2}}\n"
            "  - {host: n3, devices: {kind: host, count: 4}}\n"
            "jobs:\n"
            "  - {name: all, mesh: {dims: {dp_shard: -1}}}\n"
            "  - {name: some, ranks: 3, reproducible: true, mesh: {dims: {dp_shard: -1}}}\n"
            "  - {name: one, ranks: 2, mesh: {dims: {dp_shard: -1}}}\n");
  const auto named = [&](const std::string& name) {
    return options_with({{"jobs_from", file, ""}, {"node.name", name, ""}});
  };
  const auto second = named("n2");
  ASSERT_TRUE(second) << second.error().message();
  const Roster& roster = second->roster;
  EXPECT_EQ(roster.cluster, "lab-a");
  EXPECT_EQ(roster.here, "n2");
  ASSERT_EQ(roster.members.size(), 3u);
  EXPECT_EQ(roster.members[1].address.text(), "10.0.0.2:7000");
  EXPECT_EQ(roster.members[2].address.text(), "n3:7000");
  EXPECT_EQ(roster.trust, Roster::Trust::kCertificates);
  ASSERT_EQ(second->jobs.size(), 2u) << "job one has no rank here";
  const World& all = second->jobs[0].world;
  EXPECT_EQ(all.size(), 8u);
  EXPECT_EQ(all.local_count(), 2u);
  EXPECT_EQ(all.locals()[0], Rank(2));
  EXPECT_EQ(all.nodes().size(), 3u);
  EXPECT_EQ(second->jobs[1].world.local_count(), 1u);
  EXPECT_EQ(second->jobs[1].world.nodes().size(), 2u) << "the third host has none of its ranks";
  EXPECT_EQ(second->jobs[0].network, "ofi");
  EXPECT_EQ(second->jobs[0].link.trip_ns, 1'000'000u);
  EXPECT_EQ(second->job_defaults.link.trip_ns, 1'000'000u) << "of temporary jobs over nodes";
  EXPECT_THAT(roster.configuration, ::testing::Contains("link 1000000 ns, 3000 bytes/us"));
  EXPECT_FALSE(second->jobs[0].reproducible);
  EXPECT_TRUE(second->jobs[1].reproducible);
  const auto first = named("n1");
  ASSERT_TRUE(first);
  EXPECT_EQ(first->roster.configuration, roster.configuration);
  EXPECT_EQ(first->jobs.size(), 3u);
  EXPECT_EQ(first->jobs[2].world, World(2)) << "a job of this node alone";
  EXPECT_EQ(first->jobs[2].network, "") << "it needs none";
  EXPECT_EQ(named("n3")->jobs.size(), 1u);
  const auto other =
      options_with({{"jobs_from", file, ""}, {"node.name", "n1", ""}, {"defaults.deadline", "7s", ""}});
  EXPECT_NE(other->roster.configuration, roster.configuration) << "the deadline must be the same everywhere";
  EXPECT_EQ(roster.configuration.at(1), "network ofi") << "the network too";
  const auto stranger = named("n4");
  ASSERT_FALSE(stranger);
  EXPECT_EQ(stranger.error().code(), Code::kConfig);
  EXPECT_NE(stranger.error().message().find("called n4"), std::string::npos) << stranger.error().message();
  Options alone = *first;
  stand_alone(alone);
  EXPECT_TRUE(alone.roster.alone());
  EXPECT_EQ(alone.jobs.size(), 1u);
}

// Goal:   a node without a name in its settings goes by its host's name, whole or up to the first dot.
// Method: a thread whose host has another name.
TEST_F(Startup, FindsItselfByTheNameOfItsHost) {
  const std::string file = write("cluster.yaml",
                                 "cluster: {name: lab-a, port: 7000, network: ofi}\n"
                                 "nodes:\n"
                                 "  - {host: \"n[1-3]\", devices: {kind: host, count: 2}}\n"
                                 "  - {host: n4.east, devices: {kind: host, count: 2}}\n"
                                 "jobs:\n"
                                 "  - {name: all, mesh: {dims: {dp_shard: -1}}}\n");
  const auto named = [&](const std::string& host) {
    std::string said;
    std::thread([&] {
      if (unshare(CLONE_NEWUTS) != 0 || sethostname(host.data(), host.size()) != 0) return;
      const auto options = options_with({{"jobs_from", file, ""}});
      said = options ? options->roster.here : options.error().message();
    }).join();
    return said;
  };
  if (named("n1").empty()) GTEST_SKIP() << "needs root, who may name a host";
  EXPECT_EQ(named("n2"), "n2");
  EXPECT_EQ(named("n3.rack7.example.org"), "n3");
  EXPECT_EQ(named("n4.east"), "n4.east");
  EXPECT_NE(named("n5.east").find("this node is called n5.east, and "), std::string::npos);
}

TEST_F(Startup, KnowsTheInterfacesOfItsNode) {
  const std::string file = write("cluster.yaml",
                                 "cluster: {interfaces: [^docker]}\n"
                                 "nodes:\n"
                                 "  - {host: n1, address: \"fd00::1\", devices: {count: 2}}\n"
                                 "  - {host: n2, devices: {count: 2}, interfaces: [eth1, mlx5_0]}\n"
                                 "jobs: [{name: all, mesh: {dims: {dp_shard: -1}}}]\n");
  const auto of = [&](const std::string& name) {
    const auto options = options_with({{"jobs_from", file, ""}, {"node.name", name, ""}});
    EXPECT_TRUE(options) << options.error().text();
    const InterfaceRule& rule = options->jobs.at(0).interfaces;
    EXPECT_EQ(options->job_defaults.interfaces.patterns, rule.patterns) << "of temporary jobs over nodes";
    EXPECT_THAT(options->roster.configuration,
                ::testing::Contains("host n2 at n2 with 2 devices, interfaces eth1 mlx5_0"));
    return rule;
  };
  EXPECT_EQ(of("n1").addresses, std::vector<std::string>{"fd00::1"});
  EXPECT_EQ(of("n1").patterns, std::vector<std::string>{"^docker"});
  EXPECT_EQ(of("n1").setting, "cluster.interfaces");
  EXPECT_TRUE(of("n2").addresses.empty()) << "its name is no number";
  EXPECT_EQ(of("n2").patterns, (std::vector<std::string>{"eth1", "mlx5_0"}));
  EXPECT_EQ(of("n2").setting, "nodes[1].interfaces");
}

TEST_F(Startup, NamesTheNetworksThatThereAre) {
  const std::vector<std::string> names = transport::network_names();
  EXPECT_TRUE(std::equal(names.begin(), names.end(), config::kNetworks.begin(), config::kNetworks.end()));
}

TEST_F(Startup, ReadsTheCredentialsOfTheNode) {
  const auto authority = *control::make_authority("lab-a", control::wall_time(), control::kAuthorityLife);
  const auto pair =
      *control::certify_node(authority, "lab-a", "n1", control::wall_time(), control::kNodeLife);
  write("authority.pem", authority.certificate);
  write("n1.pem", pair.certificate);
  const std::string key = write("n1-key.pem", pair.key);
  const std::string secret = write("secret", std::string(40, 's') + "\n");
  const std::string file = write("cluster.yaml",
                                 "cluster: {name: lab-a}\n"
                                 "nodes:\n  - {host: \"n[1-2]\", devices: {kind: host, count: 2}}\n");
  const auto load = [&](std::vector<config::Inputs::Flag> more) -> Result<Roster::OwnCredentials> {
    more.insert(
        more.end(),
        {{"jobs_from", file, ""}, {"node.name", "n1", ""}, {"peers.certificates", folder_.path(), ""}});
    MUSTER_ASSIGN_OR_RETURN(const Options options, options_with(more));
    if (options.roster.trust == Roster::Trust::kPlainText) return Roster::OwnCredentials{};
    return options.roster.load_credentials();
  };
  const auto certified = load({});
  ASSERT_TRUE(certified) << certified.error().text();
  EXPECT_TRUE(certified->validity.has_value());
  const auto shared = load({{"peers.secret_file", secret, ""}});
  ASSERT_TRUE(shared) << shared.error().text();
  EXPECT_FALSE(shared->validity.has_value());
  EXPECT_EQ(load({{"peers.plaintext", "true", ""}})->credentials, nullptr);
  std::filesystem::permissions(key, std::filesystem::perms(0640));
  const auto readable = load({});
  ASSERT_FALSE(readable);
  EXPECT_EQ(readable.error().code(), Code::kDenied);
  EXPECT_NE(readable.error().message().find("chmod 600"), std::string::npos) << readable.error().text();
  std::filesystem::remove(key);
  EXPECT_EQ(load({}).error().code(), Code::kNotFound);
}

// Goal:   every setting beyond a limit is reported with its place.
TEST_F(Startup, WhatIsBeyondALimitIsBlamedOnItsLine) {
  const std::string file = write("cluster.yaml",
                                 "nodes:\n  - {host: a, devices: {kind: host, count: 3}}\n"
                                 "jobs:\n"
                                 "  - {name: i, mesh: {dims: {dp_shard: -1}}}\n"
                                 "  - name: j\n    ranks: 4\n    mesh: {dims: {dp_shard: 4}}\n"
                                 "  - {name: k, ranks: 2, mesh: {dims: {dp_shard: 2}}}\n");
  const auto options = options_with(
      {{"jobs_from", file, ""}, {"limits.jobs_max", "2", ""}, {"limits.ranks_per_job_max", "2", ""}});
  ASSERT_FALSE(options);
  EXPECT_EQ(options.error().code(), Code::kConfig);
  const std::string& text = options.error().message();
  for (const char* part :
       {"cluster.yaml:4:", "cluster.yaml:6:", "cluster.yaml:8:", "3 jobs, and limits.jobs_max is 2",
        "job i has 3 ranks, and limits.ranks_per_job_max is 2", "job j has 4 ranks"})
    EXPECT_NE(text.find(part), std::string::npos) << part << " in\n" << text;
  for (const char* key : {"jobs[].ranks", "jobs[].mesh.dims.tp"})
    EXPECT_EQ(config::find_key(config::cluster_keys(), key)->high, mesh::kRankCountMax) << key;
  // No setting allows what an engine cannot hold.
  EXPECT_EQ(config::find_key(config::settings_keys(), "limits.ranks_per_job_max")->high, kRanksOnNodeMax);
  EXPECT_FALSE(options_with({{"limits.ranks_per_job_max", "1025", ""}}));
}

TEST_F(Startup, AFileThatIsNotThereIsBlamedOnItsKey) {
  const auto options = options_with({{"jobs_from", folder_.path() + "/none.yaml", ""}});
  ASSERT_FALSE(options);
  EXPECT_NE(options.error().message().find("jobs_from: "), std::string::npos) << options.error().message();
  EXPECT_NE(options.error().message().find("/none.yaml"), std::string::npos) << options.error().message();
}

TEST_F(Startup, AWrongMeshIsBlamedOnItsLine) {
  const std::string file =
      write("cluster.yaml",
            "nodes:\n  - {host: a, devices: {kind: host, count: 4}}\n"
            "jobs:\n  - name: j\n    mesh:\n      dims: {tp: 3}\n"
            "  - name: k\n    mesh:\n      dims: {tp: 2}\n      flatten: {tp: [dp_shard]}\n");
  const auto options = options_with({{"jobs_from", file, ""}});
  ASSERT_FALSE(options);
  EXPECT_EQ(options.error().code(), Code::kConfig);
  EXPECT_NE(options.error().message().find("cluster.yaml:6:"), std::string::npos)
      << options.error().message();
  EXPECT_NE(options.error().message().find("cluster.yaml:10:"), std::string::npos)
      << options.error().message();
}

TEST_F(Startup, MoreJobsThanAllowedAreRefusedBeforeTheyStart) {
  const std::string file = write("cluster.yaml",
                                 "nodes:\n  - {host: a, devices: {kind: host, count: 1}}\n"
                                 "jobs:\n  - {name: j, mesh: {dims: {dp_shard: 1}}}\n"
                                 "  - {name: k, mesh: {dims: {dp_shard: 1}}}\n");
  const auto options = options_with({{"jobs_from", file, ""}, {"limits.jobs_max", "1", ""}});
  ASSERT_FALSE(options);
  EXPECT_NE(options.error().message().find("limits.jobs_max"), std::string::npos);
}

TEST_F(Startup, KnowsItsRuntimeDirectoryHoweverItIsWritten) {
  const auto options = options_with({{"node.runtime_directory", folder_.path() + "/./run/", ""}});
  ASSERT_TRUE(options) << options.error().message();
  EXPECT_EQ(options->runtime_directory, folder_.path() + "/run");
}

// Goal:   engines of a container's root run as a user without rights, which exists everywhere by its default
//         name.
TEST_F(Startup, KnowsTheUserOfForeignEngines) {
  EXPECT_NE(options_with({})->engine_user.uid, 0u);
  const auto unknown = options_with({{"node.engine_user", "no-such-user", ""}});
  ASSERT_FALSE(unknown);
  EXPECT_NE(unknown.error().message().find("node.engine_user: there is no user no-such-user"),
            std::string::npos);
  for (const char* root : {"root", "0"}) {
    const auto refused = options_with({{"node.engine_user", root, ""}});
    ASSERT_FALSE(refused);
    EXPECT_NE(refused.error().message().find("name a user without rights"), std::string::npos);
  }
}

TEST_F(Startup, RefusesAProgramFolderThatIsNotAbsolute) {
  const auto options = options_with({{"node.program_folders", "/a:b", ""}});
  ASSERT_FALSE(options);
  EXPECT_NE(options.error().message().find("'b' is no absolute path"), std::string::npos);
}

}  // namespace
}  // namespace muster::supervisor
