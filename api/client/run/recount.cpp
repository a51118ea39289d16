#include "api/client/run/recount.hpp"

#include "api/base/dtype.hpp"
#include "api/shm/message.hpp"

#include <cstddef>

namespace muster::client {
namespace {

void append_numbers(std::vector<shm::Command>& commands, shm::Command::CountList list,
                    std::span<const std::byte> bytes, std::uint32_t entries) {
  for (std::uint32_t first = 0; first < entries; first += shm::kNumbersPerCommand) {
    shm::Command command;
    command.kind = shm::Command::Kind::kNumbers;
    command.lane = static_cast<std::uint16_t>(list);
    command.first = first;
    const auto number = [&](std::size_t i) {
      return first + i < entries ? shm::tail_entry<std::uint64_t>(bytes, first + i) : 0;
    };
    for (std::size_t i = 0; i < MUSTER_WAITS_MAX; ++i) command.waits[i] = number(i);
    command.deadline_ns = number(MUSTER_WAITS_MAX);
    commands.push_back(command);
  }
}

Status check_room(const char* name, std::span<const Block> blocks, std::size_t element, std::uint64_t room) {
  const std::uint64_t need = extent_of(blocks);
  if (need <= room / element) return {};
  return failure(Code::kBadArgument, "{}: {} elements of {} bytes end behind the {} bytes of its buffer",
                 name, need, element, room);
}

}  // namespace

std::vector<shm::Command> recount_commands(muster_plan plan, const Description& description) {
  const shm::PlanCollective& m = description.message;
  const std::uint32_t lengths[] = {m.source_counts, m.source_offsets, m.target_counts, m.target_offsets};
  std::vector<shm::Command> commands;
  shm::Command last;
  last.kind = shm::Command::Kind::kRecount;
  last.plan = plan;
  last.deadline_ns = m.count;
  std::span<const std::byte> rest(description.lists);
  for (std::size_t i = 0; i < shm::kCountLists; ++i) {
    append_numbers(commands, static_cast<shm::Command::CountList>(i), rest, lengths[i]);
    rest = rest.subspan(lengths[i] * sizeof(std::uint64_t));
    last.waits[i] = lengths[i];
  }
  commands.push_back(last);
  return commands;
}

Status check_rooms(const Described& described, std::size_t element, std::uint64_t source,
                   std::uint64_t target) {
  MUSTER_RETURN_IF_ERROR(check_room("source", described.mine.source_blocks, element, source));
  return check_room("target", described.mine.target_blocks, element, target);
}

}  // namespace muster::client
