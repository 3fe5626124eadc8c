# Writes a header with the SHA-256 of all engine sources, in a stable order.
file(GLOB sources ${ROOT}/engine/*/*.cpp ${ROOT}/engine/*/*.hpp ${ROOT}/workloads/kernels/*.cpp
     ${ROOT}/workloads/kernels/*.hpp)
list(SORT sources)
set(all "")
foreach(source ${sources})
  file(SHA256 ${source} digest)
  file(RELATIVE_PATH name ${ROOT} ${source})
  string(APPEND all "${name} ${digest}\n")
endforeach()
string(SHA256 id "${all}")
string(SUBSTRING ${id} 0 16 id)
file(WRITE ${OUT} "// Made by cmake/build_id.cmake.\n#pragma once\n#define TT_BUILD_ID \"${id}\"\n")
