#include "api/shm/peer.hpp"
