#include "api/shm/segment.hpp"
