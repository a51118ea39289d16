// A collective in the terms of muster.h, from the message that carries it.
#pragma once

#include "api/shm/control.hpp"

#include <muster/muster.h>

namespace muster::shm {

// The caller adds count, blocks and faces.
inline muster_collective said_collective(const PlanCollective& message) {
  muster_collective said = MUSTER_COLLECTIVE_INIT;
  said.op = message.op;
  said.group = message.group;
  said.dtype = message.dtype;
  said.redop = message.redop;
  said.peer = message.peer;
  said.tag = message.tag;
  said.scale = message.scale;
  said.source = message.source;
  said.target = message.target;
  return said;
}

}  // namespace muster::shm
