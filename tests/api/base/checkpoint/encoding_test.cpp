#include "api/base/checkpoint/encoding.hpp"

#include "api/base/checksum.hpp"
#include "tests/api/base/checkpoint/planned.hpp"
#include "tests/kernels/math/values.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace muster::checkpoint {
namespace {

using math::test::Random;
using test::own_tensor;
using test::rows;
using ::testing::HasSubstr;

CheckpointRecord sample() {
  std::vector<std::vector<OwnTensor>> members;
  for (std::int64_t rank = 0; rank < 3; ++rank)
    members.push_back({own_tensor("head", rows({10, 12}, 3), rank),
                       own_tensor("größe \"x\"", rows({7}, 3), rank, MUSTER_F8_E4M3)});
  members[0].push_back({"", MUSTER_U8, 1, {5}, {Box{1, {}, {5}}}});
  members[0].push_back({"none", MUSTER_I64, 2, {0, 3}});
  CheckpointRecord record = plan_write(members, 1ULL << 63)->record;
  for (SavedTensor& tensor : record.tensors)
    for (SavedBox& saved : tensor.boxes)
      for (std::uint64_t i = 0; i < chunks_of(bytes_of(saved.box, tensor.dtype)); ++i)
        saved.sums.push_back({i + 1, saved.at + 7});
  record.notes = {{"format", "pt"}, {"größe \n", "\"x\""}};
  return record;
}

// The metadata with `from` changed to `to`, and a checksum that fits again.
std::string forged(std::string text, const std::string& from, const std::string& to) {
  const std::size_t at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  if (at != std::string::npos) text.replace(at, from.size(), to);
  const std::size_t begin = text.find("\"metadata\":") + 11;
  const std::string inner = text.substr(begin, text.size() - 2 - begin);
  return "{\"checksum\":\"" + checksum(std::as_bytes(std::span(inner))).hex() + "\",\n\"metadata\":" + inner +
         "}\n";
}

TEST(Encoding, ReadsWhatItWrites) {
  const CheckpointRecord record = sample();
  const auto read = record_of(text_of(record));
  ASSERT_TRUE(read) << read.error().message();
  EXPECT_EQ(*read, record);
  EXPECT_EQ(*record_of(text_of({})), CheckpointRecord());
}

// Goal: each wrong bit of the metadata is found.
TEST(Encoding, FindsEachFlippedBit) {
  const std::string text = text_of(sample());
  for (std::size_t i = 0; i < text.size(); ++i)
    for (int bit = 0; bit < 8; ++bit) {
      std::string flipped = text;
      flipped[i] = static_cast<char>(flipped[i] ^ (1 << bit));
      ASSERT_FALSE(record_of(flipped)) << "byte " << i << " bit " << bit;
    }
}

TEST(Encoding, RefusesATruncatedText) {
  const std::string text = text_of(sample());
  for (std::size_t i = 0; i < text.size(); ++i) ASSERT_FALSE(record_of(text.substr(0, i))) << i;
  EXPECT_FALSE(record_of(text + "x"));
}

// Goal: somebody who writes a checksum that fits still gets no number past the reader.
TEST(Encoding, ChecksEachNumber) {
  const std::string text = text_of(sample());
  const auto refusal = [&](const char* from, const char* to) {
    const auto read = record_of(forged(text, from, to));
    return read ? std::string("nothing") : read.error().message();
  };
  EXPECT_EQ(refusal("[10,12]", "[10,12]"), "nothing");
  EXPECT_THAT(refusal("\"shape\":[10,12]", "\"shape\":[10,13]"), HasSubstr("tensor \"head\""));
  EXPECT_THAT(refusal("\"shape\":[10,12]", "\"shape\":[10,9223372036854775807]"), HasSubstr("2^63 bytes"));
  EXPECT_THAT(refusal("\"shape\":[10,12]", "\"shape\":[10,18446744073709551615]"), HasSubstr("no length"));
  EXPECT_THAT(refusal("\"shape\":[10,12]", "\"shape\":[10,-1]"), HasSubstr("no length"));
  EXPECT_THAT(refusal("\"shape\":[10,12]", "\"shape\":[1,1,1,1,1,1,1,1,1]"), HasSubstr("9 entries"));
  EXPECT_THAT(refusal("\"shape\":[10,12]", "\"shape\":10"), HasSubstr("not a list"));
  EXPECT_THAT(refusal("\"offset\":[4,0]", "\"offset\":[3,0]"), HasSubstr("overlap"));
  EXPECT_THAT(refusal("\"length\":[4,12]", "\"length\":[4,11]"), HasSubstr("\"head\""));
  EXPECT_THAT(refusal("\"at\":0,", "\"at\":999999,"), HasSubstr("is not in its file"));
  EXPECT_THAT(refusal("\"file\":1", "\"file\":77"), HasSubstr("is not in its file"));
  EXPECT_THAT(refusal("rank-0.bin", "../x.bin"), HasSubstr("no file of a checkpoint"));
  EXPECT_THAT(refusal("\"f32\"", "\"f31\""), HasSubstr("is none"));
  EXPECT_THAT(refusal("\"version\":1", "\"version\":2"), HasSubstr("format version 2; this program reads 1"));
  EXPECT_THAT(refusal("\"step\":9", "\"step\":-9"), HasSubstr("\"step\" is not a whole number"));
  EXPECT_THAT(refusal("\"name\":\"head\"", "\"name\":\"he\\nad\""), HasSubstr("control characters"));
  EXPECT_THAT(refusal("\"name\":\"none\"", "\"name\":\"head\""), HasSubstr("is not behind"));
  EXPECT_THAT(refusal("\"tensors\"", "\"tensor\""), HasSubstr("\"tensors\" is missing"));
  EXPECT_THAT(refusal("\"format\":\"pt\"", "\"format\":7"),
              HasSubstr("\"format\" of \"notes\" is not a text"));
  EXPECT_THAT(refusal("\"notes\":{", "\"notes\":[],\"x\":{"), HasSubstr("\"notes\" is not an object"));
  EXPECT_THAT(refusal("\"sums\":[\"", "\"sums\":[\"00\",\""), HasSubstr("checksums"));
}

// Goal: a short file cannot stand for a long tensor.
TEST(Encoding, TheBoxesOfAFileLieEndToEnd) {
  CheckpointRecord record = sample();
  SavedTensor& user = record.tensors.front();
  ASSERT_EQ(user.name, "");
  record.files[user.boxes[0].file].bytes += 1;
  EXPECT_THAT(record_of(text_of(record)).error().message(), HasSubstr("bytes of rank-0.bin, which has"));
  record = sample();
  for (SavedTensor& tensor : record.tensors)
    for (SavedBox& saved : tensor.boxes) saved.at = 0;
  EXPECT_THAT(record_of(text_of(record)).error().message(), HasSubstr("but what is before it ends at"));
}

// Goal:   checkpoints of older releases have no notes, and an empty set of notes is not written.
TEST(Encoding, NotesAreThereOnlyIfThereAreAny) {
  CheckpointRecord record = sample();
  record.notes.clear();
  EXPECT_EQ(text_of(record).find("notes"), std::string::npos);
  EXPECT_EQ(*record_of(text_of(record)), record);
  record.notes["x"] = std::string(kNotesBytesMax, 'x');
  EXPECT_EQ(record_of(text_of(record)).error().code(), Code::kCorrupt);
}

// Goal:   no text makes the reader crash, or take much memory.
// Method: thousands of texts with a few bytes changed, cut or doubled, all with a checksum that fits.
TEST(Encoding, MutationsAreReadOrRefused) {
  const std::string text = text_of(sample());
  const std::size_t begin = text.find("\"metadata\":") + 11;
  const std::string inner = text.substr(begin, text.size() - 2 - begin);
  Random random(20);
  int refused = 0;
  for (int round = 0; round < 6'000; ++round) {
    std::string mutated = inner;
    for (std::uint64_t changes = 1 + random.below(4); changes > 0; --changes) {
      const std::size_t at = random.below(mutated.size());
      constexpr std::string_view kDigits = "0123456789-,:[]{}\"e.";
      switch (random.below(5)) {
        case 0:
          mutated[at] = static_cast<char>(random.next());
          break;
        case 1:
          mutated[at] = kDigits[random.below(kDigits.size())];
          break;
        case 2:
          mutated.erase(at, random.below(8));
          break;
        case 3:
          mutated.insert(at, mutated.substr(random.below(mutated.size()), random.below(40)));
          break;
        default:
          mutated.insert(at, 1, kDigits[random.below(kDigits.size())]);
          break;
      }
      if (mutated.empty()) mutated = "0";
    }
    const auto read = record_of("{\"checksum\":\"" + checksum(std::as_bytes(std::span(mutated))).hex() +
                                "\",\n\"metadata\":" + mutated + "}\n");
    refused += read ? 0 : 1;
    (void)safetensors_record(mutated, random.next());
    (void)part_index(mutated);
  }
  EXPECT_GT(refused, 3'000);
}

TEST(Encoding, RefusesWhatIsDeep) {
  const std::string deep = std::string(1 << 20, '[');
  const auto read = record_of("{\"checksum\":\"" + checksum(std::as_bytes(std::span(deep))).hex() +
                              "\",\n\"metadata\":" + deep + "}\n");
  ASSERT_FALSE(read);
  EXPECT_EQ(read.error().code(), Code::kCorrupt);
}

// ---- safetensors --------------------------------------------------------------------------------

TEST(Safetensors, TheHeaderHasNamesShapesAndOffsetsInOrder) {
  const std::string header = safetensors_header(sample());
  EXPECT_EQ(header.size() % 8, 0U);
  EXPECT_THAT(header, HasSubstr(R"("größe \"x\"":{"data_offsets":[0,7],"dtype":"F8_E4M3","shape":[7]})"));
  EXPECT_THAT(header, HasSubstr(R"("head":{"data_offsets":[7,487],"dtype":"F32","shape":[10,12]})"));
  EXPECT_THAT(header, HasSubstr(R"("none":{"data_offsets":[487,487],"dtype":"I64","shape":[0,3]})"));
  const auto read = safetensors_record(header, 487);
  ASSERT_TRUE(read) << read.error().message();
  EXPECT_EQ(read->tensors.size(), 3U);
  EXPECT_EQ(read->notes, sample().notes);
  EXPECT_FALSE(safetensors_record(header, 486));
}

TEST(Safetensors, RefusesWhatDoesNotFit) {
  const auto refusal = [](const std::string& text) {
    const auto read = safetensors_record(text, 8);
    return read ? std::string("nothing") : read.error().message();
  };
  EXPECT_EQ(refusal(R"({"__metadata__":{"a":"b"},"x":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})"),
            "nothing");
  EXPECT_THAT(refusal(R"({"x":{"dtype":"U16","shape":[2],"data_offsets":[0,4]}})"), HasSubstr("U16"));
  EXPECT_THAT(refusal(R"({"x":{"dtype":"F32","shape":[2],"data_offsets":[0,9]}})"), HasSubstr("8 bytes"));
  EXPECT_THAT(refusal(R"({"x":{"dtype":"F32","shape":[2],"data_offsets":[60,68]}})"), HasSubstr("8 bytes"));
  EXPECT_THAT(refusal("[1]"), HasSubstr("no JSON object"));
}

TEST(Safetensors, NotesAreTexts) {
  const auto refusal = [](const std::string& notes) {
    const auto read = safetensors_record("{\"__metadata__\":" + notes + "}", 0);
    return read ? std::string("nothing") : read.error().message();
  };
  EXPECT_EQ(refusal("null"), "nothing");
  EXPECT_EQ(refusal("{}"), "nothing");
  EXPECT_THAT(refusal(R"({"epoch":7})"), HasSubstr("\"epoch\" of \"__metadata__\" is not a text"));
  EXPECT_THAT(refusal(R"({"a\u001b":{}})"), HasSubstr("\"a?\" of"));
  EXPECT_THAT(refusal(R"(["pt"])"), HasSubstr("\"__metadata__\" is not an object of texts"));
  EXPECT_THAT(refusal("{\"a\":\"" + std::string(kNotesBytesMax, 'x') + "\"}"), HasSubstr("at most 8388608"));
}

// ---- indices -----------------------------------------------------------------------------------

TEST(PartIndex, SaysWhichFileHasATensor) {
  const auto index = part_index(R"({"metadata":{"total_size":16},"weight_map":{"b":"2.st","a":"1.st"}})");
  ASSERT_TRUE(index) << index.error().message();
  EXPECT_EQ(*index, (PartIndex{{"a", "1.st"}, {"b", "2.st"}}));
}

TEST(PartIndex, RefusesWhatIsNone) {
  const auto refusal = [](const std::string& text) {
    const auto read = part_index(text);
    EXPECT_TRUE(read || read.error().code() == Code::kCorrupt);
    return read ? std::string("nothing") : read.error().message();
  };
  for (const char* text : {"", "[]", "{", "{}", "7", R"({"weight_map":["a"]})", R"({"weight_map":null})",
                           R"([{"weight_map":{}}])", "{\"weight_map\":{\"\xff\":\"x\"}}"})
    EXPECT_THAT(refusal(text), HasSubstr("it has no object \"weight_map\"")) << text;
  EXPECT_THAT(refusal(R"({"weight_map":{"a":{}}})"), HasSubstr("tensor \"a\" is in no file"));
  EXPECT_THAT(refusal(R"({"weight_map":{"a\n":"x"}})"), HasSubstr("control characters"));
  for (const char* file : {"", ".", "..", "../x", "/etc/passwd", "x/y", "x\\u0000y"})
    EXPECT_THAT(refusal(fmt::format(R"({{"weight_map":{{"a":"{}"}}}})", file)),
                HasSubstr("no name of a file beside the index"))
        << file;
  EXPECT_THAT(refusal(std::string(1 << 20, '[')), HasSubstr("weight_map"));
}

// Goal: a short file cannot fill a disk, because each of its bytes is of one tensor.
TEST(Safetensors, TensorsLieEndToEnd) {
  const auto refusal = [](const char* first, const char* second, std::uint64_t bytes) {
    const auto read =
        safetensors_record(fmt::format(R"({{"a":{{"dtype":"U8","shape":[4],"data_offsets":{}}},)"
                                       R"("b":{{"dtype":"U8","shape":[4],"data_offsets":{}}}}})",
                                       first, second),
                           bytes);
    return read ? std::string("nothing") : read.error().message();
  };
  EXPECT_EQ(refusal("[0,4]", "[4,8]", 8), "nothing");
  EXPECT_EQ(refusal("[4,8]", "[0,4]", 8), "nothing");
  EXPECT_THAT(refusal("[0,4]", "[0,4]", 4), HasSubstr("but what is before it ends at 4"));
  EXPECT_THAT(refusal("[0,4]", "[5,9]", 9), HasSubstr("\"b\" begins at byte 5 of the data"));
  EXPECT_THAT(refusal("[0,4]", "[4,8]", 9), HasSubstr("8 bytes of the data, which has 9"));
}

}  // namespace
}  // namespace muster::checkpoint
