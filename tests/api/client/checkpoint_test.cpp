// Checkpoints by a real node's ranks: saved on one mesh, loaded on another, with everything that is refused.
#include <muster/checkpoint.h>

#include "tests/api/client/saved_arrays.hpp"
#include "tests/support/folder.hpp"
#include "tests/support/holdings.hpp"

#include <chrono>
#include <csignal>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <unistd.h>

namespace muster::test {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

class Checkpoint : public RunningRanks {
 protected:
  std::string run() const { return folder_.path() + "/run"; }
  std::vector<std::string> in_run() const {
    std::vector<std::string> names;
    for (const auto& each : fs::directory_iterator(run())) names.push_back(each.path().filename());
    std::ranges::sort(names);
    return names;
  }
  const Folder folder_;
};

SavedArray rows(const Member& m, const std::string& name, std::vector<std::int64_t> shape) {
  return {m.session, name, std::move(shape), {axis(nullptr, m.world, 0)}, m.rank};
}

// Goal:   case C1 on disk: 10 rows of 4 ranks are loaded by 3.
TEST_F(Checkpoint, TenRowsGoFromFourRanksToThree) {
  with_ranks(4, [&](Member& m) {
    SavedArray w = rows(m, "w", {10, 5});
    w.fill(1);
    ok(RunFolder(m, run()).save(7, {w.tensor()}, m.rank == 0 ? "step 7" : "ignored"));
  });
  EXPECT_EQ(fs::file_size(run() + "/step-000000000007/rank-3.bin"), 20U);
  with_ranks(3, [&](Member& m) {
    SavedArray w = rows(m, "w", {10, 5});
    RunFolder folder(m, run());
    ok(folder.load({w.tensor()}));
    EXPECT_EQ(w.wrong(1), 0);
    EXPECT_EQ(folder.info.step, 7U);
    EXPECT_EQ(folder.info.tensors, 1U);
    EXPECT_STREQ(folder.info.name, "step-000000000007");
    char user[16] = {};
    muster_checkpoint_load_options said = MUSTER_CHECKPOINT_LOAD_OPTIONS_INIT;
    said.user = user;
    said.user_capacity = sizeof user;
    ok(muster_checkpoint_load(folder.handle, &said, nullptr));
    EXPECT_STREQ(user, "step 7");
    said.user_capacity = 5;
    EXPECT_EQ(muster_checkpoint_load(folder.handle, &said, nullptr), MUSTER_ERR_BAD_ARGUMENT);
  });
}

// Goal:   cases C7 and X2: FSDP over tp, uneven, with ranks that have nothing: (N, D) of (9, 4), (5, 4),
//         (17, 4) and (7, 3) with T=2 are saved and loaded as they were, on the same ranks and on four.
TEST_F(Checkpoint, StridedShardsAndEmptyOnes) {
  for (const auto& [n, d] : {std::pair{9, 4}, {5, 4}, {17, 4}, {7, 3}}) {
    const auto strided = [rows = std::int64_t{n}](const Member& m) {
      return SavedArray(m.session, "w", {rows}, {axis("dp_shard", 0, 0), axis("tp", 0, 0)}, m.rank);
    };
    fs::remove_all(run());
    mesh = "tp=2,dp_shard=" + std::to_string(d);
    with_ranks(2 * d, [&](Member& m) {
      SavedArray w = strided(m);
      w.fill(3);
      RunFolder folder(m, run());
      ok(folder.save(1, {w.tensor()}));
      w.set(-1);
      ok(folder.load({w.tensor()}));
      EXPECT_EQ(w.wrong(3), 0) << "rank " << m.rank;
    });
    mesh = "tp=2,dp_shard=2";
    with_ranks(4, [&](Member& m) {
      SavedArray w = strided(m);
      ok(RunFolder(m, run()).load({w.tensor()}));
      EXPECT_EQ(w.wrong(3), 0) << "rank " << m.rank;
    });
  }
}

// A thread of its own working folder: a relative path means another folder than at other ranks, as it does on
// another node.
void work_in(const std::string& folder) {
  ASSERT_EQ(unshare(CLONE_FS), 0);
  fs::create_directory(folder);
  ASSERT_EQ(chdir(folder.c_str()), 0);
}

// Goal:   ranks that do not share the folder of a run are told so, not that a file is missing that none of
//         them has named.
TEST_F(Checkpoint, AFolderThatRanksDoNotShareIsCalledSo) {
  with_ranks(2, [&](Member& m) {
    work_in(folder_.path() + "/node" + std::to_string(m.rank));
    SavedArray w = rows(m, "w", {10, 5});
    w.fill(3);
    RunFolder folder(m, "run");
    EXPECT_EQ(folder.save(1, {w.tensor()}), MUSTER_ERR_NOT_FOUND);
    EXPECT_THAT(muster_last_error(), AllOf(HasSubstr("rank 1: run/step-"),
                                           HasSubstr("is not seen here, and rank 0 has made it: save into "
                                                     "a folder that all nodes share")));
    ok(muster_barrier(m.session, m.group));
    if (m.rank == 0) {
      RunFolder own(Member{0, 1, m.session, MUSTER_GROUP_SELF, ""}, "run");
      SavedArray alone(m.session, "w", {10, 5}, {}, 0);
      ok(own.save(2, {alone.tensor()}));
    }
    ok(muster_barrier(m.session, m.group));
    EXPECT_EQ(folder.load({w.tensor()}), MUSTER_ERR_NOT_FOUND);
    EXPECT_THAT(muster_last_error(), HasSubstr("if rank 0 sees it, load from a folder that all nodes share"));
  });
}

// Goal:   a rank that has no column of a tensor saves and loads with the others, whatever strides its view
//         has.
TEST_F(Checkpoint, ARankWithoutAColumnTakesPart) {
  with_ranks(2, [&](Member& m) {
    for (const std::int64_t stride : {0, 1, 7, -1}) {
      SavedArray w(m.session, "w", {4, 1}, {axis("tp", 2, 1)}, m.rank);
      if (m.rank == 1) w.view().stride[0] = stride;
      w.fill(3);
      RunFolder folder(m, run() + std::to_string(stride));
      ok(folder.save(1, {w.tensor()}));
      w.set(-1);
      ok(folder.load({w.tensor()}));
      EXPECT_EQ(w.wrong(3), 0) << "rank " << m.rank;
    }
  });
}

// Goal:   case C2 (ours): axes that a layout leaves out replicate, and replicas write each box once.
TEST_F(Checkpoint, ReplicasWriteEachBoxOnce) {
  mesh = "dp_replicate=2,dp_shard=2,tp=2";
  with_ranks(8, [&](Member& m) {
    const std::int32_t shard = m.rank / 2 % 2, tp = m.rank % 2;
    SavedArray w(m.session, "w", {6, 8}, {axis("dp_shard_cp", 0, 0), axis("tp", 0, 1)}, shard * 2 + tp);
    SavedArray norm(m.session, "norm", {7}, {axis("dp_shard_cp", 0, 0)}, shard);
    SavedArray scale(m.session, "scale", {}, {}, 0);
    w.fill(1);
    norm.fill(2);
    scale.fill(3);
    RunFolder folder(m, run());
    ok(folder.save(1, {w.tensor(), norm.tensor(), scale.tensor()}));
    for (SavedArray* each : {&w, &norm, &scale}) each->set(0);
    ok(folder.load({w.tensor(), norm.tensor(), scale.tensor()}));
    EXPECT_EQ(w.wrong(1) + norm.wrong(2) + scale.wrong(3), 0);
    EXPECT_EQ(folder.info.bytes, (48U + 7 + 1) * 4);
  });
  std::uintmax_t bytes = 0;
  for (const auto& file : fs::directory_iterator(run() + "/step-000000000001"))
    if (file.path().extension() == ".bin") bytes += file.file_size();
  EXPECT_EQ(bytes, (48U + 7 + 1) * 4);
}

// Goal:   replicas that have trained apart are no checkpoint: all hear which tensor, and whose; unless it is
//         allowed.
TEST_F(Checkpoint, ReplicasThatDifferAreTold) {
  mesh = "dp_replicate=2,dp_shard=2,tp=2";
  with_ranks(8, [&](Member& m) {
    const std::int32_t shard = m.rank / 2 % 2, tp = m.rank % 2;
    SavedArray w(m.session, "w", {6, 8}, {axis("dp_shard_cp", 0, 0), axis("tp", 0, 1)}, shard * 2 + tp, 3);
    SavedArray large(m.session, "large", {200, 400}, {axis("tp", 0, 0)}, tp);
    SavedArray norm(m.session, "norm", {7}, {}, 0);
    for (SavedArray* each : {&w, &large, &norm}) each->fill(1);
    RunFolder folder(m, run());
    const auto save = [&](std::uint64_t step, std::uint32_t flags = 0) {
      return folder.save(step, {w.tensor(), large.tensor(), norm.tensor()}, "", flags);
    };
    ok(save(1));
    const auto refused = [&](const char* tensor, const char* ranks) {
      EXPECT_EQ(save(2), MUSTER_ERR_MISMATCH);
      EXPECT_THAT(muster_last_error(), AllOf(HasSubstr(tensor), HasSubstr(ranks),
                                             HasSubstr("MUSTER_CHECKPOINT_REPLICAS_MAY_DIFFER")));
      meet_and_leave(m);
    };
    if (m.rank == 6) w.fill(2);
    refused("tensor \"w\"", "rank 6 holds the same part of it as rank 2");
    if (m.rank == 6) w.fill(1);
    if (m.rank == 3 || m.rank == 5) large.fill(2);
    refused("tensor \"large\"", "ranks 3 5 hold the same part of it as rank 1");
    large.fill(1);
    if (m.rank >= 4) norm.data()[6] = -0.0F;
    refused("tensor \"norm\"", "ranks 4 5 6 7 hold the same part of it as rank 0");
    EXPECT_EQ(in_run().size(), 1U) << "nothing stays of what was refused";
    meet_and_leave(m);
    ok(save(2, MUSTER_CHECKPOINT_REPLICAS_MAY_DIFFER));
    norm.set(0);
    ok(folder.load({w.tensor(), large.tensor(), norm.tensor()}));
    EXPECT_EQ(w.wrong(1) + large.wrong(1), 0);
    ok(save(3));
  });
}

TEST_F(Checkpoint, ViewsWithGapsAreSavedAndFilled) {
  with_ranks(2, [&](Member& m) {
    SavedArray w(m.session, "w", {6, 4}, {axis(nullptr, 2, 1)}, m.rank, 3);
    w.set(-7);
    w.fill(1);
    RunFolder folder(m, run());
    ok(folder.save(1, {w.tensor()}));
    SavedArray other(m.session, "w", {6, 4}, {axis(nullptr, 2, 0)}, m.rank, 5);
    other.set(-7);
    ok(folder.load({other.tensor()}));
    EXPECT_EQ(other.wrong(1), 0);
    EXPECT_EQ(other.data()[4], -7) << "what lies between rows is not ours";
  });
}

// Goal:   case C5: a missing name and another shape are errors, and what is left over in the file is none.
TEST_F(Checkpoint, WhatDoesNotFitIsNamed) {
  with_ranks(2, [&](Member& m) {
    SavedArray w = rows(m, "w", {4, 3}), extra = rows(m, "extra", {2});
    w.fill(1);
    RunFolder folder(m, run());
    SavedArray notes = rows(m, "__metadata__", {2});
    EXPECT_EQ(folder.save(1, {w.tensor(), notes.tensor()}), MUSTER_ERR_BAD_ARGUMENT);
    EXPECT_THAT(muster_last_error(),
                HasSubstr("a tensor cannot be named \"__metadata__\": safetensors keeps"));
    ok(folder.save(1, {w.tensor(), extra.tensor()}));

    SavedArray missing = rows(m, "missing", {4}), shape = rows(m, "w", {3, 4}), half = rows(m, "w", {4, 3});
    half.view().dtype = MUSTER_I32;
    missing.set(5);
    EXPECT_EQ(folder.load({w.tensor(), missing.tensor()}), MUSTER_ERR_NOT_FOUND);
    EXPECT_THAT(muster_last_error(), HasSubstr("tensor \"missing\""));
    EXPECT_EQ(folder.load({shape.tensor()}), MUSTER_ERR_BAD_ARGUMENT);
    EXPECT_THAT(muster_last_error(),
                HasSubstr("is saved with shape [4, 3], but the layout has shape [3, 4]"));
    EXPECT_EQ(folder.load({half.tensor()}), MUSTER_ERR_BAD_ARGUMENT);
    EXPECT_THAT(muster_last_error(), HasSubstr("is saved as f32, but the array has dtype i32"));

    w.set(0);
    ok(folder.load({w.tensor(), missing.tensor()}, MUSTER_CHECKPOINT_PARTIAL));
    EXPECT_EQ(folder.info.tensors, 1U);
    EXPECT_EQ(w.wrong(1), 0);
    EXPECT_EQ(missing.data()[0], 5);
    EXPECT_EQ(folder.load({w.tensor()}, 0, "step-9"), MUSTER_ERR_NOT_FOUND);
    EXPECT_EQ(folder.load({w.tensor()}, 0, "../x"), MUSTER_ERR_BAD_ARGUMENT);
  });
}

// Goal:   case C9: moments move with their parameters from F=4 to F=2; adapters alone; what is excluded
//         stays.
TEST_F(Checkpoint, MomentsAreReshardedAndNamesCanBeFiltered) {
  const auto all = [](const Member& m) {
    std::vector<SavedArray> arrays;
    for (const char* name : {"block0.w", "block0.w.moment1", "block0.w.lora_a", "data_loader"})
      arrays.push_back(rows(m, name, {7, 3}));
    return arrays;
  };
  const auto tensors = [](std::vector<SavedArray>& arrays) {
    std::vector<muster_checkpoint_tensor> list;
    for (SavedArray& array : arrays) list.push_back(array.tensor());
    return list;
  };
  with_ranks(4, [&](Member& m) {
    std::vector<SavedArray> arrays = all(m);
    for (std::size_t i = 0; i < arrays.size(); ++i) arrays[i].fill(static_cast<float>(100 * i));
    ok(RunFolder(m, run()).save(1, tensors(arrays)));
  });
  with_ranks(2, [&](Member& m) {
    std::vector<SavedArray> arrays = all(m);
    std::vector<muster_checkpoint_tensor> list = tensors(arrays);
    RunFolder folder(m, run());
    muster_checkpoint_load_options said = MUSTER_CHECKPOINT_LOAD_OPTIONS_INIT;
    said.tensors = list.data();
    said.tensor_count = list.size();
    const char* exclude[] = {"data_loader", "lr_scheduler"};
    said.exclude = exclude;
    said.exclude_count = 2;
    arrays[3].set(9);
    ok(muster_checkpoint_load(folder.handle, &said, nullptr));
    for (std::size_t i = 0; i < 3; ++i) EXPECT_EQ(arrays[i].wrong(static_cast<float>(100 * i)), 0);
    EXPECT_EQ(arrays[3].data()[0], 9);

    const char* only[] = {"*.lora_*"};
    said.only = only;
    said.only_count = 1;
    for (SavedArray& array : arrays) array.set(9);
    muster_checkpoint_info info = MUSTER_CHECKPOINT_INFO_INIT;
    ok(muster_checkpoint_load(folder.handle, &said, &info));
    EXPECT_EQ(info.tensors, 1U);
    EXPECT_EQ(arrays[2].wrong(200), 0);
    EXPECT_EQ(arrays[0].data()[0], 9);
  });
}

// Goal:   case C6: the checkpoint has the bytes that lay there when the call returned.
TEST_F(Checkpoint, AnAsyncSaveHasWhatLayThereWhenItReturned) {
  with_ranks(2, [&](Member& m) {
    SavedArray w = rows(m, "w", {4096, 1024});
    w.fill(0);
    RunFolder folder(m, run());
    ok(folder.save_async(1, {w.tensor()}));
    w.set(std::numeric_limits<float>::quiet_NaN());  // poison
    EXPECT_EQ(folder.save_async(2, {w.tensor()}), MUSTER_ERR_BUSY);
    EXPECT_EQ(folder.load({w.tensor()}), MUSTER_ERR_BUSY);
    ok(muster_checkpoint_wait(folder.handle));
    ok(muster_checkpoint_wait(folder.handle));  // nothing is in flight
    ok(folder.load({w.tensor()}));
    EXPECT_EQ(w.wrong(0), 0);
  });
  EXPECT_THAT(in_run(), ::testing::ElementsAre("step-000000000001"));
}

// Goal: a trainer that lets the kernel reap its children, or reaps all of them itself, may save too.
TEST_F(Checkpoint, WhoReapsTheWriterDoesNotMatter) {
  std::signal(SIGCHLD, SIG_IGN);
  with_ranks(2, [&](Member& m) {
    SavedArray w = rows(m, "w", {64, 1024});
    w.fill(0);
    RunFolder folder(m, run());
    ok(folder.save(1, {w.tensor()}));
    ok(folder.load({w.tensor()}));
    EXPECT_EQ(w.wrong(0), 0);
  });
  std::signal(SIGCHLD, SIG_DFL);
}

// Goal:   a training that saves for weeks does not run out of descriptors.
TEST_F(Checkpoint, EachSaveGivesItsDescriptorsBack) {
  constexpr std::size_t kSaves = 8;
  with_ranks(1, [&](Member& m) {
    SavedArray w = rows(m, "w", {6});
    w.fill(0);
    RunFolder folder(m, run(), 2);
    ok(folder.save(0, {w.tensor()}));  // what it opens once is open by now
    const std::size_t before = holdings_of(getpid()).descriptors;
    for (std::uint64_t step = 1; step <= kSaves; ++step) ok(folder.save(step, {w.tensor()}));
    // The daemon of this test is in this process, and may hold one more or less.
    EXPECT_LT(await_descriptors(getpid(), before), before + kSaves);
  });
}

TEST_F(Checkpoint, ASaveThatIsGivenUpLeavesNothing) {
  with_ranks(2, [&](Member& m) {
    SavedArray w = rows(m, "w", {2048, 1024});
    RunFolder folder(m, run());
    ok(folder.save_async(1, {w.tensor()}));
    await_all(m);
  });
  EXPECT_TRUE(in_run().empty());
}

TEST_F(Checkpoint, TheNewestAreKeptAndANameIsTakenOnce) {
  with_ranks(2, [&](Member& m) {
    SavedArray w = rows(m, "w", {6});
    RunFolder folder(m, run(), 2);
    for (const std::uint64_t step : {5, 9, 100, 12}) {
      w.fill(static_cast<float>(step));
      ok(folder.save(step, {w.tensor()}));
    }
    meet_and_leave(m);
    // The one just made stays, though it is not the newest by step.
    EXPECT_THAT(in_run(), ::testing::ElementsAre("step-000000000012", "step-000000000100"));
    muster_checkpoint_info infos[4] = {MUSTER_CHECKPOINT_INFO_INIT};
    std::size_t count = 0;
    EXPECT_EQ(muster_checkpoint_list(folder.handle, infos, 4, &count), MUSTER_ERR_BAD_ARGUMENT) << "sizes";
    for (muster_checkpoint_info& info : infos) info = MUSTER_CHECKPOINT_INFO_INIT;
    ok(muster_checkpoint_list(folder.handle, infos, 4, &count));
    ASSERT_EQ(count, 2U);
    EXPECT_EQ(infos[0].step, 12U);
    EXPECT_EQ(infos[1].step, 100U);
    EXPECT_EQ(folder.save(12, {w.tensor()}), MUSTER_ERR_DUPLICATE);
    EXPECT_THAT(muster_last_error(),
                HasSubstr("step-000000000012 already; choose another name, replace it with "
                          "MUSTER_CHECKPOINT_REPLACE, or remove it"));
    w.fill(1);
    ok(folder.save(12, {w.tensor()}, "", MUSTER_CHECKPOINT_REPLACE));
    w.set(0);
    ok(folder.load({w.tensor()}, 0, "step-000000000012"));
    EXPECT_EQ(w.wrong(1), 0);
    ok(folder.load({w.tensor()}));
    EXPECT_EQ(w.wrong(100), 0);
    meet_and_leave(m);
    EXPECT_EQ(in_run().size(), 2U);
  });
}

// Goal: a refusal at one rank is an error at all ranks, and the previous checkpoint stays.
TEST_F(Checkpoint, OneRanksRefusalIsAnErrorAtAll) {
  with_ranks(3, [&](Member& m) {
    SavedArray w = rows(m, "w", {9, 2});
    w.fill(1);
    RunFolder folder(m, run());
    ok(folder.save(1, {w.tensor()}));
    SavedArray bad = rows(m, "w", {9, 2});
    if (m.rank == 1) bad.view().stride[0] = 0;
    EXPECT_EQ(folder.save(2, {bad.tensor()}), MUSTER_ERR_BAD_ARGUMENT);
    EXPECT_THAT(muster_last_error(), HasSubstr("rank 1: the array of tensor \"w\" has strides [0, 1]"));
    if (m.rank == 1) bad.view().offset_bytes = 1 << 20;
    if (m.rank == 1) bad.view().stride[0] = 2;
    EXPECT_EQ(folder.save(2, {bad.tensor()}), MUSTER_ERR_BAD_ARGUMENT);
    EXPECT_EQ(folder.save(m.rank == 1 ? 3 : 2, {w.tensor()}), MUSTER_ERR_MISMATCH);
    EXPECT_THAT(muster_last_error(),
                HasSubstr("name is step-000000000002 at the first, step-000000000003 at rank 1"));
    EXPECT_EQ(folder.save(2, m.rank == 2 ? std::vector<muster_checkpoint_tensor>{} : std::vector{w.tensor()}),
              MUSTER_ERR_BAD_ARGUMENT);
    EXPECT_THAT(muster_last_error(), HasSubstr("a part is missing"));
    w.set(0);
    ok(folder.load({w.tensor()}));
    EXPECT_EQ(w.wrong(1), 0);
    meet_and_leave(m);
    EXPECT_THAT(in_run(), ::testing::ElementsAre("step-000000000001"));
  });
}

// Goal: each wrong bit that is read is found, and the text names file and tensor.
TEST_F(Checkpoint, AFlippedBitIsFoundByAll) {
  with_ranks(2, [&](Member& m) {
    SavedArray w = rows(m, "w", {1024, 1024}), v = rows(m, "v", {8});
    w.fill(1);
    v.fill(2);
    RunFolder folder(m, run());
    ok(folder.save(1, {w.tensor(), v.tensor()}));
    meet_and_leave(m);
    const std::string file = run() + "/step-000000000001/rank-1.bin";
    if (m.rank == 0) {
      std::fstream data(file, std::ios::in | std::ios::out | std::ios::binary);
      data.seekp(1'500'000);
      data.put('\x7f');
    }
    meet_and_leave(m);
    EXPECT_EQ(folder.load({w.tensor()}), MUSTER_ERR_CORRUPT);
    EXPECT_THAT(muster_last_error(), HasSubstr("rank 1: " + file + ": tensor \"w\" is damaged"));
    ok(folder.load({v.tensor()}));  // of other bytes
    EXPECT_EQ(v.wrong(2), 0);
    meet_and_leave(m);
    if (m.rank == 0) fs::resize_file(file, 100);
    meet_and_leave(m);
    EXPECT_EQ(folder.load({w.tensor()}), MUSTER_ERR_CORRUPT);
    EXPECT_THAT(muster_last_error(), HasSubstr("has 100 bytes, but the metadata say"));
    meet_and_leave(m);
    if (m.rank == 0) fs::resize_file(run() + "/step-000000000001/metadata.json", 200);
    meet_and_leave(m);
    EXPECT_EQ(folder.load({w.tensor()}, 0, "step-000000000001"), MUSTER_ERR_CORRUPT);
    EXPECT_THAT(muster_last_error(), HasSubstr("metadata.json"));
  });
}

// Goal: the newest is told from what was passed over, and is never an older one because of a version.
TEST_F(Checkpoint, TheNewestSaysWhatIsDamaged) {
  with_ranks(2, [&](Member& m) {
    SavedArray w = rows(m, "w", {4});
    w.fill(1);
    RunFolder folder(m, run());
    for (const std::uint64_t step : {1, 2}) ok(folder.save(step, {w.tensor()}));
    ok(folder.load({w.tensor()}));
    EXPECT_EQ(folder.info.damaged, 0U);
    meet_and_leave(m);
    if (m.rank == 0) fs::resize_file(run() + "/step-000000000002/metadata.json", 200);
    meet_and_leave(m);
    ok(folder.load({w.tensor()}));
    EXPECT_EQ(folder.info.step, 1U);
    EXPECT_EQ(folder.info.damaged, 1U);
    muster_checkpoint_info info = MUSTER_CHECKPOINT_INFO_INIT;
    ok(muster_checkpoint_query(folder.handle, nullptr, &info));
    EXPECT_EQ(info.step, 1U);
    EXPECT_EQ(info.damaged, 1U);
    if (m.rank == 1) folder.info.size = 0;
    EXPECT_EQ(folder.load({w.tensor()}), MUSTER_ERR_BAD_ARGUMENT);
    EXPECT_THAT(muster_last_error(), HasSubstr("rank 1: muster_checkpoint_info has size 0"));
    info.size = 8;
    EXPECT_EQ(muster_checkpoint_query(folder.handle, nullptr, &info), MUSTER_ERR_BAD_ARGUMENT);
    meet_and_leave(m);
    if (m.rank == 0) {
      fs::remove(run() + "/step-000000000002/metadata.json");
      fs::create_symlink("metadata.json", run() + "/step-000000000002/metadata.json");
    }
    meet_and_leave(m);
    folder.info = MUSTER_CHECKPOINT_INFO_INIT;
    EXPECT_EQ(folder.load({w.tensor()}), MUSTER_ERR_NO_RESOURCE) << "it may be the newest";
  });
}

// Goal: the next save removes the remains of a killed saver, also where all checkpoints are kept.
TEST_F(Checkpoint, LeftoversGoThoughAllAreKept) {
  fs::create_directories(run() + "/step-000000000001.partial-000000000000abcd");
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  with_ranks(2, [&](Member& m) {
    SavedArray w = rows(m, "w", {4});
    RunFolder folder(m, run());
    for (const std::uint64_t step : {2, 3}) ok(folder.save(step, {w.tensor()}));
    meet_and_leave(m);
    EXPECT_THAT(in_run(), ::testing::ElementsAre("step-000000000002", "step-000000000003"));
  });
}

// Goal: a trainer with a profiler, whose signals come all the time, may save too.
TEST_F(Checkpoint, SignalsDoNotStopTheCopy) {
  std::signal(SIGUSR1, [](int) {});
  with_ranks(2, [&](Member& m) {
    SavedArray w = rows(m, "w", {2048, 4096});
    w.fill(0);
    RunFolder folder(m, run());
    sigevent event{};
    event.sigev_notify = SIGEV_THREAD_ID;
    event.sigev_signo = SIGUSR1;
    event._sigev_un._tid = gettid();
    timer_t timer{};
    ASSERT_EQ(timer_create(CLOCK_MONOTONIC, &event, &timer), 0);
    const itimerspec often{{0, 500'000}, {0, 500'000}};
    ASSERT_EQ(timer_settime(timer, 0, &often, nullptr), 0);
    ok(folder.save(1, {w.tensor()}));
    ASSERT_EQ(timer_delete(timer), 0);
    w.set(1);
    ok(folder.load({w.tensor()}));
    EXPECT_EQ(w.wrong(0), 0);
  });
  std::signal(SIGUSR1, SIG_DFL);
}

TEST_F(Checkpoint, PartialTensorsAndUnknownSizesAreRefused) {
  with_ranks(2, [&](Member& m) {
    RunFolder folder(m, run());
    muster_layout_axis partial = axis(nullptr, 2, -1);
    partial.placement = MUSTER_PARTIAL;
    partial.redop = MUSTER_SUM;
    SavedArray w(m.session, "w", {4}, {partial}, m.rank);
    EXPECT_EQ(folder.save(1, {w.tensor()}), MUSTER_ERR_BAD_ARGUMENT);
    EXPECT_THAT(muster_last_error(), HasSubstr("is partial along axis 0"));
    SavedArray three(m.session, "w", {4}, {axis(nullptr, 3, 0)}, 0);
    EXPECT_EQ(folder.save(1, {three.tensor()}), MUSTER_ERR_BAD_ARGUMENT);
    EXPECT_THAT(muster_last_error(), HasSubstr("has 3 ranks, but the group has 2"));
    muster_checkpoint_save_options unset{};
    EXPECT_EQ(muster_checkpoint_save(folder.handle, &unset), MUSTER_ERR_BAD_ARGUMENT);
    EXPECT_EQ(folder.load({}), MUSTER_ERR_NOT_FOUND);
  });
}

}  // namespace
}  // namespace muster::test
