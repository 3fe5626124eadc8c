#include "check.hpp"
#include "core/page_map.hpp"
