# Writes a header with two hashes of engine sources: of everything (a result names the engine that
# made it), and of what makes access streams (a stream stays valid while a policy changes).
function(hash_of variable)
  set(sources ${ARGN})
  list(SORT sources)
  set(all "")
  foreach(source ${sources})
    file(SHA256 ${source} digest)
    file(RELATIVE_PATH name ${ROOT} ${source})
    string(APPEND all "${name} ${digest}\n")
  endforeach()
  string(SHA256 id "${all}")
  string(SUBSTRING ${id} 0 16 id)
  set(${variable} ${id} PARENT_SCOPE)
endfunction()

file(GLOB kernels ${ROOT}/workloads/kernels/*.cpp ${ROOT}/workloads/kernels/*.hpp)
file(GLOB trace ${ROOT}/engine/trace/*.cpp ${ROOT}/engine/trace/*.hpp)
file(GLOB engine ${ROOT}/engine/*/*.cpp ${ROOT}/engine/*/*.hpp)
hash_of(build ${engine} ${kernels})
hash_of(stream ${trace} ${kernels} ${ROOT}/engine/core/types.hpp ${ROOT}/engine/core/rng.hpp)
file(WRITE ${OUT} "// Made by cmake/build_id.cmake.\n#pragma once\n"
     "#define TT_BUILD_ID \"${build}\"\n#define TT_STREAM_ID \"${stream}\"\n")
