// GhostLists: the queues of caching algorithms such as ARC (FAST'03) and 2Q (VLDB'94), of pages
// that are in the cache and of ghosts, of which only the name is remembered.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "core/page_map.hpp"
