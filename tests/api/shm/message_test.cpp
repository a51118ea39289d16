#include "api/shm/message.hpp"
