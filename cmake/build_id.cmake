# Writes a header with hashes of engine sources: of everything (a result names the engine that made
# it), and per kernel file of what makes its access streams (they stay valid while a policy or another
# kernel changes): the file, what it includes, transitively, and the .cpp beside each header.
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

function(sources_behind variable)
  set(waiting ${ARGN})
  set(found "")
  while(waiting)
    list(POP_FRONT waiting file)
    if(file IN_LIST found OR NOT EXISTS ${file})
      continue()
    endif()
    list(APPEND found ${file})
    file(STRINGS ${file} lines REGEX "^ *#include *\"[^\"]+\"")
    foreach(line ${lines})
      string(REGEX REPLACE "^[^\"]*\"([^\"]+)\".*" "\\1" header "${line}")
      string(REGEX REPLACE "\\.hpp$" ".cpp" beside "${header}")
      list(APPEND waiting ${ROOT}/engine/${header} ${ROOT}/workloads/${header}
           ${ROOT}/engine/${beside} ${ROOT}/workloads/${beside})
    endforeach()
  endwhile()
  set(${variable} ${found} PARENT_SCOPE)
endfunction()

file(GLOB kernels ${ROOT}/workloads/kernels/*.cpp ${ROOT}/workloads/kernels/*.hpp)
file(GLOB engine ${ROOT}/engine/*/*.cpp ${ROOT}/engine/*/*.hpp ${ROOT}/engine/record/import/*.cpp
     ${ROOT}/engine/record/import/*.hpp)
hash_of(build ${engine} ${kernels})
set(streams "")
file(GLOB kernel_files ${ROOT}/workloads/kernels/*.cpp)
foreach(kernel ${kernel_files})
  # The registry completes a kernel's parameters; no header has its name.
  sources_behind(sources ${kernel} ${ROOT}/workloads/kernels/registry.cpp)
  hash_of(id ${sources})
  get_filename_component(name ${kernel} NAME_WE)
  string(APPEND streams "    {\"${name}\", \"${id}\"},\n")
endforeach()
file(WRITE ${OUT} "// Made by cmake/build_id.cmake.\n#pragma once\n"
     "#define TT_BUILD_ID \"${build}\"\n"
     "/// File of a kernel, without its ending, and the hash of what makes its streams.\n"
     "inline constexpr const char* stream_ids[][2] = {\n${streams}};\n")
