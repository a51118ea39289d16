// Freeing: gives a session's objects back. Each call also drops the records that other objects keep of them.
#pragma once

#include "api/base/status.hpp"

#include <muster/muster.h>

namespace muster::client {

// Errors: as Buffers::free, Groups::free and Groups::free_mesh; BUSY while a cached plan is in flight.
Status free_buffer(muster_session& session, muster_buffer buffer);
Status free_group(muster_session& session, muster_group group);
Status free_mesh(muster_session& session, muster_mesh mesh);

}  // namespace muster::client
