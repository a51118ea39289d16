#include "api/shm/headroom.hpp"
