#include "daemon/config/cluster.hpp"
#include "daemon/config/settings.hpp"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <set>
#include <string>
#include <vector>

#include <gtest/gtest.h>

namespace muster::config {
namespace {

struct Expected {
  std::uint32_t line;
  std::uint32_t column;
  std::string text;  // path, message and suggestion, as they are printed
};

struct BadFile {
  std::string name;
  std::vector<Expected> errors;  // all of them, in the order of the text
};

const std::vector<BadFile> kBadFiles{
    {"cluster-address-ipv6.yaml",
     {{4, 24, "nodes[0].address: a number of IPv6 in brackets; write it without them"},
      {5, 24, "nodes[1].address: 'fd00::x' is no address of IPv6"},
      {6, 24,
       "nodes[2].address: 'fe80::3' means something on one link alone; give an address that all nodes reach"},
      {8, 24,
       "nodes[4].address: 10.0.0.5 is an address of IPv4, and fd00::4 in line 7 one of IPv6; give all nodes "
       "addresses of one version, or set cluster.network: none"},
      {9, 17, "nodes[5].host: ':' is not allowed in a host name; a number of IPv6 belongs into `address`"}}},
    {"cluster-interfaces.yaml",
     {{3, 16, "cluster.interfaces[0]: 'eth0,eth1' has a comma; write a list, each with its own '^'"},
      {3, 29,
       "cluster.interfaces[1]: '10.0.0.0/40' is no subnet; write a name (eth0), the beginning of names "
       "(eth), "
       "or a subnet (10.1.0.0/16)"},
      {5, 48, "nodes[0].interfaces: expected a list of 1 to 64 items, not 'eth0'; write [eth0]"}}},
    {"cluster-claim-typo.yaml",
     {{4, 49, "jobs[0].claim: expected owner | token, not 'tokens'; did you mean 'token'?"}}},
    {"cluster-deadline-without-unit.yaml",
     {{4, 56, "jobs[0].lanes.deadline: a duration needs a unit (ns us ms s min h); write 2s"}}},
    {"cluster-device-kind.yaml", {{2, 36, "nodes[0].devices.kind: expected host | cuda | auto, not 'gpu'"}}},
    {"cluster-flatten-twice.yaml",
     {{7, 27, "jobs[0].mesh.flatten.two[1]: dim 'tp' is named twice; remove one of them"}}},
    {"cluster-flatten-unknown.yaml",
     {{7, 25,
       "jobs[0].mesh.flatten.dp_tp[0]: expected pp | dp_replicate | dp_shard | cp | domain | tp | ep, not "
       "'dp_shrad'; did you mean 'dp_shard'?"}}},
    {"cluster-flatten-word.yaml",
     {{5, 44, "jobs[0].mesh.flatten.a b: 'a b' is no name; use letters, digits, '-', '_' and '.'"},
      {5, 49, "jobs[0].mesh.flatten.a b: expected a list of 1 to 7 items, not 'tp'; write [tp]"}}},
    {"cluster-host-number.yaml",
     {{2, 12, "nodes[0].host: 01 looks like an octal number; write \"01\" for text"}}},
    {"cluster-host-open-bracket.yaml",
     {{2, 15, "nodes[0].host: '[' is not closed; write ']' after the last number"}}},
    {"cluster-host-range.yaml",
     {{2, 18, "nodes[0].host: '01' and '016' are padded to different widths; write 001-016"}}},
    {"cluster-host-twice.yaml",
     {{3, 12, "nodes[1].host: host 'node08' is named twice; line 2 names it already"}}},
    {"cluster-job-twice.yaml",
     {{5, 12, "jobs[1].name: job 'train' is named twice; line 4 names it already"}}},
    {"cluster-job-without-name.yaml",
     {{4, 5,
       "jobs[0]: the key 'name' is missing; it is a name of letters, digits, '-', '_', '.', at most 63 "
       "bytes"}}},
    {"cluster-jobs-is-map.yaml",
     {{4, 3, "jobs: expected a list of 0 to 1024 items, not a map; put '- ' before it"}}},
    {"cluster-no-nodes.yaml", {{1, 1, "the key 'nodes' is missing; it is a list of 1 to 4096 items"}}},
    {"cluster-node-gpu.yaml",
     {{2, 5, "nodes[0]: the key 'devices' is missing; it is a map of keys"},
      {2, 20, "nodes[0].gpu: unknown key"}}},
    {"cluster-nodes-empty.yaml", {{1, 8, "nodes: expected a list of 1 to 4096 items, not 0"}}},
    {"cluster-shard-minus-two.yaml", {{4, 43, "jobs[0].mesh.dims.dp_shard: must be -1..65536, is -2"}}},
    {"cluster-shard-zero.yaml",
     {{4, 43,
       "jobs[0].mesh.dims.dp_shard: must be at least 1, or -1, is 0; write -1 to use what is left over"}}},
    {"cluster-too-many-hosts.yaml",
     {{3, 12, "nodes[1].host: more than 65536 hosts in all entries together; name fewer"}}},
    {"cluster-tp-minus-one.yaml", {{4, 37, "jobs[0].mesh.dims.tp: must be 1..65536, is -1"}}},
    {"cluster-unknown-dim.yaml",
     {{4, 33, "jobs[0].mesh.dims.dp_shards: unknown key; did you mean 'dp_shard'?"},
      {4, 47, "jobs[0].mesh.dims.etp: unknown key; did you mean 'ep'?"}}},
    {"settings-after-umlaut.yaml", {{1, 43, "node.worker: unknown key; did you mean 'workers'?"}}},
    {"settings-alias.yaml",
     {{1, 14, "log.level: anchors ('&word') are not allowed; write the value out where it is used"},
      {1, 34, "log.format: aliases ('*name') are not allowed; write the value out"}}},
    {"settings-anchor.yaml",
     {{1, 6, "log: anchors ('&shared') are not allowed; write the value out where it is used"}}},
    {"settings-bad-indent.yaml",
     {{2, 12,
       "node.workers: the value runs on over several lines; is a ':' missing in the next line? if not, "
       "quote it"},
      {3, 9, "a ':' where no key can stand; check the indentation, or quote the value"}}},
    {"settings-bom.yaml", {{1, 1, "a byte order mark; save the file as UTF-8 without one"}}},
    {"settings-bool-as-text.yaml",
     {{1, 19, "auto_create_jobs: expected true or false, not the text \"true\"; remove the quotes"}}},
    {"settings-bool-yes.yaml", {{1, 19, "auto_create_jobs: expected true or false, not 'yes'; write true"}}},
    {"settings-choice-typo.yaml",
     {{2, 10,
       "log.level: expected debug | info | warning | error | off, not 'warn'; did you mean 'warning'?"}}},
    {"settings-duplicate-key.yaml", {{4, 3, "log: key 'level' is given twice; it stands on line 2 already"}}},
    {"settings-duplicate-section.yaml", {{3, 1, "key 'log' is given twice; it stands on line 1 already"}}},
    {"settings-duration-odd-unit.yaml",
     {{2, 14, "defaults.deadline: no space may stand between number and unit; write 5min"}}},
    {"settings-duration-out-of-range.yaml", {{1, 22, "defaults.deadline: must be 100ms..24h, is 10ms"}}},
    {"settings-duration-with-space.yaml",
     {{2, 15, "defaults.deadline: no space may stand between number and unit; write 60s"}}},
    {"settings-duration-without-unit.yaml",
     {{2, 15, "defaults.deadline: a duration needs a unit (ns us ms s min h); write 60s"}}},
    {"settings-everything.yaml",
     {{2, 12, "node.workers: expected a whole number, 0..1024, not 'many'"},
      {3, 3, "node.colour: unknown key"},
      {5, 10, "log.level: expected debug | info | warning | error | off, not 'loud'"},
      {6, 3, "log: key 'level' is given twice; it stands on line 5 already"},
      {8, 13, "limits.jobs_max: must be 1..1024, is 0"},
      {9, 20, "limits.arena_segment: a size needs a unit (B KiB MiB GiB TiB KB MB GB TB); write 64MiB"},
      {10, 22, "defaults.deadline: must be 100ms..24h, is 25h"},
      {11, 19, "auto_create_jobs: expected true or false, not 'on'; write true"}}},
    {"settings-key-in-wrong-place.yaml", {{3, 1, "workers: unknown key; did you mean 'node.workers'?"}}},
    {"settings-key-is-list.yaml", {{1, 3, "a key must be a word"}}},
    {"settings-latin1.yaml", {{2, 11, "the byte 0xfc is not valid UTF-8; save the file as UTF-8"}}},
    {"settings-list-at-top.yaml", {{1, 1, "expected a map of keys ('name: value'), not a list"}}},
    {"settings-list-then-map.yaml",
     {{2, 1, "this does not belong to what stands above; check the indentation"}}},
    {"settings-merge.yaml", {{2, 3, "log: merges ('<<') are not allowed; write the keys out"}}},
    {"settings-missing-colon.yaml", {{3, 3, "log.format text: unknown key; did you mean 'format'?"}}},
    {"settings-mode-not-octal.yaml",
     {{2, 19, "node.directory_mode: expected four octal digits, not '0698'; write \"0660\""}}},
    {"settings-mode-without-quotes.yaml",
     {{2, 19, "node.directory_mode: 0660 without quotes is a number, octal or not; write \"0660\""}}},
    {"settings-no-value.yaml",
     {{2, 3, "node.workers: has no value; give it one or remove the key"},
      {4, 3, "log.level: has no value; give it one or remove the key"}}},
    {"settings-nul.yaml", {{2, 11, "a NUL byte; this is no text file; save it as UTF-8"}}},
    {"settings-number-as-text.yaml",
     {{2, 12, "node.workers: expected a whole number, not the text \"4\"; remove the quotes"}}},
    {"settings-number-fraction.yaml", {{1, 17, "node.workers: expected a whole number, 0..1024, not '1.5'"}}},
    {"settings-number-huge.yaml", {{2, 12, "node.workers: must be 0..1024, is 99999999999999999999"}}},
    {"settings-number-is-list.yaml", {{2, 12, "node.workers: expected a whole number, 0..1024, not a list"}}},
    {"settings-number-negative.yaml", {{1, 17, "node.workers: must be 0..1024, is -1"}}},
    {"settings-number-out-of-range.yaml", {{2, 12, "node.workers: must be 0..1024, is 4096"}}},
    {"settings-octal-new-style.yaml",
     {{2, 13, "limits.jobs_max: '0o10' looks like an octal number; write it in decimal"}}},
    {"settings-octal.yaml", {{2, 13, "limits.jobs_max: '010' looks like an octal number; write 10"}}},
    {"settings-open-bracket.yaml",
     {{1, 7, "'{' is not closed; write '}'"},
      {1, 17,
       "node.workers: the value runs on over several lines; is a ':' missing in the next line? if not, "
       "quote it"}}},
    {"settings-open-quote.yaml",
     {{2, 10, "node.group: this quote is never closed; write \" at the end of the value"}}},
    {"settings-path-relative.yaml",
     {{2, 22, "node.runtime_directory: expected an absolute path, not 'run/muster'; start it with '/'"}}},
    {"settings-path-too-long.yaml",
     {{2, 22, "node.runtime_directory: has 121 bytes; at most 88 fit; shorten it"}}},
    {"settings-section-is-number.yaml", {{1, 7, "node: expected a map of keys, not '4'"}}},
    {"settings-segment-over-arena.yaml",
     {{2, 23,
       "limits.arena_per_rank_max: limits.arena_segment (64MiB) is larger than limits.arena_per_rank_max "
       "(32MiB); write a smaller limits.arena_segment too"}}},
    {"settings-size-negative.yaml", {{1, 25, "limits.arena_segment: a size is not negative"}}},
    {"settings-size-odd-unit.yaml", {{2, 20, "limits.arena_segment: 'M' is no unit of size; write 64MiB"}}},
    {"settings-size-without-unit.yaml",
     {{2, 26, "limits.arena_segment: a size needs a unit (B KiB MiB GiB TiB KB MB GB TB); write 64MiB"}}},
    {"settings-tab.yaml",
     {{2, 1, "a tab in the indentation; indent with spaces"},
      {4, 3, "a tab in the indentation; indent with spaces"}}},
    {"settings-tag.yaml",
     {{2, 12,
       "node.workers: tags ('!name') are not allowed; remove it; the type of a value follows from its "
       "key"}}},
    {"settings-text-is-bool.yaml", {{2, 10, "node.group: expected text, not true; write \"true\""}}},
    {"settings-two-documents.yaml", {{3, 1, "a second document; keep one document in a file"}}},
    {"settings-unknown-key.yaml",
     {{2, 3, "node.runtime_dirctory: unknown key; did you mean 'runtime_directory'?"}}},
    {"settings-unknown-section.yaml", {{2, 1, "limit: unknown key; did you mean 'limits'?"}}},
    {"settings-unknown-without-idea.yaml", {{1, 1, "zebra_crossing: unknown key"}}},
};

std::string folder() {
  return std::string(MUSTER_SOURCE_DIR) + "/tests/daemon/config/bad";
}

Source load(const std::string& name) {
  std::ifstream file(folder() + "/" + name, std::ios::binary);
  return Source(name, std::string(std::istreambuf_iterator<char>(file), {}));
}

Diagnostics diagnose(const std::string& name) {
  if (name.starts_with("cluster-")) {
    auto cluster = parse_cluster(load(name));
    return cluster ? Diagnostics() : std::move(cluster).error();
  }
  Inputs inputs;
  inputs.file = load(name);
  auto resolved = resolve(inputs);
  return resolved ? Diagnostics() : std::move(resolved).error();
}

class BadFiles : public testing::TestWithParam<BadFile> {};

// Goal:   a wrong file is refused with every fault at its place, in words that say what to write instead.
// Method: each file of bad/ against the full list of what must be said about it; nothing more may be said.
TEST_P(BadFiles, AreRefusedWithEveryFaultAtItsPlace) {
  const BadFile& expected = GetParam();
  const Diagnostics diagnostics = diagnose(expected.name);
  ASSERT_EQ(diagnostics.entries().size(), expected.errors.size()) << diagnostics.text();
  for (std::size_t i = 0; i < expected.errors.size(); ++i) {
    const Diagnostic& actual = diagnostics.entries()[i];
    EXPECT_EQ(actual.line, expected.errors[i].line) << actual.text();
    EXPECT_EQ(actual.column, expected.errors[i].column) << actual.text();
    const std::string first_line = actual.text().substr(0, actual.text().find('\n'));
    EXPECT_EQ(first_line, fmt::format("{}:{}:{}: error: {}", expected.name, expected.errors[i].line,
                                      expected.errors[i].column, expected.errors[i].text));
  }
}

INSTANTIATE_TEST_SUITE_P(Config, BadFiles, testing::ValuesIn(kBadFiles), [](const auto& test) {
  std::string name = test.param.name.substr(0, test.param.name.rfind('.'));
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
});

TEST(BadFileTable, NamesEveryFileOfTheFolder) {
  std::set<std::string> listed, present;
  for (const BadFile& file : kBadFiles) listed.insert(file.name);
  for (const auto& entry : std::filesystem::directory_iterator(folder()))
    present.insert(entry.path().filename().string());
  EXPECT_EQ(listed, present);
}

}  // namespace
}  // namespace muster::config
