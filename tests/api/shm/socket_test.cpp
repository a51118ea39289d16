#include "api/shm/socket.hpp"
